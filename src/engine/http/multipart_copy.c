/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies by the server
 *
 * Has the server of a service copy an object: by a single request where it is short, else as an
 * upload, whose parts are ranges of the source. No byte comes here.
 *
 * Threads: those of the program, which wait for the server; reactors end the calls of parts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/multipart_internal.h"

#define PARTS 8 /* of an object that is just too long for a single request */

struct object_copy {
	struct sl_http *source, *target;
	struct sl_service_copy lines;
};

struct copy_part {
	struct sl_http_call call;
	struct sl_http_multipart *multipart;
	char range[SL_SERVICE_LINE];
	struct curl_slist line; /* of the range, before those of copy.lines.part */
	struct sl_http_fields fields;
};

/* ------------------------------------------------------------------------------------- lines */

static int copy_make_lines(struct object_copy *copy, const struct sl_uri *from)
{
	const char *etag = copy->source->opened.of[SL_HTTP_FIELD_ETAG];
	const struct sl_http *target = copy->target;

	copy->lines = (struct sl_service_copy){
		.uri = from->path,
		.url = copy->source->url,
		.etag = etag && sl_strong_etag(etag) ? etag : NULL,
		.target = target->name,
		.target_url = target->url,
		.given = target->headers,
	};
	return target->signer->service->copies->lines(&copy->lines);
}

/* Keeps a line of the header of a response if it is metadata of the object. */
static void copy_keep(struct sl_http_request *request, const char *data, size_t bytes)
{
	int length = 0;

	while ((size_t)length < bytes && !strchr("\r\n", data[length]))
		length++;
	if (request->http->signer->service->texts->line(data) & SL_LINE_METADATA &&
	    sl_line_add(&request->response.metadata, "%.*s", length, data))
		sl_http_request_fail(request, -ENOMEM, "no memory for a header");
}

/* The lines that begin an upload: the source's metadata, where the user has no other. */
static int copy_make_begin(struct object_copy *copy, struct sl_http_fields *begin)
{
	struct sl_http_request *request;
	int rc;

	sl_http_fields_clear(begin);
	begin->home = copy->lines.begin;
	copy->lines.begin = NULL;
	if (copy->lines.replaces)
		return 0;
	copy->source->keep_metadata = copy_keep;
	rc = sl_http_ask(copy->source, &sl_http_kind_head, &request);
	for (struct curl_slist *l = request ? request->response.metadata : NULL; !rc && l;
	     l = l->next)
		rc = sl_line_add(&begin->home, "%s", l->data);
	sl_http_request_free(request);
	return rc;
}

/* ------------------------------------------------------------------------------------- parts */

static void copy_part_over(struct sl_http_call *call)
{
	struct copy_part *part = SL_CONTAINER(call, struct copy_part, call);
	struct sl_http_multipart *multipart = part->multipart;
	char etag[SL_SERVICE_TEXT] = "", *kept;

	multipart->http->signer->service->texts->answers(
		call->kind, call->answer.xml ? call->answer.xml : "", etag, sizeof(etag));
	kept = call->answer.error ? NULL : strdup(etag);
	if (!kept)
		sl_http_multipart_fail(multipart, call->answer.error ? call->answer.error : -ENOMEM,
		                       call->answer.sentence);
	sl_http_answer_clear(&call->answer);
	sl_mutex_lock(&multipart->mutex);
	multipart->locked.known[call->part - 1].etag = kept;
	multipart->locked.known[call->part - 1].full = kept;
	sl_mutex_unlock(&multipart->mutex);
	/* The last frees the parts. */
	sl_http_multipart_landed(multipart);
}

/* Starts the copies of all ranges, which wait for permits. The upload has its id. */
static void copy_start_parts(struct object_copy *copy, struct copy_part *parts,
                             unsigned count) SL_UNCHECKED
{
	struct sl_http_multipart *multipart = copy->target->multipart;
	uint64_t total = multipart->plan.total, bytes = multipart->plan.bytes;

	for (unsigned i = 0; i < count; i++) {
		struct copy_part *part = &parts[i];
		uint64_t start = i * bytes, length = SL_MIN(bytes, total - start);

		snprintf(part->range, sizeof(part->range), "%sbytes=%" PRIu64 "-%" PRIu64,
		         copy->target->signer->service->range_line, start, start + length - 1);
		part->line = (struct curl_slist){part->range, copy->lines.part};
		part->fields = (struct sl_http_fields){NULL, &part->line};
		part->multipart = multipart;
		part->call = (struct sl_http_call){.kind = SL_CALL_COPY_PART,
		                                   .upload = multipart->locked.upload,
		                                   .part = i + 1,
		                                   .body = "",
		                                   .fields = &part->fields,
		                                   .stop = &multipart->dropped,
		                                   .copies = length,
		                                   .over = copy_part_over};
		sl_mutex_lock(&multipart->mutex);
		multipart->locked.flying++;
		sl_mutex_unlock(&multipart->mutex);
		sl_http_call_start(copy->target, &part->call);
	}
}

/* Not every server looks at the line about the source's ETag. */
static int copy_check_source(struct object_copy *copy)
{
	const char *etag = copy->source->opened.of[SL_HTTP_FIELD_ETAG], *now;
	struct sl_http_request *request;
	int rc = sl_http_ask(copy->source, &sl_http_kind_head, &request);

	now = request ? request->response.texts.of[SL_HTTP_FIELD_ETAG] : NULL;
	if (!rc && (!now || strcmp(now, etag)))
		rc = sl_fail(-ESTALE, "'%s' changed while it was copied", copy->source->name);
	sl_http_request_free(request);
	return rc;
}

/* No other thread has the upload when nothing flies. */
static int copy_by_parts(struct object_copy *copy, uint64_t size, uint64_t most) SL_UNCHECKED
{
	struct sl_http_multipart *multipart = copy->target->multipart;
	uint64_t part_bytes = SL_MAX(most / PARTS, copy->target->core->settings.part_bytes);
	struct copy_part *parts;
	unsigned count;
	int rc;

	sl_http_plan_make(multipart->plan.limits, size, part_bytes, &multipart->plan);
	count = (unsigned)((size - 1) / multipart->plan.bytes + 1);
	rc = copy_make_begin(copy, &multipart->whole);
	if (rc)
		return rc;
	parts = calloc(count, sizeof(*parts));
	if (!parts)
		return sl_fail(-ENOMEM, "no memory");
	atomic_store(&multipart->plain, true);
	multipart->locked.begun = true;
	multipart->locked.flying = 1;
	sl_http_multipart_create(multipart);
	sl_http_multipart_wait(multipart);
	rc = sl_fail_with(multipart->locked.error, multipart->locked.sentence);
	if (!rc) {
		copy_start_parts(copy, parts, count);
		sl_http_multipart_wait(multipart);
		rc = sl_fail_with(multipart->locked.error, multipart->locked.sentence);
	}
	free(parts);
	if (!rc)
		rc = copy_check_source(copy);
	multipart->locked.low = count + 1;
	return rc ? rc : sl_http_multipart_complete(multipart, size);
}

/* -------------------------------------------------------------------------------------- copy */

static int copy_at_once(struct object_copy *copy, uint64_t size)
{
	const char *etag = copy->source->opened.of[SL_HTTP_FIELD_ETAG];
	const struct sl_http_fields fields = {.home = copy->lines.whole};
	struct sl_http_call call = {.kind = SL_CALL_COPY,
	                            .body = "",
	                            .fields = &fields,
	                            .copies = size + 1,
	                            .completes = copy->target->flags & SLUICE_OPEN_EXCLUSIVE};

	/* Nothing had that name at open: by this ETag it is the copy, whose answer was lost. */
	if (call.completes && etag && strlen(etag) < sizeof(call.etag))
		strcpy(call.etag, etag);
	return sl_http_multipart_finish(copy->target->multipart, &call, size);
}

static int copy_run(struct object_copy *copy, const struct sl_uri *from)
{
	struct sl_http *source = copy->source, *target = copy->target;
	const char *etag = source->opened.of[SL_HTTP_FIELD_ETAG];
	uint64_t most = SL_MIN(target->core->settings.copy_bytes,
	                       target->signer->service->limits.copy_most);
	struct sl_http_request *request;
	int rc = copy_make_lines(copy, from);

	if (rc)
		return rc;
	if (source->size < 0)
		return sl_fail(-ENOTSUP, "'%s': its server does not say its length", source->name);
	if ((uint64_t)source->size > most && (!etag || !sl_strong_etag(etag)))
		return sl_fail(-ENOTSUP,
		               "'%s' has no ETag, by which parts are known to be of one version",
		               source->name);
	rc = (uint64_t)source->size > most ? copy_by_parts(copy, source->size, most)
	                                   : copy_at_once(copy, source->size);
	/* A server that knows no copies stored what is written over. With EXCLUSIVE nothing is. */
	if (rc == -EPROTO &&
	    (source->size > (int64_t)most || !(target->flags & SLUICE_OPEN_EXCLUSIVE)))
		rc = -ENOTSUP;
	/* By 412 servers refuse another source, and a target that exists. */
	if (rc == -EEXIST) {
		rc = sl_http_ask(target, &sl_http_kind_head, &request) ? -ESTALE : -EEXIST;
		sl_http_request_free(request);
	}
	if (rc == -ESTALE)
		sl_fail(rc, "'%s' changed while it was copied", source->name);
	else if (rc == -EEXIST)
		sl_fail(rc, "'%s' exists", target->name);
	return rc;
}

int sl_http_copy(struct sl_core *core, const struct sl_uri *from, const struct sl_uri *to,
                 const struct sluice_open_options *options)
{
	const struct sl_service *service = sl_http_keyring(core->http, to->scheme)->service;
	struct sluice_open_options reading = {.size = sizeof(reading),
	                                      .flags = SLUICE_OPEN_READ | SLUICE_OPEN_AS_STORED};
	struct sluice_open_options writing = {.size = sizeof(writing),
	                                      .flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE |
	                                               SLUICE_OPEN_REPLACE |
	                                               (options->flags & SLUICE_OPEN_EXCLUSIVE)};
	struct sl_backend *source = NULL, *target = NULL;
	struct object_copy copy = {0};
	void *memory = NULL;
	int rc = service->copies ? service->copies->options(options, &reading, &writing, &memory)
	                         : sl_fail(-ENOTSUP, "'%s': the service has no copies", to->path);

	if (!rc)
		rc = sl_http_ops.open(core, from, &reading, &source);
	if (!rc)
		rc = sl_http_ops.open(core, to, &writing, &target);
	free(memory);
	if (!rc) {
		copy.source = sl_http_of(source);
		copy.target = sl_http_of(target);
		rc = copy_run(&copy, from);
	}
	/* An incomplete upload is dropped, and the sentence of the error stays the last. */
	if (target)
		sl_http_ops.close(target);
	if (source)
		sl_http_ops.close(source);
	sl_lines_clear(&copy.lines.whole, NULL);
	sl_lines_clear(&copy.lines.begin, NULL);
	sl_lines_clear(&copy.lines.part, NULL);
	return rc;
}
