/* SPDX-License-Identifier: Apache-2.0 */
/* How what was spilled comes back. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "sluiced/spill.h"

int sl_spill_want(struct sl_server *server, struct sl_region *region)
{
	const struct sl_copy *copy = region->copy;

	return copy->state == SL_COPY_WHOLE && !copy->parked ? sl_wait_return(server, region) : 0;
}

static void fail_all(struct sl_server *server, struct sl_region *region, int error)
{
	server->spill->error = error;
	snprintf(server->spill->text, sizeof(server->spill->text), "%s", sluice_last_message());
	for (unsigned i = 0; i < region->ranges; i++)
		if (region->used >> i & 1 && region->slots[i] != SL_NO_SLOT)
			sl_get_fail(server, region->slots[i]);
}

static void take_memory(struct sl_server *server, struct sl_copy *copy, uint64_t bytes)
{
	copy->taken = bytes;
	server->memory_bytes += bytes;
}

static void give_memory(struct sl_server *server, struct sl_copy *copy)
{
	server->memory_bytes -= copy->taken;
	copy->taken = 0;
	server->spill->look = true;
}

static int read_copy(struct sl_server *server, struct sl_region *region)
{
	struct sl_copy *copy = region->copy;
	int rc = sl_region_memory(region->bytes, &copy->memory);

	if (rc)
		return rc;
	copy->range_bytes = sl_region_range_bytes(region);
	copy->moving = region->used;
	copy->file = sl_vault_fd(server->vault, copy->row);
	copy->state = SL_COPY_READING;
	sl_list_remove(&copy->link);
	sl_movers_give(server->spill, copy);
	take_memory(server, copy, sl_region_used_bytes(region));
	server->spill->reading++;
	sl_store_step("server: reading");
	return 0;
}

int sl_spill_return(struct sl_server *server, struct sl_region *const *where, bool late)
{
	int rc = -EINPROGRESS;

	if (server->spill->reading < SL_COPIES_AT_ONCE)
		rc = sl_room_make(server, sl_region_used_bytes(*where));
	/* What is deleted may go while room is made. */
	if (!*where)
		return 0;
	/* The folder is full: one region at a time comes back beyond --memory, and its file goes for another region. */
	if (rc == -ENOSPC && sl_now() < server->spill->rest_until &&
	    server->memory_bytes <= server->settings->memory_bytes)
		rc = 0;
	/* For the disk it waits as long as that takes. */
	if (rc == -EINPROGRESS && late && server->spill->reading < SL_COPIES_AT_ONCE)
		rc = sl_fail(-ENOSPC, "there was not room enough within a minute");
	if (!rc)
		rc = read_copy(server, *where);
	if (rc && rc != -EINPROGRESS)
		fail_all(server, *where, rc);
	return rc;
}

/* Its blobs can be got again, one by one. */
static void unveil(struct sl_server *server, struct sl_region *region)
{
	struct sl_catalogue *catalogue = server->catalogue;
	struct sl_blob_record record;

	for (unsigned i = 0; i < region->ranges; i++) {
		uint32_t slot = region->slots[i];

		if (!(region->used >> i & 1))
			continue;
		server->spill->blobs--;
		if (sl_catalogue_state(catalogue, slot) != SL_ENTRY_AWAY)
			continue;
		server->spill->returned++;
		sl_catalogue_record(catalogue, slot, &record);
		record.place.memory = region->id;
		sl_catalogue_move(catalogue, slot, &record.place, true);
		sl_store_step("server: a blob is back");
	}
	for (unsigned i = 0; i < region->ranges; i++)
		if (region->used >> i & 1)
			sl_get_wake(server, region->slots[i]);
}

void sl_copy_returned(struct sl_server *server, struct sl_copy *copy, int error)
{
	struct sl_region *region = copy->region;
	int fd = copy->memory;

	server->spill->reading--;
	give_memory(server, copy);
	if (!region) {
		close(fd);
		sl_copy_free(server, copy);
		return;
	}
	if (!error)
		error = sl_region_return(server, region, fd);
	if (error)
		close(fd);
	if (error) {
		server->spill->failed++;
		fail_all(server, region, error);
		return;
	}
	sl_store_step("server: memory is back");
	region->stamp = ++server->spill->last_stamp;
	server->spill->moved_at = sl_now();
	unveil(server, region);
	sl_vault_retarget(server->vault, copy->row, region->id);
	sl_store_step("server: returned");
	if (server->memory_bytes <= server->settings->memory_bytes)
		return;
	sl_copy_free(server, copy);
	sl_region_place(server, region);
}
