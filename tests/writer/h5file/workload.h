/* SPDX-License-Identifier: Apache-2.0 */
/* Frames whose every element is known, written through a driver and read back by plain HDF5. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include "h5file/ordered_vfd.h"

enum { WORKLOAD_FRAMES = 120, WORKLOAD_EDGE = 4 };

struct workload {
	bool sec2;         /* HDF5's own driver */
	unsigned rows;     /* of chunks in a frame, */
	unsigned columns;  /* WORKLOAD_EDGE elements wide and high */
	unsigned node;     /* half the children of a node of the index; 0: as HDF5 has it */
	unsigned every;    /* frames between two flushes */
	bool mixed;        /* the chunks of a frame in another order */
	bool adds;         /* a dataset of fixed length, early allocated, for every tenth frame */
	unsigned appended; /* frames that a second opening of the file adds */
	struct sl_ordered_vfd vfd;
	bool leaks; /* told: a chunk left HDF5's cache in vain; 1.10 then forgets its memory */
};

/* How a file looks to plain HDF5. */
enum sight { SIGHT_RIGHT, SIGHT_LOST, SIGHT_WRONG, SIGHT_CLOSED, SIGHTS };

/* Two series and their times. 0, or -1 when HDF5 said no. *flushed is kept as it goes. */
int workload_write(struct workload *load, const char *path, volatile unsigned *flushed);
/* flushed frames must be there; those beyond must be right in each dataset that shows them. */
enum sight workload_look(const struct workload *load, const char *path, unsigned flushed);

#endif
