/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a schedule in which nothing moves any more, and says where everything stands. */
#include "system/torture/torture.h"

#include <unistd.h>

#include "io/staged/staged.h"

static struct {
	_Atomic uint64_t moves;
	_Atomic(const char *) doing;
	_Atomic(struct run *) run;
	double patience;
	bool talkative; /* about what is wrong on purpose, too */
} dog;

void moved(void)
{
	atomic_fetch_add_explicit(&dog.moves, 1, memory_order_relaxed);
}

void doing(const char *what)
{
	atomic_store(&dog.doing, what);
	moved();
}

static void print_ring(const struct sl_ring *ring)
{
	printf("    ring of %u slots, %llu chunks entered:", ring->count,
	       (unsigned long long)ring->entered);
	for (unsigned i = 0; i < ring->count; i++) {
		const struct sl_slot *slot = &ring->slots[i];

		if (slot->cpu && slot->gpu)
			printf(" [base %#x entered +%d cpu +%d device +%d%s]", slot->base,
			       (int)(slot->entered - slot->base),
			       (int)(atomic_load(slot->cpu) - slot->base),
			       (int)(atomic_load(slot->gpu) - slot->base),
			       slot->lost ? " lost" : "");
	}
	printf("\n");
}

/* Unchecked by clang: it only tries the lock. */
SL_UNCHECKED static void print_op(struct sluice_op *op)
{
	bool locked = !pthread_mutex_trylock(&op->mutex.pthread);
	struct sl_staged *staged = op->staged;

	printf("    %s%zu bytes moved, %u pieces in flight%s%s%s, error %d%s\n",
	       locked ? "" : "(its lock is held) ", (size_t)op->locked.moved, op->locked.in_flight,
	       op->locked.stopped ? ", stopped" : "", op->locked.over ? ", over" : "",
	       op->locked.pumping ? ", pumping" : "", op->locked.error,
	       op->order.waits ? ", waits for an earlier one" : "");
	if (staged)
		printf("    %s%s%s%s%u copies, %u commands, next chunk %llu\n",
		       staged->locked.started ? "started, " : "",
		       staged->locked.waiting ? "asking for slots, " : "",
		       staged->locked.submitting ? "submitting, " : "",
		       staged->locked.exhausted ? "all handed out, " : "", staged->locked.copies,
		       staged->locked.commands, (unsigned long long)staged->locked.next);
	/* Its slots are there until it is over. */
	if (staged && op->on_stream && !op->locked.over)
		print_ring(&staged->ring);
	if (locked)
		sl_mutex_unlock(&op->mutex);
}

static void print_action(unsigned number, struct action *action)
{
	uint32_t state = atomic_load(&action->state);

	if (state != ACTION_SUBMITTING && state != ACTION_SUBMITTED)
		return;
	if (state == ACTION_SUBMITTED && (!action->op || sluice_poll(action->op)))
		return;
	printf("  operation %u: %s, stream %u, %zu bytes in %u extents from %llu, %s%s\n", number,
	       action->what, action->lane->index, action->length, action->count,
	       (unsigned long long)action->extents[0].offset,
	       state == ACTION_SUBMITTING ? "being submitted" : "submitted",
	       atomic_load(&action->cancelled) ? ", cancelled" : "");
	if (state == ACTION_SUBMITTED)
		print_op(action->op);
}

static void print_line(void *to, const char *text)
{
	(void)to;
	if (!strstr(text, ": idle"))
		printf("  %s\n", text);
}

static void print_stream(const struct lane *lane)
{
	int done = gpu_is_real() ? sluice_stream_query(gpu_device(lane->device), lane->stream) : 0;

	if (done != 1)
		printf("  stream %u is %p of device %d%s\n", lane->index, (void *)lane->stream,
		       lane->device, gpu_is_real() ? ", and not done" : "");
}

static void print_everything(struct run *run)
{
	unsigned count = SL_MIN(atomic_load(&run->action_count), OPS_MOST);

	for (unsigned i = 0; i < run->schedule->devices && !gpu_is_real(); i++)
		sluice_emulated_report(gpu_device((int)i), print_line, NULL);
	for (unsigned i = 0; i < count; i++)
		print_action(i + 1, &run->actions[i]);
	/* Last, because a driver may hold this up, too. */
	alarm(10);
	for (unsigned i = 0; i < run->schedule->lanes; i++)
		print_stream(&run->lanes[i]);
	alarm(0);
}

static void *watch(void *argument)
{
	uint64_t seen = 0;
	double since = seconds_now();

	(void)argument;
	for (;;) {
		uint64_t moves = atomic_load(&dog.moves);
		struct run *run = atomic_load(&dog.run);

		if (moves != seen || !run) {
			seen = moves;
			since = seconds_now();
		} else if (seconds_now() - since > dog.patience) {
			if (!wrong || dog.talkative)
				print_everything(run);
			caught("deadlock", "nothing moved for %.1f s; the main thread is %s",
			       dog.patience, atomic_load(&dog.doing));
		}
		sleep_ms(50);
	}
	return NULL;
}

void watchdog_start(double patience, bool talkative)
{
	pthread_t thread;

	dog.talkative = talkative;
	dog.patience = patience;
	if (pthread_create(&thread, NULL, watch, NULL))
		abort();
	pthread_detach(thread);
}

void watchdog_watch(struct run *run)
{
	moved();
	atomic_store(&dog.run, run);
}
