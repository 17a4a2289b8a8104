/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of this process, and a transport in its memory: small messages are sent at once, large ones when
 * they are received, and messages of different ranks come in an order that a seed decides. */
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
	uint64_t number; /* the act's own */
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
	uint64_t first, frames; /* of crew_write: from, to */
	const char *content;    /* of these frames, a name of field.h */
	const char *codec;
	unsigned flags;    /* of the series */
	uint64_t at;       /* its continue_at */
	const void *given; /* to the acts of the test */
	/* Changes messages that are sent; returns their length. */
	size_t (*spoil)(const struct member *m, void *bytes, size_t n);
	_Atomic long break_after; /* so many messages the transport fails; 0: never */

	_Atomic bool broken;
	struct member members[CREW_MOST];
	struct mailbox *boxes;
	pthread_barrier_t barrier;
	_Atomic int closed; /* transports */
	/* Without a thread of the transport: calls of it by threads other than the program's. */
	_Atomic int strayed;
};

/* Options of sluice_writer_options, no checkpoints, rows, a thread, 20 frames. */
struct crew crew_of(sluice_context *ctx, const char *path, int ranks);
struct crew crew_at(struct fixture *f, int ranks); /* in its folder, "x.h5" */
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
/* Opens, adds "u", puts so many frames of it from the first one on. */
int crew_begin(struct member *m, uint64_t frames);
int crew_flush(struct member *m);
void crew_end(struct member *m, unsigned at); /* keeps the result as a note */
/* Opens, adds "u", puts the frames of the crew, closes: note 0 is the first error, note 1 that of close. */
void crew_write(struct member *m);

/* On the main thread: notes of all ranks are 0, but that one; and "u" has so many frames, all right. */
void assert_note(const struct crew *crew, unsigned at, int error, const char *says);
void assert_crew(const struct crew *crew, unsigned at, int error, const char *says,
                 uint64_t frames);
void assert_crew_ok(const struct crew *crew, uint64_t frames);

#endif
