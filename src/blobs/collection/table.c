/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of collections, as they are read
 *
 * The table is copied before it is checked, because a process that has made a blob may still have
 * it mapped for writing. Any thread.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collection/collection.h"

size_t sl_table_divide(struct sl_table *t, size_t most)
{
	const struct sl_table_head *head = &t->head;
	const struct {
		uint64_t count;
		size_t bytes;
		void **to;
	} arrays[] = {{head->count, sizeof(*t->rows), (void **)&t->rows},
	              {head->count + head->count % 2, sizeof(*t->order), (void **)&t->order},
	              {head->shapes, sizeof(*t->shapes), (void **)&t->shapes},
	              {head->files, sizeof(*t->files), (void **)&t->files},
	              {head->text, 1, (void **)&t->text}};
	size_t end = 0;

	if (head->count >= UINT32_MAX || !head->text)
		return 0;
	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++) {
		if (arrays[i].count > (most - end) / arrays[i].bytes)
			return 0;
		if (t->memory)
			*arrays[i].to = (char *)t->memory + end;
		end += arrays[i].count * arrays[i].bytes;
	}
	return end;
}

static bool table_text_is_good(const struct sl_table *t, uint64_t at)
{
	return at < t->head.text && sl_utf8_valid(t->text + at, strlen(t->text + at));
}

static const char *table_check_row(struct sl_table *t, size_t i)
{
	const struct sl_table_row *row = &t->rows[i];
	const struct sl_type *type = sl_type_find(row->type);

	if (!type || !type->word || row->rank > SLUICE_TENSOR_RANK_MOST)
		return "a type or a number of dimensions";
	if (row->shape > t->head.shapes || row->rank > t->head.shapes - row->shape)
		return "the place of a shape";
	if (sl_tensor_bytes(type, row->rank, t->shapes + row->shape) != (int64_t)row->bytes)
		return "the bytes of a tensor";
	if (row->begin != t->data || row->bytes > INT64_MAX - t->data)
		return "the order of its tensors";
	if (row->part >= t->head.parts || row->offset > INT64_MAX || row->offset % SL_TABLE_ALIGN)
		return "the place of a tensor";
	if (!table_text_is_good(t, row->name))
		return "a name";
	if (t->order[i] >= t->head.count)
		return "the order of its names";
	t->data += row->bytes;
	t->ends[row->part] = SL_MAX(t->ends[row->part], row->offset + row->bytes);
	return NULL;
}

static const char *table_check(struct sl_table *t, size_t owner_bytes)
{
	/* So every text in it has an end. */
	const char *wrong = t->text[t->head.text - 1] ? "a text has no end" : NULL;

	for (size_t i = 0; !wrong && i < t->head.count; i++)
		wrong = table_check_row(t, i);
	for (size_t i = 0; !wrong && i < t->head.files; i++) {
		const struct sl_table_file *file = &t->files[i];

		if (!table_text_is_good(t, file->name) || file->begin > owner_bytes ||
		    file->bytes > owner_bytes - file->begin)
			wrong = "a file in it";
	}
	return wrong;
}

int sl_table_read(const void *owner, size_t n, unsigned parts, struct sl_table *out)
{
	struct sl_table t = {0};
	uint64_t length = 1;
	const char *wrong;

	if (n >= sizeof(length))
		memcpy(&length, owner, sizeof(length));
	length = le64toh(length);
	t.header = sizeof(length) + length;
	if (parts && length % 8 == 0 && n >= sizeof(t.head) + sizeof(length) &&
	    length <= n - sizeof(t.head) - sizeof(length))
		memcpy(&t.head, (const char *)owner + t.header, sizeof(t.head));
	if (memcmp(t.head.magic, SL_TABLE_MAGIC, sizeof(t.head.magic)))
		return sl_fail(-EPROTO, "the blob is no collection of tensors");
	if (t.head.version != SL_TABLE_VERSION || t.head.parts != parts)
		return sl_fail(-EPROTO,
		               "a collection of version %" PRIu32 " with %" PRIu32
		               " parts; this is version %d, and it has %u",
		               t.head.version, t.head.parts, SL_TABLE_VERSION, parts);
	size_t bytes = sl_table_divide(&t, n - t.header - sizeof(t.head));
	t.memory = malloc(bytes + 1);
	if (!t.memory)
		return sl_fail(-ENOMEM, "no memory for a table of %zu bytes", bytes);
	memcpy(t.memory, (const char *)owner + t.header + sizeof(t.head), bytes);
	wrong = sl_table_divide(&t, bytes) ? table_check(&t, n) : "it is shorter than it says";
	if (!wrong) {
		*out = t;
		return 0;
	}
	free(t.memory);
	return sl_fail(-EBADMSG, "the collection is damaged: %s", wrong);
}

size_t sl_table_find(const struct sl_table *t, const char *name)
{
	size_t low = 0, high = t->head.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2, row = t->order[middle];
		int order = strcmp(name, t->text + t->rows[row].name);

		if (!order)
			return row;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return SIZE_MAX;
}

size_t sl_table_row_at(const struct sl_table *t, uint64_t at)
{
	size_t low = 0, high = t->head.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->rows[middle].begin + t->rows[middle].bytes <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
