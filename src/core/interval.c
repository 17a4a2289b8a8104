/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of intervals
 *
 * A treap (Seidel and Aragon, 1996), augmented with the largest end and the extreme sequences of
 * each subtree. The engine finds by it which operations of an object overlap. The caller's lock
 * guards a set.
 */
#include "core/core.h"

static void interval_include(struct sl_interval *node, const struct sl_interval *child)
{
	if (!child)
		return;
	node->last = SL_MAX(node->last, child->last);
	node->oldest = SL_MIN(node->oldest, child->oldest);
	node->newest = SL_MAX(node->newest, child->newest);
}

static void interval_update(struct sl_interval *node)
{
	node->last = node->end;
	node->oldest = node->newest = node->sequence;
	interval_include(node, node->left);
	interval_include(node, node->right);
}

/* Orders by start; equal starts by sequence, so that earlier members are on the same side of the
 * tree, and then by address, so that removal finds its node. */
static bool interval_is_before(const struct sl_interval *a, const struct sl_interval *b)
{
	if (a->start != b->start)
		return a->start < b->start;
	return a->sequence != b->sequence ? a->sequence < b->sequence : (uintptr_t)a < (uintptr_t)b;
}

/* Splits tree into the nodes before `node` and the rest. */
static void interval_split(struct sl_interval *tree, const struct sl_interval *node,
                           struct sl_interval **low, struct sl_interval **high)
{
	if (!tree) {
		*low = *high = NULL;
	} else if (interval_is_before(tree, node)) {
		interval_split(tree->right, node, &tree->right, high);
		*low = tree;
		interval_update(tree);
	} else {
		interval_split(tree->left, node, low, &tree->left);
		*high = tree;
		interval_update(tree);
	}
}

static struct sl_interval *interval_merge(struct sl_interval *low, struct sl_interval *high)
{
	if (!low || !high)
		return low ? low : high;
	if (low->weight > high->weight) {
		low->right = interval_merge(low->right, high);
		interval_update(low);
		return low;
	}
	high->left = interval_merge(low, high->left);
	interval_update(high);
	return high;
}

static struct sl_interval *interval_insert(struct sl_interval *tree, struct sl_interval *node)
{
	if (!tree || node->weight > tree->weight) {
		interval_split(tree, node, &node->left, &node->right);
		interval_update(node);
		return node;
	}
	if (interval_is_before(node, tree))
		tree->left = interval_insert(tree->left, node);
	else
		tree->right = interval_insert(tree->right, node);
	interval_update(tree);
	return tree;
}

static struct sl_interval *interval_remove_from(struct sl_interval *tree, struct sl_interval *node)
{
	if (tree == node)
		return interval_merge(node->left, node->right);
	if (interval_is_before(node, tree))
		tree->left = interval_remove_from(tree->left, node);
	else
		tree->right = interval_remove_from(tree->right, node);
	interval_update(tree);
	return tree;
}

void sl_intervals_insert(struct sl_intervals *set, struct sl_interval *interval)
{
	interval->left = interval->right = NULL;
	interval->weight = sl_random(&set->random);
	interval_update(interval);
	set->root = interval_insert(set->root, interval);
}

void sl_intervals_remove(struct sl_intervals *set, struct sl_interval *interval)
{
	set->root = interval_remove_from(set->root, interval);
}

static void interval_visit(struct sl_interval *tree, uint64_t start, uint64_t end,
                           void (*visit)(struct sl_interval *, void *), void *argument)
{
	if (!tree || tree->last <= start)
		return;
	interval_visit(tree->left, start, end, visit, argument);
	if (tree->start >= end)
		return;
	if (tree->end > start)
		visit(tree, argument);
	interval_visit(tree->right, start, end, visit, argument);
}

void sl_intervals_overlapping(const struct sl_intervals *set, uint64_t start, uint64_t end,
                              void (*visit)(struct sl_interval *, void *), void *argument)
{
	interval_visit(set->root, start, end, visit, argument);
}

struct latest_search {
	const struct sl_interval *at;
	uint64_t best, before; /* only sequences between these two are wanted */
	struct sl_interval *found;
	uint64_t looks, enough;
};

/* Returns the largest useful sequence that a subtree may contain. */
static uint64_t interval_bound(const struct sl_interval *tree, const struct latest_search *search)
{
	return tree && tree->oldest < search->before ? SL_MIN(tree->newest, search->before - 1) : 0;
}

static void interval_find_latest(struct sl_interval *tree, struct latest_search *search)
{
	if (interval_bound(tree, search) <= search->best || tree->last <= search->at->start ||
	    (search->found && search->looks >= search->enough))
		return;
	search->looks++;
	bool left_first = interval_bound(tree->left, search) > interval_bound(tree->right, search);
	if (left_first)
		interval_find_latest(tree->left, search);
	if (tree->start < search->at->end) {
		if (tree->end > search->at->start && tree->sequence < search->before &&
		    tree->sequence > search->best) {
			search->best = tree->sequence;
			search->found = tree;
		}
		interval_find_latest(tree->right, search);
	}
	if (!left_first)
		interval_find_latest(tree->left, search);
}

struct sl_interval *sl_intervals_latest(struct sl_intervals *set, const struct sl_interval *at,
                                        uint64_t after, uint64_t before, uint64_t enough)
{
	struct latest_search search = {.at = at, .best = after, .before = before, .enough = enough};

	interval_find_latest(set->root, &search);
	set->looks += search.looks;
	return search.found;
}
