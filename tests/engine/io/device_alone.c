/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one at a time, each awaited at once, as if to pread(): the thread that waits may do them. */
#include "io/device_suite.h"

#define REMOTE "a remote file is read by its reactors alone"

enum { ROUNDS = 80 };

static const size_t lengths[] = {1, 4096, 65537, 256 * KIB, MIB, 5 * MIB};

/* Reads again and again. on: device memory; else the host's. */
static void read_alone(struct fixture *f, bool on)
{
	size_t most = lengths[COUNT_OF(lengths) - 1];
	char *memory = on ? device_new(0, most) : malloc(most);
	const char *path = scratch(f, "alone");
	sluice_file *file;

	file_make(path, most + ROUNDS, 1);
	file = open_read(f->ctx, address(f, "alone"));
	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		double deadline = seconds_now() + PATIENCE_MS / 1000;
		sluice_op *op;

		for (unsigned round = 0; round < ROUNDS; round++) {
			op = start_read(file, memory, lengths[i], round);
			assert_int_equal(sluice_wait(op, round == ROUNDS / 2 ? PATIENCE_MS : -1),
			                 lengths[i]);
			sluice_op_free(op);
			if (round % 10 != 9)
				continue;
			if (on)
				assert_device(memory, lengths[i], round, 1);
			else
				assert_pattern((unsigned char *)memory, lengths[i], round, 1);
		}
		/* The next is not awaited, as was to be expected. */
		op = start_read(file, memory, lengths[i], 3);
		while (!sluice_poll(op) && seconds_now() < deadline)
			sleep_ms(1);
		assert_int_equal(sluice_wait(op, 0), lengths[i]);
		sluice_op_free(op);
	}
	assert_ok(sluice_close(file));
	if (on)
		device_free(memory);
	else
		free(memory);
}

LOCAL_TEST(reads_one_at_a_time_are_right_and_the_last_needs_no_wait, REMOTE)
{
	read_alone(f, true);
}

LOCAL_TEST(so_are_those_into_host_memory, REMOTE)
{
	read_alone(f, false);
}

/* The bytes come while the stream waits, and after it. */
LOCAL_TEST(they_go_on_beside_an_operation_in_stream_order, REMOTE)
{
	size_t n = row_bytes(64 * KIB);
	const char *path = scratch(f, "beside");
	char *memory = device_new(0, n), *other = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_file *file;
	struct gpu_hold h;
	sluice_op *held = NULL;

	file_make(path, n, 1);
	make_room(f);
	file = open_read(f->ctx, path);
	for (unsigned i = 0; i < 3 * ROUNDS; i++) {
		bool holds = i / ROUNDS == 1;
		sluice_op *op;

		if (i == ROUNDS) {
			hold_begin(&h, 0, stream);
			held = start_read_on(file, other, n, 0, stream);
		}
		op = start_read(file, memory, n, 0);
		assert_int_equal(sluice_wait(op, holds ? PATIENCE_MS : -1), n);
		sluice_op_free(op);
		if (i == 2 * ROUNDS - 1) {
			assert_int_equal(sluice_poll(held), 0);
			hold_end(&h);
			assert_moves(held, n);
		}
	}
	assert_device(memory, n, 0, 1);
	assert_device(other, n, 0, 1);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
	device_free(other);
}

ROW_TEST(their_wait_ends_behind_the_copy, .remote = REMOTE,
         .gpu = "the delays of a real device are its own")
{
	struct sluice_emulated_options o = SLUICE_EMULATED_OPTIONS_INIT;
	const char *path = scratch(f, "behind");
	char *memory = device_new(0, 4096);
	sluice_file *file;

	file_make(path, 4096 + ROUNDS, 1);
	make_room(f);
	file = open_read(f->ctx, path);
	o.seed = 1;
	o.delay_us = 150; /* of the copy, and of the word behind it */
	assert_ok(sluice_emulated_configure(gpu_device(0), &o));
	sluice_emulated_reset_calls();
	for (unsigned round = 0; round < ROUNDS; round++) {
		sluice_op *op = start_read(file, memory, 4096, round);

		assert_int_equal(sluice_wait(op, -1), 4096);
		assert_pattern(sluice_emulated_memory(memory), 4096, round, 1);
		sluice_op_free(op);
	}
	/* The thread that waits has given most copies, and words. */
	assert_in_range(sluice_emulated_calls(SLUICE_EMULATED_WRITE, NULL), ROUNDS / 2, ROUNDS);
	/* Behind a copy that was refused there is none: no thread would wait for it. */
	sluice_emulated_reset_calls();
	for (unsigned round = 0; round < ROUNDS / 4; round++) {
		sluice_op *op;

		sluice_emulated_fail(SLUICE_EMULATED_COPY, 1, -ENOMEM);
		op = start_read(file, memory, 4096, round);
		assert_int_equal(sluice_wait(op, -1), -ENOMEM);
		sluice_op_free(op);
	}
	sluice_emulated_fail(SLUICE_EMULATED_COPY, 0, 0);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_WRITE, NULL), 0);
	o.seed = o.delay_us = 0;
	assert_ok(sluice_emulated_configure(gpu_device(0), &o));
	assert_ok(sluice_close(file));
	device_free(memory);
}
