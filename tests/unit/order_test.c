/* SPDX-License-Identifier: Apache-2.0 */
/* The order of overlapping operations against a model that compares every pair. */
#include <errno.h>

#include "io/io.h"
#include "unit.h"

#define OPERATIONS 60
#define STEPS      20000

enum phase { ABSENT, WAITING, RUNNING };

static struct sl_object object;
static struct sluice_op operations[OPERATIONS];
static struct sl_span spans[OPERATIONS][2];
static enum phase phases[OPERATIONS];

/* Whether b, the later one, has to wait for a. */
static bool conflict(const struct sluice_op *a, const struct sluice_op *b)
{
	if (a->order.effect == SL_READS && b->order.effect == SL_READS)
		return false;
	if (a->order.effect == SL_BARRIER && b->order.effect != SL_WRITES)
		return false;
	for (size_t i = 0; i < a->order.count; i++)
		for (size_t j = 0; j < b->order.count; j++)
			if (a->order.spans[i].interval.start < b->order.spans[j].interval.end &&
			    b->order.spans[j].interval.start < a->order.spans[i].interval.end)
				return true;
	return false;
}

/* Whether an earlier operation that is still there conflicts. */
static bool must_wait(const struct sluice_op *op)
{
	for (int i = 0; i < OPERATIONS; i++)
		if (phases[i] != ABSENT && &operations[i] != op &&
		    operations[i].order.sequence < op->order.sequence &&
		    conflict(&operations[i], op))
			return true;
	return false;
}

static void check_all(void)
{
	for (int i = 0; i < OPERATIONS; i++)
		if (phases[i] != ABSENT)
			assert_int_equal(phases[i], must_wait(&operations[i]) ? WAITING : RUNNING);
}

static void enter(int i, uint64_t *seed)
{
	struct sluice_op *op = &operations[i];
	int rc;

	memset(op, 0, sizeof(*op));
	op->order.object = &object;
	op->order.spans = spans[i];
	op->order.count = 1 + unit_random(seed) % 2;
	op->order.effect = unit_random(seed) % SL_EFFECTS;
	for (size_t j = 0; j < op->order.count; j++) {
		/* The two of one operation never overlap. */
		spans[i][j].interval.start = j * 500 + unit_random(seed) % 400;
		spans[i][j].interval.end = spans[i][j].interval.start + 1 + unit_random(seed) % 60;
		spans[i][j].op = op;
	}
	rc = sl_order_enter(op);
	assert_in_range(rc, 0, 1);
	phases[i] = rc ? WAITING : RUNNING;
}

static void leave(int i)
{
	struct sl_list ready, *link;

	sl_list_init(&ready);
	phases[i] = ABSENT;
	sl_order_leave(&operations[i], &ready);
	while ((link = sl_list_take(&ready))) {
		struct sluice_op *op = SL_CONTAINER(link, struct sluice_op, order.ready);

		assert_int_equal(phases[op - operations], WAITING);
		phases[op - operations] = RUNNING;
	}
}

static void an_operation_starts_exactly_when_no_earlier_one_conflicts(void **state)
{
	uint64_t seed = unit_seed();

	(void)state;
	sl_object_init(&object, strdup("model"));
	for (int step = 0; step < STEPS; step++) {
		int i = unit_random(&seed) % OPERATIONS;

		if (phases[i] == ABSENT) {
			enter(i, &seed);
		} else if (phases[i] == RUNNING) {
			leave(i);
		} else if (unit_random(&seed) % 4 == 0) {
			/* Cancelled while it waits. */
			assert_true(sl_order_withdraw(&operations[i]));
			assert_false(sl_order_withdraw(&operations[i]));
			leave(i);
		}
		check_all();
	}
	for (int left = 1; left;) {
		left = 0;
		for (int i = 0; i < OPERATIONS; i++) {
			if (phases[i] == RUNNING)
				leave(i);
			left += phases[i] != ABSENT;
		}
	}
	for (int i = 0; i < SL_EFFECTS; i++)
		assert_null(object.locked.spans[i].root);
	sl_object_destroy(&object);
}

static void a_write_that_overlaps_itself_is_refused_and_leaves_nothing(void **state)
{
	struct sluice_op op = {0};
	struct sl_span two[2] = {{{.start = 0, .end = 10}, &op}, {{.start = 9, .end = 20}, &op}};

	(void)state;
	memset(&object, 0, sizeof(object));
	sl_object_init(&object, strdup("model"));
	op.order.object = &object;
	op.order.spans = two;
	op.order.count = 2;
	op.order.effect = SL_WRITES;
	assert_int_equal(sl_order_enter(&op), -EINVAL);
	assert_null(object.locked.spans[SL_WRITES].root);
	op.order.effect = SL_READS;
	assert_int_equal(sl_order_enter(&op), 0);
	sl_object_destroy(&object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_operation_starts_exactly_when_no_earlier_one_conflicts),
		cmocka_unit_test(a_write_that_overlaps_itself_is_refused_and_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
