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

enum outcome { ALL_THERE, NOT_THERE, ON_DISK, REFUSED };

/* What is away comes back when all that is asked for is sealed: so nobody keeps memory for what may never come. */
static int want_all(struct sl_server *server, const struct sl_key *keys, unsigned count)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++) {
		uint32_t slot;

		if (!sl_key_find(server, &keys[i], &slot) &&
		    sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_AWAY)
			rc = sl_spill_want(server, server->blobs[slot].region);
	}
	return rc;
}

/* Answers if all are there, or what is away cannot come back; else which is missing. */
static enum outcome try_get(struct sl_server *server, struct sl_peer *peer, uint32_t serial,
                            const struct sl_key *keys, unsigned count, unsigned *missing)
{
	struct sl_found_item items[SL_ITEMS_MOST];
	enum outcome outcome = ALL_THERE;
	bool pin = server->spill;

	for (unsigned i = 0; i < count; i++) {
		struct sl_blob_record record;
		uint32_t slot;

		if (sl_key_find(server, &keys[i], &slot) ||
		    sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_OPEN) {
			*missing = i;
			return NOT_THERE;
		}
		if (sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_SEALED) {
			*missing = i;
			outcome = ON_DISK;
			continue;
		}
		sl_catalogue_record(server->catalogue, slot, &record);
		items[i] = (struct sl_found_item){
			.id = record.key.id,
			.generation = sl_catalogue_generation(server->catalogue, slot),
			.slot = slot};
		pin = pin || record.flags & SLUICE_BLOB_TRANSIENT;
	}
	if (outcome == ON_DISK) {
		int rc = want_all(server, keys, count);

		if (!rc)
			return ON_DISK;
		sl_peer_refuse(server, peer, serial, rc);
		return REFUSED;
	}
	server->counts.gets++;
	sl_message_begin(&server->out, SL_FOUND, serial, count);
	memcpy(server->out.found.items, items, count * sizeof(items[0]));
	/* It is not to leave before the client has taken it. */
	for (unsigned i = 0; pin && i < count; i++)
		sl_peer_pin(server, peer, serial, items[i].slot);
	sl_peer_send(server, peer, &server->out, -1);
	return ALL_THERE;
}

static uint64_t hash_of(const char *name, size_t length, uint64_t id)
{
	uint64_t hash = id;

	for (size_t i = 0; !id && i < length; i++)
		hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
	return hash * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

static struct sl_list *bucket_of(struct sl_server *server, const char *name, size_t length,
                                 uint64_t id)
{
	return &server->waits[hash_of(name, length, id) % SL_WAIT_BUCKETS];
}

static const struct sl_key *keys_of(const struct sl_wait *wait, unsigned *count)
{
	*count = wait->request.type == SL_PIN ? 1 : wait->request.count;
	return wait->request.type == SL_PIN ? &((const struct sl_one *)&wait->request)->key
	                                    : ((const struct sl_get *)&wait->request)->items;
}

static const struct sl_key *missing_of(const struct sl_wait *wait)
{
	unsigned count;

	return keys_of(wait, &count) + wait->missing;
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

static int wait_for(struct sl_server *server, struct sl_peer *peer, const void *message,
                    const struct sl_wait *how)
{
	struct sl_wait *wait = sl_wait_new(peer, message, how->deadline);

	if (!wait)
		return peer->wait_count >= SL_WAITS_MOST ? -EAGAIN : -ENOMEM;
	wait->patient = how->patient;
	wait->disk = how->disk;
	wait->missing = how->missing;
	wait->for_blob = true;
	server->waiting++;
	place(server, wait);
	return 0;
}

static int refuse_missing(const struct sl_key *key, int error)
{
	const char *what = error == -ETIMEDOUT ? "was not sealed in time" : "is not there";

	if (key->id)
		return sl_fail(error, "the blob with id %llu %s", (unsigned long long)key->id,
		               what);
	return sl_fail(error, "'%s' %s", key->name, what);
}

void sl_get(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_get *request = &server->in.get;
	struct sl_wait how = {.deadline = sl_deadline(request->timeout_ms),
	                      .patient = request->timeout_ms != 0};
	enum outcome outcome = try_get(server, peer, request->head.serial, request->items,
	                               request->head.count, &how.missing);
	int rc;

	if (outcome == ALL_THERE || outcome == REFUSED)
		return;
	how.disk = outcome == ON_DISK;
	rc = how.patient || how.disk ? wait_for(server, peer, request, &how)
	                             : refuse_missing(&request->items[how.missing], -ENOENT);
	if (rc)
		sl_peer_refuse(server, peer, request->head.serial, rc);
}

void sl_get_await(struct sl_server *server, struct sl_peer *peer, const void *message)
{
	struct sl_wait how = {.deadline = sl_now(), .disk = true};
	const struct sl_head *head = message;
	const struct sl_key *key = head->type == SL_PIN ? &((const struct sl_one *)message)->key
	                                                : ((const struct sl_get *)message)->items;
	int rc = want_all(server, key, 1);

	if (!rc)
		rc = wait_for(server, peer, message, &how);
	if (rc)
		sl_peer_refuse(server, peer, head->serial, rc);
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
	uint32_t slot, serial = wait->request.serial;
	enum outcome outcome;
	unsigned count;
	const struct sl_key *keys = keys_of(wait, &count);

	if (wait->request.type != SL_PIN) {
		outcome = try_get(server, wait->peer, serial, keys, count, &wait->missing);
	} else if (sl_key_find(server, keys, &slot)) {
		outcome = NOT_THERE;
	} else if (sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_SEALED) {
		struct sl_blob_record record;

		sl_catalogue_record(server->catalogue, slot, &record);
		sl_catalogue_set_flags(server->catalogue, slot, record.flags | SLUICE_BLOB_PIN);
		sl_blob_mark(server, slot);
		sl_peer_done(server, wait->peer, serial);
		outcome = ALL_THERE;
	} else {
		outcome = ON_DISK;
	}
	wait->disk = outcome == ON_DISK;
	/* If its time is over, it is told so at the end of this turn. */
	if (outcome == NOT_THERE || outcome == ON_DISK)
		place(server, wait);
	else
		sl_wait_free(server, wait);
}

/* Calls act for each wait in the bucket, which may free it or move it. */
static void each_in(struct sl_server *server, struct sl_list *bucket, uint32_t slot,
                    void (*act)(struct sl_server *, struct sl_wait *, uint32_t slot))
{
	struct sl_list *last = bucket->previous;
	bool more = !sl_list_empty(bucket);

	for (struct sl_list *link = bucket->next, *next; more; link = next) {
		next = link->next;
		more = link != last;
		act(server, SL_CONTAINER(link, struct sl_wait, link), slot);
	}
}

static void each_for(struct sl_server *server, uint32_t slot,
                     void (*act)(struct sl_server *, struct sl_wait *, uint32_t slot))
{
	struct sl_list *by_name, *by_id;
	struct sl_blob_record record;

	if (!server->waiting)
		return;
	sl_catalogue_record(server->catalogue, slot, &record);
	by_id = bucket_of(server, NULL, 0, record.key.id);
	by_name = bucket_of(server, record.key.name, record.key.length, 0);
	each_in(server, by_id, slot, act);
	if (by_name != by_id)
		each_in(server, by_name, slot, act);
}

static void wake_one(struct sl_server *server, struct sl_wait *wait, uint32_t slot)
{
	struct sl_blob_record record;

	sl_catalogue_record(server->catalogue, slot, &record);
	if (is_key(missing_of(wait), &record))
		try_again(server, wait);
}

void sl_get_wake(struct sl_server *server, uint32_t slot)
{
	each_for(server, slot, wake_one);
}

static void fail_one(struct sl_server *server, struct sl_wait *wait, uint32_t slot)
{
	const struct sl_key *key = missing_of(wait);
	char text[SL_TEXT_BYTES];
	uint32_t found;
	int error = server->spill->error;

	if (!wait->disk || sl_key_find(server, key, &found) || found != slot)
		return;
	snprintf(text, sizeof(text), "%s", server->spill->text);
	if (key->id)
		sl_fail(error, "the blob with id %llu is spilled and cannot be read: %s",
		        (unsigned long long)key->id, text);
	else
		sl_fail(error, "'%s' is spilled and cannot be read: %s", key->name, text);
	sl_peer_refuse(server, wait->peer, wait->request.serial, error);
	sl_wait_free(server, wait);
}

void sl_get_fail(struct sl_server *server, uint32_t slot)
{
	each_for(server, slot, fail_one);
}

void sl_get_mark(struct sl_server *server, uint64_t number)
{
	for (unsigned b = 0; server->waiting && b < SL_WAIT_BUCKETS; b++)
		sl_list_each (link, &server->waits[b]) {
			const struct sl_wait *wait = SL_CONTAINER(link, struct sl_wait, link);
			unsigned count;
			const struct sl_key *keys = keys_of(wait, &count);
			uint32_t slot;

			for (unsigned i = 0; wait->disk && i < count; i++)
				if (!sl_key_find(server, &keys[i], &slot) &&
				    server->blobs[slot].region)
					server->blobs[slot].region->wanted = number;
		}
}

static void expire_one(struct sl_server *server, struct sl_wait *wait, uint32_t slot)
{
	(void)slot;
	/* The disk is waited for, whatever was said. */
	if (wait->disk)
		return;
	if (wait->deadline > server->now) {
		server->waits_due = SL_MIN(server->waits_due, wait->deadline);
		return;
	}
	sl_peer_refuse(server, wait->peer, wait->request.serial,
	               refuse_missing(missing_of(wait), wait->patient ? -ETIMEDOUT : -ENOENT));
	sl_wait_free(server, wait);
}

void sl_get_expire(struct sl_server *server, int64_t now)
{
	if (now >= server->waits_due) {
		server->waits_due = SL_FOREVER;
		for (unsigned b = 0; b < SL_WAIT_BUCKETS; b++)
			each_in(server, &server->waits[b], 0, expire_one);
		/* A pass looks at all: the next one comes so much later. */
		server->waits_due =
			SL_MAX(server->waits_due, sl_now() + (sl_now() - now) * EXPIRE_REST);
	}
	sl_server_at(server, server->waits_due);
}

/* -------------------------------------------------------------------------------------- memory */

void sl_region_request(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_region_request *request = &server->in.region;
	struct sl_region *region = sl_region_find(server, request->region);
	uint32_t serial = request->head.serial;
	int fd, own, rc;

	if (!region || region->away || (request->writable && region->writer != peer)) {
		sl_peer_refuse(server, peer, serial, sl_fail(-ESTALE, "there is no such memory"));
		return;
	}
	if (region->device >= 0 && region->offered != 1) {
		sl_peer_refuse(server, peer, serial, sl_fail(-ESTALE, "there is no such memory"));
		return;
	}
	rc = sl_peer_admit_descriptor(peer);
	if (rc) {
		sl_peer_refuse(server, peer, serial, rc);
		return;
	}
	own = sl_descriptors_fd(server->descriptors, region->row);
	/* A copy, because it is closed when it is sent. How a device is mapped its driver is told. */
	fd = request->writable || region->device >= 0 ? fcntl(own, F_DUPFD_CLOEXEC, 0)
	                                              : sl_reopen(own);
	if (fd < 0) {
		rc = fd == -1 ? -errno : fd;
		sl_peer_refuse(server, peer, serial,
		               sl_fail(rc, "cannot open memory: %s", sl_error_text(rc)));
		return;
	}
	/* When it has one: it may have one from before, and what that stands for is mapped. */
	if (region->device >= 0 && (rc = sl_device_import(server, peer, region))) {
		close(fd);
		sl_peer_refuse(server, peer, serial, rc);
		return;
	}
	sl_store_step("server: memory");
	sl_message_begin(&server->out, SL_MEMORY, serial, 0);
	server->out.memory.region = region->id;
	server->out.memory.bytes = region->bytes;
	server->out.memory.device = region->device;
	server->out.memory.kind = region->kind;
	sl_peer_send(server, peer, &server->out, fd);
}

/*
 * The sealed blob that was made there. Asked after a server has died, so it may take its time; the blob
 * may have been away meanwhile, and be in other memory by now.
 */
void sl_locate(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_locate *request = &server->in.locate;
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
		sl_catalogue_record(server->catalogue, slot, &record);
		if (record.place.offset != request->offset)
			continue;
		if (state == SL_ENTRY_AWAY) {
			/* From here on it is a get by its id. */
			sl_message_begin(&server->out, SL_GET, serial, 1);
			server->out.get.items[0].id = record.key.id;
			memcpy(&server->in, &server->out, server->out.head.bytes);
			sl_get_await(server, peer, &server->in);
			return;
		}
		sl_message_begin(&server->out, SL_FOUND, serial, 1);
		server->out.found.items[0] = (struct sl_found_item){
			.id = record.key.id,
			.generation = sl_catalogue_generation(server->catalogue, slot),
			.slot = slot};
		sl_peer_pin(server, peer, serial, slot);
		sl_peer_send(server, peer, &server->out, -1);
		return;
	}
	sl_peer_refuse(server, peer, serial, sl_fail(-ENOENT, "no blob lies there"));
}
