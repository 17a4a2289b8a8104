/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever wants a blob: finding it, waiting for it, and its memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluiced/spill.h"

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

static int wait_for(struct sl_server *server, struct sl_peer *peer, uint32_t serial,
                    const struct sl_key *keys, unsigned count, const struct sl_wait *how)
{
	size_t bytes = count * sizeof(keys[0]);
	struct sl_wait *wait;

	if (peer->wait_count >= SL_WAITS_MOST)
		return sl_fail(-EAGAIN, "a client may wait for %d blobs at a time", SL_WAITS_MOST);
	wait = malloc(sizeof(*wait) + bytes);
	if (!wait)
		return sl_fail(-ENOMEM, "no memory");
	*wait = *how;
	wait->peer = peer;
	wait->serial = serial;
	wait->count = count;
	memcpy(wait->keys, keys, bytes);
	sl_list_append(&server->waits, &wait->link);
	sl_list_append(&peer->waits, &wait->peer_link);
	peer->wait_count++;
	sl_server_at(server, wait->deadline);
	return 0;
}

void sl_wait_free(struct sl_wait *wait)
{
	wait->peer->wait_count--;
	sl_list_remove(&wait->link);
	sl_list_remove(&wait->peer_link);
	free(wait);
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
	rc = how.patient || how.disk ? wait_for(server, peer, request->head.serial, request->items,
	                                        request->head.count, &how)
	                             : refuse_missing(&request->items[how.missing], -ENOENT);
	if (rc)
		sl_peer_refuse(server, peer, request->head.serial, rc);
}

void sl_get_await(struct sl_server *server, struct sl_peer *peer, uint32_t serial,
                  const struct sl_key *key, bool pin)
{
	struct sl_wait how = {.deadline = sl_now(), .disk = true, .pin = pin};
	int rc;

	rc = want_all(server, key, 1);
	if (!rc)
		rc = wait_for(server, peer, serial, key, 1, &how);
	if (rc)
		sl_peer_refuse(server, peer, serial, rc);
}

static bool is_key(const struct sl_key *key, const struct sl_blob_record *record)
{
	if (key->id)
		return key->id == record->key.id;
	return strlen(key->name) == record->key.length &&
	       !memcmp(key->name, record->key.name, record->key.length);
}

/* Once more; true: it was answered. */
static bool try_again(struct sl_server *server, struct sl_wait *wait)
{
	enum outcome outcome;
	uint32_t slot;

	if (wait->pin) {
		if (sl_key_find(server, &wait->keys[0], &slot)) {
			outcome = NOT_THERE;
		} else if (sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_SEALED) {
			struct sl_blob_record record;

			sl_catalogue_record(server->catalogue, slot, &record);
			sl_catalogue_set_flags(server->catalogue, slot,
			                       record.flags | SLUICE_BLOB_PIN);
			sl_blob_mark(server, slot);
			sl_peer_done(server, wait->peer, wait->serial);
			return true;
		} else {
			outcome = ON_DISK;
		}
	} else {
		outcome = try_get(server, wait->peer, wait->serial, wait->keys, wait->count,
		                  &wait->missing);
	}
	wait->disk = outcome == ON_DISK;
	/* If its time is over, it is told so at the end of this turn. */
	if (outcome == NOT_THERE)
		sl_server_at(server, wait->deadline);
	return outcome == ALL_THERE || outcome == REFUSED;
}

void sl_get_wake(struct sl_server *server, uint32_t slot)
{
	struct sl_blob_record record;

	if (sl_list_empty(&server->waits))
		return;
	sl_catalogue_record(server->catalogue, slot, &record);
	for (struct sl_list *link = server->waits.next, *next; link != &server->waits;
	     link = next) {
		struct sl_wait *wait = SL_CONTAINER(link, struct sl_wait, link);

		next = link->next;
		if (is_key(&wait->keys[wait->missing], &record) && try_again(server, wait))
			sl_wait_free(wait);
	}
}

void sl_get_fail(struct sl_server *server, uint32_t slot, int error)
{
	char text[SL_TEXT_BYTES];
	uint32_t found;

	snprintf(text, sizeof(text), "%s", sluice_last_message());
	for (struct sl_list *link = server->waits.next, *next; link != &server->waits;
	     link = next) {
		struct sl_wait *wait = SL_CONTAINER(link, struct sl_wait, link);
		const struct sl_key *key = &wait->keys[wait->missing];

		next = link->next;
		if (!wait->disk || sl_key_find(server, key, &found) || found != slot)
			continue;
		if (key->id)
			sl_fail(error, "the blob with id %llu is spilled and cannot be read: %s",
			        (unsigned long long)key->id, text);
		else
			sl_fail(error, "'%s' is spilled and cannot be read: %s", key->name, text);
		sl_peer_refuse(server, wait->peer, wait->serial, error);
		sl_wait_free(wait);
	}
}

void sl_get_mark(struct sl_server *server, uint64_t number)
{
	sl_list_each (link, &server->waits) {
		const struct sl_wait *wait = SL_CONTAINER(link, struct sl_wait, link);
		uint32_t slot;

		for (unsigned i = 0; wait->disk && i < wait->count; i++)
			if (!sl_key_find(server, &wait->keys[i], &slot) &&
			    server->blobs[slot].region)
				server->blobs[slot].region->wanted = number;
	}
}

void sl_get_expire(struct sl_server *server, int64_t now)
{
	for (struct sl_list *link = server->waits.next, *next; link != &server->waits;
	     link = next) {
		struct sl_wait *wait = SL_CONTAINER(link, struct sl_wait, link);

		next = link->next;
		/* The disk is waited for, whatever was said. */
		if (wait->disk)
			continue;
		if (wait->deadline > now) {
			sl_server_at(server, wait->deadline);
			continue;
		}
		sl_peer_refuse(server, wait->peer, wait->serial,
		               refuse_missing(&wait->keys[wait->missing],
		                              wait->patient ? -ETIMEDOUT : -ENOENT));
		sl_wait_free(wait);
	}
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
	own = sl_vault_fd(server->vault, region->row);
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
			sl_get_await(server, peer, serial, &(struct sl_key){.id = record.key.id},
			             false);
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
