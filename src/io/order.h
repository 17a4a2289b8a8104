/* SPDX-License-Identifier: Apache-2.0 */
/* The order of operations on overlapping bytes. */
#ifndef SL_IO_ORDER_H
#define SL_IO_ORDER_H

#include "io/io_internal.h"

/* The effect of an operation on the bytes of its ranges. A barrier comes after all operations
 * before it. */
enum sl_effect { SL_READS, SL_WRITES, SL_BARRIER, SL_EFFECTS };

/*
 * The bytes of a file, however many handles show it, and the ranges of the operations on them
 * that are not over. An operation starts when no earlier operation that holds it back overlaps it.
 */
struct sl_object {
	struct sl_list link; /* guarded by the context's files.mutex, as are the next two */
	char *identity;
	unsigned references; /* files */

	struct sl_mutex mutex;
	struct {
		/* [1]: of operations that block streams. */
		struct sl_intervals ranges[SL_EFFECTS][2];
		uint64_t sequence; /* of the last operation that entered */
	} locked SL_GUARDED_BY(&mutex);
	_Atomic uint64_t writes; /* that have entered, and that are there: see sl_order_mark() */
};

/* A range of an operation in its object. */
struct sl_range {
	struct sl_interval interval;
	struct sluice_op *op;
};

/*
 * Enters the operation's ranges.
 * Returns 0: it may start
 *   1        an earlier operation holds it back; sl_order_leave() of another operation will hand it
 * out -EINVAL  ranges of one write overlap each other; it has not entered -EBUSY   it is in stream
 * order, and would wait for an operation that blocks streams; or for any, if its stream moves the
 * bytes by itself; it has not entered
 */
int sl_order_enter(struct sluice_op *op);
/* Takes the operation out, and appends those that may start now to ready. */
void sl_order_leave(struct sluice_op *op, struct sl_list *ready);
/* Says that an operation in stream order is enqueued whole: it blocks streams no longer. */
void sl_order_enqueued(struct sluice_op *op);
/* Returns true if the operation was held back; it will not be handed out any more. */
bool sl_order_withdraw(struct sluice_op *op);
/* For a read that does not enter. Returns 0 while there are writes, else a number that changes when
 * a write enters. */
uint64_t sl_order_mark(struct sl_object *object);

void sl_object_init(struct sl_object *object, char *identity);
void sl_object_destroy(struct sl_object *object);

#endif
