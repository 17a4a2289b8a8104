/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice tensors bench
 *
 * Times loads of all tensors, in turn with reads of the same bytes by an operation for each file,
 * into the same memory.
 *
 * Threads: the main thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "cli_tensors.h"

/* The bytes of a file from the first tensor to the last, and where in memory they are read to. */
struct tensors_span {
	sluice_file *file;
	uint64_t start, end, at;
	sluice_op *op;
};
struct tensors_bench {
	sluice_tensors *tensors;
	const struct cli_tensors_options *options;
	sluice_tensor_plan *plan;
	sluice_tensor_memory *memory;
	sluice_stream stream;
	struct tensors_span *spans; /* of the files */
	size_t files;
	uint64_t bytes; /* of all spans */
};

static void tensors_bench_find_spans(struct tensors_bench *b)
{
	struct sluice_tensor tensor = {.size = sizeof(tensor)};
	struct sluice_tensor_file file = {.size = sizeof(file)};

	for (; !sluice_tensors_file(b->tensors, b->files, &file); b->files++) {
		b->spans = cli_grow(b->spans, b->files + 1, sizeof(*b->spans));
		b->spans[b->files] = (struct tensors_span){.file = file.file};
	}
	/* By file, and in a file in the order of their bytes. */
	for (size_t i = 0; !sluice_tensors_get(b->tensors, i, &tensor); i++) {
		struct tensors_span *span = &b->spans[tensor.file];

		if (!span->end) {
			span->start = span->end = tensor.offset;
			span->at = b->bytes;
		}
		b->bytes += tensor.offset + tensor.bytes - span->end;
		span->end = tensor.offset + tensor.bytes;
	}
}

static int tensors_bench_load(struct tensors_bench *b)
{
	struct sluice_tensor_read_options o = SLUICE_TENSOR_READ_OPTIONS_INIT;
	sluice_tensor_load *load;

	o.on = b->options->stream;
	o.stream = b->stream;
	int64_t moved = cli_said(sluice_tensor_plan_read(b->plan, b->memory, &o, &load));
	if (moved)
		return (int)moved;
	moved = sluice_tensor_load_wait(load, -1);
	if (moved < 0)
		cli_fail((int)moved, "%s", sluice_tensor_load_message(load));
	sluice_tensor_load_free(load);
	return moved < 0 ? (int)moved : 0;
}

static int tensors_bench_read(struct tensors_bench *b)
{
	char *data = sluice_tensor_memory_data(b->memory);
	size_t started = 0;
	int rc = 0;

	for (; !rc && started < b->files; started += !rc) {
		struct tensors_span *s = &b->spans[started];
		struct sluice_extent all = {data + s->at, s->end - s->start, s->start};
		struct sluice_request r = SLUICE_REQUEST_INIT;

		r.kind = SLUICE_READ;
		r.extents = &all;
		r.count = 1;
		r.on = b->options->stream;
		r.stream = b->stream;
		rc = cli_said(sluice_submit(s->file, &r, &s->op));
	}
	for (size_t i = 0; i < started; i++) {
		int64_t moved = sluice_wait(b->spans[i].op, -1);

		if (moved < 0)
			rc = cli_fail((int)moved, "%s", sluice_op_message(b->spans[i].op));
		sluice_op_free(b->spans[i].op);
	}
	return rc;
}

static int tensors_bench_run(struct tensors_bench *b)
{
	const struct cli_tensors_options *o = b->options;
	double load = 0, bare = 0, bytes = (double)b->bytes * o->rounds * 1e9;
	char size[CLI_TEXT], rates[2][CLI_TEXT];
	struct rusage used;
	/* The first load touches memory, and starts what the device needs. */
	int rc = tensors_bench_load(b);

	for (unsigned i = 0; !rc && i < o->rounds; i++) {
		uint64_t start = sl_now(), middle;

		rc = tensors_bench_load(b);
		middle = sl_now();
		rc = rc ? rc : tensors_bench_read(b);
		load += (double)(middle - start);
		bare += (double)(sl_now() - middle);
	}
	if (rc)
		return rc;
	getrusage(RUSAGE_SELF, &used);
	printf("%zu tensors in %zu files, %s, to %s%s\n", sluice_tensors_count(b->tensors),
	       b->files, cli_size_format(b->bytes, size), cli_memory_name(o->device),
	       o->stream ? " in stream order" : "");
	printf("loaded at %s, read without tensors at %s: %.2f of it\n",
	       cli_rate_format(bytes / load, rates[0]), cli_rate_format(bytes / bare, rates[1]),
	       bare / load);
	printf("memory of the host at most %s\n",
	       cli_size_format((uint64_t)used.ru_maxrss * 1024, size));
	return 0;
}

int cli_tensors_bench(sluice_tensors *tensors, const struct cli_tensors_options *o)
{
	struct tensors_bench b = {.tensors = tensors, .options = o};
	int rc;

	tensors_bench_find_spans(&b);
	if (!b.bytes)
		rc = cli_fail(-EINVAL, "there are no tensors with bytes");
	else
		rc = cli_said(sluice_tensor_plan_new(tensors, NULL, 0, &b.plan));
	uint64_t needed = sluice_tensor_plan_bytes(b.plan);
	if (!rc)
		rc = cli_said(sluice_tensor_memory_new(
			o->device, needed < b.bytes ? b.bytes : needed, &b.memory));
	if (!rc && o->stream)
		rc = cli_said(sluice_stream_new(o->device, &b.stream));
	if (!rc)
		rc = tensors_bench_run(&b);
	sluice_stream_free(b.stream);
	sluice_tensor_memory_free(b.memory);
	sluice_tensor_plan_free(b.plan);
	free(b.spans);
	return rc;
}
