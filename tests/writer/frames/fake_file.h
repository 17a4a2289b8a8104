/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the place of a writer's HDF5 file: it keeps in memory what it is given, looks whether it is called as
 * h5file/h5file.h has it, and fails, waits or dies where a test says so. One file at a time.
 */
#ifndef FAKE_FILE_H
#define FAKE_FILE_H

#include "h5file/h5file.h"

enum fake_call {
	FAKE_ANY,
	FAKE_OPEN,
	FAKE_ADD,
	FAKE_STORE,
	FAKE_FRAME,
	FAKE_FLUSH,
	FAKE_CLOSE,
	FAKE_CALLS
};

struct fake_chunk {
	uint64_t offset[SLUICE_FRAME_RANK_MOST];
	uint32_t mask;
	size_t length;
	unsigned char *bytes;
};
struct fake_frame {
	struct fake_chunk *chunks;
	size_t count;
	bool whole;
	double *scalars;
};
struct fake_dataset {
	char name[64];
	struct sl_h5_layout layout;
	uint64_t first;
	struct fake_frame *frames;
	uint64_t count;   /* that have a chunk */
	uint64_t whole;   /* that are complete */
	uint64_t flushed; /* of these, at the last flush */
	double max_error;
};

#define FAKE_DATASETS 8

/* What a test sets, before open, or at any time where it is atomic. */
struct fake {
	int fail_error;   /* from the call with that number on, of that kind */
	unsigned fail_at; /* 0: never */
	enum fake_call fail_call;
	unsigned die_at;   /* the thread ends there */
	_Atomic bool shut; /* calls that store wait until it is false again */
	_Atomic unsigned slow_us;
	uint64_t first; /* frames that datasets have when they are added */
	void (*adopt)(struct sl_h5_layout *layout);

	/* What it tells. Calls come one at a time; on another thread only after close, or where it is
	 * atomic. */
	_Atomic unsigned calls, stores, flushes, waiting;
	_Atomic unsigned wrong; /* calls that should not have come so; said on standard error */
	bool kept, closed;
	struct fake_dataset datasets[FAKE_DATASETS];
	unsigned count;
	int memory; /* where contiguous datasets are: a memfd */
};
extern struct fake fake;

/* Forgets all; nothing fails. */
void fake_reset(void);
/* Puts a frame together: frame_bytes of it. False: a chunk is missing or cannot be decoded. */
bool fake_read(const struct fake_dataset *dataset, uint64_t frame, void *out);

#endif
