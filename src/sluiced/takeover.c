/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server finds that another one has left: by the ledger, which descriptors; by the catalogue, which
 * blobs; spill.h says what of those that were on their way to a file, or back. Unsealed blobs go with the server
 * that knew who was making them. Memory that somebody may still have mapped for writing is not used for new blobs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluiced/spill.h"

/* The catalogue that is in the descriptor table, in that row; -errno with a sentence. */
static int open_catalogue(struct sl_server *server, uint32_t row)
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

static int new_catalogue(struct sl_server *server)
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
	rc = open_catalogue(server, row);
	if (rc)
		sl_descriptors_drop(server->descriptors, row);
	return rc;
}

static void open_rows(struct sl_server *server, enum sl_kind kind)
{
	struct sl_descriptors *descriptors = server->descriptors;

	for (uint32_t row = 0; row < descriptors->used; row++) {
		const struct sl_kept *kept = &descriptors->ledger->rows[row];
		struct sl_region *region;

		if (!kept->id || kept->kind != kind)
			continue;
		if (kind == SL_KIND_REFERENCES) {
			sl_peer_expect(server, row);
		} else if (kind == SL_KIND_PROCESS) {
			sl_peer_expect_process(server, row);
		} else if (kind == SL_KIND_CATALOGUE) {
			if (server->catalogue || open_catalogue(server, row))
				sl_descriptors_drop(descriptors, row);
		} else if (kind == SL_KIND_COPY) {
			if (sl_spill_adopt(server, row))
				sl_descriptors_drop(descriptors, row);
		} else if (sl_region_open(server, row, &region)) {
			sl_descriptors_drop(descriptors, row);
		} else {
			region->frozen = true;
		}
	}
}

/* Where the bytes of an entry are; false: nowhere that could be. */
static bool find_place(struct sl_server *server, uint32_t slot)
{
	struct sl_blob *blob = &server->blobs[slot];
	struct sl_blob_record record = sl_blob_record(server, slot);
	struct sl_region *region = sl_region_find(server, record.place.memory);
	uint64_t range, at;

	if (!region || record.size > sl_region_range_bytes(region))
		return false;
	range = record.place.offset / sl_region_range_bytes(region);
	at = record.place.offset % sl_region_range_bytes(region);
	if (range >= region->ranges || region->used >> range & 1 ||
	    at > sl_region_range_bytes(region) - record.size ||
	    (at && region->kind != SLUICE_BLOB_OF_PROCESS) ||
	    (region->away && sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_SEALED))
		return false;
	region->used |= UINT64_C(1) << range;
	region->slots[range] = slot;
	blob->region = region;
	blob->range = (unsigned)range;
	if (!region->away)
		server->blob_bytes += sl_region_host_bytes(region);
	return true;
}

/* What becomes of an entry; and counts it. */
static void settle_slot(struct sl_server *server, uint32_t slot)
{
	if (sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_FREE)
		return;
	sl_blob_add(server, slot, sl_blob_record(server, slot).key.id);
	server->top = SL_MAX(server->top, slot + 1);
	switch (sl_catalogue_state(server->catalogue, slot)) {
	case SL_ENTRY_SEALED:
	case SL_ENTRY_AWAY:
		server->sealed++;
		if (find_place(server, slot))
			sl_blob_mark(server, slot);
		else
			sl_blob_forget(server, slot);
		break;
	case SL_ENTRY_DYING:
		server->dying++;
		find_place(server, slot);
		break;
	case SL_ENTRY_OPEN:
		/* Whoever was making it has a ticket of the server before. */
		server->created++;
		sl_blob_forget(server, slot);
		break;
	default:
		break;
	}
}

static void settle(struct sl_server *server)
{
	uint32_t slots = sl_segment_slots(server->segment);

	for (uint32_t slot = 0; slot < slots; slot++)
		if (sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_DYING)
			settle_slot(server, slot);
	/* Then what is on its way out: something else may lie in the place of what was given up before its seal. */
	for (uint32_t slot = 0; slot < slots; slot++)
		if (!server->blobs[slot].id)
			settle_slot(server, slot);
	server->sweep = true;
}

int sl_server_take_over(struct sl_server *server)
{
	int rc;

	/* No ticket of this server has the number of one of a server before. */
	server->last_ticket = (atomic_fetch_add(&server->descriptors->ledger->turns, 1) + 1) << 32;
	sl_descriptors_reconcile(server->descriptors);
	sl_devices_begin(server);
	open_rows(server, SL_KIND_CATALOGUE);
	rc = server->catalogue ? 0 : new_catalogue(server);
	if (rc)
		return rc;
	open_rows(server, SL_KIND_REFERENCES);
	open_rows(server, SL_KIND_PROCESS);
	open_rows(server, SL_KIND_REGION);
	open_rows(server, SL_KIND_COPY);
	settle(server);
	sl_spill_settle(server);
	for (unsigned i = 0; i < SL_BUCKETS; i++)
		sl_list_each_of (region, &server->regions[i], struct sl_region, bucket) {
			if (region->device >= 0)
				sl_device_settle(server, region);
			else if (!region->used)
				sl_region_free(server, region);
			else
				sl_region_trim(server, region);
		}
	return 0;
}
