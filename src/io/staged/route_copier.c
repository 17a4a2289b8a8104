/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Route: copier
 *
 * Memory of a device, awaited on the host. The operation waits for slots without a thread; the
 * copier copies between slots and the device's memory. Of a read a chunk is stored into its slot
 * and then copied out; of a write it is copied into its slot first. The copier's thread, the
 * threads that end pieces, and those that give slots back.
 */
#include <errno.h>
#include <string.h>

#include "io/staged/route.h"

/* Makes the copies of a chunk, range by range; of a read no more than was read. The copier's
 * thread. */
static bool copier_job_next(struct sl_copy_job *job, struct sl_command *out)
{
	struct sl_slot_use *use = SL_CONTAINER(job, struct sl_slot_use, job);
	struct sl_staged *staged = use->staged;
	char *slot = staged->slots[use->index].data;
	struct sl_slot_range range;

	if (!use->left || !sl_slot_range_next(&staged->shape, &use->walk, &range))
		return false;
	range.length = SL_MIN(range.length, use->left);
	use->left -= range.length;
	out->kind = SL_COPY;
	out->copy.length = range.length;
	out->copy.to = job->to_device ? range.memory : slot + range.at;
	out->copy.from = job->to_device ? slot + range.at : range.memory;
	return true;
}

/* The device does not touch the slot any more. The copier's thread, no lock held. */
static void copier_job_done(struct sl_copy_job *job, int error)
{
	struct sl_slot_use *use = SL_CONTAINER(job, struct sl_slot_use, job);
	struct sl_staged *staged = use->staged;
	struct sluice_op *op = staged->op;

	if (error)
		sl_op_fail(op, error, NULL);
	sl_mutex_lock(&op->mutex);
	staged->locked.copies--;
	use->ready = true;
	sl_op_pump_unlock(op);
}

/* The copier's queue is locked inside op->mutex, and takes no lock itself. */
static void copier_submit_locked(struct sl_slot_use *use, uint64_t bytes)
{
	struct sl_staged *staged = use->staged;

	use->walk = use->chunk;
	use->left = bytes;
	use->job.to_device = staged->op->kind == SL_READ;
	use->job.next = copier_job_next;
	use->job.done = copier_job_done;
	staged->locked.copies++;
	sl_copier_submit(staged->staging, &use->job);
}

/* Has the next chunks of a write copied into slots that are empty, in order. */
static void copier_fill_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	struct sl_staged *staged = op->staged;

	for (;;) {
		struct sl_slot_use *use = &staged->uses[staged->locked.filled % staged->count];

		if (!use->empty || op->locked.stopped ||
		    !sl_chunk_next(&staged->locked.copied, &use->chunk))
			return;
		use->empty = false;
		staged->locked.filled++;
		copier_submit_locked(use, UINT64_MAX);
	}
}

/* The operation has its slots. */
static void copier_granted(struct sl_slot_waiter *waiter)
{
	struct sl_staged *staged = SL_CONTAINER(waiter, struct sl_staged, waiter);
	struct sluice_op *op = staged->op;

	if (waiter->refused)
		sl_op_fail(op, -EIO, strdup("no pinned memory is left"));
	sl_mutex_lock(&op->mutex);
	staged->locked.waiting = false;
	for (unsigned i = 0; i < staged->count; i++) {
		staged->uses[i].ready = op->kind == SL_READ;
		staged->uses[i].empty = op->kind == SL_WRITE;
	}
	if (op->kind == SL_WRITE)
		copier_fill_locked(op);
	sl_op_pump_unlock(op);
}

static void copier_start(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	bool now;

	staged->waiter.granted = copier_granted;
	sl_mutex_lock(&op->mutex);
	sl_staged_begin_locked(op);
	staged->locked.waiting = !op->locked.stopped;
	if (!staged->locked.waiting) {
		sl_op_pump_unlock(op);
		return;
	}
	/* Under the mutex, so that a cancel finds the waiter, or keeps it from being made. Then
	 * nothing ends the operation while it waits, unless the waiter is withdrawn. */
	now = sl_slots_take(staged->staging, &staged->waiter, true);
	sl_mutex_unlock(&op->mutex);
	if (now)
		copier_granted(&staged->waiter);
}

static void copier_cancel(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	if (!sl_slots_withdraw(staged->staging, &staged->waiter))
		return;
	sl_mutex_lock(&op->mutex);
	staged->locked.waiting = false;
	sl_op_pump_unlock(op);
}

static bool copier_ready(struct sluice_op *op, uint64_t number)
{
	return op->staged->uses[number % op->staged->count].ready;
}

static void copier_chunk_done(struct sluice_op *op, struct sl_slot_use *use) SL_REQUIRES(&op->mutex)
{
	if (op->kind == SL_READ) {
		copier_submit_locked(use, use->moved);
	} else {
		use->empty = true;
		copier_fill_locked(op);
	}
}

const struct sl_route sl_route_copier = {
	.has_memory = true,
	.start = copier_start,
	.cancel = copier_cancel,
	.next = sl_route_next_range,
	.ready = copier_ready,
	.chunk_done = copier_chunk_done,
};
