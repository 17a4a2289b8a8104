/* SPDX-License-Identifier: Apache-2.0 */
/* A file whose storage answers when the test wants it to. */
#ifndef TESTS_SLOW_H
#define TESTS_SLOW_H

#include <stdatomic.h>

#include "lib/support.h"

enum slow_call { SLOW_SIZE, SLOW_READ, SLOW_WRITE, SLOW_SYNC, SLOW_CALLS };

/* What the test, the wrapped calls and the process that serves the file share. */
struct slow {
	_Atomic bool held[SLOW_CALLS];      /* such calls wait */
	_Atomic unsigned asked[SLOW_CALLS]; /* since slow_reset() */
	_Atomic uint64_t inode;             /* of the file, where calls are wrapped */
};
extern struct slow *slow;

enum { SLOW_BYTES = 4 << 20, SLOW_SEED = 77 };

/* Such calls wait until slow_release(), for ten seconds at most, so that what hangs fails. */
void slow_hold(enum slow_call call);
void slow_release(void);
unsigned slow_asked(enum slow_call call);
/* For whoever answers: waits as long as such calls are held. */
void slow_wait(enum slow_call call);

/* Serves one file of SLOW_BYTES by /dev/fuse from a process of its own. NULL: its path; else why not. */
const char *slow_fuse_start(const char *directory, char *path, size_t size);
void slow_fuse_stop(void);

#endif
