/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles of blobs
 *
 * Allocates, counts and frees handles, answers for their properties, and exports them for DLPack,
 * without a copy. A handle belongs to the caller; tensors and seals in stream order have references
 * to it as well. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "store/device/store_devices.h"

sluice_blob *sl_blob_new(sluice_store *store)
{
	sluice_blob *blob = calloc(1, sizeof(*blob));

	if (!blob)
		return NULL;
	atomic_fetch_add(&store->handles, 1);
	atomic_init(&blob->references, 1);
	blob->store = store;
	blob->device = -1;
	blob->kind = SLUICE_BLOB_ON_HOST;
	return blob;
}

void sl_blob_nudge(sluice_store *store, const struct sl_catalogue_view *view, uint64_t id)
{
	sl_mutex_lock(&store->mutex);
	uint64_t epoch = store->epoch;
	sl_mutex_unlock(&store->mutex);
	if (sl_same_daemon(view->epoch, epoch))
		sl_tell_id(store, SL_MSG_NUDGE, id, epoch);
}

/* Of an owner. */
static void blob_release_parts(sluice_blob *owner)
{
	for (unsigned i = 0; i < owner->part_count; i++) {
		sluice_blob *part = atomic_load(&owner->parts[i]);

		if (part)
			sl_blob_release_handle(part);
	}
	free(owner->parts);
}

void sl_blob_unref(sluice_blob *blob)
{
	if (atomic_fetch_sub(&blob->references, 1) != 1)
		return;
	/* The mapping goes before the hold on its bytes. */
	blob_release_parts(blob);
	if (blob->mapping)
		sl_mapping_release(blob->store, blob->mapping);
	if (blob->state == SLUICE_BLOB_IS_CREATED)
		sl_lease_end(blob, true);
	if (blob->view) {
		if (sl_reader_release(&blob->view->reader, &blob->held) ||
		    blob->flags & SLUICE_BLOB_TRANSIENT)
			sl_blob_nudge(blob->store, blob->view, blob->id);
		sl_view_release(blob->view);
	}
	free(blob->stream_seal.message);
	free(blob->own_metadata);
	free(blob);
}

void sl_blob_release_handle(sluice_blob *blob)
{
	sluice_store *store = blob->store;

	sl_blob_unref(blob);
	atomic_fetch_sub(&store->handles, 1);
}

void sl_blobs_give_up(sluice_blob *const *blobs, size_t count, int rc)
{
	char *message = strdup(sluice_last_message());

	while (count--)
		sl_blob_release_handle(blobs[count]);
	sl_fail_with(rc, message);
	free(message);
}

int sl_blob_check_no_part(const sluice_blob *blob, const char *call)
{
	return blob->owner ? sl_fail(-EPERM, "%s: a part belongs to its owner", call) : 0;
}

int sluice_blob_release(sluice_blob *blob)
{
	if (!blob)
		return 0;
	int rc = sl_store_check(blob->store, "sluice_blob_release");
	if (!rc)
		rc = sl_blob_check_no_part(blob, "sluice_blob_release");
	if (!rc)
		sl_blob_release_handle(blob);
	return rc;
}

int sluice_blob_release_many(sluice_blob *const *v, size_t count)
{
	int rc = v || !count ? 0 : sl_fail(-EINVAL, "sluice_blob_release_many: NULL");

	for (size_t i = 0; !rc && i < count; i++)
		rc = sluice_blob_release(v[i]);
	return rc;
}

/* --------------------------------------------------------------------------------- properties */

int sl_blob_check_no_seal_pending(sluice_blob *blob)
{
	struct sl_devices *devices = sl_devices_of(blob->store);
	bool waits = false;

	if (devices) {
		sl_mutex_lock(&devices->mutex);
		waits = blob->stream_seal.pending;
		sl_mutex_unlock(&devices->mutex);
	}
	return waits ? sl_fail(-EPERM, "the blob is to be sealed already") : 0;
}

const void *sluice_blob_data(const sluice_blob *blob)
{
	return blob ? blob->data : NULL;
}

void *sluice_blob_mutable_data(sluice_blob *blob)
{
	return blob && blob->state == SLUICE_BLOB_IS_CREATED ? blob->data : NULL;
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
	int rc = sl_store_check(blob ? blob->store : NULL, "sluice_blob_kind");

	return rc ? rc : (int)blob->kind;
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

	if (!blob || !out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_blob_get_metadata: NULL, or out->size is not set");
	int rc = sl_store_check(blob->store, "sluice_blob_get_metadata");
	if (rc)
		return rc;
	if (blob->metadata)
		sl_metadata_read(blob->metadata, &m);
	sl_struct_give(out, &m, sizeof(m));
	return 0;
}

int sluice_blob_set_metadata(sluice_blob *blob, const struct sluice_blob_metadata *m)
{
	_Alignas(8) unsigned char bytes[SL_METADATA_MOST];
	struct sl_metadata *record = (struct sl_metadata *)bytes;

	if (!blob || !m)
		return sl_fail(-EINVAL, "sluice_blob_set_metadata: NULL");
	int rc = sl_store_check(blob->store, "sluice_blob_set_metadata");
	if (!rc && blob->state != SLUICE_BLOB_IS_CREATED)
		rc = sl_fail(-EPERM, "the blob is sealed");
	if (!rc)
		rc = sl_blob_check_no_seal_pending(blob);
	if (!rc)
		rc = sl_metadata_make(m, record);
	if (!rc)
		rc = sl_metadata_check(record, sl_metadata_bytes(record), blob->bytes);
	if (rc)
		return rc;
	record = malloc(sl_metadata_bytes(record));
	if (!record)
		return sl_fail(-ENOMEM, "no memory");
	memcpy(record, bytes, sl_metadata_bytes((struct sl_metadata *)bytes));
	free(blob->own_metadata);
	blob->metadata = blob->own_metadata = record;
	return 0;
}

/* ------------------------------------------------------------------------------------ tensors */

/* Releases the blob, but not in a child of fork(), which may not use sluice. */
static void blob_release_tensor(void *owner)
{
	sluice_blob *blob = owner;

	if (sl_process_is(blob->store->process))
		sl_blob_release_handle(blob);
}

int sluice_blob_to_dlpack(sluice_blob *blob, unsigned version, void **out)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct sl_dlpack_source source = {.read_only = true, .release = blob_release_tensor};

	if (!blob || !out || version > 1)
		return sl_fail(-EINVAL, "sluice_blob_to_dlpack: NULL, or version %u", version);
	int rc = sl_store_check(blob->store, "sluice_blob_to_dlpack");
	if (!rc)
		rc = sl_blob_check_no_part(blob, "sluice_blob_to_dlpack");
	if (rc)
		return rc;
	if (blob->state != SLUICE_BLOB_IS_SEALED || !blob->data)
		return sl_fail(-EPERM, "the blob is not sealed");
	if (blob->metadata)
		sl_metadata_read(blob->metadata, &m);
	if (!sl_type_find(m.type))
		return sl_fail(-EINVAL, "the blob's metadata does not say what its elements are");
	source.owner = blob;
	source.data = blob->data;
	source.device = blob->sdev ? blob->sdev->device : NULL;
	source.type = m.type;
	source.rank = m.rank;
	source.shape = m.shape;
	source.strides = m.strides;
	source.offset = m.offset;
	atomic_fetch_add(&blob->references, 1);
	atomic_fetch_add(&blob->store->handles, 1);
	rc = sl_dlpack_export(&source, version, out);
	if (rc)
		sl_blob_release_handle(blob);
	return rc;
}
