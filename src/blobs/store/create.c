/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating blobs
 *
 * Leases memory and maps it. Any thread.
 */
#include <errno.h>
#include <string.h>

#include "store/device/store_devices.h"

static int blob_options_copy(const struct sluice_blob_options *from, struct sluice_blob_options *to)
{
	unsigned known = SL_BLOB_FLAGS | SLUICE_BLOB_COLD,
		 both = SLUICE_BLOB_RESERVE | SLUICE_BLOB_REPLACE;

	*to = (struct sluice_blob_options){0};
	int rc = sl_struct_take("blob options", from, to, sizeof(*to));
	if (rc)
		return rc;
	if (to->flags & ~known)
		return sl_fail(-EINVAL, "blob options: unknown flags 0x%x", to->flags & ~known);
	to->flags |= to->replaces ? SLUICE_BLOB_REPLACE : 0;
	if ((to->flags & both) == both)
		return sl_fail(-EINVAL, "blob options: RESERVE and REPLACE");
	return 0;
}

int sl_blob_prepare(sluice_store *store, const struct sluice_blob_request *r, sluice_blob **out)
{
	const char *name = r->name ? r->name : "";
	struct sluice_blob_options options;
	struct sl_store_device *sdev = NULL;
	int rc = blob_options_copy(r->options, &options);

	if (!rc)
		rc = sl_name_check(name, SL_NAME_BYTES, true);
	if (!rc && options.replaces && !name[0])
		rc = sl_fail(-EINVAL, "blob options: `replaces`, and the blob has no name");
	if (!rc && (!r->bytes || r->bytes > INT64_MAX / 4))
		rc = sl_fail(-EINVAL, "a blob has 1 byte to 2 EiB, and not %zu bytes", r->bytes);
	if (!rc && r->device != -1)
		rc = sl_store_device_by_index(store, r->device, &sdev);
	if (rc)
		return rc;
	sluice_blob *blob = sl_blob_new(store);
	if (!blob)
		return sl_fail(-ENOMEM, "no memory");
	atomic_init(&blob->state, SLUICE_BLOB_IS_CREATED);
	if (sdev) {
		blob->sdev = sdev;
		blob->device = r->device;
		blob->kind = SLUICE_BLOB_ON_DEVICE;
	}
	blob->bytes = r->bytes;
	/* COLD is no flag of the server's. */
	blob->flags = options.flags & ~(unsigned)SLUICE_BLOB_COLD;
	blob->replaces = options.replaces;
	blob->stays_cold = options.flags & SLUICE_BLOB_COLD;
	strcpy(blob->name, name);
	if (options.metadata)
		rc = sluice_blob_set_metadata(blob, options.metadata);
	if (rc)
		sl_blob_release_handle(blob);
	else
		*out = blob;
	return rc;
}

static int create_map(sluice_blob *blob)
{
	const struct sl_region_range *range = &blob->lease.range;
	struct sl_map_request request = {.region = range->region,
	                                 .kind = blob->kind,
	                                 .writable = true,
	                                 .epoch = blob->epoch,
	                                 .sdev = blob->sdev};
	int rc = 0;

	if (range->capacity < blob->bytes || range->kind != blob->kind)
		return sl_fail(-EPROTO, "the store gives what it was not asked for");
	if (blob->sdev)
		rc = sl_stream_words_open(blob->store, blob->sdev);
	if (!rc || rc == -ENOTSUP)
		rc = sl_mapping_acquire(blob->store, &request, SL_FOREVER, &blob->mapping);
	if (rc)
		return rc;
	if (range->offset + range->capacity > blob->mapping->bytes)
		return sl_fail(-EPROTO, "a range beyond its region");
	atomic_init(&blob->data, blob->mapping->base + range->offset);
	if (range->capacity == blob->mapping->bytes) {
		blob->cold = blob->mapping->fresh;
		blob->mapping->fresh = false;
	}
	return 0;
}

/* Leases and maps memory; starts again if the server is replaced between the two. */
static int blobs_give_memory(sluice_store *store, sluice_blob *const *blobs, size_t count)
{
	int rc;

	for (unsigned tries = 0; tries < 3; tries++) {
		rc = sl_blobs_lease(store, blobs, count);
		for (size_t i = 0; !rc && i < count; i++)
			if (!blobs[i]->mapping)
				rc = create_map(blobs[i]);
		if (rc != -ESTALE)
			break;
		for (size_t i = 0; i < count; i++) {
			if (blobs[i]->mapping)
				sl_mapping_release(store, blobs[i]->mapping);
			blobs[i]->mapping = NULL;
			sl_lease_end(blobs[i], !blobs[i]->sdev);
		}
	}
	return rc == -ESTALE ? sl_fail(-ECONNRESET, "the server was replaced") : rc;
}

int sluice_blob_create_many(sluice_store *store, const struct sluice_blob_request *v, size_t count,
                            sluice_blob **out)
{
	int rc = sl_store_check(store, "sluice_blob_create");
	sluice_blob *blobs[SL_ITEMS_MOST];
	size_t made = 0;

	if (!rc && (!v || !out || !count || count > SL_ITEMS_MOST))
		rc = sl_fail(-EINVAL, "sluice_blob_create: %zu blobs, or NULL; there may be %d",
		             count, SLUICE_BLOB_BATCH);
	while (!rc && made < count) {
		rc = sl_blob_prepare(store, &v[made], &blobs[made]);
		if (!rc)
			sl_lease_cache_take(store, blobs[made++]);
	}
	if (!rc)
		rc = blobs_give_memory(store, blobs, count);
	if (rc) {
		sl_blobs_give_up(blobs, made, rc);
		return rc;
	}
	for (size_t i = 0; i < count; i++)
		sl_blob_warm(blobs[i]);
	sl_store_step("client: created");
	memcpy(out, blobs, count * sizeof(*out));
	return 0;
}

int sluice_blob_create(sluice_store *store, const char *name, size_t n, int device,
                       const struct sluice_blob_options *o, sluice_blob **out)
{
	struct sluice_blob_request request = {name, n, device, o};

	return sluice_blob_create_many(store, &request, 1, out);
}
