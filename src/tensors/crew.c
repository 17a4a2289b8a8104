/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crews
 *
 * The same work on several threads, of which the first error counts.
 *
 * Threads: the caller belongs to the crew, and waits for the others.
 */
#include "tensors/crew.h"

#include <stdlib.h>
#include <string.h>

#define CREW_MOST 16

struct crew {
	int (*work)(void *argument);
	void *argument;
	_Atomic bool *stop;
	struct sl_mutex mutex;
	int error SL_GUARDED_BY(&mutex);     /* the first */
	char *message SL_GUARDED_BY(&mutex); /* its sentence, or NULL */
};

static void *crew_work(void *argument)
{
	struct crew *crew = argument;
	int rc = crew->work(crew->argument);

	if (!rc)
		return NULL;
	sl_mutex_lock(&crew->mutex);
	if (!crew->error)
		crew->message = strdup(sluice_last_message());
	crew->error = crew->error ? crew->error : rc;
	sl_mutex_unlock(&crew->mutex);
	atomic_store(crew->stop, true);
	return NULL;
}

/* Its threads have been joined. */
static int crew_end(struct crew *crew) SL_UNCHECKED
{
	int rc = sl_fail_with(crew->error, crew->message);

	free(crew->message);
	sl_mutex_destroy(&crew->mutex);
	return rc;
}

int sl_crew_run(const char *name, unsigned threads, int (*work)(void *argument), void *argument,
                _Atomic bool *stop)
{
	struct crew crew = {.work = work, .argument = argument, .stop = stop};
	pthread_t others[CREW_MOST];
	unsigned started = 0;

	sl_mutex_init(&crew.mutex);
	while (started + 1 < SL_MIN(threads, CREW_MOST) &&
	       !sl_thread_start(&others[started], name, crew_work, &crew))
		started++;
	crew_work(&crew);
	while (started)
		pthread_join(others[--started], NULL);
	return crew_end(&crew);
}
