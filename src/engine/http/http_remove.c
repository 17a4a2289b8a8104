/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removal of objects
 *
 * One by one, or many by a request where their server knows that. An object is removed if the
 * server says so and names it. All others are removed one by one, several at a time.
 *
 * Threads: those of the program, which wait for calls.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/call.h"

enum {
	AT_A_TIME = 32,
	OPEN = 1, /* in place of an error: not removed yet */
};

/* -------------------------------------------------------------------------------- one by one */

/* The removal of an object, or of an upload of it. */
struct single {
	struct sl_backend *backend; /* NULL: it could not begin, as the answer says */
	struct sl_http_call call;
};

static void single_begin(struct single *single, struct sl_core *core, const char *text,
                         const struct sluice_open_options *options, const char *upload)
{
	struct sl_uri uri;
	int rc = sl_uri_parse(text, &uri);

	*single = (struct single){0};
	if (!rc) {
		rc = sl_http_open_query(core, &uri, options, NULL, &single->backend);
		sl_uri_clear(&uri);
	}
	if (rc) {
		single->call.answer.error = rc;
		single->call.answer.sentence = strdup(sluice_last_message());
		return;
	}
	single->call = (struct sl_http_call){.kind = upload ? SL_CALL_DROP : SL_CALL_REMOVE,
	                                     .upload = upload,
	                                     .fields = &sl_http_of(single->backend)->fields};
	sl_http_call_begin(sl_http_of(single->backend), &single->call);
}

/* Waits for the answer. Returns 0, or -errno with a sentence. */
static int single_end(struct single *single)
{
	struct sl_http_answer *answer = &single->call.answer;
	int rc;

	if (single->backend) {
		sl_http_call_await(&single->call);
		sl_http_ops.close(single->backend);
	}
	rc = sl_fail_with(answer->error, answer->sentence);
	sl_http_answer_clear(answer);
	return rc;
}

static int single_run(struct sl_core *core, const char *uri,
                      const struct sluice_open_options *options, const char *upload)
{
	struct single single;
	int rc = -EREMOTE;

	/* The second time the place is known. */
	for (int i = 0; i < 2 && rc == -EREMOTE; i++) {
		single_begin(&single, core, uri, options, upload);
		rc = single_end(&single);
	}
	return rc;
}

int sl_http_drop(struct sl_core *core, const struct sl_uri *uri,
                 const struct sluice_open_options *options, const char *upload)
{
	return single_run(core, uri->path, options, upload);
}

int sl_http_remove(struct sl_core *core, const struct sl_uri *uri,
                   const struct sluice_open_options *options)
{
	return single_run(core, uri->path, options, NULL);
}

/* -------------------------------------------------------------------------------------- many */

/* The objects of a call of sluice_remove_many(). */
struct removals {
	struct sl_core *core;
	const struct sl_service *service;
	const struct sluice_open_options *options;
	const char *const *uris;
	int *errors;
	char **messages;
};

/* Notes the result of an object, of which the last sentence tells. */
static void removals_note(struct removals *all, size_t i, int error)
{
	all->errors[i] = error;
	if (error)
		all->messages[i] = strdup(sluice_last_message());
}

static void removals_end_one(struct removals *all, struct single *single, size_t i)
{
	int rc = single_end(single);

	removals_note(all, i,
	              rc == -EREMOTE ? single_run(all->core, all->uris[i], all->options, NULL)
	                             : rc);
}

/* Removes those that are OPEN. */
static void removals_one_by_one(struct removals *all, size_t count)
{
	struct single ring[AT_A_TIME];
	size_t of[AT_A_TIME], head = 0, tail = 0;

	for (size_t i = 0; i < count; i++) {
		if (all->errors[i] != OPEN)
			continue;
		if (head - tail == AT_A_TIME) {
			removals_end_one(all, &ring[tail % AT_A_TIME], of[tail % AT_A_TIME]);
			tail++;
		}
		single_begin(&ring[head % AT_A_TIME], all->core, all->uris[i], all->options, NULL);
		of[head++ % AT_A_TIME] = i;
	}
	for (; tail < head; tail++)
		removals_end_one(all, &ring[tail % AT_A_TIME], of[tail % AT_A_TIME]);
}

/* Takes the names out of an answer. One that is also named by an error stays OPEN. */
static void removals_read(struct removals *all, size_t from, size_t to, char *xml)
{
	bool removed;
	char *name;
	size_t i = from;

	for (char *at = xml; all->service->removals->next(&at, &name, &removed);) {
		/* Answers have the order of the request, more or less. */
		for (size_t n = from; n < to; n++, i = i + 1 < to ? i + 1 : from) {
			const char *own = all->service->removals->name(all->uris[i]);

			if (!own || strcmp(own, name))
				continue;
			all->errors[i] = removed && all->errors[i] != -EIO ? 0 : -EIO;
			break;
		}
	}
	for (i = from; i < to; i++)
		all->errors[i] = all->errors[i] ? OPEN : 0;
}

/* Removes objects of a bucket by a request. Those that the server does not name stay OPEN, and all
 * of them if it answers with anything else; it is not asked again then. */
static void removals_at_once(struct removals *all, size_t from, size_t to)
{
	struct sl_http_call call = {.kind = SL_CALL_REMOVE_MANY, .brief = true};
	char *query = NULL, *body = all->service->removals->body(all->options, all->uris + from,
	                                                         to - from, call.digest.line);
	struct sl_backend *backend = NULL;
	struct sl_habits *habits;
	struct sl_uri uri;
	int rc = body ? sl_uri_parse(all->uris[from], &uri) : 0;

	if (!body)
		return;
	if (!rc) {
		rc = all->service->texts->query(NULL, call.kind, NULL, 0, &query);
		if (!rc)
			rc = sl_http_open_query(all->core, &uri, all->options, query, &backend);
		sl_uri_clear(&uri);
	}
	habits = rc ? NULL : sl_http_of(backend)->signer->habits;
	if (habits && !atomic_load(&habits->single)) {
		call.body = body;
		call.length = strlen(body);
		call.fields = &sl_http_of(backend)->fields;
		rc = sl_http_call_run(sl_http_of(backend), &call);
		if (!rc)
			removals_read(all, from, to, call.answer.xml);
		else if (call.answer.status && rc != -EREMOTE)
			atomic_store(&habits->single, true);
		rc = call.answer.status ? 0 : rc;
	}
	for (size_t i = from; rc && i < to; i++)
		removals_note(all, i, rc);
	sl_http_answer_clear(&call.answer);
	if (backend)
		sl_http_ops.close(backend);
	free(query);
	free(body);
}

void sl_http_remove_many(struct sl_core *core, const char *scheme, const char *const *uris,
                         size_t count, const struct sluice_open_options *options, int *errors,
                         char **messages)
{
	const struct sl_service *service = sl_http_keyring(core->http, scheme)->service;
	size_t behind = strlen(scheme) + strlen("://");
	struct removals all = {core, service, options, uris, errors, messages};

	for (size_t i = 0; i < count; i++)
		errors[i] = OPEN;
	for (size_t from = 0, to; from < count && service->removals; from = to) {
		size_t bucket = behind + strcspn(uris[from] + behind, "/") + 1;

		to = from + 1;
		while (to < count && to < from + service->limits.removals &&
		       !strncmp(uris[to], uris[from], bucket))
			to++;
		removals_at_once(&all, from, to);
	}
	removals_one_by_one(&all, count);
}
