/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of saves
 *
 * Copies and checks the tensors on the caller's thread. Divides them into files and writes headers
 * and the index, in memory, on the thread of the save. Waits for nothing.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tensors/save.h"

#define FILE_BYTES ((uint64_t)2 << 30) /* of a file, unless the options say so */
#define DATA_ALIGN 4096                /* of the first tensor in a file */
#define FILES_MOST 99999               /* five digits in a name */

/* ------------------------------------------------------------------------------------- tensors */

static int plan_copy_tensor(struct sl_save_plan *plan, const struct sluice_collection_tensor *from,
                            struct sl_save_tensor *to)
{
	size_t shape = from->rank * sizeof(uint64_t);
	char *name;
	uint64_t *lengths;
	int64_t bytes;

	if (!from->name || !sl_utf8_valid(from->name, strlen(from->name)))
		return sl_fail(-EINVAL, "a name of a tensor is NULL or no UTF-8");
	if (!strcmp(from->name, "__metadata__"))
		return sl_fail(-EINVAL, "no tensor has the name __metadata__");
	to->type = sl_type_find(from->type);
	if (!to->type || !to->type->word)
		return sl_fail(-ENOTSUP, "tensor '%.256s': safetensors has no elements of %s",
		               from->name, to->type ? to->type->name : "that type");
	if (from->rank > SLUICE_TENSOR_RANK_MOST || (from->rank && !from->shape))
		return sl_fail(-EINVAL, "tensor '%.256s': it has no shape of up to %d dimensions",
		               from->name, SLUICE_TENSOR_RANK_MOST);
	bytes = sl_tensor_bytes(to->type, from->rank, from->shape);
	if (bytes < 0)
		return sl_fail(-EINVAL,
		               "tensor '%.256s': its shape is too large, or ends within a byte",
		               from->name);
	if (bytes && !from->data && !to->from)
		return sl_fail(-EINVAL, "tensor '%.256s': its data is NULL", from->name);
	name = sl_arena_take(&plan->arena, strlen(from->name) + 1);
	lengths = sl_arena_take(&plan->arena, shape);
	if (!name || !lengths)
		return sl_fail(-ENOMEM, "no memory for the names of tensors");
	to->name = strcpy(name, from->name);
	to->shape = shape ? memcpy(lengths, from->shape, shape) : lengths;
	to->rank = from->rank;
	to->bytes = bytes;
	to->data = from->data;
	return 0;
}

static int plan_copy_tensors(struct sl_save_plan *plan,
                             const struct sluice_collection_tensor *tensors,
                             sluice_file *const *files, const uint64_t *offsets)
{
	struct sl_names names = {0};
	int rc;

	plan->tensors = calloc(plan->count + 1, sizeof(*plan->tensors));
	plan->order = calloc(plan->count + 1, sizeof(*plan->order));
	if (!plan->tensors || !plan->order)
		return sl_fail(-ENOMEM, "no memory for %zu tensors", plan->count);
	rc = sl_names_init(&names, plan->count);
	for (size_t i = 0; !rc && i < plan->count; i++) {
		struct sl_save_tensor *tensor = &plan->tensors[i];
		struct sl_name *slot;

		tensor->from = files ? files[i] : NULL;
		tensor->offset = files ? offsets[i] : 0;
		rc = plan_copy_tensor(plan, &tensors[i], tensor);
		if (rc)
			break;
		slot = sl_names_slot(&names, tensor->name);
		if (slot->text)
			rc = sl_fail(-EINVAL, "two tensors have the name '%.256s'", tensor->name);
		*slot = (struct sl_name){tensor->name, i};
		plan->order[i] = tensor;
	}
	free(names.slots);
	return rc;
}

/* ---------------------------------------------------------------------------------------- order */

static int order_of(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* By memory; the same memory, type and shape follow each other, as they were given. */
static int order_by_memory(const void *a, const void *b)
{
	const struct sl_save_tensor *x = *(const struct sl_save_tensor *const *)a;
	const struct sl_save_tensor *y = *(const struct sl_save_tensor *const *)b;
	int order = order_of((uintptr_t)x->data, (uintptr_t)y->data);

	order = order ? order : order_of((uintptr_t)x->type, (uintptr_t)y->type);
	order = order ? order : order_of(x->rank, y->rank);
	for (unsigned i = 0; !order && i < x->rank; i++)
		order = order_of(x->shape[i], y->shape[i]);
	return order;
}

static int order_by_memory_and_number(const void *a, const void *b)
{
	int order = order_by_memory(a, b);

	return order ? order
	             : order_of((uintptr_t) * (const struct sl_save_tensor *const *)a,
	                        (uintptr_t) * (const struct sl_save_tensor *const *)b);
}

/* Larger elements first, so that each tensor is aligned; then by device, for fewer operations. */
static int order_in_files(const void *a, const void *b)
{
	const struct sl_save_tensor *x = *(const struct sl_save_tensor *const *)a;
	const struct sl_save_tensor *y = *(const struct sl_save_tensor *const *)b;
	int order = order_of(y->type->bits, x->type->bits);

	order = order ? order : order_of((uint64_t)(x->device + 1), (uint64_t)(y->device + 1));
	return order ? order : order_of((uintptr_t)x, (uintptr_t)y);
}

/* Finds tensors with the same memory. */
static int plan_find_shared(struct sl_save_plan *plan, bool refuse_shared)
{
	const struct sl_save_tensor **order = plan->order, *kept = NULL;

	qsort(order, plan->count, sizeof(*order), order_by_memory_and_number);
	for (size_t i = 0; i < plan->count; i++) {
		struct sl_save_tensor *tensor = &plan->tensors[order[i] - plan->tensors];

		if (!kept || !tensor->bytes || tensor->from || order_by_memory(&kept, &order[i])) {
			order[plan->written++] = kept = tensor;
			plan->bytes += tensor->bytes;
			continue;
		}
		if (refuse_shared)
			return sl_fail(-EINVAL,
			               "tensors '%.256s' and '%.256s' have the same memory",
			               kept->name, tensor->name);
		if (sl_names_slot(&plan->keys, tensor->name)->text)
			return sl_fail(-EINVAL,
			               "'%.256s' is a key of the metadata, which says there "
			               "that '%.256s' has its memory",
			               tensor->name, kept->name);
		tensor->same = kept;
	}
	return 0;
}

/* --------------------------------------------------------------------------------------- files */

/* Divides the tensors into files of at most so many bytes, if a tensor is not longer. */
static int plan_divide(struct sl_save_plan *plan)
{
	struct sl_save_file *file = NULL;
	uint64_t most = plan->file_bytes;
	size_t count = 0;

	for (struct sl_save_tensor *t = plan->tensors; t < plan->tensors + plan->count; t++)
		t->device = t->bytes && !t->from ? sluice_device_of(t->data) : -1;
	qsort(plan->order, plan->written, sizeof(*plan->order), order_in_files);
	plan->files = calloc(plan->written + 1, sizeof(*plan->files));
	if (!plan->files)
		return sl_fail(-ENOMEM, "no memory for %zu files", plan->written);
	for (size_t i = 0; i < plan->written; i++) {
		struct sl_save_tensor *tensor = &plan->tensors[plan->order[i] - plan->tensors];

		if (!file || (file->count && tensor->bytes > most - SL_MIN(file->data, most))) {
			file = &plan->files[count++];
			file->tensors = &plan->order[i];
		}
		tensor->file = file;
		tensor->begin = file->data;
		file->data += tensor->bytes;
		file->count++;
	}
	plan->file_count = count || plan->folder ? count : 1;
	return count > FILES_MOST
	               ? sl_fail(-E2BIG, "more than %d files: each has %" PRIu64 " bytes",
	                         FILES_MOST, most)
	               : 0;
}

static int file_name(const struct sl_save_plan *plan, size_t number, struct sl_save_file *file)
{
	if (plan->folder)
		file->name = sl_format("model-%s-%05zu-of-%05zu.safetensors", plan->id, number + 1,
		                       plan->file_count);
	if (file->name || !plan->folder)
		file->uri = sl_format("%s%s", plan->uri, plan->folder ? file->name : "");
	return file->uri ? 0 : sl_fail(-ENOMEM, "no memory");
}

/* Puts pairs from the options, and the other names of tensors in the file. */
static void file_put_metadata(const struct sl_save_plan *plan, const struct sl_save_file *file,
                              FILE *to)
{
	const char *before = "\"__metadata__\":{", *end = file->count ? "}," : "}", *after = "";

	for (size_t i = 0; i < plan->metadata_count; i++, before = ",", after = end)
		sl_json_put_pair(to, before, plan->metadata[2 * i], plan->metadata[2 * i + 1]);
	for (size_t i = 0; i < plan->count; i++) {
		const struct sl_save_tensor *same = plan->tensors[i].same;

		if (!same || same->file != file)
			continue;
		sl_json_put_pair(to, before, plan->tensors[i].name, same->name);
		before = ",", after = end;
	}
	fputs(after, to);
}

static int file_make_header(const struct sl_save_plan *plan, struct sl_save_file *file)
{
	FILE *to = open_memstream(&file->header, &file->header_bytes);
	uint64_t length = 0;
	long end;

	if (!to)
		return sl_fail(-ENOMEM, "no memory for a header");
	fwrite(&length, sizeof(length), 1, to);
	fputc('{', to);
	file_put_metadata(plan, file, to);
	for (size_t i = 0; i < file->count; i++) {
		const struct sl_save_tensor *tensor = file->tensors[i];

		fputs(i ? "," : "", to);
		sl_tensor_put(to, tensor->name, tensor->type, tensor->rank, tensor->shape,
		              tensor->begin, tensor->bytes);
	}
	fputc('}', to);
	for (end = ftell(to); end > 0 && end % DATA_ALIGN; end++)
		fputc(' ', to);
	if (fclose(to) || end < 0)
		return sl_fail(-ENOMEM, "no memory for a header");
	length = file->header_bytes - sizeof(length);
	if (length > SL_TENSOR_HEADER_MOST)
		return sl_fail(-EFBIG,
		               "a header of %" PRIu64 " bytes for %zu tensors: it may have 100 MB",
		               length, file->count);
	length = htole64(length);
	memcpy(file->header, &length, sizeof(length));
	return 0;
}

/* Writes the index: as other libraries do, but for the names of the files. */
static int plan_make_index(struct sl_save_plan *plan)
{
	FILE *to = open_memstream(&plan->index, &plan->index_bytes);
	uint64_t size = 0;
	const char *before = "";

	if (!to)
		return sl_fail(-ENOMEM, "no memory for an index");
	for (size_t i = 0; i < plan->file_count; i++)
		size += plan->files[i].data;
	fprintf(to, "{\"metadata\": {\"total_size\": %" PRIu64 "},\n \"weight_map\": {", size);
	for (size_t i = 0; i < plan->file_count; i++)
		for (size_t k = 0; k < plan->files[i].count; k++, before = ",\n  ")
			sl_json_put_pair(to, before, plan->files[i].tensors[k]->name,
			                 plan->files[i].name);
	fputs("}}\n", to);
	return fclose(to) ? sl_fail(-ENOMEM, "no memory for an index") : 0;
}

/* ----------------------------------------------------------------------------------------- plan */

static bool ends_with(const char *text, const char *suffix)
{
	size_t length = strlen(text), n = strlen(suffix);

	return length >= n && !strcmp(text + length - n, suffix);
}

static int plan_place(struct sl_save_plan *plan, const char *uri)
{
	bool folder = !ends_with(uri, ".safetensors"), local;
	const char *slash = folder && !ends_with(uri, "/") ? "/" : "";
	struct sl_uri parsed = {0};
	uint64_t id;
	int rc = sl_uri_parse(uri, &parsed);

	local = !rc && !strcmp(parsed.scheme, "file");
	if (!rc && folder && !local && strcmp(parsed.scheme, "s3"))
		rc = sl_fail(-ENOTSUP,
		             "'%s' is no path and no s3://BUCKET/PREFIX; only a single file, "
		             "NAME.safetensors, can be written there",
		             uri);
	if (!rc && folder && ends_with(uri, ".index.json"))
		rc = sl_fail(-EINVAL, "'%s': name the folder of the index, and not the index", uri);
	if (!rc && getrandom(&id, sizeof(id), 0) != sizeof(id))
		rc = sl_fail(-EIO, "the kernel has no random number");
	if (!rc) {
		snprintf(plan->id, sizeof(plan->id), "%016" PRIx64, id);
		plan->folder = folder;
		plan->uri = sl_format("%s%s", uri, slash);
		plan->path = folder && local ? sl_format("%s%s", parsed.path, slash) : NULL;
		if (!plan->uri || (folder && local && !plan->path))
			rc = sl_fail(-ENOMEM, "no memory");
	}
	sl_uri_clear(&parsed);
	return rc;
}

static int plan_copy_metadata(struct sl_save_plan *plan, const struct sluice_tensor_save_options *o)
{
	int rc = sl_names_init(&plan->keys, o->metadata_count);

	plan->metadata_count = o->metadata_count;
	plan->metadata = calloc(2 * o->metadata_count + 1, sizeof(*plan->metadata));
	for (size_t i = 0; !rc && i < 2 * o->metadata_count; i++) {
		const char *text = o->metadata ? o->metadata[i] : NULL;
		struct sl_name *slot;
		char *copy;

		if (!text || !sl_utf8_valid(text, strlen(text)))
			return sl_fail(-EINVAL, "metadata is NULL or no UTF-8");
		copy = sl_arena_take(&plan->arena, strlen(text) + 1);
		if (!copy || !plan->metadata)
			return sl_fail(-ENOMEM, "no memory for metadata");
		plan->metadata[i] = strcpy(copy, text);
		if (i % 2)
			continue;
		slot = sl_names_slot(&plan->keys, text);
		if (slot->text)
			return sl_fail(-EINVAL, "'%.256s' is in the metadata twice", text);
		slot->text = copy;
	}
	return rc;
}

int sl_save_plan_make(const char *uri, const struct sluice_collection_tensor *tensors, size_t count,
                      sluice_file *const *files, const uint64_t *offsets,
                      const struct sluice_tensor_save_options *o, struct sl_save_plan *plan)
{
	int rc;

	plan->count = count;
	rc = plan_copy_metadata(plan, o);
	if (!rc)
		rc = plan_place(plan, uri);
	if (!rc)
		rc = plan_copy_tensors(plan, tensors, files, offsets);
	if (!rc)
		rc = plan_find_shared(plan, o->refuse_shared);
	plan->file_bytes = !plan->folder ? UINT64_MAX : o->file_bytes ? o->file_bytes : FILE_BYTES;
	/* A caller that can have too many files is told at once. */
	return rc || plan->written <= FILES_MOST ? rc : plan_divide(plan);
}

int sl_save_plan_write(struct sl_save_plan *plan)
{
	int rc = plan->files ? 0 : plan_divide(plan);

	for (size_t i = 0; !rc && i < plan->file_count; i++) {
		rc = file_name(plan, i, &plan->files[i]);
		if (!rc)
			rc = file_make_header(plan, &plan->files[i]);
		plan->bytes += plan->files[i].header_bytes;
	}
	return rc || !plan->folder ? rc : plan_make_index(plan);
}

void sl_save_plan_clear(struct sl_save_plan *plan)
{
	for (size_t i = 0; i < plan->file_count; i++) {
		free(plan->files[i].name);
		free(plan->files[i].uri);
		free(plan->files[i].header);
	}
	free(plan->files);
	free(plan->tensors);
	free(plan->order);
	free(plan->keys.slots);
	free(plan->metadata);
	free(plan->index);
	free(plan->uri);
	free(plan->path);
	sl_arena_clear(&plan->arena);
}
