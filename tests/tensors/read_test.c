/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of tensors: into the host and devices, awaited and in stream order, from files of every kind. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/device_suite.h"
#include "lib/servers.h"
#include "tensors/load.h"

static void slice_by_chance(const struct sl_tensor *tensor, struct rng *r,
                            struct sluice_tensor_range ranges[2])
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t a = rng_below(r, tensor->shape[i] + 1);
		uint64_t b = rng_below(r, tensor->shape[i] + 1);

		ranges[i] = (struct sluice_tensor_range){SL_MIN(a, b), SL_MAX(a, b)};
	}
}

/* ------------------------------------------------------------------------------ what is read */

FIXTURE_TEST(all_tensors_are_read_into_the_memory_of_a_plan)
{
	struct sluice_tensors *table = tensors_make(f);
	sluice_tensor_plan *plan = plan_make(table, NULL, 0);

	for (int where = -1; where < GPU_DEVICES; where++) {
		sluice_tensor_memory *memory = memory_make(where, plan);

		assert_int_equal(
			(uintptr_t)sluice_tensor_memory_data(memory) % (where < 0 ? 4096 : 256), 0);
		load_finish(load_begin(plan, memory, NULL), plan);
		assert_plan(table, plan, NULL, memory);
		sluice_tensor_memory_free(memory);
	}
	tensors_free(table, plan, NULL);
}

static size_t extents_of(const sluice_tensor_plan *plan)
{
	struct sl_tensor_stretches found;
	size_t extents = 0;

	assert_ok(sl_tensor_stretches_make(plan, NULL, SL_PARTS_COPIED, &found));
	for (size_t i = 0; i < found.count; i++)
		extents += found.stretches[i].count;
	sl_tensor_stretches_clear(&found);
	return extents;
}

/* Addresses of the program: those of a file follow each other, or lie in allocations of their own. */
FIXTURE_TEST(tensors_that_follow_each_other_in_an_allocation_are_read_as_one)
{
	struct sluice_tensors *table = tensors_make(f);
	struct sluice_tensor_want wants[FILES * EACH] = {0};
	uint64_t bytes = 0;

	for (size_t i = 0; i < FILES * EACH; i++)
		bytes += table->tensors[i].bytes;
	for (unsigned apart = 0; apart < 2; apart++) {
		void *memory[FILES * EACH] = {NULL};
		sluice_tensor_plan *plan;
		char *next = NULL;

		for (size_t i = 0; i < FILES * EACH; i++) {
			if (apart || !i) {
				assert_ok(sluice_device_alloc(device_of(0), bytes, &memory[i]));
				next = memory[i];
			}
			wants[i] = (struct sluice_tensor_want){.tensor = i, .to = next};
			next += table->tensors[i].bytes;
		}
		plan = plan_make(table, wants, FILES * EACH);
		assert_int_equal(extents_of(plan), apart ? FILES * EACH : FILES);
		load_finish(load_begin(plan, NULL, NULL), plan);
		for (size_t i = 0; i < FILES * EACH; i++)
			assert_tensor(table, &wants[i], wants[i].to);
		sluice_tensor_plan_free(plan);
		for (size_t i = 0; i < FILES * EACH; i++)
			sluice_device_free(memory[i]);
	}
	tensors_free(table, NULL, NULL);
}

FIXTURE_TEST(a_kernel_behind_a_load_in_stream_order_sees_the_tensors)
{
	struct sluice_tensors *table = tensors_make(f);
	sluice_tensor_plan *plan = plan_make(table, NULL, 0);
	sluice_tensor_memory *memory = memory_make(0, plan);
	uint64_t n = sluice_tensor_plan_bytes(plan);
	struct sluice_tensor_item item = {sizeof(item)};
	sluice_stream stream = stream_new(0);
	sluice_tensor_load *load;
	void *taken;

	assert_ok(sluice_pinned_alloc(gpu_device(0), n, &taken));
	load = load_begin(plan, memory, stream);
	launch_take(0, stream, sluice_tensor_memory_data(memory), n, taken);
	stream_pass(0, stream);
	load_finish(load, plan);
	for (size_t i = 0; !sluice_tensor_plan_item(plan, i, &item); i++) {
		struct sluice_tensor_want whole = {item.tensor, NULL, NULL};

		assert_tensor(table, &whole, (char *)taken + item.memory_offset);
	}
	assert_ok(sluice_pinned_free(taken));
	stream_free(stream);
	tensors_free(table, plan, memory);
}

/* Slices into a memory and into destinations, on the host or a device. */
static void reads_slices(struct sluice_tensors *table, struct rng *r, int where,
                         sluice_stream stream)
{
	enum { WANTS = 12 };
	struct sluice_tensor_range ranges[WANTS][2];
	struct sluice_tensor_want wants[WANTS];
	sluice_tensor_memory *memory, *own[WANTS] = {NULL};
	sluice_tensor_plan *plan;

	for (size_t i = 0; i < WANTS; i++) {
		size_t which = rng_below(r, table->count);

		slice_by_chance(&table->tensors[which], r, ranges[i]);
		wants[i] = (struct sluice_tensor_want){which, ranges[i], NULL};
		if (rng_below(r, 2))
			continue;
		assert_ok(sluice_tensor_memory_new(device_of(where), 2000 * 700, &own[i]));
		wants[i].to = sluice_tensor_memory_data(own[i]);
	}
	plan = plan_make(table, wants, WANTS);
	memory = memory_make(where, plan);
	load_finish(load_begin(plan, memory, stream), plan);
	assert_plan(table, plan, wants, memory);
	for (size_t i = 0; i < WANTS; i++)
		sluice_tensor_memory_free(own[i]);
	sluice_tensor_memory_free(memory);
	sluice_tensor_plan_free(plan);
}

FIXTURE_TEST(slices_are_read_on_the_host_and_on_devices)
{
	struct sluice_tensors *table = tensors_make(f);
	sluice_stream stream = stream_new(0);
	struct rng r = rng_new(901);

	for (int round = 0; round < rounds_of(6); round++) {
		reads_slices(table, &r, -1, NULL);
		reads_slices(table, &r, round % 2, NULL);
		if (!row->on_device)
			reads_slices(table, &r, 0, stream);
	}
	stream_free(stream);
	table_free(table);
}

FIXTURE_TEST(slices_and_whole_tensors_of_several_devices_are_right)
{
	enum { WANTS = 40 };
	struct sluice_tensors *table = tensors_make(f);
	struct rng r = rng_new(902);

	for (int round = 0; round < rounds_of(6); round++) {
		struct sluice_tensor_range ranges[WANTS][2];
		struct sluice_tensor_want wants[WANTS];
		sluice_tensor_memory *own[WANTS];
		sluice_tensor_plan *plan;

		for (size_t i = 0; i < WANTS; i++) {
			size_t which = rng_below(&r, table->count);

			/* Most are wanted several times. */
			wants[i] = (struct sluice_tensor_want){which, NULL, NULL};
			if (i && rng_below(&r, 3))
				wants[i] = wants[i - 1];
			else if (rng_below(&r, 2))
				wants[i].ranges = ranges[i];
			if (wants[i].ranges == ranges[i])
				slice_by_chance(&table->tensors[which], &r, ranges[i]);
			assert_ok(sluice_tensor_memory_new(device_of((int)rng_below(&r, 3) - 1),
			                                   2000 * 700, &own[i]));
			wants[i].to = sluice_tensor_memory_data(own[i]);
		}
		plan = plan_make(table, wants, WANTS);
		load_finish(load_begin(plan, NULL, NULL), plan);
		assert_plan(table, plan, wants, NULL);
		for (size_t i = 0; i < WANTS; i++)
			sluice_tensor_memory_free(own[i]);
		sluice_tensor_plan_free(plan);
	}
	table_free(table);
}

FIXTURE_TEST(a_slice_for_two_devices_and_the_host_is_read_once)
{
	struct sluice_tensors *table = tensors_make(f);
	size_t n = table->tensors[7].bytes, half = table->tensors[7].shape[0] / 2;
	struct sluice_tensor_range rows[] = {{half, half * 2}, {0, table->tensors[7].shape[1]}};
	void *there[GPU_DEVICES] = {device_new(0, n), device_new(1, n)};
	char *here = malloc(n);
	struct sluice_tensor_want wants[] = {{7, rows, there[0]},
	                                     {7, rows, there[1]},
	                                     {7, rows, here},
	                                     {2, NULL, NULL},
	                                     {7, rows, there[0]}};
	sluice_tensor_plan *plan = plan_make(table, wants, 5);
	sluice_tensor_memory *memory = memory_make(1, plan);
	sluice_tensor_load *load = load_begin(plan, memory, NULL);
	uint64_t all = 0, slice = half * table->tensors[7].shape[1];

	sluice_tensor_load_progress(load, NULL, &all);
	assert_int_equal(all, table->tensors[2].bytes + slice);
	load_finish(load, plan);
	assert_plan(table, plan, wants, memory);
	/* An empty slice is of no device. */
	if (gpu_has_two() && slice) {
		sluice_stream stream = stream_new(1);
		struct sluice_tensor_read_options o = SLUICE_TENSOR_READ_OPTIONS_INIT;

		o.on = 1;
		o.stream = stream;
		assert_refused(sluice_tensor_plan_read(plan, memory, &o, &load), EINVAL,
		               "of one device");
		stream_free(stream);
	}
	device_free(there[0]);
	device_free(there[1]);
	free(here);
	tensors_free(table, plan, memory);
}

/* Bytes that came of the file, or 0 where nobody counts them. */
static uint64_t bytes_came(const char *uri)
{
	unsigned long long bytes = 0;
	FILE *io;

	if (row->remote)
		return (uint64_t)asked(uri, "sent");
	io = fopen("/proc/self/io", "r");
	assert_non_null(io);
	assert_int_equal(fscanf(io, "rchar: %llu", &bytes), 1);
	fclose(io);
	return bytes;
}

/* Reads columns of rows of 4 KiB into a device, and returns how many bytes came for each byte wanted. */
static double over_read(struct fixture *f, uint64_t width)
{
	enum { ROWS = 300 };
	const char *uri =
		row->remote ? fault_uri("size=%zu", ROWS * 4 * KIB) : scratch(f, "columns");
	struct sluice_tensors *table = table_new(f->ctx);
	struct sluice_tensor_range ranges[] = {{0, ROWS}, {700, 700 + width}};
	struct sluice_tensor_want want = {0, ranges, NULL};
	sluice_tensor_plan *plan;
	sluice_tensor_memory *memory;
	uint64_t before;
	double came;

	table_add(table, 0, 0, SLUICE_UINT8, 2, (uint64_t[]){ROWS, 4 * KIB});
	table->files[0].file = open_read(f->ctx, uri);
	plan = plan_make(table, &want, 1);
	memory = memory_make(0, plan);
	warm_up(f, 0);
	before = bytes_came(uri);
	load_finish(load_begin(plan, memory, NULL), plan);
	came = (double)(bytes_came(uri) - before) / (double)(ROWS * width);
	if (!row->remote)
		assert_plan(table, plan, &want, memory);
	tensors_free(table, plan, memory);
	return came;
}

/* A server is asked for twice the bytes at most; of a local file rows are read whole from an eighth on. */
FIXTURE_TEST(columns_are_read_with_the_bytes_beside_them_if_these_are_few)
{
	struct sluice_config config = row_config();
	double half, quarter, narrow;

	if (row_is_store() || (!row->remote && !row->config.backend))
		SKIP("nobody counts the bytes that come");
	/* What a busy machine delays would be asked for twice. */
	config.http_hedge = "0";
	fixture_config(f, &config);
	file_make(scratch(f, "columns"), 300 * 4 * KIB, 1);
	half = over_read(f, 2 * KIB);
	quarter = over_read(f, KIB);
	narrow = over_read(f, 256);
	print_message("half a row %.2f, a quarter %.2f, a sixteenth %.2f bytes for each wanted\n",
	              half, quarter, narrow);
	assert_true(half > 1.9 && half <= 2.01);
	assert_true(row->remote ? quarter > 0.98 && quarter < 1.05
	                        : quarter > 3.9 && quarter < 4.1);
	assert_true(narrow > 0.98 && narrow < 1.1);
}

FIXTURE_TEST(loads_of_nothing_are_over)
{
	struct sluice_tensors *table = tensors_make(f);
	struct sluice_tensor_range none[] = {{1, 1}, {0, 1}};
	struct sluice_tensor_want wants[] = {{0, none, NULL}, {0, none, NULL}};
	sluice_tensor_memory *memory;
	sluice_tensor_plan *plan;
	sluice_stream stream = stream_new(0);

	table_add(table, 2, 5, SLUICE_FLOAT32, 2, (uint64_t[]){0, 9});
	wants[1] = (struct sluice_tensor_want){table->count - 1, NULL, NULL};
	for (size_t count = 0; count < 3; count += 2) {
		plan = plan_make(table, wants, count);
		assert_int_equal(sluice_tensor_plan_bytes(plan), 0);
		memory = memory_make(0, plan);
		load_finish(load_begin(plan, NULL, NULL), plan);
		load_finish(load_begin(plan, memory, stream), plan);
		sluice_tensor_memory_free(memory);
		sluice_tensor_plan_free(plan);
	}
	stream_free(stream);
	table_free(table);
}

/* -------------------------------------------------------------------------------- how it ends */

FIXTURE_TEST(a_load_checks_the_digests_of_its_files)
{
	struct sluice_tensors *table = tensors_make(f);
	sluice_tensor_plan *plan = plan_make(table, NULL, 0);
	struct sluice_tensor_read_options o = SLUICE_TENSOR_READ_OPTIONS_INIT;
	struct sluice_digest digests[TABLE_FILES] = {{0}};
	uint64_t length = 0, read = 0, all = 0;
	sluice_stream stream = stream_new(0);
	sluice_tensor_load *load;

	for (size_t i = 0; i < FILES; i++) {
		length += table->files[i].length;
		assert_ok(sluice_file_digest(table->files[i].file, SLUICE_XXH3_128, &digests[i]));
	}
	o.digests = digests;
	for (int where = -1; where < GPU_DEVICES; where++) {
		sluice_tensor_memory *memory = memory_make(where, plan);

		assert_ok(sluice_tensor_plan_read(plan, memory, &o, &load));
		sluice_tensor_load_progress(load, NULL, &all);
		assert_int_equal(all, length);
		assert_int_equal(sluice_tensor_load_wait(load, PATIENCE_MS), bytes_of(plan));
		sluice_tensor_load_progress(load, &read, NULL);
		assert_int_equal(read, length);
		load_finish(load, plan);
		assert_plan(table, plan, NULL, memory);
		digests[1].bytes[3] ^= 1;
		assert_ok(sluice_tensor_plan_read(plan, memory, &o, &load));
		load_fail(load, EBADMSG, "XXH3");
		digests[1].bytes[3] ^= 1;
		if (where == 0) {
			o.on = 1;
			o.stream = stream;
			assert_refused(sluice_tensor_plan_read(plan, memory, &o, &load), ENOTSUP,
			               "in stream order");
			o.on = 0;
		}
		sluice_tensor_memory_free(memory);
	}
	stream_free(stream);
	tensors_free(table, plan, NULL);
}

FIXTURE_TEST(a_file_that_fails_among_several_ends_the_load)
{
	struct sluice_tensors *table = tensors_make(f);
	sluice_tensor_memory *memory;
	sluice_tensor_load *load;
	sluice_tensor_plan *plan;

	/* Behind the end of the second file. */
	table_add(table, 1, table->files[1].length - 10, SLUICE_UINT8, 1, (uint64_t[]){MIB});
	plan = plan_make(table, NULL, 0);
	for (int where = -1; where < 1; where++) {
		memory = memory_make(where, plan);
		load = load_begin(plan, memory, NULL);
		load_fail(load, EIO, "shorter than");
		sluice_tensor_memory_free(memory);
	}
	tensors_free(table, plan, NULL);
}

/* Without its cancel the read that stands still would end after many seconds. */
FIXTURE_TEST(a_failure_cancels_the_other_reads)
{
	struct sluice_tensors *table;
	sluice_tensor_memory *memory;
	sluice_tensor_load *load;
	sluice_tensor_plan *plan;
	double begun;

	if (!row->remote || row_is_store())
		SKIP("only a server lets a read stand still");
	table = table_new(f->ctx);
	for (uint32_t i = 0; i < 2; i++) {
		table->files[i].file = open_read(
			f->ctx, fault_uri("size=%zu%s", MIB, i ? "" : "&fault=hold:1000"));
		table_add(table, i, i * MIB, SLUICE_UINT8, 1, (uint64_t[]){MIB});
	}
	plan = plan_make(table, NULL, 0);
	memory = memory_make(0, plan);
	begun = seconds_now();
	load = load_begin(plan, memory, NULL);
	load_fail(load, EIO, "");
	assert_true(seconds_now() - begun < 10);
	tensors_free(table, plan, memory);
}

FIXTURE_TEST(a_load_that_is_cancelled_lets_its_stream_go_on)
{
	sluice_tensor_memory *memory;
	struct sluice_tensors *table;
	sluice_tensor_plan *plan;
	sluice_stream stream;
	sluice_tensor_load *load;
	struct gpu_hold hold;
	uint64_t read, all;

	make_room(f);
	table = tensors_make(f);
	plan = plan_make(table, NULL, 0);
	memory = memory_make(0, plan);
	stream = stream_new(0);
	hold_begin(&hold, 0, stream);
	load = load_begin(plan, memory, stream);
	assert_int_equal(sluice_tensor_load_wait(load, 20), -EINPROGRESS);
	assert_string_equal(sluice_tensor_load_message(load), "");
	sluice_tensor_load_progress(load, &read, &all);
	assert_int_equal(all, bytes_of(plan));
	assert_true(read <= all);
	sluice_tensor_load_cancel(load);
	hold_end(&hold);
	stream_pass(0, stream);
	load_fail(load, ECANCELED, "");
	stream_free(stream);
	tensors_free(table, plan, memory);
}

FIXTURE_TEST(loads_that_are_cancelled_at_once_end)
{
	struct sluice_tensors *table = tensors_make(f);
	sluice_tensor_plan *plan = plan_make(table, NULL, 0);

	for (int where = -1; where < GPU_DEVICES; where++) {
		sluice_tensor_memory *memory = memory_make(where, plan);
		sluice_tensor_load *load = load_begin(plan, memory, NULL);
		int64_t rc;

		sluice_tensor_load_cancel(load);
		rc = sluice_tensor_load_wait(load, PATIENCE_MS);
		assert_true(rc == -ECANCELED || rc == (int64_t)bytes_of(plan));
		/* Freed while it runs. */
		sluice_tensor_load_free(load_begin(plan, memory, NULL));
		sluice_tensor_load_free(load);
		sluice_tensor_memory_free(memory);
	}
	tensors_free(table, plan, NULL);
}

FIXTURE_TEST(progress_grows_to_all_bytes)
{
	struct sluice_tensors *table = tensors_make(f);
	sluice_tensor_plan *plan = plan_make(table, NULL, 0);
	sluice_tensor_memory *memory = memory_make(0, plan);
	sluice_tensor_load *load = load_begin(plan, memory, NULL);
	uint64_t read = 0, all;

	while (sluice_tensor_load_wait(load, 0) == -EINPROGRESS) {
		sluice_tensor_load_progress(load, &read, &all);
		assert_int_equal(all, bytes_of(plan));
		assert_true(read <= all);
	}
	sluice_tensor_load_progress(load, &read, NULL);
	assert_int_equal(read, bytes_of(plan));
	load_finish(load, plan);
	tensors_free(table, plan, memory);
}

static void *wait_for_load(void *load)
{
	return (void *)(intptr_t)sluice_tensor_load_wait(load, -1);
}

FIXTURE_TEST(several_threads_wait_for_a_load)
{
	enum { THREADS = 4 };
	struct sluice_tensors *table = tensors_make(f);
	sluice_tensor_plan *plan = plan_make(table, NULL, 0);
	sluice_tensor_memory *memory = memory_make(-1, plan);

	for (int round = 0; round < rounds_of(30); round++) {
		sluice_tensor_load *load = load_begin(plan, memory, NULL);
		pthread_t threads[THREADS];
		void *result;

		for (int i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, wait_for_load, load), 0);
		(void)sluice_tensor_load_wait(load, 1);
		for (int i = 0; i < THREADS; i++) {
			pthread_join(threads[i], &result);
			assert_int_equal((intptr_t)result, bytes_of(plan));
		}
		load_finish(load, plan);
	}
	tensors_free(table, plan, memory);
}

FIXTURE_TEST(a_read_into_memory_that_is_too_small_is_refused)
{
	struct sluice_tensors *table = tensors_make(f);
	sluice_tensor_plan *plan = plan_make(table, NULL, 0);
	sluice_tensor_memory *memory;
	sluice_tensor_load *load = NULL;

	assert_ok(sluice_tensor_memory_new(-1, sluice_tensor_plan_bytes(plan) - 1, &memory));
	assert_refused(sluice_tensor_plan_read(plan, memory, NULL, &load), EINVAL, "needs");
	assert_refused(sluice_tensor_plan_read(plan, NULL, NULL, &load), EINVAL, "NULL");
	assert_null(load);
	tensors_free(table, plan, memory);
}

FIXTURE_TEST(a_child_leaves_the_load_of_its_parent_alone)
{
	struct sluice_tensors *table = tensors_make(f);
	sluice_tensor_plan *plan = plan_make(table, NULL, 0);
	sluice_tensor_memory *memory = memory_make(-1, plan);
	sluice_tensor_load *load = load_begin(plan, memory, NULL), *other;
	pid_t child = fork();
	int status;

	if (!child) {
		bool right = sluice_tensor_load_wait(load, -1) == -ECHILD &&
		             sluice_tensor_plan_read(plan, memory, NULL, &other) == -ECHILD;

		sluice_tensor_load_free(load);
		sluice_tensor_memory_free(memory);
		*(char *)sluice_tensor_memory_data(memory) = 1;
		_exit(!right);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	load_finish(load, plan);
	assert_plan(table, plan, NULL, memory);
	tensors_free(table, plan, memory);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	row_start_devices();
	printf("row %s\n", row->name);
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return RUN_FILES("read_test", "gather_test", "memory_test");
}
