/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of remote files
 *
 * What remote files share in a context, and what requests of all kinds share besides attempts:
 * their making, first error and end. A request waits for a target (location.c) and for a permit of
 * its origin (limit.c), and goes to a reactor; the end of a transfer hands its permit on. As many
 * reactors work as there is work for.
 *
 * Threads: any. The limits have a mutex, and another is held while a reactor is started; no other
 * function waits.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "http/http_internal.h"

#define MOST_THREADS 64 /* of easy */
/* A reactor of `multi` has no room with so much work, or if it has not slept for so many rounds. */
#define SHARE_BYTES   ((uint64_t)2 << 20)
#define BUSY_ROUNDS   8
#define REQUEST_BYTES ((uint64_t)16 << 10) /* a request's work beside its bytes */
#define STREAM_BYTES  ((uint64_t)1 << 20)  /* the work of a stream */
#define SHORT_UPLOAD  ((int64_t)1 << 20)   /* bytes */

struct sl_http_multi {
	unsigned parts;       /* reactors at most */
	uint64_t share_bytes; /* a reactor's work before the next is chosen */
	/* So many reactors are chosen because the others do not sleep. Submitting threads need
	 * cores, too: on two cores a second reactor takes theirs, and the first's. */
	unsigned spread;
	struct sl_mutex mutex;  /* held while a reactor is started */
	_Atomic unsigned count; /* grows under mutex */
	struct sl_http_reactor reactors[];
};

/* ------------------------------------------------------------------------------------ reactors */

void sl_http_reactor_wake(struct sl_http_reactor *reactor)
{
	atomic_store(&reactor->looks, true);
	sl_eventfd_raise(reactor->wake);
}

static void reactor_wake_sleeper(struct sl_sleeper *sleeper)
{
	sl_eventfd_raise(SL_CONTAINER(sleeper, struct sl_http_reactor, sleeper)->wake);
}

void sl_http_reactor_count(struct sl_http_reactor *reactor, const struct sl_http_request *request,
                           int sign)
{
	uint64_t work = REQUEST_BYTES + (request->kind->stream ? STREAM_BYTES : request->work);

	atomic_fetch_add_explicit(&reactor->load, sign, memory_order_relaxed);
	atomic_fetch_add_explicit(&reactor->work, sign * work, memory_order_relaxed);
}

static void reactor_free(struct sl_http_reactor *reactor)
{
	sl_list_each_of (transfer, &reactor->unused, struct sl_http_transfer, link)
		sl_http_transfer_free(transfer);
	sl_http_reactor_close(reactor);
	if (reactor->wake >= 0)
		close(reactor->wake);
	sl_queue_destroy(&reactor->inbox);
}

/* Starts a reactor, of which `engine` and `share` are set. Returns 0, or -errno with a sentence. */
static int reactor_start(struct sl_http_reactor *reactor, unsigned index)
{
	char name[16];
	int rc;

	reactor->sleeper.wake = reactor_wake_sleeper;
	reactor->look = SL_FOREVER;
	sl_list_init(&reactor->moving);
	sl_list_init(&reactor->streams);
	sl_list_init(&reactor->resting);
	sl_list_init(&reactor->unused);
	sl_queue_init(&reactor->inbox);
	reactor->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	snprintf(name, sizeof(name), "sluice-http-%u", index % 1000);
	rc = sl_http_reactor_open(reactor)
	             ? sl_thread_start(&reactor->thread, name, sl_http_reactor_run, reactor)
	             : sl_fail(-EMFILE, "no descriptors for a thread of transfers");
	if (rc)
		reactor_free(reactor);
	return rc;
}

/* Starts reactor number `count`, unless another thread has. Returns 0, or why it cannot. */
static int multi_grow(struct sl_http_multi *multi, unsigned count)
{
	int rc = 0;

	sl_mutex_lock(&multi->mutex);
	if (multi->count == count && !(rc = reactor_start(&multi->reactors[count], count)))
		multi->count++;
	sl_mutex_unlock(&multi->mutex);
	return rc;
}

unsigned sl_http_multi_most(const struct sl_http_engine *engine, unsigned remote)
{
	return remote == SL_REMOTE_EASY ? SL_MIN(engine->limits.most, MOST_THREADS)
	                                : engine->limits.most;
}

static void multi_free(struct sl_http_multi *multi)
{
	if (!multi)
		return;
	for (unsigned i = 0; i < multi->count; i++)
		reactor_free(&multi->reactors[i]);
	sl_mutex_destroy(&multi->mutex);
	free(multi);
}

static int multi_start(struct sl_http_engine *engine, unsigned remote, struct sl_http_multi **out)
{
	const struct sl_settings *settings = &engine->core->settings;
	unsigned connections = sl_http_multi_most(engine, remote);
	unsigned parts = remote == SL_REMOTE_EASY
	                         ? connections
	                         : SL_MIN(connections, (unsigned)settings->http_reactors);
	struct sl_http_multi *multi;
	int rc;

	multi = calloc(1, sizeof(*multi) + parts * sizeof(multi->reactors[0]));
	if (!multi)
		return sl_fail(-ENOMEM, "no memory for the reactors");
	multi->parts = parts;
	multi->spread = SL_MAX(sl_cores() / 2, 1);
	multi->share_bytes = remote == SL_REMOTE_EASY ? 1 : SHARE_BYTES;
	/* Together they keep as many as there may be. */
	for (unsigned i = 0; i < parts; i++) {
		multi->reactors[i].engine = engine;
		multi->reactors[i].share = (int)(connections / parts + (i < connections % parts));
	}
	sl_mutex_init(&multi->mutex);
	rc = multi_grow(multi, 0);
	if (rc)
		multi_free(multi);
	else
		*out = multi;
	return rc;
}

int sl_http_multi_find(struct sl_http_engine *engine, unsigned remote, struct sl_http_multi **out)
{
	int rc = 0;

	sl_mutex_lock(&engine->mutex);
	if (!engine->locked.multi[remote])
		rc = multi_start(engine, remote, &engine->locked.multi[remote]);
	*out = engine->locked.multi[remote];
	sl_mutex_unlock(&engine->mutex);
	return rc;
}

static void multi_stop(struct sl_http_multi *multi)
{
	if (!multi)
		return;
	for (unsigned i = 0; i < multi->count; i++)
		sl_queue_close(&multi->reactors[i].inbox);
	for (unsigned i = 0; i < multi->count; i++)
		pthread_join(multi->reactors[i].thread, NULL);
}

/* Returns whether the reactor takes another request before the next reactor does. */
static bool reactor_has_room(const struct sl_http_multi *multi,
                             const struct sl_http_reactor *reactor, uint64_t work)
{
	int load = atomic_load_explicit(&reactor->load, memory_order_relaxed);
	bool last = reactor - multi->reactors + 1 >= multi->spread;

	return !load ||
	       (load < reactor->share && work < multi->share_bytes &&
	        (last || atomic_load_explicit(&reactor->busy, memory_order_relaxed) < BUSY_ROUNDS));
}

/* Returns the first reactor with room, which may be started, or else that with the least work. */
static struct sl_http_reactor *multi_choose_reactor(struct sl_http_multi *multi)
{
	struct sl_http_reactor *least = multi->reactors;
	uint64_t least_work = UINT64_MAX;

	for (unsigned i = 0; i < multi->parts; i++) {
		struct sl_http_reactor *reactor = &multi->reactors[i];
		uint64_t work;

		if (i == atomic_load(&multi->count) && multi_grow(multi, i))
			break;
		work = atomic_load_explicit(&reactor->work, memory_order_relaxed);
		if (reactor_has_room(multi, reactor, work))
			return reactor;
		if (work < least_work) {
			least = reactor;
			least_work = work;
		}
	}
	return least;
}

struct sl_http_reactor *sl_http_multi_submit(struct sl_http_multi *multi,
                                             struct sl_http_request *request)
{
	struct sl_http_reactor *reactor = multi_choose_reactor(multi);

	sl_http_reactor_count(reactor, request, 1);
	sl_queue_push(&reactor->inbox, &request->link, false);
	return reactor;
}

void sl_http_multi_wake(struct sl_http_multi *multi)
{
	for (unsigned i = 0; i < multi->count; i++)
		sl_http_reactor_wake(&multi->reactors[i]);
}

/* ------------------------------------------------------------------------------------ requests */

struct sl_http_request *sl_http_request_new(struct sl_http *http, const struct sl_http_kind *kind)
{
	struct sl_http_request *request = calloc(1, kind->bytes);

	if (!request)
		return NULL;
	request->http = http;
	request->kind = kind;
	request->verb = kind->verb;
	request->origin_url = http->url;
	request->fields = &http->fields;
	request->patience = (int64_t)http->core->settings.http_stall_ms * 1000000;
	return request;
}

void sl_http_request_free(struct sl_http_request *request)
{
	if (!request)
		return;
	sl_http_response_clear(&request->response);
	sl_lines_clear(&request->lines, request->lines_rest);
	free(request->url);
	free(request->sentence);
	free(request);
}

bool sl_http_request_is_home(const struct sl_http_request *request)
{
	const char *url = request->url, *origin = request->http->origin;
	size_t length = url ? strlen(origin) : 0;

	return !url || (!strncasecmp(url, origin, length) && strchr("/?", url[length]));
}

void sl_http_request_fail(struct sl_http_request *request, int error, const char *format, ...)
{
	va_list arguments;

	if (request->error)
		return;
	request->error = error;
	va_start(arguments, format);
	if (vasprintf(&request->sentence, format, arguments) < 0)
		request->sentence = NULL;
	va_end(arguments);
}

void sl_http_end_piece(struct sl_piece *piece, int error, char *sentence)
{
	piece->error = error;
	piece->message = sentence;
	sl_piece_done(piece);
}

void sl_http_end_pieces(struct sl_list *pieces, int error, const char *sentence)
{
	struct sl_piece *piece;

	while ((piece = sl_list_take_first(pieces, struct sl_piece, link)))
		sl_http_end_piece(piece, error, error && sentence ? strdup(sentence) : NULL);
}

/* ------------------------------------------------------------------------------------- permits */

void sl_http_dispatch(struct sl_http_request *request)
{
	if (atomic_load_explicit(&request->http->location.redirects, memory_order_relaxed) &&
	    !sl_http_location_enter(request))
		return;
	if (sl_http_limit_enter(request->http->limit, request))
		sl_http_multi_submit(request->http->multi, request);
}

void sl_http_located(struct sl_http_request *request, bool found)
{
	bool failed = !found && request->error && request->error != -ECANCELED;
	struct sl_list ready = SL_LIST_INIT(ready);

	if (found)
		sl_http_location_found(request, &ready);
	else
		sl_http_location_leave(request, &ready);
	sl_list_each_of (other, &ready, struct sl_http_request, link) {
		if (!failed) {
			sl_http_dispatch(other);
			continue;
		}
		sl_http_request_fail(other, request->error, "%s",
		                     request->sentence ? request->sentence
		                                       : sl_error_text(request->error));
		other->kind->end(other);
	}
}

/* All have permits. */
static void engine_submit_all(struct sl_list *ready)
{
	sl_list_each_of (request, ready, struct sl_http_request, link)
		sl_http_multi_submit(request->http->multi, request);
}

void sl_http_arrived(struct sl_http_request *request, size_t bytes)
{
	struct sl_list ready = SL_LIST_INIT(ready);

	sl_http_limit_arrived(request->http->limit, bytes, request->alive, &ready);
	engine_submit_all(&ready);
}

void sl_http_permit_give(struct sl_http_request *request)
{
	int64_t now = sl_now();
	/* A long upload's answer comes late. */
	bool waited = now - request->asked < 2 * request->first && request->sent <= SHORT_UPLOAD;
	struct sl_list ready = SL_LIST_INIT(ready);

	sl_http_limit_leave(request->http->limit, now, waited ? request->first : 0, &ready);
	engine_submit_all(&ready);
}

void sl_http_end_cancelled(struct sl_http_engine *engine)
{
	struct sl_list gone = SL_LIST_INIT(gone);

	if (!atomic_load(&engine->cancelling) || !atomic_exchange(&engine->cancelling, false))
		return;
	sl_http_limits_admit_cancelled(&engine->limits, &gone);
	engine_submit_all(&gone);
}

/* -------------------------------------------------------------------------------------- engine */

static void engine_free_keyrings(struct sl_http_engine *engine)
{
	for (unsigned i = 0; engine->keyrings[i]; i++)
		sl_services[i]->signing->stop(engine->keyrings[i]);
}

struct sl_keyring *sl_http_keyring(const struct sl_http_engine *engine, const char *scheme)
{
	unsigned i = 0;

	while (engine->keyrings[i] && strcmp(sl_services[i]->scheme, scheme))
		i++;
	return engine->keyrings[i];
}

/* No other thread has the engine yet. */
int sl_http_new(struct sl_core *core, struct sl_http_engine **out) SL_UNCHECKED
{
	struct sl_http_engine *engine = calloc(1, sizeof(*engine));
	struct rlimit files = {.rlim_cur = RLIM_INFINITY};
	int rc;

	if (!engine)
		return sl_fail(-ENOMEM, "no memory");
	for (unsigned i = 0; sl_services[i]; i++) {
		rc = sl_services[i]->signing->start(&core->settings, &engine->keyrings[i]);
		if (rc) {
			engine_free_keyrings(engine);
			free(engine);
			return rc;
		}
	}
	engine->core = core;
	sl_mutex_init(&engine->mutex);
	sl_http_token_init(&engine->token, &core->settings);
	/* The rest of the descriptors is the program's. */
	getrlimit(RLIMIT_NOFILE, &files);
	sl_http_limits_init(&engine->limits, (unsigned)SL_MIN(core->settings.max_connections,
	                                                      SL_MAX(files.rlim_cur / 4, 1)));
	atomic_init(&engine->uploads.most, core->settings.upload_bytes);
	*out = engine;
	return 0;
}

/* All files are closed: no request is in flight, and no thread starts a reactor. */
void sl_http_stop(struct sl_http_engine *engine) SL_UNCHECKED
{
	for (unsigned i = 0; engine && i < 2; i++)
		multi_stop(engine->locked.multi[i]);
}

/* No other thread has the engine any more. */
void sl_http_free(struct sl_http_engine *engine) SL_UNCHECKED
{
	if (!engine)
		return;
	for (unsigned i = 0; i < 2; i++)
		multi_free(engine->locked.multi[i]);
	sl_http_limits_destroy(&engine->limits);
	sl_http_token_destroy(&engine->token);
	engine_free_keyrings(engine);
	sl_mutex_destroy(&engine->mutex);
	free(engine);
}

int sl_http_feature(const struct sl_core *core, size_t index, struct sluice_feature *out)
{
	const struct sl_settings *settings = &core->settings;

	if (index == 0) {
		out->name = "http, https";
		out->usable = 1;
		out->detail = curl_version();
		out->effect = settings->remote == SL_REMOTE_MULTI
		                      ? "remote files are moved by reactors, many transfers each"
		                      : "remote files are moved by a thread for each connection";
		return 0;
	}
	for (unsigned i = 0; index >= 2 && core->http->keyrings[i]; i++)
		if (index == 2 + i) {
			sl_services[i]->signing->feature(core->http->keyrings[i], out);
			return 0;
		}
	if (index > 1)
		return -ENOENT;
	out->name = "trust in servers";
	out->usable = !settings->tls_insecure;
	out->detail = settings->tls_insecure   ? "switched off by SLUICE_TLS_INSECURE"
	              : settings->ca_bundle[0] ? settings->ca_bundle
	                                       : "the system's certificates";
	out->effect = settings->tls_insecure
	                      ? "every server is trusted: anyone on the way can read "
	                        "and change what is transferred"
	                      : "a server must prove its name by a certificate";
	out->remedy = settings->tls_insecure
	                      ? "unset it, and name the certificates in SLUICE_CA_BUNDLE"
	                      : NULL;
	return 0;
}
