/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fan-out
 *
 * The same bytes into memory of several devices, awaited on the host: they are read once, and each
 * chunk goes on, by copiers, while the next are read. The first target is the operation's own
 * memory. A target gets its bytes from an earlier target that its device reaches, as soon as
 * that has them, else from the slot. The slot is free again when no target needs it any more; the
 * copies between devices go on without it. The copiers' threads, and those that end pieces.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "io/staged/staged.h"

#define FROM_SLOT UINT_MAX

/* The copies of a chunk to a target; from walk on the copier's while it is in flight. */
struct sl_fan_copy {
	struct sl_copy_job job;
	struct sl_fan_chunk *chunk;
	unsigned target;
	struct sl_chunk walk;
	uint64_t left;
	char *to, *from;
	size_t part; /* the rest of a span, if the slot was pinned in two steps */
};

/* A chunk on its way to the targets. Guarded by op->mutex, but for fixed fields. */
struct sl_fan_chunk {
	struct sl_list link; /* among those to use again */
	struct sl_staged *staged;
	struct sl_fan_copy *copies; /* for each target */
	struct sl_slot_use *use;
	struct sl_chunk chunk;
	uint64_t bytes;
	unsigned in_slot, left; /* targets that need the slot, and that lack the chunk */
};

/* ----------------------------------------------------------------------------------- request */

int sl_fan_new(struct sluice_op *op, const struct sluice_request *r)
{
	size_t addresses = r->also_count * r->count;
	struct sl_fan *fan;

	if (r->kind != SLUICE_READ || !r->also)
		return sl_fail(-EINVAL,
		               "request: further memory (also) is for reads, and not NULL");
	if (sl_wants_stream(r))
		return sl_fail(-ENOTSUP, "request: in stream order there is no further memory");
	if (r->also_count >= SL_DEVICES_MOST)
		return sl_fail(-EINVAL, "request: there are %u further memories, more than %d",
		               r->also_count, SL_DEVICES_MOST - 1);
	fan = calloc(1, sizeof(*fan) + addresses * sizeof(fan->to[0]));
	if (!fan)
		return sl_fail(-ENOMEM, "no memory for %zu addresses", addresses);
	fan->count = r->also_count + 1;
	memcpy(fan->to, r->also, addresses * sizeof(fan->to[0]));
	op->fan = fan;
	return 0;
}

/* Returns where a target has the byte that the operation's own memory has there, or NULL. */
static char *fan_address(const struct sluice_op *op, unsigned target, size_t extent, char *memory)
{
	char *start = target ? op->fan->to[(target - 1) * op->count + extent] : memory;

	return target && start ? start + (memory - (char *)op->extents[extent].data) : start;
}

/* Returns true if the source gets all that the target wants, and the target's device reaches it. */
static bool fan_may_copy(const struct sluice_op *op, unsigned target, unsigned source)
{
	const struct sl_fan *fan = op->fan;

	for (size_t i = 0; source && i < op->count; i++)
		if (fan->to[(target - 1) * op->count + i] && !fan->to[(source - 1) * op->count + i])
			return false;
	return sl_device_reach(fan->targets[target].device, fan->targets[source].device);
}

/* Finds the device of a target, its staging, and the last target before it that is a source. */
static int fan_find_target(struct sluice_op *op, unsigned number)
{
	struct sl_fan_target *target = &op->fan->targets[number];
	int rc;

	for (size_t i = 0; i < op->count; i++) {
		const void *memory = fan_address(op, number, i, op->extents[i].data);
		struct sl_device *device = memory ? sl_device_of_memory(memory) : NULL;

		if (!memory || !op->extents[i].length)
			continue;
		if (!device || (target->device && device != target->device))
			return sl_fail(-EINVAL,
			               "request: extent %zu of further memory %u is of %s%s%s", i,
			               number - 1, device ? device->name : "the host",
			               target->device ? ", and those before it of " : "",
			               target->device ? target->device->name : "");
		target->device = device;
	}
	/* It wants nothing. */
	if (!target->device)
		target->device = op->fan->targets[0].device;
	rc = sl_context_get_staging(op->ctx, target->device, &target->staging);
	target->source = FROM_SLOT;
	for (unsigned i = number; !rc && target->source == FROM_SLOT && i--;)
		if (fan_may_copy(op, number, i))
			target->source = i;
	return rc;
}

int sl_fan_begin(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	struct sl_fan *fan = op->fan;
	size_t many = 2 * (size_t)staged->count;
	struct sl_fan_chunk *chunks =
		calloc(1, many * (sizeof(*chunks) + fan->count * sizeof(*chunks->copies)));
	int rc = 0;

	if (!chunks)
		return sl_fail(-ENOMEM, "no memory");
	staged->fan_chunks = chunks;
	for (size_t i = 0; i < many; i++) {
		chunks[i].staged = staged;
		chunks[i].copies = (struct sl_fan_copy *)(chunks + many) + i * fan->count;
		sl_list_append(&staged->locked.fan_spare, &chunks[i].link);
	}
	fan->targets[0] = (struct sl_fan_target){sl_staging_device(staged->staging),
	                                         staged->staging, FROM_SLOT};
	for (unsigned i = 1; !rc && i < fan->count; i++)
		rc = fan_find_target(op, i);
	return rc;
}

/* ------------------------------------------------------------------------------------ copies */

bool sl_fan_take_locked(struct sl_staged *staged, struct sl_slot_use *use)
{
	use->fan = sl_list_take_first(&staged->locked.fan_spare, struct sl_fan_chunk, link);
	return use->fan;
}

/* Makes the next copy of the bytes in a chunk. The copier's thread. */
static bool fan_copy_next(struct sl_copy_job *job, struct sl_command *out)
{
	struct sl_fan_copy *copy = SL_CONTAINER(job, struct sl_fan_copy, job);
	struct sl_staged *staged = copy->chunk->staged;
	unsigned source = staged->op->fan->targets[copy->target].source;
	struct sl_span span;
	size_t extent, length;

	while (!copy->part) {
		extent = staged->shape.bricks ? 0 : copy->walk.extent;
		if (!sl_span_next(&staged->shape, &copy->walk, &span) || copy->left <= span.gap)
			return false;
		span.length = SL_MIN(span.length, copy->left - span.gap);
		copy->left -= span.gap + span.length;
		copy->to = fan_address(staged->op, copy->target, extent, span.memory);
		copy->from = source == FROM_SLOT
		                     ? staged->slots[copy->chunk->use->index].data + span.at
		                     : fan_address(staged->op, source, extent, span.memory);
		copy->part = copy->to ? span.length : 0;
	}
	length = source == FROM_SLOT ? sl_staging_together(staged->staging, copy->from, copy->part)
	                             : copy->part;
	out->kind = SL_COPY;
	out->copy.length = length;
	out->copy.to = copy->to;
	out->copy.from = copy->from;
	copy->to += length;
	copy->from += length;
	copy->part -= length;
	return true;
}

static void fan_copy_done(struct sl_copy_job *job, int error);

/* Gives the copies to targets with this source: their own chunk is there. The queues of the
 * copiers are locked inside op->mutex, and take no lock themselves. */
static void fan_go_on_locked(struct sl_fan_chunk *chunk, unsigned source)
{
	struct sl_staged *staged = chunk->staged;
	const struct sl_fan *fan = staged->op->fan;

	for (unsigned i = 0; i < fan->count; i++) {
		struct sl_fan_copy *copy = &chunk->copies[i];

		if (fan->targets[i].source != source)
			continue;
		*copy = (struct sl_fan_copy){
			.job = {.to_device = true,
		                .bytes = chunk->bytes,
		                .next = fan_copy_next,
		                .done = fan_copy_done},
			.chunk = chunk,
			.target = i,
			.walk = chunk->chunk,
			.left = chunk->bytes,
		};
		staged->locked.copies++;
		sl_copier_submit(fan->targets[i].staging, &copy->job);
	}
}

/* A target has the chunk. A copier's thread, no lock held. */
static void fan_copy_done(struct sl_copy_job *job, int error)
{
	struct sl_fan_copy *copy = SL_CONTAINER(job, struct sl_fan_copy, job);
	struct sl_fan_chunk *chunk = copy->chunk;
	struct sl_staged *staged = chunk->staged;
	const struct sl_fan_target *target = &staged->op->fan->targets[copy->target];
	struct sluice_op *op = staged->op;

	if (error)
		sl_op_fail(op, error,
		           sl_format("cannot copy bytes from '%s' to %s: %s", op->file->uri,
		                     target->device->name, sl_error_text(error)));
	sl_mutex_lock(&op->mutex);
	staged->locked.copies--;
	if (target->source == FROM_SLOT && !--chunk->in_slot)
		chunk->use->ready = true;
	if (!op->locked.stopped)
		fan_go_on_locked(chunk, copy->target);
	if (!--chunk->left)
		sl_list_append(&staged->locked.fan_spare, &chunk->link);
	sl_op_pump_unlock(op);
}

void sl_fan_submit_locked(struct sl_slot_use *use, uint64_t bytes)
{
	struct sl_fan_chunk *chunk = use->fan;
	const struct sl_fan *fan = use->staged->op->fan;

	chunk->use = use;
	chunk->chunk = use->chunk;
	chunk->bytes = bytes;
	chunk->left = fan->count;
	chunk->in_slot = 0;
	for (unsigned i = 0; i < fan->count; i++)
		chunk->in_slot += fan->targets[i].source == FROM_SLOT;
	fan_go_on_locked(chunk, FROM_SLOT);
}
