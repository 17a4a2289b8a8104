/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong: the caller's stream waits for a word already, while other threads enqueue the copies behind
 * which the word is written.
 */
#include "system/torture/apart.h"

#include <time.h>

const char *const wrong = "copies enqueued while the stream waits for them";

enum { PAIRS = OPS_MOST };
/* Of each operation: that the stream has come to it, and that it may go on. */
static _Atomic uint32_t *words[DEVICES];
static _Atomic uint32_t used[DEVICES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct apart *first; /* guarded by mutex */

static void look_at(struct apart *apart)
{
	if (atomic_load(&apart->words[0]) && !apart->begun)
		apart_begin(apart);
	if (apart_is_over(apart))
		atomic_store(&apart->words[1], 1);
}

/* The worker. What it has seen to the end stays in the list: the process is short-lived. */
static void *work(void *argument)
{
	struct timespec pause = {0, 20000};

	(void)argument;
	for (;;) {
		pthread_mutex_lock(&mutex);
		for (struct apart *apart = first; apart; apart = apart->next)
			if (!atomic_load(&apart->words[1]))
				look_at(apart);
		pthread_mutex_unlock(&mutex);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

int apart_enqueue(struct apart *apart, struct sl_device *device, sluice_stream stream)
{
	int which = gpu_which(device->index);
	uint32_t pair = atomic_fetch_add(&used[which], 1);
	struct sl_command commands[2];
	size_t taken;
	int rc;

	if (pair >= 64 * PAIRS)
		caught("environment", "there are no more words");
	apart->words = words[which] + (size_t)2 * pair;
	commands[0] = (struct sl_command){.kind = SL_WRITE_WORD, .word = {&apart->words[0], 1}};
	commands[1] = (struct sl_command){.kind = SL_AWAIT_WORD, .word = {&apart->words[1], 1}};
	pthread_mutex_lock(&mutex);
	apart->next = first;
	first = apart;
	pthread_mutex_unlock(&mutex);
	rc = device->ops->enqueue(device, stream, commands, 2, &taken);
	return rc;
}

void wrong_start(void)
{
	pthread_t thread;

	for (int i = 0; i < DEVICES; i++)
		if (sluice_pinned_alloc(gpu_device(i), (size_t)64 * PAIRS * 2 * sizeof(*words[i]),
		                        (void **)&words[i]))
			caught("environment", "%s", sluice_last_message());
	if (pthread_create(&thread, NULL, work, NULL))
		caught("environment", "no thread: %s", strerror(errno));
	pthread_detach(thread);
}
