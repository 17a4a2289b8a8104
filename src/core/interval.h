/* SPDX-License-Identifier: Apache-2.0 */
/* A set of half-open ranges that finds the members that overlap a given range. Not thread-safe. */
#ifndef SL_INTERVAL_H
#define SL_INTERVAL_H

#include <stdint.h>

/* A member of a set: a node of a treap ordered by start, with the extremes of its subtree. */
struct sl_interval {
	struct sl_interval *left, *right;
	uint64_t start, end;     /* start < end */
	uint64_t sequence;       /* from 1 on, for sl_intervals_latest() */
	uint64_t last;           /* largest end in this subtree */
	uint64_t oldest, newest; /* smallest and largest sequence in this subtree */
	uint64_t weight;         /* heap order */
};
struct sl_intervals {
	struct sl_interval *root;
	uint64_t random;
	uint64_t looks; /* members that sl_intervals_latest() has visited: its cost */
};

void sl_intervals_insert(struct sl_intervals *set, struct sl_interval *interval);
void sl_intervals_remove(struct sl_intervals *set, struct sl_interval *interval);
/* Calls visit for each member that overlaps [start, end), which must not change the set. */
void sl_intervals_overlapping(const struct sl_intervals *set, uint64_t start, uint64_t end,
                              void (*visit)(struct sl_interval *, void *), void *argument);
/*
 * Returns the member that overlaps `at` and has the largest sequence between `after` and `before`
 * (both excluded), or NULL. Once it has visited `enough` members it returns the best so far, if
 * any: where many members overlap, a complete search may visit each of them.
 */
struct sl_interval *sl_intervals_latest(struct sl_intervals *set, const struct sl_interval *at,
                                        uint64_t after, uint64_t before, uint64_t enough);

#endif
