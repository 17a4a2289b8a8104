/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of this process, and a transport in its memory: small messages are sent at once, large ones when
 * they are received, and messages of different ranks come in an order that a seed decides. Nothing here asserts. */
#ifndef CREW_H
#define CREW_H

#include <pthread.h>
#include <stdatomic.h>

#include <sluice/ranks.h>

#include "frames/field.h"

enum { CREW_MOST = 8, CREW_NOTES = 6 };

struct member {
	struct crew *crew;
	int rank;
	pthread_t thread, own; /* the same; by main, by itself */
	unsigned state;        /* of chance */
	const char *path;      /* the crew's */
	sluice_writer *w;
	sluice_series *s;
	struct sluice_block block;
	/* What calls have answered, for the main thread. */
	int rc[CREW_NOTES];
	char said[CREW_NOTES][512];
};

struct crew {
	/* Set by the test. */
	int ranks;
	int thread;  /* the transport has a thread of the writer */
	int on_node; /* so many ranks are on a node; 0: all */
	unsigned seed;
	const char *cut; /* "rows", "columns", "odd", "some" or NULL: rows */
	const char *path;
	sluice_context *ctx;
	struct sluice_writer_options o;
	uint64_t frames;
	const char *codec;
	_Atomic long break_after; /* so many messages the transport fails; 0: never */

	_Atomic bool broken;
	struct member members[CREW_MOST];
	struct mailbox *boxes;
	pthread_barrier_t barrier;
	_Atomic int closed; /* transports */
	/* Without a thread of the transport: calls of it by threads other than the program's. */
	_Atomic int strayed;
};

/* Options of sluice_writer_options, no checkpoints, rows, a thread. */
void crew_init(struct crew *crew, sluice_context *ctx, const char *path, int ranks);
/* Runs act on a thread for each rank, and waits for them. */
void crew_run(struct crew *crew, void (*act)(struct member *m));

/* What the members do. Each returns the result of the call. */
void crew_note(struct member *m, unsigned at, int rc); /* keeps it with its sentence */
int crew_open(struct member *m);
struct sluice_block crew_block(const struct crew *crew, int rank);
int crew_add(struct member *m, const char *name);
/* The block of this rank in frame k; its bytes. */
size_t crew_fill(struct member *m, const char *name, uint64_t k, void *to);
int crew_put(struct member *m, const char *name, uint64_t from, uint64_t to, int timeout_ms);
/* All ranks are here. */
void crew_meet(struct member *m);
/* Opens, adds "u", puts all frames of the crew, closes; the first error is note 0. */
void crew_write(struct member *m);

#endif
