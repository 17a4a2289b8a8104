/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the frames of a run go. The simulation acquires a frame, fills it and submits it; storage writes
 * it in the background and recycles its memory. The kinds hold the same but for how they write: sluice's
 * frame writer, and to compare with H5Dwrite, by a thread or by the simulation itself, in submit.
 */
#ifndef GRAY_SCOTT_STORAGE_H
#define GRAY_SCOTT_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The frames, one float32 array of frames x rows x columns. */
#define STORAGE_DATASET "matrix"

struct storage_options {
	const char *path, *codec;
	int level; /* of the codec; 0: its own default */
	size_t rows, columns;
	/* The frames that are submitted are a block of the dataset's, which have `whole` rows: from row `first`. */
	size_t first, whole;
	size_t chunk_rows; /* where HDF5 compresses */
	/*
	 * Finished frames that may wait, while the one before them is being written. So storage has
	 * waiting + 1 frames, and that is all: the simulation computes on a grid of its own and acquires a
	 * frame when it has something to put in.
	 */
	unsigned waiting;
	/* Kept as attributes of the dataset; the names end with NULL. */
	const char *const *names;
	const double *values;
};

/* Known after close; with several ranks frames of rank 0, and the sum of bytes. */
struct storage_totals {
	uint64_t frames; /* that are in the file */
	uint64_t bytes;  /* that they take there */
};

struct storage; /* each kind has its own */

/*
 * All calls are made by one thread, and if there are several ranks, by all of them. They return 0 or a negative errno.
 * Once writing has failed, acquire, submit and close return that error, and message is the sentence that goes with it.
 */
struct storage_calls {
	/* Whether there is such a codec and level; if not, what is there instead. */
	bool (*knows)(const char *codec, int level, char *why, size_t size);
	/* Waits while all frames are on their way. */
	int (*acquire)(struct storage *storage, float **frame);
	/* The frame is storage's from now on, also if this fails. */
	int (*submit)(struct storage *storage, float *frame);
	/* Writes what was submitted and ends the file, which is valid then. */
	int (*close)(struct storage *storage);
	struct storage_totals (*totals)(const struct storage *storage);
	const char *(*message)(const struct storage *storage);
	void (*free)(struct storage *storage);
};

struct storage_kind {
	const char *name, *codec; /* codec: its default */
	/* On failure *out is set, too, for message, close and free; to NULL without memory. */
	int (*open)(const struct storage_options *options, struct storage **out);
	const struct storage_calls *calls;
};

extern const struct storage_kind storage_sluice;
/* H5Dwrite by a thread, and in submit. Rank 0 does it for all ranks, which send their rows to it in submit. */
extern const struct storage_kind storage_plain, storage_sync;
extern const struct storage_kind storage_collective; /* in submit, by all ranks together */

/* Those of the program, the default first; NULL is the last. */
extern const struct storage_kind *const storage_kinds[];

#endif
