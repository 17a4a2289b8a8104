/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs as tensors
 *
 * Exports a sealed blob for DLPack, without a copy; the tensor holds the blob. Any thread.
 */
#include <errno.h>

#include "io/io.h"
#include "store/device/devices.h"

/* Releases the blob, but not in a child of fork(), which may not use sluice. */
static void dlpack_release_blob(void *owner)
{
	sluice_blob *blob = owner;

	if (sl_process_is(blob->store->process))
		sl_blob_release_handle(blob);
}

int sluice_blob_to_dlpack(sluice_blob *blob, unsigned version, void **out)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct sl_dlpack_source source = {.read_only = true, .release = dlpack_release_blob};
	int rc;

	if (!blob || !out || version > 1)
		return sl_fail(-EINVAL, "sluice_blob_to_dlpack: NULL, or version %u", version);
	rc = sl_store_check(blob->store, "sluice_blob_to_dlpack");
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
