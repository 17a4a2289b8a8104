/* SPDX-License-Identifier: Apache-2.0 */
/* Many small operations at once: bounded memory, right bytes, and an end. */
#include <pthread.h>

#include "core/core.h"
#include "io/device_suite.h"

enum { THREADS = 4, BLOCK = 512, BLOCKS = 4096 };

struct submitter {
	pthread_t thread;
	sluice_file *file;
	char *memory; /* BLOCKS blocks */
	sluice_stream streams[2];
	size_t operations;
	bool on;
	struct rng rng;
	int error;
};

/* Block i of the memory gets block i of the file, again and again. */
static void *submit_all(void *argument)
{
	struct submitter *s = argument;

	for (size_t i = 0; i < s->operations && !s->error; i++) {
		size_t block = rng_below(&s->rng, BLOCKS);
		void *data = s->memory + block * BLOCK;
		uint64_t at = block * BLOCK;

		s->error = s->on ? sluice_read_on(s->file, data, BLOCK, at, s->streams[i % 2], NULL)
		                 : sluice_read(s->file, data, BLOCK, at, NULL);
	}
	return NULL;
}

static void run_load(struct fixture *f, bool on, size_t operations, size_t most_bytes)
{
	const char *path = scratch(f, "load");
	struct submitter s[THREADS];
	size_t before, after;
	sluice_file *file;
	int i;

	file_make(path, (size_t)BLOCKS * BLOCK, 1);
	file = open_read(f->ctx, path);
	for (i = 0; i < THREADS; i++) {
		int device = i % 2;

		s[i] = (struct submitter){
			.file = file,
			.memory = device_new(device, (size_t)BLOCKS * BLOCK),
			.operations = operations / THREADS,
			.on = on,
			.rng = rng_new(990 + (uint64_t)i),
		};
		s[i].streams[0] = stream_new(device);
		s[i].streams[1] = stream_new(device);
		warm_up(f, device);
	}
	before = resident_bytes();
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&s[i].thread, NULL, submit_all, &s[i]), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(s[i].thread, NULL);
	after = resident_bytes();
	for (i = 0; i < THREADS; i++)
		assert_int_equal(s[i].error, 0);
	assert_ok(sluice_sync(file));
	print_message("%.1f MiB for %zu operations\n",
	              after > before ? (double)(after - before) / (double)MIB : 0, operations);
	if (!under_sanitizer() && after > before + most_bytes)
		fail_msg("%zu bytes for %zu operations", after - before, operations);
	for (i = 0; i < THREADS; i++) {
		unsigned char *held = malloc((size_t)BLOCKS * BLOCK);

		device_get(held, s[i].memory, (size_t)BLOCKS * BLOCK);
		for (size_t b = 0; b < BLOCKS; b++)
			if (held[b * BLOCK] != 0x3c)
				assert_pattern(held + b * BLOCK, BLOCK, b * BLOCK, 1);
		free(held);
		device_free(s[i].memory);
		stream_free(s[i].streams[0]);
		stream_free(s[i].streams[1]);
	}
	assert_ok(sluice_close(file));
}

static size_t many(void)
{
	if (under_sanitizer() || row->delays)
		return under_stress() ? 8000 : 4000;
	return under_stress() ? 100000 : 20000;
}

LOCAL_TEST(small_operations_awaited_on_the_host_stay_bounded, "so many requests take long")
{
	struct sluice_config c = row_config();

	run_load(f, false, many(), (under_stress() ? 512 : 128) * MIB);
	c.max_operations = 1000;
	fixture_config(f, &c);
	run_load(f, false, many(), 64 * MIB);
}

/* The slots and the words are the bound here. */
LOCAL_TEST(small_operations_in_stream_order_stay_bounded, "so many requests take long")
{
	run_load(f, true, many(), 64 * MIB);
}

static unsigned seats_taken(void)
{
	bool usable;
	char *text = sl_seats_describe(&usable);
	unsigned count = (unsigned)atoi(text);

	assert_true(usable);
	free(text);
	return count;
}

LOCAL_TEST(a_long_read_has_a_seat_until_its_end, "a request for each piece takes long")
{
	const char *path = scratch(f, "long");
	sluice_stream streams[2];
	size_t n = 64 * MIB;
	struct gpu_hold h;
	sluice_file *file;
	sluice_op *ops[3];
	void *memory[2];
	unsigned seen[4];

	if (row_bytes(n) < n)
		SKIP("pieces are too short for long reads");
	for (unsigned i = 0; i < 2; i++) {
		streams[i] = stream_new((int)i);
		memory[i] = device_new((int)i, n);
	}
	file_make(path, n, 1);
	make_room(f);
	file = open_read(f->ctx, path);
	hold_begin(&h, 0, streams[0]);
	seen[0] = seats_taken();
	ops[0] = start_read_on(file, memory[0], 8 * MIB, 0, streams[0]);
	seen[1] = seats_taken();
	ops[1] = start_read_on(file, memory[0], n, 0, streams[0]);
	seen[2] = seats_taken();
	/* The ring of another device has its own. */
	ops[2] = start_read_on(file, memory[1], n, 0, streams[1]);
	seen[3] = seats_taken();
	hold_end(&h);
	for (unsigned i = 0; i < 3; i++)
		assert_moves(ops[i], i ? n : 8 * MIB);
	assert_int_equal(seen[0], 0);
	assert_int_equal(seen[1], 0);
	assert_int_equal(seen[2], 1);
	assert_in_range(seen[3], 1, 2);
	assert_int_equal(seats_taken(), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_device(memory[i], n, 0, 1);
		device_free(memory[i]);
		stream_free(streams[i]);
	}
	assert_ok(sluice_close(file));
}
