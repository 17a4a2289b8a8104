/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of devices: memory that clients make, and of which the server has descriptors only.
 *
 * The client that makes blobs in a region has made its memory, and offered a descriptor, which the
 * server neither maps nor understands. Such memory is not kept for later: a region leaves with its
 * last blob and lease. Every process that has it mapped is told, and when each has unmapped it, or
 * is dead, the descriptor goes, and with it the memory.
 *
 * A range is used again only by the peer that made the region; after that peer has unmapped it, or
 * is dead, no blob is made in it. Memory that a process has allocated for itself (OF_PROCESS)
 * leaves when the connection of that process ends, whatever blobs are in it. On the server's
 * thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"

void sl_device_may_map(struct sl_server *server, const struct sl_peer *peer)
{
	atomic_store(&server->descriptors->ledger->rows[peer->row].maps, 1);
}

/* A descriptor that does not come from a driver stands for memory of the host. */
static void region_count_memfd(struct sl_server *server, struct sl_region *region, int fd)
{
	if (fcntl(fd, F_GET_SEALS) >= 0 && region->kind == SLUICE_BLOB_ON_DEVICE)
		region->memfd_bytes = region->bytes;
	server->memory->memfd_bytes += region->memfd_bytes;
}

void sl_device_region_found(struct sl_server *server, struct sl_region *region, uint64_t session)
{
	region_count_memfd(server, region, server->descriptors->held[region->row].fd);
	sl_list_each_of (peer, &server->peers->live, struct sl_peer, link)
		if (peer->session == session && region->kind == SLUICE_BLOB_OF_PROCESS &&
		    !region->writer)
			sl_region_set_writer(region, peer);
}

/* -------------------------------------------------------------------------------------- leave */

/* Withdraws memory after its process has gone: its blob cannot be reached. */
static void region_unpublish(struct sl_server *server, struct sl_region *region)
{
	if (region->writer)
		sl_list_remove(&region->writer_link);
	region->writer = NULL;
	sl_device_begin_leaving(server, region);
	if (region->slots[0] != SL_NO_SLOT && region->used &&
	    sl_catalogue_state(server->catalogue, region->slots[0]) == SL_ENTRY_SEALED) {
		sl_watchers_notify(server, region->slots[0], SLUICE_WATCH_DELETED);
		sl_blob_forget(server, region->slots[0]);
	}
	sl_device_free_unmapped(server, region);
}

void sl_device_unpublish(struct sl_server *server, struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->published))
		region_unpublish(server,
		                 SL_CONTAINER(peer->published.next, struct sl_region, writer_link));
}

void sl_device_recover(struct sl_server *server, struct sl_region *region)
{
	if (region->kind == SLUICE_BLOB_OF_PROCESS && !region->writer)
		region_unpublish(server, region);
	else if (!region->used)
		sl_region_relist(server, region);
}

void sl_device_inherit(struct sl_peer *before, struct sl_peer *peer)
{
	sl_list_each_of (region, &before->published, struct sl_region, writer_link) {
		sl_list_remove(&region->writer_link);
		sl_region_set_writer(region, peer);
	}
	sl_list_each_of (import, &before->imports, struct sl_import, peer_link) {
		sl_list_remove(&import->peer_link);
		sl_list_append(&peer->imports, &import->peer_link);
		import->peer = peer;
	}
	peer->import_count = before->import_count;
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

/*
 * Checks the size of an offered memfd: at most a page for the handle of a process's memory, else
 * exactly the region's size; and it must keep that size. Memory of a driver has the size that the
 * driver says, which the server cannot ask.
 */
static int offer_check(const struct sl_region *region, int fd)
{
	bool device = region->kind == SLUICE_BLOB_ON_DEVICE;
	uint64_t least = device ? region->bytes : 1;
	uint64_t most = device ? region->bytes : SL_PAGE_BYTES;

	if (fcntl(fd, F_GET_SEALS) < 0)
		return sl_fd_is_memory(fd) ? 0 : sl_fail(-EPROTO, "an offer of no memory");
	if (sl_memfd_is(fd, least, most))
		return 0;
	return sl_fail(-EPROTO,
	               "an offer of a memfd that has not from %" PRIu64 " to %" PRIu64
	               " bytes, or could shrink or grow",
	               least, most);
}

int sl_handle_offer(struct sl_server *server, struct sl_peer *peer)
{
	struct sl_region *region = sl_region_find(server, server->in.offer.region);
	struct sl_ledger_row saved = {.kind = SL_KIND_REGION, .session = peer->session};
	int rc = 0;

	if (!region || region->device < 0 || region->writer != peer || region->offered)
		rc = sl_fail(-EPROTO, "an offer of memory that is not to be made");
	if (!rc)
		rc = offer_check(region, server->offered);
	if (rc)
		return rc;
	saved.id = region->id;
	saved.bytes = region->bytes;
	saved.range_bytes = region->range_bytes;
	saved.device = region->device;
	saved.memory = region->kind;
	region_count_memfd(server, region, server->offered);
	rc = server->memory->memfd_bytes > server->settings->memory_bytes ? -ENOSPC : 0;
	if (!rc)
		rc = sl_descriptors_put(server->descriptors, &saved, server->offered, &region->row);
	if (!rc) {
		server->offered = -1;
	} else {
		server->memory->memfd_bytes -= region->memfd_bytes;
		region->memfd_bytes = 0;
	}
	region->offered = rc ? rc : 1;
	sl_store_step("server: offered");
	return 0;
}

/* ------------------------------------------------------------------------------------- import */

static struct sl_import *import_find(const struct sl_region *region, const struct sl_peer *peer)
{
	sl_list_each_of (import, &region->imports, struct sl_import, link)
		if (import->peer == peer)
			return import;
	return NULL;
}

int sl_device_import(struct sl_server *server, struct sl_peer *peer, struct sl_region *region)
{
	struct sl_import *import;

	if (import_find(region, peer))
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

int sl_handle_have(struct sl_server *server, struct sl_peer *peer)
{
	unsigned count = server->in.head.count, unknown = 0;

	sl_device_may_map(server, peer);
	sl_message_begin(&server->out, SL_MSG_FORGET, 0, count);
	for (unsigned i = 0; i < count; i++) {
		uint64_t id = server->in.ids.items[i].id;
		struct sl_region *region = sl_region_find(server, id);

		if (region && (region->device < 0 || region->offered != 1))
			region = NULL; /* no client has its descriptor */
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

static bool peer_has_leases(const struct sl_peer *peer, const struct sl_region *region)
{
	sl_list_each_of (lease, &peer->leases, const struct sl_range_lease, peer_link)
		if (lease->region == region)
			return true;
	return false;
}

void sl_device_drop(struct sl_server *server, struct sl_peer *peer, struct sl_region *region)
{
	struct sl_import *import = import_find(region, peer);

	if (import)
		sl_import_free(import);
	if (region->writer != peer || peer_has_leases(peer, region))
		sl_device_free_unmapped(server, region);
	else if (region->kind == SLUICE_BLOB_OF_PROCESS)
		region_unpublish(server, region);
	else
		sl_region_writer_gone(server, region);
}

void sl_device_peer_gone(struct sl_server *server, struct sl_peer *peer)
{
	sl_device_unpublish(server, peer);
	while (!sl_list_empty(&peer->imports)) {
		struct sl_import *import =
			SL_CONTAINER(peer->imports.next, struct sl_import, peer_link);
		struct sl_region *region = import->region;

		sl_import_free(import);
		sl_device_free_unmapped(server, region);
	}
	server->memory->awaited -= peer->awaited;
	peer->awaited = false;
	/* No client of the previous server is left that maps regions only that server knew. */
	sl_list_each_of (region, &server->memory->leaving, struct sl_region, empty_link)
		sl_device_free_unmapped(server, region);
}
