/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue, and what the server knows of its entries besides. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluiced/server.h"

int sl_entries_open(struct sl_server *server, uint32_t row)
{
	unsigned broken = 0;
	size_t slots;
	int rc =
		sl_segment_map(sl_descriptors_fd(server->descriptors, row), true, &server->segment);

	if (!rc)
		rc = sl_catalogue_open(server->segment, &broken, &server->catalogue);
	if (!rc) {
		slots = sl_segment_slots(server->segment);
		server->blobs = calloc(slots, sizeof(*server->blobs));
		server->by_id = malloc(slots * sizeof(*server->by_id));
		if (!server->blobs || !server->by_id)
			rc = -ENOMEM;
	}
	if (rc) {
		sl_catalogue_close(server->catalogue);
		sl_segment_unmap(server->segment);
		free(server->blobs);
		free(server->by_id);
		server->catalogue = NULL;
		server->segment = NULL;
		server->blobs = NULL;
		server->by_id = NULL;
		return sl_fail(rc, "cannot open the catalogue: %s", sl_error_text(rc));
	}
	memset(server->by_id, 0xff, slots * sizeof(*server->by_id));
	server->row = row;
	return 0;
}

int sl_entries_new(struct sl_server *server)
{
	struct sl_kept kept = {.kind = SL_KIND_CATALOGUE};
	uint32_t row;
	int fd, rc = sl_segment_new(server->settings->blobs, &fd);

	if (rc)
		return sl_fail(rc, "cannot make a catalogue: %s", sl_error_text(rc));
	rc = sl_descriptors_put(server->descriptors, &kept, fd, &row);
	if (rc) {
		close(fd);
		return rc;
	}
	rc = sl_entries_open(server, row);
	if (rc)
		sl_descriptors_drop(server->descriptors, row);
	return rc;
}

static uint32_t *first_of(const struct sl_server *server, uint64_t id)
{
	return &server->by_id[id % sl_segment_slots(server->segment)];
}

void sl_blob_add(struct sl_server *server, uint32_t slot, uint64_t id)
{
	uint32_t *first = first_of(server, id);

	server->blobs[slot].id = id;
	server->blobs[slot].next = *first;
	*first = slot;
}

void sl_blob_remove(struct sl_server *server, uint32_t slot)
{
	uint32_t *at = first_of(server, server->blobs[slot].id);

	while (*at != slot)
		at = &server->blobs[*at].next;
	*at = server->blobs[slot].next;
	server->blobs[slot] = (struct sl_blob){0};
}

uint32_t sl_blob_by_id(const struct sl_server *server, uint64_t id)
{
	uint32_t slot = *first_of(server, id);

	while (slot != SL_NO_SLOT && server->blobs[slot].id != id)
		slot = server->blobs[slot].next;
	return slot;
}

void sl_blob_unmark(struct sl_server *server, uint32_t slot)
{
	struct sl_list *link = &server->blobs[slot].loose;

	if (!sl_list_linked(link))
		return;
	sl_list_remove(link);
	server->loose_count--;
}

void sl_blob_mark(struct sl_server *server, uint32_t slot)
{
	struct sl_list *list = NULL;
	struct sl_blob_record record;

	sl_blob_unmark(server, slot);
	sl_catalogue_record(server->catalogue, slot, &record);
	if (record.flags & SLUICE_BLOB_TRANSIENT)
		list = &server->transients;
	else if (record.flags & SLUICE_BLOB_CACHE && record.place.kind != SLUICE_BLOB_OF_PROCESS)
		list = &server->caches;
	if (!list || record.flags & SLUICE_BLOB_PIN)
		return;
	sl_list_append(list, &server->blobs[slot].loose);
	server->loose_count++;
}

bool sl_blob_is_transient(const struct sl_server *server, uint32_t slot)
{
	struct sl_blob_record record;

	sl_catalogue_record(server->catalogue, slot, &record);
	return record.flags & SLUICE_BLOB_TRANSIENT;
}
