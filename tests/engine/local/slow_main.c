/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file whose storage does not answer, and the others, which must not notice. slow HOW ROW: with HOW "wrapped" the
 * calls of one file wait inside this process, with "fuse" a server does not answer.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/gpu.h"
#include "local/slow.h"

#define SLOW_TEST(name) TEST_WITH(name, setup, teardown)

/* Seconds: in which all but the held calls end, and for which they are held at most. */
enum { PATIENCE = 20, HELD = 100, GOOD_BYTES = 2 << 20, GOOD_SEED = 5 };

struct slow *slow;
static bool by_fuse;
static char slow_path[300];
static struct fixture *fixture;
static sluice_file *good, *bad;

/* ------------------------------------------------------------------------------------ control */

void slow_wait(enum slow_call call)
{
	double until = seconds_now() + HELD;

	atomic_fetch_add(&slow->asked[call], 1);
	while (atomic_load(&slow->held[call]) && seconds_now() < until)
		sleep_ms(1);
}

void slow_hold(enum slow_call call)
{
	atomic_store(&slow->asked[call], 0);
	atomic_store(&slow->held[call], true);
}

void slow_release(void)
{
	for (int i = 0; i < SLOW_CALLS; i++)
		atomic_store(&slow->held[i], false);
}

unsigned slow_asked(enum slow_call call)
{
	return atomic_load(&slow->asked[call]);
}

static void assert_asked(enum slow_call call, unsigned times)
{
	double until = seconds_now() + PATIENCE;

	while (slow_asked(call) < times && seconds_now() < until)
		sleep_ms(1);
	assert_true(slow_asked(call) >= times);
}

/* ------------------------------------------------------------------------------------ fixture */

static int setup(void **state)
{
	int rc = fixture_setup(state);
	struct stat stat;
	const char *path;

	if (rc)
		return rc;
	fixture = *state;
	path = scratch(fixture, "good");
	file_make(path, GOOD_BYTES, GOOD_SEED);
	file_set_residency(path, CACHED);
	good = open_both(fixture->ctx, path);
	if (!by_fuse) {
		snprintf(slow_path, sizeof(slow_path), "%s", scratch(fixture, "slow"));
		file_make(slow_path, SLOW_BYTES, SLOW_SEED);
		assert_int_equal(lstat(slow_path, &stat), 0);
		atomic_store(&slow->inode, stat.st_ino);
	}
	bad = open_both(fixture->ctx, slow_path);
	return 0;
}

static int teardown(void **state)
{
	slow_release();
	assert_ok(sluice_close(good));
	assert_ok(sluice_close(bad));
	atomic_store(&slow->inode, 0);
	return fixture_teardown(state);
}

/* The other file is as fast as it ever was: resident, and a large read from storage. */
static void assert_good_is_fast(void)
{
	struct buffer b = buffer_new(GOOD_BYTES, 0);
	double begun = seconds_now();

	for (int i = 0; i < 2; i++) {
		assert_read(good, b.data, 4096, 0);
		assert_read(good, b.data, GOOD_BYTES, 0);
		assert_pattern(b.data, GOOD_BYTES, 0, GOOD_SEED);
		file_set_residency(scratch(fixture, "good"), COLD);
	}
	assert_write(good, b.data, 4096, 0);
	assert_ok(sluice_sync(good));
	assert_true(seconds_now() - begun < PATIENCE);
	buffer_free(&b);
}

/* -------------------------------------------------------------------------------------- tests */

SLOW_TEST(a_submission_does_not_wait_for_the_size)
{
	struct buffer b = buffer_new(SLOW_BYTES, 0);
	double begun = seconds_now();
	sluice_op *op;

	slow_hold(SLOW_SIZE);
	op = start_read(bad, b.data, SLOW_BYTES, 0);
	assert_true(seconds_now() - begun < PATIENCE);
	assert_int_equal(sluice_wait(op, 20), -EINPROGRESS);
	assert_good_is_fast();
	slow_release();
	assert_moves(op, SLOW_BYTES);
	assert_pattern(b.data, SLOW_BYTES, 0, SLOW_SEED);
	buffer_free(&b);
}

SLOW_TEST(a_large_write_does_not_wait_for_the_size)
{
	struct buffer b = buffer_new(MIB, 0);
	double begun = seconds_now();
	sluice_op *op;

	pattern_fill(b.data, MIB, 0, SLOW_SEED);
	slow_hold(SLOW_SIZE);
	op = start_write(bad, b.data, MIB, 0);
	assert_true(seconds_now() - begun < PATIENCE);
	assert_good_is_fast();
	slow_release();
	assert_moves(op, MIB);
	buffer_free(&b);
}

SLOW_TEST(a_cancel_does_not_wait_for_the_size)
{
	struct buffer b = buffer_new(MIB, 0);
	struct sluice_file_info stat = {.size = sizeof(stat)};
	sluice_op *ops[3];
	double begun;

	slow_hold(SLOW_SIZE);
	ops[0] = start_read(bad, b.data, MIB, 0);
	assert_asked(SLOW_SIZE, 1);
	ops[1] = start_read(bad, b.data, MIB, 0);
	/* It would make the file longer, and leaves no trace. */
	ops[2] = start_write(bad, b.data, MIB, SLOW_BYTES);
	begun = seconds_now();
	for (int i = 0; i < 3; i++) {
		assert_ok(sluice_cancel(ops[i]));
		assert_fails(ops[i], ECANCELED);
	}
	assert_true(seconds_now() - begun < PATIENCE);
	slow_release();
	assert_read(bad, b.data, MIB, 0);
	assert_ok(sluice_stat(bad, &stat));
	assert_int_equal(stat.length, SLOW_BYTES);
	buffer_free(&b);
}

SLOW_TEST(many_operations_ask_for_the_size_together)
{
	enum { N = 100 };
	struct buffer b = buffer_new(N * 4096, 0);
	sluice_op *ops[N];

	slow_hold(SLOW_SIZE);
	for (int i = 0; i < N; i++)
		ops[i] = start_read(bad, b.data + i * 4096, 4096, (uint64_t)i * 4096);
	assert_asked(SLOW_SIZE, 1);
	slow_release();
	for (int i = 0; i < N; i++)
		assert_moves(ops[i], 4096);
	assert_pattern(b.data, N * 4096, 0, SLOW_SEED);
	assert_in_range(slow_asked(SLOW_SIZE), 1, 20);
	buffer_free(&b);
}

/* The file system reserves nothing: the file is not longer yet. */
SLOW_TEST(a_read_beside_a_write_that_extends_the_file_has_the_length_before_it)
{
	struct buffer b = buffer_new(MIB, 0), back = buffer_new(MIB, 0);
	sluice_op *first, *write, *read;

	slow_hold(SLOW_SIZE);
	slow_hold(SLOW_WRITE);
	first = start_read(bad, back.data, MIB, 0);
	assert_asked(SLOW_SIZE, 1);
	write = start_write(bad, b.data, MIB, SLOW_BYTES + MIB);
	read = start_read(bad, back.data, MIB, SLOW_BYTES);
	atomic_store(&slow->held[SLOW_SIZE], false);
	assert_moves(read, 0);
	assert_moves(first, MIB);
	slow_release();
	/* The server refuses bytes behind its file's end. */
	assert_int_equal(finish(write), by_fuse ? -EFBIG : (int64_t)MIB);
	buffer_free(&b);
	buffer_free(&back);
}

SLOW_TEST(reads_writes_and_syncs_that_hang_leave_other_files_alone)
{
	enum { N = 40 };
	static const enum slow_call calls[] = {SLOW_READ, SLOW_WRITE};
	struct buffer b = buffer_new(N * 64 * KIB, 0);

	pattern_fill(b.data, b.length, 0, SLOW_SEED);
	for (size_t c = 0; c < COUNT_OF(calls); c++) {
		sluice_op *ops[N];

		slow_hold(calls[c]);
		for (int i = 0; i < N; i++) {
			uint64_t at = (uint64_t)i * 64 * KIB;

			ops[i] = calls[c] == SLOW_READ
			                 ? start_read(bad, b.data + at, 64 * KIB, at)
			                 : start_write(bad, b.data + at, 64 * KIB, at);
		}
		assert_asked(calls[c], 1);
		assert_good_is_fast();
		/* Behind those that hang the others wait for their turn, and can be called back. */
		assert_ok(sluice_cancel(ops[N - 1]));
		assert_int_equal(sluice_wait(ops[N - 1], 1000), -ECANCELED);
		sluice_op_free(ops[N - 1]);
		slow_release();
		for (int i = 0; i < N - 1; i++)
			assert_moves(ops[i], 64 * KIB);
	}
	assert_pattern(b.data, b.length, 0, SLOW_SEED);
	buffer_free(&b);
}

static void *sync_bad(void *unused)
{
	sluice_sync(bad);
	return unused;
}

/* Half of the buffers for data that is not aligned are with the file that hangs. */
SLOW_TEST(a_file_that_hangs_does_not_keep_the_buffers_of_others)
{
	struct buffer b = buffer_new(MIB, 1), other = buffer_new(GOOD_BYTES, 1),
		      more = buffer_new(MIB, 1);
	struct sluice_config c = row_config();
	sluice_op *op, *second, *third;

	assert_ok(sluice_close(good));
	assert_ok(sluice_close(bad));
	config_tune(&c, "piece_bytes", MIB);
	config_tune(&c, "bounce_bytes", 2 * MIB);
	fixture_config(fixture, &c);
	good = open_both(fixture->ctx, scratch(fixture, "good"));
	bad = open_both(fixture->ctx, slow_path);
	file_set_residency(scratch(fixture, "good"), COLD);
	if (!by_fuse)
		file_set_residency(slow_path, COLD);
	slow_hold(SLOW_READ);
	op = start_read(bad, b.data, MIB, 0);
	assert_asked(SLOW_READ, 1);
	if (!by_fuse) {
		/* It waits for a buffer, and can be called back. */
		third = start_read(bad, more.data, MIB, MIB);
		sleep_ms(20);
		assert_ok(sluice_cancel(third));
		assert_int_equal(sluice_wait(third, PATIENCE * 1000), -ECANCELED);
		sluice_op_free(third);
	}
	second = start_read(good, other.data, GOOD_BYTES, 0);
	assert_int_equal(sluice_wait(second, PATIENCE * 1000), GOOD_BYTES);
	sluice_op_free(second);
	assert_pattern(other.data, GOOD_BYTES, 0, GOOD_SEED);
	slow_release();
	assert_moves(op, MIB);
	assert_pattern(b.data, MIB, 0, SLOW_SEED);
	buffer_free(&b);
	buffer_free(&more);
	buffer_free(&other);
}

SLOW_TEST(syncs_that_hang_leave_other_files_alone)
{
	pthread_t threads[6];

	slow_hold(SLOW_SYNC);
	for (size_t i = 0; i < COUNT_OF(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, sync_bad, NULL), 0);
	assert_asked(SLOW_SYNC, 1);
	assert_good_is_fast();
	slow_release();
	for (size_t i = 0; i < COUNT_OF(threads); i++)
		pthread_join(threads[i], NULL);
}

/* As cp(1) does. Its open is interrupted, too. */
SLOW_TEST(a_file_that_tells_no_length_is_read_to_its_end)
{
	struct sluice_file_info stat = {.size = sizeof(stat)};
	struct buffer b = buffer_new(SLOW_BYTES + MIB, 0);
	char path[sizeof(slow_path) + sizeof("unsized")];
	sluice_file *file;
	sluice_op *op;

	snprintf(path, sizeof(path), "%.*s/unsized", (int)(strrchr(slow_path, '/') - slow_path),
	         slow_path);
	if (by_fuse) {
		file = open_read(fixture->ctx, path);
		assert_ok(sluice_stat(file, &stat));
		assert_true(stat.flags & SLUICE_STAT_SIZE_UNKNOWN);
		op = start_read(file, b.data, b.length, 0);
		assert_moves(op, SLOW_BYTES);
		assert_pattern(b.data, SLOW_BYTES, 0, SLOW_SEED);
		assert_ok(sluice_close(file));
	}
	buffer_free(&b);
	if (!by_fuse)
		skip();
}

/* ------------------------------------------------------------------------------- stream order */

static void read_on(sluice_file *file, void *memory, sluice_stream stream, sluice_op **op)
{
	assert_ok(sluice_read_on(file, memory, MIB, 0, stream, op));
}

static bool passes(sluice_stream stream, double seconds)
{
	double until = seconds_now() + seconds;

	while (sluice_stream_query(gpu_device(0), stream) != 1)
		if (seconds_now() > until)
			return false;
	return true;
}

struct caller {
	void *memory;
	sluice_stream stream;
	sluice_op *op;
	int rc;
};

static void *submit_bad(void *argument)
{
	struct caller *c = argument;

	c->rc = sluice_read_on(bad, c->memory, MIB, 0, c->stream, &c->op);
	return NULL;
}

/* The submission of one, and what the doorbell starts behind it, hold up no other stream. */
SLOW_TEST(in_stream_order_a_slow_file_holds_up_its_own_stream)
{
	struct caller slow_one = {0};
	struct gpu_hold hold;
	struct buffer b = buffer_new(MIB, 0);
	sluice_stream stream;
	sluice_op *op, *write;
	void *memory;
	pthread_t thread;

	assert_ok(sluice_device_alloc(gpu_device(0), MIB, &memory));
	assert_ok(sluice_device_alloc(gpu_device(0), MIB, &slow_one.memory));
	assert_ok(sluice_stream_new(gpu_device(0), &stream));
	assert_ok(sluice_stream_new(gpu_device(0), &slow_one.stream));
	read_on(good, memory, stream, &op);
	assert_moves(op, MIB);
	slow_hold(SLOW_SIZE);
	assert_int_equal(pthread_create(&thread, NULL, submit_bad, &slow_one), 0);
	assert_asked(SLOW_SIZE, 1);
	read_on(good, memory, stream, &op);
	assert_true(passes(stream, PATIENCE));
	assert_moves(op, MIB);
	slow_release();
	pthread_join(thread, NULL);
	assert_int_equal(slow_one.rc, 0);
	assert_moves(slow_one.op, MIB);

	/* A write that waits for a read in stream order is started by the doorbell. */
	pattern_fill(b.data, MIB, 0, SLOW_SEED);
	assert_int_equal(gpu_hold(0, slow_one.stream, &hold), 0);
	atomic_store(&slow->asked[SLOW_SIZE], 0);
	submit_bad(&slow_one);
	assert_ok(slow_one.rc);
	assert_asked(SLOW_SIZE, 1);
	write = start_write(bad, b.data, MIB, 0);
	slow_hold(SLOW_SIZE);
	gpu_let_go(&hold);
	assert_true(passes(slow_one.stream, PATIENCE));
	sleep_ms(50);
	for (int i = 0; i < 3; i++) {
		read_on(good, memory, stream, &op);
		assert_true(passes(stream, PATIENCE));
		assert_moves(op, MIB);
	}
	slow_release();
	assert_moves(slow_one.op, MIB);
	assert_moves(write, MIB);
	assert_ok(sluice_stream_free(stream));
	assert_ok(sluice_stream_free(slow_one.stream));
	assert_ok(sluice_device_free(memory));
	assert_ok(sluice_device_free(slow_one.memory));
	buffer_free(&b);
}

/* --------------------------------------------------------------------------------------- exit */

static double exit_begun;

static void look_at_the_clock(void)
{
	bool in_time = seconds_now() - exit_begun < PATIENCE;

	/* The kernel has a process that is gone wait for its requests all the same. */
	slow_release();
	_exit(in_time ? 0 : 3);
}

static void must(bool right)
{
	if (!right)
		_exit(2);
}

/* The context's own handlers run before the first that was registered. */
static void be_a_process_that_ends(const char *path)
{
	static unsigned char bytes[1 << 20];
	static struct gpu_hold hold;
	struct sluice_config c = row_config();
	sluice_stream stream;
	sluice_context *ctx = NULL;
	sluice_file *file;
	sluice_op *op;
	void *memory;
	struct stat stat;

	atexit(look_at_the_clock);
	must(!by_fuse ? !lstat(path, &stat) : true);
	if (!by_fuse)
		atomic_store(&slow->inode, stat.st_ino);
	must(!gpu_open(NULL) && !sluice_context_new(&c, &ctx));
	must(!open_flags(ctx, path, SLUICE_OPEN_READ | SLUICE_OPEN_WRITE, &file));
	must(!sluice_device_alloc(gpu_device(0), MIB, &memory));
	must(!sluice_stream_new(gpu_device(0), &stream));
	/* If it is written after all, the file is what it was. */
	pattern_fill(bytes, sizeof(bytes), 0, SLOW_SEED);
	/* What a device needs at its first use is there before it is held up. */
	must(!sluice_read_on(file, memory, MIB, 0, stream, NULL));
	must(!sluice_stream_synchronize(gpu_device(0), stream));
	must(!gpu_hold(0, stream, &hold));
	atomic_store(&slow->asked[SLOW_SIZE], 0);
	alarm(2 * HELD);
	must(!sluice_read_on(file, memory, MIB, 0, stream, &op));
	must(!sluice_write(file, bytes, MIB, 0, &op));
	while (!slow_asked(SLOW_SIZE))
		sleep_ms(1);
	sleep_ms(20);
	/* What the doorbell starts is the write. */
	slow_hold(SLOW_SIZE);
	gpu_let_go(&hold);
	must(!sluice_stream_synchronize(gpu_device(0), stream));
	while (!slow_asked(SLOW_SIZE))
		sleep_ms(1);
	exit_begun = seconds_now();
	exit(4);
}

static void exit_does_not_wait_for_the_size(void)
{
	char directory[200], path[300];
	int status;
	pid_t child;

	snprintf(directory, sizeof(directory), "%s/slow.XXXXXX", getenv("SLUICE_TEST_DIR"));
	if (!mkdtemp(directory))
		abort();
	snprintf(path, sizeof(path), "%s/slow", directory);
	if (by_fuse)
		snprintf(path, sizeof(path), "%s", slow_path);
	else
		file_make(path, SLOW_BYTES, SLOW_SEED);
	child = fork();
	if (child == 0)
		be_a_process_that_ends(path);
	waitpid(child, &status, 0);
	slow_release();
	if (!by_fuse)
		unlink(path);
	rmdir(directory);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "a process did not end well with a slow file: status %x\n", status);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	char directory[200] = "";
	const char *why = NULL;
	int rc;

	by_fuse = argc > 1 && strcmp(argv[1], "fuse") == 0;
	row_start(argc - 1, argv + 1);
	slow = mmap(NULL, sizeof(*slow), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (by_fuse) {
		/* What is mounted here is nobody else's. */
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
			why = "no name space of its own for mounts";
		snprintf(directory, sizeof(directory), "%s/fuse.XXXXXX", getenv("SLUICE_TEST_DIR"));
		if (!why && mkdtemp(directory))
			why = slow_fuse_start(directory, slow_path, sizeof(slow_path));
		if (why) {
			printf("skipped: %s\n", why);
			rmdir(directory);
			return 77;
		}
	}
	exit_does_not_wait_for_the_size();
	if (gpu_open(NULL)) {
		printf("skipped: %s\n", gpu_message());
		return 77;
	}
	rc = RUN_TESTS(NULL, NULL);
	if (by_fuse) {
		slow_fuse_stop();
		rmdir(directory);
	}
	return rc;
}
