/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each pair of overlapping spans of which the earlier one holds the later one back is counted once
 * when the later one enters, and taken back once when the earlier one leaves. What holds nothing
 * back is never compared, so reads cost nothing while nobody writes.
 */
#include <errno.h>
#include <stdlib.h>

#include "io/io.h"

void sl_object_init(struct sl_object *object, char *identity)
{
	object->identity = identity;
	pthread_mutex_init(&object->mutex, NULL);
}

void sl_object_destroy(struct sl_object *object)
{
	pthread_mutex_destroy(&object->mutex);
	free(object->identity);
}

/* In object->writes: the others, below it, are those that are there. */
#define ONE_ENTERED (UINT64_C(1) << 32)

static struct sluice_op *owner(struct sl_interval *interval)
{
	return SL_CONTAINER(interval, struct sl_span, interval)->op;
}

struct entering {
	struct sluice_op *op;
	bool overlaps_itself;
	bool late; /* one that holds it back is */
};

static void count_blocker(struct sl_interval *interval, void *argument)
{
	struct entering *entering = argument;
	struct sluice_op *earlier = owner(interval), *op = entering->op;

	if (earlier == op) {
		entering->overlaps_itself = true;
	} else if (op->order.stream && earlier->order.stream == op->order.stream) {
		/* The stream itself has one come after the other. */
		op->order.follows = true;
		return;
	} else {
		op->order.blockers++;
	}
	entering->late |= earlier->order.late;
}

/* Whether an operation of the first effect holds a later one of the second back. */
static const bool holds[SL_EFFECTS][SL_EFFECTS] = {
	[SL_READS] = {[SL_WRITES] = true, [SL_BARRIER] = true},
	[SL_WRITES] = {[SL_READS] = true, [SL_WRITES] = true, [SL_BARRIER] = true},
	[SL_BARRIER] = {[SL_WRITES] = true},
};

static void remove_spans(struct sluice_op *op, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sl_intervals_remove(&op->order.object->locked.spans[op->order.effect],
		                    &op->order.spans[i].interval);
}

int sl_order_enter(struct sluice_op *op)
{
	struct sl_object *object = op->order.object;
	struct entering entering = {op, false, false};
	size_t entered = 0;
	int rc;

	if (!op->order.count)
		return 0;
	pthread_mutex_lock(&object->mutex);
	op->order.blockers = 0;
	op->order.follows = false;
	op->order.sequence = ++object->locked.sequence;
	while (entered < op->order.count && !entering.overlaps_itself) {
		struct sl_span *span = &op->order.spans[entered];

		for (int earlier = 0; earlier < SL_EFFECTS; earlier++)
			if (holds[earlier][op->order.effect])
				sl_intervals_overlapping(&object->locked.spans[earlier],
				                         span->interval.start, span->interval.end,
				                         count_blocker, &entering);
		sl_intervals_insert(&object->locked.spans[op->order.effect], &span->interval);
		entered++;
	}
	if (entering.overlaps_itself) {
		remove_spans(op, entered);
		rc = -EINVAL;
	} else if ((op->on_stream && entering.late) || (op->order.stream && op->order.blockers)) {
		remove_spans(op, entered);
		rc = -EBUSY;
	} else {
		op->order.late |= entering.late;
		rc = op->order.blockers > 0;
	}
	if (rc >= 0 && op->order.effect == SL_WRITES)
		atomic_fetch_add(&object->writes, ONE_ENTERED + 1);
	pthread_mutex_unlock(&object->mutex);
	return rc;
}

struct leaving {
	struct sluice_op *op;
	struct sl_list *ready;
};

static void release_blocked(struct sl_interval *interval, void *argument)
{
	struct leaving *leaving = argument;
	struct sluice_op *op = owner(interval);

	/* Without blockers: it runs, or it was withdrawn. */
	if (op->order.sequence < leaving->op->order.sequence || !op->order.blockers)
		return;
	if (!--op->order.blockers)
		sl_list_append(leaving->ready, &op->order.ready);
}

void sl_order_leave(struct sluice_op *op, struct sl_list *ready)
{
	struct sl_object *object = op->order.object;
	struct leaving leaving = {op, ready};

	if (!op->order.count)
		return;
	pthread_mutex_lock(&object->mutex);
	remove_spans(op, op->order.count);
	if (op->order.effect == SL_WRITES)
		atomic_fetch_sub(&object->writes, 1);
	for (int later = 0; later < SL_EFFECTS; later++) {
		if (!holds[op->order.effect][later])
			continue;
		for (size_t i = 0; i < op->order.count; i++)
			sl_intervals_overlapping(
				&object->locked.spans[later], op->order.spans[i].interval.start,
				op->order.spans[i].interval.end, release_blocked, &leaving);
	}
	pthread_mutex_unlock(&object->mutex);
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

	pthread_mutex_lock(&object->mutex);
	op->order.late = false;
	pthread_mutex_unlock(&object->mutex);
}

bool sl_order_withdraw(struct sluice_op *op)
{
	struct sl_object *object = op->order.object;
	bool waiting;

	if (!op->order.count)
		return false;
	pthread_mutex_lock(&object->mutex);
	waiting = op->order.blockers > 0;
	op->order.blockers = 0;
	pthread_mutex_unlock(&object->mutex);
	return waiting;
}
