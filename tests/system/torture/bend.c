/* SPDX-License-Identifier: Apache-2.0 */
/* What storage and the device answer: errors and short transfers, by chance. */
#include "system/torture/torture.h"

#include <time.h>

#include "device/emulated/emulated.h"

__typeof__(sl_emulated_enqueue) __real_sl_emulated_enqueue, __wrap_sl_emulated_enqueue;
__typeof__(sl_emulated_event_query) __real_sl_emulated_event_query, __wrap_sl_emulated_event_query;

static struct {
	const struct schedule *schedule;
	_Atomic uint64_t results; /* of storage */
	_Atomic uint64_t calls;   /* that give commands to a device */
	_Atomic uint64_t events;  /* that were asked */
	_Atomic bool calm;        /* no call of a device fails */
} bending = {.calm = true};

/* ------------------------------------------------------------------------------------ storage */

static ssize_t answer(const struct sl_piece *piece, ssize_t result)
{
	const struct schedule *s = bending.schedule;
	uint64_t n = atomic_fetch_add(&bending.results, 1);
	struct rng rng = seeded(s->seed, n + 1000);
	unsigned chance = (unsigned)rng_below(&rng, 1000);
	struct timespec late = {0, 0};

	(void)piece;
	if (s->slow_us && !rng_below(&rng, 3)) {
		late.tv_nsec = (long)rng_below(&rng, s->slow_us) * 1000;
		nanosleep(&late, NULL);
	}
	if (chance < s->errors)
		return STORAGE_ERROR;
	if (chance >= s->errors + s->shorts || result <= 1)
		return result;
	/* The kernel did more than it says now: what is left is done once more. */
	return rng_below(&rng, 8) ? 1 + (ssize_t)rng_below(&rng, (size_t)result - 1) : -EINTR;
}

/* ------------------------------------------------------------------------------------ devices */

static bool fails(unsigned kind, uint64_t n)
{
	const struct schedule *s = bending.schedule;
	bool fail = false;

	for (unsigned i = 0; !atomic_load(&bending.calm) && i < s->failures; i++) {
		const struct driver_failure *f = &s->failure[i];

		fail |= f->kind == kind && n >= f->nth && (n - f->nth) % f->period < f->row;
	}
	return fail;
}

/* Some of the commands are taken, and then one is not. */
int __wrap_sl_emulated_enqueue(struct sl_device *device, sluice_stream stream,
                               const struct sl_command *commands, size_t count, size_t *taken)
{
	uint64_t n = atomic_fetch_add(&bending.calls, 1);
	bool fail = fails(FAIL_ENQUEUE, n);
	int rc;

	if (fail) {
		struct rng rng = seeded(bending.schedule->seed, n + 2000);

		count = rng_below(&rng, count);
	}
	rc = __real_sl_emulated_enqueue(device, stream, commands, count, taken);
	return !rc && fail ? DRIVER_ERROR : rc;
}

int __wrap_sl_emulated_event_query(struct sl_device *device, sluice_event event)
{
	if (fails(FAIL_EVENT, atomic_fetch_add(&bending.events, 1)))
		return DRIVER_ERROR;
	return __real_sl_emulated_event_query(device, event);
}

void bend_start(const struct schedule *s)
{
	bending.schedule = s;
	atomic_store(&bending.results, 0);
	atomic_store(&bending.calls, 0);
	atomic_store(&bending.events, 0);
	atomic_store(&bending.calm, false);
	bend(s->errors || s->shorts || s->slow_us ? answer : NULL);
	for (unsigned i = 0; i < s->failures; i++)
		if (s->failure[i].kind < SLUICE_EMULATED_KINDS)
			sluice_emulated_fail(s->failure[i].kind, s->failure[i].nth, DRIVER_ERROR);
}

void bend_calm(void)
{
	atomic_store(&bending.calm, true);
	for (unsigned kind = 0; kind < SLUICE_EMULATED_KINDS; kind++)
		sluice_emulated_fail(kind, 0, 0);
}

void bend_stop(void)
{
	bend(NULL);
}
