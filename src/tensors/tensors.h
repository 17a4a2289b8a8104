/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: the table of the tensors in open files, plans, and the stretches of a load, as the files
 * of this room share them. The table is fixed when sluice_tensors_open() returns, and a plan when
 * sluice_tensor_plan_new() does, so that any thread may read them.
 */
#ifndef SL_TENSORS_H
#define SL_TENSORS_H

#include <sluice/tensors.h>

#include "core/core.h"
#include "io/io.h"

struct sl_tensor {
	const char *name; /* in the arena of its file, as the shape */
	const uint64_t *shape;
	uint64_t offset, bytes; /* in the file */
	uint32_t file;
	uint16_t type, rank;
	/* Of .npz: CRC-32 of its member before its bytes, and with them. */
	uint32_t crc_before, crc;
};

struct sl_tensor_pair {
	const char *key, *value;
};

/* Memory that is freed as a whole. */
struct sl_arena {
	struct sl_arena_chunk *chunks;
	size_t left; /* bytes of the first chunk */
};

struct sl_tensor_file {
	sluice_file *file;
	char *name;               /* safe to display */
	const char *format;       /* a constant */
	bool summed;              /* its tensors have a CRC-32 */
	uint64_t length;          /* bytes */
	const _Atomic bool *stop; /* that of the tensors */
	struct sl_tensor_pair *metadata;
	size_t metadata_count;
	struct sl_arena arena;
};

/* Texts that differ, each with a number: a hash table with open addresses. */
struct sl_names {
	struct sl_name {
		const char *text; /* NULL: free */
		size_t number;
	} * slots;
	size_t mask;
	uint64_t seed;
};

struct sluice_tensors {
	sluice_context *ctx;
	struct sl_tensor *tensors; /* by file, and in a file by offset */
	size_t count;
	struct sl_names names; /* of tensors, and their indices */
	struct sl_tensor_file *files;
	size_t file_count;
	const _Atomic bool *stop; /* NULL, or ends the opening early once set */
};

/* --------------------------------------------------------------------------------------- plan */

/* Runs of bytes of all items, or of a stretch, which each are an extent. */
#define SL_TENSOR_RUNS_MOST ((uint64_t)16000000)

/* A tensor, or a slice of it, of a plan. */
struct sl_tensor_item {
	const struct sl_tensor *tensor;
	size_t index;          /* of the tensor */
	const uint64_t *shape; /* of the slice */
	uint64_t bytes;        /* of the slice */
	uint64_t begin;        /* offset of its first byte in the file */
	/* Runs of bytes in a row in the file: their number (0: no bytes) and their length. */
	uint64_t runs, run;
	uint64_t stride; /* bits of the file from a run to the next along dimension outer - 1 */
	unsigned outer;  /* the first dimensions, which a run has a single index of */
	uint64_t memory_offset; /* in the memory; UINT64_MAX: at `to` */
	char *to;
};

struct sluice_tensor_plan {
	const struct sluice_tensors *tensors;
	struct sl_tensor_item *items;
	struct sl_tensor_item **order; /* by file and offset; the same bytes follow each other */
	size_t count;
	uint64_t *shapes; /* of the slices */
	uint64_t bytes;   /* of memory */
};
/* Whether two items, in any order, are the same bytes of a file. */
bool sl_tensor_item_same(const struct sl_tensor_item *a, const struct sl_tensor_item *b);
/* Returns whether the item is narrow columns: many runs of less than 16 KiB, in rows of at most
 * `row` bytes or two runs. */
bool sl_tensor_item_narrow(const struct sl_tensor_item *item, uint64_t row);
#define SL_TENSOR_ROW ((uint64_t)16 << 10)
/* Returns whether both are columns of the same rows, and `item` begins in the first row of `first`.
 */
bool sl_tensor_item_beside(const struct sl_tensor_item *first, const struct sl_tensor_item *item);
/* Writes an extent for each run of the item. to: the address of its first byte. */
void sl_tensor_item_extents(const struct sl_tensor_item *item, char *to, struct sluice_extent *out);

/* ------------------------------------------------------------------------------------- memory */

struct sluice_tensor_memory {
	uint32_t process;       /* see sl_process_is() */
	_Atomic uint32_t users; /* the handle, and tensors that were exported */
	int device;             /* -1: the host */
	void *data;             /* NULL: 0 bytes */
	uint64_t bytes;
};

/* ------------------------------------------------------------------------------------ stretches */

/* The bytes of a file that a load reads. */
struct sl_tensor_stretch {
	size_t file; /* number */
	/* -1: the host. If a digest is checked the stretch has the extents of all devices. */
	int device;
	struct sluice_extent *extents; /* by offset; several may have the same bytes */
	size_t count;
	uint64_t bytes;   /* of the extents */
	void **also;      /* further memory of the extents, as that of a request, or NULL */
	unsigned further; /* devices in it */
};
/* The destination of an item, in the order of the plan. */
struct sl_tensor_target {
	char *to;
	int device;     /* -2: the item has no bytes */
	size_t source;  /* the item that is read: itself, or that from which it is copied */
	size_t stretch; /* of the source; SIZE_MAX: none yet */
	bool gathered;  /* by sl_tensor_gather(); in no stretch */
	bool fanned;    /* it comes with its source: it is in the `also` of the stretch */
};
struct sl_tensor_stretches {
	struct sl_tensor_stretch *stretches;
	size_t count;
	struct sl_tensor_target *targets;
	bool copied;       /* some are */
	uint64_t gathered; /* bytes that sl_tensor_gather() moves, each slice once */
};
/* A stretch for each file and device, or for each file; with copies for several devices, or not. */
enum sl_tensor_stretches_kind { SL_PARTS_COPIED, SL_PARTS_ON_STREAM, SL_PARTS_BY_FILE };
/*
 * Makes the stretches of a plan, read into this memory, which may be NULL if no item needs it. Any
 * thread; does not wait. sl_tensor_stretches_clear() frees them. Returns 0 or -ENOMEM.
 */
int sl_tensor_stretches_make(const struct sluice_tensor_plan *plan,
                             const struct sluice_tensor_memory *memory,
                             enum sl_tensor_stretches_kind kind, struct sl_tensor_stretches *out);
void sl_tensor_stretches_clear(struct sl_tensor_stretches *stretches);

/*
 * Reads all that is gathered, and copies it to its targets. Adds to *moved the bytes of each slice,
 * and ends early, with -ECANCELED, once *stop is set, by another thread or after an error. When it
 * returns nothing touches a destination any more. On a thread of the load; waits for the reads, the
 * copies and its own threads, which all end soon after *stop is set.
 *
 * Returns 0, or the error of a read or a copy with its sentence.
 */
int sl_tensor_gather(const struct sluice_tensor_plan *plan, const struct sl_tensor_target *targets,
                     _Atomic uint64_t *moved, _Atomic bool *stop);

/* ------------------------------------------------------------------------------------- digest */

/*
 * Reads stretches, each of another file, and these files to their ends for their digests, several
 * files at once; digests has those of all files by number. Adds to *moved what has been read, up to
 * the lengths of the files, and ends early, with -ECANCELED, once *stop is set, by another thread
 * or after an error. When it returns nothing touches a destination any more. On a thread of the
 * load; waits for the reads, the copies and its own threads, which all end soon after *stop is set.
 *
 * Returns 0, -EBADMSG with a sentence, or the error of a read with its sentence.
 */
int sl_tensor_read_verified(const struct sluice_tensors *tensors,
                            const struct sl_tensor_stretch *stretches, size_t count,
                            const struct sluice_digest *digests, _Atomic uint64_t *moved,
                            _Atomic bool *stop);

#endif
