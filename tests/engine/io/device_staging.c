/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory: how much, whose, and of how many contexts and devices. */
#include <pthread.h>

#include "io/device_suite.h"

FIXTURE_TEST(too_little_staging_is_refused_when_the_context_is_made)
{
	struct sluice_config c = row_config();
	sluice_context *ctx = NULL;

	(void)f;
	config_tune(&c, "piece_bytes", 64 * KIB);
	config_tune(&c, "inline_bytes", 0);
	config_tune(&c, "bounce_bytes", 0);
	config_tune(&c, "slot_bytes", 64 * KIB);
	config_tune(&c, "slots", 4);
	c.staging_bytes = 128 * KIB; /* the stream's part */
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_STAGING_BYTES");
	config_tune(&c, "slots", 1);
	c.staging_bytes = 124 * KIB;
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_STAGING_BYTES");
	c.staging_bytes = 128 * KIB;
	assert_ok(sluice_context_new(&c, &ctx));
	assert_ok(sluice_context_close(ctx));
	ctx = NULL;
	config_tune(&c, "slot_bytes", 32 * KIB);
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_SLOT_BYTES");
	config_tune(&c, "slot_bytes", 64 * KIB + 512);
	assert_refused(sluice_context_new(&c, &ctx), EINVAL, "SLUICE_SLOT_BYTES");
	assert_null(ctx);
}

static void every_slot_that_the_memory_holds_can_be_had(struct fixture *f)
{
	const char *path = scratch(f, "slots");
	char *memory = device_new(0, MIB);
	sluice_stream stream = stream_new(0);
	sluice_file *file;

	file_make(path, MIB, 4);
	file = open_read(f->ctx, address(f, "slots"));
	assert_moves(start_read_on(file, memory, MIB, 0, stream), MIB);
	assert_device(memory, MIB, 0, 4);
	assert_moves(start_read(file, memory, MIB, 0), MIB);
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}

FIXTURE_TEST(the_least_staging_that_is_not_refused_is_enough)
{
	struct sluice_config c = row_config();
	sluice_context *ctx = NULL;

	config_tune(&c, "piece_bytes", 4 * KIB);
	config_tune(&c, "slot_bytes", 4 * KIB);
	config_tune(&c, "inline_bytes", 0);
	config_tune(&c, "bounce_bytes", 0);
	for (size_t slots = 1; slots <= 64; slots *= 2) {
		config_tune(&c, "slots", slots);
		c.staging_bytes = 64 * KIB;
		while (sluice_context_new(&c, &ctx))
			c.staging_bytes += 4 * KIB;
		assert_ok(sluice_context_close(ctx));
		fixture_config(f, &c);
		every_slot_that_the_memory_holds_can_be_had(f);
	}
}

static void moves_both_ways(struct fixture *f, int device, size_t n)
{
	const char *path = scratch(f, "both");
	char *memory = device_new(device, n);
	sluice_stream stream = stream_new(device);
	sluice_file *file;

	file_make(path, n + 1, 4);
	file = open_read(f->ctx, address(f, "both"));
	assert_moves(start_read(file, memory, n, 1), n);
	assert_device(memory, n, 1, 4);
	device_fill(memory, n, 0, 9);
	assert_moves(start_read_on(file, memory, n, 0, stream), n);
	assert_device(memory, n, 0, 4);
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}

FIXTURE_TEST(an_applications_pinned_memory_is_used)
{
	void *pinned[2] = {NULL, NULL}, *plain = NULL;
	size_t n = 64 * MIB, i, touched;
	int device, zero = gpu_device(0);

	for (device = 0; device < 2; device++)
		assert_ok(sluice_pinned_alloc(gpu_device(device), n, &pinned[device]));
	plain = aligned_alloc(4096, n);
	/* Nothing that is refused stays behind. */
	assert_refused(sluice_context_staging(f->ctx, zero, plain, n), EINVAL, "registered");
	/* What CUDA has pinned is so for all of its devices. */
	if (!gpu_is_real())
		assert_refused(sluice_context_staging(f->ctx, zero, pinned[1], n), EINVAL,
		               "registered");
	assert_refused(sluice_context_staging(f->ctx, zero, pinned[0], 2 * n), EINVAL,
	               "registered");
	assert_refused(sluice_context_staging(f->ctx, zero, (char *)pinned[0] + 512, n - 4096),
	               EINVAL, "4096");
	assert_refused(sluice_context_staging(f->ctx, zero, pinned[0], 4096), EINVAL, "");
	assert_refused(sluice_context_staging(f->ctx, 7000, pinned[0], n), ENODEV, "7000");
	assert_refused(sluice_context_staging(f->ctx, -1, pinned[0], n), ENODEV, "");
	memset(pinned[0], 0x77, n);
	sluice_emulated_reset_calls();
	assert_ok(sluice_context_staging(f->ctx, zero, pinned[0], n));
	assert_refused(sluice_context_staging(f->ctx, zero, pinned[0], n), EBUSY, gpu_name(0));
	moves_both_ways(f, 0, 3 * MIB);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL), 0);
	for (i = touched = 0; i < n; i++)
		touched += ((unsigned char *)pinned[0])[i] != 0x77;
	assert_true(touched > 8 * KIB);
	/* The other device has its own. */
	moves_both_ways(f, 1, 3 * MIB);
	assert_refused(sluice_context_staging(f->ctx, gpu_device(1), pinned[1], n), EBUSY,
	               gpu_name(1));
	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;
	/* It is the application's again. */
	for (device = 0; device < 2; device++)
		assert_ok(sluice_pinned_free(pinned[device]));
	free(plain);
}

static uint64_t registrations(void)
{
	return sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL);
}

/* What an awaited read of a local file needs is pinned before it, and all else by the same call. */
EMULATED_TEST(the_first_operation_pins_all, "what is pinned cannot be counted")
{
	struct sluice_config c = row_config();
	size_t n = 66 * MIB;
	char *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_file *file;
	sluice_op *op;

	c.staging_bytes = 256 * MIB;
	config_tune(&c, "slots", 1);
	config_tune(&c, "slot_bytes", 128 * MIB);
	file_make(scratch(f, "steps"), n, 4);
	for (unsigned first = 0; first < 3; first++) {
		fixture_config(f, &c);
		file = open_read(f->ctx, address(f, "steps"));
		device_fill(memory, n, 0, 9);
		sluice_emulated_reset_calls();
		op = first == 0   ? start_read(file, memory, 3 * MIB, 0)
		     : first == 1 ? start_read(file, memory, n, 0)
		                  : start_read_on(file, memory, 3 * MIB, 0, stream);
		assert_int_equal(registrations(), 2);
		assert_moves(op, first == 1 ? n : 3 * MIB);
		/* The only slot lies in memory of two steps. */
		assert_moves(start_read(file, memory, n, 0), n);
		assert_device(memory, n, 0, 4);
		device_fill(memory, n, 0, 9);
		assert_moves(start_read_on(file, memory, n, 0, stream), n);
		assert_device(memory, n, 0, 4);
		assert_int_equal(registrations(), 2);
		assert_ok(sluice_close(file));
	}
	device_free(memory);
	stream_free(stream);
}

/* The rest is tried once, and then only by an operation that needs it. */
ROW_TEST(a_read_needs_no_more_pinned_memory_than_its_slots,
         .remote = "a read of a server needs all of it", .gpu = "what is pinned cannot be counted")
{
	struct sluice_config c = row_config();
	char *memory = device_new(0, 3 * MIB);
	sluice_stream stream = stream_new(0);
	sluice_op *op = NULL;
	sluice_file *file;

	c.staging_bytes = 256 * MIB;
	fixture_config(f, &c);
	file_make(scratch(f, "rest"), 3 * MIB, 4);
	file = open_read(f->ctx, address(f, "rest"));
	sluice_emulated_reset_calls();
	sluice_emulated_fail(SLUICE_EMULATED_REGISTER, 2, -ENOMEM);
	for (unsigned i = 0; i < 3; i++) {
		assert_moves(start_read(file, memory, 3 * MIB, 0), 3 * MIB);
		assert_device(memory, 3 * MIB, 0, 4);
		assert_int_equal(registrations(), 2);
		device_fill(memory, 3 * MIB, 0, 9);
	}
	sluice_emulated_fail(SLUICE_EMULATED_REGISTER, 1, -ENOMEM);
	assert_refused(sluice_read_on(file, memory, 3 * MIB, 0, stream, &op), ENOMEM, "register");
	assert_moves(start_read_on(file, memory, 3 * MIB, 0, stream), 3 * MIB);
	assert_device(memory, 3 * MIB, 0, 4);
	assert_int_equal(registrations(), 4);
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}

FIXTURE_TEST(two_contexts_use_one_device)
{
	struct fixture second = *f;
	char *memory = device_new(0, 4 * MIB), *other = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0);
	const char *path = scratch(f, "contexts");
	size_t n = row_bytes(4 * MIB);
	sluice_file *a, *b;
	int round;

	assert_ok(sluice_context_new(&row->config, &second.ctx));
	file_make(path, n, 1);
	a = open_read(f->ctx, address(f, "contexts"));
	b = open_read(second.ctx, address(&second, "contexts"));
	warm_up(f, 0);
	warm_up(&second, 0);
	for (round = 0; round < 10; round++) {
		bool swap = round % 2;
		sluice_op *x, *y;

		x = start_read_on(swap ? a : b, memory, n, 0, stream);
		y = start_read_on(swap ? b : a, other, n - 1, 1, stream);
		assert_moves(x, n);
		assert_moves(y, n - 1);
		assert_device(memory, n, 0, 1);
		assert_device(other, n - 1, 1, 1);
	}
	assert_ok(sluice_close(b));
	assert_ok(sluice_context_close(second.ctx));
	assert_moves(start_read_on(a, memory, n, 0, stream), n);
	assert_ok(sluice_close(a));
	device_free(memory);
	device_free(other);
	stream_free(stream);
}

/* A context may go, and pinned memory with it, while others have waits on the device. */
FIXTURE_TEST(contexts_come_and_go_while_the_device_works)
{
	struct fixture other = *f;
	const char *path = scratch(f, "coming");
	size_t n = row_bytes(8 * MIB), i;
	char *memory = device_new(0, n), *small = device_new(0, 100);
	sluice_stream stream = stream_new(0);
	sluice_op *ops[4];
	sluice_file *file, *own;
	int round;

	file_make(path, n, 1);
	file = open_read(f->ctx, address(f, "coming"));
	for (round = 0; round < 6; round++) {
		file_set_residency(path, COLD);
		for (i = 0; i < COUNT_OF(ops); i++)
			ops[i] = start_read_on(file, memory, n, 0, stream);
		assert_ok(sluice_context_new(&row->config, &other.ctx));
		own = open_read(other.ctx, address(&other, "coming"));
		assert_moves(start_read(own, small, 100, (uint64_t)round), 100);
		assert_device(small, 100, (uint64_t)round, 1);
		assert_ok(sluice_close(own));
		assert_ok(sluice_context_close(other.ctx));
		for (i = 0; i < COUNT_OF(ops); i++)
			assert_moves(ops[i], n);
		assert_device(memory, n, 0, 1);
	}
	assert_ok(sluice_close(file));
	device_free(memory);
	device_free(small);
	stream_free(stream);
}

enum { THREADS = 8, BLOCK = 300001 };

struct worker {
	pthread_t thread;
	sluice_file *file;
	int device;
	char *memory, *back;
	sluice_stream stream;
	unsigned index;
	struct rng rng;
	const char *wrong;
};

static const char *work_once(struct worker *w, unsigned round)
{
	size_t n = 1 + rng_below(&w->rng, BLOCK), into;
	uint64_t at = (uint64_t)w->index * BLOCK;
	bool on = rng_below(&w->rng, 3), host = !on;
	unsigned char *held = malloc(BLOCK);
	const char *wrong = NULL;
	sluice_op *a = NULL, *b = NULL;

	pattern_fill(held, n, at, round);
	if (sluice_copy_on(w->memory, held, n, w->stream))
		wrong = "copy_on";
	if (host && sluice_stream_synchronize(gpu_device(w->device), w->stream))
		wrong = "synchronize";
	if (on ? sluice_write_on(w->file, w->memory, n, at, w->stream, &a)
	       : sluice_write(w->file, w->memory, n, at, &a))
		wrong = "write";
	into = n / 3;
	if (on ? sluice_read_on(w->file, w->back, n - into, at + into, w->stream, &b)
	       : sluice_read(w->file, w->back, n - into, at + into, &b))
		wrong = "read";
	if (!wrong && sluice_wait(b, PATIENCE_MS) != (int64_t)(n - into))
		wrong = "wait for the read";
	if (!wrong && sluice_wait(a, PATIENCE_MS) != (int64_t)n)
		wrong = "wait for the write";
	sluice_op_free(a);
	sluice_op_free(b);
	if (!wrong && sluice_copy(held, w->back, n - into))
		wrong = "copy";
	if (!wrong && pattern_match(held, n - into, at + into, round) != n - into)
		wrong = "bytes";
	free(held);
	return wrong;
}

static void *work(void *argument)
{
	struct worker *w = argument;

	for (unsigned round = 0; round < 40 && !w->wrong; round++)
		w->wrong = work_once(w, 1000 * w->index + round);
	return NULL;
}

LOCAL_TEST(eight_threads_use_two_devices, "a remote file cannot be written in place")
{
	struct worker workers[THREADS];
	const char *path = scratch(f, "threads");
	sluice_file *file;
	unsigned i;

	file_make(path, (size_t)THREADS * BLOCK, 1);
	file = open_both(f->ctx, path);
	for (i = 0; i < THREADS; i++) {
		int device = i % 2;

		workers[i] = (struct worker){
			.file = file,
			.device = device,
			.memory = device_new(device, BLOCK),
			.back = device_new(device, BLOCK),
			.stream = i < 6 ? stream_new(device) : (sluice_stream)2,
			.index = i,
			.rng = rng_new(950 + i),
		};
	}
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	for (i = 0; i < THREADS; i++) {
		if (workers[i].wrong)
			fail_msg("thread %u: %s", i, workers[i].wrong);
		device_free(workers[i].memory);
		device_free(workers[i].back);
		if (i < 6)
			stream_free(workers[i].stream);
	}
	assert_ok(sluice_close(file));
}

/* The bytes of one ring are there before the device has done anything: then the file may go. */
LOCAL_TEST(an_operation_of_one_ring_waits_for_no_slot, "a local file is cut short")
{
	const size_t n = 4 * 64 * KIB;
	const char *path = scratch(f, "ring");
	void *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	struct sluice_config c = row_config();
	int64_t got = -EIO;
	int patience;

	config_tune(&c, "piece_bytes", 64 * KIB);
	config_tune(&c, "inline_bytes", 0);
	config_tune(&c, "bounce_bytes", 0);
	config_tune(&c, "slot_bytes", 64 * KIB);
	config_tune(&c, "slots", 4);
	c.staging_bytes = MIB;
	fixture_config(f, &c);
	warm_up(f, 0);
	/* How long storage takes nobody says. */
	for (patience = 20; got == -EIO && patience < 5000; patience *= 2) {
		sluice_file *file;
		sluice_op *op;
		struct gpu_hold h;

		file_make(path, n, 8);
		file = open_read(f->ctx, path);
		hold_begin(&h, 0, stream);
		op = start_read_on(file, memory, n, 0, stream);
		sleep_ms(patience);
		file_truncate(path, 0);
		hold_end(&h);
		got = finish(op);
		assert_ok(sluice_close(file));
	}
	assert_int_equal(got, n);
	assert_device(memory, n, 0, 8);
	device_free(memory);
	stream_free(stream);
}
