/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices as the server knows them: a place, to which it gives a number for all its clients, and how much of the
 * memory there blobs take. It has no driver: all of that is what clients say, and a limit holds for those who keep to
 * it. Places and their numbers are in the ledger, because the catalogue refers to them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sluiced/server.h"

/* To find a holder takes a look at all regions, and a client that is refused may ask again at once. */
#define TOLD_NS INT64_C(100000000)

/* -------------------------------------------------------------------------------------- places */

static int32_t device_count(const struct sl_server *server)
{
	return (int32_t)atomic_load(&server->descriptors->ledger->device_count);
}

bool sl_device_known(const struct sl_server *server, int32_t number)
{
	return number >= 0 && number < device_count(server);
}

const char *sl_server_place(const struct sl_server *server, int32_t number)
{
	return sl_device_known(server, number) ? server->descriptors->ledger->devices[number].place
	                                       : "";
}

/* Of the memory of that device, in bytes. */
static uint64_t limit_of(const struct sl_server *server, int32_t number)
{
	const struct sl_server_settings *settings = server->settings;
	const char *place = server->descriptors->ledger->devices[number].place;

	for (unsigned i = 0; i < settings->budget_count; i++)
		if (!strcmp(settings->budgets[i].place, place))
			return settings->budgets[i].bytes;
	return SL_NO_LIMIT;
}

/* A place is known from then on. -EDQUOT: there are too many. */
static int number_of(struct sl_server *server, const char *place, int32_t *out)
{
	struct sl_ledger *ledger = server->descriptors->ledger;
	int32_t count = device_count(server);

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
		number_of(server, settings->budgets[i].place, &number);
}

int sl_device_ask(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_device *request = &server->in.device;
	struct sluice_store_device_info *out = &server->out.device_is.item;
	int32_t number = request->number;
	int rc = 0;

	if (number < 0)
		rc = number_of(server, request->place, &number);
	else if (!sl_device_known(server, number))
		rc = sl_fail(-ENOENT, "there is no device %d", number);
	if (rc)
		return rc;
	sl_message_begin(&server->out, SL_MSG_DEVICE_IS, request->head.serial, 0);
	out->device = number;
	out->memory_limit = limit_of(server, number);
	if (out->memory_limit == SL_NO_LIMIT)
		out->memory_limit = UINT64_MAX;
	out->memory_bytes = server->devices[number].bytes;
	out->leaving_bytes = server->devices[number].leaving;
	strcpy(out->place, sl_server_place(server, number));
	sl_store_step("server: device");
	return sl_peer_send(server, peer, &server->out, -1);
}

/* ---------------------------------------------------------------------------------------- room */

/* A process that has one of the largest pieces of that memory mapped: of those that are to be unmapped, if there are any. */
static void find_holder(const struct sl_server *server, int32_t device, struct sl_told *told)
{
	for (unsigned i = 0; i < SL_BUCKETS; i++)
		sl_list_each_of (region, &server->regions[i], const struct sl_region, bucket) {
			const struct sl_peer *peer = region->writer;

			if (!peer && !sl_list_empty(&region->imports))
				peer = SL_CONTAINER(region->imports.next, struct sl_import, link)
				               ->peer;
			if (!peer || region->device != device || region->leaving < told->late ||
			    sl_region_counted(region) <= told->bytes)
				continue;
			told->bytes = sl_region_counted(region);
			told->pid = peer->pid;
		}
}

void sl_holders(struct sl_server *server, int32_t device, char *text, size_t size)
{
	uint64_t leaving = device < 0 ? 0 : server->devices[device].leaving;
	struct sl_told *told = &server->told[1 + device];
	char amount[64];

	if (server->now >= told->until || told->late != (leaving > 0)) {
		*told = (struct sl_told){.until = server->now + TOLD_NS, .late = leaving > 0};
		find_holder(server, device, told);
	}
	text[0] = '\0';
	if (leaving)
		snprintf(amount, sizeof(amount), "%" PRIu64 " of them deleted and still mapped",
		         leaving);
	else
		snprintf(amount, sizeof(amount), "%" PRIu64 " of them mapped", told->bytes);
	if (told->pid)
		snprintf(text, size, ", %s, by process %d", amount, (int)told->pid);
	else if (leaving)
		snprintf(text, size, ", %s", amount);
}

/* By how much that is too much. */
static uint64_t beyond(uint64_t used, uint64_t more, uint64_t limit)
{
	return used + more > limit ? used + more - limit : 0;
}

/* Whether all who have it mapped can hear that they are to unmap it. */
static bool is_coming(const struct sl_region *region)
{
	bool coming = !region->writer || region->writer->fd >= 0;

	sl_list_each (link, &region->imports)
		coming = coming && SL_CONTAINER(link, struct sl_import, link)->peer->fd >= 0;
	return coming;
}

/* Of what is leaving a device, what need not wait for the end of a process. */
static uint64_t find_coming(const struct sl_server *server, int32_t device)
{
	uint64_t coming = 0;

	sl_list_each_of (region, &server->leaving, const struct sl_region, left)
		if (region->device == device && is_coming(region))
			coming += sl_region_counted(region);
	return coming;
}

int sl_device_make_room(struct sl_server *server, int32_t device, uint64_t bytes)
{
	const struct sl_device_use *use = &server->devices[device];
	uint64_t limit = limit_of(server, device), over;
	char holders[SL_TEXT_BYTES / 2];
	int rc;

	if (!beyond(use->bytes, bytes, limit))
		return 0;
	if (server->sweep)
		sl_blob_sweep(server);
	/* What is leaving already is on its way: nothing else has to go for it. */
	do
		over = bytes <= limit ? beyond(use->bytes - use->leaving, bytes, limit) : 0;
	while (over && sl_blob_evict(server, device, over));
	if (!beyond(use->bytes, bytes, limit))
		return 0;
	sl_holders(server, device, holders, sizeof(holders));
	rc = sl_fail(-ENOSPC,
	             "%" PRIu64 " bytes of %s are needed, of %" PRIu64 " (--device-memory) %" PRIu64
	             " are in use%s",
	             bytes, sl_server_place(server, device), limit, use->bytes, holders);
	if (beyond(use->bytes - find_coming(server, device), bytes, limit))
		return rc;
	server->room.error = rc;
	server->room.device = device;
	return -EINPROGRESS;
}
