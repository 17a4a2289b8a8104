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

#include "io/staged/staged.h"

/* Makes the copies of a chunk, span by span; of a read what was read. The copier's thread. */
static bool copier_job_next(struct sl_copy_job *job, struct sl_command *out)
{
	struct sl_slot_use *use = SL_CONTAINER(job, struct sl_slot_use, job);
	struct sl_staged *staged = use->staged;
	char *slot = staged->slots[use->index].data;
	struct sl_span *span = &use->part;
	size_t length;

	if (!span->length) {
		if (!sl_span_next(&staged->shape, &use->walk, span) || use->left <= span->gap) {
			span->length = 0;
			return false;
		}
		span->length = SL_MIN(span->length, use->left - span->gap);
		use->left -= span->gap + span->length;
	}
	length = sl_staging_together(staged->staging, slot + span->at, span->length);
	out->kind = SL_COPY;
	out->copy.length = length;
	out->copy.to = job->to_device ? span->memory : slot + span->at;
	out->copy.from = job->to_device ? slot + span->at : span->memory;
	span->memory += length;
	span->at += length;
	span->length -= length;
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

/* A task of the operation: a thread that waits for it makes the copies, and a worker leaves them to
 * the copier. */
static void copier_task_run(struct sl_task *task)
{
	struct sl_slot_use *use = SL_CONTAINER(task, struct sl_slot_use, task);

	if (task->taken)
		sl_copier_help(use->staged->staging, &use->job);
	else
		sl_copier_submit(use->staged->staging, &use->job);
}

/* The queues of the copier and of the workers are locked inside op->mutex, and take no lock
 * themselves. */
static void copier_submit_locked(struct sl_slot_use *use, uint64_t bytes)
{
	struct sl_staged *staged = use->staged;

	if (staged->fan_chunks) {
		sl_fan_submit_locked(use, bytes);
		return;
	}
	use->job.bytes = SL_MIN(bytes, staged->shape.slot_bytes);

	use->walk = use->chunk;
	use->left = bytes;
	use->part.length = 0;
	use->job.to_device = staged->op->kind == SL_READ;
	use->job.next = copier_job_next;
	use->job.done = copier_job_done;
	use->job.drains = false;
	staged->locked.copies++;
	if (!staged->op->patient) {
		sl_copier_submit(staged->staging, &use->job);
		return;
	}
	use->task = (struct sl_task){.owner = staged->op, .patient = true, .run = copier_task_run};
	sl_pool_submit(staged->op->ctx->core.pool, &use->task);
}

/* Has the next chunks of a write copied into slots that are empty, in order. */
static void copier_fill_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	struct sl_staged *staged = op->staged;

	for (;;) {
		struct sl_slot_use *use = &staged->uses[staged->locked.filled % staged->count];

		if (!use->empty || op->locked.stopped ||
		    !sl_chunk_next(&staged->given, &use->chunk))
			return;
		use->empty = false;
		staged->locked.filled++;
		copier_submit_locked(use, UINT64_MAX);
	}
}

static int copier_make(struct sl_staged *staged)
{
	return staged->op->fan ? sl_fan_begin(staged->op) : 0;
}

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

/* Takes the slot before the start if it is free. The operation waits for nothing meanwhile, so
 * there is nothing that a cancel would have to end. */
static char *copier_memory(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	staged->granted =
		sl_slots_take(staged->staging, &staged->waiter, false) && !staged->waiter.refused;
	return staged->granted ? staged->slots[0].data : NULL;
}

/* The only chunk has been read at submission. */
static void copier_filled(struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	struct sl_staged *staged = op->staged;
	struct sl_chunks chunks = staged->shape;
	struct sl_slot_use *use = &staged->uses[0];

	sl_chunk_next(&chunks, &use->chunk);
	if (staged->fan_chunks)
		sl_fan_take_locked(staged, use);
	copier_submit_locked(use, op->locked.moved);
}

static void copier_start(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	bool now;
	int rc = sl_staged_admit(op);

	if (rc)
		sl_op_fail(op, rc, strdup(sluice_last_message()));
	staged->waiter.granted = copier_granted;
	sl_mutex_lock(&op->mutex);
	sl_staged_begin_locked(op);
	staged->given = staged->shape;
	staged->locked.waiting = !op->locked.stopped;
	if (!staged->locked.waiting) {
		sl_op_pump_unlock(op);
		return;
	}
	/* Under the mutex, so that a cancel finds the waiter, or keeps it from being made. Then
	 * nothing ends the operation while it waits, unless the waiter is withdrawn. */
	now = staged->granted || sl_slots_take(staged->staging, &staged->waiter, true);
	sl_staged_announce(op);
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

/* A read takes the first that is free, so that a slow piece holds up its own slot alone, and few
 * slots are in use where few are wanted. The chunks of a write lie in their slots in order. */
static struct sl_slot_use *copier_slot(struct sluice_op *op, uint64_t number)
{
	struct sl_staged *staged = op->staged;
	bool any = op->kind == SL_READ;

	for (unsigned i = 0; i < (any ? staged->count : 1); i++) {
		struct sl_slot_use *use = &staged->uses[any ? i : number % staged->count];

		if (use->ready && (!staged->fan_chunks || sl_fan_take_locked(staged, use)))
			return use;
	}
	return NULL;
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
	.make = copier_make,
	.start = copier_start,
	.memory = copier_memory,
	.filled = copier_filled,
	.cancel = copier_cancel,
	.next = sl_route_next_range,
	.slot = copier_slot,
	.chunk_done = copier_chunk_done,
};
