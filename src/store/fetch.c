/* SPDX-License-Identifier: Apache-2.0 */
/* Getting blobs: by the catalogue, without a call, if it is there and mapped; else by the server. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "store/devices.h"

/* -------------------------------------------------------------------------------------- hold */

/* How blobs are to be got. */
struct want {
	struct sl_device *by; /* that will use them; NULL */
	int64_t deadline;
};

/* By the driver of a device, if the blob is on one, or is to be used by one. */
static int map_blob(sluice_blob *blob, const struct sl_blob_place *place, const struct want *want)
{
	struct sl_device *by = want->by;
	struct sl_far far = {
		.region = place->memory, .kind = place->kind, .by = by, .turn = blob->view->turn};
	int rc = 0;

	if (place->device < 0 && by) {
		rc = sl_post_open(blob->store, by, &far.post);
	} else if (place->device >= 0) {
		rc = sl_post_of_place(blob->store, place->device, want->deadline, &far.post);
		if (!rc && far.post->device == by)
			far.by = NULL;
		if (!rc) {
			blob->post = far.post;
			blob->device = far.post->device->index;
			blob->kind = place->kind;
		}
	}
	return rc ? rc : sl_mapping_acquire(blob->store, &far, want->deadline, &blob->mapping);
}

/* One that is sealed and that we may hold: slot and generation in the view. -EAGAIN: not any more. Takes over the hold, and
 * the view's reference, in any case. */
static int hold_blob(sluice_store *store, struct sl_view *view, const struct sl_held_blob *held,
                     const struct want *want, sluice_blob **out)
{
	const struct sl_blob_record *record = &held->record;
	sluice_blob *blob = sl_blob_new(store);
	const struct sl_metadata *metadata = record->metadata;
	int rc;

	if (!blob) {
		sl_reader_release(&view->reader, held);
		sl_view_release(view);
		return sl_fail(-ENOMEM, "no memory");
	}
	atomic_init(&blob->state, SLUICE_BLOB_IS_SEALED);
	atomic_init(&blob->id, record->key.id);
	blob->view = view;
	blob->held = *held;
	blob->bytes = record->size;
	blob->flags = record->flags;
	memcpy(blob->name, record->key.name, SL_MIN(record->key.length, SLUICE_BLOB_NAME_MOST));
	if (record->metadata_size &&
	    !sl_metadata_check(metadata, record->metadata_size, record->size))
		blob->record = metadata;
	rc = map_blob(blob, &record->place, want);
	if (!rc && (record->place.offset > blob->mapping->bytes ||
	            record->size > blob->mapping->bytes - record->place.offset))
		rc = sl_fail(-EPROTO, "a place beyond its region");
	if (rc) {
		sl_blob_let_go(blob);
		return rc == -ESTALE ? -EAGAIN : rc;
	}
	atomic_init(&blob->data, blob->mapping->base + record->place.offset);
	*out = blob;
	return 0;
}

/* By a key from the catalogue alone, or, if key is NULL, as the server of that turn has found it. -ENOENT: ask the server;
 * -EAGAIN: it has gone meanwhile; or another error, with a sentence. */
static int get_here(sluice_store *store, const struct sl_key *key, const struct sl_found_item *item,
                    uint64_t turn, const struct want *want, sluice_blob **out)
{
	struct sl_view *view = key ? sl_view_acquire(store) : sl_view_acquire_of(store, turn);
	struct sl_held_blob held;
	int rc;

	if (!view)
		return -EAGAIN;
	if (key) {
		size_t length = key->id ? 0 : strlen(key->name);
		struct sl_blob_key wanted = {key->name, length, key->id};

		rc = sl_reader_get(&view->reader, &wanted, &held);
	} else {
		rc = sl_reader_take(&view->reader, item->slot, item->generation, &held);
	}
	if (!rc)
		return hold_blob(store, view, &held, want, out);
	sl_view_release(view);
	if (rc == -ENOSPC)
		return sl_fail(-ENOBUFS, "this store holds %d blobs, which is all it may",
		               SLUICE_STORE_HOLDS_MOST);
	return key ? -ENOENT : -EAGAIN;
}

/* --------------------------------------------------------------------------------------- get */

/* Those that are not there yet, by the server, which waits until all of them are sealed. */
static int get_there(sluice_store *store, const struct sl_key *keys, size_t count,
                     const struct want *want, sluice_blob **blobs)
{
	size_t asked[SL_ITEMS_MOST];
	struct sl_call call;
	union sl_message m;
	int64_t rest = SL_MAX(want->deadline - sl_now() + 999999, 0) / 1000000;
	unsigned n = 0;
	int rc;

	for (size_t i = 0; i < count; i++)
		if (!blobs[i])
			asked[n++] = i;
	sl_message_begin(&m, SL_MSG_GET, 0, n);
	m.get.timeout_ms = want->deadline == SL_FOREVER ? -1 : (int)SL_MIN(rest, INT32_MAX);
	for (unsigned i = 0; i < n; i++)
		m.get.items[i] = keys[asked[i]];
	rc = sl_call_begin(store, &m, SL_MSG_FOUND, 0, want->deadline, &call);
	if (rc)
		return rc == -ECONNRESET ? -EAGAIN : rc;
	if (m.head.count != n)
		rc = sl_fail(-EPROTO, "the store answers what was not asked");
	for (unsigned i = 0; !rc && i < n; i++)
		rc = get_here(store, NULL, &m.found.items[i], call.turn, want, &blobs[asked[i]]);
	/* Not before: until then the server holds them for us. */
	sl_call_end(store, &call);
	return rc;
}

static int get_all(sluice_store *store, const struct sl_key *keys, size_t count,
                   struct sl_device *by, int timeout_ms, sluice_blob **out)
{
	struct want want = {by, sl_deadline(timeout_ms)};
	sluice_blob *blobs[SL_ITEMS_MOST] = {NULL};
	int rc;

	do {
		rc = 0;
		for (size_t i = 0; !rc && i < count; i++)
			if (!blobs[i])
				rc = get_here(store, &keys[i], NULL, 0, &want, &blobs[i]);
		if (rc == -ENOENT)
			rc = get_there(store, keys, count, &want, blobs);
		/* -EAGAIN: it went while we took it; another one of that name may be there. */
	} while (rc == -EAGAIN);
	if (rc == -ENOENT && timeout_ms)
		rc = -ETIMEDOUT;
	for (size_t i = 0; rc && i < count; i++)
		if (blobs[i])
			sl_blob_let_go(blobs[i]);
	if (!rc)
		memcpy(out, blobs, count * sizeof(*out));
	sl_store_step("client: got");
	return rc;
}

static int get_by(sluice_store *store, const char *const *names, size_t count, struct sl_device *by,
                  int timeout_ms, sluice_blob **out)
{
	struct sl_key keys[SL_ITEMS_MOST];
	int rc = sl_store_check(store, "sluice_blob_get");

	if (!rc && (!names || !out || !count || count > SL_ITEMS_MOST))
		rc = sl_fail(-EINVAL, "sluice_blob_get: %zu blobs, or NULL; there may be %d", count,
		             SLUICE_BLOB_BATCH);
	for (size_t i = 0; !rc && i < count; i++)
		rc = names[i] ? sl_key_set(&keys[i], names[i], 0)
		              : sl_fail(-EINVAL, "sluice_blob_get: a name is NULL");
	return rc ? rc : get_all(store, keys, count, by, timeout_ms, out);
}

int sluice_blob_get_many(sluice_store *store, const char *const *names, size_t count,
                         int timeout_ms, sluice_blob **out)
{
	return get_by(store, names, count, NULL, timeout_ms, out);
}

int sluice_blob_get(sluice_store *store, const char *name, int timeout_ms, sluice_blob **out)
{
	return get_by(store, &name, 1, NULL, timeout_ms, out);
}

int sluice_blob_get_on(sluice_store *store, const char *name, int device, int timeout_ms,
                       sluice_blob **out)
{
	struct sl_device *by = device < 0 ? NULL : sl_device_find((unsigned)device);
	int rc = sl_store_check(store, "sluice_blob_get_on");

	if (!rc && !by)
		rc = sl_fail(-ENOTSUP, "there is no device %d", device);
	return rc ? rc : get_by(store, &name, 1, by, timeout_ms, out);
}

int sluice_blob_get_id(sluice_store *store, uint64_t id, int timeout_ms, sluice_blob **out)
{
	struct sl_key key;
	int rc = sl_store_check(store, "sluice_blob_get_id");

	if (!rc && !out)
		rc = sl_fail(-EINVAL, "sluice_blob_get_id: out is NULL");
	if (!rc)
		rc = sl_key_set(&key, NULL, id);
	return rc ? rc : get_all(store, &key, 1, NULL, timeout_ms, out);
}

/* ------------------------------------------------------------------------------------- asking */

const void *sluice_blob_data(const sluice_blob *blob)
{
	return blob ? blob->data : NULL;
}

size_t sluice_blob_size(const sluice_blob *blob)
{
	return blob ? blob->bytes : 0;
}

int sluice_blob_device(const sluice_blob *blob)
{
	return blob ? blob->device : -1;
}

int sluice_blob_kind(const sluice_blob *blob)
{
	return blob ? (int)blob->kind : sl_fail(-EINVAL, "sluice_blob_kind: the blob is NULL");
}

uint64_t sluice_blob_id(const sluice_blob *blob)
{
	return blob ? blob->id : 0;
}

const char *sluice_blob_name(const sluice_blob *blob)
{
	return blob ? blob->name : "";
}

int sluice_blob_get_metadata(const sluice_blob *blob, struct sluice_blob_metadata *out)
{
	struct sluice_blob_metadata m = {0};
	size_t size;

	if (!blob || !out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_blob_get_metadata: NULL, or out->size is not set");
	size = out->size;
	if (blob->record)
		sl_metadata_read(blob->record, &m);
	m.size = size;
	memcpy(out, &m, SL_MIN(size, sizeof(m)));
	return 0;
}
