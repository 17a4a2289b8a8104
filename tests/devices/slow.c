/* SPDX-License-Identifier: Apache-2.0 */
/* Storage that takes its time: streams that wait for it, and others beside them. */
#include <pthread.h>
#include <stdatomic.h>

#include "devices/devices.h"
#include "support/gate.h"

enum { STREAMS = 64, ROUNDS = 3, HELD = 3 };

static ssize_t late(const struct sl_piece *piece, ssize_t result)
{
	static _Atomic unsigned count;

	(void)piece;
	if (atomic_fetch_add(&count, 1) % 3 == 0)
		sleep_ms(3);
	return result;
}

/* One stream, and what was found behind its operations. */
struct lane {
	sluice_stream stream;
	char *memory;
	sluice_op *ops[2 * ROUNDS];
	struct gpu_match read[ROUNDS];
};

static void nothing(void *argument)
{
	(void)argument;
}

static void look(int device, sluice_stream stream, struct gpu_match *match, void *memory, size_t n,
                 uint64_t offset, uint64_t seed)
{
	*match = (struct gpu_match){memory, n, offset, seed, NULL, n};
	if (gpu_match(device, stream, match, 1, nothing, NULL))
		fail_msg("%s", gpu_message());
}

/* Each round reads what the one before has written, one stream further on. */
static void many_streams_wait_for_slow_storage(void **state)
{
	struct fixture *f = *state;
	size_t n = row_bytes(64 * KIB) + 5, i, round;
	const char *path = scratch(f, "slow");
	struct lane lanes[STREAMS];
	sluice_file *file;

	file_make(path, n * STREAMS, 1);
	make_room(f);
	file = open_both(f->ctx, path);
	for (i = 0; i < STREAMS; i++) {
		lanes[i].memory = device_new(0, n);
		lanes[i].stream = stream_new(0);
	}
	bend(late);
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < STREAMS; i++) {
			uint64_t from = (i + round) % STREAMS * n;
			sluice_stream s = lanes[i].stream;

			lanes[i].ops[2 * round] = start_read_on(file, lanes[i].memory, n, from, s);
			look(0, s, &lanes[i].read[round], lanes[i].memory, n, from, 1 + round);
			launch_fill(0, s, lanes[i].memory, n, from, 2 + round);
			lanes[i].ops[2 * round + 1] =
				start_write_on(file, lanes[i].memory, n, from, s);
		}
	}
	for (i = 0; i < STREAMS; i++) {
		stream_pass(0, lanes[i].stream);
		for (round = 0; round < ROUNDS; round++) {
			assert_moves(lanes[i].ops[2 * round], n);
			assert_moves(lanes[i].ops[2 * round + 1], n);
			assert_int_equal(lanes[i].read[round].wrong, 0);
		}
		device_free(lanes[i].memory);
		stream_free(lanes[i].stream);
	}
	gate_reset();
	assert_ok(sluice_close(file));
}

/* What a few waiting streams leave alone; how many they are depends on the device's channels. */
static void streams_that_do_not_wait_go_on_beside_storage_that_stands_still(void **state)
{
	struct fixture *f = *state;
	size_t n = row_bytes(MIB), i;
	const char *path = scratch(f, "still");
	char *memory = device_new(0, HELD * n), *other = device_new(0, n);
	sluice_stream streams[HELD], free_one = stream_new(0);
	struct gpu_match match;
	sluice_op *ops[HELD];
	void *pinned = NULL;
	sluice_file *file;

	file_make(path, n, 1);
	make_room(f);
	assert_ok(sluice_pinned_alloc(gpu_device(0), n, &pinned));
	pattern_fill(pinned, n, 0, 7);
	file = open_read(f->ctx, path);
	for (i = 0; i < HELD; i++)
		streams[i] = stream_new(0);
	gate_close(NULL);
	for (i = 0; i < HELD; i++)
		ops[i] = start_read_on(file, memory + i * n, n, 0, streams[i]);
	assert_true(gate_holds(1));
	assert_ok(sluice_copy_on(other, pinned, n, free_one));
	look(0, free_one, &match, other, n, 0, 7);
	stream_pass(0, free_one);
	assert_int_equal(match.wrong, 0);
	for (i = 0; i < HELD; i++)
		assert_int_equal(sluice_stream_query(gpu_device(0), streams[i]), 0);
	gate_open();
	for (i = 0; i < HELD; i++) {
		assert_moves(ops[i], n);
		assert_device(memory + i * n, n, 0, 1);
		stream_free(streams[i]);
	}
	gate_reset();
	assert_ok(sluice_close(file));
	assert_ok(sluice_pinned_free(pinned));
	device_free(memory);
	device_free(other);
	stream_free(free_one);
}

#define NO_GATE "what a server sends passes no gate; see latency in tests/http"

int group_slow(void)
{
	const struct CMUnitTest tests[] = {
		local_test(many_streams_wait_for_slow_storage, NO_GATE),
		local_test(streams_that_do_not_wait_go_on_beside_storage_that_stands_still,
	                   NO_GATE),
	};

	return run_group("slow", tests, COUNT_OF(tests));
}
