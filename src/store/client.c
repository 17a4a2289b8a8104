/* SPDX-License-Identifier: Apache-2.0 */
/* The store itself, and what is asked of the server without getting a blob. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "store/devices.h"

#define PATIENCE_MS 5000
#define END         UINT64_MAX /* of a list */
#define CACHE_BYTES ((size_t)1 << 30)

/* -------------------------------------------------------------------------------- open, close */

int sl_store_path(const char *path, char out[108])
{
	const char *folder;
	int n;

	if (!path)
		path = getenv("SLUICE_STORE");
	if (path && *path) {
		n = snprintf(out, 108, "%s", path);
	} else {
		folder = getenv("XDG_RUNTIME_DIR");
		if (!folder || !*folder)
			return sl_fail(-EINVAL,
			               "no store is named: give the path of the socket of sluiced "
			               "(--socket), or set SLUICE_STORE or XDG_RUNTIME_DIR");
		n = snprintf(out, 108, "%s/sluice.sock", folder);
	}
	return n < 108 ? 0 : sl_fail(-EINVAL, "'%s' is too long for the path of a socket", out);
}

static void store_free(sluice_store *store)
{
	sl_mutex_destroy(&store->opening);
	sl_mutex_destroy(&store->mutex);
	pthread_cond_destroy(&store->connected);
	pthread_cond_destroy(&store->sent);
	pthread_cond_destroy(&store->mapped);
	free(store);
	sl_fork_leave();
}

int sluice_store_open(const char *path, const struct sluice_store_options *o, sluice_store **out)
{
	struct sluice_store_options options = {0};
	sluice_store *store;
	int64_t deadline;
	int rc;

	if (!out)
		return sl_fail(-EINVAL, "sluice_store_open: out is NULL");
	if (o && o->size < sizeof(o->size))
		return sl_fail(-EINVAL, "store options: size is not set");
	if (o)
		memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	rc = sl_fork_enter();
	if (rc)
		return rc;
	store = calloc(1, sizeof(*store));
	if (!store) {
		sl_fork_leave();
		return sl_fail(-ENOMEM, "no memory");
	}
	store->patience_ms = options.patience_ms ? options.patience_ms : PATIENCE_MS;
	store->cache_bytes = options.cache_bytes ? options.cache_bytes : CACHE_BYTES;
	store->device_cache_bytes =
		options.device_cache_bytes ? options.device_cache_bytes : CACHE_BYTES;
	sl_mutex_init(&store->opening);
	sl_mutex_init(&store->mutex);
	pthread_cond_init(&store->connected, NULL);
	pthread_cond_init(&store->sent, NULL);
	pthread_cond_init(&store->mapped, NULL);
	sl_list_init(&store->idle);
	for (unsigned i = 0; i < SL_MAPPING_BUCKETS; i++)
		sl_list_init(&store->mappings[i]);
	rc = sl_store_path(path, store->path);
	deadline = sl_deadline((int)store->patience_ms);
	/* A server that is being replaced hangs up on those that it has let in last. */
	if (!rc)
		do
			rc = sl_wire_open(store, true, SL_FOREVER);
		while (rc == -ECONNRESET && sl_now() < deadline);
	if (rc) {
		store_free(store);
		return rc;
	}
	*out = store;
	return 0;
}

int sluice_store_close(sluice_store *store)
{
	unsigned handles = store ? atomic_load(&store->handles) : 0;
	int rc = store ? sl_store_check(store, "sluice_store_close") : 0;

	if (rc || !store)
		return rc;
	if (handles)
		return sl_fail(-EBUSY, "%u blobs, tensors or watches of it are held", handles);
	if (sl_devices_of(store)) {
		sl_promises_wait(sl_devices_of(store));
		if (!sl_devices_stop(store))
			return 0; /* the process ends */
	}
	/* Before the server hears that we have nothing mapped. */
	sl_mappings_free(store);
	sl_devices_free(store);
	sl_wire_close(store);
	store_free(store);
	return 0;
}

/* ------------------------------------------------------------------------------------ one blob */

int sl_key_set(struct sl_key *key, const char *name, uint64_t id)
{
	int rc = name ? sl_name_check(name, SL_NAME_BYTES, false) : 0;

	*key = (struct sl_key){.id = name ? 0 : id};
	if (!name && !id)
		rc = sl_fail(-EINVAL, "neither a name nor an id");
	if (name && !rc)
		strcpy(key->name, name);
	return rc;
}

/* m: for the answer; NULL: nobody looks at it. */
static int ask(sluice_store *store, enum sl_message_type type, const char *name, uint64_t id,
               unsigned on, union sl_message *m)
{
	int rc = sl_store_check(store, "the store");
	union sl_message own;
	struct sl_reply reply;

	if (rc)
		return rc;
	m = m ? m : &own;
	sl_message_begin(m, type, 0, 0);
	m->one.on = on;
	rc = sl_key_set(&m->one.key, name, id);
	if (rc)
		return rc;
	rc = sl_call(store, m, type == SL_MSG_STAT ? SL_MSG_INFO : SL_MSG_DONE, SL_FOREVER, &reply);
	return rc == -ENOENT && reply.again && type == SL_MSG_DELETE ? 0 : rc;
}

int sluice_blob_delete(sluice_store *store, const char *name)
{
	return ask(store, SL_MSG_DELETE, name, 0, 0, NULL);
}

int sluice_blob_delete_id(sluice_store *store, uint64_t id)
{
	return ask(store, SL_MSG_DELETE, NULL, id, 0, NULL);
}

int sluice_blob_pin(sluice_store *store, const char *name, int pinned)
{
	return ask(store, SL_MSG_PIN, name, 0, pinned != 0, NULL);
}

int sluice_blob_exists(sluice_store *store, const char *name)
{
	union sl_message m;
	int rc = ask(store, SL_MSG_STAT, name, 0, 0, &m);

	if (rc == -ENOENT)
		return 0;
	if (rc || m.head.count != 1)
		return rc;
	return m.info.items[0].state == SLUICE_BLOB_IS_SEALED ||
	       m.info.items[0].state == SLUICE_BLOB_IS_SPILLED;
}

/* As the server has told it, by the number that the device has here. */
static void tell_info(const struct sluice_blob_info *item, struct sluice_blob_info *out,
                      size_t size)
{
	struct sluice_blob_info info = *item;

	info.size = size;
	info.device = item->device < 0 ? -1 : sl_place_find(item->place);
	memcpy(out, &info, SL_MIN(size, sizeof(info)));
}

int sluice_blob_stat(sluice_store *store, const char *name, struct sluice_blob_info *out)
{
	union sl_message m;
	int rc;

	if (!name || !out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_blob_stat: name is NULL, or out->size is not set");
	rc = ask(store, SL_MSG_STAT, name, 0, 0, &m);
	if (!rc && m.head.count != 1)
		rc = sl_fail(-EPROTO, "the store answers what was not asked");
	if (!rc)
		tell_info(&m.info.items[0], out, out->size);
	return rc;
}

/* -------------------------------------------------------------------------------------- many */

int sluice_blob_list(sluice_store *store, const char *prefix, uint64_t *cursor,
                     struct sluice_blob_info *out, size_t most)
{
	int rc = sl_store_check(store, "sluice_blob_list");
	union sl_message m;
	size_t size;

	if (!rc && (!cursor || !out || !most || out->size < sizeof(out->size)))
		rc = sl_fail(-EINVAL, "sluice_blob_list: cursor or out is NULL, or out->size is "
		                      "not set, or most is 0");
	if (!rc)
		rc = sl_name_check(prefix ? prefix : "", SL_NAME_BYTES, true);
	if (rc)
		return rc;
	size = out->size;
	while (*cursor != END) {
		sl_message_begin(&m, SL_MSG_LIST, 0, 0);
		m.list.cursor = *cursor;
		m.list.most = (uint32_t)SL_MIN(most, SL_ITEMS_MOST);
		strcpy(m.list.prefix, prefix ? prefix : "");
		rc = sl_call(store, &m, SL_MSG_INFO, SL_FOREVER, NULL);
		if (rc)
			return rc;
		for (unsigned i = 0; i < m.head.count && i < most; i++)
			tell_info(&m.info.items[i],
			          (struct sluice_blob_info *)((char *)out + i * size), size);
		*cursor = m.info.next ? m.info.next : END;
		if (m.head.count)
			return (int)SL_MIN(m.head.count, most);
	}
	return 0;
}

static int ask_counts(sluice_store *store, enum sl_message_type type, union sl_message *m)
{
	sl_message_begin(m, type, 0, 0);
	return sl_call(store, m, SL_MSG_COUNTS, SL_FOREVER, NULL);
}

int sluice_store_trim(sluice_store *store, uint64_t *freed)
{
	int rc = sl_store_check(store, "sluice_store_trim");
	union sl_message m;

	if (rc)
		return rc;
	sl_stock_give_back(store);
	rc = ask_counts(store, SL_MSG_TRIM, &m);
	if (!rc && freed)
		*freed = m.counts.trimmed;
	return rc;
}

int sluice_store_stats(sluice_store *store, struct sluice_store_counts *out)
{
	int rc = sl_store_check(store, "sluice_store_stats");
	union sl_message m;

	if (!rc && (!out || out->size < sizeof(out->size)))
		rc = sl_fail(-EINVAL, "sluice_store_stats: out->size is not set");
	if (!rc)
		rc = ask_counts(store, SL_MSG_STATS, &m);
	if (rc)
		return rc;
	m.counts.stats.size = out->size;
	m.counts.stats.version[sizeof(out->version) - 1] = '\0';
	memcpy(out, &m.counts.stats, SL_MIN(out->size, sizeof(*out)));
	return 0;
}
