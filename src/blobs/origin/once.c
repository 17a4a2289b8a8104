/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetching once for a node
 *
 * The leader reads an object. It reserves a name in the store, .sluice/fetch/NAME, and the end of
 * the process, of any kind, frees the name. Other processes, and threads, watch that name and NAME:
 * once either changes they find NAME, or lead themselves. On the caller's thread.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "origin/origin.h"

#define LEASES ".sluice/fetch/"
#define AGAIN  3 /* an object that changes while it is read is read so often more */

struct fetch {
	struct sl_origin o;
	bool tensors; /* a collection is wanted */
	bool refresh; /* the name has `replaces`, and another blob is wanted */
	/* The blob that gives way: for refresh, or bytes where a collection is wanted. */
	uint64_t replaces;
	char lease[SLUICE_BLOB_NAME_MOST + 1];
	int64_t deadline;         /* of waiting for others */
	sluice_watch *watches[2]; /* for the lease, for the name */
	/* The result: a blob, or a collection; for refresh an id. */
	sluice_blob *blob;
	sluice_collection *collection;
	uint64_t id;
};

static int fetch_name_lease(struct fetch *f)
{
	unsigned char digest[32];
	size_t n = sizeof(LEASES) - 1;

	memcpy(f->lease, LEASES, n);
	if (n + strlen(f->o.name) <= SLUICE_BLOB_NAME_MOST) {
		strcpy(f->lease + n, f->o.name);
		return 0;
	}
	if (!EVP_Digest(f->o.name, strlen(f->o.name), digest, NULL, EVP_sha256(), NULL))
		return sl_fail(-ENOMEM, "no memory for a digest");
	for (unsigned i = 0; i < sizeof(digest); i++)
		snprintf(f->lease + n + 2 * i, 3, "%02x", digest[i]);
	return 0;
}

/* ------------------------------------------------------------------------------- in the store */

/* A blob with the bytes of this object is no obstacle to the collection. */
static int fetch_look_at_bytes(struct fetch *f)
{
	struct sluice_blob_source source = {.size = sizeof(source)};
	char *message = strdup(sluice_last_message());
	sluice_blob *blob;
	int rc = sluice_blob_get(f->o.store, f->o.name, 0, &blob);

	if (!rc) {
		bool same = f->o.uri && !sluice_blob_parts(blob) &&
		            !sluice_blob_origin(blob, &source) && !strcmp(source.uri, f->o.uri);

		f->replaces = same ? sluice_blob_id(blob) : 0;
		sluice_blob_release(blob);
		rc = same ? -ENOENT : sl_fail(-EPROTO, "%s", message ? message : "no collection");
	}
	free(message);
	return rc;
}

/* Looks for the name. -ENOENT: it is to be fetched; time-out as in sluice_blob_get(). */
static int fetch_look(struct fetch *f, int timeout_ms)
{
	struct sluice_blob_info info = {.size = sizeof(info)};
	int rc;

	if (f->refresh) {
		rc = sluice_blob_stat(f->o.store, f->o.name, &info);
		f->id = info.id;
		return rc ? rc : info.id == f->replaces ? -EALREADY : 0;
	}
	if (!f->tensors)
		return sluice_blob_get(f->o.store, f->o.name, timeout_ms, &f->blob);
	f->replaces = 0;
	rc = sluice_collection_attach(f->o.store, f->o.name, -1, timeout_ms, &f->collection);
	return rc == -EPROTO ? fetch_look_at_bytes(f) : rc;
}

static bool fetch_is_needed(const struct fetch *f, int rc)
{
	return rc == (f->refresh ? -EALREADY : -ENOENT);
}

/* -------------------------------------------------------------------------------------- wait */

static int fetch_watch(struct fetch *f)
{
	const char *names[] = {f->lease, f->o.name};
	int rc = 0;

	/* -ECONNRESET: the server died while it let this connection in. */
	for (unsigned i = 0; !rc && i < 2; i++)
		do
			rc = sluice_watch_open(f->o.store, names[i], &f->watches[i]);
		while (rc == -ECONNRESET);
	return rc;
}

/* Takes the events that are there. Returns 1 after an event with that name, 0, or an error. */
static int fetch_take(sluice_watch *watch, const char *name)
{
	struct sluice_watch_event event = {.size = sizeof(event)};
	int rc, found = 0;

	while (!(rc = sluice_watch_next(watch, 0, &event)))
		if (event.kind == SLUICE_WATCH_LOST || !strcmp(event.name, name))
			found = 1;
	return rc == -EAGAIN ? found : rc;
}

/* Waits for an event with the lease or the name; begins to watch them at its first call. */
static int fetch_wait(struct fetch *f)
{
	struct pollfd fds[2];
	int rc = 0;

	if (!f->watches[1])
		return fetch_watch(f);
	while (!rc) {
		int64_t left = (f->deadline - sl_now() + 999999) / 1000000;

		for (unsigned i = 0; i < 2; i++)
			fds[i] = (struct pollfd){sluice_watch_fd(f->watches[i]), POLLIN, 0};
		if (f->deadline != SL_FOREVER && left <= 0)
			return sl_fail(-ETIMEDOUT,
			               "another process fetches '%s', and has not ended in time",
			               f->o.name);
		poll(fds, 2, f->deadline == SL_FOREVER ? -1 : (int)SL_MIN(left, INT32_MAX));
		rc = fetch_take(f->watches[0], f->lease);
		if (rc >= 0) {
			int other = fetch_take(f->watches[1], f->o.name);

			rc = other < 0 ? other : rc | other;
		}
	}
	return SL_MIN(rc, 0);
}

/* Waits for the process with the lease; fails if the lease is a blob, which no end frees. */
static int fetch_await_leader(struct fetch *f)
{
	struct sluice_blob_info info = {.size = sizeof(info)};
	int rc = sluice_blob_stat(f->o.store, f->lease, &info);

	if (!rc && info.state != SLUICE_BLOB_IS_CREATED)
		return sl_fail(-EEXIST, "'%s' is a blob, and would be reserved to fetch '%s'",
		               f->lease, f->o.name);
	return rc == -ENOENT ? 0 : rc ? rc : fetch_wait(f);
}

/* -------------------------------------------------------------------------------------- lead */

/* Reads the object and seals it. *lost: another blob has the name by now, or none has. */
static int fetch_read(struct fetch *f, bool *lost)
{
	sluice_collection *c = NULL;
	sluice_blob *blob = NULL;
	int rc = f->tensors ? sl_origin_read_collection(&f->o, f->replaces, &c)
	                    : sl_origin_read_blob(&f->o, f->replaces, &blob);

	*lost = false;
	if (rc)
		return rc;
	if (c)
		blob = sluice_collection_blob(c);
	rc = sluice_blob_seal(blob);
	*lost = rc == -EEXIST || (rc == -ESTALE && f->replaces);
	f->id = sluice_blob_id(blob);
	/* Mapped for reading only, it is protected from this process as well. */
	if (!rc && !f->refresh) {
		rc = c ? sluice_collection_attach_id(f->o.store, f->id, 0, &f->collection)
		       : sluice_blob_get_id(f->o.store, f->id, 0, &f->blob);
		*lost = rc == -ENOENT;
	}
	if (c)
		sluice_collection_release(c);
	else
		sluice_blob_release(blob);
	return rc;
}

/* Waits for a process that makes a blob of this name. It is sealed then, or the name is free. */
static int fetch_await_maker(struct fetch *f)
{
	struct sluice_blob_info info = {.size = sizeof(info)};
	int rc = 0;

	while (!rc && !(rc = sluice_blob_stat(f->o.store, f->o.name, &info)) &&
	       info.state == SLUICE_BLOB_IS_CREATED)
		rc = fetch_wait(f);
	return rc == -ENOENT ? 0 : rc;
}

static int fetch_lead(struct fetch *f)
{
	int rc = 0;

	for (unsigned changes = 0; changes <= AGAIN;) {
		bool lost;

		/* The leader before may have ended between the look and the lease. */
		rc = fetch_await_maker(f);
		if (!rc)
			rc = fetch_look(f, 0);
		if (!fetch_is_needed(f, rc))
			return rc;
		if (!f->refresh && sl_origin_is_missing(f->o.uri))
			return sl_fail(-ENOENT, "there was no '%s' less than a second ago",
			               f->o.uri);
		rc = fetch_read(f, &lost);
		/* That is no change of the object, and ends with the time-out alone. */
		if (lost && sl_now() < f->deadline)
			continue;
		if (lost)
			return sl_fail(-ETIMEDOUT,
			               "local publishes of '%s' came and went, until it was late",
			               f->o.name);
		changes++;
		if (rc == -ENOENT)
			sl_origin_set_missing(f->o.uri, true);
		/* -ECONNRESET: the daemon was replaced before the seal. */
		if (rc != -ESTALE && rc != -ECONNRESET)
			break;
	}
	return rc;
}

/* Fetches, or waits for another process to do so. */
static int fetch_once(struct fetch *f)
{
	struct sluice_blob_options options = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *lease;
	int rc = fetch_name_lease(f);

	options.flags = SLUICE_BLOB_RESERVE;
	while (!rc) {
		rc = sluice_blob_create(f->o.store, f->lease, 1, -1, &options, &lease);
		if (!rc) {
			rc = fetch_lead(f);
			sluice_blob_release(lease);
			break;
		}
		if (rc == -EEXIST)
			rc = fetch_await_leader(f);
		if (rc)
			break;
		rc = fetch_look(f, 0);
		if (!fetch_is_needed(f, rc))
			break;
		rc = 0;
	}
	sluice_watch_free(f->watches[0]);
	sluice_watch_free(f->watches[1]);
	return rc;
}

static int fetch_call(const char *call, sluice_store *store, const struct sluice_origin *origin,
                      const char *name, int timeout_ms, struct fetch *f)
{
	int found, rc = sl_origin_find(call, store, origin, name, &f->o);

	if (!rc)
		rc = fetch_look(f, 0);
	/* A hit, and a call that does not wait, need no origin. */
	if ((rc != -ENOENT && rc != -EPROTO) || !timeout_ms)
		return rc;
	found = sl_origin_name(call, &f->o);
	if (found)
		return found;
	if (f->o.uri)
		rc = fetch_once(f);
	else if (rc == -ENOENT)
		rc = fetch_look(f, timeout_ms);
	free(f->o.uri);
	return rc;
}

int sluice_blob_fetch(sluice_store *store, const struct sluice_origin *origin, const char *name,
                      int timeout_ms, sluice_blob **out)
{
	struct fetch f = {.deadline = sl_deadline(timeout_ms)};
	int rc = out ? fetch_call("sluice_blob_fetch", store, origin, name, timeout_ms, &f)
	             : sl_fail(-EINVAL, "sluice_blob_fetch: out is NULL");

	if (!rc)
		*out = f.blob;
	return rc;
}

int sluice_collection_fetch(sluice_store *store, const struct sluice_origin *origin,
                            const char *name, int timeout_ms, sluice_collection **out)
{
	struct fetch f = {.tensors = true, .deadline = sl_deadline(timeout_ms)};
	int rc = out ? fetch_call("sluice_collection_fetch", store, origin, name, timeout_ms, &f)
	             : sl_fail(-EINVAL, "sluice_collection_fetch: out is NULL");

	if (!rc)
		*out = f.collection;
	return rc;
}

/* ------------------------------------------------------------------------------------ refresh */

/* Asks whether the object is another by now than at the fetch. */
static int refresh_ask(struct fetch *f, sluice_blob *held, bool *other)
{
	struct sluice_blob_source source = {.size = sizeof(source)};
	struct sl_origin_version version;
	sluice_blob *part = held;
	int rc = sluice_blob_origin(held, &source);

	*other = false;
	f->id = f->replaces = sluice_blob_id(held);
	if (!rc && f->o.given.uri)
		rc = sl_origin_name("sluice_blob_refresh", &f->o);
	if (rc || (f->o.given.uri && strcmp(source.uri, f->o.uri ? f->o.uri : "")))
		return rc == -ENOENT ? 0 : rc;
	free(f->o.uri);
	f->o.uri = strdup(source.uri);
	rc = f->o.uri ? sl_origin_ask(&f->o, &version) : sl_fail(-ENOMEM, "no memory");
	*other = !rc && (version.length != source.length || strcmp(version.etag, source.etag));
	f->tensors = sluice_blob_parts(held);
	if (!rc && *other && f->tensors)
		rc = sluice_blob_part(held, 0, &part);
	if (!rc)
		f->o.given.device = sluice_blob_device(part);
	return rc;
}

int sluice_blob_refresh(sluice_store *store, const struct sluice_origin *origin, const char *name,
                        uint64_t *id)
{
	struct fetch f = {.refresh = true, .deadline = SL_FOREVER};
	sluice_blob *held;
	bool other;
	int rc = sl_origin_find("sluice_blob_refresh", store, origin, name, &f.o);

	if (!rc && !f.o.given.ctx)
		rc = sl_fail(-EINVAL, "sluice_blob_refresh: an origin needs a context");
	/* Held, so that the daemon does not drop it for the new one. */
	if (!rc)
		rc = sluice_blob_get(store, name, 0, &held);
	if (rc)
		return rc;
	rc = refresh_ask(&f, held, &other);
	if (!rc && other)
		rc = fetch_once(&f);
	if (!rc && id)
		*id = f.id;
	free(f.o.uri);
	sluice_blob_release(held);
	return rc;
}
