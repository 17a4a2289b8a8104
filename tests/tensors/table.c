/* SPDX-License-Identifier: Apache-2.0 */
#include "tensors/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sluice_tensors *table_new(sluice_context *ctx)
{
	struct sluice_tensors *table = calloc(1, sizeof(*table));

	table->ctx = ctx;
	table->tensors = calloc(TABLE_MOST, sizeof(*table->tensors));
	table->files = calloc(TABLE_FILES, sizeof(*table->files));
	table->file_count = TABLE_FILES;
	for (size_t i = 0; i < TABLE_FILES; i++)
		table->files[i].name = strdup("a file of the test");
	return table;
}

uint64_t table_add(struct sluice_tensors *table, uint32_t file, uint64_t offset, int type,
                   unsigned rank, const uint64_t *shape)
{
	struct sl_tensor *tensor = &table->tensors[table->count];
	uint64_t *held = calloc(rank + 1, sizeof(*held)), bits = sl_type_find(type)->bits;
	char *name;

	for (unsigned i = 0; i < rank; i++)
		bits *= held[i] = shape[i];
	if (asprintf(&name, "tensor %zu", table->count) < 0)
		abort();
	*tensor = (struct sl_tensor){.name = name,
	                             .shape = held,
	                             .offset = offset,
	                             .bytes = bits / 8,
	                             .file = file,
	                             .type = (uint16_t)type,
	                             .rank = (uint16_t)rank};
	table->count++;
	return bits / 8;
}

void table_free(struct sluice_tensors *table)
{
	for (size_t i = 0; i < table->count; i++) {
		free((char *)(uintptr_t)table->tensors[i].name);
		free((uint64_t *)(uintptr_t)table->tensors[i].shape);
	}
	for (size_t i = 0; i < TABLE_FILES; i++) {
		if (table->files[i].file)
			sluice_close(table->files[i].file);
		free(table->files[i].name);
	}
	free(table->files);
	free(table->tensors);
	free(table);
}
