/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: their numbers, their limits, and the room that blobs have on them.
 *
 * A device has a place, the same in every process, to which the server gives a number for its
 * clients; both are in the ledger, because the catalogue refers to them. The server has no driver:
 * it counts the bytes that clients tell it, so a limit holds for clients that keep to it. On the
 * server's thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"
#include "sluiced/waits/waits.h"

/* A holder is found by a pass over all regions, and a refused client may ask again at once. */
#define HOLDER_NS INT64_C(100000000)

/* -------------------------------------------------------------------------------------- places */

const char *sl_server_place(const struct sl_server *server, int32_t number)
{
	return sl_device_known(server, number) ? server->descriptors->ledger->devices[number].place
	                                       : "";
}

/* Returns the limit for memory of that device in bytes. */
static uint64_t device_limit(const struct sl_server *server, int32_t number)
{
	const struct sl_server_settings *settings = server->settings;
	const char *place = server->descriptors->ledger->devices[number].place;

	for (unsigned i = 0; i < settings->budget_count; i++)
		if (!strcmp(settings->budgets[i].place, place))
			return settings->budgets[i].bytes;
	return SL_NO_LIMIT;
}

/* Finds the number of a place, or gives it the next. 0, or -EDQUOT with a sentence: too many. */
static int device_number(struct sl_server *server, const char *place, int32_t *out)
{
	struct sl_ledger *ledger = server->descriptors->ledger;
	int32_t count = (int32_t)atomic_load(&ledger->device_count);

	*out = 0;
	while (*out < count && strcmp(ledger->devices[*out].place, place) != 0)
		++*out;
	if (*out < count)
		return 0;
	if (count == SL_PLACES_MOST)
		return sl_fail(-EDQUOT, "no more devices can be made known than %d",
		               SL_PLACES_MOST);
	snprintf(ledger->devices[count].place, sizeof(ledger->devices[count].place), "%s", place);
	sl_store_step("server: place of a device");
	atomic_store(&ledger->device_count, (uint32_t)count + 1);
	return 0;
}

void sl_devices_begin(struct sl_server *server)
{
	const struct sl_server_settings *settings = server->settings;
	int32_t number;

	for (unsigned i = 0; i < settings->budget_count; i++)
		device_number(server, settings->budgets[i].place, &number);
}

int sl_handle_device(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_device *request = &server->in.device;
	struct sluice_store_device_info *out = &server->out.device_is.item;
	int32_t number = request->number;
	int rc = 0;

	if (number < 0)
		rc = device_number(server, request->place, &number);
	else if (!sl_device_known(server, number))
		rc = sl_fail(-ENOENT, "there is no device %d", number);
	if (rc)
		return rc;
	sl_message_begin(&server->out, SL_MSG_DEVICE_IS, request->head.serial, 0);
	out->device = number;
	out->memory_limit = device_limit(server, number);
	if (out->memory_limit == SL_NO_LIMIT)
		out->memory_limit = UINT64_MAX;
	out->memory_bytes = server->memory->devices[number].bytes;
	out->leaving_bytes = server->memory->devices[number].leaving;
	strcpy(out->place, sl_server_place(server, number));
	sl_store_step("server: device");
	return sl_peer_send(server, peer, &server->out, -1);
}

/* ---------------------------------------------------------------------------------------- room */

/* Finds a process with a large region mapped there; holder->leaving: of those to be unmapped. */
static void holder_find(const struct sl_server *server, int32_t device, struct sl_holder *holder)
{
	for (unsigned i = 0; i < SL_BUCKETS; i++)
		sl_list_each_of (region, &server->memory->regions[i], const struct sl_region,
		                 bucket) {
			const struct sl_peer *peer = region->writer;

			if (!peer && !sl_list_empty(&region->imports))
				peer = SL_CONTAINER(region->imports.next, struct sl_import, link)
				               ->peer;
			if (!peer || region->device != device ||
			    region->leaving < holder->leaving ||
			    sl_region_counted(region) <= holder->bytes)
				continue;
			holder->bytes = sl_region_counted(region);
			holder->pid = peer->pid;
		}
}

void sl_holders_text(struct sl_server *server, int32_t device, char *text, size_t size)
{
	uint64_t leaving = device < 0 ? 0 : server->memory->devices[device].leaving;
	struct sl_holder *holder = &server->memory->holders[1 + device];
	char amount[64];

	if (server->now >= holder->until || holder->leaving != (leaving > 0)) {
		*holder = (struct sl_holder){.until = server->now + HOLDER_NS,
		                             .leaving = leaving > 0};
		holder_find(server, device, holder);
	}
	text[0] = '\0';
	if (leaving)
		snprintf(amount, sizeof(amount), "%" PRIu64 " of them deleted and still mapped",
		         leaving);
	else
		snprintf(amount, sizeof(amount), "%" PRIu64 " of them mapped", holder->bytes);
	if (holder->pid)
		snprintf(text, size, ", %s, by process %d", amount, (int)holder->pid);
	else if (leaving)
		snprintf(text, size, ", %s", amount);
}

/* Returns how many bytes are above the limit. */
static uint64_t bytes_beyond(uint64_t used, uint64_t more, uint64_t limit)
{
	return used + more > limit ? used + more - limit : 0;
}

/* Returns true if all processes that have it mapped are connected, thus told to unmap it. */
static bool region_unmap_expected(const struct sl_region *region)
{
	bool coming = !region->writer || region->writer->fd >= 0;

	sl_list_each_of (import, &region->imports, const struct sl_import, link)
		coming = coming && import->peer->fd >= 0;
	return coming;
}

/* Returns the bytes leaving a device that do not wait for the end of a process. */
static uint64_t device_coming_bytes(const struct sl_server *server, int32_t device)
{
	uint64_t coming = 0;

	sl_list_each_of (region, &server->memory->leaving, const struct sl_region, empty_link)
		if (region->device == device && region_unmap_expected(region))
			coming += sl_region_counted(region);
	return coming;
}

int sl_device_make_room(struct sl_server *server, int32_t device, uint64_t bytes)
{
	const struct sl_device_use *use = &server->memory->devices[device];
	uint64_t limit = device_limit(server, device), over;
	char holders[SL_TEXT_BYTES / 2];
	int rc;

	if (!bytes_beyond(use->bytes, bytes, limit))
		return 0;
	if (server->blobs->sweep_due)
		sl_blob_sweep(server);
	/* Regions that are leaving already free their memory soon: no others go for that. */
	do
		over = bytes <= limit ? bytes_beyond(use->bytes - use->leaving, bytes, limit) : 0;
	while (over && sl_blob_evict(server, device, over));
	if (!bytes_beyond(use->bytes, bytes, limit))
		return 0;
	sl_holders_text(server, device, holders, sizeof(holders));
	rc = sl_fail(-ENOSPC,
	             "%" PRIu64 " bytes of %s are needed, of %" PRIu64 " (--device-memory) %" PRIu64
	             " are in use%s",
	             bytes, sl_server_place(server, device), limit, use->bytes, holders);
	if (bytes_beyond(use->bytes - device_coming_bytes(server, device), bytes, limit))
		return rc;
	server->room->error = rc;
	server->room->device = device;
	return -EINPROGRESS;
}
