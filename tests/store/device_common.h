/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of blobs on the two emulated devices share. */
#ifndef TESTS_STORE_DEVICE_COMMON_H
#define TESTS_STORE_DEVICE_COMMON_H

#include "sluice/emulated.h"
#include "store/daemon.h"

#define SLAB (2 * MIB)

/* Of what the next two put into blobs, on the host or a device. */
uint64_t seed_of(const char *name, size_t n);
int create_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags,
              sluice_blob **out);
sluice_blob *put_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags);
/* Whether the blob is that. Any thread. */
bool is_right(const sluice_blob *blob, const char *name, size_t n);
/* Of the store's account. */
struct sluice_store_device device_of(sluice_store *store, int number);
/* Waits until the store has no more than that on the device, and all of what is gone has been unmapped. */
void assert_memory_is(sluice_store *store, int number, uint64_t most);
/* How often this process has memory of an emulated device mapped that others can have. */
unsigned mappings_of(int device);
void assert_mappings_are(int device, unsigned most);

#endif
