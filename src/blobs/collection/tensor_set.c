/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collections
 *
 * Attaches to collections and describes their tensors. A handle is fixed once it is made, but for
 * its users; any thread.
 */
#include "collection/collection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "device/device.h"
#include "io/io.h"

/* A daemon that goes while a collection is mapped is looked for again so often. */
#define TRIES 8

int sl_collection_map(sluice_collection *c, sluice_blob *owner, const struct sl_table *table,
                      struct sluice_addresses *kept)
{
	unsigned mapped = 0;
	int rc = 0;

	while (!rc && mapped < sluice_blob_parts(owner)) {
		unsigned i = mapped;
		sluice_blob *part;

		rc = kept ? sluice_blob_part_at(owner, i, &kept[i], &part)
		          : sluice_blob_part(owner, i, &part);
		if (rc)
			break;
		mapped++;
		if (table->ends[i] > sluice_blob_size(part))
			rc = sl_fail(-EBADMSG,
			             "the collection is damaged: part %u has %zu bytes, and its "
			             "tensors %" PRIu64,
			             i, sluice_blob_size(part), table->ends[i]);
		c->data[i] = sluice_blob_mutable_data(part);
		if (!c->data[i])
			c->data[i] = (char *)sluice_blob_data(part);
		c->device[i] = sluice_blob_device(part);
	}
	while (rc && kept && mapped--)
		if (sluice_blob_part_vacate(owner, mapped, &kept[mapped]))
			kept[mapped].start = NULL;
	return rc;
}

int sl_collection_wrap(sluice_blob *owner, const void *bytes, size_t n, sluice_collection **out)
{
	sluice_collection *c = calloc(1, sizeof(*c));
	int rc = c ? sl_process_enter(&c->process) : sl_fail(-ENOMEM, "no memory");

	if (!rc) {
		atomic_init(&c->users, 1);
		sl_mutex_init(&c->mutex);
		c->owner = owner;
		rc = sl_table_read(bytes, n, sluice_blob_parts(owner), &c->table);
	}
	if (!rc) {
		c->map_ns = sl_now();
		rc = sl_collection_map(c, owner, &c->table, NULL);
		c->map_ns = sl_now() - c->map_ns;
	}
	if (rc && c)
		free(c->table.memory);
	if (rc)
		free(c);
	else
		*out = c;
	return rc;
}

/* ------------------------------------------------------------------------------ attach, release */

static int collection_attach(sluice_store *s, const char *name, uint64_t id, int device,
                             int timeout_ms, sluice_collection **out)
{
	sluice_blob *owner = NULL;
	int rc = -ESTALE;

	if (!out || (!name && !id))
		return sl_fail(-EINVAL, "sluice_collection_attach: NULL");
	for (unsigned i = 0; rc == -ESTALE && i < TRIES; i++) {
		if (id)
			rc = sluice_blob_get_id(s, id, timeout_ms, &owner);
		else if (device >= 0)
			rc = sluice_blob_get_on(s, name, device, timeout_ms, &owner);
		else
			rc = sluice_blob_get(s, name, timeout_ms, &owner);
		if (rc)
			return rc;
		rc = sl_collection_wrap(owner, sluice_blob_data(owner), sluice_blob_size(owner),
		                        out);
		if (rc)
			sluice_blob_release(owner);
	}
	return rc;
}

int sluice_collection_attach(sluice_store *s, const char *name, int device, int timeout_ms,
                             sluice_collection **out)
{
	return collection_attach(s, name, 0, device, timeout_ms, out);
}

int sluice_collection_attach_id(sluice_store *s, uint64_t id, int timeout_ms,
                                sluice_collection **out)
{
	return collection_attach(s, NULL, id, -1, timeout_ms, out);
}

static int collection_check(const sluice_collection *c, const char *call)
{
	if (!c)
		return sl_fail(-EINVAL, "%s: NULL", call);
	return sl_process_is(c->process) ? 0 : sl_process_refuse();
}

void sl_collection_settle(sluice_collection *c)
{
	sl_mutex_lock(&c->mutex);
	for (unsigned i = 0; i < c->copy_count; i++) {
		sluice_event_synchronize(c->copies[i]);
		sluice_event_free(c->copies[i]);
	}
	free(c->copies);
	c->copies = NULL;
	c->copy_count = 0;
	sl_mutex_unlock(&c->mutex);
}

/* Does nothing in a child of fork(), which may not use sluice. */
static void collection_unref(void *collection)
{
	sluice_collection *c = collection;

	if (!sl_process_is(c->process) || atomic_fetch_sub(&c->users, 1) != 1)
		return;
	sl_collection_settle(c);
	sluice_blob_release(c->owner);
	for (unsigned i = 0; c->kept && i < c->table.head.parts; i++)
		if (c->kept[i].start)
			sluice_addresses_free(&c->kept[i]);
	sl_mutex_destroy(&c->mutex);
	free(c->kept);
	free(c->table.memory);
	free(c);
}

int sluice_collection_release(sluice_collection *c)
{
	int rc = c ? collection_check(c, "sluice_collection_release") : 0;

	if (c && !rc)
		collection_unref(c);
	return rc;
}

sluice_blob *sluice_collection_blob(const sluice_collection *c)
{
	return c ? c->owner : NULL;
}

/* ------------------------------------------------------------------------------------- tensors */

size_t sluice_collection_count(const sluice_collection *c)
{
	return c ? c->table.head.count : 0;
}

/* After the seal the owner may be one that is not held. */
int sl_collection_check(const sluice_collection *c, const char *call)
{
	int rc = collection_check(c, call);

	if (!rc && !c->owner)
		rc = sl_fail(-ESTALE, "%s: the collection is kept without memory", call);
	else if (!rc && !sluice_blob_data(c->owner))
		rc = sl_fail(-ESTALE, "the collection was sealed, and not held: it was deleted or "
		                      "replaced at once, or the store holds too many blobs");
	return rc;
}

static int collection_check_index(const sluice_collection *c, const char *call, size_t index,
                                  const void *out)
{
	int rc = sl_collection_check(out ? c : NULL, call);

	if (!rc && index >= c->table.head.count)
		rc = sl_fail(-ENOENT, "the collection has %" PRIu64 " tensors, and no number %zu",
		             c->table.head.count, index);
	return rc;
}

int sluice_collection_get(const sluice_collection *c, size_t index,
                          struct sluice_collection_tensor *out)
{
	int rc = collection_check_index(c, "sluice_collection_get", index, out);
	struct sluice_collection_tensor told = {0};

	if (!rc && out->size < sizeof(out->size))
		rc = sl_fail(-EINVAL, "sluice_collection_get: out->size is not set");
	if (rc)
		return rc;
	const struct sl_table_row *row = &c->table.rows[index];
	told.name = c->table.text + row->name;
	told.type = row->type;
	told.rank = row->rank;
	told.shape = c->table.shapes + row->shape;
	told.device = c->device[row->part];
	told.data = c->data[row->part] + row->offset;
	told.bytes = row->bytes;
	sl_struct_give(out, &told, sizeof(told));
	return 0;
}

int sluice_collection_find(const sluice_collection *c, const char *name, size_t *index)
{
	int rc = collection_check(name && index ? c : NULL, "sluice_collection_find");

	if (rc)
		return rc;
	size_t found = sl_table_find(&c->table, name);
	if (found == SIZE_MAX)
		return sl_fail(-ENOENT, "there is no tensor '%.256s'", name);
	*index = found;
	return 0;
}

int sluice_collection_get_file(const sluice_collection *c, size_t index,
                               struct sluice_collection_file *out)
{
	int rc = sl_collection_check(out ? c : NULL, "sluice_collection_get_file");

	if (!rc && index >= c->table.head.files)
		rc = sl_fail(-ENOENT, "the collection has %" PRIu64 " files, and no number %zu",
		             c->table.head.files, index);
	if (rc)
		return rc;
	const struct sl_table_file *file = &c->table.files[index];
	const char *bytes = sluice_blob_data(c->owner);
	*out = (struct sluice_collection_file){c->table.text + file->name, bytes + file->begin,
	                                       file->bytes};
	return 0;
}

int sluice_collection_to_dlpack(sluice_collection *c, size_t index, unsigned version, void **out)
{
	int rc = collection_check_index(c, "sluice_collection_to_dlpack", index, out);
	struct sl_dlpack_source source = {.release = collection_unref, .owner = c};

	if (!rc && version > 1)
		rc = sl_fail(-EINVAL, "sluice_collection_to_dlpack: version %u", version);
	if (rc)
		return rc;
	const struct sl_table_row *row = &c->table.rows[index];
	source.data = c->data[row->part] + row->offset;
	source.device = c->device[row->part] < 0 ? NULL : sl_device_find(c->device[row->part]);
	source.type = row->type;
	source.rank = row->rank;
	source.shape = (const int64_t *)(c->table.shapes + row->shape);
	source.read_only = !sluice_blob_mutable_data(c->owner);
	atomic_fetch_add(&c->users, 1);
	rc = sl_dlpack_export(&source, version, out);
	if (rc)
		collection_unref(c);
	return rc;
}
