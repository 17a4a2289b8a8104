/* SPDX-License-Identifier: Apache-2.0 */
/* By the store: from a slab if it is small, and in memory of its own. */
#include "store_gpu.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <sluice/store.h>

static sluice_store *store;
static sluice_blob *blobs[KEYS];
static uint64_t idle_bytes; /* of the device, in the store's account */

static uint64_t account(void)
{
	struct sluice_store_device_info d = {.size = sizeof(d)};

	for (unsigned i = 0; !sluice_store_device(store, i, &d); i++)
		if (d.device == device)
			return d.memory_bytes;
	return 0;
}

static void open_store(void)
{
	if (!store)
		CHECK(sluice_store_open(NULL, NULL, &store));
}

/* Not that of a pair of processes before. */
static const char *name_of(uint32_t key)
{
	static char name[40];

	snprintf(name, sizeof(name), "%d/%u", (int)(consumer ? getppid() : getpid()), key);
	return name;
}

static void *make(uint32_t key, uint64_t bytes, unsigned flags)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob **blob = &blobs[key % KEYS];

	o.flags = flags;
	CHECK(sluice_blob_create(store, name_of(key), bytes, device, &o, blob));
	return sluice_blob_mutable_data(*blob);
}

static void *make_any(uint32_t key, uint64_t bytes)
{
	return make(key, bytes, 0);
}

static void *make_alone(uint32_t key, uint64_t bytes)
{
	return make(key, bytes, SLUICE_BLOB_ALONE);
}

static void publish(uint32_t key, bool expected)
{
	(void)expected;
	CHECK(sluice_blob_seal(blobs[key % KEYS]));
}

static void drop(uint32_t key)
{
	CHECK(sluice_blob_release(blobs[key % KEYS]));
	CHECK(sluice_blob_delete(store, name_of(key)));
}

/* Both processes have unmapped it. The producer's slab, with what else is leased, stays. */
static void settle(void)
{
	struct timespec pause = {0, 10000};
	double begun = now();

	while (account() > idle_bytes) {
		if (now() - begun > 10)
			fail("memory that was deleted is not free after 10 s");
		nanosleep(&pause, NULL);
	}
}

static void open_alone(void)
{
	open_store();
	if (!consumer)
		idle_bytes = account();
}

static const void *get(uint32_t key, uint64_t bytes, bool awaited)
{
	sluice_blob **blob = &blobs[key % KEYS];

	(void)bytes;
	CHECK(sluice_blob_get(store, name_of(key), awaited ? 30000 : 0, blob));
	return sluice_blob_data(*blob);
}

static void release(uint32_t key)
{
	CHECK(sluice_blob_release(blobs[key % KEYS]));
}

const struct way way_sluice = {.name = "sluice",
                               .open = open_store,
                               .make = make_any,
                               .publish = publish,
                               .drop = drop,
                               .get = get,
                               .release = release};
const struct way way_alone = {.name = "alone",
                              .open = open_alone,
                              .make = make_alone,
                              .publish = publish,
                              .drop = drop,
                              .settle = settle,
                              .get = get,
                              .release = release};
