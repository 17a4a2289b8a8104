/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Route: stream
 *
 * Memory of a device, in stream order. The stream copies between its memory and the slots of a
 * ring; words that the processor and the device write for each other say when a slot is full and
 * when it is free (staging.h). The submitting call, the poller, and the threads that end pieces.
 */
#include "io/staged/route.h"

static bool stream_ready(struct sluice_op *op, uint64_t number)
{
	return sl_ring_ready(&op->staged->ring, number);
}

static void stream_chunk_done(struct sluice_op *op, struct sl_slot_use *use)
{
	sl_ring_store(&op->staged->ring, use->number);
}

static struct sl_window stream_window(const struct sl_staged *staged, unsigned most)
{
	struct sl_chunks walk = staged->enqueued;
	struct sl_chunk chunk;
	struct sl_window window = {0};

	while (sl_chunk_next(&walk, &chunk)) {
		window.more = window.chunks && window.commands + chunk.ranges + 2 > most;
		if (window.more)
			break;
		window.chunks++;
		window.commands += chunk.ranges + 2;
		if (window.commands > SL_COMMANDS_MOST)
			break;
	}
	return window;
}

static int stream_enqueue(struct sl_batch *batch, const struct sl_window *window)
{
	uint64_t first = batch->enqueued;
	struct sl_chunk chunk;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < window->chunks; i++) {
		sl_chunk_next(&batch->op->staged->enqueued, &chunk);
		sl_batch_add(batch, first + i, &chunk);
		if (sl_batch_is_full(batch))
			rc = sl_batch_flush(batch);
	}
	return rc ? rc : sl_batch_flush(batch);
}

const struct sl_route sl_route_stream = {
	.on_stream = true,
	.has_memory = true,
	.start = sl_route_start,
	.next = sl_route_next_range,
	.ready = stream_ready,
	.chunk_done = stream_chunk_done,
	.window = stream_window,
	.enqueue = stream_enqueue,
};
