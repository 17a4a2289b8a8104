/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: how they are made, and what they take of the folder. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sluiced/spill.h"

#define REST_NS INT64_C(1000000000)
/* So long others may have a file open that was given up; and so long comes nothing between two tries then. */
#define FREED_NS INT64_C(300000000)
#define AGAIN_NS INT64_C(5000000)

static struct sl_copy *copy_new(struct sl_server *server, struct sl_region *region)
{
	struct sl_copy *copy = calloc(1, sizeof(*copy));

	if (!copy)
		return NULL;
	copy->region = region;
	copy->ranges = region->used;
	copy->bytes = sl_region_used_bytes(region);
	copy->row = SL_NO_ROW;
	copy->memory = -1;
	region->copy = copy;
	server->spill->bytes += copy->bytes;
	sl_list_append(&server->spill->busy, &copy->link);
	return copy;
}

/* The spiller closes it last, because that takes the disk's time. */
static void close_elsewhere(struct sl_server *server, int fd)
{
	struct sl_job job = {.kind = SL_JOB_CLOSE};

	sl_spiller_send(server, &job, &fd, 1);
}

void sl_copy_settle(struct sl_server *server, struct sl_copy *copy)
{
	copy->state = SL_COPY_WHOLE;
	sl_list_remove(&copy->link);
	sl_list_append(&server->spill->copies, &copy->link);
}

void sl_copy_free(struct sl_server *server, struct sl_copy *copy)
{
	if (copy->region)
		copy->region->copy = NULL;
	if (copy->row != SL_NO_ROW) {
		close_elsewhere(server, sl_vault_fd(server->vault, copy->row));
		sl_vault_drop(server->vault, copy->row);
		server->spill->freed_at = sl_now();
	}
	server->spill->bytes -= copy->bytes;
	sl_list_remove(&copy->link);
	free(copy);
}

void sl_spill_forget(struct sl_server *server, struct sl_region *region)
{
	struct sl_copy *copy = region->copy;

	if (!copy)
		return;
	sl_park_drop(server, region);
	region->copy = NULL;
	copy->region = NULL;
	/* What the spiller is at it brings to its end. */
	if (copy->state == SL_COPY_WHOLE)
		sl_copy_free(server, copy);
}

/* Gives up copies of what is in memory, until there is place for so many bytes; how many it gave up. */
static uint64_t drop_spare(struct sl_server *server, uint64_t bytes)
{
	struct sl_list *copies = &server->spill->copies;
	uint64_t dropped = 0;

	for (struct sl_list *link = copies->next, *next; link != copies && dropped < bytes;
	     link = next) {
		struct sl_copy *copy = SL_CONTAINER(link, struct sl_copy, link);
		struct sl_region *region;

		next = link->next;
		if (copy->region->away)
			continue;
		region = copy->region;
		dropped += copy->bytes;
		sl_copy_free(server, copy);
		sl_region_place(server, region);
	}
	return dropped;
}

static void trouble(struct sl_server *server, const char *text)
{
	struct sl_spill *spill = server->spill;

	snprintf(spill->trouble, sizeof(spill->trouble), "%s", text);
	spill->rest_until = sl_now() + REST_NS;
	spill->failed++;
}

static bool has_place(struct sl_server *server, uint64_t bytes, bool ahead)
{
	struct sl_spill *spill = server->spill;
	uint64_t most = server->settings->spill_bytes;
	char text[128];

	if (spill->bytes + bytes > most && !ahead)
		drop_spare(server, spill->bytes + bytes - most);
	if (spill->bytes + bytes <= most || ahead)
		return spill->bytes + bytes <= most;
	snprintf(text, sizeof(text), "%llu of %llu bytes are in use there",
	         (unsigned long long)spill->bytes, (unsigned long long)most);
	trouble(server, text);
	return false;
}

bool sl_copy_write(struct sl_server *server, struct sl_region *region, bool ahead)
{
	struct sl_spill *spill = server->spill;
	int fd = sl_vault_fd(server->vault, region->row), rc;
	struct sl_copy *copy;
	struct sl_job job = {.kind = SL_JOB_WRITE, .bytes = region->bytes};

	if (sl_now() < spill->again_at) {
		spill->deaf = true;
		return false;
	}
	if (sl_now() < spill->rest_until || (ahead && spill->trouble[0]) ||
	    !has_place(server, sl_region_used_bytes(region), ahead))
		return false;
	copy = copy_new(server, region);
	if (!copy)
		return false;
	copy->state = SL_COPY_WRITING;
	copy->ahead = ahead;
	copy->number = job.number = ++spill->last_number;
	job.range_bytes = sl_region_range_bytes(region);
	job.ranges = copy->ranges;
	rc = spill->socket < 0 ? sl_spiller_start(server) : 0;
	if (!rc)
		rc = sl_spiller_send(server, &job, &fd, 1);
	if (rc) {
		if (rc != -EINPROGRESS)
			trouble(server, sluice_last_message());
		sl_copy_free(server, copy);
		return false;
	}
	/* Nothing more is made in it. */
	sl_region_place(server, region);
	spill->writing++;
	sl_store_step("server: copying");
	return true;
}

/* The disk is full: whether it is worth a second try. Others have the files, too, and close them a moment later. */
static bool place_is_coming(struct sl_server *server, uint64_t bytes)
{
	struct sl_spill *spill = server->spill;
	int64_t now = sl_now();

	if (!drop_spare(server, bytes) && now > spill->freed_at + FREED_NS)
		return false;
	spill->again_at = now + AGAIN_NS;
	return true;
}

void sl_copy_written(struct sl_server *server, struct sl_copy *copy, int error, int fd)
{
	struct sl_region *region = copy->region;
	struct sl_kept kept = {.kind = SL_KIND_COPY};

	server->spill->writing--;
	if (region) {
		kept.bytes = region->bytes;
		kept.range_bytes = region->range_bytes;
		kept.region = region->id;
		kept.origin = region->origin;
	}
	if (!error && region)
		error = sl_vault_put(server->vault, &kept, fd, &copy->row);
	if (!error && region) {
		sl_copy_settle(server, copy);
		/* Others of the same time may have failed. */
		if (sl_now() > server->spill->rest_until)
			server->spill->trouble[0] = '\0';
		sl_store_step("server: copied");
		return;
	}
	if (fd >= 0) {
		close_elsewhere(server, fd);
		close(fd);
	}
	if (error == SL_ONCE_MORE)
		error = 0;
	if (error == -ENOSPC && (copy->ahead || place_is_coming(server, copy->bytes)))
		error = 0;
	if (error)
		trouble(server, sluice_last_message());
	sl_copy_free(server, copy);
	if (region)
		sl_region_place(server, region);
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
