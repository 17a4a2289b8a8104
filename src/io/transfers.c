/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations in stream order whose bytes the backend has the stream move by itself: what it is given, and what
 * came of that. It knows nothing of our order among operations: see order.stream in io.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"

/* What one transfer moves at most: Linux moves no more than 2 GiB less a page in one call. */
#define LARGEST_TRANSFER ((size_t)1 << 30)

static size_t count_transfers(const struct sluice_op *op)
{
	size_t count = 0;

	for (size_t i = 0; i < op->count; i++)
		count += (op->extents[i].length + LARGEST_TRANSFER - 1) / LARGEST_TRANSFER;
	return count;
}

bool sl_transfers_fit(const struct sluice_op *op)
{
	return count_transfers(op) <= SL_TRANSFERS_MOST;
}

int sl_transfers_new(struct sl_staged *staged)
{
	struct sluice_op *op = staged->op;
	struct sl_transfer *next = calloc(count_transfers(op), sizeof(*next));

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

void sl_transfers_enqueue(struct sl_staged *staged)
{
	struct sluice_op *op = staged->op;
	struct sl_backend *backend = op->file->backend;
	unsigned count = staged->transfer_count, given = 0;
	bool stopped;
	int rc = 0;

	sl_mutex_lock(&op->mutex);
	stopped = op->locked.stopped;
	sl_mutex_unlock(&op->mutex);
	while (!stopped && !rc && given < count) {
		rc = backend->ops->enqueue(backend, op->device, staged->stream,
		                           &staged->transfers[given], op->kind == SL_WRITE);
		given += !rc;
	}
	staged->transfer_count = given;
	if (rc)
		sl_op_fail(op, rc, strdup(sluice_last_message()));
}

void sl_transfers_passed(struct sl_staged *staged)
{
	struct sluice_op *op = staged->op;
	struct sl_backend *backend = op->file->backend;
	uint64_t moved = 0;
	char *message;

	for (unsigned i = 0; i < staged->transfer_count; i++) {
		int rc = backend->ops->passed(backend, &staged->transfers[i], op->kind == SL_WRITE,
		                              &message);

		if (rc)
			sl_op_fail(op, rc, message);
		else
			moved += staged->transfers[i].length;
	}
	sl_mutex_lock(&op->mutex);
	op->locked.moved = moved;
	sl_mutex_unlock(&op->mutex);
}
