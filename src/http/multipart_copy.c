/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies by the server
 *
 * Has a server of S3 copy an object: by a single request up to SLUICE_S3_COPY_BYTES, else as an upload, where parts are ranges
 * of the source. No byte of it comes here.
 *
 * Threads: those of the program, which wait for the server; reactors end the calls of parts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/multipart_internal.h"

#define SOURCE   "x-amz-copy-source-"
#define CUSTOMER "server-side-encryption-customer-"
#define PARTS    8 /* of an object that is just too long for a single request */

struct object_copy {
	struct sl_http *source, *target;
	struct sl_http_fields all, part; /* of a request for the whole, and for a part */
	bool replaces;                   /* the object gets the metadata of the user's lines */
};

struct copy_part {
	struct sl_http_call call;
	struct sl_http_multipart *multipart;
	unsigned number;
	char *query, range[80];
	struct curl_slist line; /* of the range, before those of copy.part */
	struct sl_http_fields fields;
};

static bool line_begins(const char *line, const char *name)
{
	return !strncasecmp(line, name, strlen(name));
}

/* ------------------------------------------------------------------------------------- lines */

/* Returns whether a line of a header is of the metadata that an object of S3 has. */
static bool line_is_metadata(const char *line)
{
	static const char *const names[] = {"x-amz-meta-",
	                                    "Content-Type:",
	                                    "Content-Encoding:",
	                                    "Content-Language:",
	                                    "Content-Disposition:",
	                                    "Cache-Control:",
	                                    "Expires:",
	                                    "x-amz-website-redirect-location:"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (line_begins(line, names[i]))
			return true;
	return false;
}

/* The lines by which the server finds the source, and has the key of it. */
static int copy_name_source(const struct object_copy *copy, const struct sl_uri *from,
                            struct sl_http_fields *fields)
{
	const char *query = strchr(copy->source->url, '?');
	const char *etag = copy->source->opened.of[SL_HTTP_FIELD_ETAG];
	char *place = sl_s3_copy_source(from->path, query ? query : "");
	int rc = place ? sl_s3_line_add(&fields->home, "x-amz-copy-source: %s", place)
	               : sl_fail(-ENOMEM, "no memory");

	free(place);
	if (!rc && etag && sl_http_strong_etag(etag))
		rc = sl_s3_line_add(&fields->home, SOURCE "if-match: %s", etag);
	/* The object has the key of the source, unless the user gives another for that. */
	if (!sl_http_identity_has(copy->target, SOURCE CUSTOMER "algorithm"))
		for (struct curl_slist *l = copy->target->headers; !rc && l; l = l->next)
			if (line_begins(l->data, "x-amz-" CUSTOMER))
				rc = sl_s3_line_add(&fields->home, SOURCE "%s",
				                    l->data + strlen("x-amz-"));
	return rc;
}

/* Makes the lines of the requests. Those of the user are all in a single request. */
static int copy_make_lines(struct object_copy *copy, const struct sl_uri *from)
{
	struct sl_http *target = copy->target;
	int rc = sl_http_fields_begin(&copy->all, target);

	for (struct curl_slist *l = target->headers; l; l = l->next)
		if (line_begins(l->data, "x-amz-metadata-directive:"))
			copy->replaces = strcasestr(l->data + 25, "REPLACE");
		else if (!sl_http_identity_has(target, "x-amz-metadata-directive"))
			copy->replaces |= line_is_metadata(l->data);
	if (!rc && copy->replaces && !sl_http_identity_has(target, "x-amz-metadata-directive"))
		rc = sl_s3_line_add(&copy->all.home, "x-amz-metadata-directive: REPLACE");
	for (struct curl_slist *l = target->headers; !rc && l; l = l->next)
		if (line_begins(l->data, SOURCE) || line_begins(l->data, "x-amz-source-") ||
		    sl_http_line_is_of_part(l->data))
			rc = sl_s3_line_add(&copy->part.home, "%s", l->data);
	if (!rc)
		rc = copy_name_source(copy, from, &copy->all);
	return rc ? rc : copy_name_source(copy, from, &copy->part);
}

/* Keeps a line of the header of a response if it is metadata of the object. */
static void copy_keep(struct sl_http_request *request, const char *data, size_t bytes)
{
	int length = 0;

	while ((size_t)length < bytes && !strchr("\r\n", data[length]))
		length++;
	if (line_is_metadata(data) &&
	    sl_s3_line_add(&request->response.metadata, "%.*s", length, data))
		sl_http_request_fail(request, -ENOMEM, "no memory for a header");
}

/* The lines of the request that begins an upload: the metadata of the source, where the user has no other. */
static int copy_make_whole(struct object_copy *copy, struct sl_http_fields *whole)
{
	struct sl_http_request *request;
	int rc = 0;

	sl_http_fields_clear(whole);
	for (struct curl_slist *l = copy->target->headers; !rc && l; l = l->next)
		if (!line_begins(l->data, SOURCE) && !line_begins(l->data, "x-amz-source-") &&
		    !line_begins(l->data, "x-amz-metadata-directive:") &&
		    !line_begins(l->data, "x-amz-tagging-directive:") &&
		    (copy->replaces || !line_is_metadata(l->data)))
			rc = sl_s3_line_add(&whole->home, "%s", l->data);
	if (rc || copy->replaces)
		return rc;
	copy->source->keep_metadata = copy_keep;
	rc = sl_http_ask(copy->source, &sl_http_kind_head, &request);
	for (struct curl_slist *l = request ? request->response.metadata : NULL; !rc && l;
	     l = l->next)
		rc = sl_s3_line_add(&whole->home, "%s", l->data);
	sl_http_request_free(request);
	return rc;
}

/* ------------------------------------------------------------------------------------- parts */

static void copy_part_over(struct sl_http_call *call)
{
	struct copy_part *part = SL_CONTAINER(call, struct copy_part, call);
	struct sl_http_multipart *multipart = part->multipart;
	char etag[SL_S3_TEXT], *kept;

	sl_s3_element(call->answer.xml ? call->answer.xml : "", "ETag", etag, sizeof(etag));
	kept = call->answer.error ? NULL : strdup(etag);
	if (!kept)
		sl_http_multipart_fail(multipart, call->answer.error ? call->answer.error : -ENOMEM,
		                       call->answer.sentence);
	sl_http_answer_clear(&call->answer);
	free(part->query);
	sl_mutex_lock(&multipart->mutex);
	multipart->locked.known[part->number - 1].etag = kept;
	multipart->locked.known[part->number - 1].full = kept;
	sl_mutex_unlock(&multipart->mutex);
	/* The last frees the parts. */
	sl_http_multipart_landed(multipart);
}

/* Starts the copies of all ranges, which wait for permits as any request does. The upload has its id. */
static void copy_start_parts(struct object_copy *copy, struct copy_part *parts,
                             unsigned count) SL_UNCHECKED
{
	struct sl_http_multipart *multipart = copy->target->multipart;
	uint64_t total = multipart->plan.total, bytes = multipart->plan.bytes;

	for (unsigned i = 0; i < count; i++) {
		struct copy_part *part = &parts[i];
		uint64_t start = i * bytes, length = SL_MIN(bytes, total - start);

		snprintf(part->range, sizeof(part->range),
		         SOURCE "range: bytes=%" PRIu64 "-%" PRIu64, start, start + length - 1);
		part->line = (struct curl_slist){part->range, copy->part.home};
		part->fields = (struct sl_http_fields){NULL, &part->line};
		part->multipart = multipart;
		part->number = i + 1;
		part->query = sl_s3_upload_query(multipart->locked.upload, i + 1);
		part->call = (struct sl_http_call){.verb = "PUT",
		                                   .query = part->query,
		                                   .body = "",
		                                   .fields = &part->fields,
		                                   .stop = &multipart->dropped,
		                                   .root = "CopyPartResult",
		                                   .element = "ETag",
		                                   .copies = length,
		                                   .over = copy_part_over};
		sl_mutex_lock(&multipart->mutex);
		multipart->locked.flying++;
		sl_mutex_unlock(&multipart->mutex);
		if (part->query) {
			sl_http_call_start(copy->target, &part->call);
		} else {
			part->call.answer.error = -ENOMEM;
			copy_part_over(&part->call);
		}
	}
}

/* Asks whether the source is the one that was opened: not every server looks at the line about its ETag. */
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

static int multipart_error(struct sl_http_multipart *multipart)
{
	int rc;

	sl_mutex_lock(&multipart->mutex);
	rc = sl_http_multipart_error_locked(multipart);
	sl_mutex_unlock(&multipart->mutex);
	return rc;
}

/* No other thread has the upload when nothing flies. */
static int copy_by_parts(struct object_copy *copy, uint64_t size, uint64_t most) SL_UNCHECKED
{
	struct sl_http_multipart *multipart = copy->target->multipart;
	uint64_t part_bytes = SL_MAX(most / PARTS, copy->target->core->settings.s3_part_bytes);
	struct copy_part *parts;
	unsigned count;
	int rc;

	sl_s3_plan_make(size, part_bytes, &multipart->plan);
	count = (unsigned)((size - 1) / multipart->plan.bytes + 1);
	rc = copy_make_whole(copy, &multipart->whole);
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
	rc = multipart_error(multipart);
	if (!rc) {
		copy_start_parts(copy, parts, count);
		sl_http_multipart_wait(multipart);
		rc = multipart_error(multipart);
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
	struct sl_http_call call = {.verb = "PUT",
	                            .body = "",
	                            .fields = &copy->all,
	                            .root = "CopyObjectResult",
	                            .element = "ETag",
	                            .copies = size + 1,
	                            .completes = copy->target->flags & SLUICE_OPEN_EXCLUSIVE};

	/* Nothing of that name was there when it was opened: with this ETag it is the copy, and its answer was lost. */
	if (call.completes && etag && strlen(etag) < sizeof(call.etag))
		strcpy(call.etag, etag);
	return sl_http_multipart_finish(copy->target->multipart, &call, size);
}

static int copy_run(struct object_copy *copy, const struct sl_uri *from)
{
	struct sl_http *source = copy->source, *target = copy->target;
	const char *etag = source->opened.of[SL_HTTP_FIELD_ETAG];
	uint64_t most = target->core->settings.s3_copy_bytes;
	struct sl_http_request *request;
	int rc;

	if (!target->headers && !strcmp(source->url, target->url))
		return sl_fail(-EINVAL,
		               "'%s' is both ends of the copy, which S3 refuses without new "
		               "metadata (x-amz-metadata-directive: REPLACE)",
		               target->name);
	if (source->size < 0)
		return sl_fail(-ENOTSUP, "'%s': its server does not say its length", source->name);
	if ((uint64_t)source->size > most && (!etag || !sl_http_strong_etag(etag)))
		return sl_fail(-ENOTSUP,
		               "'%s' has no ETag, by which parts are known to be of one version",
		               source->name);
	rc = copy_make_lines(copy, from);
	if (!rc)
		rc = (uint64_t)source->size > most ? copy_by_parts(copy, source->size, most)
		                                   : copy_at_once(copy, source->size);
	/* What a server that knows no copies has stored is written over, or was a part. With EXCLUSIVE nothing is. */
	if (rc == -EPROTO &&
	    (source->size > (int64_t)most || !(target->flags & SLUICE_OPEN_EXCLUSIVE)))
		rc = -ENOTSUP;
	/* A server refuses by the same status (412) where the source is another, and where the target exists. */
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

/* Returns the lines of the user with which the source is opened, for the caller to free as a whole; NULL: no memory. */
static const char **lines_of_source(const char *const *given)
{
	size_t count = 0, bytes = 0, length = strlen(SOURCE);
	const char **lines;
	bool own = false;
	char *text;

	for (; given && given[count]; count++) {
		bytes += strlen(given[count]) + 1;
		own |= line_begins(given[count], SOURCE CUSTOMER);
	}
	lines = malloc((count + 1) * sizeof(*lines) + bytes);
	if (!lines)
		return NULL;
	text = (char *)(lines + count + 1);
	count = 0;
	for (; given && *given; given++) {
		bool key = line_begins(*given, SOURCE CUSTOMER);

		if (!key && (!sl_http_line_is_of_part(*given) ||
		             (own && line_begins(*given, "x-amz-" CUSTOMER))))
			continue;
		lines[count++] = text;
		if (key)
			text += sprintf(text, "x-amz-%s", *given + length) + 1;
		else
			text = stpcpy(text, *given) + 1;
	}
	lines[count] = NULL;
	return lines;
}

int sl_http_copy(struct sl_core *core, const struct sl_uri *from, const struct sl_uri *to,
                 const struct sluice_open_options *options)
{
	struct sluice_open_options reading = {.size = sizeof(reading),
	                                      .flags = SLUICE_OPEN_READ | SLUICE_OPEN_AS_STORED,
	                                      .s3 = options->s3};
	struct sluice_open_options writing = {.size = sizeof(writing), .headers = options->headers};
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;
	const char **lines = lines_of_source(options->headers);
	struct sl_backend *source = NULL, *target = NULL;
	struct object_copy copy = {0};
	int rc;

	if (!lines)
		return sl_fail(-ENOMEM, "no memory");
	if (options->s3)
		memcpy(&s3, options->s3, SL_MIN(options->s3->size, sizeof(s3)));
	s3.size = sizeof(s3);
	s3.version = NULL;
	reading.headers = lines;
	writing.s3 = &s3;
	writing.flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | SLUICE_OPEN_REPLACE |
	                (options->flags & SLUICE_OPEN_EXCLUSIVE);
	rc = sl_http_ops.open(core, from, &reading, &source);
	free(lines);
	if (!rc)
		rc = sl_http_ops.open(core, to, &writing, &target);
	if (!rc) {
		copy.source = sl_http_of(source);
		copy.target = sl_http_of(target);
		rc = copy_run(&copy, from);
	}
	/* An upload that is not complete is dropped, and the sentence of the error stays the last. */
	if (target)
		sl_http_ops.close(target);
	if (source)
		sl_http_ops.close(source);
	sl_http_fields_clear(&copy.all);
	sl_http_fields_clear(&copy.part);
	return rc;
}
