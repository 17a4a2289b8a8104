/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests about blobs and about the daemon
 *
 * Everything that is asked of the server without getting a blob: stat, list, delete, pin,
 * statistics, upgrade, stop. Each call waits for its reply; any thread.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "store/device/store_devices.h"

#define END     UINT64_MAX /* the cursor behind the last blob */
#define STOP_MS 30000

/* ------------------------------------------------------------------------------- single blobs */

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

static int query_stat(sluice_store *store, const char *name, union sl_message *m)
{
	int rc = sl_store_check(store, "the store");

	sl_message_begin(m, SL_MSG_STAT, 0, 0);
	if (!rc)
		rc = sl_key_set(&m->one.key, name, 0);
	if (!rc)
		rc = sl_call(store, m, SL_MSG_INFO, SL_FOREVER, NULL);
	if (!rc && m->head.count != 1)
		rc = sl_fail(-EPROTO, "the store answers what was not asked");
	return rc;
}

/*
 * Finds the id of the sealed blob that has a name (0: none), and the epoch of a server there. Asks
 * the server only if the blob is spilled, or changes at this moment.
 */
static int query_find_id(sluice_store *store, const char *name, uint64_t *id, uint64_t *epoch)
{
	struct sl_catalogue_view *view = sl_view_acquire(store);
	struct sl_blob_key key = {name, strlen(name), 0};
	struct sl_held_blob held;
	union sl_message m;
	int rc = sl_reader_get(&view->reader, &key, &held);

	/* A name that passes to another blob meanwhile may be missed. */
	if (rc == -ENOENT)
		rc = sl_reader_get(&view->reader, &key, &held);
	*id = rc ? 0 : held.record.key.id;
	*epoch = view->epoch;
	if (!rc && sl_reader_release(&view->reader, &held))
		sl_blob_nudge(store, view, *id);
	sl_view_release(view);
	if (!rc || rc == -ENOENT)
		return 0;
	rc = query_stat(store, name, &m);
	if (!rc && m.info.items[0].state != SLUICE_BLOB_IS_CREATED)
		*id = m.info.items[0].id;
	return rc == -ENOENT ? 0 : rc;
}

/*
 * Sends a request that changes a blob. If the reply is lost with the server, a new blob may
 * have the name by then. So the next server gets the id, which is never used again, and for a
 * delete the serial number of the first request: the server knows the deletes that were done.
 */
static int query_change(sluice_store *store, enum sl_message_type type, const char *name,
                        uint64_t id, unsigned on)
{
	int rc = sl_store_check(store, "the store");
	struct sl_pending_call call;
	union sl_message m;
	uint64_t of = 0, daemon = 0;

	if (rc)
		return rc;
	sl_message_begin(&m, type, 0, 0);
	m.one.on = on;
	rc = sl_key_set(&m.one.key, name, id);
	if (!rc && name)
		rc = query_find_id(store, name, &id, &of);
	while (!rc) {
		rc = sl_call_begin(store, &m, SL_MSG_DONE, daemon, SL_FOREVER, &call);
		/* Nothing was done, and another blob has the name: the call begins anew. */
		if (rc == -ESTALE && daemon && name) {
			daemon = 0;
			sl_message_begin(&m, type, 0, 0);
			m.one.on = on;
			sl_key_set(&m.one.key, name, 0);
			rc = query_find_id(store, name, &id, &of);
			continue;
		}
		if (rc != -ECONNRESET)
			break;
		rc = 0;
		if (daemon || !call.epoch)
			continue;
		daemon = sl_epoch_of_daemon(call.epoch);
		m.one.first = m.head.serial;
		if (id && name && sl_same_daemon(of, daemon))
			rc = sl_key_set(&m.one.key, NULL, id);
	}
	if (!rc)
		sl_call_end(store, &call);
	else if (rc == -ESTALE && daemon)
		rc = sl_fail(-ENOENT, "the blob with id %llu is not there", (unsigned long long)id);
	else if (rc == -ENOENT && name && daemon)
		sl_fail(rc, "'%s' is not there", name);
	return rc;
}

int sluice_blob_delete(sluice_store *store, const char *name)
{
	return query_change(store, SL_MSG_DELETE, name, 0, 0);
}

int sluice_blob_delete_id(sluice_store *store, uint64_t id)
{
	return query_change(store, SL_MSG_DELETE, NULL, id, 1);
}

int sluice_blob_pin(sluice_store *store, const char *name, int pinned)
{
	return query_change(store, SL_MSG_PIN, name, 0, pinned != 0);
}

int sluice_blob_exists(sluice_store *store, const char *name)
{
	union sl_message m;
	int rc = query_stat(store, name, &m);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	return m.info.items[0].state != SLUICE_BLOB_IS_CREATED;
}

/* Copies an item of a reply, with the index that the device has in this process. */
static void query_info(const struct sluice_blob_info *in, struct sluice_blob_info *out, size_t size)
{
	struct sluice_blob_info info = *in;

	info.device = in->device < 0 ? -1 : sl_place_find(in->place);
	out->size = size;
	sl_struct_give(out, &info, sizeof(info));
}

int sluice_blob_stat(sluice_store *store, const char *name, struct sluice_blob_info *out)
{
	union sl_message m;

	if (!name || !out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_blob_stat: name is NULL, or out->size is not set");
	int rc = query_stat(store, name, &m);
	if (!rc)
		query_info(&m.info.items[0], out, out->size);
	return rc;
}

/* ---------------------------------------------------------------------------------- all blobs */

int sluice_blob_list(sluice_store *store, const char *prefix, uint64_t *cursor,
                     struct sluice_blob_info *out, size_t most)
{
	int rc = sl_store_check(store, "sluice_blob_list");
	union sl_message m;

	if (!rc && (!cursor || !out || !most || out->size < sizeof(out->size)))
		rc = sl_fail(-EINVAL, "sluice_blob_list: cursor or out is NULL, or out->size is "
		                      "not set, or most is 0");
	if (!rc)
		rc = sl_name_check(prefix ? prefix : "", SL_NAME_BYTES, true);
	if (rc)
		return rc;
	size_t size = out->size;
	while (*cursor != END) {
		sl_message_begin(&m, SL_MSG_LIST, 0, 0);
		m.list.cursor = *cursor;
		m.list.most = (uint32_t)SL_MIN(most, SL_ITEMS_MOST);
		strcpy(m.list.prefix, prefix ? prefix : "");
		rc = sl_call(store, &m, SL_MSG_INFO, SL_FOREVER, NULL);
		if (rc)
			return rc;
		for (unsigned i = 0; i < m.head.count && i < most; i++)
			query_info(&m.info.items[i],
			           (struct sluice_blob_info *)((char *)out + i * size), size);
		*cursor = m.info.next ? m.info.next : END;
		if (m.head.count)
			return (int)SL_MIN(m.head.count, most);
	}
	return 0;
}

static int query_counts(sluice_store *store, enum sl_message_type type, union sl_message *m)
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
	sl_lease_cache_return(store);
	rc = query_counts(store, SL_MSG_TRIM, &m);
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
		rc = query_counts(store, SL_MSG_STATS, &m);
	if (rc)
		return rc;
	m.counts.stats.version[sizeof(out->version) - 1] = '\0';
	sl_struct_give(out, &m.counts.stats, sizeof(*out));
	return 0;
}

/* --------------------------------------------------------------------------------- the daemon */

static int daemon_ask(sluice_store *store, enum sl_daemon_act act, uint64_t epoch,
                      struct sl_pending_call *call)
{
	union sl_message m;

	sl_message_begin(&m, SL_MSG_DAEMON, 0, 0);
	m.daemon.act = act;
	return sl_call_begin(store, &m, SL_MSG_DONE, epoch, SL_FOREVER, call);
}

/*
 * The server that gets the request ends, and the next one counts the upgrade. If the count has not
 * changed, the server has ended for another reason, so the request is sent again.
 */
int sluice_store_upgrade(sluice_store *store)
{
	struct sluice_store_counts stats = {.size = sizeof(stats)};
	uint64_t before;
	struct sl_pending_call call;
	int rc = sluice_store_stats(store, &stats);

	for (before = stats.upgrades; !rc && stats.upgrades == before;) {
		rc = daemon_ask(store, SL_DAEMON_UPGRADE, 0, &call);
		if (!rc)
			sl_call_end(store, &call);
		if (!rc || rc == -ECONNRESET)
			rc = sluice_store_stats(store, &stats);
	}
	return rc;
}

int sluice_store_stop(sluice_store *store)
{
	int rc = sl_store_check(store, "sluice_store_stop"), n = 1;
	struct sl_pending_call call;
	uint64_t daemon = 0;

	/*
	 * If the server is replaced meanwhile, it has not stopped the daemon; or another client's
	 * request has, and there may be another daemon, which is not to stop.
	 */
	if (!rc)
		while ((rc = daemon_ask(store, SL_DAEMON_STOP, daemon, &call)) == -ECONNRESET)
			daemon = call.epoch ? sl_epoch_of_daemon(call.epoch) : daemon;
	if (rc)
		return daemon && (rc == -ECONNREFUSED || rc == -ENOENT) ? 0 : rc;
	/* Ended by the end of the supervisor. */
	if (call.fds[0] >= 0)
		n = poll(&(struct pollfd){.fd = call.fds[0], .events = POLLIN}, 1, STOP_MS);
	sl_call_end(store, &call);
	return n > 0 ? 0
	             : sl_fail(-EINPROGRESS, "the daemon has not ended in %d s, and goes on ending",
	                       STOP_MS / 1000);
}
