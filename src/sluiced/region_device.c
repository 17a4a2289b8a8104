/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of devices. The client that makes blobs in it has made it, and offered a descriptor for it, which the
 * server neither maps nor understands. Nothing of it is kept for later: with the last blob and lease in it a region
 * leaves. Who has it mapped is told, and when each of them has unmapped it, or is dead, the descriptor goes, and with it
 * the memory.
 *
 * A range is used again by the peer that it was made by, and by nobody else: after that one has unmapped it, or is
 * dead, blobs only leave the region.
 *
 * Memory that a process has allocated for itself (OF_PROCESS) leaves when the connection of that process ends,
 * whatever is in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "sluiced/server.h"

void sl_device_may_map(struct sl_server *server, const struct sl_peer *peer)
{
	atomic_store(&server->descriptors->ledger->rows[peer->row].maps, 1);
}

/* A descriptor that is no driver's stands for memory of the host. */
static void count_memfd(struct sl_server *server, struct sl_region *region, int fd)
{
	if (fcntl(fd, F_GET_SEALS) >= 0 && region->kind == SLUICE_BLOB_ON_DEVICE)
		region->memfd_bytes = region->bytes;
	server->memfd_bytes += region->memfd_bytes;
}

void sl_device_found(struct sl_server *server, struct sl_region *region, uint64_t session)
{
	count_memfd(server, region, sl_descriptors_fd(server->descriptors, region->row));
	sl_list_each_of (peer, &server->peers, struct sl_peer, link)
		if (peer->session == session && region->kind == SLUICE_BLOB_OF_PROCESS &&
		    !region->writer)
			sl_region_written_by(region, peer);
}

/* -------------------------------------------------------------------------------------- leave */

/* Not in the memory of answers: one of these may be under way. */
static void tell_forget(struct sl_server *server, struct sl_peer *peer,
                        const struct sl_region *region)
{
	union sl_message *m = &server->event;

	sl_message_begin(m, SL_MSG_FORGET, 0, 1);
	m->ids.items[0].id = region->id;
	sl_peer_send(server, peer, m, -1);
}

static bool is_mapped(const struct sl_server *server, const struct sl_region *region)
{
	return region->writer || !sl_list_empty(&region->imports) ||
	       (region->frozen && server->awaited);
}

static void end_if_left(struct sl_server *server, struct sl_region *region)
{
	if (!region->leaving || region->used || is_mapped(server, region))
		return;
	sl_region_free(server, region);
	sl_store_step("server: memory of a device gone");
}

static void begin_leaving(struct sl_server *server, struct sl_region *region)
{
	if (region->leaving)
		return;
	region->leaving = true;
	sl_list_append(&server->leaving, &region->left);
	server->devices[region->device].leaving += sl_region_counted(region);
	if (region->writer)
		tell_forget(server, region->writer, region);
	sl_list_each (link, &region->imports)
		tell_forget(server, SL_CONTAINER(link, struct sl_import, link)->peer, region);
	sl_store_step("server: forget");
}

void sl_device_leave(struct sl_server *server, struct sl_region *region)
{
	/* Without an offer nobody has anything of it. */
	if (!region->offered) {
		sl_region_free(server, region);
		return;
	}
	begin_leaving(server, region);
	end_if_left(server, region);
}

/* The process that it belongs to has gone: what is in it cannot be reached. */
static void vanish(struct sl_server *server, struct sl_region *region)
{
	if (region->writer)
		sl_list_remove(&region->written);
	region->writer = NULL;
	begin_leaving(server, region);
	if (region->slots[0] != SL_NO_SLOT && region->used &&
	    sl_catalogue_state(server->catalogue, region->slots[0]) == SL_ENTRY_SEALED) {
		sl_watch_tell(server, region->slots[0], SLUICE_WATCH_DELETED);
		sl_blob_forget(server, region->slots[0]);
	}
	end_if_left(server, region);
}

void sl_device_vanish(struct sl_server *server, struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->published))
		vanish(server, SL_CONTAINER(peer->published.next, struct sl_region, written));
}

void sl_device_settle(struct sl_server *server, struct sl_region *region)
{
	if (region->kind == SLUICE_BLOB_OF_PROCESS && !region->writer)
		vanish(server, region);
	else if (!region->used)
		sl_device_leave(server, region);
}

void sl_device_inherit(struct sl_peer *before, struct sl_peer *peer)
{
	struct sl_list *link;

	while ((link = sl_list_take(&before->published))) {
		struct sl_region *region = SL_CONTAINER(link, struct sl_region, written);

		sl_region_written_by(region, peer);
	}
}

/* -------------------------------------------------------------------------------------- offer */

int sl_device_check_seal(const struct sl_region *region)
{
	if (region->device < 0 || (region->offered == 1 && !region->leaving))
		return 0;
	if (region->leaving)
		return sl_fail(-ECONNRESET, "the memory has gone with a connection");
	if (!region->offered)
		return sl_fail(-EINVAL, "nobody has offered the memory of the blob");
	return sl_fail(
		region->offered, "the memory of the blob could not be kept: %s",
		region->offered == -ENOSPC
			? "it is in a memfd, and more of those than --memory there may not be"
			: sl_error_text(region->offered));
}

/* What a driver makes has the size that the driver says, and the server cannot ask for it. A memfd is measured: one page for
 * what tells of a process's memory, else exactly what the region has; and it keeps that size. */
static int check_offered(const struct sl_region *region, int fd)
{
	bool device = region->kind == SLUICE_BLOB_ON_DEVICE;
	uint64_t least = device ? region->bytes : 1;
	uint64_t most = device ? region->bytes : SL_PAGE_BYTES;

	if (fcntl(fd, F_GET_SEALS) < 0)
		return sl_stray_is_memory(fd) ? 0 : sl_fail(-EPROTO, "an offer of no memory");
	if (sl_memfd_is(fd, least, most))
		return 0;
	return sl_fail(-EPROTO,
	               "an offer of a memfd that has not from %" PRIu64 " to %" PRIu64
	               " bytes, or could shrink or grow",
	               least, most);
}

int sl_device_offer(struct sl_server *server, struct sl_peer *peer)
{
	struct sl_region *region = sl_region_find(server, server->in.offer.region);
	struct sl_kept kept = {.kind = SL_KIND_REGION, .session = peer->session};
	int rc = 0;

	if (!region || region->device < 0 || region->writer != peer || region->offered)
		rc = sl_fail(-EPROTO, "an offer of memory that is not to be made");
	if (!rc)
		rc = check_offered(region, server->offered);
	if (rc) {
		sl_peer_refuse(server, peer, SL_SERIAL_ANY, -EPROTO);
		sl_peer_close(server, peer, false);
		return 0;
	}
	kept.id = region->id;
	kept.bytes = region->bytes;
	kept.range_bytes = region->range_bytes;
	kept.device = region->device;
	kept.memory = region->kind;
	count_memfd(server, region, server->offered);
	rc = server->memfd_bytes > server->settings->memory_bytes ? -ENOSPC : 0;
	if (!rc)
		rc = sl_descriptors_put(server->descriptors, &kept, server->offered, &region->row);
	if (!rc) {
		server->offered = -1;
	} else {
		server->memfd_bytes -= region->memfd_bytes;
		region->memfd_bytes = 0;
	}
	region->offered = rc ? rc : 1;
	sl_store_step("server: offered");
	return 0;
}

/* ------------------------------------------------------------------------------------- import */

static struct sl_import *find_import(const struct sl_region *region, const struct sl_peer *peer)
{
	sl_list_each_of (import, &region->imports, struct sl_import, link)
		if (import->peer == peer)
			return import;
	return NULL;
}

int sl_device_import(struct sl_server *server, struct sl_peer *peer, struct sl_region *region)
{
	struct sl_import *import;

	if (find_import(region, peer))
		return 0;
	if (peer->import_count >= SL_IMPORTS_MOST)
		return sl_fail(-EDQUOT, "a client may have %d pieces of memory of devices mapped",
		               SL_IMPORTS_MOST);
	import = malloc(sizeof(*import));
	if (!import)
		return sl_fail(-ENOMEM, "no memory");
	sl_device_may_map(server, peer);
	import->region = region;
	import->peer = peer;
	sl_list_append(&region->imports, &import->link);
	sl_list_append(&peer->imports, &import->peer_link);
	peer->import_count++;
	return 0;
}

static void end_import(struct sl_import *import)
{
	sl_list_remove(&import->link);
	sl_list_remove(&import->peer_link);
	import->peer->import_count--;
	free(import);
}

int sl_device_have(struct sl_server *server, struct sl_peer *peer)
{
	unsigned count = server->in.head.count, unknown = 0;

	sl_device_may_map(server, peer);
	sl_message_begin(&server->out, SL_MSG_FORGET, 0, count);
	for (unsigned i = 0; i < count; i++) {
		uint64_t id = server->in.ids.items[i].id;
		struct sl_region *region = sl_region_find(server, id);

		if (region && region->device < 0)
			region = NULL;
		if (!region || sl_device_import(server, peer, region) || region->leaving)
			server->out.ids.items[unknown++].id = id;
	}
	server->out.head.count = unknown;
	server->out.head.bytes =
		(uint32_t)(sizeof(server->out.ids) + unknown * sizeof(server->out.ids.items[0]));
	if (unknown)
		sl_peer_send(server, peer, &server->out, -1);
	return 0;
}

static bool has_tickets(const struct sl_peer *peer, const struct sl_region *region)
{
	sl_list_each (link, &peer->tickets)
		if (SL_CONTAINER(link, struct sl_ticket, link)->region == region)
			return true;
	return false;
}

void sl_device_drop(struct sl_server *server, struct sl_peer *peer, struct sl_region *region)
{
	struct sl_import *import = find_import(region, peer);

	if (import)
		end_import(import);
	if (region->writer != peer || has_tickets(peer, region))
		end_if_left(server, region);
	else if (region->kind == SLUICE_BLOB_OF_PROCESS)
		vanish(server, region);
	else
		sl_region_part(server, region);
}

void sl_device_part(struct sl_server *server, struct sl_peer *peer)
{
	sl_device_vanish(server, peer);
	while (!sl_list_empty(&peer->imports)) {
		struct sl_import *import =
			SL_CONTAINER(peer->imports.next, struct sl_import, peer_link);
		struct sl_region *region = import->region;

		end_import(import);
		end_if_left(server, region);
	}
	server->awaited -= peer->awaited;
	peer->awaited = false;
	/* When the last one has gone, nobody can have mapped what only the server before knew. */
	sl_list_each_of (region, &server->leaving, struct sl_region, left)
		end_if_left(server, region);
}
