/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keyring
 *
 * Keeps credentials from sources, and asks again before they expire; and the regions where servers
 * said buckets are.
 *
 * Threads: any. Opening a file may ask a source, and waits for it; later a waiting task asks. A
 * single thread asks a source at a time. Signing takes the keys' mutex, and no thread holds it
 * while it waits.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "s3/keyring.h"

#define EARLY_S 300 /* before the keys expire, they are renewed */
#define PAUSE_S 10  /* at least, between two tasks */

struct sl_s3_issuer {
	struct sl_list link;
	const struct sl_settings *settings;
	struct sl_pool *waiting;
	struct sl_s3_source source;
	struct sl_task task;
	struct sl_mutex turn; /* held while the source is asked; its answer releases it */

	struct sl_mutex mutex;
	struct {
		struct sl_s3_keys keys;
		unsigned version; /* of the keys; 0: there are none */
		unsigned refused; /* the last version to be expired in a server's opinion */
		bool queued;      /* the task */
		int64_t asked;    /* seconds since 1970: the last time */
	} locked SL_GUARDED_BY(&mutex);
};

struct sl_s3_keyring {
	struct sl_keyring base;
	const struct sl_settings *settings;
	struct sl_mutex mutex;
	struct {
		struct sl_list issuers, notes;
	} locked SL_GUARDED_BY(&mutex);
};

struct sl_s3_keyring *sl_s3_keyring_of(struct sl_keyring *keyring)
{
	return SL_CONTAINER(keyring, struct sl_s3_keyring, base);
}

int sl_s3_start(const struct sl_settings *settings, struct sl_keyring **out) SL_UNCHECKED
{
	struct sl_s3_keyring *keyring = calloc(1, sizeof(*keyring));

	if (!keyring)
		return sl_fail(-ENOMEM, "no memory");
	keyring->base.service = &sl_s3_service;
	keyring->settings = settings;
	sl_mutex_init(&keyring->mutex);
	sl_list_init(&keyring->locked.issuers);
	sl_list_init(&keyring->locked.notes);
	*out = &keyring->base;
	return 0;
}

void sl_s3_stop(struct sl_keyring *base) SL_UNCHECKED
{
	struct sl_s3_keyring *keyring = sl_s3_keyring_of(base);

	sl_list_each_of (issuer, &keyring->locked.issuers, struct sl_s3_issuer, link) {
		sl_s3_keys_clear(&issuer->locked.keys);
		sl_s3_source_clear(&issuer->source);
		sl_mutex_destroy(&issuer->turn);
		sl_mutex_destroy(&issuer->mutex);
		free(issuer);
	}
	sl_list_each_of (note, &keyring->locked.notes, struct sl_s3_note, link)
		free(note);
	sl_mutex_destroy(&keyring->mutex);
	free(keyring);
}

/* ------------------------------------------------------------------------------------- notes */

struct sl_s3_note *sl_s3_note_keep(struct sl_s3_keyring *keyring, const char *text)
{
	struct sl_s3_note *note = NULL;

	sl_mutex_lock(&keyring->mutex);
	sl_list_each_of (known, &keyring->locked.notes, struct sl_s3_note, link)
		if (!strcmp(known->text, text))
			note = known;
	if (!note && (note = calloc(1, sizeof(*note) + strlen(text) + 1))) {
		strcpy(note->text, text);
		sl_list_append(&keyring->locked.notes, &note->link);
	}
	sl_mutex_unlock(&keyring->mutex);
	return note;
}

void sl_s3_region_keep(struct sl_s3_keyring *keyring, struct sl_s3_note *note, const char *region)
{
	sl_mutex_lock(&keyring->mutex);
	snprintf(note->region, sizeof(note->region), "%s", region);
	sl_mutex_unlock(&keyring->mutex);
}

void sl_s3_region_find(struct sl_s3_keyring *keyring, const struct sl_s3_note *note,
                       char out[SL_SERVICE_TEXT])
{
	sl_mutex_lock(&keyring->mutex);
	if (note->region[0])
		strcpy(out, note->region);
	sl_mutex_unlock(&keyring->mutex);
}

/* ----------------------------------------------------------------------------------- issuers */

static bool issuer_is_due_locked(const struct sl_s3_issuer *issuer, int64_t now)
	SL_REQUIRES(&issuer->mutex)
{
	const struct sl_s3_keys *keys = &issuer->locked.keys;

	return !keys->id || (keys->expires && keys->expires - now < EARLY_S);
}

/* Returns 0, or -errno with a sentence; earlier keys stay then. */
static int issuer_ask(struct sl_s3_issuer *issuer)
{
	struct sl_s3_keys keys = {0}, old;
	int rc = issuer->source.ask(&issuer->source, issuer->settings, &keys);

	if (!rc)
		rc = sl_s3_keys_check(&keys, issuer->source.kind);
	sl_mutex_lock(&issuer->mutex);
	issuer->locked.asked = time(NULL);
	old = keys;
	if (!rc) {
		old = issuer->locked.keys;
		issuer->locked.version += !sl_s3_keys_equal(&old, &keys);
		issuer->locked.keys = keys;
	}
	sl_mutex_unlock(&issuer->mutex);
	sl_s3_keys_clear(&old);
	sl_log(issuer->settings, rc ? SL_LOG_ERROR : SL_LOG_DEBUG, "credentials from %s: %s",
	       issuer->source.kind, rc ? sluice_last_message() : "renewed");
	return rc;
}

static void issuer_run_task(struct sl_task *task)
{
	struct sl_s3_issuer *issuer = SL_CONTAINER(task, struct sl_s3_issuer, task);

	sl_mutex_lock(&issuer->turn);
	issuer_ask(issuer);
	sl_mutex_unlock(&issuer->turn);
	sl_mutex_lock(&issuer->mutex);
	issuer->locked.queued = false;
	sl_mutex_unlock(&issuer->mutex);
}

/* Queues the task; returns false if the source was asked just now, unless it is urgent. */
static bool issuer_queue_locked(struct sl_s3_issuer *issuer, int64_t now, bool urgent)
	SL_REQUIRES(&issuer->mutex)
{
	if (issuer->locked.queued)
		return true;
	if (!urgent && now - issuer->locked.asked < PAUSE_S)
		return false;
	issuer->locked.queued = true;
	sl_pool_submit(issuer->waiting, &issuer->task);
	return true;
}

/* Makes an issuer for a source, and takes it. Returns NULL without memory. */
static struct sl_s3_issuer *issuer_new(const struct sl_settings *settings, struct sl_pool *waiting,
                                       struct sl_s3_source *source)
{
	struct sl_s3_issuer *issuer = calloc(1, sizeof(*issuer));

	if (!issuer)
		return NULL;
	sl_mutex_init(&issuer->turn);
	sl_mutex_init(&issuer->mutex);
	issuer->settings = settings;
	issuer->waiting = waiting;
	issuer->task.run = issuer_run_task;
	issuer->source = *source;
	*source = (struct sl_s3_source){0};
	return issuer;
}

static bool issuer_is_ready(struct sl_s3_issuer *issuer)
{
	sl_mutex_lock(&issuer->mutex);
	bool ready = !issuer_is_due_locked(issuer, time(NULL));
	sl_mutex_unlock(&issuer->mutex);
	return ready;
}

int sl_s3_issuer_acquire(struct sl_s3_keyring *keyring, struct sl_pool *waiting,
                         struct sl_s3_source *source, struct sl_s3_issuer **out)
{
	struct sl_s3_issuer *issuer = NULL;
	bool has, due;
	int rc = 0;

	sl_mutex_lock(&keyring->mutex);
	sl_list_each_of (known, &keyring->locked.issuers, struct sl_s3_issuer, link)
		if (sl_s3_source_equal(&known->source, source))
			issuer = known;
	if (!issuer && waiting && (issuer = issuer_new(keyring->settings, waiting, source)))
		sl_list_append(&keyring->locked.issuers, &issuer->link);
	sl_mutex_unlock(&keyring->mutex);
	sl_s3_source_clear(source);
	*out = issuer;
	if (!waiting)
		return issuer && issuer_is_ready(issuer) ? 0 : -EAGAIN;
	if (!issuer)
		return sl_fail(-ENOMEM, "no memory");
	sl_mutex_lock(&issuer->turn);
	sl_mutex_lock(&issuer->mutex);
	has = issuer->locked.version;
	due = issuer_is_due_locked(issuer, time(NULL));
	sl_mutex_unlock(&issuer->mutex);
	if (due)
		rc = issuer_ask(issuer);
	sl_mutex_unlock(&issuer->turn);
	return has ? 0 : rc;
}

int sl_s3_issuer_copy(struct sl_s3_issuer *issuer, int64_t now, struct sl_s3_keys *out,
                      unsigned *version)
{
	sl_mutex_lock(&issuer->mutex);
	if (issuer_is_due_locked(issuer, now))
		issuer_queue_locked(issuer, now, false);
	int rc = sl_s3_keys_copy(&issuer->locked.keys, out);
	*version = issuer->locked.version;
	sl_mutex_unlock(&issuer->mutex);
	return rc;
}

/* Keys are refused for the first time: the source is asked at once. */
bool sl_s3_issuer_renew(struct sl_s3_issuer *issuer, unsigned version)
{
	sl_mutex_lock(&issuer->mutex);
	bool coming = version != issuer->locked.version ||
	              issuer_queue_locked(issuer, time(NULL), issuer->locked.refused != version);
	issuer->locked.refused = SL_MAX(issuer->locked.refused, version);
	sl_mutex_unlock(&issuer->mutex);
	return coming;
}
