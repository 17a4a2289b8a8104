/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a store
 *
 * sluice_store_open() connects and maps the catalogue. sluice_store_close() ends everything in this
 * order: seals in stream order, the two threads of devices, mappings, the connection. Both may be
 * called on any thread; close must be the last call.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/io.h"
#include "store/device/store_devices.h"

#define PATIENCE_MS 5000
#define CACHE_BYTES ((size_t)1 << 30)

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

/* Keeps only the mappings that are valid with a new server. */
static void store_adopted_locked(sluice_store *store, bool same) SL_REQUIRES(&store->mutex)
{
	sl_mappings_forget_locked(store, !same);
	sl_devices_reconnected_locked(store, same);
}

static const struct sl_conn_events store_events = {
	sl_mappings_heard_locked, sl_mappings_unreported_locked, store_adopted_locked};

static void store_free(sluice_store *store)
{
	sl_mutex_destroy(&store->opening);
	sl_mutex_destroy(&store->mutex);
	pthread_cond_destroy(&store->connected);
	pthread_cond_destroy(&store->sent);
	pthread_cond_destroy(&store->mapped);
	free(store);
}

int sluice_store_open(const char *path, const struct sluice_store_options *o, sluice_store **out)
{
	struct sluice_store_options options = {0};
	uint32_t process;

	if (!out)
		return sl_fail(-EINVAL, "sluice_store_open: out is NULL");
	int rc = sl_struct_take("store options", o, &options, sizeof(options));
	if (!rc)
		rc = sl_process_enter(&process);
	if (rc)
		return rc;
	sluice_store *store = calloc(1, sizeof(*store));
	if (!store)
		return sl_fail(-ENOMEM, "no memory");
	store->process = process;
	store->events = &store_events;
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
	int64_t deadline = sl_deadline((int)store->patience_ms);
	/* A server that is being replaced closes the connections that it has accepted last. */
	sl_mutex_lock(&store->mutex);
	if (!rc)
		do
			rc = sl_conn_open_locked(store, true, false);
		while (rc == -ECONNRESET && sl_now() < deadline);
	sl_mutex_unlock(&store->mutex);
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
		sl_stream_ops_wait(sl_devices_of(store));
		if (!sl_devices_stop(store))
			return 0; /* the process ends, and its threads with it */
	}
	/* Before the server hears that nothing is mapped here. */
	sl_mutex_lock(&store->mutex);
	sl_mappings_forget_locked(store, true);
	sl_mutex_unlock(&store->mutex);
	if (sl_devices_of(store)) {
		sl_mappings_free_leaving(sl_devices_of(store));
		sl_stream_words_free(sl_devices_of(store));
		sl_devices_free(store);
	}
	sl_conn_close(store);
	store_free(store);
	return 0;
}
