/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals and releases in stream order. For the seals a process gives its stream the making of a blob and its seal, round
 * after round, and another one looks at each as soon as it is there. Each round has bytes of its own, in memory that has
 * those of another one.
 */
#include "gpu/check_store.h"

#include <stdio.h>
#include <string.h>

enum { AHEAD = 32 };

static size_t size_of(uint32_t round)
{
	/* Most share slabs, whose ranges are used again and again. */
	if (round % 50 == 49)
		return 4 * MIB + 1;
	return (small ? 30000 : 200000) + round % 7 * (small ? 1000 : 100000);
}

static int make_rounds(void)
{
	sluice_stream stream = new_stream(0);
	char name[20];

	store_join();
	for (uint32_t i = 0; i < together->rounds; i++) {
		size_t n = size_of(i);
		sluice_blob *blob;

		if (i >= AHEAD)
			await_word(&together->taken, i - AHEAD);
		snprintf(name, sizeof(name), "o%u", i);
		MUST(sluice_blob_create(store, name, n, gpu_device(0), NULL, &blob));
		/* Who would not wait for the stream would come before it. */
		GPU(gpu_spin(0, stream, i % 4 ? 20000 : 200000));
		GPU(gpu_fill(0, stream, sluice_blob_mutable_data(blob), n, 0, seed + i));
		MUST(sluice_blob_seal_on(blob, stream));
		release_blob(blob);
	}
	MUST(sluice_store_close(store));
	MUST(sluice_stream_free(stream));
	return 0;
}

static bool take_rounds(void)
{
	char name[20];

	for (uint32_t i = 0; i < together->rounds; i++) {
		sluice_blob *blob;

		snprintf(name, sizeof(name), "o%u", i);
		blob = get_blob(name, 20000);
		if (!holds(blob, size_of(i), seed + i)) {
			printf("       in round %u\n", i);
			return false;
		}
		release_blob(blob);
		MUST(sluice_blob_delete(store, name));
		atomic_store(&together->taken, i + 1);
	}
	return true;
}

static bool seals_come_in_stream_order(void)
{
	int status;
	pid_t maker;
	bool good;

	store_start();
	together->rounds = small ? 300 : 10000;
	maker = start_self("order_maker");
	good = take_rounds();
	if (!good)
		return false;
	status = wait_for(maker, 20);
	if (status)
		broken("the maker ended with status %#x", (unsigned)status);
	store_stop();
	return true;
}

/* -------------------------------------------------------------------------------------- releases */

/* Unmapping does not wait for a stream: one that copies from there then would fail, and the device with it. */
static bool streams_read_on_in_what_is_released_behind_them(void)
{
	size_t n = small ? 3 * MIB : 64 * MIB;
	double begun = seconds_from(0);
	struct gpu_match match;
	sluice_stream stream;
	void *copy;

	store_start();
	stream = new_stream(0);
	copy = new_memory(0, n);
	for (uint32_t i = 0; i < (small ? 10 : 100); i++) {
		sluice_blob *blob;

		release_blob(put_blob("read", n, 0, seed + i));
		blob = get_blob("read", 0);
		GPU(gpu_spin(0, stream, 3000000));
		MUST(sluice_copy_on(copy, sluice_blob_data(blob), n, stream));
		MUST(sluice_blob_release_on(blob, stream));
		MUST(sluice_blob_delete(store, "read"));
		look_for(0, stream, &match, copy, n, 0, seed + i);
		if (!right(0, stream, &match, "what was copied"))
			return false;
	}
	while (device_account().memory_bytes) {
		if (seconds_from(begun) > 60)
			broken("%llu bytes of deleted blobs are left",
			       (unsigned long long)device_account().memory_bytes);
		nap(1000);
	}
	MUST(sluice_device_free(copy));
	MUST(sluice_stream_free(stream));
	store_stop();
	return true;
}

/* ------------------------------------------------------------------------------------ two places */

/* What belongs together on the host and on the device is there together, or not at all. */
static int make_pairs(void)
{
	sluice_stream stream = new_stream(0);
	char names[2][20];

	store_join();
	for (uint32_t i = 0; i < together->rounds; i++) {
		sluice_blob *v[2];
		size_t n = 50000;

		if (i >= AHEAD)
			await_word(&together->taken, i - AHEAD);
		snprintf(names[0], sizeof(names[0]), "h%u", i);
		snprintf(names[1], sizeof(names[1]), "g%u", i);
		MUST(sluice_blob_create(store, names[0], n, -1, NULL, &v[0]));
		MUST(sluice_blob_create(store, names[1], n, gpu_device(0), NULL, &v[1]));
		memset(sluice_blob_mutable_data(v[0]), (int)(i % 251), n);
		GPU(gpu_spin(0, stream, 300000));
		GPU(gpu_fill(0, stream, sluice_blob_mutable_data(v[1]), n, 0, seed + i));
		MUST(sluice_blob_seal_many_on(v, 2, stream));
		MUST(sluice_blob_release_many(v, 2));
	}
	MUST(sluice_store_close(store));
	MUST(sluice_stream_free(stream));
	return 0;
}

static bool take_pair(uint32_t i)
{
	char names[2][20];
	const unsigned char *bytes;
	sluice_blob *host, *there;
	bool good;

	snprintf(names[0], sizeof(names[0]), "h%u", i);
	snprintf(names[1], sizeof(names[1]), "g%u", i);
	host = get_blob(names[0], 20000);
	/* The other one is there already. */
	there = get_blob(names[1], 0);
	bytes = sluice_blob_data(host);
	good = sluice_blob_kind(host) == SLUICE_BLOB_ON_HOST && bytes[0] == i % 251 &&
	       bytes[49999] == i % 251 && holds(there, 50000, seed + i);
	release_blob(host);
	release_blob(there);
	MUST(sluice_blob_delete(store, names[0]));
	MUST(sluice_blob_delete(store, names[1]));
	atomic_store(&together->taken, i + 1);
	return good;
}

static bool pairs_are_sealed_together(void)
{
	bool good = true;
	int status;
	pid_t maker;

	store_start();
	together->rounds = small ? 100 : 1000;
	maker = start_self("order_pairs");
	for (uint32_t i = 0; i < together->rounds && good; i++)
		good = take_pair(i);
	if (!good)
		return false;
	status = wait_for(maker, 20);
	if (status)
		broken("the maker ended with status %#x", (unsigned)status);
	store_stop();
	return good;
}

int play_order(const char *how)
{
	return strcmp(how, "order_maker") ? make_pairs() : make_rounds();
}

const struct check store_order_checks[] = {
	{"order", "a seal in stream order comes when all bytes are there",
         seals_come_in_stream_order, 90, false},
	{"pairs", "what is sealed with it on the host is there with it", pairs_are_sealed_together,
         60, false},
	{"release", "a stream reads on in what was released behind it",
         streams_read_on_in_what_is_released_behind_them, 90, false},
	{NULL, NULL, NULL, 0, false},
};
