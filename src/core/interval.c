/* SPDX-License-Identifier: Apache-2.0 */
/* A treap (Seidel and Aragon, 1996), augmented with the largest end and the sequences of each subtree. */
#include "core/core.h"

/* Marsaglia's xorshift64: enough to keep the tree flat. */
static uint64_t next_random(struct sl_intervals *set)
{
	uint64_t x = set->random ? set->random : UINT64_C(0x9e3779b97f4a7c15);

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return set->random = x;
}

static void include(struct sl_interval *node, const struct sl_interval *child)
{
	if (!child)
		return;
	node->last = SL_MAX(node->last, child->last);
	node->oldest = SL_MIN(node->oldest, child->oldest);
	node->newest = SL_MAX(node->newest, child->newest);
}

static void update(struct sl_interval *node)
{
	node->last = node->end;
	node->oldest = node->newest = node->sequence;
	include(node, node->left);
	include(node, node->right);
}

/* Equal starts are told apart by sequence, so that those before one are one side of the tree, and then by
 * address, so that removal finds its node. */
static bool before(const struct sl_interval *a, const struct sl_interval *b)
{
	if (a->start != b->start)
		return a->start < b->start;
	return a->sequence != b->sequence ? a->sequence < b->sequence : (uintptr_t)a < (uintptr_t)b;
}

/* Splits tree into what is before node and what is not. */
static void split(struct sl_interval *tree, const struct sl_interval *node,
                  struct sl_interval **low, struct sl_interval **high)
{
	if (!tree) {
		*low = *high = NULL;
	} else if (before(tree, node)) {
		split(tree->right, node, &tree->right, high);
		*low = tree;
		update(tree);
	} else {
		split(tree->left, node, low, &tree->left);
		*high = tree;
		update(tree);
	}
}

static struct sl_interval *merge(struct sl_interval *low, struct sl_interval *high)
{
	if (!low || !high)
		return low ? low : high;
	if (low->weight > high->weight) {
		low->right = merge(low->right, high);
		update(low);
		return low;
	}
	high->left = merge(low, high->left);
	update(high);
	return high;
}

static struct sl_interval *insert(struct sl_interval *tree, struct sl_interval *node)
{
	if (!tree || node->weight > tree->weight) {
		split(tree, node, &node->left, &node->right);
		update(node);
		return node;
	}
	if (before(node, tree))
		tree->left = insert(tree->left, node);
	else
		tree->right = insert(tree->right, node);
	update(tree);
	return tree;
}

static struct sl_interval *remove_from(struct sl_interval *tree, struct sl_interval *node)
{
	if (tree == node)
		return merge(node->left, node->right);
	if (before(node, tree))
		tree->left = remove_from(tree->left, node);
	else
		tree->right = remove_from(tree->right, node);
	update(tree);
	return tree;
}

void sl_intervals_insert(struct sl_intervals *set, struct sl_interval *interval)
{
	interval->left = interval->right = NULL;
	interval->weight = next_random(set);
	update(interval);
	set->root = insert(set->root, interval);
}

void sl_intervals_remove(struct sl_intervals *set, struct sl_interval *interval)
{
	set->root = remove_from(set->root, interval);
}

static void visit_tree(struct sl_interval *tree, uint64_t start, uint64_t end,
                       void (*visit)(struct sl_interval *, void *), void *argument)
{
	if (!tree || tree->last <= start)
		return;
	visit_tree(tree->left, start, end, visit, argument);
	if (tree->start >= end)
		return;
	if (tree->end > start)
		visit(tree, argument);
	visit_tree(tree->right, start, end, visit, argument);
}

void sl_intervals_overlapping(const struct sl_intervals *set, uint64_t start, uint64_t end,
                              void (*visit)(struct sl_interval *, void *), void *argument)
{
	visit_tree(set->root, start, end, visit, argument);
}

struct search {
	const struct sl_interval *at;
	uint64_t best, before; /* only sequences between them are of use */
	struct sl_interval *found;
	uint64_t looks, enough;
};

/* The most that a subtree can give. */
static uint64_t promise(const struct sl_interval *tree, const struct search *search)
{
	return tree && tree->oldest < search->before ? SL_MIN(tree->newest, search->before - 1) : 0;
}

static void find_latest(struct sl_interval *tree, struct search *search)
{
	bool left_first;

	if (promise(tree, search) <= search->best || tree->last <= search->at->start ||
	    (search->found && search->looks >= search->enough))
		return;
	search->looks++;
	left_first = promise(tree->left, search) > promise(tree->right, search);
	if (left_first)
		find_latest(tree->left, search);
	if (tree->start < search->at->end) {
		if (tree->end > search->at->start && tree->sequence < search->before &&
		    tree->sequence > search->best) {
			search->best = tree->sequence;
			search->found = tree;
		}
		find_latest(tree->right, search);
	}
	if (!left_first)
		find_latest(tree->left, search);
}

struct sl_interval *sl_intervals_latest(struct sl_intervals *set, const struct sl_interval *at,
                                        uint64_t after, uint64_t before, uint64_t enough)
{
	struct search search = {.at = at, .best = after, .before = before, .enough = enough};

	find_latest(set->root, &search);
	set->looks += search.looks;
	return search.found;
}
