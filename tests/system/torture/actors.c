/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of a schedule. */
#include "system/torture/torture.h"

#include <time.h>

static void pause_us(size_t us)
{
	struct timespec t = {0, (long)us * 1000};

	nanosleep(&t, NULL);
}

/* A thread's own default stream can be waited for by that thread only. */
static void finish_lane(struct actor *actor, struct lane *lane)
{
	finish_awaited(actor, lane);
	if (gpu_is_real() && lane->stream == (sluice_stream)2 &&
	    sluice_stream_synchronize(gpu_device(lane->device), lane->stream))
		caught("wrong result", "synchronising stream %u: %s", lane->index,
		       sluice_last_message());
}

static void *submitter(void *argument)
{
	struct actor *actor = argument;
	struct run *run = actor->run;
	const struct schedule *s = run->schedule;
	unsigned steps = s->steps / s->threads;

	gpu_use(0);
	for (unsigned i = 0; i < steps; i++) {
		step(actor);
		if (s->pauses && !rng_below(&actor->rng, 4))
			pause_us(rng_below(&actor->rng, 500));
	}
	for (unsigned i = actor->index; i < s->lanes; i += s->threads)
		finish_lane(actor, &run->lanes[i]);
	return NULL;
}

/* Takes memory and gives it back, which waits for all that the device has to do. */
static void *freer(void *argument)
{
	struct actor *actor = argument;
	struct run *run = actor->run;
	const struct schedule *s = run->schedule;
	void *memory, *pinned;

	while (!atomic_load(&run->stop)) {
		int device = gpu_device((int)rng_below(&actor->rng, s->devices));
		bool pin = s->pins && !rng_below(&actor->rng, 4);

		/* A GPU's driver has a stock of small pieces. */
		if (!sluice_device_alloc(
			    device, (1 + rng_below(&actor->rng, 20000)) * (gpu_is_real() ? 200 : 1),
			    &memory)) {
			pause_us(rng_below(&actor->rng, 300));
			if (sluice_device_free(memory) && !s->lose)
				caught("wrong result", "freeing: %s", sluice_last_message());
		}
		if (pin &&
		    !sluice_pinned_alloc(device, 1 + rng_below(&actor->rng, 20000), &pinned)) {
			memset(pinned, 1, 1);
			if (sluice_pinned_free(pinned) && !s->lose)
				caught("wrong result", "unpinning: %s", sluice_last_message());
		}
		pause_us(rng_below(&actor->rng, 300));
	}
	return NULL;
}

static void *canceller(void *argument)
{
	struct actor *actor = argument;
	struct run *run = actor->run;
	unsigned seen = 0;

	while (!atomic_load(&run->stop)) {
		unsigned count = SL_MIN(atomic_load(&run->action_count), OPS_MOST);
		struct action *action = NULL;

		if (seen < count)
			action = &run->actions[seen++];
		if (!action || atomic_load(&action->state) != ACTION_SUBMITTED || !action->op) {
			pause_us(50);
			continue;
		}
		if (rng_below(&actor->rng, 100) >= run->schedule->cancels)
			continue;
		pause_us(rng_below(&actor->rng, 300));
		atomic_store(&action->cancelled, true);
		sluice_cancel(action->op);
	}
	return NULL;
}

static void *loser(void *argument)
{
	struct actor *actor = argument;

	pause_us(actor->run->schedule->lose_us);
	sluice_emulated_lose(gpu_device(0), 1);
	return NULL;
}

static void start(struct run *run, struct actor *actor, unsigned index, unsigned stream,
                  void *(*body)(void *))
{
	actor->run = run;
	actor->index = index;
	actor->rng = seeded(run->schedule->seed, 10 + stream);
	if (pthread_create(&actor->thread, NULL, body, actor))
		caught("environment", "no thread: %s", strerror(errno));
}

void actors_run(struct run *run)
{
	const struct schedule *s = run->schedule;

	for (unsigned i = 0; i < s->freers; i++)
		start(run, &run->freers[i], i, 20 + i, freer);
	if (s->cancels)
		start(run, &run->canceller, 0, 30, canceller);
	if (s->lose)
		start(run, &run->loser, 0, 31, loser);
	for (unsigned i = 0; i < s->threads; i++)
		start(run, &run->actors[i], i, i, submitter);
	doing("joining the threads that submit");
	for (unsigned i = 0; i < s->threads; i++)
		pthread_join(run->actors[i].thread, NULL);
	if (s->lose)
		pthread_join(run->loser.thread, NULL);
	atomic_store(&run->stop, true);
	doing("joining the thread that cancels");
	if (s->cancels)
		pthread_join(run->canceller.thread, NULL);
	doing("joining the threads that free");
	for (unsigned i = 0; i < s->freers; i++)
		pthread_join(run->freers[i].thread, NULL);
}
