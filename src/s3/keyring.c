/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keyring
 *
 * Keeps the credentials that processes have printed, and runs a process again before they expire.
 *
 * Threads: any. Opening a file may run a process, and waits for it; a task that may wait runs it later. Only one thread
 * runs a process at a time. Signing takes the mutex of the keys, which no thread holds while it waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "s3/keyring.h"
#include "s3/s3.h"

#define EARLY_S 300 /* before the keys expire, they are renewed */
#define PAUSE_S 10  /* at least, between two runs that tasks make */

struct sl_s3_process {
	struct sl_list link;
	struct sl_pool *waiting;
	char *command;
	struct sl_task task;
	struct sl_mutex turn; /* held while the process runs; its end releases it */

	struct sl_mutex mutex;
	struct {
		struct sl_s3_keys keys;
		bool queued; /* the task */
		int64_t ran; /* seconds since 1970: the last run */
	} locked SL_GUARDED_BY(&mutex);
};

struct sl_s3_keyring {
	struct sl_mutex mutex;
	struct {
		struct sl_list processes;
	} locked SL_GUARDED_BY(&mutex);
};

int sl_s3_keyring_new(struct sl_s3_keyring **out) SL_UNCHECKED
{
	struct sl_s3_keyring *keyring = calloc(1, sizeof(*keyring));

	if (!keyring)
		return sl_fail(-ENOMEM, "no memory");
	sl_mutex_init(&keyring->mutex);
	sl_list_init(&keyring->locked.processes);
	*out = keyring;
	return 0;
}

static void process_free(struct sl_s3_process *process) SL_UNCHECKED
{
	sl_s3_keys_clear(&process->locked.keys);
	sl_mutex_destroy(&process->turn);
	sl_mutex_destroy(&process->mutex);
	free(process->command);
	free(process);
}

void sl_s3_keyring_free(struct sl_s3_keyring *keyring) SL_UNCHECKED
{
	struct sl_list *link;

	if (!keyring)
		return;
	while ((link = sl_list_take(&keyring->locked.processes)))
		process_free(SL_CONTAINER(link, struct sl_s3_process, link));
	sl_mutex_destroy(&keyring->mutex);
	free(keyring);
}

/* ----------------------------------------------------------------------------------- process */

static bool process_is_due_locked(const struct sl_s3_process *process, int64_t now)
	SL_REQUIRES(&process->mutex)
{
	const struct sl_s3_keys *keys = &process->locked.keys;

	return !keys->id || (keys->expires && keys->expires - now < EARLY_S);
}

/* Returns 0, or -errno with a sentence; keys that are there stay then. */
static int process_run(struct sl_s3_process *process)
{
	struct sl_s3_keys keys, old = {0};
	int rc = sl_s3_process_run(process->command, &keys);

	sl_mutex_lock(&process->mutex);
	process->locked.ran = time(NULL);
	if (!rc) {
		old = process->locked.keys;
		process->locked.keys = keys;
	}
	sl_mutex_unlock(&process->mutex);
	sl_s3_keys_clear(&old);
	return rc;
}

static void process_run_task(struct sl_task *task)
{
	struct sl_s3_process *process = SL_CONTAINER(task, struct sl_s3_process, task);

	sl_mutex_lock(&process->turn);
	process_run(process);
	sl_mutex_unlock(&process->turn);
	sl_mutex_lock(&process->mutex);
	process->locked.queued = false;
	sl_mutex_unlock(&process->mutex);
}

/* Queues the task; returns false if the process has run just now. */
static bool process_queue_locked(struct sl_s3_process *process, int64_t now)
	SL_REQUIRES(&process->mutex)
{
	if (process->locked.queued)
		return true;
	if (now - process->locked.ran < PAUSE_S)
		return false;
	process->locked.queued = true;
	sl_pool_submit(process->waiting, &process->task);
	return true;
}

static struct sl_s3_process *process_new(struct sl_pool *waiting, const char *command)
{
	struct sl_s3_process *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	sl_mutex_init(&process->turn);
	sl_mutex_init(&process->mutex);
	process->waiting = waiting;
	process->task.run = process_run_task;
	process->command = strdup(command);
	if (process->command)
		return process;
	process_free(process);
	return NULL;
}

static struct sl_s3_process *process_find_locked(struct sl_s3_keyring *keyring, const char *command)
	SL_REQUIRES(&keyring->mutex)
{
	sl_list_each (link, &keyring->locked.processes) {
		struct sl_s3_process *process = SL_CONTAINER(link, struct sl_s3_process, link);

		if (!strcmp(process->command, command))
			return process;
	}
	return NULL;
}

int sl_s3_process_acquire(struct sl_s3_keyring *keyring, struct sl_pool *waiting,
                          const char *command, struct sl_s3_process **out)
{
	struct sl_s3_process *process;
	bool has, due;
	int rc = 0;

	sl_mutex_lock(&keyring->mutex);
	process = process_find_locked(keyring, command);
	if (!process && (process = process_new(waiting, command)))
		sl_list_append(&keyring->locked.processes, &process->link);
	sl_mutex_unlock(&keyring->mutex);
	if (!process)
		return sl_fail(-ENOMEM, "no memory");
	sl_mutex_lock(&process->turn);
	sl_mutex_lock(&process->mutex);
	has = process->locked.keys.id;
	due = process_is_due_locked(process, time(NULL));
	sl_mutex_unlock(&process->mutex);
	if (due)
		rc = process_run(process);
	sl_mutex_unlock(&process->turn);
	if (rc && !has)
		return rc;
	*out = process;
	return 0;
}

int sl_s3_process_copy(struct sl_s3_process *process, int64_t now, struct sl_s3_keys *out)
{
	const struct sl_s3_keys *keys = &process->locked.keys;
	struct sl_s3_keys copy;

	sl_mutex_lock(&process->mutex);
	if (process_is_due_locked(process, now))
		process_queue_locked(process, now);
	copy = (struct sl_s3_keys){strdup(keys->id), strdup(keys->secret),
	                           keys->token ? strdup(keys->token) : NULL, keys->expires};
	if (!copy.id || !copy.secret || (keys->token && !copy.token)) {
		sl_mutex_unlock(&process->mutex);
		sl_s3_keys_clear(&copy);
		return sl_fail(-ENOMEM, "no memory");
	}
	sl_mutex_unlock(&process->mutex);
	*out = copy;
	return 0;
}

bool sl_s3_process_renew(struct sl_s3_process *process)
{
	bool queued;

	sl_mutex_lock(&process->mutex);
	queued = process_queue_locked(process, time(NULL));
	sl_mutex_unlock(&process->mutex);
	return queued;
}
