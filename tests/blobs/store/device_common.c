/* SPDX-License-Identifier: Apache-2.0 */
#include "store/device_common.h"

unsigned mappings_of(int device)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned count = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, named("sluice:emulated:%d:", device)) != NULL;
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

void *gate_open_late(void *gate)
{
	sleep_ms(100);
	gate_open(gate);
	return NULL;
}

void begin_with(sluice_store *store, int device)
{
	sluice_blob *blob;

	assert_ok(create_on(store, "", 1, device, 0, &blob));
	assert_ok(sluice_blob_release(blob));
}
