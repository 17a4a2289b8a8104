/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies: how a region is written to a file and read back, and how the folder's limit is kept.
 *
 * The movers (spill_io.c) do the reading and writing; the functions here begin their jobs and
 * continue after them. On the server's thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/memory.h"
#include "sluiced/spill/spill.h"

/* Nothing is written for this time after a failure. */
#define REST_NS INT64_C(1000000000)

static void spill_copy_settle(struct sl_server *server, struct sl_spill_copy *copy)
{
	copy->state = SL_COPY_WHOLE;
	sl_list_append(&server->spill->copies, &copy->link);
}

/* Gives up copies of regions in memory until so many bytes are free. Returns the bytes given up. */
static uint64_t spill_copy_drop_spare(struct sl_server *server, uint64_t bytes)
{
	uint64_t dropped = 0;

	sl_list_each_of (copy, &server->spill->copies, struct sl_spill_copy, link) {
		struct sl_region *region = copy->region;

		if (dropped >= bytes)
			break;
		if (region->away)
			continue;
		dropped += copy->bytes;
		sl_spill_copy_free(server, copy);
		sl_region_relist(server, region);
	}
	return dropped;
}

static void spill_note_trouble(struct sl_server *server, const char *text)
{
	struct sl_spill *spill = server->spill;

	snprintf(spill->trouble, sizeof(spill->trouble), "%s", text);
	spill->rest_until = sl_now() + REST_NS;
	spill->narrow = false;
	server->counts.spill_failures++;
}

static bool spill_has_space(struct sl_server *server, uint64_t bytes, bool ahead)
{
	struct sl_spill *spill = server->spill;
	uint64_t most = server->settings->spill_bytes;
	char text[128];

	if (server->counts.spilled_bytes + bytes > most && !ahead)
		spill_copy_drop_spare(server, server->counts.spilled_bytes + bytes - most);
	if (server->counts.spilled_bytes + bytes <= most || ahead)
		return server->counts.spilled_bytes + bytes <= most;
	spill->full = spill->closing > 0;
	if (spill->full)
		return false;
	snprintf(text, sizeof(text), "%llu of %llu bytes are in use there",
	         (unsigned long long)server->counts.spilled_bytes, (unsigned long long)most);
	spill_note_trouble(server, text);
	return false;
}

bool sl_spill_copy_write(struct sl_server *server, struct sl_region *region, bool ahead)
{
	struct sl_spill *spill = server->spill;
	struct sl_spill_copy *copy;

	if (spill->full || sl_now() < spill->rest_until || (ahead && spill->trouble[0]) ||
	    (spill->narrow && (ahead || spill->writing)) ||
	    !spill_has_space(server, sl_region_used_bytes(region), ahead))
		return false;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return false;
	*copy = (struct sl_spill_copy){
		.region = region,
		.state = SL_COPY_WRITING,
		.ranges = region->used,
		.moving = region->used,
		.range_bytes = sl_region_range_bytes(region),
		.bytes = sl_region_used_bytes(region),
		.row = SL_NO_ROW,
		.file = -1,
		.freed = spill->freed,
		.ahead = ahead,
		.alone = spill->narrow,
		/* A duplicate, because the region may go before the job ends. */
		.memory = fcntl(server->descriptors->held[region->row].fd, F_DUPFD_CLOEXEC, 0),
	};
	region->copy = copy;
	server->counts.spilled_bytes += copy->bytes;
	if (copy->memory < 0) {
		spill_note_trouble(server, "no descriptor is left");
		sl_spill_copy_free(server, copy);
		return false;
	}
	sl_movers_submit(spill, copy);
	/* Takes the region out of the lists for new blobs. */
	sl_region_relist(server, region);
	spill->writing++;
	sl_store_step("server: copying");
	return true;
}

/*
 * Decides whether a write to a full disk is worth a second try: files are being closed, or were
 * meanwhile, or several writes together ran out of space; then the next region is written alone.
 */
static bool spill_space_is_coming(struct sl_server *server, const struct sl_spill_copy *copy)
{
	struct sl_spill *spill = server->spill;
	bool again = !copy->alone || spill->freed != copy->freed;

	spill->narrow = true;
	if (copy->ahead)
		return true;
	spill_copy_drop_spare(server, copy->bytes);
	spill->full = spill->closing > 0;
	return spill->full || again;
}

static void spill_copy_written(struct sl_server *server, struct sl_spill_copy *copy, int error)
{
	struct sl_region *region = copy->region;

	server->spill->writing--;
	close(copy->memory);
	if (!error && region) {
		struct sl_ledger_row saved = {.kind = SL_KIND_COPY,
		                              .bytes = region->bytes,
		                              .range_bytes = region->range_bytes,
		                              .region = region->id,
		                              .origin = region->origin};

		error = sl_descriptors_put(server->descriptors, &saved, copy->file, &copy->row);
	}
	if (!error && region) {
		spill_copy_settle(server, copy);
		server->spill->narrow = false;
		/* A write that began at the same time may have failed since. */
		if (sl_now() > server->spill->rest_until)
			server->spill->trouble[0] = '\0';
		sl_store_step("server: copied");
		return;
	}
	if (error == -ENOSPC && spill_space_is_coming(server, copy))
		error = 0;
	if (error)
		spill_note_trouble(server, sluice_last_message());
	sl_spill_copy_free(server, copy);
	if (region)
		sl_region_relist(server, region);
}

/* ------------------------------------------------------------------------------------ return */

void sl_spill_fail_gets(struct sl_server *server, struct sl_region *region, int error)
{
	server->spill->error = error;
	snprintf(server->spill->text, sizeof(server->spill->text), "%s", sluice_last_message());
	for (unsigned i = 0; i < region->ranges; i++)
		if (region->used >> i & 1 && region->slots[i] != SL_NO_SLOT)
			sl_get_fail(server, region->slots[i]);
}

int sl_spill_copy_read(struct sl_server *server, struct sl_region *region)
{
	struct sl_spill_copy *copy = region->copy;
	int rc = sl_region_memfd(region->bytes, &copy->memory);

	if (rc)
		return rc;
	copy->range_bytes = sl_region_range_bytes(region);
	copy->moving = region->used;
	copy->file = server->descriptors->held[copy->row].fd;
	copy->state = SL_COPY_READING;
	sl_list_remove(&copy->link);
	sl_movers_submit(server->spill, copy);
	copy->taken = sl_region_used_bytes(region);
	server->counts.memory_bytes += copy->taken;
	server->spill->reading++;
	sl_store_step("server: reading");
	return 0;
}

/* Makes its blobs SEALED again, one by one, and wakes the gets that wait for them. */
static void spill_show_blobs(struct sl_server *server, struct sl_region *region)
{
	struct sl_catalogue *catalogue = server->catalogue;
	struct sl_blob_record record;

	for (unsigned i = 0; i < region->ranges; i++) {
		uint32_t slot = region->slots[i];

		if (!(region->used >> i & 1))
			continue;
		server->counts.spilled--;
		if (sl_catalogue_state(catalogue, slot) != SL_ENTRY_AWAY)
			continue;
		server->counts.returns++;
		record = sl_blob_record_at(server, slot);
		record.range.memory = region->id;
		sl_catalogue_move(catalogue, slot, &record.range, true);
		sl_store_step("server: a blob is back");
	}
	for (unsigned i = 0; i < region->ranges; i++)
		if (region->used >> i & 1)
			sl_get_wake(server, region->slots[i]);
}

static void spill_copy_restored(struct sl_server *server, struct sl_spill_copy *copy, int error)
{
	struct sl_region *region = copy->region;
	int fd = copy->memory;

	server->spill->reading--;
	server->counts.memory_bytes -= copy->taken;
	if (!region) {
		close(fd);
		sl_spill_copy_free(server, copy);
		return;
	}
	if (!error)
		error = sl_region_restore(server, region, fd);
	if (error) {
		close(fd);
		server->counts.spill_failures++;
		sl_spill_fail_gets(server, region, error);
		return;
	}
	sl_store_step("server: memory is back");
	region->stamp = ++server->spill->last_stamp;
	server->spill->moved_at = sl_now();
	spill_show_blobs(server, region);
	atomic_store(&server->descriptors->ledger->rows[copy->row].region, region->id);
	sl_store_step("server: returned");
	if (server->counts.memory_bytes <= server->settings->memory_bytes)
		return;
	sl_spill_copy_free(server, copy);
	sl_region_relist(server, region);
}

/* --------------------------------------------------------------------------------------- end */

static void spill_copy_ended(struct sl_server *server, struct sl_spill_copy *copy)
{
	struct sl_spill *spill = server->spill;

	if (copy->error)
		sl_fail(copy->error, "%s", copy->text);
	if (copy->state == SL_COPY_CLOSING) {
		spill->closing--;
		spill->freed++;
		spill->full = false;
		spill->rest_until = 0;
		sl_spill_copy_forget(server, copy);
	} else if (copy->state == SL_COPY_WRITING) {
		spill_copy_written(server, copy, copy->error);
	} else {
		spill_copy_settle(server, copy);
		spill_copy_restored(server, copy, copy->error);
	}
	spill->look = true;
}

void sl_spill_event(struct sl_server *server)
{
	struct sl_spill *spill = server->spill;
	struct sl_list *link;
	uint64_t times;

	(void)!read(spill->event, &times, sizeof(times));
	for (;;) {
		sl_mutex_lock(&spill->mutex);
		link = sl_list_take(&spill->ended);
		sl_mutex_unlock(&spill->mutex);
		if (!link)
			return;
		spill_copy_ended(server, SL_CONTAINER(link, struct sl_spill_copy, link));
	}
}

void sl_spill_trouble(const struct sl_server *server, char *text, size_t size)
{
	const struct sl_spill *spill = server->spill;

	if (spill && spill->trouble[0])
		snprintf(text, size, "; nothing can be spilled to '%s': %s",
		         server->settings->spill, spill->trouble);
	else
		snprintf(text, size, "%s", spill ? "; the rest is held, pinned or being made" : "");
}
