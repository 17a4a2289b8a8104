/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live.h"

static int fail(char *why, size_t size)
{
	snprintf(why, size, "%s", sluice_last_message());
	return -1;
}

int live_open(struct live *l, const char *name, int wait_ms, char *why, size_t size)
{
	*l = (struct live){.wait_ms = wait_ms, .seen = -1};
	if (snprintf(l->prefix, sizeof l->prefix, "%s/", name) >= (int)sizeof l->prefix) {
		snprintf(why, size, "too long for a name in the store");
		return -1;
	}
	/* The watch comes before the first look, so that nothing is between them. */
	if (sluice_store_open(NULL, NULL, &l->store) ||
	    sluice_watch_open(l->store, l->prefix, &l->watch))
		return fail(why, size);
	return 0;
}

void live_close(struct live *l)
{
	sluice_watch_free(l->watch);
	sluice_store_close(l->store);
}

/* What the store has now: the lowest number above `seen` that is sealed, or -1; and whether one is not. */
static int look(const struct live *l, long *found, bool *running)
{
	struct sluice_blob_info infos[SLUICE_BLOB_BATCH];
	uint64_t cursor = 0;
	int count;

	*found = -1;
	*running = false;
	infos[0].size = sizeof infos[0];
	while ((count = sluice_blob_list(l->store, l->prefix, &cursor, infos, SLUICE_BLOB_BATCH)) >
	       0)
		for (int i = 0; i < count; i++) {
			char *end;
			long number = strtol(infos[i].name + strlen(l->prefix), &end, 10);

			if (*end || number < 0 || number > UINT_MAX)
				continue;
			*running |= infos[i].state == SLUICE_BLOB_IS_CREATED;
			if (infos[i].state == SLUICE_BLOB_IS_SEALED && number > l->seen &&
			    (*found < 0 || number < *found))
				*found = number;
		}
	return count;
}

/* 1; 0: it was dropped meanwhile; -1 with a sentence. */
static int take(struct live *l, long number, struct live_image *out, char *why, size_t size)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	char name[sizeof l->prefix + 20];
	sluice_blob *blob;
	int rc;

	snprintf(name, sizeof name, "%s%06ld", l->prefix, number);
	rc = sluice_blob_get(l->store, name, 0, &blob);
	l->seen = number;
	if (rc)
		return rc == -ENOENT ? 0 : fail(why, size);
	if (sluice_blob_get_metadata(blob, &m) || m.type != SLUICE_FLOAT32 || m.rank != 2 ||
	    m.shape[0] < 1 || m.shape[1] < 1 || m.strides[1] != 1 || m.strides[0] != m.shape[1]) {
		snprintf(why, size, "'%s' is no image of float32", name);
		sluice_blob_release(blob);
		return -1;
	}
	*out = (struct live_image){
		.number = (unsigned)number,
		.rows = (size_t)m.shape[0],
		.columns = (size_t)m.shape[1],
		.values = (const float *)((const char *)sluice_blob_data(blob) + m.offset),
		.blob = blob};
	return 1;
}

int live_next(struct live *l, struct live_image *out, char *why, size_t size)
{
	struct sluice_watch_event event = {.size = sizeof event};

	for (;;) {
		bool running;
		long found;
		int rc = look(l, &found, &running);

		if (rc < 0)
			return fail(why, size);
		if (found >= 0) {
			rc = take(l, found, out, why, size);
			if (rc > 0)
				out->running = running;
			if (rc)
				return rc;
			continue;
		}
		if (!running && l->seen >= 0)
			return 0;
		/* Whatever has happened: another look says what there is. */
		rc = sluice_watch_next(l->watch, l->wait_ms, &event);
		if (rc == -EAGAIN) {
			snprintf(why, size, "no image came for %d s", l->wait_ms / 1000);
			return -1;
		}
		if (rc)
			return fail(why, size);
	}
}

void live_release(struct live_image *image)
{
	sluice_blob_release(image->blob);
}
