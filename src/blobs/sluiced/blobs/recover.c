/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery: a new server takes over the state of a dead server.
 *
 * The ledger says which descriptors there are, the catalogue which blobs; spill/spill.h says how
 * blobs are treated that were on their way to a file or back. Unsealed blobs are deleted, because
 * only the dead server knew their makers. Memory that a client may still have mapped for writing is
 * not used for new blobs. Runs before the first connection is accepted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"
#include "sluiced/supervisor/supervisor.h"

/* Opens the catalogue in that row of the table. Returns 0 or an error with a sentence. */
static int recover_catalogue(struct sl_server *server, uint32_t row)
{
	struct sl_blobs *blobs = server->blobs;
	size_t slots = 0;
	int rc = sl_segment_map(server->descriptors->held[row].fd, true, &blobs->segment);

	if (!rc) {
		slots = sl_segment_slots(blobs->segment);
		blobs->by_slot = calloc(slots, sizeof(*blobs->by_slot));
		blobs->by_id = malloc(slots * sizeof(*blobs->by_id));
		rc = blobs->by_slot && blobs->by_id
		             ? sl_catalogue_open(blobs->segment, NULL, &server->catalogue)
		             : -ENOMEM;
	}
	if (rc) {
		sl_segment_unmap(blobs->segment);
		free(blobs->by_slot);
		free(blobs->by_id);
		blobs->segment = NULL;
		blobs->by_slot = NULL;
		blobs->by_id = NULL;
		return sl_fail(rc, "cannot open the catalogue: %s", sl_error_text(rc));
	}
	memset(blobs->by_id, 0xff, slots * sizeof(*blobs->by_id));
	blobs->row = row;
	return 0;
}

static int recover_new_catalogue(struct sl_server *server)
{
	struct sl_ledger_row saved = {.kind = SL_KIND_CATALOGUE};
	uint32_t row;
	int fd, rc = sl_segment_new(server->settings->blobs, &fd);

	if (rc)
		return sl_fail(rc, "cannot make a catalogue: %s", sl_error_text(rc));
	/*
	 * Nothing is known of memory that a server before has left. Its clients keep what they have
	 * mapped, and must not go on with the old catalogue: to them this is another daemon.
	 */
	for (row = 0; row < server->descriptors->used; row++)
		if (server->descriptors->held[row].fd >= 0)
			sl_descriptors_drop(server->descriptors, row);
	server->descriptors->ledger->store++;
	rc = sl_descriptors_put(server->descriptors, &saved, fd, &row);
	if (rc) {
		close(fd);
		return rc;
	}
	rc = recover_catalogue(server, row);
	if (rc)
		sl_descriptors_drop(server->descriptors, row);
	return rc;
}

static void recover_rows(struct sl_server *server, enum sl_row_kind kind)
{
	struct sl_descriptors *descriptors = server->descriptors;

	for (uint32_t row = 0; row < descriptors->used; row++) {
		const struct sl_ledger_row *saved = &descriptors->ledger->rows[row];
		struct sl_region *region;

		if (!saved->id || saved->kind != kind)
			continue;
		if (kind == SL_KIND_REFERENCES) {
			sl_peer_recover(server, row);
		} else if (kind == SL_KIND_PROCESS) {
			sl_peer_recover_process(server, row);
		} else if (kind == SL_KIND_CATALOGUE) {
			if (!server->catalogue && recover_catalogue(server, row))
				sl_report(LOG_ERR, "all blobs are dropped: %s",
				          sluice_last_message());
		} else if (kind == SL_KIND_COPY) {
			if (sl_spill_recover_copy(server, row))
				sl_descriptors_drop(descriptors, row);
		} else if (sl_region_open(server, row, &region)) {
			sl_descriptors_drop(descriptors, row);
		} else {
			region->frozen = true;
			if (region->device >= 0)
				sl_device_region_found(server, region, saved->session);
		}
	}
}

/* Finds the region and range of an entry. Returns false if its record cannot be right. */
static bool recover_range(struct sl_server *server, uint32_t slot)
{
	struct sl_blob *blob = &server->blobs->by_slot[slot];
	struct sl_blob_record record = sl_blob_record_at(server, slot);
	struct sl_region *region = sl_region_find(server, record.range.memory);
	uint64_t range, at;

	if (!region || record.size > sl_region_range_bytes(region))
		return false;
	range = record.range.offset / sl_region_range_bytes(region);
	at = record.range.offset % sl_region_range_bytes(region);
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
		server->counts.blob_bytes += sl_region_host_bytes(region);
	return true;
}

/* Recovers an entry, or deletes it, and counts it. */
static void recover_slot(struct sl_server *server, uint32_t slot)
{
	enum sl_entry_state state = sl_catalogue_state(server->catalogue, slot);
	const char *damage = sl_catalogue_damage(server->catalogue, slot);

	if (state == SL_ENTRY_FREE)
		return;
	if (damage)
		sl_blob_report(server, slot, damage);
	sl_blob_add(server, slot, sl_blob_record_at(server, slot).key.id);
	server->blobs->top = SL_MAX(server->blobs->top, slot + 1);
	if (state == SL_ENTRY_DYING) {
		server->counts.dying++;
		recover_range(server, slot);
		return;
	}
	*(state == SL_ENTRY_OPEN ? &server->counts.created : &server->counts.sealed) += 1;
	/* The lease of an OPEN entry died with the previous server. */
	if (state != SL_ENTRY_OPEN && recover_range(server, slot)) {
		sl_blob_relist(server, slot);
		return;
	}
	if (state != SL_ENTRY_OPEN)
		sl_blob_report(server, slot, "its memory is gone, or is that of another blob");
	sl_blob_forget(server, slot);
}

static void recover_slots(struct sl_server *server)
{
	uint32_t slots = sl_segment_slots(server->blobs->segment);

	for (uint32_t slot = 0; slot < slots; slot++)
		if (sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_DYING)
			recover_slot(server, slot);
	/* DYING entries last: another blob may lie in a range given up before its seal. */
	for (uint32_t slot = 0; slot < slots; slot++)
		if (!server->blobs->by_slot[slot].id)
			recover_slot(server, slot);
	server->blobs->sweep_due = true;
}

int sl_server_recover(struct sl_server *server)
{
	int rc;

	/* Numbers of leases differ from those of all previous servers. */
	server->blobs->last_lease = (atomic_fetch_add(&server->descriptors->ledger->epoch, 1) + 1)
	                            << 32;
	sl_descriptors_reconcile(server->descriptors);
	sl_devices_begin(server);
	recover_rows(server, SL_KIND_CATALOGUE);
	rc = server->catalogue ? 0 : recover_new_catalogue(server);
	if (rc)
		return rc;
	recover_rows(server, SL_KIND_REFERENCES);
	recover_rows(server, SL_KIND_PROCESS);
	recover_rows(server, SL_KIND_REGION);
	recover_rows(server, SL_KIND_COPY);
	recover_slots(server);
	sl_parts_recover(server);
	sl_deletes_recover(server);
	sl_spill_recover(server);
	sl_parts_check(server);
	for (unsigned i = 0; i < SL_BUCKETS; i++)
		sl_list_each_of (region, &server->memory->regions[i], struct sl_region, bucket) {
			if (region->device >= 0)
				sl_device_recover(server, region);
			else if (!region->used)
				sl_region_free(server, region);
			else
				sl_region_trim(server, region);
		}
	return 0;
}
