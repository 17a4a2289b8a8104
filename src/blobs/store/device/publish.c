/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing device memory that the program has allocated
 *
 * Makes a blob from a part of any allocation on a device. Other processes open the allocation by a
 * description from its driver, which travels in a sealed memfd as if that were the memory. The
 * thread of the caller does all of it.
 */
#include <errno.h>
#include <unistd.h>

#include "store/device/store_devices.h"

/* Finds the device of the memory, and describes the allocation. */
static int publish_ask_device(sluice_store *store, const void *memory, size_t n,
                              struct sl_store_device **sdev, struct sl_lent_memory *lent)
{
	struct sl_device *device = sl_device_of_memory(memory);

	if (!device)
		return sl_fail(-EINVAL, "%p is no memory of a device", memory);
	int rc = sl_store_device_by_index(store, device->index, sdev);
	if (rc)
		return rc;
	if (!device->sharing->lend)
		return sl_fail(-ENOTSUP, "%s cannot share what others have allocated",
		               device->name);
	rc = device->sharing->lend(device, memory, lent);
	if (rc)
		return sl_fail(rc, "%s cannot share this memory: %s", device->name,
		               sl_error_text(rc));
	uint64_t before = (uint64_t)((uintptr_t)memory - (uintptr_t)lent->start);
	if (before > lent->length || n > lent->length - before)
		return sl_fail(-EINVAL, "%zu bytes from %p on are not all in one allocation", n,
		               memory);
	return 0;
}

/* Leases a region for the allocation, and offers the description as its descriptor. */
static int publish_offer(sluice_blob *blob, const struct sl_lent_memory *lent, int letter)
{
	struct sl_map_request request = {.kind = SLUICE_BLOB_OF_PROCESS, .sdev = blob->sdev};
	size_t bytes = blob->bytes;
	union sl_message m;

	/* The region is the whole allocation. */
	blob->bytes = lent->length;
	int rc = sl_blobs_lease(blob->store, &blob, 1);
	blob->bytes = bytes;
	if (rc)
		return rc;
	if (blob->lease.range.kind != SLUICE_BLOB_OF_PROCESS || !blob->lease.make)
		return sl_fail(-EPROTO, "the store gives what it was not asked for");
	request.region = blob->lease.range.region;
	request.epoch = blob->epoch;
	rc = sl_mapping_add_published(blob->store, &request, (void *)(uintptr_t)lent->start,
	                              lent->length, &blob->mapping);
	if (rc)
		return rc;
	sl_message_begin(&m, SL_MSG_OFFER, 0, 0);
	m.offer.region = request.region;
	rc = sl_tell(blob->store, &m, blob->epoch, letter);
	sl_store_step("client: lent");
	return rc;
}

int sluice_blob_publish(sluice_store *store, const char *name, const void *memory, size_t n,
                        const struct sluice_blob_options *o, sluice_blob **out)
{
	struct sluice_blob_request request = {name, n, -1, o};
	int rc = sl_store_check(store, "sluice_blob_publish");
	struct sl_lent_memory lent;
	struct sl_store_device *sdev;
	sluice_blob *blob;
	int letter = -1;

	if (!rc && !out)
		rc = sl_fail(-EINVAL, "sluice_blob_publish: out is NULL");
	if (!rc)
		rc = sl_blob_prepare(store, &request, &blob);
	if (rc)
		return rc;
	rc = publish_ask_device(store, memory, n, &sdev, &lent);
	if (!rc) {
		blob->flags &= ~(unsigned)(SLUICE_BLOB_RESERVE | SLUICE_BLOB_ALONE);
		blob->sdev = sdev;
		blob->device = sdev->device->index;
		blob->kind = SLUICE_BLOB_OF_PROCESS;
		atomic_init(&blob->data, (char *)(uintptr_t)memory);
		blob->start = (uint64_t)((uintptr_t)memory - (uintptr_t)lent.start);
		rc = sl_memory_begin("sluice-lent", sizeof(lent), &lent, sizeof(lent), true,
		                     &letter);
		if (rc)
			sl_fail(rc, "cannot make a memfd: %s", sl_error_text(rc));
	}
	if (!rc) {
		rc = publish_offer(blob, &lent, letter);
		close(letter);
		if (rc == -ESTALE)
			rc = sl_fail(-ECONNRESET, "the server was replaced");
	}
	if (!rc)
		rc = sl_blobs_seal(store, &blob, 1);
	if (rc)
		sl_blobs_give_up(&blob, 1, rc);
	else
		*out = blob;
	return rc;
}
