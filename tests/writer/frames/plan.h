/* SPDX-License-Identifier: Apache-2.0 */
/* A file of frames that is drawn from a seed, written in one session or more, and read back. */
#ifndef PLAN_H
#define PLAN_H

#include <hdf5.h>

#include "frames/content.h"

enum { PLAN_SERIES = 4, PLAN_SESSIONS = 3, PLAN_SCALARS = 3 };

struct plan_series {
	const char *name;
	struct content content;
	struct sluice_series_options o; /* of its first session */
	uint64_t wanted[PLAN_SESSIONS]; /* frames more; 0: it is not in that session */
	uint64_t frames;                /* that are there, as far as is known */
	unsigned born;                  /* its first session */
	size_t bytes, elements;         /* of a frame */
	bool devices;                   /* some frames come from memory of a device */
	bool there;                     /* the file has its dataset */

	/* In a session. */
	sluice_series *series;
	uint64_t submitted;
};

struct plan {
	uint64_t number;
	sluice_context *ctx; /* reads the file as well; NULL: HDF5 alone does */
	struct rng r;
	unsigned sessions, count;
	struct plan_series series[PLAN_SERIES];
};

void plan_draw(struct plan *plan, uint64_t number);
/* A fixed number of frames without filters lies in one piece, unless a chunk has several. */
bool plan_is_contiguous(const struct plan_series *s);
/* What it is, in JSON, in one line. */
void plan_print(const struct plan *plan, const char *path, FILE *to);
/* Writes all sessions, and looks at the file after each. device: a number of sluice's, or -1. */
void plan_write(struct plan *plan, sluice_context *ctx, const char *path, int device);

/* What HDF5 reads is what was submitted: at least the frames that the plan knows of, which are then those
 * that are there. most: what there may be, by series. */
void plan_read(struct plan *plan, const char *path, const uint64_t *most);

#endif
