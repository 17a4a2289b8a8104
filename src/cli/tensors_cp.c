/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice tensors cp
 *
 * Copies tensors into a new safetensors file: writes its header, then the bytes of each tensor,
 * which pass through a few buffers in turn.
 *
 * Threads: the main thread.
 */
#include <err.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>

#include "cli_tensors.h"

enum { BUFFERS = 8, BUFFER_BYTES = 8 << 20 };

/* A part of a tensor on its way. */
struct tensors_part {
	char *data;
	size_t n;
	uint64_t to;
	sluice_op *read, *write;
};
struct tensors_copy {
	sluice_tensors *tensors;
	const struct cli_tensors_options *options;
	sluice_file *out;
	uint64_t at; /* in the file that is made */
	struct tensors_part parts[BUFFERS];
	uint64_t count; /* parts that were begun; the next is in parts[count % BUFFERS] */
	struct cli_progress progress;
};

static bool is_chosen(const struct cli_tensors_options *o, const char *name)
{
	for (size_t i = 0; i < o->pattern_count; i++)
		if (!fnmatch(o->patterns[i], name, 0))
			return true;
	return !o->pattern_count;
}

/* Writes the entry of a tensor, which begins at *end, into the header. */
static int write_entry(FILE *header, const struct sluice_tensor *tensor, uint64_t *end)
{
	const struct sl_type *type = sl_type_find(tensor->type);

	if (!type->word)
		return cli_fail(-ENOTSUP, "'%s': safetensors has no type %s", tensor->name,
		                type->name);
	if (*end)
		putc(',', header);
	sl_json_tensor(header, tensor->name, type, tensor->rank, tensor->shape, *end,
	               tensor->bytes);
	*end += tensor->bytes;
	return 0;
}

/* Makes the header, for the caller to free; *n its bytes, *data those of all tensors. */
static int make_header(const struct tensors_copy *copy, char **text, size_t *n, uint64_t *data)
{
	struct sluice_tensor tensor = {.size = sizeof(tensor)};
	FILE *header = open_memstream(text, n);
	size_t chosen = 0;
	int rc = 0;

	if (!header)
		err(CLI_FAILED, "header");
	*data = 0;
	fwrite("12345678{", 1, 9, header); /* the length comes last */
	for (size_t i = 0; !rc && !sluice_tensors_get(copy->tensors, i, &tensor); i++)
		if (is_chosen(copy->options, tensor.name)) {
			if (chosen++ && !*data)
				putc(',', header);
			rc = write_entry(header, &tensor, data);
		}
	putc('}', header);
	fflush(header);
	for (size_t blanks = -*n % 8; blanks; blanks--)
		putc(' ', header);
	if (fclose(header))
		err(CLI_FAILED, "header");
	for (int i = 0; i < 8; i++)
		(*text)[i] = (char)((*n - 8) >> 8 * i & 0xff);
	if (!rc && !chosen && copy->options->pattern_count)
		rc = cli_fail(-ENOENT, "no tensor has such a name");
	return rc;
}

/* Waits for an operation, which an interrupt cancels, and frees it. */
static int finish(sluice_op **op, size_t n, const char *what)
{
	int64_t moved = (int64_t)n;
	int rc;

	while (*op && (moved = sluice_wait(*op, 100)) == -EINPROGRESS)
		if (cli_interrupted())
			sluice_cancel(*op);
	rc = moved == (int64_t)n ? 0 : moved < 0 ? (int)moved : -EIO;
	if (rc && rc != -ECANCELED)
		cli_fail(rc, "%s: %s", what,
		         moved < 0 ? sluice_op_message(*op) : "the file is shorter");
	sluice_op_free(*op);
	*op = NULL;
	return rc;
}

/* Writes a part when its bytes have come. */
static int write_part(struct tensors_copy *copy, struct tensors_part *part)
{
	int rc = finish(&part->read, part->n, "reading");

	return rc ? rc
	          : cli_said(sluice_write(copy->out, part->data, part->n, part->to, &part->write));
}

/* Begins to read a part into the buffer of that which was begun first, and has another written. */
static int next_part(struct tensors_copy *copy, sluice_file *file, uint64_t offset, size_t n)
{
	struct tensors_part *part = &copy->parts[copy->count % BUFFERS];
	int rc = 0;

	if (copy->count >= BUFFERS / 2)
		rc = write_part(copy, &copy->parts[(copy->count - BUFFERS / 2) % BUFFERS]);
	if (!rc)
		rc = finish(&part->write, part->n, "writing");
	part->n = n;
	part->to = copy->at;
	if (!rc)
		rc = cli_said(sluice_read(file, part->data, n, offset, &part->read));
	copy->at += n;
	copy->count++;
	cli_progress_update(&copy->progress, copy->at);
	return !rc && cli_interrupted() ? -ECANCELED : rc;
}

static int copy_tensors(struct tensors_copy *copy)
{
	struct sluice_tensor tensor = {.size = sizeof(tensor)};
	struct sluice_tensor_file file = {.size = sizeof(file)};
	int rc = 0;

	for (size_t i = 0; !rc && !sluice_tensors_get(copy->tensors, i, &tensor); i++) {
		sluice_tensors_file(copy->tensors, tensor.file, &file);
		for (uint64_t done = 0;
		     !rc && done < tensor.bytes && is_chosen(copy->options, tensor.name);
		     done += BUFFER_BYTES) {
			uint64_t left = tensor.bytes - done;

			rc = next_part(copy, file.file, tensor.offset + done,
			               left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES);
		}
	}
	for (unsigned i = 0; i < BUFFERS; i++) {
		struct tensors_part *part = &copy->parts[(copy->count + i) % BUFFERS];

		if (!rc && part->read)
			rc = write_part(copy, part);
	}
	return rc;
}

/* Waits for everything that has been begun. */
static int end_parts(struct tensors_copy *copy, int rc)
{
	for (unsigned i = 0; i < BUFFERS; i++) {
		struct tensors_part *part = &copy->parts[i];

		if (part->read) {
			sluice_cancel(part->read);
			sluice_wait(part->read, -1);
			sluice_op_free(part->read);
		}
		int written = finish(&part->write, part->n, "writing");
		rc = rc ? rc : written;
		free(part->data);
	}
	return rc;
}

static int write_file(struct tensors_copy *copy, const char *header, size_t n)
{
	sluice_op *op = NULL;
	int rc = cli_said(sluice_write(copy->out, header, n, 0, &op));

	for (unsigned i = 0; i < BUFFERS; i++) {
		copy->parts[i].data = aligned_alloc(4096, BUFFER_BYTES);
		if (!copy->parts[i].data)
			err(CLI_FAILED, "buffers");
	}
	copy->at = n;
	if (!rc)
		rc = copy_tensors(copy);
	rc = end_parts(copy, rc);
	int written = finish(&op, n, "writing");
	return rc ? rc : written;
}

int cli_tensors_cp(sluice_tensors *tensors, const struct cli_tensors_options *o)
{
	struct tensors_copy copy = {.tensors = tensors, .options = o};
	struct sluice_open_options options = cli_open_options(&o->open);
	char *header = NULL;
	uint64_t data;
	size_t n;
	int rc = make_header(&copy, &header, &n, &data);

	options.flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_REPLACE;
	options.expected_size = n + data;
	cli_interrupt_catch();
	if (!rc)
		rc = cli_said(sluice_open(o->ctx, o->target, &options, &copy.out));
	if (!rc) {
		cli_progress_start(&copy.progress, o->target, n + data, true);
		rc = write_file(&copy, header, n);
		cli_progress_end(&copy.progress);
		if (rc)
			sluice_discard(copy.out);
		else
			rc = cli_said(sluice_close(copy.out));
	}
	free(header);
	if (cli_interrupted())
		cli_interrupt_obey();
	return rc;
}
