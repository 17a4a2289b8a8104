/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history is explained by an order of its calls, as if they came one after the other. All states that the name may
 * have are kept, with the calls under way that have been done in each; a call that ends leaves those in which it was done.
 */
#include <errno.h>
#include <stdlib.h>

#include "blobs/store/history.h"
#include "core/core.h"
#include "lib/support.h"

enum { OPEN_MOST = 32 };

/* A state that the name may have, and which calls under way have been done: a bit for each place in `open`. */
struct config {
	uint64_t value; /* 0: it is not there */
	uint32_t done;
};

struct checker {
	struct config *configs;
	size_t count, room;
	const struct op *open[OPEN_MOST];
};

static void config_add(struct checker *c, struct config config)
{
	for (size_t i = 0; i < c->count; i++)
		if (c->configs[i].value == config.value && c->configs[i].done == config.done)
			return;
	if (c->count == c->room) {
		c->room = 2 * c->room + 64;
		c->configs = realloc(c->configs, c->room * sizeof(config));
		assert_non_null(c->configs);
	}
	c->configs[c->count++] = config;
}

/* A call may be done in that state: sets the state after it. */
static bool op_fits(const struct op *op, uint64_t *value)
{
	bool there = *value;

	switch (op->what) {
	case PUT:
	case REPLACE:
		if (op->ended && op->rc == -EEXIST)
			return there;
		if (op->what == PUT && there)
			return false;
		*value = op->value;
		return true;
	case EXCHANGE:
		if (*value != op->old)
			return op->ended && op->rc == -ESTALE;
		*value = op->value;
		return !op->ended || op->rc != -ESTALE;
	case GET:
	case AWAIT:
		if (!op->rc)
			return *value == op->value;
		/* A get without a wait says whether the name is there, and never that time is up. */
		return !there && (op->what == AWAIT || op->rc != -ETIMEDOUT);
	case DELETE_ID:
		there = *value == op->old;
		*value = there ? 0 : *value;
		return there == !op->rc;
	case DELETE:
		*value = 0;
		return there == !op->rc;
	case PIN:
		return there == !op->rc;
	default:
		return there == op->rc;
	}
}

/* Does each call that is under way in each state where it may be done. */
static void expand(struct checker *c)
{
	for (size_t i = 0; i < c->count; i++)
		for (unsigned k = 0; k < OPEN_MOST; k++) {
			struct config config = c->configs[i];

			if (!c->open[k] || config.done >> k & 1 ||
			    !op_fits(c->open[k], &config.value))
				continue;
			config.done |= UINT32_C(1) << k;
			config_add(c, config);
		}
}

/* Whether a call has surely been done when it ends; and whether it says anything. */
static bool is_sure(const struct op *op)
{
	return op->ended && op->rc != -ECONNRESET;
}

static bool says_something(const struct op *op)
{
	bool reads = op->what == GET || op->what == AWAIT || op->what >= EXISTS;

	if ((op->what == EXCHANGE || op->what == DELETE_ID) && (op->rc == -EAGAIN || !op->old))
		return false;
	return !reads || (op->ended && (op->what != AWAIT || op->rc != -ETIMEDOUT));
}

/* The call ends: only states in which it has been done are left. Returns false if none is. */
static bool end_op(struct checker *c, const struct op *op)
{
	size_t left = 0, count;
	unsigned k = 0;

	while (c->open[k] != op)
		k++;
	expand(c);
	count = c->count;
	c->count = 0;
	for (size_t i = 0; i < count; i++) {
		struct config config = c->configs[i];

		if (is_sure(op) && !(config.done >> k & 1))
			continue;
		config.done &= ~(UINT32_C(1) << k);
		config_add(c, config);
		left++;
	}
	c->open[k] = NULL;
	return left;
}

static void begin_op(struct checker *c, const struct op *op)
{
	unsigned k = 0;

	while (k < OPEN_MOST && c->open[k])
		k++;
	if (k == OPEN_MOST)
		fail_msg("more calls at once than can be looked at");
	c->open[k] = op;
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	/* Of two at the same time the beginning comes first. */
	return x->at < y->at ? -1 : x->at > y->at ? 1 : x->end - y->end;
}

const struct op *check_events(struct event *events, size_t count)
{
	struct checker c = {.count = 0};
	const struct op *bad = NULL;

	config_add(&c, (struct config){0, 0});
	qsort(events, count, sizeof(*events), by_time);
	for (size_t i = 0; !bad && i < count; i++)
		if (!events[i].end)
			begin_op(&c, events[i].op);
		else if (!end_op(&c, events[i].op))
			bad = events[i].op;
	free(c.configs);
	return bad;
}

size_t add_events(struct event *events, size_t count, const struct op *op)
{
	if (!says_something(op))
		return count;
	events[count++] = (struct event){op, op->begun, false};
	if (op->ended)
		events[count++] = (struct event){op, op->ended, true};
	return count;
}

TEST(wrong_histories_are_found)
{
	static const struct {
		bool right;
		struct op ops[5];
	} histories[] = {
		{true,
	         {{PUT, 0, 0, 1, 1, 2},
	          {GET, 0, 0, 1, 3, 4},
	          {DELETE, 0, 0, 0, 5, 6},
	          {GET, 0, -ENOENT, 0, 7, 8}}},
		/* An old value. */
		{false, {{PUT, 0, 0, 1, 1, 2}, {REPLACE, 0, 0, 2, 3, 4}, {GET, 0, 0, 1, 5, 6}}},
		{true, {{PUT, 0, 0, 1, 1, 2}, {REPLACE, 0, 0, 2, 3, 6}, {GET, 0, 0, 1, 4, 5}}},
		/* Two orders that exclude each other. */
		{false,
	         {{REPLACE, 0, 0, 1, 1, 9},
	          {REPLACE, 0, 0, 2, 1, 9},
	          {GET, 0, 0, 1, 2, 3},
	          {GET, 0, 0, 2, 4, 5},
	          {GET, 0, 0, 1, 6, 7}}},
		/* A lost one; one that was deleted twice. */
		{false, {{PUT, 0, 0, 1, 1, 2}, {GET, 0, -ENOENT, 0, 3, 4}}},
		{false, {{PUT, 0, 0, 1, 1, 2}, {DELETE, 0, 0, 0, 3, 4}, {DELETE, 0, 0, 0, 5, 6}}},
		{false,
	         {{PUT, 0, 0, 1, 1, 2}, {REPLACE, 0, 0, 2, 3, 4}, {DELETE_ID, 0, 0, 0, 5, 6, 1}}},
		/* A put that failed is not there later; one without an end may be. */
		{false,
	         {{PUT, 0, -ECONNRESET, 1, 1, 2},
	          {GET, 0, -ENOENT, 0, 3, 4},
	          {GET, 0, 0, 1, 5, 6}}},
		{true, {{PUT, 0, 0, 1, 1, 0}, {GET, 0, -ENOENT, 0, 3, 4}, {GET, 0, 0, 1, 5, 6}}},
		{false, {{PUT, 0, 0, 1, 1, 2}, {PUT, 0, 0, 2, 3, 4}}},
		/* Two that exchange the same, of which the history says that both have. */
		{false,
	         {{PUT, 0, 0, 1, 1, 2},
	          {EXCHANGE, 0, 0, 2, 3, 9, 1},
	          {EXCHANGE, 0, 0, 3, 3, 9, 1}}},
		{true,
	         {{PUT, 0, 0, 1, 1, 2},
	          {EXCHANGE, 0, 0, 2, 3, 9, 1},
	          {EXCHANGE, 0, -ESTALE, 3, 3, 9, 1},
	          {GET, 0, 0, 2, 10, 11}}},
		/* One that found another value where none was. */
		{false, {{PUT, 0, 0, 1, 1, 2}, {EXCHANGE, 0, -ESTALE, 3, 3, 4, 1}}},
		{true, {{PUT, 0, 0, 1, 1, 2}, {PUT, 0, -EEXIST, 2, 3, 4}, {EXISTS, 0, 1, 0, 5, 6}}},
	};

	for (size_t i = 0; i < COUNT_OF(histories); i++) {
		struct event events[10];
		size_t count = 0;

		for (unsigned k = 0; k < 5 && histories[i].ops[k].begun != 0; k++)
			count = add_events(events, count, &histories[i].ops[k]);
		if (!check_events(events, count) != histories[i].right)
			fail_msg("history %zu is taken for %s", i,
			         histories[i].right ? "wrong" : "right");
	}
}
