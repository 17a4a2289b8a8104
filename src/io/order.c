/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operation may start when no earlier one that holds it back overlaps it. One that may not is a waiter
 * of just one of those, and looks for another when that one has left, until there is none. This is right
 * whatever the others do, because
 *
 *   each operation that waits is a waiter of an earlier one that is still there and holds it back
 *
 * is true when it has entered, and again after each leave: only the waiters of the one that leaves look,
 * and whatever they find is there. Nobody else has to be told of a leave, or of a waiter that is withdrawn: it
 * stays, and holds back those behind it, until it leaves as others do. The search ends, because what is
 * earlier only grows less; so a span that was free once stays free, and is not looked at again.
 *
 * The one waited for is the latest at the first span that is not free. In a queue on the same bytes, where
 * each waits for the one before it, that is the last of all to leave, and there is one look for each
 * operation. Where others leave in any order, a waiter looks about ln(n) times for n of them.
 */
#include <errno.h>
#include <stdlib.h>

#include "io/io.h"

void sl_object_init(struct sl_object *object, char *identity)
{
	object->identity = identity;
	sl_mutex_init(&object->mutex);
}

void sl_object_destroy(struct sl_object *object)
{
	sl_mutex_destroy(&object->mutex);
	free(object->identity);
}

/* In object->writes: the others, below it, are those that are there. */
#define ONE_ENTERED (UINT64_C(1) << 32)
/* Where many overlap, the latest of them may cost a look at each: after so many any that holds back will do. */
#define LOOKS_ENOUGH 64

static struct sluice_op *owner(struct sl_interval *interval)
{
	return SL_CONTAINER(interval, struct sl_range, interval)->op;
}

/* Whether an operation of the first effect holds a later one of the second back. */
static const bool holds[SL_EFFECTS][SL_EFFECTS] = {
	[SL_READS] = {[SL_WRITES] = true, [SL_BARRIER] = true},
	[SL_WRITES] = {[SL_READS] = true, [SL_WRITES] = true, [SL_BARRIER] = true},
	[SL_BARRIER] = {[SL_WRITES] = true},
};

static struct sl_intervals *spans_of(struct sluice_op *op)
{
	return &op->order.object->locked.spans[op->order.effect][op->order.blocks_streams];
}

static void remove_spans(struct sluice_op *op, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sl_intervals_remove(spans_of(op), &op->order.ranges[i].interval);
}

/* False: two of them overlap where that is not allowed, and none is there. */
static bool insert_spans(struct sluice_op *op)
{
	for (size_t i = 0; i < op->order.count; i++) {
		struct sl_interval *new = &op->order.ranges[i].interval, *own = NULL;

		if (i && holds[op->order.effect][op->order.effect])
			own = sl_intervals_latest(spans_of(op), new, op->order.sequence - 1,
			                          UINT64_MAX, 0);
		if (own) {
			remove_spans(op, i);
			return false;
		}
		new->sequence = op->order.sequence;
		sl_intervals_insert(spans_of(op), new);
	}
	return true;
}

/* The latest of those, late or not, that hold the operation back at that span, or nearly; NULL: none does. */
static struct sluice_op *holder_at(struct sluice_op *op, const struct sl_interval *at, bool late)
{
	struct sl_interval *latest = NULL;

	for (int earlier = 0; earlier < SL_EFFECTS; earlier++) {
		struct sl_intervals *set = &op->order.object->locked.spans[earlier][late];
		struct sl_interval *found;
		uint64_t before = op->order.sequence;
		uint64_t enough = op->order.stream ? UINT64_MAX : LOOKS_ENOUGH;

		if (!holds[earlier][op->order.effect])
			continue;
		/* The stream itself has one come after the other. */
		while ((found = sl_intervals_latest(set, at, 0, before, enough)) &&
		       op->order.stream && owner(found)->order.stream == op->order.stream) {
			op->order.follows = true;
			before = found->sequence;
		}
		if (found && (!latest || latest->sequence < found->sequence))
			latest = found;
	}
	return latest ? owner(latest) : NULL;
}

static struct sluice_op *find_holder(struct sluice_op *op)
{
	for (; op->order.passed < op->order.count; op->order.passed++) {
		const struct sl_interval *at = &op->order.ranges[op->order.passed].interval;
		struct sluice_op *late = holder_at(op, at, true), *other = holder_at(op, at, false);

		if (late && (!other || other->order.sequence < late->order.sequence))
			return late;
		if (other)
			return other;
	}
	return NULL;
}

static bool is_behind_a_late_one(struct sluice_op *op)
{
	for (size_t i = 0; i < op->order.count; i++)
		if (holder_at(op, &op->order.ranges[i].interval, true))
			return true;
	return false;
}

static void wait_for(struct sluice_op *op, struct sluice_op *holder)
{
	op->order.waits = true;
	sl_list_append(&holder->order.waiters, &op->order.link);
}

int sl_order_enter(struct sluice_op *op)
{
	struct sl_object *object = op->order.object;
	struct sluice_op *holder;
	bool own = op->order.blocks_streams, late;
	int rc = 0;

	if (!op->order.count)
		return 0;
	sl_mutex_lock(&object->mutex);
	sl_list_init(&op->order.waiters);
	op->order.follows = false;
	op->order.passed = 0;
	op->order.sequence = ++object->locked.sequence;
	late = is_behind_a_late_one(op);
	holder = find_holder(op);
	op->order.blocks_streams |= late;
	if (!insert_spans(op)) {
		rc = -EINVAL;
	} else if ((op->on_stream && late) || (op->order.stream && holder)) {
		remove_spans(op, op->order.count);
		rc = -EBUSY;
	} else if (holder) {
		wait_for(op, holder);
		rc = 1;
	}
	if (rc < 0)
		op->order.blocks_streams = own;
	if (rc >= 0 && op->order.effect == SL_WRITES)
		atomic_fetch_add(&object->writes, ONE_ENTERED + 1);
	sl_mutex_unlock(&object->mutex);
	return rc;
}

void sl_order_leave(struct sluice_op *op, struct sl_list *ready)
{
	struct sl_object *object = op->order.object;
	struct sl_list *link;

	if (!op->order.count)
		return;
	sl_mutex_lock(&object->mutex);
	remove_spans(op, op->order.count);
	if (op->order.effect == SL_WRITES)
		atomic_fetch_sub(&object->writes, 1);
	while ((link = sl_list_take(&op->order.waiters))) {
		struct sluice_op *waiter = SL_CONTAINER(link, struct sluice_op, order.link);
		struct sluice_op *holder = find_holder(waiter);

		waiter->order.waits = false;
		if (holder)
			wait_for(waiter, holder);
		else
			sl_list_append(ready, link);
	}
	sl_mutex_unlock(&object->mutex);
}

uint64_t sl_order_mark(struct sl_object *object)
{
	/* Adds nothing; a mere load might be made before what was read ahead of it. */
	uint64_t writes = atomic_fetch_add(&object->writes, 0);

	return writes % ONE_ENTERED ? 0 : writes + 1;
}

void sl_order_enqueued(struct sluice_op *op)
{
	struct sl_object *object = op->order.object;

	/* It has not left: its submission is not over. */
	sl_mutex_lock(&object->mutex);
	remove_spans(op, op->order.count);
	op->order.blocks_streams = false;
	insert_spans(op);
	sl_mutex_unlock(&object->mutex);
}

bool sl_order_withdraw(struct sluice_op *op)
{
	struct sl_object *object = op->order.object;
	bool waiting;

	if (!op->order.count)
		return false;
	sl_mutex_lock(&object->mutex);
	waiting = op->order.waits;
	op->order.waits = false;
	if (waiting)
		sl_list_remove(&op->order.link);
	sl_mutex_unlock(&object->mutex);
	return waiting;
}
