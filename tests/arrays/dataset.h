/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets that HDF5 makes, whose bytes are known, and reads of them by sluice. */
#ifndef TESTS_ARRAYS_DATASET_H
#define TESTS_ARRAYS_DATASET_H

#include <hdf5.h>
#include <sluice/arrays.h>

#include "lib/support.h"

enum { RANK_MOST = 5 };

/* A dataset, and what its elements are. */
struct dataset {
	const char *name;
	hid_t type, list;
	unsigned rank;
	hsize_t shape[RANK_MOST];
	const hsize_t *most; /* how far it grows; NULL: not at all. Until it is written */
	size_t element;
	size_t bytes;
	unsigned char *model;
};
/* Makes a file, of the newest format or of the oldest. */
hid_t file_create(const char *path, bool latest);
/* Numbers that compress, but do not repeat. */
void dataset_fill(struct dataset *d, struct rng *r);
/* Makes it in the file, from the model. Takes the type and the list. */
void dataset_write(const struct dataset *d, hid_t file);
void dataset_clear(struct dataset *d);
/* Makes a dataset u of integers. chunk, most: or NULL; level: of deflate, or 0. */
struct dataset dataset_make(hid_t file, unsigned rank, const hsize_t *shape, const hsize_t *chunk,
                            const hsize_t *most, unsigned level, uint64_t seed);

sluice_file *dataset_open(sluice_context *ctx, const char *path, const char *name);
/* Returns what sluice_open() answers, and closes the file if it is open. */
int dataset_try(sluice_context *ctx, const char *path, const char *name);
/* Submits a read of a box. */
int box_submit(sluice_file *file, unsigned rank, const uint64_t *start, const uint64_t *count,
               void *to, size_t n, sluice_op **out);
/* Reads a box at random, and compares. */
void dataset_check_box(const struct dataset *d, sluice_file *file, struct rng *r);
/* Reads ranges of bytes at random, as one operation, and all of it; compares. */
void dataset_check_bytes(const struct dataset *d, sluice_file *file, struct rng *r);

/* Chunks whose filters were undone, in programs with undone.c. */
extern unsigned undone;

#endif
