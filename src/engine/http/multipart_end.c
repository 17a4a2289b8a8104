/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The begin and the end of an upload in parts
 *
 * Opens an upload: its plan, its share of memory, and the lines of its headers. Makes the object
 * visible, or has the server drop what it has: when a file is discarded or fails, and at the end of
 * the process.
 *
 * Threads: those of the program, which wait for calls; at its end that in exit().
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/multipart_internal.h"

/* Uploads that an end of the process has to abort. */
static struct {
	struct sl_mutex mutex;
	struct sl_list uploads SL_GUARDED_BY(&mutex);
	_Atomic pid_t process; /* that registered the last */
	bool registered SL_GUARDED_BY(&mutex);
} alive = {.mutex = SL_MUTEX_INIT, .uploads = SL_LIST_INIT(alive.uploads)};

/* ------------------------------------------------------------------------------------- abort */

void sl_http_multipart_wait(struct sl_http_multipart *multipart)
{
	sl_mutex_lock(&multipart->mutex);
	while (multipart->locked.flying)
		sl_cond_wait(&multipart->idle, &multipart->mutex, SL_FOREVER);
	sl_mutex_unlock(&multipart->mutex);
}

/* Ends all calls, and has the server drop the parts that it has. */
static void multipart_abort(struct sl_http_multipart *multipart)
{
	struct sl_http *http = multipart->http;
	struct sl_http_call call = {.kind = SL_CALL_DROP,
	                            .fields = &multipart->each,
	                            .stop = &multipart->dropped,
	                            .least = 3,
	                            .brief = true};
	char *said;
	int rc;

	sl_http_multipart_fail(multipart, -ECANCELED, "the upload was given up");
	sl_http_multipart_wait(multipart);
	sl_mutex_lock(&multipart->mutex);
	call.upload = multipart->locked.over ? NULL : multipart->locked.upload;
	multipart->locked.over = true;
	sl_mutex_unlock(&multipart->mutex);
	if (!call.upload || !http->signer->service->verbs[SL_CALL_DROP])
		return;
	/* The sentence of the error that ended the upload stays the last. */
	said = strdup(sluice_last_message());
	rc = sl_http_call_run(http, &call);
	if (rc && rc != -ENOENT)
		sl_log(&http->core->settings, SL_LOG_ERROR,
		       "%s: an upload was left behind (%s): %s", http->name,
		       multipart->plan.limits->left_behind, sluice_last_message());
	sl_fail(0, "%s", said ? said : "");
	sl_http_answer_clear(&call.answer);
	free(said);
}

/* At the end of the process. A child of a fork has no part in the uploads of its parent. */
static void multipart_abort_all(void)
{
	/* A thread that a fork left behind may have the mutex. */
	if (atomic_load(&alive.process) != getpid())
		return;
	sl_mutex_lock(&alive.mutex);
	sl_list_each_of (multipart, &alive.uploads, struct sl_http_multipart, alive) {
		if (multipart->process != getpid())
			continue;
		sl_list_remove(&multipart->alive);
		multipart_abort(multipart);
	}
	sl_mutex_unlock(&alive.mutex);
}

/* ------------------------------------------------------------------------------------ commit */

/* Returns why the object cannot be complete, with a sentence. */
static int multipart_check_locked(struct sl_http_multipart *multipart, uint64_t end)
	SL_REQUIRES(&multipart->mutex)
{
	const char *name = multipart->http->name;
	uint64_t total = multipart->plan.total;
	int rc = sl_fail_with(multipart->locked.error, multipart->locked.sentence);

	if (!rc && multipart->locked.reach > end)
		rc = sl_fail(-EINVAL, "'%s': nothing was written at byte %" PRIu64, name, end);
	else if (!rc && total && end != total)
		rc = sl_fail(-EINVAL,
		             "'%s': %" PRIu64 " bytes were written, and expected_size was "
		             "%" PRIu64,
		             name, end, total);
	return rc;
}

/*
 * Returns whether the server has the object, although the last call failed: by its ETag. Where that
 * cannot be known, it has if the upload is gone after an attempt without an answer, and an object
 * of this length is younger than the upload: both times are the server's, and equal seconds say
 * nothing.
 */
static bool multipart_is_there(struct sl_http_multipart *multipart, struct sl_http_call *call,
                               uint64_t length) SL_UNCHECKED
{
	bool gone = call->answer.error == -ENOENT, there = false;
	struct sl_http_request *request;
	const char *etag, *modified;

	if (!call->answer.status || (!call->open && !gone))
		return false;
	if (!call->completes)
		multipart->http->signer->service->texts->etag(call->body, call->length, call->etag);
	if (!sl_http_ask(multipart->http, &sl_http_kind_head, &request) &&
	    request->response.has_length && request->response.length == length) {
		etag = request->response.texts.of[SL_HTTP_FIELD_ETAG];
		modified = request->response.texts.of[SL_HTTP_FIELD_MODIFIED];
		there = call->etag[0]
		                ? etag && !strcmp(etag, call->etag)
		                : call->completes && call->open && gone && modified &&
		                          multipart->locked.began > 0 &&
		                          curl_getdate(modified, NULL) > multipart->locked.began;
	}
	sl_http_request_free(request);
	return there;
}

static void habits_learn(struct sl_habits *habits, int excludes)
{
	int known = atomic_load(&habits->excludes);

	while (known < excludes &&
	       !atomic_compare_exchange_weak(&habits->excludes, &known, excludes))
		continue;
}

static void multipart_run(struct sl_http_multipart *multipart, struct sl_http_call *call)
{
	do
		sl_http_call_run(multipart->http, call);
	while (sl_http_call_again(multipart->http, call));
}

/* Runs a call so that it makes no object where one is. A server that refuses the line for that has
 * said that there is none, and gets none. */
static void multipart_run_exclusive(struct sl_http_multipart *multipart, struct sl_http_call *call)
{
	/* For this call alone: a server would refuse to drop parts of an object that exists. */
	struct curl_slist home = {(char *)"If-None-Match: *", call->fields->home};
	struct curl_slist away = {home.data, call->fields->away};
	const struct sl_http_fields exclusive = {.away = &away, .home = &home},
				    *plain = call->fields;
	struct sl_habits *habits = multipart->http->signer->habits;
	bool absent = multipart->http->absent, known;

	known = absent && atomic_load(&habits->excludes) == SL_EXCLUDES_REFUSES;
	if (!known) {
		call->fields = &exclusive;
		multipart_run(multipart, call);
		call->fields = plain;
		if (!absent || call->copies || !sl_http_call_refused(multipart->http, call))
			return;
		sl_http_answer_clear(&call->answer);
	}
	multipart_run(multipart, call);
	if (!known && !call->answer.error)
		habits_learn(habits, SL_EXCLUDES_REFUSES);
}

int sl_http_multipart_finish(struct sl_http_multipart *multipart, struct sl_http_call *call,
                             uint64_t length)
{
	int rc;

	if (multipart->http->flags & SLUICE_OPEN_EXCLUSIVE)
		multipart_run_exclusive(multipart, call);
	else
		multipart_run(multipart, call);
	sl_http_call_compare(multipart->http, call);
	rc = call->answer.error;
	if (rc && multipart_is_there(multipart, call, length))
		rc = 0;
	else if (rc && call->answer.sentence)
		sl_fail(rc, "%s%s", call->answer.sentence,
		        call->open ? "; the object of this upload may be there, since an answer "
		                     "was lost"
		                   : "");
	sl_http_answer_clear(&call->answer);
	sl_mutex_lock(&multipart->mutex);
	multipart->locked.over = !rc;
	sl_mutex_unlock(&multipart->mutex);
	return rc;
}

/*
 * Sends a PUT again that has made an object: a server that keeps an object from a PUT with
 * If-None-Match refuses that, by 412. Such a server is not asked for each object any more. The 1st,
 * 2nd, 4th, 8th... object of many asks, and a single other answer ends the trust, as servers behind
 * one name may differ.
 */
static void multipart_prove(struct sl_http_multipart *multipart, struct sl_http_call *call)
{
	struct sl_habits *habits = multipart->http->signer->habits;
	const unsigned many = SLUICE_OPEN_MANY | SLUICE_OPEN_EXCLUSIVE;
	unsigned count;

	if ((multipart->http->flags & many) != many || atomic_load(&habits->excludes) > SL_EXCLUDES)
		return;
	count = 1 + atomic_fetch_add(&habits->stored, 1);
	if (count & (count - 1))
		return;
	call->brief = true;
	/* The object is there now. */
	multipart->http->absent = false;
	multipart_run_exclusive(multipart, call);
	habits_learn(habits, call->answer.status == 412 ? SL_EXCLUDES : SL_EXCLUDES_IGNORES);
	sl_http_answer_clear(&call->answer);
}

/* part: NULL: the object is empty. */
static int multipart_put(struct sl_http_multipart *multipart, const struct sl_http_part *part,
                         uint64_t length)
{
	struct sl_http_call call = {.kind = SL_CALL_PUT,
	                            .body = part ? part->data : "",
	                            .length = length,
	                            .fields = &multipart->whole};
	uint32_t sum;
	int rc;

	sl_http_call_digest(multipart->http, &call, !atomic_load(&multipart->plain),
	                    part ? sl_http_part_sum(part, length, &sum) : NULL);
	rc = sl_http_multipart_finish(multipart, &call, length);
	if (!rc)
		multipart_prove(multipart, &call);
	return rc;
}

int sl_http_multipart_complete(struct sl_http_multipart *multipart, uint64_t length) SL_UNCHECKED
{
	unsigned count = multipart->locked.low - 1;
	const struct sl_service *service = multipart->http->signer->service;
	bool told = service->verbs[SL_CALL_BEGIN];
	struct sl_http_call call = {.kind = SL_CALL_COMPLETE,
	                            .upload = multipart->locked.upload,
	                            .fields = told ? &multipart->each : &multipart->whole,
	                            .completes = true};
	char *body;
	int rc = service->texts->complete(call.upload, multipart->locked.known, count, &body,
	                                  call.etag);

	if (rc)
		return rc;
	call.body = body;
	call.length = strlen(body);
	rc = sl_http_multipart_finish(multipart, &call, length);
	free(body);
	return rc;
}

/* No piece is in flight. */
int sl_http_multipart_commit(struct sl_http_multipart *multipart) SL_UNCHECKED
{
	struct sl_http_part *last;
	uint64_t end;
	bool begun;
	int rc;

	sl_mutex_lock(&multipart->mutex);
	end = sl_http_multipart_chain_locked(multipart);
	rc = multipart_check_locked(multipart, end);
	begun = multipart->locked.begun;
	last = sl_http_multipart_part_locked(multipart, begun ? multipart->locked.low : 1);
	sl_mutex_unlock(&multipart->mutex);
	if (rc)
		return rc;
	if (!begun)
		return multipart_put(multipart, last, end);
	if (last) {
		last->cut.length = end - last->cut.start;
		sl_http_multipart_fill(multipart, last);
	}
	sl_http_multipart_wait(multipart);
	rc = multipart_check_locked(multipart, end);
	return rc ? rc : sl_http_multipart_complete(multipart, end);
}

/* After the wait no other thread has the upload. */
void sl_http_multipart_free(struct sl_http_multipart *multipart) SL_UNCHECKED
{
	if (!multipart)
		return;
	sl_mutex_lock(&alive.mutex);
	if (sl_list_linked(&multipart->alive))
		sl_list_remove(&multipart->alive);
	sl_mutex_unlock(&alive.mutex);
	multipart_abort(multipart);
	sl_list_each_of (part, &multipart->locked.parts, struct sl_http_part, link)
		sl_http_part_free(part);
	sl_list_each_of (part, &multipart->locked.spare, struct sl_http_part, link)
		sl_http_part_free(part);
	for (unsigned i = 0; multipart->locked.begun && i < multipart->plan.limits->parts; i++)
		free(multipart->locked.known[i].etag);
	free(multipart->locked.upload);
	free(multipart->locked.sentence);
	sl_http_fields_clear(&multipart->whole);
	sl_http_fields_clear(&multipart->each);
	sl_gate_give(&multipart->http->engine->uploads, multipart->locked.share);
	pthread_cond_destroy(&multipart->idle);
	sl_mutex_destroy(&multipart->mutex);
	free(multipart);
}

/* -------------------------------------------------------------------------------------- begin */

static void multipart_register(struct sl_http_multipart *multipart)
{
	sl_mutex_lock(&alive.mutex);
	if (!alive.registered)
		alive.registered = !atexit(multipart_abort_all);
	atomic_store(&alive.process, multipart->process);
	sl_list_append(&alive.uploads, &multipart->alive);
	sl_mutex_unlock(&alive.mutex);
}

static int multipart_set_fields(struct sl_http_multipart *multipart)
{
	struct sl_http *http = multipart->http;
	int rc = sl_http_fields_begin(&multipart->whole, http);

	if (!rc && !sl_http_identity_has(http, "Content-Type"))
		rc = sl_http_fields_add(&multipart->whole,
		                        "Content-Type: application/octet-stream");
	for (struct curl_slist *line = http->headers; !rc && line; line = line->next)
		if (http->signer->service->texts->line(line->data) & SL_LINE_EACH)
			rc = sl_line_add(&multipart->each.home, "%s", line->data);
	return rc;
}

/* No other thread has the upload yet. */
int sl_http_multipart_new(struct sl_http *http, const struct sluice_open_options *options,
                          struct sl_http_multipart **out) SL_UNCHECKED
{
	const struct sl_service_limits *limits = &http->signer->service->limits;
	uint64_t part = http->core->settings.part_bytes, total = options->expected_size;
	unsigned most = total && total <= part ? 1 : limits->parts;
	struct sl_http_multipart *multipart =
		calloc(1, sizeof(*multipart) + most * sizeof(struct sl_service_part));
	uint32_t crc = UINT32_MAX;
	int rc;

	if (!multipart)
		return sl_fail(-ENOMEM, "no memory");
	multipart->locked.known = (struct sl_service_part *)(multipart + 1);
	multipart->http = http;
	multipart->most = most;
	multipart->process = getpid();
	atomic_store(&multipart->plain, !sl_crc32c_add(&crc, NULL, 0));
	sl_http_plan_make(limits, total, part, &multipart->plan);
	sl_mutex_init(&multipart->mutex);
	pthread_cond_init(&multipart->idle, NULL);
	sl_list_init(&multipart->locked.parts);
	sl_list_init(&multipart->locked.pieces);
	sl_list_init(&multipart->locked.coming);
	sl_list_init(&multipart->locked.spare);
	sl_http_multipart_take_share(multipart);
	multipart->locked.low = 1;
	sl_http_multipart_move_locked(multipart, false);
	multipart_register(multipart);
	rc = multipart_set_fields(multipart);
	if (!rc && multipart->plan.bytes > limits->part_most)
		rc = sl_fail(-EFBIG, "'%s': %s", http->name, limits->too_large);
	if (rc)
		sl_http_multipart_free(multipart);
	else
		*out = multipart;
	return rc;
}
