/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Get: how a client that does not find a blob in the catalogue obtains it from the server.
 *
 * Finds a blob by its key, keeps requests that wait for its seal or for its return from a file, and
 * sends the memory of its region. On the server's thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

/* After a pass over all deadlines the next comes later by this many times its duration. */
#define EXPIRE_REST 8

/* ----------------------------------------------------------------------------------------- get */

/* Returns the keys of a get, or the only key of a pin. */
static const struct sl_key *get_keys(const struct sl_head *message, unsigned *count)
{
	*count = message->type == SL_MSG_PIN ? 1 : message->count;
	return message->type == SL_MSG_PIN ? &((const struct sl_msg_one_blob *)message)->key
	                                   : ((const struct sl_msg_get *)message)->items;
}

/* Queues the return of a region if one of its blobs is AWAY, unless that is under way. */
static int get_request_return(struct sl_server *server, uint32_t slot, bool *away)
{
	struct sl_region *region = server->blobs->by_slot[slot].region;

	if (sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_AWAY)
		return 0;
	*away = true;
	return region->copy->state == SL_COPY_WHOLE && !region->copy->wait
	               ? sl_wait_for_room(server, NULL, region)
	               : 0;
}

/*
 * Queues the return of spilled blobs only when all blobs that were asked for are sealed, so that no
 * memory is kept for a seal that may never come. A return ends with sl_get_wake() or sl_get_fail().
 * An owner returns when its parts are there.
 */
static int get_request_spilled(struct sl_server *server, const uint32_t *slots, unsigned count)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++) {
		bool away = false;

		sl_parts_each (part, server, slots[i])
			if (!rc)
				rc = get_request_return(server, part, &away);
		if (!rc && !away)
			rc = get_request_return(server, slots[i], &away);
	}
	return rc;
}

static void get_answer(struct sl_server *server, struct sl_peer *peer, uint32_t serial,
                       const uint32_t *slots, unsigned count)
{
	bool hold = server->spill;

	server->counts.gets++;
	sl_message_begin(&server->out, SL_MSG_FOUND, serial, count);
	for (unsigned i = 0; i < count; i++) {
		server->out.found.items[i] = (struct sl_found_item){
			.id = server->blobs->by_slot[slots[i]].id,
			.generation = sl_catalogue_generation(server->catalogue, slots[i]),
			.slot = slots[i]};
		hold = hold || sl_blob_is_transient(server, slots[i]);
	}
	/* So that it does not leave memory before the client has taken it. */
	for (unsigned i = 0; hold && i < count; i++)
		sl_peer_hold(server, peer, serial, slots[i], false);
	sl_peer_send(server, peer, &server->out, -1);
}

/*
 * Answers a get or pin if all its blobs are in memory.
 *
 * Returns
 *   0             it was answered
 *   -ENOENT       the key *missing is not there
 *   -EINPROGRESS  a blob is being read back
 *   another error with a sentence: it cannot be read back
 */
static int get_try(struct sl_server *server, struct sl_peer *peer, const struct sl_head *message,
                   unsigned *missing)
{
	uint32_t slots[SL_ITEMS_MOST];
	unsigned count;
	const struct sl_key *keys = get_keys(message, &count);
	bool away = false;
	int rc;

	for (unsigned i = 0; i < count; i++) {
		enum sl_entry_state state = SL_ENTRY_OPEN;

		if (!sl_key_find(server, &keys[i], &slots[i]))
			state = sl_catalogue_state(server->catalogue, slots[i]);
		if (state == SL_ENTRY_SEALED)
			continue;
		*missing = i;
		if (state == SL_ENTRY_OPEN)
			return -ENOENT;
		away = true;
	}
	if (away) {
		rc = get_request_spilled(server, slots, count);
		return rc ? rc : -EINPROGRESS;
	}
	if (message->type != SL_MSG_PIN) {
		get_answer(server, peer, message->serial, slots, count);
		return 0;
	}
	sl_catalogue_set_flags(server->catalogue, slots[0],
	                       sl_blob_record_at(server, slots[0]).flags | SLUICE_BLOB_PIN);
	sl_blob_relist(server, slots[0]);
	return sl_peer_done(server, peer, message->serial);
}

static struct sl_list *get_bucket(struct sl_server *server, const char *name, size_t length,
                                  uint64_t id)
{
	uint64_t hash = id;

	for (size_t i = 0; !id && i < length; i++)
		hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
	hash = hash * UINT64_C(0x9e3779b97f4a7c15) >> 32;
	return &server->waits->by_key[hash % SL_WAIT_BUCKETS];
}

static const struct sl_key *get_missing_key(const struct sl_wait *wait)
{
	unsigned count;

	return get_keys(&wait->request, &count) + wait->blob.missing;
}

/* Puts a wait into the bucket of the key that is missing now. */
static void get_wait_enter(struct sl_server *server, struct sl_wait *wait)
{
	const struct sl_key *key = get_missing_key(wait);

	if (sl_list_linked(&wait->link))
		sl_list_remove(&wait->link);
	sl_list_append(get_bucket(server, key->name, strlen(key->name), key->id), &wait->link);
	if (wait->blob.disk)
		return;
	server->waits->due = SL_MIN(server->waits->due, wait->deadline);
	sl_server_at(server, wait->deadline);
}

/* Answers a get or pin, now or later: it awaits the disk in any case, a seal if it is patient. */
static int get_begin(struct sl_server *server, struct sl_peer *peer, int64_t deadline, bool patient)
{
	const struct sl_head *message = &server->in.head;
	unsigned count, missing = 0;
	struct sl_wait *wait = NULL;
	int rc = get_try(server, peer, message, &missing);
	bool disk = rc == -EINPROGRESS;

	if (disk || (rc == -ENOENT && patient))
		rc = sl_wait_new(peer, message, deadline, &wait);
	else if (rc == -ENOENT)
		sl_key_refuse(get_keys(message, &count) + missing, rc, "is not there");
	if (!wait)
		return rc;
	wait->blob.patient = patient;
	wait->blob.disk = disk;
	wait->blob.missing = missing;
	wait->for_blob = true;
	server->counts.waiting++;
	get_wait_enter(server, wait);
	return 0;
}

int sl_handle_get(struct sl_server *server, struct sl_peer *peer)
{
	uint32_t timeout_ms = server->in.get.timeout_ms;

	return get_begin(server, peer, sl_deadline(timeout_ms), timeout_ms != 0);
}

int sl_get_await(struct sl_server *server, struct sl_peer *peer)
{
	return get_begin(server, peer, sl_now(), false);
}

static bool get_key_matches(const struct sl_key *key, const struct sl_blob_record *record)
{
	if (key->id)
		return key->id == record->key.id;
	return strlen(key->name) == record->key.length &&
	       !memcmp(key->name, record->key.name, record->key.length);
}

/* Tries a wait again: it is answered, or waits for the key that is missing now. */
static void get_retry(struct sl_server *server, struct sl_wait *wait)
{
	int rc = get_try(server, wait->peer, &wait->request, &wait->blob.missing);

	wait->blob.disk = rc == -EINPROGRESS;
	/* If its deadline has passed, it is refused at the end of this iteration. */
	if (rc == -ENOENT || rc == -EINPROGRESS) {
		get_wait_enter(server, wait);
		return;
	}
	if (rc)
		sl_peer_refuse(server, wait->peer, wait->request.serial, rc);
	sl_wait_free(server, wait);
}

/* Calls act, which may free or move the wait, for each wait that misses that blob; record NULL: for
 * all. */
static void get_each_in(struct sl_server *server, struct sl_list *bucket,
                        const struct sl_blob_record *record,
                        void (*act)(struct sl_server *, struct sl_wait *))
{
	struct sl_list *last = bucket->previous;
	bool more = !sl_list_empty(bucket);

	for (struct sl_list *link = bucket->next, *next; more; link = next) {
		struct sl_wait *wait = SL_CONTAINER(link, struct sl_wait, link);

		next = link->next;
		more = link != last;
		if (!record || get_key_matches(get_missing_key(wait), record))
			act(server, wait);
	}
}

static void get_each_for(struct sl_server *server, uint32_t slot,
                         void (*act)(struct sl_server *, struct sl_wait *))
{
	struct sl_list *by_name, *by_id;
	struct sl_blob_record record;

	if (!server->counts.waiting)
		return;
	/* Gets of an owner wait for its parts. */
	slot = sl_blob_owner(server, slot);
	record = sl_blob_record_at(server, slot);
	by_id = get_bucket(server, NULL, 0, record.key.id);
	by_name = get_bucket(server, record.key.name, record.key.length, 0);
	get_each_in(server, by_id, &record, act);
	if (by_name != by_id)
		get_each_in(server, by_name, &record, act);
}

void sl_get_wake(struct sl_server *server, uint32_t slot)
{
	get_each_for(server, slot, get_retry);
}

static void get_fail_one(struct sl_server *server, struct sl_wait *wait)
{
	char text[SL_TEXT_BYTES + 40];
	int error = server->spill->error;

	if (!wait->blob.disk)
		return;
	snprintf(text, sizeof(text), "is spilled and cannot be read: %s", server->spill->text);
	sl_key_refuse(get_missing_key(wait), error, text);
	sl_peer_refuse(server, wait->peer, wait->request.serial, error);
	sl_wait_free(server, wait);
}

void sl_get_fail(struct sl_server *server, uint32_t slot)
{
	if (sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_DYING)
		get_each_for(server, slot, get_fail_one);
}

static void get_mark(struct sl_server *server, uint32_t slot, uint64_t number)
{
	if (server->blobs->by_slot[slot].region)
		server->blobs->by_slot[slot].region->wait_mark = number;
	sl_parts_each (part, server, slot)
		server->blobs->by_slot[part].region->wait_mark = number;
}

void sl_get_mark(struct sl_server *server, uint64_t number)
{
	for (unsigned b = 0; server->counts.waiting && b < SL_WAIT_BUCKETS; b++)
		sl_list_each_of (wait, &server->waits->by_key[b], const struct sl_wait, link) {
			unsigned count;
			const struct sl_key *keys = get_keys(&wait->request, &count);
			uint32_t slot;

			for (unsigned i = 0; wait->blob.disk && i < count; i++)
				if (!sl_key_find(server, &keys[i], &slot))
					get_mark(server, slot, number);
		}
}

static void get_expire_one(struct sl_server *server, struct sl_wait *wait)
{
	int rc;

	/* A wait for the disk has no deadline. */
	if (wait->blob.disk)
		return;
	if (wait->deadline > server->now) {
		server->waits->due = SL_MIN(server->waits->due, wait->deadline);
		return;
	}
	rc = wait->blob.patient
	             ? sl_key_refuse(get_missing_key(wait), -ETIMEDOUT, "was not sealed in time")
	             : sl_key_refuse(get_missing_key(wait), -ENOENT, "is not there");
	sl_peer_refuse(server, wait->peer, wait->request.serial, rc);
	sl_wait_free(server, wait);
}

void sl_get_expire(struct sl_server *server, int64_t now)
{
	if (now >= server->waits->due) {
		server->waits->due = SL_FOREVER;
		for (unsigned b = 0; b < SL_WAIT_BUCKETS; b++)
			get_each_in(server, &server->waits->by_key[b], NULL, get_expire_one);
		/* A pass looks at all waits, so the next comes after a multiple of its time. */
		server->waits->due =
			SL_MAX(server->waits->due, sl_now() + (sl_now() - now) * EXPIRE_REST);
	}
	sl_server_at(server, server->waits->due);
}

/* -------------------------------------------------------------------------------------- memory */

int sl_handle_region(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_region *request = &server->in.region;
	struct sl_region *region = sl_region_find(server, request->region);
	int fd = -1, own, rc = sl_peer_admit_descriptor(peer);

	if (!region || region->away || region->offered != 1 || region->leaving ||
	    (request->writable && region->writer != peer))
		rc = sl_fail(-ESTALE, "there is no such memory any more");
	if (!rc) {
		own = server->descriptors->held[region->row].fd;
		/* A duplicate, because it is closed after it was sent. Whether memory of a
		 * device is mapped read-only, the client tells its driver. */
		fd = request->writable || region->device >= 0 ? fcntl(own, F_DUPFD_CLOEXEC, 0)
		                                              : sl_reopen_read_only(own);
		rc = fd == -1 ? -errno : SL_MIN(fd, 0);
		if (rc)
			sl_fail(rc, "cannot open memory: %s", sl_error_text(rc));
	}
	/* Also with an import: the client may have asked before, and mapped that descriptor. */
	if (!rc && region->device >= 0)
		rc = sl_device_import(server, peer, region);
	if (rc) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	sl_store_step("server: memory");
	sl_message_begin(&server->out, SL_MSG_MEMORY, request->head.serial, 0);
	server->out.memory.region = region->id;
	server->out.memory.bytes = region->bytes;
	server->out.memory.device = region->device;
	server->out.memory.kind = region->kind;
	return sl_peer_send(server, peer, &server->out, fd);
}

/*
 * Handles SL_MSG_LOCATE: finds the sealed blob that was made in that range and may have moved
 * since. Slow; a client asks after its server has died.
 */
int sl_handle_locate(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_locate *request = &server->in.locate;
	uint32_t serial = request->head.serial;

	for (uint32_t slot = 0; slot < server->blobs->top; slot++) {
		const struct sl_region *region = server->blobs->by_slot[slot].region;
		enum sl_entry_state state;
		struct sl_blob_record record;

		if (!region || region->origin != request->region || sl_blob_is_part(server, slot))
			continue;
		state = sl_catalogue_state(server->catalogue, slot);
		if (state != SL_ENTRY_SEALED && state != SL_ENTRY_AWAY)
			continue;
		record = sl_blob_record_at(server, slot);
		if (record.range.offset != request->offset)
			continue;
		if (state == SL_ENTRY_SEALED)
			sl_peer_hold(server, peer, serial, slot, true);
		/* From here on it is a get by id. */
		sl_message_begin(&server->out, SL_MSG_GET, serial, 1);
		server->out.get.items[0].id = record.key.id;
		memcpy(&server->in, &server->out, server->out.head.bytes);
		return sl_get_await(server, peer);
	}
	return sl_fail(-ENOENT, "no blob lies there");
}
