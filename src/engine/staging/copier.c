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

#define SPIN_NS 1000000 /* longer than a copy takes; naps take longer than they say */
#define NAP_NS  50000
#define ASK_NS  100000000 /* between two questions whether the device is still there */
/* A round takes no further job from so many bytes on, so that slots come back soon. */
#define ROUND_BYTES  ((uint64_t)512 << 10)
#define ROUND_JOBS   128
#define LARGE_JOB    ((uint64_t)64 << 10) /* bytes */
#define SMALL_ROUNDS 2
#define ASIDE_NS     200000 /* for which a thread that waits looks at its copies */

/* ------------------------------------------------------------------------------------- lanes */

/* Jobs with copies that are given to the stream together, until their event is recorded. */
struct round {
	struct sl_command commands[2 * SL_JOB_COPIES_MOST];
	struct {
		struct sl_copy_job *job;
		size_t end; /* of its commands */
	} jobs[ROUND_JOBS];
	size_t count; /* of commands */
	unsigned job_count;
	uint64_t bytes;
};

/* Collects the copies of jobs that wait. */
static void round_collect(struct sl_copier_lane *lane, struct round *round)
{
	round->count = 0;
	round->job_count = 0;
	round->bytes = 0;
	while (!sl_list_empty(&lane->waiting) && round->job_count < ROUND_JOBS &&
	       round->count < SL_JOB_COPIES_MOST && round->bytes < ROUND_BYTES) {
		struct sl_copy_job *job =
			sl_list_take_first(&lane->waiting, struct sl_copy_job, link);

		while (job->next(job, &round->commands[round->count]))
			round->bytes += round->commands[round->count++].copy.length;
		round->jobs[round->job_count].job = job;
		round->jobs[round->job_count++].end = round->count;
	}
}

/* Waits, after an error, until the device does not touch the copies' memory any more. */
static void lane_drain(struct sl_device *device, struct sl_copier_lane *lane)
{
	while (device->ops->stream_synchronize(device, lane->stream) &&
	       !device->ops->status(device))
		;
}

/* Ends a job of which the stream has refused a copy. begun: it has taken others. */
static void round_fail(struct sl_staging *staging, struct sl_copier_lane *lane, struct round *round,
                       unsigned job, bool begun, int rc)
{
	/* Of a lost device nothing can be awaited. */
	if (begun && !sl_staging_lost(staging))
		lane_drain(staging->device, lane);
	round->jobs[job].job->done(round->jobs[job].job, rc);
	round->jobs[job].job = NULL;
}

/* Gives the copies to the stream. A refused one ends its job alone. */
static void round_give(struct sl_staging *staging, struct sl_copier_lane *lane, struct round *round)
{
	struct sl_device *device = staging->device;
	size_t given = 0, begin = 0, taken;
	unsigned job = 0;

	while (given < round->count) {
		int rc = sl_staging_lost(staging) ? -EIO : 0;

		taken = 0;
		if (!rc)
			rc = device->ops->enqueue(device, lane->stream, round->commands + given,
			                          round->count - given, &taken);
		given += taken;
		if (!rc)
			continue;
		for (; round->jobs[job].end <= given; job++)
			begin = round->jobs[job].end;
		round_fail(staging, lane, round, job, given > begin, rc);
		given = begin = round->jobs[job++].end;
	}
}

/* Gives the stream the copies of a thread that waits, and behind them a write of a word: a look at
 * it is quicker than a question to the driver. */
static void lane_give(struct sl_staging *staging, struct sl_copier_lane *lane)
{
	struct sl_copier *copier = &staging->copier;
	struct sl_slot_words *words = copier->has_words ? copier->words : NULL;
	struct sl_command mark = {.kind = SL_WRITE_WORD};
	struct round round;
	size_t taken = 0;

	round_collect(lane, &round);
	round_give(staging, lane, &round);
	for (unsigned i = 0; i < round.job_count; i++)
		if (round.jobs[i].job)
			sl_list_append(&lane->rounds[0].jobs, &round.jobs[i].job->link);
	/* Without a copy no thread waits for the write, and the memory may end before it. */
	if (words && !sl_list_empty(&lane->rounds[0].jobs)) {
		mark.word.at = &words->gpu;
		mark.word.value = ++copier->number;
		staging->device->ops->enqueue(staging->device, lane->stream, &mark, 1, &taken);
	}
	copier->marked = taken;
}

/* Looks for a short time whether the stream has run out. 1: it has; 0: not yet; or -errno. */
static int lane_await(struct sl_staging *staging, struct sl_copier_lane *lane)
{
	struct sl_device *device = staging->device;
	const struct sl_copier *copier = &staging->copier;
	int64_t until = sl_now() + ASIDE_NS;
	int rc;

	if (sl_staging_lost(staging))
		return -EIO;
	do
		rc = copier->marked ? atomic_load(&copier->words->gpu) == copier->number
		                    : device->ops->stream_query(device, lane->stream);
	while (!rc && sl_now() < until);
	if (rc < 0)
		lane_drain(device, lane);
	return rc;
}

/* Starts copies of jobs that wait, with an event behind them. */
static void lane_start(struct sl_staging *staging, struct sl_copier_lane *lane)
{
	unsigned at = (lane->first + lane->count) % SL_ROUNDS_MOST;
	struct sl_device *device = staging->device;
	struct round round;

	round_collect(lane, &round);
	round_give(staging, lane, &round);
	int rc = sl_staging_lost(staging)
	                 ? -EIO
	                 : device->ops->event_record(device, lane->rounds[at].event, lane->stream);
	for (unsigned i = 0; i < round.job_count; i++) {
		if (round.jobs[i].job && rc)
			round_fail(staging, lane, &round, i, true, rc);
		else if (round.jobs[i].job)
			sl_list_append(&lane->rounds[at].jobs, &round.jobs[i].job->link);
	}
	if (sl_list_empty(&lane->rounds[at].jobs))
		return;
	lane->rounds[at].count = round.job_count;
	lane->rounds[at].large = round.bytes / round.job_count >= LARGE_JOB;
	lane->count++;
	lane->jobs += lane->rounds[at].count;
	lane->large += lane->rounds[at].large;
}

/* Small jobs are collected while two rounds are in flight; a large one, which keeps the device
 * busy, starts at once. */
static bool lane_may_start(const struct sl_copier_lane *lane)
{
	if (sl_list_empty(&lane->waiting) || lane->count == SL_ROUNDS_MOST)
		return false;
	return lane->count < SMALL_ROUNDS ||
	       SL_CONTAINER(lane->waiting.next, struct sl_copy_job, link)->bytes >= LARGE_JOB;
}

static bool lane_start_waiting(struct sl_staging *staging, struct sl_copier_lane *lane)
{
	bool any = false;

	for (; lane_may_start(lane); any = true)
		lane_start(staging, lane);
	return any;
}

/* Ends the jobs of rounds, in order, as their events have come. */
static bool lane_finish(struct sl_staging *staging, struct sl_copier_lane *lane)
{
	struct sl_device *device = staging->device;
	bool any = false;

	while (lane->count) {
		struct sl_copier_round *round = &lane->rounds[lane->first];
		struct sl_copy_job *job;
		int rc = sl_staging_lost(staging) ? -EIO
		                                  : device->ops->event_query(device, round->event);

		if (!rc)
			break;
		/* Whether it is over cannot be known. */
		if (rc < 0 && !sl_staging_lost(staging))
			lane_drain(device, lane);
		lane->first = (lane->first + 1) % SL_ROUNDS_MOST;
		lane->count--;
		lane->jobs -= round->count;
		lane->large -= round->large;
		while ((job = sl_list_take_first(&round->jobs, struct sl_copy_job, link)))
			job->done(job, rc < 0 ? rc : 0);
		any = true;
	}
	return any;
}

/*
 * Asks whether the stream has run out. The number of a default stream would mean the copier's own
 * stream here, so without an event it cannot be known. 1: it has; 0: not yet; or a negative errno.
 */
static int copier_ask_drain(struct sl_device *device, const struct sl_copy_job *drain)
{
	if (!drain->event)
		return (uintptr_t)drain->stream <= SL_COMMON_STREAMS
		               ? -EIO
		               : device->ops->stream_query(device, drain->stream);
	int rc = device->ops->event_query(device, drain->event);
	if (rc)
		device->ops->event_free(device, drain->event);
	return rc;
}

/* Ends the drains of streams that have run out. */
static bool copier_finish_drains(struct sl_staging *staging)
{
	struct sl_device *device = staging->device;
	bool any = false;

	sl_list_each_of (drain, &staging->copier.drains, struct sl_copy_job, link) {
		int rc = sl_staging_lost(staging) ? -EIO : copier_ask_drain(device, drain);

		if (!rc)
			continue;
		sl_list_remove(&drain->link);
		drain->done(drain, rc < 0 ? rc : 0);
		any = true;
	}
	return any;
}

/* ------------------------------------------------------------------------------------ thread */

static bool copier_take_new(struct sl_copier *copier)
{
	struct sl_list taken = SL_LIST_INIT(taken);
	bool any = sl_queue_take(&copier->queue, &taken, ROUND_JOBS);

	sl_list_each_of (job, &taken, struct sl_copy_job, link)
		sl_list_append(job->drains ? &copier->drains
		                           : &copier->lanes[job->to_device].waiting,
		               &job->link);
	return any;
}

static bool copier_in_flight(const struct sl_copier *copier)
{
	return copier->lanes[0].count || copier->lanes[1].count || !sl_list_empty(&copier->drains);
}

/* Returns true if many small jobs are in flight, and none that is large. */
static bool copier_has_small(const struct sl_copier *copier)
{
	const struct sl_copier_lane *lanes = copier->lanes;

	return lanes[0].jobs + lanes[1].jobs >= SL_MANY_SMALL && !lanes[0].large && !lanes[1].large;
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

	sl_nap_precisely();
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
			/* No thread can sleep on events, and a copy takes as long as a look. */
			if (sl_now() - moved > ASK_NS)
				copier_ask_device(staging, &asked);
			if (!any && sl_now() - moved > SPIN_NS)
				nanosleep(&pause, NULL);
			else if (!any && copier_has_small(copier))
				sl_nap_shortly();
			else if (!any)
				sched_yield();
		} else if (!any) {
			if (sl_queue_closed(&copier->queue))
				return NULL;
			/* A push, the poller's suspicion, or sl_copier_stop() ends the sleep. */
			if (!sl_spin_until(&copier->spin, sl_queue_has_work, &copier->queue))
				sl_word_sleep(&copier->queue, &copier->sleeper, SL_FOREVER);
		}
	}
}

/* ---------------------------------------------------------------------------- start and stop */

static int copier_make_lanes(struct sl_staging *staging)
{
	struct sl_device *device = staging->device;
	int rc = 0;

	for (unsigned i = 0; !rc && i < SL_LANES; i++) {
		struct sl_copier_lane *lane = &staging->copier.lanes[i];

		rc = device->ops->stream_new(device, &lane->stream);
		for (unsigned j = 0; !rc && i < SL_LANES - 1 && j < SL_ROUNDS_MOST; j++)
			rc = device->ops->event_new(device, &lane->rounds[j].event);
	}
	return rc ? sl_fail(rc, "cannot make streams and events on %s: %s", device->name,
	                    sl_error_text(rc))
	          : 0;
}

void sl_copier_free(struct sl_staging *staging)
{
	struct sl_device *device = staging->device;

	for (unsigned i = 0; i < SL_LANES; i++) {
		struct sl_copier_lane *lane = &staging->copier.lanes[i];

		for (unsigned j = 0; j < SL_ROUNDS_MOST; j++)
			if (lane->rounds[j].event)
				device->ops->event_free(device, lane->rounds[j].event);
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
	for (unsigned i = 0; i < SL_LANES; i++) {
		sl_list_init(&copier->lanes[i].waiting);
		for (unsigned j = 0; j < SL_ROUNDS_MOST; j++)
			sl_list_init(&copier->lanes[i].rounds[j].jobs);
	}
	rc = copier_make_lanes(staging);
	copier->has_words = !rc && !staging->device->ops->stream_check(
					   staging->device, copier->lanes[SL_LANES - 1].stream);
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

static _Thread_local struct sl_staging *helped; /* by this thread, which has its last lane */

bool sl_copier_helps(void)
{
	return helped;
}

void sl_copier_help(struct sl_staging *staging, struct sl_copy_job *job)
{
	struct sl_copier_lane *lane = &staging->copier.lanes[SL_LANES - 1];

	if (helped != staging && (helped || sl_commands_pending(staging) ||
	                          atomic_exchange(&staging->copier.aside, true))) {
		sl_copier_submit(staging, job);
		return;
	}
	sl_list_append(&lane->waiting, &job->link);
	lane_give(staging, lane);
	/* If all copies were refused, the operation may be over when this returns. */
	helped = sl_list_empty(&lane->rounds[0].jobs) ? NULL : staging;
	if (!helped)
		atomic_store(&staging->copier.aside, false);
}

void sl_copier_settle(void)
{
	struct sl_staging *staging = helped;
	struct sl_copier_lane *lane = &staging->copier.lanes[SL_LANES - 1];
	struct sl_list jobs = SL_LIST_INIT(jobs);
	int rc = 0;

	sl_list_take_all(&lane->rounds[0].jobs, &jobs);
	if (!sl_list_empty(&jobs))
		rc = lane_await(staging, lane);
	helped = NULL;
	atomic_store(&staging->copier.aside, false);
	sl_list_each_of (job, &jobs, struct sl_copy_job, link) {
		if (rc) {
			job->done(job, SL_MIN(rc, 0));
			continue;
		}
		/* The stream has what this job still needs; later copies come behind. */
		job->drains = true;
		job->stream = lane->stream;
		job->event = NULL;
		sl_copier_submit(staging, job);
	}
}
