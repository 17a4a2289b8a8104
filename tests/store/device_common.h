/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of blobs on the two emulated devices share. */
#ifndef TESTS_STORE_DEVICE_COMMON_H
#define TESTS_STORE_DEVICE_COMMON_H

#include <pthread.h>

#include "lib/daemon.h"
#include "sluice/emulated.h"

#define SLAB (2 * MIB)

/* Of what the next two put into blobs, on the host or a device. */
uint64_t seed_of(const char *name, size_t n);
int create_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags,
              sluice_blob **out);
sluice_blob *put_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags);
/* Whether the blob is that. Any thread. */
bool is_right(const sluice_blob *blob, const char *name, size_t n);
/* Of the store's account. */
struct sluice_store_device_info device_of(sluice_store *store, int number);
/* Waits until the store has no more than that on the device, and all of what is gone has been unmapped. */
void assert_memory_is(sluice_store *store, int number, uint64_t most);
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
/* The first blob or seal on a device waits for what that has to do: so it is not one with a gate before it. */
void begin_with(sluice_store *store, int device);

#endif
