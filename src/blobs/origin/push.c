/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing and removing objects
 *
 * Uploads the bytes of a blob, or a collection as a .safetensors file, straight from the
 * memory of the store. The caller's thread waits.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "origin/origin.h"

/* The bytes to upload, from front to back. */
struct push {
	struct sluice_extent *extents;
	int *devices; /* of each; -1: the host */
	size_t count;
	uint64_t bytes;
};

static void push_add(struct push *p, const void *data, size_t n, int device)
{
	p->extents[p->count] = (struct sluice_extent){(void *)data, n, p->bytes};
	p->devices[p->count++] = device;
	p->bytes += n;
}

static int push_reserve(struct push *p, size_t count)
{
	p->extents = calloc(count, sizeof(*p->extents));
	p->devices = calloc(count, sizeof(*p->devices));
	return p->extents && p->devices ? 0 : sl_fail(-ENOMEM, "no memory for %zu tensors", count);
}

static int push_list_tensors(struct push *p, const sluice_collection *c)
{
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	size_t count = sluice_collection_count(c);
	const char *owner = sluice_blob_data(sluice_collection_blob(c));
	int rc = push_reserve(p, count + 1);
	uint64_t header;

	if (rc)
		return rc;
	/* The table was checked when the collection was attached to. */
	memcpy(&header, owner, sizeof(header));
	push_add(p, owner, sizeof(header) + le64toh(header), -1);
	for (size_t i = 0; !rc && i < count; i++) {
		rc = sluice_collection_get(c, i, &t);
		if (!rc && t.bytes)
			push_add(p, t.data, t.bytes, t.device);
	}
	return rc;
}

static int push_list_bytes(struct push *p, const sluice_blob *blob)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	int rc = push_reserve(p, 1);
	bool empty = false;

	if (!rc)
		rc = sluice_blob_get_metadata(blob, &m);
	for (unsigned i = 0; !rc && m.type && i < m.rank; i++)
		empty |= !m.shape[i];
	if (!rc && !empty)
		push_add(p, sluice_blob_data(blob), sluice_blob_size(blob),
		         sluice_blob_device(blob));
	return rc;
}

/* Writes the extents; neighbours on a device take a single operation. */
static int push_write(const struct push *p, sluice_file *file)
{
	int rc = 0;

	for (size_t i = 0, n; !rc && i < p->count; i += n) {
		struct sluice_request r = SLUICE_REQUEST_INIT;
		sluice_op *op;

		for (n = 1; i + n < p->count && p->devices[i + n] == p->devices[i];)
			n++;
		r.kind = SLUICE_WRITE;
		r.extents = p->extents + i;
		r.count = n;
		rc = sluice_submit(file, &r, &op);
		if (rc)
			break;
		int64_t moved = sluice_wait(op, -1);
		if (moved < 0)
			rc = sl_fail((int)moved, "%s", sluice_op_message(op));
		sluice_op_free(op);
	}
	return rc;
}

static int push_upload(struct sl_origin *o, const struct push *p, unsigned flags)
{
	sluice_file *file;

	o->open.flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | SLUICE_OPEN_REPLACE | flags;
	o->open.expected_size = p->bytes;
	int rc = sluice_open(o->given.ctx, o->uri, &o->open, &file);
	if (rc)
		return rc;
	rc = push_write(p, file);
	if (rc)
		sluice_discard(file);
	else
		rc = sluice_close(file);
	sl_origin_set_missing(o->uri, false);
	return rc;
}

/* Finds the object, for calls that change the object. */
static int push_find(const char *call, sluice_store *store, const struct sluice_origin *origin,
                     const char *name, struct sl_origin *o)
{
	int rc = sl_origin_find(call, store, origin, name, o);

	if (!rc)
		rc = sl_origin_name(call, o);
	if (!rc && !o->uri)
		rc = sl_fail(-EINVAL, "'%s': no origin is named, or the name begins with .sluice/",
		             name);
	return rc;
}

int sluice_blob_push(sluice_store *store, const struct sluice_origin *origin, const char *name,
                     unsigned flags)
{
	struct push p = {NULL, NULL, 0, 0};
	sluice_collection *c = NULL;
	sluice_blob *blob = NULL;
	struct sl_origin o;
	int rc = push_find("sluice_blob_push", store, origin, name, &o);

	if (rc)
		return rc;
	if (flags & ~(unsigned)SLUICE_OPEN_EXCLUSIVE)
		rc = sl_fail(-EINVAL, "sluice_blob_push: unknown flags");
	else if (sl_origin_is_index(name))
		rc = sl_fail(-EINVAL, "'%s': an index of files is not pushed", name);
	else
		rc = sluice_blob_get(store, name, 0, &blob);
	if (!rc && sluice_blob_parts(blob))
		rc = sluice_collection_attach_id(store, sluice_blob_id(blob), 0, &c);
	if (!rc)
		rc = c ? push_list_tensors(&p, c) : push_list_bytes(&p, blob);
	if (!rc)
		rc = push_upload(&o, &p, flags);
	sluice_collection_release(c);
	if (blob)
		sluice_blob_release(blob);
	free(p.extents);
	free(p.devices);
	free(o.uri);
	return rc;
}

int sluice_blob_delete_from(sluice_store *store, const struct sluice_origin *origin,
                            const char *name)
{
	struct sl_origin o;
	int rc = push_find("sluice_blob_delete_from", store, origin, name, &o);

	if (rc)
		return rc;
	/* First, so that no process fetches it in between. */
	rc = sluice_remove(o.given.ctx, o.uri, &o.open, NULL);
	free(o.uri);
	if (rc)
		return rc;
	rc = sluice_blob_delete(store, name);
	return rc == -ENOENT ? 0 : rc;
}
