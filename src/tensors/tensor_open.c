/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of tensors
 *
 * Opens files, several at a time, each by a thread reading the header; then puts the tensors of all
 * files into a table. The caller waits for the threads. The table does not change afterwards, and
 * any thread may read it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "tensors/header.h"

#define OPENED_AGAIN 3  /* attempts to open an index that changes, and its files */
#define READ_AGAIN   10 /* attempts to read an index alone */
#define AT_ONCE      16 /* opened files */
#define STOP_MS      50 /* a wait looks at *stop so often */
/* Bytes of each, read before the format is known. */
#define FIRST ((uint64_t)256 << 10)

/* ------------------------------------------------------------------------------------- format */

static bool is_index(const struct sl_tensor_header *header)
{
	size_t at = 0;

	while (at < header->have && header->bytes[at] && strchr(" \t\r\n", header->bytes[at]))
		at++;
	return at < header->have && header->bytes[at] == '{' &&
	       !memchr(header->bytes, 0, SL_MIN(header->have, 8));
}

static bool name_ends(const struct sl_tensor_header *header, const char *suffix)
{
	const char *name = header->file->name;
	size_t length = strcspn(name, "?"), n = strlen(suffix);

	return length >= n && !memcmp(name + length - n, suffix, n);
}

static bool is_safetensors(const struct sl_tensor_header *header)
{
	if (name_ends(header, ".safetensors"))
		return true;
	return !name_ends(header, ".npy") && !name_ends(header, ".npz") && header->have > 8 &&
	       (header->bytes[8] == '{' || !memcmp(header->bytes + 4, "\0\0\0", 4));
}

static int opening_recognise(struct sl_tensor_header *header)
{
	int rc = sl_tensor_header_need(header, SL_MIN(header->file->length, FIRST));

	if (rc)
		return rc;
	if (header->have >= 6 && !memcmp(header->bytes, "\x93NUMPY", 6))
		return sl_npy_read(header);
	if (header->have >= 4 && !memcmp(header->bytes, "PK", 2) && header->bytes[2] < 8)
		return sl_npz_read(header);
	if (is_index(header))
		return sl_tensor_index_read(header);
	if (is_safetensors(header))
		return sl_safetensors_read(header);
	return sl_tensor_refuse(
		header->file, -EPROTO, NULL,
		"it is neither .safetensors nor an index of such files, .npy or .npz");
}

/* --------------------------------------------------------------------------------------- open */

struct opening {
	sluice_tensors *t;
	const char *const *uris;
	const struct sluice_open_options *options;
	struct opened {
		struct sl_tensor_header header;
		int rc;
		char *message; /* of rc; NULL: no memory */
	} * files;
	_Atomic size_t next; /* that no thread has taken */
};

/* Waits for an open, which *stop cancels. */
static int opening_start(const struct opening *o, const char *uri, sluice_file **out)
{
	sluice_op *op;
	int rc = sluice_open_start(o->t->ctx, uri, o->options, NULL, NULL, &op);

	if (rc)
		return rc;
	while ((rc = (int)sluice_wait(op, STOP_MS)) == -EINPROGRESS)
		if (atomic_load(o->t->stop))
			sluice_cancel(op);
	rc = rc ? sl_fail(rc, "%s", sluice_op_message(op)) : sluice_op_file(op, out);
	sluice_op_free(op);
	return rc;
}

static int opening_open(const struct opening *o, const char *uri, struct sl_tensor_header *header)
{
	struct sluice_file_info info = {.size = sizeof(info)};
	struct sl_tensor_file *file = header->file;

	file->name = sl_uri_name(uri);
	if (!file->name)
		return sl_fail(-ENOMEM, "no memory");
	file->stop = o->t->stop;
	int rc = file->stop ? opening_start(o, uri, &file->file)
	                    : sluice_open(o->t->ctx, uri, o->options, &file->file);
	if (!rc)
		rc = sluice_stat(file->file, &info);
	file->length = info.length;
	return rc ? rc : opening_recognise(header);
}

/* Opens files until all are taken, or one fails. */
static void *opening_run(void *opening)
{
	struct opening *o = opening;
	size_t i;

	while ((i = atomic_fetch_add(&o->next, 1)) < o->t->file_count) {
		struct opened *file = &o->files[i];

		file->rc = opening_open(o, o->uris[i], &file->header);
		if (file->rc) {
			file->message = strdup(sluice_last_message());
			atomic_store(&o->next, o->t->file_count);
		}
	}
	return NULL;
}

/* Puts the tensors of a file into the table. */
static int opening_merge(const struct opening *o, size_t number)
{
	const struct sl_tensor_header *header = &o->files[number].header;
	sluice_tensors *t = o->t;

	for (size_t i = 0; i < header->count; i++) {
		struct sl_tensor *tensor = &t->tensors[t->count];
		struct sl_name *slot = sl_names_slot(&t->names, header->tensors[i].name);

		*tensor = header->tensors[i];
		tensor->file = (uint32_t)number;
		if (slot->text)
			return sl_tensor_refuse(header->file, -EBADMSG, tensor->name,
			                        "this name is in '%s', too",
			                        t->files[t->tensors[slot->number].file].name);
		*slot = (struct sl_name){tensor->name, t->count++};
	}
	return 0;
}

/* Opens all files, and fills the table unless the file is an index. */
static int opening_all(struct opening *o)
{
	sluice_tensors *t = o->t;
	pthread_t threads[AT_ONCE];
	size_t started = 0, count = 0;
	int rc = 0;

	while (started + 1 < SL_MIN(t->file_count, AT_ONCE) &&
	       !sl_thread_start(&threads[started], "sluice-tensors", opening_run, o))
		started++;
	opening_run(o);
	while (started)
		pthread_join(threads[--started], NULL);
	for (size_t i = 0; !rc && i < t->file_count; i++) {
		const struct opened *file = &o->files[i];

		count += file->header.count;
		if (file->rc)
			rc = sl_fail(file->rc, "%s", file->message ? file->message : "no memory");
	}
	if (rc)
		return rc;
	t->tensors = reallocarray(NULL, count + 1, sizeof(*t->tensors));
	if (!t->tensors)
		return sl_fail(-ENOMEM, "no memory for %zu tensors", count);
	rc = sl_names_init(&t->names, count);
	for (size_t i = 0; !rc && i < t->file_count; i++)
		rc = opening_merge(o, i);
	return rc;
}

/* Opens files and fills an empty table, or the index. */
static int tensors_fill(sluice_tensors *t, const char *const *uris, size_t count,
                        const struct sluice_open_options *options, struct sl_tensor_index *index)
{
	struct opening o = {.t = t, .uris = uris, .options = options};

	t->files = calloc(count + 1, sizeof(*t->files));
	o.files = calloc(count + 1, sizeof(*o.files));
	if (!t->files || !o.files) {
		free(o.files);
		return sl_fail(-ENOMEM, "no memory for %zu files", count);
	}
	t->file_count = count;
	for (size_t i = 0; i < count; i++) {
		o.files[i].header.file = &t->files[i];
		o.files[i].header.index = index;
	}
	int rc = opening_all(&o);
	for (size_t i = 0; i < count; i++) {
		free(o.files[i].header.bytes);
		free(o.files[i].header.tensors);
		free(o.files[i].message);
	}
	free(o.files);
	return rc;
}

/* Closes the files and empties the table. */
static void tensors_clear(sluice_tensors *t)
{
	for (size_t i = 0; i < t->file_count; i++) {
		sluice_discard(t->files[i].file);
		free(t->files[i].name);
		free(t->files[i].metadata);
		sl_arena_clear(&t->files[i].arena);
	}
	free(t->files);
	free(t->names.slots);
	free(t->tensors);
	*t = (struct sluice_tensors){.ctx = t->ctx, .stop = t->stop};
}

/* -------------------------------------------------------------------------------------- index */

/* Returns the URI of a file in the folder of another; NULL: no memory. */
static char *sibling_uri(const char *uri, const char *name)
{
	const char *scheme = strstr(uri, "://"), *start = scheme ? scheme + 3 : uri;
	const char *end = start + (scheme ? strcspn(start, "?#") : strlen(start));

	while (end > start && end[-1] != '/')
		end--;
	return sl_format("%.*s%s", (int)(end - uri), uri, name);
}

/* Opens the files of an index in place of the index, and checks that each has its tensors. */
static int tensors_fill_by(sluice_tensors *t, const char *uri,
                           const struct sluice_open_options *options,
                           const struct sl_tensor_index *index)
{
	struct sl_tensor_file index_file = {.name = sl_uri_name(uri)};
	char **uris = calloc(index->file_count + 1, sizeof(*uris));
	int rc = index_file.name && uris ? 0 : sl_fail(-ENOMEM, "no memory");

	tensors_clear(t);
	for (size_t i = 0; !rc && i < index->file_count; i++) {
		uris[i] = sibling_uri(uri, index->files[i]);
		rc = uris[i] ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	if (!rc)
		rc = tensors_fill(t, (const char *const *)uris, index->file_count, options, NULL);
	for (size_t i = 0; !rc && i < index->count; i++) {
		const struct sl_tensor_pair *pair = &index->pairs[i];
		const struct sl_name *name = sl_names_slot(&t->names, pair->key);

		if (!name->text || strcmp(index->files[t->tensors[name->number].file], pair->value))
			rc = sl_tensor_refuse(&index_file, -EBADMSG, pair->key,
			                      "it is not in '%.256s'", pair->value);
	}
	for (size_t i = 0; uris && i < index->file_count; i++)
		free(uris[i]);
	free(uris);
	free(index_file.name);
	return rc;
}

int sl_tensor_index_open(sluice_context *ctx, const char *uri,
                         const struct sluice_open_options *options, const _Atomic bool *stop,
                         struct sl_tensor_index *out)
{
	struct sluice_tensors t = {.ctx = ctx, .stop = stop};
	int rc = -ESTALE;

	for (int attempt = 0; rc == -ESTALE && attempt < READ_AGAIN; attempt++) {
		sl_tensor_index_clear(out);
		rc = tensors_fill(&t, &uri, 1, options, out);
		if (!rc && !out->files)
			rc = sl_fail(-EPROTO, "'%s' is no index of files", t.files[0].name);
		tensors_clear(&t);
	}
	return rc;
}

int sluice_tensors_open(sluice_context *ctx, const char *const *uris, size_t count,
                        const struct sluice_open_options *open_options, sluice_tensors **out)
{
	struct sl_tensor_index index = {0};
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	for (size_t i = 0; uris && i < count; i++)
		if (!uris[i])
			uris = NULL;
	if (!uris || !count || !out)
		return sl_fail(-EINVAL, "sluice_tensors_open: no files, or NULL");
	sluice_tensors *t = calloc(1, sizeof(*t));
	if (!t)
		return sl_fail(-ENOMEM, "no memory");
	t->ctx = ctx;
	/* Saves replace an index, and remove the old files: then it is read again. */
	for (int attempt = 0; attempt < OPENED_AGAIN; attempt++) {
		tensors_clear(t);
		rc = tensors_fill(t, uris, count, open_options, count == 1 ? &index : NULL);
		bool by_index = !rc && index.files;
		if (by_index)
			rc = tensors_fill_by(t, uris[0], open_options, &index);
		sl_tensor_index_clear(&index);
		if (rc != -ESTALE && (rc != -ENOENT || !by_index))
			break;
	}
	if (rc)
		sluice_tensors_free(t);
	else
		*out = t;
	return rc;
}

void sluice_tensors_free(sluice_tensors *t)
{
	if (t)
		tensors_clear(t);
	free(t);
}

/* --------------------------------------------------------------------------------------- list */

static int tensors_check(const sluice_tensors *t, const char *call, bool results)
{
	if (!t || !results)
		return sl_fail(-EINVAL, "%s: %s", call,
		               t ? "a result is NULL, or its size is not set" : "no tensors");
	return sl_context_check(t->ctx);
}

static int tensors_check_index(const char *noun, size_t index, size_t count)
{
	return index < count ? 0 : sl_fail(-ENOENT, "there is no %s %zu", noun, index);
}

const char *sluice_type_name(int type)
{
	const struct sl_type *found = sl_type_find(type);

	return found ? found->name : NULL;
}

const char *sluice_type_word(int type)
{
	const struct sl_type *found = sl_type_find(type);

	return found ? found->word : NULL;
}

size_t sluice_tensors_count(const sluice_tensors *t)
{
	return t ? t->count : 0;
}

int sluice_tensors_get(const sluice_tensors *t, size_t index, struct sluice_tensor *out)
{
	struct sluice_tensor given = {0};
	int rc = tensors_check(t, "sluice_tensors_get", out && out->size >= sizeof(out->size));

	if (!rc)
		rc = tensors_check_index("tensor", index, t->count);
	if (rc)
		return rc;
	given.name = t->tensors[index].name;
	given.type = t->tensors[index].type;
	given.rank = t->tensors[index].rank;
	given.shape = t->tensors[index].shape;
	given.file = t->tensors[index].file;
	given.offset = t->tensors[index].offset;
	given.bytes = t->tensors[index].bytes;
	sl_struct_give(out, &given, sizeof(given));
	return 0;
}

int sluice_tensors_find(const sluice_tensors *t, const char *name, size_t *index)
{
	int rc = tensors_check(t, "sluice_tensors_find", name && index);

	if (rc)
		return rc;
	const struct sl_name *slot = sl_names_slot(&t->names, name);
	if (!slot->text)
		return sl_fail(-ENOENT, "there is no tensor '%.256s'", name);
	*index = slot->number;
	return 0;
}

int sluice_tensors_file(const sluice_tensors *t, size_t number, struct sluice_tensor_file *out)
{
	struct sluice_tensor_file given = {0};
	int rc = tensors_check(t, "sluice_tensors_file", out && out->size >= sizeof(out->size));

	if (!rc)
		rc = tensors_check_index("file", number, t->file_count);
	if (rc)
		return rc;
	given.name = t->files[number].name;
	given.format = t->files[number].format;
	given.bytes = t->files[number].length;
	given.metadata = t->files[number].metadata_count;
	given.file = t->files[number].file;
	sl_struct_give(out, &given, sizeof(given));
	return 0;
}

int sluice_tensors_metadata(const sluice_tensors *t, size_t number, size_t index, const char **key,
                            const char **value)
{
	int rc = tensors_check(t, "sluice_tensors_metadata", key && value);

	if (!rc)
		rc = tensors_check_index("file", number, t->file_count);
	if (!rc)
		rc = tensors_check_index("pair of metadata", index,
		                         t->files[number].metadata_count);
	if (!rc) {
		*key = t->files[number].metadata[index].key;
		*value = t->files[number].metadata[index].value;
	}
	return rc;
}
