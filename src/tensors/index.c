/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.safetensors.index.json
 *
 * An index has an object "weight_map", from names of tensors to names of files beside it; all else
 * is left out. On the thread that reads it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/header.h"

struct index_parser {
	const struct sl_tensor_file *file;
	struct sl_tensor_index *index;
	unsigned depth;     /* open objects and arrays */
	bool in_map, found; /* the value of "weight_map" is next or open; it was seen */
	const char *tensor;
};

/* Returns false for a name that leads out of the folder, or means something else in a URI. */
static bool index_name_is_good(const char *name)
{
	for (const char *c = name; *c; c++)
		if ((unsigned char)*c < 0x20 || strchr("/\\%?#", *c))
			return false;
	return name[0] && strcmp(name, ".") && !strstr(name, "..");
}

static int index_add(struct index_parser *p, const char *text, size_t n)
{
	struct sl_tensor_index *index = p->index;
	const char *name = index->count ? index->pairs[index->count - 1].value : "";
	int rc = 0;

	if (strlen(name) != n || memcmp(name, text, n))
		rc = sl_tensor_text(&index->arena, p->file, text, n, &name);
	if (rc)
		return rc;
	if (!index_name_is_good(name))
		return sl_tensor_refuse(p->file, -EBADMSG, p->tensor,
		                        "'%.256s' is no name of a file beside the index", name);
	struct sl_tensor_pair *pairs = sl_array_grown(index->pairs, index->count, sizeof(*pairs));
	if (!pairs)
		return sl_fail(-ENOMEM, "no memory for the names in '%s'", p->file->name);
	index->pairs = pairs;
	pairs[index->count++] = (struct sl_tensor_pair){p->tensor, name};
	return 0;
}

static int index_event(void *context, char part, const char *text, size_t n)
{
	struct index_parser *p = context;

	if (part == '}' || part == ']') {
		p->in_map &= --p->depth > 1;
		return 0;
	}
	if (part == 'k' && p->depth == 1) {
		p->in_map = n == 10 && !memcmp(text, "weight_map", n);
		if (p->in_map && p->found)
			return sl_tensor_refuse(p->file, -EBADMSG, NULL,
			                        "its \"weight_map\" is there twice");
		p->found |= p->in_map;
		return 0;
	}
	if (p->in_map && part == 'k')
		return sl_tensor_text(&p->index->arena, p->file, text, n, &p->tensor);
	if (p->in_map && part == 's' && p->depth == 2)
		return index_add(p, text, n);
	if (p->in_map && (part != '{' || p->depth != 1))
		return sl_tensor_refuse(p->file, -EBADMSG, NULL,
		                        "its \"weight_map\" is no object of texts");
	p->depth += part == '{' || part == '[';
	return 0;
}

static int index_order(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Makes the list of the files. */
static int index_list(struct sl_tensor_index *index)
{
	size_t count = 0;

	index->files = calloc(index->count + 1, sizeof(*index->files));
	if (!index->files)
		return sl_fail(-ENOMEM, "no memory for %zu names of files", index->count);
	for (size_t i = 0; i < index->count; i++)
		index->files[i] = index->pairs[i].value;
	qsort(index->files, index->count, sizeof(*index->files), index_order);
	for (size_t i = 0; i < index->count; i++)
		if (!count || strcmp(index->files[count - 1], index->files[i]))
			index->files[count++] = index->files[i];
	index->file_count = count;
	return 0;
}

int sl_tensor_index_read(struct sl_tensor_header *header)
{
	struct index_parser p = {.file = header->file, .index = header->index};

	if (!header->index)
		return sl_tensor_refuse(p.file, -EINVAL, NULL, "an index of files is opened alone");
	if (p.file->length > SL_TENSOR_HEADER_MOST)
		return sl_tensor_refuse(p.file, -EFBIG, NULL, "an index may have 100 MB");
	int rc = sl_tensor_header_need(header, p.file->length);
	if (!rc)
		rc = sl_json_parse(p.file->name, header->bytes, header->have, index_event, &p);
	if (!rc && !p.found)
		rc = sl_tensor_refuse(p.file, -EPROTO, NULL,
		                      "it is JSON, but has no \"weight_map\"");
	return rc ? rc : index_list(header->index);
}

void sl_tensor_index_clear(struct sl_tensor_index *index)
{
	sl_arena_clear(&index->arena);
	free(index->pairs);
	free(index->files);
	*index = (struct sl_tensor_index){0};
}
