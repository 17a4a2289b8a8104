/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of tensors that tests make by hand, over files that need no header. */
#ifndef TESTS_TABLE_H
#define TESTS_TABLE_H

#include "tensors/tensors.h"

enum { TABLE_FILES = 4, TABLE_MOST = 4096 };

/* A table of TABLE_FILES files, none of them open, and of no tensors. */
struct sluice_tensors *table_new(sluice_context *ctx);
/* Adds a tensor; those of a file one after the other, and the files too. Returns its length in bytes. */
uint64_t table_add(struct sluice_tensors *table, uint32_t file, uint64_t offset, int type,
                   unsigned rank, const uint64_t *shape);
/* Closes what is open. */
void table_free(struct sluice_tensors *table);

#endif
