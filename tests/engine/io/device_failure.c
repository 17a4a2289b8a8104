/* SPDX-License-Identifier: Apache-2.0 */
/* An operation that fails or is cancelled never holds its stream up. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/device_suite.h"
#include "lib/servers.h"

#define NOT_LOST "a real device is not to be lost on purpose"

/* What the stream is given behind the operation is done, and the next read of it is right. */
static void stream_goes_on(struct fixture *f, sluice_stream stream, void *memory)
{
	const char *path = scratch(f, "next");
	sluice_file *file;
	sluice_op *op;

	file_make(path, 100000, 77);
	file = open_read(f->ctx, address(f, "next"));
	launch_fill(0, stream, memory, 100000, 0, 5);
	op = start_read_on(file, memory, 99999, 1, stream);
	stream_pass(0, stream);
	assert_device(memory, 99999, 1, 77);
	assert_moves(op, 99999);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(a_read_beyond_the_end_fails_and_the_stream_goes_on)
{
	static const struct {
		size_t length, n;
		uint64_t offset;
	} cases[] = {
		{1000, 1001, 0},
		{1000, 1, 1000},
		{1000, 10, 1ull << 40},
		{4096, 4097, 0},
		{100000, 100000, 1},
		{3 * 1024 * 1024 + 1, 3 * 1024 * 1024 + 2, 0},
		{3 * 1024 * 1024 + 1, 2 * 1024 * 1024, 1024 * 1024 + 2},
		{0, 1, 0},
	};
	void *memory = device_new(0, 4 * MIB);
	struct buffer host = buffer_new(4 * MIB, 0);
	sluice_stream stream = stream_new(0);
	size_t i, cold, direct;

	for (i = 0; i < COUNT_OF(cases); i++) {
		for (cold = 0; cold < 2; cold++) {
			const char *path = scratch(f, "short");
			sluice_file *file;

			file_make(path, cases[i].length, 1);
			file_set_residency(path, cold ? COLD : CACHED);
			file = open_read(f->ctx, address(f, "short"));
			for (direct = 0; direct < 2; direct++) {
				sluice_op *op = start_read_on(file, direct ? host.data : memory,
				                              cases[i].n, cases[i].offset, stream);

				stream_pass(0, stream);
				assert_int_equal(sluice_wait(op, PATIENCE_MS), -EIO);
				assert_non_null(strstr(sluice_op_message(op), "short"));
				assert_fails(op, EIO);
				/* Awaited on the host it is no error. */
				op = start_read(file, direct ? host.data : memory, cases[i].n,
				                cases[i].offset);
				assert_moves(op, cases[i].offset > cases[i].length
				                         ? 0
				                         : cases[i].length - cases[i].offset);
			}
			assert_ok(sluice_close(file));
		}
		stream_goes_on(f, stream, memory);
	}
	device_free(memory);
	stream_free(stream);
	buffer_free(&host);
}

/* The thread sanitizer takes its time over each word that tests/tsan.supp lets pass. */
static size_t bytes_to_cancel(size_t n)
{
	return row_bytes(under_sanitizer() && row->remote ? n / 16 : n);
}

FIXTURE_TEST(a_cancelled_operation_lets_the_stream_go_on)
{
	const char *path = scratch(f, "cancelled");
	size_t n = bytes_to_cancel(8 * MIB);
	void *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	struct rng r = rng_new(910);
	int round, cancelled = 0;
	sluice_file *file;

	file_make(path, n, 1);
	file = row->remote ? open_read(f->ctx, address(f, "cancelled")) : open_both(f->ctx, path);
	for (round = 0; round < 16; round++) {
		bool write = round % 4 == 3 && !row->remote;
		sluice_op *op;
		int64_t got;

		if (write)
			device_fill(memory, n, 0, 1);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		op = write ? start_write_on(file, memory, n, 0, stream)
		           : start_read_on(file, memory, n, 0, stream);
		if (round % 2)
			usleep((useconds_t)rng_below(&r, 4000));
		sluice_cancel(op);
		stream_pass(0, stream);
		got = finish(op);
		assert_true(got == -ECANCELED || got == (int64_t)n);
		cancelled += got == -ECANCELED;
		if (got == (int64_t)n)
			assert_device(memory, n, 0, 1);
	}
	stream_goes_on(f, stream, memory);
	print_message("%d of %d were cancelled\n", cancelled, round);
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}

/* The stream has not come to it: cancelling takes nothing off the stream, and nobody's turn. */
FIXTURE_TEST(an_operation_that_is_cancelled_before_its_turn_ends_when_the_stream_has_passed)
{
	enum { OPERATIONS = 8 };
	const char *path = scratch(f, "early");
	size_t n = bytes_to_cancel(2 * MIB), i;
	void *memory = device_new(0, n), *other = device_new(0, n);
	struct buffer host = buffer_new(n, 0);
	sluice_stream stream = stream_new(0);
	sluice_op *ops[3], *last;
	sluice_file *file;
	struct gpu_hold h;
	int round;

	file_make(path, n, 1);
	make_room(f);
	file = row->remote ? open_read(f->ctx, address(f, "early")) : open_both(f->ctx, path);
	for (round = 0; round < OPERATIONS; round++) {
		hold_begin(&h, 0, stream);
		ops[0] = start_read_on(file, memory, n, 0, stream);
		ops[1] = start_read_on(file, host.data, n, 0, stream);
		ops[2] = row->remote ? start_read_on(file, memory, n / 2, 1, stream)
		                     : start_write_on(file, memory, n, 0, stream);
		last = start_read_on(file, other, n - 1, 1, stream);
		for (i = 0; i < 3; i++)
			assert_int_equal(sluice_cancel(ops[i]), 0);
		sleep_ms(round % 3 * 3);
		for (i = 0; i < 3; i++)
			assert_int_equal(sluice_poll(ops[i]), 0);
		hold_end(&h);
		stream_pass(0, stream);
		for (i = 0; i < 3; i++) {
			int64_t got = finish(ops[i]);

			if (got != -ECANCELED)
				fail_msg("operation %zu: %lld", i, (long long)got);
		}
		assert_moves(last, n - 1);
		assert_device(other, n - 1, 1, 1);
	}
	assert_ok(sluice_close(file));
	device_free(memory);
	device_free(other);
	buffer_free(&host);
	stream_free(stream);
}

LOCAL_TEST(a_file_that_loses_its_bytes_lets_the_stream_go_on,
           "a remote file that changes is an error of its own")
{
	const char *path = scratch(f, "lost");
	size_t n = row_bytes(16 * MIB);
	void *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	int round, failed = 0;

	for (round = 0; round < 6; round++) {
		sluice_file *file;
		sluice_op *op;
		int64_t got;

		file_make(path, n, 3);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		file = open_read(f->ctx, path);
		op = start_read_on(file, memory, n, 0, stream);
		file_truncate(path, 1000);
		stream_pass(0, stream);
		got = finish(op);
		assert_true(got == -EIO || got == (int64_t)n);
		failed += got == -EIO;
		if (got > 0)
			assert_device(memory, n, 0, 3);
		assert_ok(sluice_close(file));
	}
	print_message("%d of %d reads met the missing bytes\n", failed, round);
	stream_goes_on(f, stream, memory);
	device_free(memory);
	stream_free(stream);
}

LOCAL_TEST(a_write_beyond_the_limit_fails_and_the_stream_goes_on,
           "a remote file cannot be written in place")
{
	size_t n = row_bytes(8 * MIB);
	void *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_file *file = open_both(f->ctx, scratch(f, "limited"));
	struct rlimit before, now;
	void (*handler)(int);
	sluice_op *op;

	device_fill(memory, n, 0, 1);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	now = before;
	now.rlim_cur = n / 2;
	handler = signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
	op = start_write_on(file, memory, n, 0, stream);
	stream_pass(0, stream);
	sluice_wait(op, PATIENCE_MS);
	setrlimit(RLIMIT_FSIZE, &before);
	signal(SIGXFSZ, handler);
	assert_fails(op, EFBIG);
	stream_goes_on(f, stream, memory);
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}

/* This process has no memory at 0. */
LOCAL_TEST(a_read_that_storage_refuses_lets_the_stream_go_on, "a local file is used")
{
	void *memory = device_new(0, MIB);
	struct buffer host = buffer_new(MIB, 0);
	sluice_stream stream = stream_new(0);
	sluice_file *file = open_read(f->ctx, "/proc/self/mem");
	sluice_op *a, *b, *c;

	a = start_read_on(file, memory, 1000, 0, stream);
	b = start_read_on(file, memory, MIB, 4096, stream);
	c = start_read_on(file, host.data, 1000, 0, stream);
	stream_pass(0, stream);
	assert_fails(c, EIO);
	assert_fails(b, EIO);
	assert_fails(a, EIO);
	/* Without a handle the file has it. */
	assert_ok(sluice_read_on(file, memory, 1000, 0, stream, NULL));
	stream_goes_on(f, stream, memory);
	assert_refused(sluice_close(file), EIO, "mem");
	device_free(memory);
	buffer_free(&host);
	stream_free(stream);
}

FIXTURE_TEST(a_server_that_refuses_lets_the_stream_go_on)
{
	void *memory = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0);
	sluice_file *file;
	sluice_op *a, *b;

	if (!row->remote)
		SKIP("row \"%s\" has no servers", row->name);
	file = open_read(f->ctx, fault_uri("size=5000000&fault=status:403"));
	a = start_read_on(file, memory, 4 * MIB, 0, stream);
	b = start_read_on(file, memory, 100, 7, stream);
	stream_pass(0, stream);
	assert_fails(a, EACCES);
	assert_fails(b, EACCES);
	assert_ok(sluice_close(file));
	stream_goes_on(f, stream, memory);
	device_free(memory);
	stream_free(stream);
}

/* As when the driver has met an error that it does not get over: what is in flight ends, all of it. */
EMULATED_TEST(a_lost_device_ends_its_operations, NOT_LOST)
{
	const char *path = scratch(f, "lost");
	void *memory = device_new(0, 2 * MIB);
	sluice_stream stream = stream_new(0);
	sluice_op *ops[8];
	sluice_file *file;
	struct gpu_hold h;
	size_t i;

	file_make(path, 2 * MIB, 1);
	make_room(f);
	file = open_read(f->ctx, address(f, "lost"));
	hold_begin(&h, 0, stream);
	for (i = 0; i < COUNT_OF(ops); i++)
		ops[i] = start_read_on(file, (char *)memory + i * 1000, 1000, i * 1000, stream);
	sluice_emulated_lose(0, 1);
	for (i = 0; i < COUNT_OF(ops); i++)
		assert_fails(ops[i], EIO);
	/* Awaited on the host, too, and what is submitted from now on. */
	if (sluice_read(file, memory, 1000, 0, &ops[0]) == 0)
		assert_fails(ops[0], EIO);
	if (sluice_read_on(file, memory, 1000, 0, stream, &ops[0]) == 0)
		assert_fails(ops[0], EIO);
	assert_ok(sluice_close(file));
	assert_ok(sluice_context_close(f->ctx));
	hold_end(&h);
	sluice_emulated_lose(0, 0);
	assert_ok(sluice_context_new(&row->config, &f->ctx));
	stream_goes_on(f, stream, memory);
	device_free(memory);
	stream_free(stream);
}

struct late_submitter {
	pthread_t thread;
	sluice_file *file;
	void *memory;
	size_t n;
	sluice_stream stream;
	int result;
	_Atomic int returned;
};

static void *submit_and_wait(void *argument)
{
	struct late_submitter *s = argument;
	sluice_op *op = NULL;

	s->result = sluice_read_on(s->file, s->memory, s->n, 0, s->stream, &op);
	if (!s->result)
		s->result = (int)sluice_wait(op, PATIENCE_MS);
	sluice_op_free(op);
	atomic_store(&s->returned, 1);
	return NULL;
}

/* The submitting call itself waits until the device's queue has room, which it will never have. */
EMULATED_TEST(a_lost_device_ends_a_submission_that_waits_for_room, NOT_LOST)
{
	const char *path = scratch(f, "windows");
	struct late_submitter s = {.n = 8 * MIB};
	struct sluice_config c = row_config();
	struct gpu_hold h;
	int i;

	config_tune(&c, "piece_bytes", 4 * KIB);
	config_tune(&c, "slot_bytes", 4 * KIB);
	config_tune(&c, "inline_bytes", 0);
	config_tune(&c, "bounce_bytes", 0);
	config_tune(&c, "slots", 4);
	c.staging_bytes = MIB;
	fixture_config(f, &c);
	s.memory = device_new(0, s.n);
	s.stream = stream_new(0);
	file_make(path, s.n, 1);
	warm_up(f, 0);
	s.file = open_read(f->ctx, address(f, "windows"));
	hold_begin(&h, 0, s.stream);
	assert_int_equal(pthread_create(&s.thread, NULL, submit_and_wait, &s), 0);
	sleep_ms(200);
	assert_int_equal(atomic_load(&s.returned), 0);
	sluice_emulated_lose(0, 1);
	hold_end(&h);
	for (i = 0; i < PATIENCE_MS && !atomic_load(&s.returned); i++)
		sleep_ms(1);
	assert_int_equal(atomic_load(&s.returned), 1);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.result, -EIO);
	assert_ok(sluice_close(s.file));
	assert_ok(sluice_context_close(f->ctx));
	sluice_emulated_lose(0, 0);
	assert_ok(sluice_context_new(&row->config, &f->ctx));
	stream_goes_on(f, s.stream, s.memory);
	device_free(s.memory);
	stream_free(s.stream);
}

/* Their copies are given to the device together. */
EMULATED_TEST(a_refused_copy_fails_its_own_operation_alone,
              "a real driver refuses nothing on demand")
{
	enum { OPERATIONS = 64, LENGTH = 3000 };
	size_t n = (size_t)OPERATIONS * LENGTH;
	const char *path = scratch(f, "refused");
	char *memory = device_new(0, n);
	sluice_op *ops[OPERATIONS];
	sluice_file *file;

	file_make(path, n, 1);
	file = open_read(f->ctx, address(f, "refused"));
	assert_moves(start_read(file, memory, n, 0), n);
	for (unsigned round = 0; round < 20; round++) {
		unsigned failed = 0;

		sluice_emulated_fail(SLUICE_EMULATED_COPY, 1 + round % 3, -ENOMEM);
		for (size_t i = 0; i < OPERATIONS; i++)
			ops[i] = start_read(file, memory + i * LENGTH, LENGTH, i * LENGTH);
		for (size_t i = 0; i < OPERATIONS; i++) {
			int64_t got = sluice_wait(ops[i], PATIENCE_MS);

			assert_true(got == LENGTH || got == -ENOMEM);
			failed += got < 0;
			sluice_op_free(ops[i]);
		}
		sluice_emulated_fail(SLUICE_EMULATED_COPY, 0, 0);
		assert_true(failed <= 1);
		assert_device(memory, n, 0, 1);
	}
	assert_ok(sluice_close(file));
	device_free(memory);
}
