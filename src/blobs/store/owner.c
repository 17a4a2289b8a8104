/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners: blobs with parts
 *
 * An owner has its parts' handles from adopt on, or, after a get, as the caller asks for them: the
 * hold on the owner keeps the parts where the catalogue says that they are. Any thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "store/device/store_devices.h"

static int owner_check(sluice_blob *owner, sluice_blob *const *parts, size_t count)
{
	int rc = sl_blobs_check("sluice_blob_adopt", &owner, 1);

	if (!rc && (!count || count > SLUICE_BLOB_PARTS_MOST || !parts))
		rc = sl_fail(-EINVAL, "sluice_blob_adopt: %zu parts, or NULL; there may be %d",
		             count, SLUICE_BLOB_PARTS_MOST);
	if (!rc && (owner->part_count || owner->sdev || !(owner->flags & SLUICE_BLOB_ALONE)))
		rc = sl_fail(-EINVAL, "sluice_blob_adopt: the owner has parts, is on a device, or "
		                      "was made without SLUICE_BLOB_ALONE");
	for (size_t i = 0; !rc && i < count; i++) {
		rc = sl_blobs_check("sluice_blob_adopt", &parts[i], 1);
		if (!rc &&
		    (parts[i] == owner || parts[i]->store != owner->store || parts[i]->part_count ||
		     parts[i]->name[0] || !(parts[i]->flags & SLUICE_BLOB_ALONE)))
			rc = sl_fail(-EINVAL,
			             "sluice_blob_adopt: part %zu is the owner, of another store, "
			             "has parts or a name, or was made without SLUICE_BLOB_ALONE",
			             i);
		for (size_t j = 0; !rc && j < i; j++)
			if (parts[i] == parts[j])
				rc = sl_fail(-EINVAL, "sluice_blob_adopt: part %zu is there twice",
				             i);
	}
	return rc;
}

int sluice_blob_adopt(sluice_blob *owner, sluice_blob *const *parts, size_t count)
{
	int rc = owner_check(owner, parts, count);

	if (rc)
		return rc;
	owner->parts = calloc(count, sizeof(*owner->parts));
	if (!owner->parts)
		return sl_fail(-ENOMEM, "no memory");
	for (size_t i = 0; i < count; i++) {
		atomic_init(&owner->parts[i], parts[i]);
		parts[i]->owner = owner;
	}
	owner->part_count = (unsigned)count;
	return 0;
}

unsigned sluice_blob_parts(const sluice_blob *blob)
{
	return blob ? blob->part_count : 0;
}

/* Makes a handle of a part of an owner that is held. */
static int owner_map_part(sluice_blob *owner, unsigned index, const struct sluice_addresses *at,
                          sluice_blob **out)
{
	const struct sl_mapping *mapping = owner->mapping;
	struct sl_blob_record record = owner->held.record;
	int rc = 0;

	for (unsigned i = 0; !rc && i <= index; i++)
		rc = sl_reader_part(&owner->view->reader, &record, &record);
	if (rc)
		return sl_fail(-EPROTO, "the parts of a blob are not what a server writes");
	sluice_blob *part = sl_blob_new(owner->store);
	if (!part)
		return sl_fail(-ENOMEM, "no memory");
	atomic_init(&part->state, SLUICE_BLOB_IS_SEALED);
	part->owner = owner;
	rc = sl_blob_map(part, &record, owner->view->epoch,
	                 mapping->by_driver ? mapping->for_device : NULL, at, SL_FOREVER);
	if (rc) {
		sl_blob_release_handle(part);
		return rc == -ESTALE ? sl_fail(rc, "the blob is of a daemon that is gone") : rc;
	}
	*out = part;
	return 0;
}

/* Checks the arguments of a call; `out` is its result. */
static int owner_check_part(sluice_blob *owner, unsigned index, const void *out, const char *call)
{
	int rc = owner && out ? sl_store_check(owner->store, call)
	                      : sl_fail(-EINVAL, "%s: NULL", call);

	if (!rc && index >= owner->part_count)
		rc = sl_fail(-ENOENT, "the blob has %u parts, and no part %u", owner->part_count,
		             index);
	return rc;
}

int sluice_blob_part(sluice_blob *owner, unsigned index, sluice_blob **out)
{
	sluice_blob *part, *before = NULL;
	int rc = owner_check_part(owner, index, out, "sluice_blob_part");

	if (rc)
		return rc;
	part = atomic_load(&owner->parts[index]);
	if (!part) {
		rc = owner_map_part(owner, index, NULL, &part);
		/* Another thread may have been faster. */
		if (!rc && !atomic_compare_exchange_strong(&owner->parts[index], &before, part)) {
			sl_blob_release_handle(part);
			part = before;
		}
	}
	if (!rc)
		*out = part;
	return rc;
}

/* --------------------------------------------------------------------------- vacant addresses */

int sluice_blob_part_vacate(sluice_blob *owner, unsigned index, struct sluice_addresses *out)
{
	int rc = owner_check_part(owner, index, out, "sluice_blob_part_vacate");
	sluice_blob *part = rc ? NULL : atomic_load(&owner->parts[index]);

	if (!rc && (!part || !part->mapping || part->state != SLUICE_BLOB_IS_SEALED))
		rc = sl_fail(-EPERM,
		             "sluice_blob_part_vacate: part %u is not mapped, or not "
		             "sealed",
		             index);
	if (!rc)
		rc = sl_mapping_vacate(owner->store, part->mapping, out);
	if (rc)
		return rc;
	part->mapping = NULL;
	atomic_store(&owner->parts[index], NULL);
	sl_blob_release_handle(part);
	return 0;
}

int sluice_blob_part_at(sluice_blob *owner, unsigned index, const struct sluice_addresses *at,
                        sluice_blob **out)
{
	int rc = owner_check_part(owner, index, at ? out : NULL, "sluice_blob_part_at");
	sluice_blob *part;

	if (!rc && (owner->state != SLUICE_BLOB_IS_SEALED || !at->start ||
	            atomic_load(&owner->parts[index])))
		rc = sl_fail(-EINVAL, "sluice_blob_part_at: the part is mapped, or not sealed, or "
		                      "there are no addresses");
	if (!rc)
		rc = owner_map_part(owner, index, at, &part);
	if (rc)
		return rc;
	atomic_store(&owner->parts[index], part);
	*out = part;
	return 0;
}

int sluice_addresses_free(const struct sluice_addresses *at)
{
	struct sl_device *device =
		at && at->device >= 0 ? sl_device_find((unsigned)at->device) : NULL;
	int rc = sl_device_check_process();

	if (!rc && (!device || !device->sharing))
		rc = sl_fail(-EINVAL, "sluice_addresses_free: there are none");
	if (rc)
		return rc;
	rc = device->sharing->abandon(device, at->start, at->bytes);
	return rc ? sl_fail(rc, "%s does not take addresses back: %s", device->name,
	                    sl_error_text(rc))
	          : 0;
}
