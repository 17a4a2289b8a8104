/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of blobs on the two emulated devices share. */
#ifndef TESTS_STORE_DEVICE_COMMON_H
#define TESTS_STORE_DEVICE_COMMON_H

#include <pthread.h>

#include "lib/daemon.h"
#include "sluice/emulated.h"

#define SLAB (2 * MIB)

/* How often this process has memory of an emulated device mapped that others can have. */
unsigned mappings_of(int device);
void assert_mappings_are(int device, unsigned most);

/* A stream that does not go on until it is let go: gate_pass() is for sluice_emulated_call(). */
struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t opened;
	bool open;
};
#define GATE                                                                \
	{                                                                   \
		PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, \
	}
void gate_pass(void *gate);
void gate_open(struct gate *gate);
/* The same after 100 ms; for a thread. */
void *gate_open_late(void *gate);
/* The first blob or seal on a device waits for what that has to do: so it is not one with a gate before it. */
void begin_with(sluice_store *store, int device);

#endif
