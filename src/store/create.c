/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs of this process, until they are sealed. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/devices.h"

/* What the server gives a place among others. */
#define SMALL_BYTES     65536
#define SMALL_ON_DEVICE (1 << 20)
#define LEAST_ON_DEVICE (32 << 10)

/* ------------------------------------------------------------------------------------- leases */

/* Leases that came with an answer of that server. */
static void stock_add(sluice_store *store, uint64_t turn, const struct sl_lease *leases,
                      unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		bool full;

		if (!leases[i].id)
			continue;
		sl_mutex_lock(&store->mutex);
		full = store->stock_count == SL_STOCK_MOST;
		if (!full && store->turn == turn)
			store->stock[store->stock_count++] = leases[i];
		sl_mutex_unlock(&store->mutex);
		if (full)
			sl_tell_id(store, SL_MSG_ABORT, leases[i].id, turn);
	}
}

void sl_stock_give_back(sluice_store *store)
{
	uint64_t tickets[SL_STOCK_MOST], turn;
	unsigned n = 0, left = 0;

	sl_mutex_lock(&store->mutex);
	turn = store->turn;
	for (unsigned i = 0; i < store->stock_count; i++)
		if (store->stock[i].place.device < 0)
			tickets[n++] = store->stock[i].id;
		else
			store->stock[left++] = store->stock[i];
	store->stock_count = left;
	sl_mutex_unlock(&store->mutex);
	while (n--)
		sl_tell_id(store, SL_MSG_ABORT, tickets[n], turn);
}

/* Whether it fits, and is not much too large. */
static bool fits(const struct sl_place *place, const sluice_blob *blob)
{
	size_t n = blob->bytes, small = blob->post ? SMALL_ON_DEVICE : SMALL_BYTES;
	size_t least = blob->post ? LEAST_ON_DEVICE : 4096;
	uint64_t most = n <= small ? SL_MAX(n * 2, least) : n + n / 4;

	return place->kind == blob->kind && place->capacity >= n && place->capacity <= most &&
	       place->device == (blob->post ? blob->post->number : -1);
}

/* A lease in advance, if one fits; the one that came last is in the caches. */
static void lease_from_stock(sluice_store *store, sluice_blob *blob)
{
	/* The look is a system call that does not wait; so only work under way when a server dies is lost. */
	if (blob->flags & SLUICE_BLOB_ALONE ||
	    (blob->flags & SLUICE_BLOB_RESERVE && blob->name[0]) || !sl_wire_alive(store))
		return;
	sl_mutex_lock(&store->mutex);
	for (unsigned i = store->stock_count; !blob->lease.id && store->wire && i-- > 0;) {
		if (!fits(&store->stock[i].place, blob))
			continue;
		blob->lease = store->stock[i];
		blob->turn = store->turn;
		memmove(&store->stock[i], &store->stock[i + 1],
		        (--store->stock_count - i) * sizeof(store->stock[0]));
	}
	sl_mutex_unlock(&store->mutex);
}

/* ------------------------------------------------------------------------------------- create */

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

static int copy_options(const struct sluice_blob_options *from, struct sluice_blob_options *to)
{
	unsigned known = SL_BLOB_FLAGS | SLUICE_BLOB_COLD,
		 both = SLUICE_BLOB_RESERVE | SLUICE_BLOB_REPLACE;

	memset(to, 0, sizeof(*to));
	if (from && from->size < sizeof(from->size))
		return sl_fail(-EINVAL, "blob options: size is not set");
	if (from)
		memcpy(to, from, SL_MIN(from->size, sizeof(*to)));
	if (to->flags & ~known)
		return sl_fail(-EINVAL, "blob options: unknown flags 0x%x", to->flags & ~known);
	if ((to->flags & both) == both)
		return sl_fail(-EINVAL, "blob options: RESERVE and REPLACE");
	return 0;
}

int sl_blob_prepare(sluice_store *store, const struct sluice_blob_request *request,
                    sluice_blob **out)
{
	const char *name = request->name ? request->name : "";
	struct sluice_blob_options options;
	struct sl_post *post = NULL;
	sluice_blob *blob;
	int rc = copy_options(request->options, &options);

	if (!rc)
		rc = sl_name_check(name, SL_NAME_BYTES, true);
	if (!rc && (!request->bytes || request->bytes > INT64_MAX / 4))
		rc = sl_fail(-EINVAL, "a blob has 1 byte to 2 EiB, and not %zu bytes",
		             request->bytes);
	if (!rc && request->device != -1)
		rc = sl_post_numbered(store, request->device, &post);
	if (rc)
		return rc;
	blob = sl_blob_new(store);
	if (!blob)
		return sl_fail(-ENOMEM, "no memory");
	atomic_init(&blob->state, SLUICE_BLOB_IS_CREATED);
	if (post) {
		blob->post = post;
		blob->device = request->device;
		blob->kind = SLUICE_BLOB_ON_DEVICE;
	}
	blob->bytes = request->bytes;
	/* That one is none of the server's business. */
	blob->flags = options.flags & ~(unsigned)SLUICE_BLOB_COLD;
	blob->stays_cold = options.flags & SLUICE_BLOB_COLD;
	strcpy(blob->name, name);
	if (options.metadata)
		rc = sluice_blob_set_metadata(blob, options.metadata);
	if (rc)
		sl_blob_let_go(blob);
	else
		*out = blob;
	return rc;
}

void sl_lease_end(sluice_blob *blob, bool again)
{
	const struct sl_place *place = &blob->lease.place;
	/* A large one is others' again at once. */
	bool stock = again && !blob->entered && !blob->own_record &&
	             (blob->post ? place->capacity < place->region_bytes
	                         : place->capacity <= SMALL_BYTES);

	if (!blob->lease.id)
		return;
	if (stock)
		stock_add(blob->store, blob->turn, &blob->lease, 1);
	else
		sl_tell_id(blob->store, SL_MSG_ABORT, blob->lease.id, blob->turn);
	if (blob->lease.make && !stock)
		sl_far_cancel(blob->store, place->region);
	blob->lease.id = 0;
}

int sl_blobs_lease(sluice_store *store, sluice_blob *const *blobs, size_t count)
{
	sluice_blob *without[SL_ITEMS_MOST];
	struct sl_call call;
	union sl_message m;
	unsigned n = 0;
	int rc;

	for (size_t i = 0; i < count; i++)
		if (!blobs[i]->lease.id)
			without[n++] = blobs[i];
	if (!n)
		return 0;
	do {
		/* Of the server that knows the devices by these numbers; 0: any. */
		uint64_t turn = 0, before = 0;

		sl_message_begin(&m, SL_MSG_CREATE, 0, n);
		rc = 0;
		for (unsigned i = 0; !rc && i < n; i++) {
			struct sl_create_item *item = &m.create.items[i];

			item->bytes = without[i]->bytes;
			item->device = -1;
			item->kind = without[i]->kind;
			item->flags = without[i]->flags;
			if (without[i]->flags & SLUICE_BLOB_RESERVE)
				strcpy(item->name, without[i]->name);
			if (without[i]->post)
				rc = sl_post_number(store, without[i]->post, &item->device, &turn);
			if (!rc && before && before != turn)
				rc = -ECONNRESET;
			before = turn;
		}
		if (!rc)
			rc = sl_call_begin(store, &m, SL_MSG_LEASES, turn, SL_FOREVER, &call);
	} while (rc == -ECONNRESET);
	if (rc)
		return rc;
	if (m.head.count < n) {
		sl_call_end(store, &call);
		return sl_fail(-EPROTO, "the store gives less than it was asked for");
	}
	for (unsigned i = 0; i < n; i++) {
		without[i]->lease = m.leases.items[i];
		without[i]->turn = call.turn;
		without[i]->entered =
			without[i]->flags & SLUICE_BLOB_RESERVE && without[i]->name[0];
	}
	stock_add(store, call.turn, m.leases.items + n, m.head.count - n);
	sl_call_end(store, &call);
	sl_store_step("client: leased");
	return 0;
}

static int map_blob(sluice_blob *blob)
{
	const struct sl_place *place = &blob->lease.place;
	struct sl_far far = {.region = place->region,
	                     .kind = blob->kind,
	                     .writable = true,
	                     .post = blob->post,
	                     .turn = blob->turn};
	int rc = 0;

	if (place->capacity < blob->bytes || place->kind != blob->kind)
		return sl_fail(-EPROTO, "the store gives what it was not asked for");
	if (blob->post)
		rc = sl_words_open(blob->store, blob->post);
	if (!rc || rc == -ENOTSUP)
		rc = sl_mapping_acquire(blob->store, &far, SL_FOREVER, &blob->mapping);
	if (rc)
		return rc;
	if (place->offset + place->capacity > blob->mapping->bytes)
		return sl_fail(-EPROTO, "a place beyond its region");
	atomic_init(&blob->data, blob->mapping->base + place->offset);
	if (place->capacity == blob->mapping->bytes) {
		blob->cold = blob->mapping->fresh;
		blob->mapping->fresh = false;
	}
	return 0;
}

/* The server may have been replaced between the lease and the mapping: then once more. */
static int give_memory(sluice_store *store, sluice_blob *const *blobs, size_t count)
{
	int rc;

	for (unsigned tries = 0; tries < 3; tries++) {
		rc = sl_blobs_lease(store, blobs, count);
		for (size_t i = 0; !rc && i < count; i++)
			if (!blobs[i]->mapping)
				rc = map_blob(blobs[i]);
		if (rc != -ESTALE)
			break;
		for (size_t i = 0; i < count; i++) {
			if (blobs[i]->mapping)
				sl_mapping_release(store, blobs[i]->mapping);
			blobs[i]->mapping = NULL;
			sl_lease_end(blobs[i], !blobs[i]->post);
		}
	}
	return rc == -ESTALE ? sl_fail(-ECONNRESET, "the server was replaced") : rc;
}

void sl_blobs_give_up(sluice_blob *const *blobs, size_t count, int rc)
{
	char *message = strdup(sluice_last_message());

	while (count--)
		sl_blob_let_go(blobs[count]);
	if (message)
		sl_fail(rc, "%s", message);
	free(message);
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
			lease_from_stock(store, blobs[made++]);
	}
	if (!rc)
		rc = give_memory(store, blobs, count);
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

void *sluice_blob_mutable_data(sluice_blob *blob)
{
	return blob && blob->state == SLUICE_BLOB_IS_CREATED ? blob->data : NULL;
}

int sluice_blob_set_metadata(sluice_blob *blob, const struct sluice_blob_metadata *m)
{
	_Alignas(8) unsigned char bytes[SL_METADATA_MOST];
	struct sl_metadata *record = (struct sl_metadata *)bytes;
	int rc;

	if (!blob || !m)
		return sl_fail(-EINVAL, "sluice_blob_set_metadata: NULL");
	rc = sl_store_check(blob->store, "sluice_blob_set_metadata");
	if (!rc && blob->state != SLUICE_BLOB_IS_CREATED)
		rc = sl_fail(-EPERM, "the blob is sealed");
	if (!rc)
		rc = sl_promised(blob);
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
	free(blob->own_record);
	blob->record = blob->own_record = record;
	return 0;
}

/* -------------------------------------------------------------------------------------- seal */

/* Holds what the server of that turn says is sealed; -ENOBUFS: it is sealed, and we cannot. */
static int settle(sluice_blob *blob, const struct sl_found_item *item, uint64_t turn)
{
	struct sl_view *view = sl_view_acquire_of(blob->store, turn);
	int rc = view ? sl_reader_take(&view->reader, item->slot, item->generation, &blob->held)
	              : -EAGAIN;

	blob->lease.id = 0;
	blob->id = item->id;
	if (rc) {
		/* Or it was deleted before we could hold it. Nothing of it may be looked at any more. */
		if (view)
			sl_view_release(view);
		blob->data = NULL;
	} else {
		blob->view = view;
	}
	blob->state = SLUICE_BLOB_IS_SEALED;
	return rc == -ENOSPC
	               ? sl_fail(-ENOBUFS,
	                         "the blob is sealed, but this store holds %d blobs, which is "
	                         "all it may",
	                         SLUICE_STORE_HOLDS_MOST)
	               : 0;
}

/* Whether a seal, whose answer was lost with its server, has happened. */
static int locate(sluice_blob *blob)
{
	struct sl_call call;
	union sl_message m;
	bool found = false;
	int rc;

	sl_message_begin(&m, SL_MSG_LOCATE, 0, 0);
	m.locate.region = blob->lease.place.region;
	m.locate.offset = blob->lease.place.offset + blob->start;
	do
		rc = sl_call_begin(blob->store, &m, SL_MSG_FOUND, 0, SL_FOREVER, &call);
	while (rc == -ECONNRESET);
	if (!rc) {
		/* What another daemon's server has at that place is not this one. */
		found = sl_same_daemon(call.turn, blob->turn);
		if (found)
			rc = settle(blob, &m.found.items[0], call.turn);
		sl_call_end(blob->store, &call);
	}
	return found ? rc
	             : sl_fail(-ECONNRESET, "the server was replaced before the blob was sealed");
}

int sl_blobs_seal(sluice_store *store, sluice_blob *const *v, size_t count)
{
	struct sl_call call;
	union sl_message m, note;
	int rc = 0;

	sl_message_begin(&m, SL_MSG_SEAL, 0, (unsigned)count);
	for (size_t i = 0; i < count; i++) {
		struct sl_seal_item *item = &m.seal.items[i];

		item->lease = v[i]->lease.id;
		item->bytes = v[i]->bytes;
		item->start = v[i]->start;
		item->flags = v[i]->flags;
		strcpy(item->name, v[i]->name);
		/* Tickets of one server are nothing to another one, which may have given the same numbers to others. */
		if (v[i]->turn != v[0]->turn)
			rc = -ECONNRESET;
		/* One record travels with the seal, several before it. */
		if (!v[i]->own_record)
			continue;
		sl_message_begin(&note, SL_MSG_ANNOTATE, 0, 0);
		note.annotate.lease = v[i]->lease.id;
		sl_message_add_metadata(count > 1 ? &note : &m, v[i]->own_record);
		if (count > 1)
			sl_tell(store, &note, v[0]->turn, -1);
	}
	if (!rc)
		rc = sl_call_begin(store, &m, SL_MSG_FOUND, v[0]->turn, SL_FOREVER, &call);
	if (rc == -ECONNRESET) {
		rc = 0;
		for (size_t i = 0; !rc && i < count; i++)
			rc = locate(v[i]);
		return rc;
	}
	if (rc)
		return rc;
	if (m.head.count != count)
		rc = sl_fail(-EPROTO, "the store answers what was not asked");
	sl_store_step("client: sealed");
	for (size_t i = 0; m.head.count == count && i < count; i++) {
		int held = settle(v[i], &m.found.items[i], call.turn);

		rc = rc ? rc : held;
		stock_add(store, call.turn, &m.found.items[i].lease, 1);
	}
	sl_call_end(store, &call);
	return rc;
}

int sl_blobs_check(const char *call, sluice_blob *const *v, size_t count)
{
	int rc;

	if (!v || !count || count > SL_ITEMS_MOST || !v[0])
		return sl_fail(-EINVAL, "%s: %zu blobs, or NULL; there may be %d", call, count,
		               SLUICE_BLOB_BATCH);
	rc = sl_store_check(v[0]->store, call);
	for (size_t i = 0; !rc && i < count; i++) {
		if (!v[i] || v[i]->store != v[0]->store)
			rc = sl_fail(-EINVAL, "%s: blobs of several stores, or NULL", call);
		else if (v[i]->state != SLUICE_BLOB_IS_CREATED)
			rc = sl_fail(-EPERM, "the blob is sealed");
		else if (count > 1 && v[i]->flags & SLUICE_BLOB_REPLACE)
			rc = sl_fail(-EINVAL, "%s: one that replaces, with others", call);
		else
			rc = sl_promised(v[i]);
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
