/* SPDX-License-Identifier: Apache-2.0 */
/* How what was spilled comes back; and what the spiller says. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "sluiced/spill.h"

/* After so many deaths of spillers in a row there is no use in trying at once. */
#define DEATHS 3

int sl_spill_want(struct sl_server *server, struct sl_region *region)
{
	const struct sl_copy *copy = region->copy;

	return copy->state == SL_COPY_WHOLE && !copy->parked ? sl_park_return(server, region) : 0;
}

static void fail_all(struct sl_server *server, struct sl_region *region, int error)
{
	char text[SL_TEXT_BYTES];

	snprintf(text, sizeof(text), "%s", sluice_last_message());
	for (unsigned i = 0; i < region->ranges; i++)
		if (region->used >> i & 1 && region->slots[i] != SL_NO_SLOT) {
			sl_fail(error, "%s", text);
			sl_get_fail(server, region->slots[i], error);
		}
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
	struct sl_spill *spill = server->spill;
	struct sl_copy *copy = region->copy;
	struct sl_job job = {.kind = SL_JOB_READ,
	                     .number = ++spill->last_number,
	                     .bytes = region->bytes,
	                     .range_bytes = sl_region_range_bytes(region),
	                     .ranges = region->used};
	int fds[2] = {sl_vault_fd(server->vault, copy->row), -1};
	int rc = spill->socket < 0 ? sl_spiller_start(server) : 0;

	if (!rc)
		rc = sl_region_memory(region->bytes, &fds[1]);
	if (!rc)
		rc = sl_spiller_send(server, &job, fds, 2);
	if (rc) {
		if (fds[1] >= 0)
			close(fds[1]);
		return rc;
	}
	copy->memory = fds[1];
	copy->number = job.number;
	copy->state = SL_COPY_READING;
	sl_list_remove(&copy->link);
	sl_list_append(&spill->busy, &copy->link);
	take_memory(server, copy, sl_region_used_bytes(region));
	spill->reading++;
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

static void returned(struct sl_server *server, struct sl_copy *copy, int error)
{
	struct sl_region *region = copy->region;
	int fd = copy->memory;

	server->spill->reading--;
	sl_copy_settle(server, copy);
	copy->memory = -1;
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
	if (error == SL_ONCE_MORE) {
		error = sl_spill_want(server, region);
		if (!error)
			return;
	}
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
}

/* -------------------------------------------------------------------------------- the spiller */

static struct sl_copy *find_job(struct sl_server *server, uint64_t number)
{
	sl_list_each (link, &server->spill->busy) {
		struct sl_copy *copy = SL_CONTAINER(link, struct sl_copy, link);

		if (copy->number == number)
			return copy;
	}
	return NULL;
}

void sl_spill_done(struct sl_server *server, uint64_t number, int error, const char *text, int fd)
{
	struct sl_copy *copy = find_job(server, number);

	if (!error && fd < 0 && copy && copy->state == SL_COPY_WRITING)
		error = -EMFILE, text = "no descriptor is left";
	if (error)
		sl_fail(error, "%s", text);
	else
		server->spill->deaths = 0;
	if (copy && copy->state == SL_COPY_WRITING)
		sl_copy_written(server, copy, error, fd);
	else if (copy)
		returned(server, copy, error);
	server->spill->look = true;
}

void sl_spill_lost(struct sl_server *server)
{
	struct sl_spill *spill = server->spill;
	int error = spill->deaths <= DEATHS ? SL_ONCE_MORE : -EIO;

	while (!sl_list_empty(&spill->busy))
		sl_spill_done(server, SL_CONTAINER(spill->busy.next, struct sl_copy, link)->number,
		              error, "the process that spills has died", -1);
	spill->look = true;
}
