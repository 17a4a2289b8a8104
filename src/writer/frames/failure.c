/* SPDX-License-Identifier: Apache-2.0 */
/* Failure of a writer: the first error wakes all threads, and is the result of each later call.
 * Threads: any, with the writer's mutex; a sink's take it here. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frames/frames_internal.h"

static char message_lost[] = "the writer has failed, and there was no memory to say why";

int sl_writer_refuse_locked(const struct sluice_writer *w)
{
	if (w->failure.error)
		return sl_fail(w->failure.error, "%s", w->failure.message);
	return sl_fail(-EINVAL, "'%s' is being closed", w->path);
}

/* Returns the thread's sentence with its stage and frame. */
static char *failure_describe_locked(const struct sluice_writer *w, const char *stage,
                                     const struct sl_frame *frame) SL_REQUIRES(&w->mutex)
{
	char *text =
		frame ? sl_format("cannot %s frame %" PRIu64 " of '%s': %s", stage,
	                          frame->locked.number, frame->series->name, sluice_last_message())
		      : sl_format("cannot %s '%s': %s", stage,
	                          w->remote ? w->remote->name : w->path, sluice_last_message());

	return text ? text : message_lost;
}

/* Takes the message. */
static void failure_keep_locked(struct sluice_writer *w, int error, const char *stage,
                                const struct sl_frame *frame, char *message) SL_REQUIRES(&w->mutex)
{
	w->failure.error = error;
	w->failure.stage = stage;
	w->failure.series = frame ? frame->series : NULL;
	w->failure.frame = frame ? frame->locked.number : 0;
	w->failure.message = message;
	if (w->sink)
		w->sink->ops->ended(w->sink, error, message);
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link)
		pthread_cond_broadcast(&s->freed);
	pthread_cond_broadcast(&w->progress);
	pthread_cond_signal(&w->work);
}

void sl_writer_fail_locked(struct sluice_writer *w, int error, const char *stage,
                           const struct sl_frame *frame)
{
	if (!w->failure.error)
		failure_keep_locked(w, error, stage, frame,
		                    failure_describe_locked(w, stage, frame));
}

void sl_writer_fail(struct sluice_writer *w, int error, const char *sentence)
{
	char *message = strdup(sentence);

	sl_mutex_lock(&w->mutex);
	if (!w->failure.error) {
		failure_keep_locked(w, error, "store", NULL, message ? message : message_lost);
		message = NULL;
	}
	sl_mutex_unlock(&w->mutex);
	free(message);
}

int sl_writer_check(struct sluice_writer *w)
{
	int rc;

	sl_mutex_lock(&w->mutex);
	rc = sl_writer_check_locked(w);
	sl_mutex_unlock(&w->mutex);
	return rc;
}

void sl_failure_free(struct sl_failure *failure)
{
	if (failure->message != message_lost)
		free(failure->message);
}
