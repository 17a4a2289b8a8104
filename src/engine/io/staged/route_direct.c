/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Route: direct
 *
 * Host memory in stream order. The bytes go straight between storage and the caller's memory; a
 * slot without memory has two uses: the stream reaches the first when the operation may begin, and
 * waits for the second until it is over. The submitting call, the poller, and threads that end
 * pieces.
 */
#include "io/staged/staged.h"

/* All extents, once the stream has come to the operation. */
static bool direct_next(struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	struct sl_staged *staged = op->staged;

	if (!sl_ring_ready(&staged->ring, 0))
		return false;
	staged->locked.exhausted = true;
	staged->locked.current = &staged->uses[0];
	op->locked.plan.count = op->count;
	return true;
}

static void direct_finish(struct sluice_op *op)
{
	sl_ring_stop(&op->staged->ring, 0);
}

static struct sl_window direct_window(struct sl_staged *staged, unsigned most)
{
	(void)staged;
	(void)most;
	return (struct sl_window){2, 3, false};
}

static int direct_enqueue(struct sl_batch *batch, const struct sl_window *window)
{
	for (uint64_t i = 0; i < window->chunks; i++)
		sl_batch_add(batch, i, NULL);
	return sl_batch_flush(batch);
}

const struct sl_route sl_route_direct = {
	.on_stream = true,
	.awaits = true,
	.start = sl_stream_start,
	.next = direct_next,
	.finish = direct_finish,
	.window = direct_window,
	.enqueue = direct_enqueue,
};
