/* SPDX-License-Identifier: Apache-2.0 */
/* Storage that takes its time: streams that wait for it, and others beside them. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "io/device_suite.h"
#include "lib/gate.h"

#define NO_GATE "what a server sends passes no gate; see latency in tests/engine/http"

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
LOCAL_TEST(many_streams_wait_for_slow_storage, NO_GATE)
{
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
LOCAL_TEST(streams_that_do_not_wait_go_on_beside_storage_that_stands_still, NO_GATE)
{
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

static bool begins_the_file(const struct sl_piece *piece)
{
	return !piece->offset;
}

LOCAL_TEST(a_slow_piece_holds_up_no_other_slot, NO_GATE)
{
	size_t part = 64 * KIB, n = 32 * part;
	struct sluice_config c = row_config();
	const char *path = scratch(f, "one");
	void *memory = device_new(0, n);
	double deadline = seconds_now() + PATIENCE_MS / 1000;
	sluice_file *file;
	sluice_op *op;

	c.backend = "posix";
	config_tune(&c, "slots", 2);
	config_tune(&c, "slot_bytes", part);
	config_tune(&c, "piece_bytes", part);
	c.staging_bytes = MIB;
	config_tune(&c, "bounce_bytes", 0);
	fixture_config(f, &c);
	file_make(path, n, 1);
	file = open_read(f->ctx, path);
	gate_close(begins_the_file);
	op = start_read(file, memory, n, 0);
	assert_true(gate_holds(1));
	while (gate_count() < n / part && seconds_now() < deadline)
		sleep_ms(1);
	assert_int_equal(gate_count(), n / part);
	gate_open();
	assert_moves(op, n);
	assert_device(memory, n, 0, 1);
	gate_reset();
	assert_ok(sluice_close(file));
	device_free(memory);
}

/* Pieces of a disk that ends all of them at once are followed by others before these are copied. */
LOCAL_TEST(a_long_read_of_a_disk_leaves_half_of_its_slots_for_the_next_pieces, NO_GATE)
{
	size_t part = 64 * KIB, n = 32 * part, slots = 8;
	struct sluice_config c = row_config();
	const char *path = scratch(f, "cold");
	void *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_file *file;
	sluice_op *op;
	int i;

	if (!scratch_takes_direct(f))
		SKIP("a file system in memory has no cold reads");
	c.backend = "posix";
	c.workers = 0;
	config_tune(&c, "operation_depth", 0);
	config_tune(&c, "slots", slots);
	config_tune(&c, "slot_bytes", part);
	config_tune(&c, "piece_bytes", part);
	c.staging_bytes = 2 * MIB;
	config_tune(&c, "bounce_bytes", 0);
	fixture_config(f, &c);
	file_make(path, n, 1);
	warm_up(f, 0);
	for (i = 0; i < 2; i++) {
		file_set_residency(path, COLD);
		file = open_read(f->ctx, path);
		gate_close(NULL);
		op = i ? start_read_on(file, memory, n, 0, stream) : start_read(file, memory, n, 0);
		assert_true(gate_holds(slots / 2));
		sleep_ms(20);
		assert_int_equal(gate_count(), slots / 2);
		gate_open();
		assert_moves(op, n);
		stream_pass(0, stream);
		assert_device(memory, n, 0, 1);
		assert_ok(sluice_close(file));
	}
	gate_reset();
	stream_free(stream);
	device_free(memory);
}

struct submission {
	pthread_t thread;
	sluice_file *file;
	void *memory;
	size_t n;
	sluice_stream stream;
	sluice_op *op;
	int result;
	_Atomic bool returned;
};

static void *submit(void *argument)
{
	struct submission *s = argument;

	s->result = sluice_read_on(s->file, s->memory, s->n, 0, s->stream, &s->op);
	atomic_store(&s->returned, true);
	return NULL;
}

/* As many commands as a device takes at once, beside a few that stay: they need not be its only ones. */
LOCAL_TEST(a_large_submission_goes_beside_a_stream_that_stands, "a local file is used")
{
	const char *path = scratch(f, "large");
	struct submission s = {.n = 256 * 4 * KIB};
	struct sluice_config c = row_config();
	sluice_stream held = stream_new(0);
	void *memory = device_new(0, 4 * KIB);
	struct gpu_hold h;
	sluice_op *op;
	bool returned;

	config_tune(&c, "piece_bytes", 4 * KIB);
	config_tune(&c, "slot_bytes", 4 * KIB);
	config_tune(&c, "slots", 4);
	c.staging_bytes = MIB;
	fixture_config(f, &c);
	s.memory = device_new(0, s.n);
	s.stream = stream_new(0);
	file_make(path, s.n, 1);
	warm_up(f, 0);
	s.file = open_read(f->ctx, path);
	hold_begin(&h, 0, held);
	op = start_read_on(s.file, memory, 4 * KIB, 0, held);
	assert_int_equal(pthread_create(&s.thread, NULL, submit, &s), 0);
	for (int i = 0; i < 5000 && !atomic_load(&s.returned); i++)
		sleep_ms(1);
	returned = atomic_load(&s.returned);
	hold_end(&h);
	pthread_join(s.thread, NULL);
	assert_true(returned);
	assert_ok(s.result);
	assert_moves(s.op, s.n);
	assert_moves(op, 4 * KIB);
	assert_device(s.memory, s.n, 0, 1);
	assert_ok(sluice_close(s.file));
	device_free(s.memory);
	device_free(memory);
	stream_free(s.stream);
	stream_free(held);
}

static double processor_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

EMULATED_TEST(a_lost_device_costs_no_processor_while_storage_stands_still,
              "a real device is not to be lost on purpose")
{
	const char *path = scratch(f, "lost");
	void *memory = device_new(0, MIB);
	sluice_stream stream = stream_new(0);
	sluice_file *file;
	sluice_op *op;
	double used;

	file_make(path, MIB, 1);
	make_room(f);
	file = open_read(f->ctx, path);
	gate_close(NULL);
	op = start_read_on(file, memory, MIB, 0, stream);
	assert_true(gate_holds(1));
	sluice_emulated_lose(0, 1);
	sleep_ms(1000);
	used = processor_ms();
	sleep_ms(400);
	used = processor_ms() - used;
	gate_open();
	assert_fails(op, EIO);
	assert_true(used < 60);
	gate_reset();
	assert_ok(sluice_close(file));
	assert_ok(sluice_context_close(f->ctx));
	sluice_emulated_lose(0, 0);
	assert_ok(sluice_context_new(&row->config, &f->ctx));
	device_free(memory);
	stream_free(stream);
}

/* Times that the doorbells of all contexts went to sleep. */
static unsigned bell_naps(void)
{
	char path[320], line[256];
	unsigned sum = 0, naps;
	struct dirent *task;
	DIR *tasks = opendir("/proc/self/task");

	assert_non_null(tasks);
	while ((task = readdir(tasks))) {
		bool bell = false;
		FILE *status;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		status = fopen(path, "r");
		while (status && fgets(line, sizeof(line), status)) {
			bell |= !strcmp(line, "Name:\tsluice-poller\n");
			if (bell && sscanf(line, "voluntary_ctxt_switches: %u", &naps) == 1)
				sum += naps;
		}
		if (status)
			fclose(status);
	}
	closedir(tasks);
	return sum;
}

LOCAL_TEST(the_doorbell_looks_seldom_when_nothing_moves_for_long, "a local file is used")
{
	const char *path = scratch(f, "idle");
	void *memory = device_new(0, 4 * KIB);
	sluice_stream stream = stream_new(0), other = stream_new(0);
	sluice_file *file;
	struct gpu_hold h;
	sluice_op *op;
	double begun;
	unsigned naps;

	file_make(path, 4 * KIB, 1);
	make_room(f);
	file = open_read(f->ctx, path);
	hold_begin(&h, 0, stream);
	op = start_read_on(file, memory, 4 * KIB, 0, stream);
	sleep_ms(1100);
	naps = bell_naps();
	begun = seconds_now();
	sleep_ms(400);
	naps = bell_naps() - naps;
	assert_in_range(naps, 1, (unsigned)(250 * (seconds_now() - begun)));
	/* A new ring wakes it. */
	assert_moves(start_read_on(file, memory, 4 * KIB, 0, other), 4 * KIB);
	hold_end(&h);
	assert_moves(op, 4 * KIB);
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
	stream_free(other);
}
