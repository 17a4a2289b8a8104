/* SPDX-License-Identifier: Apache-2.0 */
/* Processes killed at each of their steps: the server of a daemon with sluiced/steps.c, or a client. */
#ifndef TESTS_KILL_MATRIX_H
#define TESTS_KILL_MATRIX_H

#include <stdatomic.h>

#include "lib/daemon.h"

/* ------------------------------------------------------------------------------------- the server */

struct kill_matrix {
	const char *const *steps; /* the last is NULL */
	unsigned passes;          /* per step */
	bool sparse; /* how often the server comes by before grows as 0, 1, 3, 6 ...; else as 0, 1, 2 ... */
	bool each;                      /* of the steps is one at which a server dies */
	void (*live)(struct daemon *d); /* the client meanwhile */
};
/* Called once in main(), before any daemon starts: where the server says that it has died. */
void kill_matrix_begin(const char *name);
void kill_matrix_end(void);
/* For each step and pass a daemon of its own; the number of deaths. */
unsigned kill_matrix_run(const struct kill_matrix *m);

/* Blobs whose seal was lost with a server in the functions below. */
extern unsigned kill_matrix_lost;
/* Puts a blob, as often as that takes. */
sluice_blob *put_at_last(sluice_store *store, const char *name, size_t n, unsigned flags);

/* --------------------------------------------------------------------------------------- a client */

/*
 * From now on this process dies at a step, on whichever thread: `point` is how often it comes by before, a blank,
 * and the step. Counts the death in *deaths, which all processes share. The program is linked with
 * --wrap=sl_store_step.
 */
void die_at_step(const char *point, _Atomic uint32_t *deaths);
/* Deletes the blobs below "mine/" that are sealed; one that goes by itself meanwhile is no failure. */
void delete_mine(sluice_store *store);

#endif
