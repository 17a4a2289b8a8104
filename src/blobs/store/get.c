/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting blobs
 *
 * Finds a sealed blob in the mapped catalogue and holds it, without a call; only if it is not
 * there, the server is asked, which waits until all blobs of the call are sealed. Then the blob's
 * region is mapped, unless it is mapped already. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store/device/store_devices.h"

#define BUSY_NS 5000000

struct get_options {
	struct sl_device *for_device; /* that is to access the blobs; NULL */
	int64_t deadline;
};

/* Maps a blob; by a driver, if the blob is on a device or is to be accessed by one. */
int sl_blob_map(sluice_blob *blob, const struct sl_blob_record *record, uint64_t epoch,
                const struct sl_device *for_device, const struct sluice_addresses *at,
                int64_t deadline)
{
	const struct sl_blob_range *range = &record->range;
	struct sl_map_request request = {.region = range->memory,
	                                 .kind = range->kind,
	                                 .for_device = for_device,
	                                 .at = at,
	                                 .part = blob->owner,
	                                 .epoch = epoch};
	int rc = 0;

	blob->bytes = record->size;
	if (range->device >= 0) {
		rc = sl_store_device_by_number(blob->store, range->device, deadline, &blob->sdev);
		if (rc)
			return rc;
		blob->device = blob->sdev->device->index;
		blob->kind = range->kind;
		request.sdev = blob->sdev;
		if (blob->sdev->device == for_device)
			request.for_device = NULL;
	} else if (for_device) {
		rc = sl_store_device_open(blob->store, (struct sl_device *)for_device,
		                          &request.sdev);
	}
	if (!rc && at && !request.sdev)
		rc = sl_fail(-EINVAL,
		             "the addresses are for a device, and the blob is on the host");
	if (!rc)
		rc = sl_mapping_acquire(blob->store, &request, deadline, &blob->mapping);
	if (rc)
		return rc;
	if (range->offset > blob->mapping->bytes ||
	    record->size > blob->mapping->bytes - range->offset)
		return sl_fail(-EPROTO, "a range beyond its region");
	atomic_init(&blob->data, blob->mapping->base + range->offset);
	return 0;
}

/* Counts the parts of a blob that is held. */
static int get_count_parts(sluice_blob *owner)
{
	struct sl_blob_record record = owner->held.record;
	unsigned count = 0;
	int rc = 0;

	while (count <= SLUICE_BLOB_PARTS_MOST &&
	       !(rc = sl_reader_part(&owner->view->reader, &record, &record)))
		count++;
	if (rc != -ENOENT)
		return sl_fail(-EPROTO, "the parts of a blob are not what a server writes");
	owner->parts = count ? calloc(count, sizeof(*owner->parts)) : NULL;
	if (count && !owner->parts)
		return sl_fail(-ENOMEM, "no memory");
	owner->part_count = count;
	return 0;
}

/*
 * Makes a handle of a held blob. Consumes the hold and the reference to the view, even if it fails.
 * -EAGAIN: its region is gone.
 */
static int get_hold(sluice_store *store, struct sl_catalogue_view *view,
                    const struct sl_held_blob *held, const struct get_options *o, sluice_blob **out)
{
	const struct sl_blob_record *record = &held->record;
	sluice_blob *blob = sl_blob_new(store);
	const struct sl_metadata *metadata = record->metadata;

	if (!blob) {
		sl_reader_release(&view->reader, held);
		sl_view_release(view);
		return sl_fail(-ENOMEM, "no memory");
	}
	atomic_init(&blob->state, SLUICE_BLOB_IS_SEALED);
	atomic_init(&blob->id, record->key.id);
	blob->view = view;
	blob->held = *held;
	blob->flags = record->flags;
	memcpy(blob->name, record->key.name, SL_MIN(record->key.length, SLUICE_BLOB_NAME_MOST));
	if (record->metadata_size &&
	    !sl_metadata_check(metadata, record->metadata_size, record->size))
		blob->metadata = metadata;
	int rc = sl_blob_map(blob, record, view->epoch, o->for_device, NULL, o->deadline);
	if (!rc)
		rc = get_count_parts(blob);
	if (rc) {
		sl_blob_release_handle(blob);
		return rc == -ESTALE ? -EAGAIN : rc;
	}
	*out = blob;
	return 0;
}

/*
 * Gets a blob from the catalogue, by key or, if key is NULL, from the slot in the server's reply.
 *
 * Returns 0, or
 *   -ENOENT  the server must be asked
 *   -EAGAIN  the blob has been deleted meanwhile, or the daemon is another
 *   other    an error with a message
 */
static int get_from_catalogue(sluice_store *store, const struct sl_key *key,
                              const struct sl_found_item *item, uint64_t epoch,
                              const struct get_options *o, sluice_blob **out)
{
	struct sl_catalogue_view *view =
		key ? sl_view_acquire(store) : sl_view_acquire_of(store, epoch);
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
		return get_hold(store, view, &held, o, out);
	sl_view_release(view);
	if (rc == -ENOSPC)
		return sl_fail(-ENOBUFS, "this store holds %d blobs, which is all it may",
		               SLUICE_STORE_HOLDS_MOST);
	return key ? -ENOENT : -EAGAIN;
}

/* Gets the blobs that are missing from the server, which waits until all of them are sealed. */
static int get_from_server(sluice_store *store, const struct sl_key *keys, size_t count,
                           const struct get_options *o, sluice_blob **blobs)
{
	size_t asked[SL_ITEMS_MOST];
	struct sl_pending_call call;
	union sl_message m;
	int64_t left = o->deadline - sl_now() + 999999, rest = SL_MAX(left, 0) / 1000000;
	unsigned n = 0;

	for (size_t i = 0; i < count; i++)
		if (!blobs[i])
			asked[n++] = i;
	sl_message_begin(&m, SL_MSG_GET, 0, n);
	m.get.timeout_ms = o->deadline == SL_FOREVER ? -1 : (int)SL_MIN(rest, INT32_MAX);
	for (unsigned i = 0; i < n; i++)
		m.get.items[i] = keys[asked[i]];
	int rc = sl_call_begin(store, &m, SL_MSG_FOUND, 0, o->deadline, &call);
	/* As many requests as may wait do so there, or it has as many clients as it takes; this
	 * one waits here, and asks again. */
	if (rc == -EAGAIN)
		nanosleep(&(struct timespec){0, BUSY_NS}, NULL);
	if (rc == -EAGAIN && sl_now() >= o->deadline)
		return -ETIMEDOUT;
	if (rc)
		return rc == -ECONNRESET ? -EAGAIN : rc;
	if (m.head.count != n)
		rc = sl_fail(-EPROTO, "the store answers what was not asked");
	for (unsigned i = 0; !rc && i < n; i++)
		rc = get_from_catalogue(store, NULL, &m.found.items[i], call.epoch, o,
		                        &blobs[asked[i]]);
	/* Only now: until the call ends the server holds the blobs for us. */
	sl_call_end(store, &call);
	return rc;
}

static int get_all(sluice_store *store, const struct sl_key *keys, size_t count,
                   struct sl_device *for_device, int timeout_ms, sluice_blob **out)
{
	struct get_options o = {for_device, sl_deadline(timeout_ms)};
	sluice_blob *blobs[SL_ITEMS_MOST] = {NULL};
	int rc;

	do {
		rc = 0;
		for (size_t i = 0; !rc && i < count; i++)
			if (!blobs[i])
				rc = get_from_catalogue(store, &keys[i], NULL, 0, &o, &blobs[i]);
		if (rc == -ENOENT)
			rc = get_from_server(store, keys, count, &o, blobs);
		/* -EAGAIN: it was deleted; there may be another by that name. */
	} while (rc == -EAGAIN);
	if (rc == -ENOENT && timeout_ms)
		rc = -ETIMEDOUT;
	for (size_t i = 0; rc && i < count; i++)
		if (blobs[i])
			sl_blob_release_handle(blobs[i]);
	if (!rc)
		memcpy(out, blobs, count * sizeof(*out));
	sl_store_step("client: got");
	return rc;
}

static int get_named(sluice_store *store, const char *const *names, size_t count,
                     struct sl_device *for_device, int timeout_ms, sluice_blob **out)
{
	struct sl_key keys[SL_ITEMS_MOST];
	int rc = sl_store_check(store, "sluice_blob_get");

	if (!rc && (!names || !out || !count || count > SL_ITEMS_MOST))
		rc = sl_fail(-EINVAL, "sluice_blob_get: %zu blobs, or NULL; there may be %d", count,
		             SLUICE_BLOB_BATCH);
	for (size_t i = 0; !rc && i < count; i++)
		rc = names[i] ? sl_key_set(&keys[i], names[i], 0)
		              : sl_fail(-EINVAL, "sluice_blob_get: a name is NULL");
	return rc ? rc : get_all(store, keys, count, for_device, timeout_ms, out);
}

int sluice_blob_get_many(sluice_store *store, const char *const *names, size_t count,
                         int timeout_ms, sluice_blob **out)
{
	return get_named(store, names, count, NULL, timeout_ms, out);
}

int sluice_blob_get(sluice_store *store, const char *name, int timeout_ms, sluice_blob **out)
{
	return get_named(store, &name, 1, NULL, timeout_ms, out);
}

int sluice_blob_get_on(sluice_store *store, const char *name, int device, int timeout_ms,
                       sluice_blob **out)
{
	struct sl_device *for_device = device < 0 ? NULL : sl_device_find((unsigned)device);
	int rc = sl_store_check(store, "sluice_blob_get_on");

	if (!rc && !for_device)
		rc = sl_fail(-ENOTSUP, "there is no device %d", device);
	return rc ? rc : get_named(store, &name, 1, for_device, timeout_ms, out);
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

int sluice_blob_descriptor(sluice_blob *blob, uint64_t *offset, int *fd)
{
	struct sl_reply reply;
	size_t bytes;

	if (!blob || !offset || !fd)
		return sl_fail(-EINVAL, "sluice_blob_descriptor: NULL");
	int rc = sl_store_check(blob->store, "sluice_blob_descriptor");
	if (rc)
		return rc;
	if (blob->state != SLUICE_BLOB_IS_SEALED || !blob->data)
		return sl_fail(-EPERM, "the blob is not sealed");
	if (blob->kind != SLUICE_BLOB_ON_HOST)
		return sl_fail(-ENOTSUP, "the blob is in the memory of a device");
	rc = sl_mapping_ask(blob->store, blob->mapping, false, SL_FOREVER, &bytes, &reply);
	if (rc)
		return rc;
	/* The regions of another daemon have the same numbers. */
	if (!sl_same_daemon(reply.epoch, (blob->owner ? blob->owner : blob)->view->epoch)) {
		close(reply.fd);
		return sl_fail(-ESTALE, "the blob is of a daemon that is gone");
	}
	*offset = (uint64_t)(blob->data - blob->mapping->base);
	*fd = reply.fd;
	return 0;
}
