/* SPDX-License-Identifier: Apache-2.0 */
#include "store/device_common.h"

uint64_t seed_of(const char *name, size_t n)
{
	uint64_t seed = n;

	while (*name)
		seed = (seed ^ (unsigned char)*name++) * UINT64_C(1099511628211);
	return seed;
}

int create_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags,
              sluice_blob **out)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	void *bytes = malloc(n);
	int rc;

	o.flags = flags;
	pattern_fill(bytes, n, 0, seed_of(name, n));
	rc = sluice_blob_create(store, name, n, device, &o, out);
	if (!rc)
		rc = sluice_copy(sluice_blob_mutable_data(*out), bytes, n);
	free(bytes);
	return rc;
}

sluice_blob *put_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags)
{
	sluice_blob *blob = NULL;

	assert_ok(create_on(store, name, n, device, flags, &blob));
	assert_ok(sluice_blob_seal(blob));
	return blob;
}

bool is_right(const sluice_blob *blob, const char *name, size_t n)
{
	void *bytes = malloc(n);
	bool right = sluice_blob_size(blob) == n && sluice_blob_data(blob) &&
	             !sluice_copy(bytes, sluice_blob_data(blob), n) &&
	             pattern_match(bytes, n, 0, seed_of(name, n)) == n;

	free(bytes);
	return right;
}

struct sluice_store_device_info device_of(sluice_store *store, int number)
{
	struct sluice_store_device_info d = {.size = sizeof(d)};

	for (unsigned i = 0;; i++) {
		assert_ok(sluice_store_device(store, i, &d));
		if (d.device == number)
			return d;
	}
}

void assert_memory_is(sluice_store *store, int number, uint64_t most)
{
	double until = seconds_now() + 20;
	struct sluice_store_device_info d;

	for (;;) {
		d = device_of(store, number);
		if (d.memory_bytes <= most && !d.leaving_bytes)
			return;
		if (seconds_now() > until)
			fail_msg("%llu bytes, %llu of them leaving",
			         (unsigned long long)d.memory_bytes,
			         (unsigned long long)d.leaving_bytes);
		sleep_ms(2);
	}
}

unsigned mappings_of(int device)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], name[40];
	unsigned count = 0;

	assert_non_null(maps);
	snprintf(name, sizeof(name), "sluice:emulated:%d:", device);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, name) != NULL;
	fclose(maps);
	return count;
}

void assert_mappings_are(int device, unsigned most)
{
	double until = seconds_now() + 20;

	while (mappings_of(device) > most) {
		if (seconds_now() > until)
			fail_msg("%u mappings", mappings_of(device));
		sleep_ms(2);
	}
}

void gate_pass(void *argument)
{
	struct gate *gate = argument;

	pthread_mutex_lock(&gate->mutex);
	while (!gate->open)
		pthread_cond_wait(&gate->opened, &gate->mutex);
	pthread_mutex_unlock(&gate->mutex);
}

void gate_open(struct gate *gate)
{
	pthread_mutex_lock(&gate->mutex);
	gate->open = true;
	pthread_cond_broadcast(&gate->opened);
	pthread_mutex_unlock(&gate->mutex);
}

void begin_with(sluice_store *store, int device)
{
	sluice_blob *blob;

	assert_ok(create_on(store, "", 1, device, 0, &blob));
	assert_ok(sluice_blob_release(blob));
}
