/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon of the check's own, and blobs on the device. */
#ifndef TESTS_GPU_CHECK_STORE_H
#define TESTS_GPU_CHECK_STORE_H

#include <stdatomic.h>

#include "gpu/check.h"
#include "sluice/store.h"

/* What the processes of a check share; zeros at first. */
struct together {
	_Atomic uint32_t ready;              /* processes that are where they are to be */
	_Atomic uint32_t step;               /* what the check has come to */
	_Atomic uint32_t made, taken, wrong; /* rounds */
	uint32_t rounds;
};
extern struct together *together;
/* Until *word is at least value; the check fails if that takes longer than 20 s. */
void await_word(const _Atomic uint32_t *word, uint32_t value);
void nap(unsigned us);
double seconds_from(double begun); /* 0: since some time */

/* Starts it, and opens a store; in a process that play()s: opens one to the same daemon. */
extern sluice_store *store;
void store_start(void);
void store_join(void);
/* Closes the store, and stops the daemon. */
void store_stop(void);
void store_reopen(void);
pid_t daemon_pid(void); /* of the process that store_start() has started */

/* n bytes of the pattern `of_seed` on the device, sealed in stream order. */
sluice_blob *put_blob(const char *name, size_t n, unsigned flags, uint64_t of_seed);
sluice_blob *get_blob(const char *name, int timeout_ms);
/* Whether a blob holds that, by a kernel of the device. */
bool holds(const sluice_blob *blob, size_t n, uint64_t of_seed);
void release_blob(sluice_blob *blob);
/* It ends well, or the check says what it did. */
bool plays(const char *how);

/* What the store says of the first device; zeros if it knows nothing of it. */
struct sluice_store_device_info device_account(void);

int play_memory(const char *how); /* of check_store_memory.c */
int play_order(const char *how);  /* of check_store_order.c */

#endif
