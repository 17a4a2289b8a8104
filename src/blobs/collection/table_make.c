/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of collections, as they are made
 *
 * Writes the header of a .safetensors file and the table behind it. On the caller's thread.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collection/table.h"

#define HEADER_MOST ((long)100000000) /* as the documentation of safetensors has it */

struct table_maker {
	const struct sl_table_entry *entries;
	size_t count;
	const struct sl_table_entry **rows; /* in the order of the file */
	uint32_t *order;                    /* rows by name */
	struct sl_table_head head;
	FILE *to;
};

/* Writes the length and the JSON, padded so that what follows is aligned. */
static int maker_put_header(struct table_maker *m, const struct sluice_collection_options *o)
{
	uint64_t length = 0, begin = 0;
	long end = 0;

	fwrite(&length, sizeof(length), 1, m->to);
	fputc('{', m->to);
	for (size_t i = 0; i < o->metadata_count; i++)
		sl_json_put_pair(m->to, i ? "," : "\"__metadata__\":{", o->metadata[2 * i],
		                 o->metadata[2 * i + 1]);
	fputs(o->metadata_count ? "}" : "", m->to);
	for (size_t i = 0; i < m->count; i++) {
		const struct sl_table_entry *row = m->rows[i];

		fputs(i || o->metadata_count ? "," : "", m->to);
		sl_tensor_put(m->to, row->name, sl_type_find(row->type), row->rank, row->shape,
		              begin, row->bytes);
		begin += row->bytes;
	}
	fputc('}', m->to);
	while ((end = ftell(m->to)) > 0 && end % 8)
		fputc(' ', m->to);
	if (end > HEADER_MOST)
		return sl_fail(-EFBIG,
		               "the header of the tensors has %ld bytes, and may have 100 "
		               "MB",
		               end);
	return end < 0 ? sl_fail(-ENOMEM, "no memory for the header of the tensors") : 0;
}

/* from: NULL if there are no bytes. */
static void maker_put(struct table_maker *m, const void *from, size_t bytes)
{
	if (bytes)
		fwrite(from, 1, bytes, m->to);
}

static void maker_put_zeros(struct table_maker *m, uint64_t n)
{
	while (n--)
		fputc(0, m->to);
}

/* Writes all behind the header; the texts are those of the rows, then those of the files. */
static void maker_put_table(struct table_maker *m, const struct sluice_collection_options *o)
{
	uint64_t begin = 0, shape = 0, name = 0, file;

	fwrite(&m->head, sizeof(m->head), 1, m->to);
	for (size_t i = 0; i < m->count; i++) {
		const struct sl_table_entry *from = m->rows[i];
		struct sl_table_row row = {
			begin, from->bytes, from->offset,         shape,
			name,  from->part,  (uint16_t)from->type, (uint16_t)from->rank};

		fwrite(&row, sizeof(row), 1, m->to);
		begin += row.bytes;
		shape += row.rank;
		name += strlen(from->name) + 1;
	}
	fwrite(m->order, sizeof(*m->order), m->count, m->to);
	maker_put_zeros(m, m->count % 2 * sizeof(*m->order));
	for (size_t i = 0; i < m->count; i++)
		maker_put(m, m->rows[i]->shape, m->rows[i]->rank * sizeof(uint64_t));
	file = (uint64_t)ftell(m->to) + o->file_count * sizeof(struct sl_table_file) + m->head.text;
	for (size_t i = 0; i < o->file_count; i++) {
		struct sl_table_file row = {name, file, o->files[i].bytes};

		fwrite(&row, sizeof(row), 1, m->to);
		file += row.bytes;
		name += strlen(o->files[i].name) + 1;
	}
	for (size_t i = 0; i < m->count; i++)
		fputs(m->rows[i]->name, m->to), fputc(0, m->to);
	for (size_t i = 0; i < o->file_count; i++)
		fputs(o->files[i].name, m->to), fputc(0, m->to);
	maker_put_zeros(m, m->head.text - name);
	for (size_t i = 0; i < o->file_count; i++)
		maker_put(m, o->files[i].data, o->files[i].bytes);
}

/* ----------------------------------------------------------------------------------- the order */

/* Larger elements first, so that each tensor is aligned in the file; else as they were given. */
static int maker_row_order(const void *a, const void *b)
{
	const struct sl_table_entry *x = *(const struct sl_table_entry *const *)a;
	const struct sl_table_entry *y = *(const struct sl_table_entry *const *)b;
	unsigned of_x = sl_type_find(x->type)->bits, of_y = sl_type_find(y->type)->bits;

	if (of_x != of_y)
		return of_x > of_y ? -1 : 1;
	return x < y ? -1 : x > y;
}

static int maker_name_order(const void *a, const void *b, void *maker)
{
	const struct table_maker *m = maker;

	return strcmp(m->rows[*(const uint32_t *)a]->name, m->rows[*(const uint32_t *)b]->name);
}

static int maker_check_text(const char *text, const char *what)
{
	return text && sl_utf8_valid(text, strlen(text))
	               ? 0
	               : sl_fail(-EINVAL, "a %s is NULL or no UTF-8", what);
}

static int maker_arrange(struct table_maker *m, const struct sluice_collection_options *o)
{
	uint64_t text = 0;
	int rc = 0;

	m->rows = calloc(m->count + 1, sizeof(struct sl_table_entry *));
	m->order = calloc(m->count + 1, sizeof(*m->order));
	if (!m->rows || !m->order)
		return sl_fail(-ENOMEM, "no memory for a table of %zu tensors", m->count);
	for (size_t i = 0; !rc && i < m->count; i++) {
		m->rows[i] = &m->entries[i];
		m->order[i] = (uint32_t)i;
		rc = maker_check_text(m->entries[i].name, "name of a tensor");
		if (!rc && !strcmp(m->entries[i].name, "__metadata__"))
			rc = sl_fail(-EINVAL, "no tensor has the name __metadata__");
		if (!rc && !sl_type_find(m->entries[i].type)->word)
			rc = sl_fail(-ENOTSUP,
			             "tensor '%.256s': a collection has no elements of %s",
			             m->entries[i].name, sl_type_find(m->entries[i].type)->name);
		text += rc ? 0 : strlen(m->entries[i].name) + 1;
		m->head.shapes += m->entries[i].rank;
	}
	for (size_t i = 0; !rc && i < o->file_count; i++) {
		rc = maker_check_text(o->files[i].name, "name of a file");
		text += rc ? 0 : strlen(o->files[i].name) + 1;
	}
	for (size_t i = 0; !rc && i < 2 * o->metadata_count; i++)
		rc = maker_check_text(o->metadata[i], "metadata");
	if (rc)
		return rc;
	qsort(m->rows, m->count, sizeof(struct sl_table_entry *), maker_row_order);
	qsort_r(m->order, m->count, sizeof(*m->order), maker_name_order, m);
	for (size_t i = 1; i < m->count; i++)
		if (!maker_name_order(&m->order[i - 1], &m->order[i], m))
			return sl_fail(-EINVAL, "two tensors have the name '%.256s'",
			               m->rows[m->order[i]]->name);
	/* A byte at least, for the last of which is NUL. */
	m->head.text = text / 8 * 8 + 8;
	return 0;
}

int sl_table_make(const struct sl_table_entry *entries, size_t count, unsigned parts,
                  const struct sluice_collection_options *o, void **out, size_t *n)
{
	struct table_maker m = {.entries = entries, .count = count};
	uint64_t length;
	char *bytes = NULL;
	size_t size = 0;
	long end = 0;
	int rc;

	m.head = (struct sl_table_head){.version = SL_TABLE_VERSION,
	                                .parts = parts,
	                                .count = count,
	                                .files = o->file_count};
	memcpy(m.head.magic, SL_TABLE_MAGIC, sizeof(m.head.magic));
	rc = maker_arrange(&m, o);
	m.to = rc ? NULL : open_memstream(&bytes, &size);
	if (!rc)
		rc = m.to ? maker_put_header(&m, o) : sl_fail(-ENOMEM, "no memory");
	if (!rc) {
		end = ftell(m.to);
		maker_put_table(&m, o);
		rc = ferror(m.to) ? sl_fail(-ENOMEM, "no memory for a table") : 0;
	}
	if (m.to && fclose(m.to) && !rc)
		rc = sl_fail(-ENOMEM, "no memory for a table");
	free(m.rows);
	free(m.order);
	if (rc) {
		free(bytes);
		return rc;
	}
	length = htole64((uint64_t)end - sizeof(length));
	memcpy(bytes, &length, sizeof(length));
	*out = bytes;
	*n = size;
	return 0;
}
