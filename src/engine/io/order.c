/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order
 *
 * The order of operations on overlapping bytes of a file. The threads that submit enter
 * operations, and the thread that ends an operation takes it out; neither waits.
 *
 * An operation may start when no earlier operation that holds it back overlaps it. Otherwise it is
 * a waiter of a single holder, and looks for another holder when that has left, until there is
 * none. The invariant is
 *
 *   each operation that waits is a waiter of an earlier one, which holds it back and has not left.
 *
 * It is true when an operation has entered, and again after each leave: the waiters of the
 * operation that leaves look for holders, which have not left, and no other operation has to hear
 * of it. An operation that is withdrawn stays, and holds back those behind it, until it leaves. The
 * search ends, because the earlier operations only become fewer; so a range that was free once
 * stays free, and is not looked at again.
 *
 * The holder is the latest operation at the first range that is not free. In a queue on the same
 * bytes, where each waits for its predecessor, that is the last to leave, and each operation looks
 * once. Where operations leave in any order, a waiter looks about ln(n) times for n of them.
 */
#include <errno.h>
#include <stdlib.h>

#include "io/io_internal.h"

/* Takes over identity. */
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

/* In object->writes: counts writes that have entered; the bits below, those that have not left. */
#define ONE_ENTERED (UINT64_C(1) << 32)
/* The latest of many that overlap may cost a look at each: after so many any holder will do. */
#define LOOKS_ENOUGH 64

static struct sluice_op *range_owner(struct sl_interval *interval)
{
	return SL_CONTAINER(interval, struct sl_range, interval)->op;
}

/* Whether an operation of the first effect holds back a later operation of the second. */
static const bool holds[SL_EFFECTS][SL_EFFECTS] = {
	[SL_READS] = {[SL_WRITES] = true, [SL_BARRIER] = true},
	[SL_WRITES] = {[SL_READS] = true, [SL_WRITES] = true, [SL_BARRIER] = true},
	[SL_BARRIER] = {[SL_WRITES] = true},
};

static struct sl_intervals *order_ranges_locked(struct sl_object *object, struct sluice_op *op)
	SL_REQUIRES(&object->mutex)
{
	return &object->locked.ranges[op->order.effect][op->order.blocks_streams];
}

static void order_remove_locked(struct sl_object *object, struct sluice_op *op, size_t count)
	SL_REQUIRES(&object->mutex)
{
	for (size_t i = 0; i < count; i++)
		sl_intervals_remove(order_ranges_locked(object, op), &op->order.ranges[i].interval);
}

/* Inserts all ranges; or none, and returns false, if two of one write overlap each other. */
static bool order_insert_locked(struct sl_object *object, struct sluice_op *op)
	SL_REQUIRES(&object->mutex)
{
	for (size_t i = 0; i < op->order.count; i++) {
		struct sl_interval *new = &op->order.ranges[i].interval, *own = NULL;

		if (i && holds[op->order.effect][op->order.effect])
			own = sl_intervals_latest(order_ranges_locked(object, op), new,
			                          op->order.sequence - 1, UINT64_MAX, 0);
		if (own) {
			order_remove_locked(object, op, i);
			return false;
		}
		new->sequence = op->order.sequence;
		sl_intervals_insert(order_ranges_locked(object, op), new);
	}
	return true;
}

/* Returns the latest operation, or nearly, that holds `op` back at a range, of those that block
 * streams or of the others; NULL: none does. */
static struct sluice_op *order_holder_at_locked(struct sl_object *object, struct sluice_op *op,
                                                const struct sl_interval *at, bool blocking)
	SL_REQUIRES(&object->mutex)
{
	struct sl_interval *latest = NULL;

	for (int earlier = 0; earlier < SL_EFFECTS; earlier++) {
		struct sl_intervals *set = &object->locked.ranges[earlier][blocking];
		struct sl_interval *found;
		uint64_t before = op->order.sequence;
		uint64_t enough = op->order.stream ? UINT64_MAX : LOOKS_ENOUGH;

		if (!holds[earlier][op->order.effect])
			continue;
		/* Operations of a stream follow each other by themselves. */
		while ((found = sl_intervals_latest(set, at, 0, before, enough)) &&
		       op->order.stream && range_owner(found)->order.stream == op->order.stream) {
			op->order.follows = true;
			before = found->sequence;
		}
		if (found && (!latest || latest->sequence < found->sequence))
			latest = found;
	}
	return latest ? range_owner(latest) : NULL;
}

static struct sluice_op *order_find_holder_locked(struct sl_object *object, struct sluice_op *op)
	SL_REQUIRES(&object->mutex)
{
	for (; op->order.passed < op->order.count; op->order.passed++) {
		const struct sl_interval *at = &op->order.ranges[op->order.passed].interval;
		struct sluice_op *blocking = order_holder_at_locked(object, op, at, true);
		struct sluice_op *other = order_holder_at_locked(object, op, at, false);

		if (blocking && (!other || other->order.sequence < blocking->order.sequence))
			return blocking;
		if (other)
			return other;
	}
	return NULL;
}

/* The ranges that the search for a holder has passed are free of both kinds. */
static bool order_is_behind_blocker_locked(struct sl_object *object, struct sluice_op *op)
	SL_REQUIRES(&object->mutex)
{
	for (size_t i = op->order.passed; i < op->order.count; i++)
		if (order_holder_at_locked(object, op, &op->order.ranges[i].interval, true))
			return true;
	return false;
}

static void order_wait_for_locked(struct sluice_op *op, struct sluice_op *holder)
{
	op->order.waits = true;
	sl_list_append(&holder->order.waiters, &op->order.link);
}

int sl_order_enter(struct sluice_op *op)
{
	struct sl_object *object = op->order.object;
	bool own = op->order.blocks_streams, behind;
	int rc = 0;

	if (!op->order.count)
		return 0;
	sl_mutex_lock(&object->mutex);
	sl_list_init(&op->order.waiters);
	op->order.follows = false;
	op->order.passed = 0;
	op->order.sequence = ++object->locked.sequence;
	struct sluice_op *holder = order_find_holder_locked(object, op);
	behind = order_is_behind_blocker_locked(object, op);
	op->order.blocks_streams |= behind;
	if (!order_insert_locked(object, op)) {
		rc = -EINVAL;
	} else if ((op->on_stream && behind) || (op->order.stream && holder)) {
		order_remove_locked(object, op, op->order.count);
		rc = -EBUSY;
	} else if (holder) {
		order_wait_for_locked(op, holder);
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
	struct sluice_op *waiter;

	if (!op->order.count)
		return;
	sl_mutex_lock(&object->mutex);
	order_remove_locked(object, op, op->order.count);
	if (op->order.effect == SL_WRITES)
		atomic_fetch_sub(&object->writes, 1);
	while ((waiter = sl_list_take_first(&op->order.waiters, struct sluice_op, order.link))) {
		struct sluice_op *holder = order_find_holder_locked(object, waiter);

		waiter->order.waits = false;
		if (holder)
			order_wait_for_locked(waiter, holder);
		else
			sl_list_append(ready, &waiter->order.link);
	}
	sl_mutex_unlock(&object->mutex);
}

uint64_t sl_order_mark(struct sl_object *object)
{
	/* Adds 0 instead of loading: a load might be moved before the reads ahead of it. */
	uint64_t writes = atomic_fetch_add(&object->writes, 0);

	return writes % ONE_ENTERED ? 0 : writes + 1;
}

void sl_order_enqueued(struct sluice_op *op)
{
	struct sl_object *object = op->order.object;

	/* The operation has not left: its submission is not over. */
	sl_mutex_lock(&object->mutex);
	order_remove_locked(object, op, op->order.count);
	op->order.blocks_streams = false;
	order_insert_locked(object, op);
	sl_mutex_unlock(&object->mutex);
}

bool sl_order_withdraw(struct sluice_op *op)
{
	struct sl_object *object = op->order.object;

	if (!op->order.count)
		return false;
	sl_mutex_lock(&object->mutex);
	bool waiting = op->order.waits;
	op->order.waits = false;
	if (waiting)
		sl_list_remove(&op->order.link);
	sl_mutex_unlock(&object->mutex);
	return waiting;
}
