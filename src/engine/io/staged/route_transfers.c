/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Route: transfers
 *
 * An operation in stream order. The backend has the stream itself move the bytes. The stream is
 * given all transfers, and a word behind them; their results are read when it has passed the word.
 * The stream knows nothing of our order among operations: see order.stream in io_internal.h. The
 * submitting call, and the thread that ends the operation.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/staged/staged.h"

/* The most bytes of a transfer: Linux moves no more than 2 GiB less a page in one call. */
#define LARGEST_TRANSFER ((size_t)1 << 30)
/* The most commands that a transfer may be on a device, for the bound of commands in flight. */
#define TRANSFER_COMMANDS 4

static size_t transfers_count(const struct sluice_op *op)
{
	size_t count = 0;

	for (size_t i = 0; i < op->count; i++)
		count += (op->extents[i].length + LARGEST_TRANSFER - 1) / LARGEST_TRANSFER;
	return count;
}

bool sl_transfers_fit(const struct sluice_op *op)
{
	return transfers_count(op) <= SL_TRANSFERS_MOST;
}

static int transfers_make(struct sl_staged *staged)
{
	struct sluice_op *op = staged->op;
	struct sl_transfer *next = calloc(transfers_count(op), sizeof(*next));

	if (!next)
		return sl_fail(-ENOMEM, "no memory");
	staged->transfers = next;
	for (size_t i = 0; i < op->count; i++) {
		const struct sluice_extent *e = &op->extents[i];

		for (size_t at = 0; at < e->length; at += next++->length) {
			next->data = (char *)e->data + at;
			next->length = SL_MIN(e->length - at, LARGEST_TRANSFER);
			next->offset = (off_t)(e->offset + at);
		}
	}
	staged->transfer_count = (unsigned)(next - staged->transfers);
	return 0;
}

/* Gives them to the stream. On failure the operation fails, and the stream does the others. */
static void transfers_give(struct sl_staged *staged)
{
	struct sluice_op *op = staged->op;
	struct sl_backend *backend = op->file->backend;
	unsigned count = staged->transfer_count, given = 0;
	bool stopped = sl_op_is_stopped(op);
	int rc = 0;

	while (!stopped && !rc && given < count) {
		rc = backend->ops->moves->enqueue(backend, op->device, staged->stream,
		                                  &staged->transfers[given], op->kind == SL_WRITE);
		given += !rc;
	}
	staged->transfer_count = given;
	if (rc)
		sl_op_fail(op, rc, strdup(sluice_last_message()));
}

/* The stream has passed the transfers: reads their results, unless the device is lost. */
static void transfers_end(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	struct sl_backend *backend = op->file->backend;
	uint64_t moved = 0;
	char *message;

	if (staged->slots[0].lost)
		return;
	for (unsigned i = 0; i < staged->transfer_count; i++) {
		int rc = backend->ops->moves->passed(backend, &staged->transfers[i],
		                                     op->kind == SL_WRITE, &message);

		if (rc)
			sl_op_fail(op, rc, message);
		else
			moved += staged->transfers[i].length;
	}
	sl_mutex_lock(&op->mutex);
	op->locked.moved = moved;
	sl_mutex_unlock(&op->mutex);
}

static void transfers_start(struct sluice_op *op)
{
	sl_mutex_lock(&op->mutex);
	sl_staged_begin_locked(op);
	op->staged->locked.exhausted = true;
	if (!op->locked.stopped)
		sl_ring_store(&op->staged->ring, 0);
	sl_op_pump_unlock(op);
}

static struct sl_window transfers_window(struct sl_staged *staged, unsigned most)
{
	(void)most;
	return (struct sl_window){1, staged->transfer_count * TRANSFER_COMMANDS + 1, false};
}

/* The word stands behind the transfers whatever has become of them. */
static int transfers_enqueue(struct sl_batch *batch, const struct sl_window *window)
{
	struct sl_staged *staged = batch->op->staged;
	int rc;

	(void)window;
	transfers_give(staged);
	sl_batch_add(batch, 0, NULL);
	rc = sl_batch_flush(batch);
	if (rc && staged->transfer_count)
		batch->unfinished = &staged->slots[0];
	return rc;
}

const struct sl_route sl_route_transfers = {
	.on_stream = true,
	.stream_stores = true,
	.make = transfers_make,
	.start = transfers_start,
	.end = transfers_end,
	.window = transfers_window,
	.enqueue = transfers_enqueue,
};
