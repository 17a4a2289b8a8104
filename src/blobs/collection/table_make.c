/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of collections, as they are made
 *
 * Writes the header of a .safetensors file, the table and the small files. On the caller's thread.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collection/collection.h"

#define HEADER_MOST ((long)100000000) /* as the documentation of safetensors has it */

struct table_maker {
	const struct sl_table_entry **rows; /* in the order of the file */
	struct sl_table table;
	uint64_t text; /* bytes of the text so far */
	FILE *to;
};

/* ----------------------------------------------------------------------------------- the order */

/* Larger elements first: each tensor is aligned in the file; else as they were given. */
static int maker_row_order(const void *a, const void *b)
{
	const struct sl_table_entry *x = *(const struct sl_table_entry *const *)a;
	const struct sl_table_entry *y = *(const struct sl_table_entry *const *)b;
	unsigned of_x = sl_type_find(x->tensor->type)->bits,
		 of_y = sl_type_find(y->tensor->type)->bits;

	if (of_x != of_y)
		return of_x > of_y ? -1 : 1;
	return x < y ? -1 : x > y;
}

static int maker_name_order(const void *a, const void *b, void *maker)
{
	const struct table_maker *m = maker;

	return strcmp(m->rows[*(const uint32_t *)a]->tensor->name,
	              m->rows[*(const uint32_t *)b]->tensor->name);
}

/* Checks a text and adds its bytes. */
static int maker_check_text(const char *text, const char *what, uint64_t *bytes)
{
	if (!text || !sl_utf8_valid(text, strlen(text)))
		return sl_fail(-EINVAL, "a %s is NULL or no UTF-8", what);
	*bytes += strlen(text) + 1;
	return 0;
}

/* Checks a tensor and counts its entries in the table. */
static int maker_check_tensor(struct table_maker *m, const struct sluice_collection_tensor *tensor)
{
	int rc = maker_check_text(tensor->name, "name of a tensor", &m->table.head.text);

	m->table.head.shapes += tensor->rank;
	if (!rc && !strcmp(tensor->name, "__metadata__"))
		rc = sl_fail(-EINVAL, "no tensor has the name __metadata__");
	if (!rc && !sl_type_find(tensor->type)->word)
		rc = sl_fail(-ENOTSUP, "tensor '%.256s': a collection has no elements of %s",
		             tensor->name, sl_type_find(tensor->type)->name);
	return rc;
}

static int maker_check_names(struct table_maker *m)
{
	const struct sl_table *t = &m->table;

	for (uint32_t i = 0; i < t->head.count; i++)
		t->order[i] = i;
	qsort_r(t->order, t->head.count, sizeof(*t->order), maker_name_order, m);
	for (size_t i = 1; i < t->head.count; i++)
		if (!maker_name_order(&t->order[i - 1], &t->order[i], m))
			return sl_fail(-EINVAL, "two tensors have the name '%.256s'",
			               m->rows[t->order[i]]->tensor->name);
	return 0;
}

/* ------------------------------------------------------------------------------------ the bytes */

/* Adds a text to the table. Returns its offset. */
static uint64_t maker_add_text(struct table_maker *m, const char *text)
{
	uint64_t at = m->text;

	strcpy(m->table.text + at, text);
	m->text += strlen(text) + 1;
	return at;
}

/* Writes the length, which comes last, and the JSON, and fills the rows. */
static int maker_put_header(struct table_maker *m, const struct sluice_collection_options *o)
{
	struct sl_table *t = &m->table;
	uint64_t shape = 0;

	fwrite("12345678{", 1, 9, m->to);
	for (size_t i = 0; i < o->metadata_count; i++)
		sl_json_put_pair(m->to, i ? "," : "\"__metadata__\":{", o->metadata[2 * i],
		                 o->metadata[2 * i + 1]);
	fputs(o->metadata_count ? "}" : "", m->to);
	for (size_t i = 0; i < t->head.count; i++) {
		const struct sl_table_entry *from = m->rows[i];
		const struct sluice_collection_tensor *tensor = from->tensor;

		fputs(i || o->metadata_count ? "," : "", m->to);
		sl_tensor_put(m->to, tensor->name, sl_type_find(tensor->type), tensor->rank,
		              tensor->shape, t->data, from->bytes);
		t->rows[i] = (struct sl_table_row){.begin = t->data,
		                                   .bytes = from->bytes,
		                                   .offset = from->offset,
		                                   .shape = shape,
		                                   .name = maker_add_text(m, tensor->name),
		                                   .part = from->part,
		                                   .type = (uint16_t)tensor->type,
		                                   .rank = (uint16_t)tensor->rank};
		for (unsigned d = 0; d < tensor->rank; d++)
			t->shapes[shape++] = tensor->shape[d];
		t->data += from->bytes;
	}
	fputc('}', m->to);
	/* To align the table. */
	while (ftell(m->to) > 0 && ftell(m->to) % 8)
		fputc(' ', m->to);
	t->header = (uint64_t)ftell(m->to);
	if (ftell(m->to) > HEADER_MOST)
		return sl_fail(-EFBIG,
		               "the header of the tensors has %ld bytes, and may have 100 MB",
		               ftell(m->to));
	return 0;
}

/* Writes the table and the files; `bytes` lie behind the head. */
static void maker_put_table(struct table_maker *m, const struct sluice_collection_options *o,
                            size_t bytes)
{
	struct sl_table *t = &m->table;
	uint64_t begin = t->header + sizeof(t->head) + bytes;

	for (size_t i = 0; i < o->file_count; i++) {
		t->files[i] = (struct sl_table_file){maker_add_text(m, o->files[i].name), begin,
		                                     o->files[i].bytes};
		begin += o->files[i].bytes;
	}
	fwrite(&t->head, sizeof(t->head), 1, m->to);
	fwrite(t->memory, bytes, 1, m->to);
	for (size_t i = 0; i < o->file_count; i++)
		if (o->files[i].bytes)
			fwrite(o->files[i].data, o->files[i].bytes, 1, m->to);
}

/* Checks all texts and counts them, and makes the table, which is zero but for the order. */
static int maker_begin(struct table_maker *m, const struct sl_table_entry *entries,
                       const struct sluice_collection_options *o, size_t *bytes)
{
	struct sl_table *t = &m->table;
	int rc = 0;

	for (size_t i = 0; !rc && i < t->head.count; i++)
		rc = maker_check_tensor(m, entries[i].tensor);
	for (size_t i = 0; !rc && i < o->file_count; i++)
		rc = maker_check_text(o->files[i].name, "name of a file", &t->head.text);
	/* A byte at least, for the last of which is NUL. */
	t->head.text = t->head.text / 8 * 8 + 8;
	for (size_t i = 0; !rc && i < 2 * o->metadata_count; i++)
		rc = maker_check_text(o->metadata[i], "metadata", &(uint64_t){0});
	if (rc)
		return rc;
	*bytes = sl_table_divide(t, SIZE_MAX);
	t->memory = calloc(1, *bytes + 1);
	m->rows = calloc(t->head.count + 1, sizeof(*m->rows));
	if (!*bytes || !t->memory || !m->rows)
		return sl_fail(-ENOMEM, "no memory for a table of %" PRIu64 " tensors",
		               t->head.count);
	sl_table_divide(t, *bytes);
	for (size_t i = 0; i < t->head.count; i++)
		m->rows[i] = &entries[i];
	qsort(m->rows, t->head.count, sizeof(*m->rows), maker_row_order);
	return maker_check_names(m);
}

int sl_table_make(const struct sl_table_entry *entries, size_t count, unsigned parts,
                  const struct sluice_collection_options *o, char **out, size_t *n)
{
	struct table_maker m = {.table.head = {.magic = SL_TABLE_MAGIC,
	                                       .version = SL_TABLE_VERSION,
	                                       .parts = parts,
	                                       .count = count,
	                                       .files = o->file_count}};
	size_t bytes;
	int rc = maker_begin(&m, entries, o, &bytes);

	*out = NULL;
	if (!rc && !(m.to = open_memstream(out, n)))
		rc = sl_fail(-ENOMEM, "no memory for a table");
	if (!rc)
		rc = maker_put_header(&m, o);
	if (!rc)
		maker_put_table(&m, o, bytes);
	/* Writes in vain make this fail, too. */
	if (m.to && fclose(m.to) && !rc)
		rc = sl_fail(-ENOMEM, "no memory for a table");
	free(m.table.memory);
	free(m.rows);
	if (rc) {
		free(*out);
		return rc;
	}
	uint64_t length = htole64(m.table.header - sizeof(length));
	memcpy(*out, &length, sizeof(length));
	return 0;
}
