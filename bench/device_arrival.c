/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each result that the kernel gives for a piece of an operation passes sl_transfer_step(). The program is
 * linked with --wrap for it: results can be held there, as slow storage would, and their time is noted,
 * which is when the last byte of a piece has arrived.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "backend/backend.h"
#include "device_bench.h"

int __real_sl_transfer_step(struct sl_piece *piece, ssize_t result);
int __wrap_sl_transfer_step(struct sl_piece *piece, ssize_t result);

static _Atomic bool closed;
static _Atomic double last;

int __wrap_sl_transfer_step(struct sl_piece *piece, ssize_t result)
{
	double start = now();

	/* At first not asleep, so that what is measured behind it is not this thread's waking up. */
	while (atomic_load_explicit(&closed, memory_order_acquire) && now() < start + 10)
		if (now() > start + 0.001)
			usleep(1000);
	atomic_store_explicit(&last, now(), memory_order_release);
	return __real_sl_transfer_step(piece, result);
}

void arrival_close(void)
{
	atomic_store(&closed, true);
}

void arrival_open(void)
{
	atomic_store(&closed, false);
}

double arrival_time(void)
{
	return atomic_load_explicit(&last, memory_order_acquire);
}
