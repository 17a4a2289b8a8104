/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory and the words of slots, on the emulated device. */
#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/unit.h"
#include "staging/staging_internal.h"

/* ------------------------------------------------------------------------------------- buddy */

#define BLOCKS 1000
#define TAKEN  200

struct taken {
	size_t block, count;
};

static void mark(bool *used, const struct taken *t, bool to)
{
	for (size_t i = t->block; i < t->block + t->count; i++) {
		assert_int_equal(used[i], !to);
		used[i] = to;
	}
}

TEST(no_two_ranges_overlap_and_all_come_together_again)
{
	static bool used[BLOCKS];
	struct taken taken[TAKEN];
	struct sl_buddy buddy;
	char *base = (char *)((uintptr_t)1 << 40);
	uint64_t seed = unit_seed();
	size_t count = 0;

	assert_int_equal(sl_buddy_init(&buddy, base, BLOCKS * SL_SLOT_LEAST + 100), 0);
	assert_null(sl_buddy_take(&buddy, 1));
	sl_buddy_open(&buddy, 77 * SL_SLOT_LEAST);
	assert_null(sl_buddy_take(&buddy, 65 * SL_SLOT_LEAST));
	sl_buddy_open(&buddy, SIZE_MAX);
	for (unsigned round = 0; round < 100000; round++) {
		size_t length = 1 + unit_random(&seed) % (SL_SLOT_LEAST << unit_random(&seed) % 9);
		struct taken t = {0, 1};
		char *got;

		if (count == TAKEN || (count && unit_random(&seed) % 2)) {
			size_t i = unit_random(&seed) % count;

			t = taken[i];
			taken[i] = taken[--count];
			mark(used, &t, false);
			sl_buddy_give(&buddy, base + t.block * SL_SLOT_LEAST,
			              t.count * SL_SLOT_LEAST);
			continue;
		}
		got = sl_buddy_take(&buddy, length);
		if (!got)
			continue;
		while (t.count * SL_SLOT_LEAST < length)
			t.count *= 2;
		t.block = (size_t)(got - base) / SL_SLOT_LEAST;
		assert_int_equal((got - base) % (ptrdiff_t)(t.count * SL_SLOT_LEAST), 0);
		assert_true(t.block + t.count <= BLOCKS);
		mark(used, &t, true);
		taken[count++] = t;
	}
	while (count--)
		sl_buddy_give(&buddy, base + taken[count].block * SL_SLOT_LEAST,
		              taken[count].count * SL_SLOT_LEAST);
	/* 512 blocks are one range again, and there is no second one. */
	assert_non_null(sl_buddy_take(&buddy, 512 * SL_SLOT_LEAST));
	assert_null(sl_buddy_take(&buddy, 512 * SL_SLOT_LEAST));
	assert_non_null(sl_buddy_take(&buddy, 256 * SL_SLOT_LEAST));
	sl_buddy_destroy(&buddy);
}

/* ------------------------------------------------------------------------------ slots, rings */

static struct sl_staging *start(void)
{
	struct sl_settings settings = {.staging_bytes = (1 << 20) + (64 << 10)};
	struct sl_staging *staging = NULL;

	assert_int_equal(sl_staging_start(sl_device_find(0), &settings, NULL, NULL, &staging), 0);
	assert_int_equal(sl_staging_pin(staging, SL_HALF_STREAM, 0), 0);
	return staging;
}

static void stop_staging(struct sl_staging *staging)
{
	sl_staging_stop(staging);
	sl_staging_free(staging);
}

static unsigned grants;
static void count_grant(struct sl_slot_waiter *waiter)
{
	(void)waiter;
	grants++;
}

static struct sl_slot_waiter waiter_for(unsigned count, size_t length, struct sl_slot *slots)
{
	return (struct sl_slot_waiter){.half = SL_HALF_STREAM,
	                               .words = true,
	                               .count = count,
	                               .length = length,
	                               .slots = slots,
	                               .granted = count_grant};
}

TEST(slots_are_given_first_come_first_served)
{
	struct sl_staging *staging = start();
	size_t most = sl_staging_largest(staging, SL_HALF_STREAM);
	struct sl_slot a[1], b[1], c[1];
	struct sl_slot_waiter first = waiter_for(1, most, a), large = waiter_for(1, most, b),
			      small = waiter_for(1, SL_SLOT_LEAST, c);

	grants = 0;
	assert_true(sl_slots_take(staging, &first, true));
	assert_false(sl_slots_take(staging, &large, true));
	/* There is room for it, but not before the one that asked before. */
	assert_false(sl_slots_take(staging, &small, false));
	assert_false(sl_slots_take(staging, &small, true));
	assert_true(sl_slots_withdraw(staging, &large));
	assert_int_equal(grants, 1);
	assert_false(sl_slots_withdraw(staging, &small));
	sl_slots_give(staging, SL_HALF_STREAM, c, 1);
	assert_false(sl_slots_take(staging, &large, true));
	sl_slots_give(staging, SL_HALF_STREAM, a, 1);
	assert_int_equal(grants, 2);
	sl_slots_give(staging, SL_HALF_STREAM, b, 1);
	stop_staging(staging);
}

/* The device's side of a turn. */
static void write_word(const struct sl_ring *ring, uint64_t chunk)
{
	struct sl_command command;

	sl_ring_write(ring, chunk, &command);
	atomic_store(command.word.at, command.word.value);
}

TEST(turns_go_on_across_the_wrap_in_both_directions)
{
	struct sl_staging *staging = start();
	struct sl_slot slots[3];
	struct sl_command command;

	/* They begin at 0xFFFFFFF0, and the memory of the slots is the same each time. */
	for (unsigned round = 0; round < 20; round++) {
		struct sl_slot_waiter waiter = waiter_for(3, SL_SLOT_LEAST, slots);
		struct sl_ring ring = {
			.staging = staging, .write = round % 2, .count = 3, .slots = slots};

		assert_true(sl_slots_take(staging, &waiter, true));
		sl_ring_enter(&ring, 10);
		for (uint64_t chunk = 0; chunk < 10; chunk++) {
			assert_int_equal(sl_ring_ready(&ring, chunk), !ring.write);
			assert_int_equal(sl_ring_await(&ring, chunk, &command), !ring.write);
			if (!ring.write)
				sl_ring_store(&ring, chunk);
			assert_false(sl_ring_await(&ring, chunk, &command));
			assert_int_equal(sl_ring_passed(&ring), chunk);
			write_word(&ring, chunk);
			assert_true(sl_ring_ready(&ring, chunk));
			if (ring.write) {
				/* The next turn of this slot waits until this one is stored. */
				assert_true(sl_ring_await(&ring, chunk + 3, &command));
				sl_ring_store(&ring, chunk);
			}
		}
		assert_true(sl_ring_rests(&ring));
		assert_false(sl_ring_ready(&ring, 10)); /* it was not entered */
		sl_slots_give(staging, SL_HALF_STREAM, slots, 3);
	}
	stop_staging(staging);
}

static void stop_ring(struct sl_ring *ring)
{
	for (unsigned i = 0; i < ring->count; i++)
		sl_ring_stop(ring, i);
}

TEST(a_stopped_ring_holds_up_nothing_and_its_slots_are_good_again)
{
	struct sl_staging *staging = start();
	struct sl_slot slots[2];
	struct sl_command command;
	uint64_t enqueued;

	for (unsigned round = 0; round < 10; round++) {
		struct sl_slot_waiter waiter = waiter_for(2, SL_SLOT_LEAST, slots);
		struct sl_ring ring = {
			.staging = staging, .write = round % 2, .count = 2, .slots = slots};

		assert_true(sl_slots_take(staging, &waiter, true));
		sl_ring_enter(&ring, 7);
		enqueued = 7;
		if (round % 3) {
			enqueued = 4;
			/* Only four of them were enqueued. */
			if (round % 3 == 2)
				stop_ring(&ring);
			sl_ring_retreat(&ring, 4);
		}
		stop_ring(&ring);
		for (uint64_t chunk = 0; chunk < enqueued; chunk++) {
			assert_false(sl_ring_await(&ring, chunk, &command));
			assert_false(sl_ring_rests(&ring));
			write_word(&ring, chunk);
		}
		assert_true(sl_ring_rests(&ring));
		sl_slots_give(staging, SL_HALF_STREAM, slots, 2);
	}
	stop_staging(staging);
}

/* ------------------------------------------------------------------------------------- copier */

/* A job of so many copies of a byte each; one of none holds its copier up until it is released. */
struct bytes_job {
	struct sl_copy_job job;
	char *to;
	const char *from;
	unsigned left;
	_Atomic bool released, done;
};

static bool bytes_next(struct sl_copy_job *job, struct sl_command *out)
{
	struct bytes_job *bytes = SL_CONTAINER(job, struct bytes_job, job);

	if (!bytes->left) {
		while (!atomic_load(&bytes->released))
			sched_yield();
		return false;
	}
	bytes->left--;
	*out = (struct sl_command){SL_COPY, .copy = {bytes->to++, bytes->from++, 1}};
	return true;
}

static void bytes_done(struct sl_copy_job *job, int error)
{
	assert_int_equal(error, 0);
	atomic_store(&SL_CONTAINER(job, struct bytes_job, job)->done, true);
}

TEST(a_round_has_room_for_jobs_of_the_most_copies)
{
	enum { JOBS = 3, MOST = SL_JOB_COPIES_MOST, BYTES = 2 * MOST };
	struct sl_staging *staging = start();
	struct bytes_job jobs[JOBS] = {{.left = 0}, {.left = MOST}, {.left = MOST}};
	char *memory, held[BYTES];

	assert_int_equal(sluice_device_alloc(0, BYTES, (void **)&memory), 0);
	for (unsigned i = 0; i < BYTES; i++)
		staging->memory[i] = (char)(i * 7);
	for (unsigned i = 0; i < JOBS; i++) {
		jobs[i].job = (struct sl_copy_job){
			.to_device = true, .next = bytes_next, .done = bytes_done};
		jobs[i].to = memory + (i == 2) * MOST;
		jobs[i].from = staging->memory + (i == 2) * MOST;
		atomic_store(&jobs[i].released, i > 0);
		sl_copier_submit(staging, &jobs[i].job);
	}
	atomic_store(&jobs[0].released, true);
	for (unsigned i = 0; i < JOBS; i++)
		while (!atomic_load(&jobs[i].done))
			sched_yield();
	assert_int_equal(sluice_copy(held, memory, BYTES), 0);
	assert_memory_equal(held, staging->memory, BYTES);
	assert_int_equal(sluice_device_free(memory), 0);
	stop_staging(staging);
}

/* ------------------------------------------------------------------------------------- memory */

#define POPULATE 23 /* MADV_POPULATE_WRITE */

static bool kernel_is_old, first_waits;
static _Atomic unsigned populated, helped;
static pthread_t first;

/* The kernel's. The thread that starts the staging waits until another thread helps it, for a minute at most. */
int __real_madvise(void *memory, size_t length, int advice);
int __wrap_madvise(void *memory, size_t length, int advice);
int __wrap_madvise(void *memory, size_t length, int advice)
{
	struct timespec moment = {0, 1000000};

	if (advice != POPULATE)
		return __real_madvise(memory, length, advice);
	populated++;
	helped += !pthread_equal(first, pthread_self());
	for (int i = 0; i < 60000 && first_waits && !helped; i++)
		nanosleep(&moment, NULL);
	errno = EINVAL;
	return kernel_is_old ? -1 : __real_madvise(memory, length, advice);
}

static size_t pages_missing(const char *memory, size_t length)
{
	size_t pages = sl_whole_pages(length) / sl_page_size(), missing = 0;
	unsigned char *there = malloc(pages);

	assert_int_equal(mincore((void *)memory, length, there), 0);
	for (size_t i = 0; i < pages; i++)
		missing += !(there[i] & 1);
	free(there);
	return missing;
}

/* On one processor, and so on one node. */
static void stay_here(cpu_set_t *before)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	assert_int_equal(sched_getaffinity(0, sizeof(*before), before), 0);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
}

static void all_pages_are_there_with(unsigned workers, bool old)
{
	size_t length = (33 << 20) + 100;
	void *memory =
		mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sl_pool *pool = NULL;
	cpu_set_t before;

	stay_here(&before);
	first = pthread_self();
	first_waits = workers > 1;
	kernel_is_old = old;
	populated = helped = 0;
	if (workers)
		assert_int_equal(sl_pool_start("help", workers, workers, &pool), 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(pages_missing(memory, length), sl_whole_pages(length) / sl_page_size());
	sl_staging_touch(memory, length, false, pool, workers);
	assert_int_equal(pages_missing(memory, length), 0);
	assert_in_range(populated, 1, 100);
	assert_int_equal(helped > 0, workers > 1);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	munmap(memory, length);
	sl_pool_stop(pool);
	sl_pool_free(pool);
}

TEST(pages_are_made_by_several_threads)
{
	all_pages_are_there_with(0, false);
	all_pages_are_there_with(1, false);
	all_pages_are_there_with(3, false);
	all_pages_are_there_with(3, true);
}

TEST(pages_are_made_before_a_driver_would_make_them)
{
	struct sl_settings settings = {.staging_bytes = 33 << 20};
	struct sl_device *device = sl_device_find(0);
	const struct sl_device_ops *plain = device->ops;
	struct sl_device_ops slow = *plain;
	struct sl_staging *staging = NULL;

	slow.makes_pages = true;
	device->ops = &slow;
	first = pthread_self();
	first_waits = kernel_is_old = false;
	assert_int_equal(sl_staging_start(device, &settings, NULL, NULL, &staging), 0);
	assert_int_equal(sl_staging_pin(staging, SL_HALF_STREAM, 0), 0);
	assert_int_equal(pages_missing(staging->memory, staging->length), 0);
	stop_staging(staging);
	device->ops = plain;
}

static void put_node(const char *root, int node, int core)
{
	char path[160];
	FILE *out;

	snprintf(path, sizeof(path), "mkdir -p %s/sys/devices/system/node/node%d", root, node);
	assert_int_equal(system(path), 0);
	snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/cpulist", root, node);
	out = fopen(path, "we");
	assert_non_null(out);
	fprintf(out, "%d\n", core);
	assert_int_equal(fclose(out), 0);
}

static struct {
	struct sl_task task;
	cpu_set_t cores;
	_Atomic uint32_t done;
} asked;

static void say_cores(struct sl_task *task)
{
	(void)task;
	sched_getaffinity(0, sizeof(asked.cores), &asked.cores);
	sl_flag_raise(&asked.done);
}

/* Returns on how many cores a worker may run. */
static int cores_of_a_worker(struct sl_pool *pool)
{
	asked.task.run = say_cores;
	atomic_store(&asked.done, 0);
	sl_pool_submit(pool, &asked.task);
	sl_flag_await(&asked.done);
	return CPU_COUNT(&asked.cores);
}

TEST(slots_and_workers_are_on_the_node_of_the_device)
{
	char root[] = "/tmp/sluice-nodes-XXXXXX", command[64];
	size_t length = 4 << 20;
	char *memory =
		mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int here = sched_getcpu(), policy = -1;
	unsigned long nodes[16] = {0};
	struct sl_pool *pool = NULL;
	cpu_set_t all;

	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_non_null(mkdtemp(root));
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(sl_pool_start("near", 1, 1, &pool), 0);
	put_node(root, 0, here);
	/* A machine with a node, and a device of which the kernel does not know it. */
	assert_false(sl_staging_near(root, 0, memory, length, pool));
	put_node(root, 1, here);
	put_node(root, 2, 1000);
	assert_false(sl_staging_near(root, -1, memory, length, pool));
	assert_int_equal(cores_of_a_worker(pool), CPU_COUNT(&all));

	assert_true(sl_staging_near(root, 0, memory, length, pool));
	assert_int_equal(cores_of_a_worker(pool), 1);
	assert_true(CPU_ISSET(here, &asked.cores));
	assert_int_equal(syscall(SYS_get_mempolicy, &policy, nodes, 1024, memory, MPOL_F_ADDR), 0);
	assert_int_equal(policy, MPOL_PREFERRED);
	assert_int_equal(nodes[0], 1);
	/* This machine may have no such node: the slots are where they are, and the workers go to both. */
	sl_staging_near(root, 1, memory, length, pool);
	assert_int_equal(cores_of_a_worker(pool), CPU_COUNT(&all));
	sl_pool_stop(pool);
	sl_pool_free(pool);

	/* None of its cores is of this process. */
	assert_int_equal(sl_pool_start("near", 1, 1, &pool), 0);
	sl_staging_near(root, 2, memory, length, pool);
	assert_int_equal(cores_of_a_worker(pool), CPU_COUNT(&all));
	sl_pool_stop(pool);
	sl_pool_free(pool);
	munmap(memory, length);
	snprintf(command, sizeof(command), "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

TEST(no_copy_crosses_the_border_of_what_was_pinned_at_once)
{
	struct sl_settings settings = {.staging_bytes = 256 << 20};
	struct sl_staging *staging = NULL;
	size_t step = 64 << 20;
	char *data;

	assert_int_equal(sl_staging_start(sl_device_find(0), &settings, NULL, NULL, &staging), 0);
	data = staging->memory;
	assert_int_equal(sl_staging_pin(staging, SL_HALF_HOST, step), 0);
	assert_true(staging->device->ops->registered(staging->device, data, step));
	assert_false(staging->device->ops->registered(staging->device, data + step, 1));
	assert_int_equal(sl_staging_pin(staging, SL_HALF_HOST, step + 1), 0);
	assert_true(staging->device->ops->registered(staging->device, data + step,
	                                             staging->length - step));
	assert_int_equal(sl_staging_together(staging, data + 1, step), step - 1);
	assert_int_equal(sl_staging_together(staging, data + 1, 7), 7);
	assert_int_equal(sl_staging_together(staging, data + step, step), step);
	stop_staging(staging);
}

/* As a read from a far server takes them: 256 parts of 256 KiB. */
TEST(a_half_of_256_mib_holds_the_slots_of_two_large_reads)
{
	enum { SLOTS = 8, LENGTH = 8 << 20 };
	struct sl_settings settings = {.staging_bytes = 256 << 20};
	struct sl_staging *staging = NULL;
	struct sl_slot slots[2][SLOTS];

	assert_int_equal(sl_staging_start(sl_device_find(0), &settings, NULL, NULL, &staging), 0);
	assert_int_equal(sl_staging_pin(staging, SL_HALF_STREAM, 0), 0);
	for (enum sl_half half = 0; half < SL_HALVES; half++) {
		for (int i = 0; i < 2; i++) {
			struct sl_slot_waiter waiter = waiter_for(SLOTS, LENGTH, slots[i]);

			waiter.half = half;
			waiter.words = half == SL_HALF_STREAM;
			assert_true(sl_slots_take(staging, &waiter, false));
		}
		for (int i = 0; i < 2; i++)
			sl_slots_give(staging, half, slots[i], SLOTS);
	}
	stop_staging(staging);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
