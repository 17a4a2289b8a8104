/* SPDX-License-Identifier: Apache-2.0 */
/* The order of overlapping operations against a model that compares every pair. */
#include <errno.h>

#include "io/io_internal.h"
#include "lib/unit.h"

#define OPERATIONS 60
#define STEPS      20000
#define QUEUED     10000

enum phase { ABSENT, WAITING, RUNNING };

static struct sl_object object;
static struct sluice_op operations[OPERATIONS];
static struct sl_range spans[OPERATIONS][3];
static enum phase phases[OPERATIONS];

static bool spans_overlap(const struct sl_range *a, const struct sl_range *b)
{
	return a->interval.start < b->interval.end && b->interval.start < a->interval.end;
}

static bool overlap(const struct sluice_op *a, const struct sluice_op *b)
{
	for (size_t i = 0; i < a->order.count; i++)
		for (size_t j = 0; j < b->order.count; j++)
			if (spans_overlap(&a->order.ranges[i], &b->order.ranges[j]))
				return true;
	return false;
}

static bool overlaps_itself(const struct sluice_op *op)
{
	for (size_t i = 0; i < op->order.count; i++)
		for (size_t j = 0; j < i; j++)
			if (op->order.effect == SL_WRITES &&
			    spans_overlap(&op->order.ranges[i], &op->order.ranges[j]))
				return true;
	return false;
}

/* Whether b, the later one, comes after a. */
static bool conflict(const struct sluice_op *a, const struct sluice_op *b)
{
	if (a->order.effect == SL_READS && b->order.effect == SL_READS)
		return false;
	if (a->order.effect == SL_BARRIER && b->order.effect != SL_WRITES)
		return false;
	return overlap(a, b);
}

/* What all that were there before op are to it. */
struct before {
	bool holds, late, same_stream;
};

static struct before look(const struct sluice_op *op)
{
	struct before before = {0};

	for (int i = 0; i < OPERATIONS; i++) {
		const struct sluice_op *earlier = &operations[i];

		if (phases[i] == ABSENT || earlier == op ||
		    earlier->order.sequence > op->order.sequence || !conflict(earlier, op))
			continue;
		if (op->order.stream && op->order.stream == earlier->order.stream) {
			before.same_stream = true;
			continue;
		}
		before.holds = true;
		before.late |= earlier->order.blocks_streams;
	}
	return before;
}

static void check_all(void)
{
	for (int i = 0; i < OPERATIONS; i++)
		if (phases[i] != ABSENT)
			assert_int_equal(phases[i], look(&operations[i]).holds ? WAITING : RUNNING);
}

/* Host order, or stream order, whole or not yet, or what a stream does by itself. */
static void choose_kind(struct sluice_op *op, uint64_t *seed)
{
	unsigned kind = unit_random(seed) % 8;

	op->on_stream = kind < 4;
	op->order.blocks_streams = kind == 0 || kind == 1 || kind == 4;
	if (kind < 1)
		op->order.stream = (sluice_stream)(uintptr_t)(64 + unit_random(seed) % 2);
}

static void choose_spans(struct sluice_op *op, struct sl_range *of, uint64_t *seed)
{
	op->order.ranges = of;
	op->order.count = 1 + unit_random(seed) % 3;
	op->order.effect = unit_random(seed) % SL_EFFECTS;
	for (size_t j = 0; j < op->order.count; j++) {
		of[j].interval.start = j * 500 + unit_random(seed) % 440;
		of[j].interval.end = of[j].interval.start + 1 + unit_random(seed) % 70;
		of[j].op = op;
	}
	/* A sync, or a truncate. */
	if (unit_random(seed) % 8 == 0) {
		op->order.count = 1;
		of[0].interval.start = 0;
		of[0].interval.end = UINT64_MAX;
	}
}

static void enter(int i, uint64_t *seed)
{
	struct sluice_op *op = &operations[i];
	struct before before;
	int rc, expected;
	bool late;

	memset(op, 0, sizeof(*op));
	op->order.object = &object;
	choose_kind(op, seed);
	choose_spans(op, spans[i], seed);
	op->order.sequence = UINT64_MAX;
	before = look(op);
	late = op->order.blocks_streams;
	if (overlaps_itself(op))
		expected = -EINVAL;
	else if ((op->on_stream && before.late) || (op->order.stream && before.holds))
		expected = -EBUSY;
	else
		expected = before.holds;
	rc = sl_order_enter(op);
	assert_int_equal(rc, expected);
	assert_int_equal(op->order.blocks_streams, late || (rc >= 0 && before.late));
	if (rc < 0)
		return;
	if (!rc)
		assert_int_equal(op->order.follows, before.same_stream);
	phases[i] = rc ? WAITING : RUNNING;
}

static void leave(int i)
{
	struct sl_list ready, *link;

	sl_list_init(&ready);
	phases[i] = ABSENT;
	sl_order_leave(&operations[i], &ready);
	while ((link = sl_list_take(&ready))) {
		struct sluice_op *op = SL_CONTAINER(link, struct sluice_op, order.link);

		assert_int_equal(phases[op - operations], WAITING);
		phases[op - operations] = RUNNING;
	}
}

static void check_empty(void)
{
	for (int i = 0; i < SL_EFFECTS; i++) {
		assert_null(object.locked.ranges[i][0].root);
		assert_null(object.locked.ranges[i][1].root);
	}
	sl_object_destroy(&object);
}

static void new_object(void)
{
	memset(&object, 0, sizeof(object));
	sl_object_init(&object, strdup("model"));
}

static void step(uint64_t *seed)
{
	int i = unit_random(seed) % OPERATIONS;
	struct sluice_op *op = &operations[i];

	if (phases[i] == ABSENT) {
		enter(i, seed);
	} else if (op->on_stream && op->order.blocks_streams && unit_random(seed) % 2) {
		sl_order_enqueued(op);
		assert_false(op->order.blocks_streams);
	} else if (phases[i] == RUNNING) {
		leave(i);
	} else if (unit_random(seed) % 4 == 0) {
		/* Cancelled while it waits; others come and go before it leaves. */
		assert_true(sl_order_withdraw(op));
		assert_false(sl_order_withdraw(op));
		for (int j = 0; j < OPERATIONS; j++)
			if (phases[j] == RUNNING && unit_random(seed) % 8 == 0)
				leave(j);
		leave(i);
	}
}

TEST(an_operation_starts_exactly_when_no_earlier_one_conflicts)
{
	uint64_t seed = unit_seed();

	new_object();
	for (int done = 0; done < STEPS; done++) {
		step(&seed);
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
	check_empty();
}

/* ------------------------------------------------------------------------------------- cost */

struct queue {
	const char *name;
	void (*choose)(struct sluice_op *op, size_t i, uint64_t *seed);
	bool withdrawn; /* all are cancelled, in any order, while the first one runs */
};

static void one_span(struct sluice_op *op, enum sl_effect effect, uint64_t start, uint64_t length)
{
	op->order.effect = effect;
	op->order.count = 1;
	op->order.ranges[0].interval.start = start;
	op->order.ranges[0].interval.end = start + length;
}

static void same_bytes(struct sluice_op *op, size_t i, uint64_t *seed)
{
	(void)i, (void)seed;
	one_span(op, SL_WRITES, 0, 512);
}

static void other_bytes(struct sluice_op *op, size_t i, uint64_t *seed)
{
	(void)seed;
	one_span(op, SL_WRITES, i * 512, 512);
}

static void writes_and_reads(struct sluice_op *op, size_t i, uint64_t *seed)
{
	(void)seed;
	one_span(op, i % 3 ? SL_READS : SL_WRITES, 0, 512);
}

static void mixed_sizes(struct sluice_op *op, size_t i, uint64_t *seed)
{
	uint64_t start = unit_random(seed) % 4096;

	(void)i;
	one_span(op, unit_random(seed) % 4 ? SL_WRITES : SL_READS, start,
	         1 + unit_random(seed) % (8192 - start));
}

static void mixed_with_barriers(struct sluice_op *op, size_t i, uint64_t *seed)
{
	if (i % 100 == 99)
		one_span(op, i % 200 == 99 ? SL_BARRIER : SL_WRITES, 0, UINT64_MAX - 1);
	else
		mixed_sizes(op, i, seed);
}

static void vectors(struct sluice_op *op, size_t i, uint64_t *seed)
{
	(void)i;
	op->order.effect = unit_random(seed) % 2 ? SL_WRITES : SL_READS;
	op->order.count = 3;
	for (size_t j = 0; j < 3; j++) {
		op->order.ranges[j].interval.start = j * 1000 + unit_random(seed) % 400;
		op->order.ranges[j].interval.end = j * 1000 + 401 + unit_random(seed) % 500;
	}
}

static uint64_t looks(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < SL_EFFECTS; i++)
		sum += object.locked.ranges[i][0].looks + object.locked.ranges[i][1].looks;
	return sum;
}

static struct sluice_op **running;
static size_t running_count;

static void leave_queue(struct sluice_op *op)
{
	struct sl_list ready, *link;

	sl_list_init(&ready);
	sl_order_leave(op, &ready);
	while ((link = sl_list_take(&ready)))
		running[running_count++] = SL_CONTAINER(link, struct sluice_op, order.link);
}

static void drain_in_any_order(uint64_t *seed)
{
	while (running_count) {
		size_t pick = unit_random(seed) % running_count;
		struct sluice_op *op = running[pick];

		running[pick] = running[--running_count];
		leave_queue(op);
	}
}

TEST(a_long_queue_costs_a_few_looks_for_each_operation)
{
	static const struct queue queues[] = {
		{"other bytes", other_bytes, false},
		{"the same bytes", same_bytes, false},
		{"the same bytes, cancelled", same_bytes, true},
		{"writes and reads", writes_and_reads, false},
		{"writes and reads, cancelled", writes_and_reads, true},
		{"mixed sizes", mixed_sizes, false},
		{"mixed sizes, cancelled", mixed_sizes, true},
		{"mixed with barriers", mixed_with_barriers, false},
		{"mixed with barriers, cancelled", mixed_with_barriers, true},
		{"vectors", vectors, false},
		{"vectors, cancelled", vectors, true},
	};
	struct sluice_op *ops = calloc(QUEUED, sizeof(*ops));
	struct sl_range *of = calloc(QUEUED, 3 * sizeof(*of));
	uint64_t seed = unit_seed();

	running = calloc(QUEUED, sizeof(struct sluice_op *));
	assert_true(ops && of && running);
	for (size_t q = 0; q < sizeof(queues) / sizeof(queues[0]); q++) {
		double entered, left;

		new_object();
		memset(ops, 0, QUEUED * sizeof(*ops));
		for (size_t i = 0; i < QUEUED; i++) {
			ops[i].order.object = &object;
			ops[i].order.ranges = &of[3 * i];
			queues[q].choose(&ops[i], i, &seed);
			for (size_t j = 0; j < ops[i].order.count; j++)
				ops[i].order.ranges[j].op = &ops[i];
			if (!sl_order_enter(&ops[i]))
				running[running_count++] = &ops[i];
		}
		entered = (double)looks() / QUEUED;
		for (size_t i = 0; queues[q].withdrawn && i < QUEUED; i++) {
			size_t pick = (i * 7919 + 1) % QUEUED;

			if (sl_order_withdraw(&ops[pick]))
				leave_queue(&ops[pick]);
		}
		drain_in_any_order(&seed);
		left = (double)looks() / QUEUED - entered;
		printf("%s: %.1f looks each to enter, %.1f to leave\n", queues[q].name, entered,
		       left);
		assert_true(entered < 150 && left < 150);
		check_empty();
	}
	free(running);
	free(of);
	free(ops);
}

TEST(a_write_that_overlaps_itself_is_refused_and_leaves_nothing)
{
	struct sluice_op op = {0};
	struct sl_range two[2] = {{{.start = 0, .end = 10}, &op}, {{.start = 9, .end = 20}, &op}};

	new_object();
	op.order.object = &object;
	op.order.ranges = two;
	op.order.count = 2;
	op.order.effect = SL_WRITES;
	assert_int_equal(sl_order_enter(&op), -EINVAL);
	assert_null(object.locked.ranges[SL_WRITES][0].root);
	op.order.effect = SL_READS;
	assert_int_equal(sl_order_enter(&op), 0);
	sl_object_destroy(&object);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
