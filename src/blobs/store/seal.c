/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing blobs
 *
 * Turns leases into blobs of the catalogue, all or none of a call. If the reply is lost with its
 * server, the next server says whether the seal has happened. Any thread; for seals in stream
 * order, the client thread.
 */
#include <errno.h>
#include <string.h>

#include "store/device/store_devices.h"

static _Thread_local uint64_t last_rival;

uint64_t sluice_last_rival(void)
{
	return last_rival;
}

void sl_set_last_rival(uint64_t id)
{
	last_rival = id;
}

/* After the seal of an owner: its parts are sealed as well. */
static void seal_parts(sluice_blob *owner)
{
	for (unsigned i = 0; i < owner->part_count; i++) {
		sluice_blob *part = owner->parts[i];

		part->lease.id = 0;
		if (!owner->data)
			part->data = NULL;
		part->state = SLUICE_BLOB_IS_SEALED;
	}
}

/* Holds a blob that the server of an epoch has sealed. -ENOBUFS: it is sealed, and not held. */
static int seal_hold(sluice_blob *blob, const struct sl_found_item *item, uint64_t epoch)
{
	struct sl_catalogue_view *view = sl_view_acquire_of(blob->store, epoch);
	int rc = view ? sl_reader_take(&view->reader, item->slot, item->generation, &blob->held)
	              : -EAGAIN;

	blob->lease.id = 0;
	blob->id = item->id;
	if (rc) {
		/* Or it was deleted before it could be held: its bytes are not read any more. */
		if (view)
			sl_view_release(view);
		blob->data = NULL;
	} else {
		blob->view = view;
	}
	blob->state = SLUICE_BLOB_IS_SEALED;
	seal_parts(blob);
	if (rc != -ENOSPC)
		return 0;
	return sl_fail(-ENOBUFS,
	               "the blob is sealed, but this store holds %d blobs, which is all it may",
	               SLUICE_STORE_HOLDS_MOST);
}

/* Finds out whether a seal happened, after its reply was lost with the server. */
static int seal_locate(sluice_blob *blob)
{
	struct sl_pending_call call;
	union sl_message m;
	bool found = false;
	int rc;

	sl_message_begin(&m, SL_MSG_LOCATE, 0, 0);
	m.locate.region = blob->lease.range.region;
	m.locate.offset = blob->lease.range.offset + blob->start;
	do
		rc = sl_call_begin(blob->store, &m, SL_MSG_FOUND, 0, SL_FOREVER, &call);
	while (rc == -ECONNRESET);
	if (!rc) {
		/* Another daemon may have another blob in this range. */
		found = sl_same_daemon(call.epoch, blob->epoch);
		if (found)
			rc = seal_hold(blob, &m.found.items[0], call.epoch);
		sl_call_end(blob->store, &call);
	}
	return found ? rc
	             : sl_fail(-ECONNRESET,
	                       "the server was replaced before the blob was sealed, or it was "
	                       "deleted since");
}

/* The same for all blobs of a seal: if one is there, all were sealed, and the others deleted. */
static int seal_locate_all(sluice_blob *const *v, size_t count)
{
	int rc = 0, lost = 0;

	for (size_t i = 0; i < count; i++) {
		int one = seal_locate(v[i]);

		lost += one == -ECONNRESET;
		rc = rc || one == -ECONNRESET ? rc : one;
	}
	for (size_t i = 0; lost < (int)count && i < count; i++)
		if (v[i]->state == SLUICE_BLOB_IS_CREATED) {
			v[i]->lease.id = 0;
			v[i]->data = NULL;
			v[i]->state = SLUICE_BLOB_IS_SEALED;
			seal_parts(v[i]);
		}
	return lost < (int)count ? rc : -ECONNRESET;
}

/* Lists the blobs of a seal as the message has them, an owner last. Returns their number. */
static unsigned seal_list(sluice_blob *const *v, size_t count, sluice_blob **all)
{
	unsigned n = v[0]->part_count;

	for (unsigned i = 0; i < n; i++)
		all[i] = atomic_load(&v[0]->parts[n - 1 - i]);
	memcpy(all + n, v, count * sizeof(*all));
	return n + (unsigned)count;
}

int sl_blobs_seal(sluice_store *store, sluice_blob *const *v, size_t count)
{
	sluice_blob *all[SL_ITEMS_MOST];
	unsigned n = seal_list(v, count, all);
	struct sl_pending_call call;
	union sl_message m, note;
	int rc = 0;

	sl_message_begin(&m, SL_MSG_SEAL, 0, n);
	for (unsigned i = 0; i < n; i++) {
		struct sl_seal_item *item = &m.seal.items[i];

		item->lease = all[i]->lease.id;
		item->bytes = all[i]->bytes;
		item->start = all[i]->start;
		item->flags = all[i]->owner ? SL_FLAG_PART : all[i]->flags;
		item->replaces = all[i]->replaces;
		strcpy(item->name, all[i]->name);
		/* Each server numbers leases: the number may be another client's lease. */
		if (all[i]->epoch != v[0]->epoch)
			rc = -ECONNRESET;
		/* Metadata travels with the seal for a single blob, before it for several. */
		if (!all[i]->own_metadata)
			continue;
		sl_message_begin(&note, SL_MSG_ANNOTATE, 0, 0);
		note.annotate.lease = all[i]->lease.id;
		sl_message_add_metadata(n > 1 ? &note : &m, all[i]->own_metadata);
		if (n > 1)
			sl_tell(store, &note, v[0]->epoch, -1);
	}
	if (!rc)
		rc = sl_call_begin(store, &m, SL_MSG_FOUND, v[0]->epoch, SL_FOREVER, &call);
	if (rc == -ESTALE)
		sl_set_last_rival(m.refusal.rival);
	if (rc)
		return rc == -ECONNRESET ? seal_locate_all(v, count) : rc;
	if (m.head.count != count)
		rc = sl_fail(-EPROTO, "the store answers what was not asked");
	sl_store_step("client: sealed");
	for (size_t i = 0; m.head.count == count && i < count; i++) {
		int held = seal_hold(v[i], &m.found.items[i], call.epoch);

		rc = rc ? rc : held;
		sl_lease_cache_add(store, call.epoch, &m.found.items[i].lease, 1);
	}
	sl_call_end(store, &call);
	return rc;
}

int sl_blobs_check(const char *call, sluice_blob *const *v, size_t count)
{
	if (!v || !count || count > SL_ITEMS_MOST || !v[0])
		return sl_fail(-EINVAL, "%s: %zu blobs, or NULL; there may be %d", call, count,
		               SLUICE_BLOB_BATCH);
	int rc = sl_store_check(v[0]->store, call);
	for (size_t i = 0; !rc && i < count; i++) {
		if (!v[i] || v[i]->store != v[0]->store)
			rc = sl_fail(-EINVAL, "%s: blobs of several stores, or NULL", call);
		else if (v[i]->state != SLUICE_BLOB_IS_CREATED)
			rc = sl_fail(-EPERM, "the blob is sealed");
		else if (count > 1 && (v[i]->flags & SLUICE_BLOB_REPLACE || v[i]->part_count))
			rc = sl_fail(-EINVAL, "%s: one that replaces or has parts, with others",
			             call);
		else if (v[i]->owner)
			rc = sl_blob_check_no_part(v[i], call);
		else
			rc = sl_blob_check_no_seal_pending(v[i]);
	}
	return rc;
}

int sluice_blob_seal_many(sluice_blob *const *v, size_t count)
{
	int rc = sl_blobs_check("sluice_blob_seal", v, count);

	return rc ? rc : sl_blobs_seal(v[0]->store, v, count);
}

int sluice_blob_seal(sluice_blob *blob)
{
	return sluice_blob_seal_many(&blob, 1);
}
