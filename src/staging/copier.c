/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copier
 *
 * The thread of a device that makes the copies of operations that are awaited on the host: the only
 * thread of this library that calls the driver outside of public calls. Other threads' calls of the
 * driver may hold it up, so nothing in stream order ever depends on it.
 */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "staging/staging_internal.h"

#define COMMANDS_AT_ONCE 64
#define SPIN_NS          1000000 /* longer than a copy takes; naps take longer than they say */
#define NAP_NS           50000
#define ASK_NS           100000000 /* between two questions whether the device is still there */

/* ------------------------------------------------------------------------------------- lanes */

/* Gives the copies of a job to the stream, and the event behind them. begun: some were taken. */
static int lane_enqueue(struct sl_device *device, struct sl_copier_lane *lane,
                        struct sl_copy_job *job, sluice_event event, bool *begun)
{
	struct sl_command commands[COMMANDS_AT_ONCE];
	size_t count, taken;
	int rc = 0;

	do {
		for (count = 0; count < COMMANDS_AT_ONCE && job->next(job, &commands[count]);)
			count++;
		taken = 0;
		if (count)
			rc = device->ops->enqueue(device, lane->stream, commands, count, &taken);
		*begun = *begun || taken;
	} while (!rc && count == COMMANDS_AT_ONCE);
	return rc ? rc : device->ops->event_record(device, event, lane->stream);
}

/* Waits, after an error, until the device does not touch the copies' memory any more. */
static void lane_drain(struct sl_device *device, struct sl_copier_lane *lane)
{
	while (device->ops->stream_synchronize(device, lane->stream) &&
	       !device->ops->status(device))
		;
}

static void lane_start(struct sl_staging *staging, struct sl_copier_lane *lane,
                       struct sl_copy_job *job)
{
	struct sl_device *device = staging->device;
	unsigned at = (lane->first + lane->count) % SL_COPIES_MOST;
	bool begun = false;
	int rc = sl_staging_lost(staging)
	                 ? -EIO
	                 : lane_enqueue(device, lane, job, lane->events[at], &begun);

	/* Part of the job may be running: it is over when the stream is. */
	if (rc && begun)
		lane_drain(device, lane);
	if (rc) {
		job->done(job, rc);
		return;
	}
	lane->jobs[at] = job;
	lane->count++;
}

static bool lane_start_waiting(struct sl_staging *staging, struct sl_copier_lane *lane)
{
	bool any = false;

	while (lane->count < SL_COPIES_MOST && !sl_list_empty(&lane->waiting)) {
		struct sl_list *link = sl_list_take(&lane->waiting);

		lane_start(staging, lane, SL_CONTAINER(link, struct sl_copy_job, link));
		any = true;
	}
	return any;
}

/* Ends jobs, in order, as their events have come. */
static bool lane_finish(struct sl_staging *staging, struct sl_copier_lane *lane)
{
	struct sl_device *device = staging->device;
	bool any = false;

	while (lane->count) {
		struct sl_copy_job *job = lane->jobs[lane->first];
		int rc = sl_staging_lost(staging)
		                 ? -EIO
		                 : device->ops->event_query(device, lane->events[lane->first]);

		if (!rc)
			break;
		/* Whether it is over cannot be known. */
		if (rc < 0 && !sl_staging_lost(staging))
			lane_drain(device, lane);
		lane->first = (lane->first + 1) % SL_COPIES_MOST;
		lane->count--;
		job->done(job, rc < 0 ? rc : 0);
		any = true;
	}
	return any;
}

/*
 * Asks whether the stream has run out. The number of a default stream would mean the copier's own
 * stream here, so without an event it cannot be known. Returns 1: it has; 0: not yet; or a negative
 * errno.
 */
static int copier_ask_drain(struct sl_device *device, const struct sl_copy_job *drain)
{
	int rc;

	if (!drain->event)
		return (uintptr_t)drain->stream <= SL_COMMON_STREAMS
		               ? -EIO
		               : device->ops->stream_query(device, drain->stream);
	rc = device->ops->event_query(device, drain->event);
	if (rc)
		device->ops->event_free(device, drain->event);
	return rc;
}

/* Ends the drains of streams that have run out. */
static bool copier_finish_drains(struct sl_staging *staging)
{
	struct sl_device *device = staging->device;
	struct sl_list *next;
	bool any = false;

	for (struct sl_list *link = staging->copier.drains.next; link != &staging->copier.drains;
	     link = next) {
		struct sl_copy_job *drain = SL_CONTAINER(link, struct sl_copy_job, link);
		int rc = sl_staging_lost(staging) ? -EIO : copier_ask_drain(device, drain);

		next = link->next;
		if (!rc)
			continue;
		sl_list_remove(link);
		drain->done(drain, rc < 0 ? rc : 0);
		any = true;
	}
	return any;
}

/* ------------------------------------------------------------------------------------ thread */

static bool copier_take_new(struct sl_copier *copier)
{
	struct sl_list taken;
	struct sl_list *link;
	bool any;

	sl_list_init(&taken);
	any = sl_queue_take(&copier->queue, &taken, SL_COPIES_MOST);
	while ((link = sl_list_take(&taken))) {
		struct sl_copy_job *job = SL_CONTAINER(link, struct sl_copy_job, link);

		sl_list_append(job->drains ? &copier->drains
		                           : &copier->lanes[job->to_device].waiting,
		               &job->link);
	}
	return any;
}

static bool copier_in_flight(const struct sl_copier *copier)
{
	return copier->lanes[0].count || copier->lanes[1].count || !sl_list_empty(&copier->drains);
}

/* Asks twice: a device that is lost stays so, while a call may fail once for another reason. */
static void copier_ask_device(struct sl_staging *staging, int64_t *asked)
{
	struct sl_device *device = staging->device;

	if (sl_now() - *asked < ASK_NS)
		return;
	*asked = sl_now();
	if (device->ops->status(device) && device->ops->status(device))
		atomic_store_explicit(&staging->lost, true, memory_order_release);
}

static void *copier_run(void *argument)
{
	struct sl_staging *staging = argument;
	struct sl_copier *copier = &staging->copier;
	struct timespec pause = {0, NAP_NS};
	int64_t moved = 0, asked = 0;

	for (;;) {
		bool any = copier_take_new(copier);

		for (unsigned i = 0; i < 2; i++) {
			any |= lane_start_waiting(staging, &copier->lanes[i]);
			any |= lane_finish(staging, &copier->lanes[i]);
		}
		any |= copier_finish_drains(staging);
		if (any)
			moved = sl_now();
		if (atomic_exchange(&staging->suspect, false))
			copier_ask_device(staging, &asked);
		if (copier_in_flight(copier)) {
			/* A thread cannot sleep on events, and a copy takes as long as a look
			 * around. */
			if (sl_now() - moved > ASK_NS)
				copier_ask_device(staging, &asked);
			if (!any && sl_now() - moved > SPIN_NS)
				nanosleep(&pause, NULL);
			else if (!any)
				sched_yield();
		} else if (!any) {
			if (sl_queue_closed(&copier->queue))
				return NULL;
			/* A push, the poller's suspicion, or sl_copier_stop() ends the sleep. */
			if (!sl_spin_until(&copier->spin, sl_queue_has_work, &copier->queue))
				sl_word_sleep(&copier->queue, &copier->sleeper);
		}
	}
}

/* --------------------------------------------------------------------------------- lane_start,
 * stop */

static int copier_make_lanes(struct sl_staging *staging)
{
	struct sl_device *device = staging->device;
	int rc = 0;

	for (unsigned i = 0; !rc && i < 2; i++) {
		struct sl_copier_lane *lane = &staging->copier.lanes[i];

		rc = device->ops->stream_new(device, &lane->stream);
		for (unsigned j = 0; !rc && j < SL_COPIES_MOST; j++)
			rc = device->ops->event_new(device, &lane->events[j]);
	}
	return rc ? sl_fail(rc, "cannot make streams and events on %s: %s", device->name,
	                    sl_error_text(rc))
	          : 0;
}

void sl_copier_free(struct sl_staging *staging)
{
	struct sl_device *device = staging->device;

	for (unsigned i = 0; i < 2; i++) {
		struct sl_copier_lane *lane = &staging->copier.lanes[i];

		for (unsigned j = 0; j < SL_COPIES_MOST; j++)
			if (lane->events[j])
				device->ops->event_free(device, lane->events[j]);
		if (lane->stream)
			device->ops->stream_free(device, lane->stream);
	}
}

int sl_copier_start(struct sl_staging *staging)
{
	struct sl_copier *copier = &staging->copier;
	int rc;

	sl_queue_init(&copier->queue);
	sl_word_sleeper_init(&copier->sleeper);
	sl_list_init(&copier->drains);
	for (unsigned i = 0; i < 2; i++)
		sl_list_init(&copier->lanes[i].waiting);
	rc = copier_make_lanes(staging);
	if (!rc)
		rc = sl_thread_start(&copier->thread, "sluice-copy", copier_run, staging);
	copier->started = !rc;
	return rc;
}

void sl_copier_stop(struct sl_staging *staging)
{
	struct sl_copier *copier = &staging->copier;

	if (!copier->started)
		return;
	sl_queue_close(&copier->queue);
	pthread_join(copier->thread, NULL);
	copier->started = false;
}

void sl_copier_submit(struct sl_staging *staging, struct sl_copy_job *job)
{
	sl_queue_push(&staging->copier.queue, &job->link, false);
}
