/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever wants a blob: finding it, waiting for it, and its memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluiced/spill.h"

/* How much longer than a pass over all deadlines took it is until the next. */
#define EXPIRE_REST 8

/* ---------------------------------------------------------------------------------------- find */

int sl_key_find(const struct sl_server *server, const struct sl_key *key, uint32_t *out)
{
	struct sl_blob_key wanted = {.name = key->name, .length = strlen(key->name)};
	uint32_t slot;
	int rc = 0;

	if (key->id)
		slot = sl_blob_by_id(server, key->id);
	else
		rc = sl_catalogue_find(server->catalogue, &wanted, &slot);
	if (rc || slot == SL_NO_SLOT ||
	    sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_DYING)
		return -ENOENT;
	*out = slot;
	return 0;
}

/* ----------------------------------------------------------------------------------------- get */

/* Of a get, or of a pin, which is of one blob. */
static const struct sl_key *keys_of(const struct sl_head *message, unsigned *count)
{
	*count = message->type == SL_MSG_PIN ? 1 : message->count;
	return message->type == SL_MSG_PIN ? &((const struct sl_msg_one_blob *)message)->key
	                                   : ((const struct sl_msg_get *)message)->items;
}

/* What is away comes back when all that is asked for is sealed: so nobody keeps memory for what may never come. */
static int want_all(struct sl_server *server, const uint32_t *slots, unsigned count)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++)
		if (sl_catalogue_state(server->catalogue, slots[i]) == SL_ENTRY_AWAY)
			rc = sl_spill_want(server, server->blobs[slots[i]].region);
	return rc;
}

static void answer_get(struct sl_server *server, struct sl_peer *peer, uint32_t serial,
                       const uint32_t *slots, unsigned count)
{
	bool pin = server->spill;

	server->counts.gets++;
	sl_message_begin(&server->out, SL_MSG_FOUND, serial, count);
	for (unsigned i = 0; i < count; i++) {
		server->out.found.items[i] = (struct sl_found_item){
			.id = server->blobs[slots[i]].id,
			.generation = sl_catalogue_generation(server->catalogue, slots[i]),
			.slot = slots[i]};
		pin = pin || sl_blob_is_transient(server, slots[i]);
	}
	/* It is not to leave before the client has taken it. */
	for (unsigned i = 0; pin && i < count; i++)
		sl_peer_pin(server, peer, serial, slots[i]);
	sl_peer_send(server, peer, &server->out, -1);
}

static void answer_pin(struct sl_server *server, struct sl_peer *peer, uint32_t serial,
                       uint32_t slot)
{
	sl_catalogue_set_flags(server->catalogue, slot,
	                       sl_blob_record(server, slot).flags | SLUICE_BLOB_PIN);
	sl_blob_mark(server, slot);
	sl_peer_done(server, peer, serial);
}

/* 0: it was answered. -ENOENT: the key *missing is not there; -EINPROGRESS: its blob is being read; else it cannot be. */
static int try_get(struct sl_server *server, struct sl_peer *peer, const struct sl_head *message,
                   unsigned *missing)
{
	uint32_t slots[SL_ITEMS_MOST];
	unsigned count;
	const struct sl_key *keys = keys_of(message, &count);
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
		rc = want_all(server, slots, count);
		return rc ? rc : -EINPROGRESS;
	}
	if (message->type == SL_MSG_PIN)
		answer_pin(server, peer, message->serial, slots[0]);
	else
		answer_get(server, peer, message->serial, slots, count);
	return 0;
}

static struct sl_list *bucket_of(struct sl_server *server, const char *name, size_t length,
                                 uint64_t id)
{
	uint64_t hash = id;

	for (size_t i = 0; !id && i < length; i++)
		hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
	hash = hash * UINT64_C(0x9e3779b97f4a7c15) >> 32;
	return &server->waits[hash % SL_WAIT_BUCKETS];
}

static const struct sl_key *missing_of(const struct sl_wait *wait)
{
	unsigned count;

	return keys_of(&wait->request, &count) + wait->missing;
}

/* Into the bucket of what it misses now. */
static void place(struct sl_server *server, struct sl_wait *wait)
{
	const struct sl_key *key = missing_of(wait);

	if (sl_list_linked(&wait->link))
		sl_list_remove(&wait->link);
	sl_list_append(bucket_of(server, key->name, strlen(key->name), key->id), &wait->link);
	if (wait->disk)
		return;
	server->waits_due = SL_MIN(server->waits_due, wait->deadline);
	sl_server_at(server, wait->deadline);
}

static int refuse_key(const struct sl_key *key, int error, const char *why)
{
	if (key->id)
		return sl_fail(error, "the blob with id %llu %s", (unsigned long long)key->id, why);
	return sl_fail(error, "'%s' %s", key->name, why);
}

/* Answers a get or a pin, now or later. It always waits for the disk, and for a seal if it is patient. */
static int begin(struct sl_server *server, struct sl_peer *peer, int64_t deadline, bool patient)
{
	const struct sl_head *message = &server->in.head;
	unsigned count, missing = 0;
	struct sl_wait *wait = NULL;
	int rc = try_get(server, peer, message, &missing);
	bool disk = rc == -EINPROGRESS;

	if (disk || (rc == -ENOENT && patient))
		rc = sl_wait_new(peer, message, deadline, &wait);
	else if (rc == -ENOENT)
		refuse_key(keys_of(message, &count) + missing, rc, "is not there");
	if (!wait)
		return rc;
	wait->patient = patient;
	wait->disk = disk;
	wait->missing = missing;
	wait->for_blob = true;
	server->waiting++;
	place(server, wait);
	return 0;
}

int sl_get(struct sl_server *server, struct sl_peer *peer)
{
	uint32_t timeout_ms = server->in.get.timeout_ms;

	return begin(server, peer, sl_deadline(timeout_ms), timeout_ms != 0);
}

int sl_get_await(struct sl_server *server, struct sl_peer *peer)
{
	return begin(server, peer, sl_now(), false);
}

static bool is_key(const struct sl_key *key, const struct sl_blob_record *record)
{
	if (key->id)
		return key->id == record->key.id;
	return strlen(key->name) == record->key.length &&
	       !memcmp(key->name, record->key.name, record->key.length);
}

/* Once more: it is answered, or waits for what it misses now. */
static void try_again(struct sl_server *server, struct sl_wait *wait)
{
	int rc = try_get(server, wait->peer, &wait->request, &wait->missing);

	wait->disk = rc == -EINPROGRESS;
	/* If its time is over, it is told so at the end of this turn. */
	if (rc == -ENOENT || rc == -EINPROGRESS) {
		place(server, wait);
		return;
	}
	if (rc)
		sl_peer_refuse(server, wait->peer, wait->request.serial, rc);
	sl_wait_free(server, wait);
}

/* Calls act, which may free it or move it, for each wait in the bucket that misses that blob; NULL: for all. */
static void each_in(struct sl_server *server, struct sl_list *bucket,
                    const struct sl_blob_record *record,
                    void (*act)(struct sl_server *, struct sl_wait *))
{
	struct sl_list *last = bucket->previous;
	bool more = !sl_list_empty(bucket);

	for (struct sl_list *link = bucket->next, *next; more; link = next) {
		struct sl_wait *wait = SL_CONTAINER(link, struct sl_wait, link);

		next = link->next;
		more = link != last;
		if (!record || is_key(missing_of(wait), record))
			act(server, wait);
	}
}

static void each_for(struct sl_server *server, uint32_t slot,
                     void (*act)(struct sl_server *, struct sl_wait *))
{
	struct sl_list *by_name, *by_id;
	struct sl_blob_record record;

	if (!server->waiting)
		return;
	record = sl_blob_record(server, slot);
	by_id = bucket_of(server, NULL, 0, record.key.id);
	by_name = bucket_of(server, record.key.name, record.key.length, 0);
	each_in(server, by_id, &record, act);
	if (by_name != by_id)
		each_in(server, by_name, &record, act);
}

void sl_get_wake(struct sl_server *server, uint32_t slot)
{
	each_for(server, slot, try_again);
}

static void fail_one(struct sl_server *server, struct sl_wait *wait)
{
	char text[SL_TEXT_BYTES + 40];
	int error = server->spill->error;

	if (!wait->disk)
		return;
	snprintf(text, sizeof(text), "is spilled and cannot be read: %s", server->spill->text);
	refuse_key(missing_of(wait), error, text);
	sl_peer_refuse(server, wait->peer, wait->request.serial, error);
	sl_wait_free(server, wait);
}

void sl_get_fail(struct sl_server *server, uint32_t slot)
{
	if (sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_DYING)
		each_for(server, slot, fail_one);
}

void sl_get_mark(struct sl_server *server, uint64_t number)
{
	for (unsigned b = 0; server->waiting && b < SL_WAIT_BUCKETS; b++)
		sl_list_each_of (wait, &server->waits[b], const struct sl_wait, link) {
			unsigned count;
			const struct sl_key *keys = keys_of(&wait->request, &count);
			uint32_t slot;

			for (unsigned i = 0; wait->disk && i < count; i++)
				if (!sl_key_find(server, &keys[i], &slot) &&
				    server->blobs[slot].region)
					server->blobs[slot].region->wanted = number;
		}
}

static void expire_one(struct sl_server *server, struct sl_wait *wait)
{
	int rc;

	/* The disk is waited for, whatever was said. */
	if (wait->disk)
		return;
	if (wait->deadline > server->now) {
		server->waits_due = SL_MIN(server->waits_due, wait->deadline);
		return;
	}
	rc = wait->patient ? refuse_key(missing_of(wait), -ETIMEDOUT, "was not sealed in time")
	                   : refuse_key(missing_of(wait), -ENOENT, "is not there");
	sl_peer_refuse(server, wait->peer, wait->request.serial, rc);
	sl_wait_free(server, wait);
}

void sl_get_expire(struct sl_server *server, int64_t now)
{
	if (now >= server->waits_due) {
		server->waits_due = SL_FOREVER;
		for (unsigned b = 0; b < SL_WAIT_BUCKETS; b++)
			each_in(server, &server->waits[b], NULL, expire_one);
		/* A pass looks at all: the next one comes so much later. */
		server->waits_due =
			SL_MAX(server->waits_due, sl_now() + (sl_now() - now) * EXPIRE_REST);
	}
	sl_server_at(server, server->waits_due);
}

/* -------------------------------------------------------------------------------------- memory */

int sl_region_request(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_region *request = &server->in.region;
	struct sl_region *region = sl_region_find(server, request->region);
	int fd = -1, own, rc = sl_peer_admit_descriptor(peer);

	if (!region || region->away || region->offered != 1 || region->leaving ||
	    (request->writable && region->writer != peer))
		rc = sl_fail(-ESTALE, "there is no such memory any more");
	if (!rc) {
		own = sl_descriptors_fd(server->descriptors, region->row);
		/* A copy, because it is closed when it is sent. How a device is mapped its driver is told. */
		fd = request->writable || region->device >= 0 ? fcntl(own, F_DUPFD_CLOEXEC, 0)
		                                              : sl_reopen(own);
		rc = fd == -1 ? -errno : SL_MIN(fd, 0);
		if (rc)
			sl_fail(rc, "cannot open memory: %s", sl_error_text(rc));
	}
	/* When it has one: it may have one from before, and what that stands for is mapped. */
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

/* The sealed blob that was made there, and may have moved since. Slow: clients ask after a server has died. */
int sl_locate(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_locate *request = &server->in.locate;
	uint32_t serial = request->head.serial;

	for (uint32_t slot = 0; slot < server->top; slot++) {
		const struct sl_region *region = server->blobs[slot].region;
		enum sl_entry_state state;
		struct sl_blob_record record;

		if (!region || region->origin != request->region)
			continue;
		state = sl_catalogue_state(server->catalogue, slot);
		if (state != SL_ENTRY_SEALED && state != SL_ENTRY_AWAY)
			continue;
		record = sl_blob_record(server, slot);
		if (record.place.offset != request->offset)
			continue;
		if (state == SL_ENTRY_SEALED)
			sl_peer_pin(server, peer, serial, slot);
		/* From here on it is a get by its id. */
		sl_message_begin(&server->out, SL_MSG_GET, serial, 1);
		server->out.get.items[0].id = record.key.id;
		memcpy(&server->in, &server->out, server->out.head.bytes);
		return sl_get_await(server, peer);
	}
	return sl_fail(-ENOENT, "no blob lies there");
}
