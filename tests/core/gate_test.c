/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "core/core.h"
#include "lib/unit.h"

#define THREADS 8
#define TURNS   20000

static struct sl_gate gate;
static _Atomic unsigned turn, too_many;

static unsigned waiting(void)
{
	return atomic_load(&gate.last) - atomic_load(&gate.served);
}

struct visitor {
	pthread_t thread;
	uint64_t count;
	unsigned turn; /* in which it was let in, from 1 on */
};

static void *visit(void *argument)
{
	struct visitor *v = argument;

	sl_gate_take(&gate, v->count, true);
	v->turn = atomic_fetch_add(&turn, 1) + 1;
	return NULL;
}

static void stand_in_line(struct visitor *v, uint64_t count, unsigned line)
{
	v->count = count;
	v->turn = 0;
	assert_int_equal(pthread_create(&v->thread, NULL, visit, v), 0);
	while (waiting() < line)
		usleep(100);
}

static void begin(uint64_t most)
{
	memset(&gate, 0, sizeof(gate));
	atomic_init(&gate.most, most);
	atomic_store(&turn, 0);
}

TEST(waiters_are_let_in_in_order)
{
	struct visitor large, small;

	begin(8);
	assert_true(sl_gate_take(&gate, 5, false));
	stand_in_line(&large, 6, 1);
	/* It fits, and so does the next; they are behind the one that does not. */
	assert_false(sl_gate_take(&gate, 1, false));
	stand_in_line(&small, 3, 2);
	sl_gate_give(&gate, 2);
	assert_int_equal(waiting(), 2);
	sl_gate_give(&gate, 3);
	pthread_join(large.thread, NULL);
	assert_int_equal(waiting(), 1);
	sl_gate_give(&gate, 6);
	pthread_join(small.thread, NULL);
	assert_int_equal(large.turn, 1);
	assert_int_equal(small.turn, 2);
	sl_gate_give(&gate, 3);
	assert_int_equal(atomic_load(&gate.taken), 0);
}

TEST(with_nothing_taken_the_largest_goes)
{
	struct visitor v;

	begin(8);
	assert_true(sl_gate_take(&gate, 100, false));
	assert_false(sl_gate_take(&gate, 1, false));
	stand_in_line(&v, 100, 1);
	sl_gate_give(&gate, 100);
	pthread_join(v.thread, NULL);
	sl_gate_give(&gate, 100);
	sl_gate_pass(&gate, 9);
	assert_false(sl_gate_take(&gate, 1, false));
	sl_gate_give(&gate, 9);
	assert_true(sl_gate_take(&gate, 1, false));
}

TEST(an_open_gate_lets_everybody_go)
{
	struct visitor v[3];

	begin(8);
	assert_true(sl_gate_take(&gate, 8, false));
	for (unsigned i = 0; i < 3; i++)
		stand_in_line(&v[i], 8, i + 1);
	sl_gate_open(&gate);
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(v[i].thread, NULL);
	}
	assert_true(sl_gate_take(&gate, 1000, false));
}

static void *come_and_go(void *argument)
{
	uint64_t count = *(uint64_t *)argument;

	for (int i = 0; i < TURNS; i++) {
		sl_gate_take(&gate, count, true);
		if (atomic_load(&gate.taken) > 8)
			atomic_fetch_add(&too_many, 1);
		sl_gate_give(&gate, count);
	}
	return NULL;
}

/* No wake is lost, and no more is taken than there is. */
TEST(many_threads_share_a_gate)
{
	pthread_t threads[THREADS];
	uint64_t counts[THREADS];

	begin(8);
	for (unsigned i = 0; i < THREADS; i++) {
		counts[i] = i + 1;
		assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &counts[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&too_many), 0);
	assert_int_equal(atomic_load(&gate.taken), 0);
	assert_int_equal(waiting(), 0);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
