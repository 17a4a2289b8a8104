/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How processes end that have a writer: by exit() at any moment, in a child, or with the writer's thread
 * dead. Each of them is a process of its own, made by one without HDF5 and without threads; it ends in
 * time, with the status that it was told to end with, and the file is right.
 */
#include <hdf5.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/core.h"
#include "frames/field.h"
#include "h5file/points.h"

enum { STATUS = 42, FLUSHED = 7, MORE = 12, CHILDREN = 15, SECONDS = 100 };

static char folder[256], path[300];
/* With those processes. */
static struct shared {
	unsigned moment;            /* when it happens; in what, each says */
	_Atomic uint64_t submitted; /* frames of u */
	_Atomic uint64_t promised;  /* that a flush has acknowledged */
} * shared;

/* In those processes. */
static sluice_context *ctx;
static sluice_writer *w;
static sluice_series *u, *p;

static void good(int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%d: %s\n", rc, sluice_last_message());
	_exit(1);
}

static void demand(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "not so: %s\n", what);
	_exit(2);
}
#define DEMAND(condition) demand(condition, #condition)

/* A thread that is gone leaves memory behind, for which a sanitizer would look. */
static void end_by_exit(int status)
{
	if (under_sanitizer())
		_exit(status);
	exit(status);
}

/* So many frames flushed, and some more on the way. */
static void set_out(void)
{
	good(sluice_context_new(NULL, &ctx));
	good(field_open(ctx, path, 0, &w));
	good(field_add(w, "u", "deflate", 0, &u));
	good(field_add(w, "p", "none", 30, &p));
	good(field_put(u, "u", 0, FLUSHED));
	good(field_put(p, "p", 0, FLUSHED));
	good(sluice_writer_flush(w, -1));
	good(field_put(u, "u", FLUSHED, MORE));
	good(field_put(p, "p", FLUSHED, MORE));
}

/* Before the writer there is a file of the program's own, and HDF5 has its handler of exit(). */
static hid_t use_hdf5(void)
{
	hsize_t shape = 1000;
	hid_t file, space, set;
	char own[320];

	snprintf(own, sizeof(own), "%s/own.h5", folder);
	file = H5Fcreate(own, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	space = H5Screate_simple(1, &shape, NULL);
	set = H5Dcreate2(file, "own", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	DEMAND(set >= 0);
	H5Sclose(space);
	return set;
}

static void ends_at_once(void)
{
	set_out();
	exit(STATUS);
}

static void ends_after_hdf5_was_used(void)
{
	use_hdf5();
	set_out();
	exit(STATUS);
}

static void *put_without_end(void *series)
{
	while (!field_put(series, "u", shared->submitted, shared->submitted + 1))
		shared->submitted++;
	return NULL;
}

static void *flush_without_end(void *unused)
{
	(void)unused;
	for (;;) {
		uint64_t there = shared->submitted;

		if (sluice_writer_flush(w, -1))
			return NULL;
		shared->promised = there;
	}
}

static void start(void *(*run)(void *), void *argument)
{
	pthread_t thread;

	DEMAND(!pthread_create(&thread, NULL, run, argument));
	pthread_detach(thread);
}

static void ends_while_threads_are_in_it(void)
{
	set_out();
	shared->submitted = MORE;
	start(put_without_end, u);
	start(flush_without_end, NULL);
	usleep(1 + shared->moment * 700);
	exit(STATUS);
}

static void ends_while_threads_are_in_it_and_in_hdf5(void)
{
	use_hdf5();
	ends_while_threads_are_in_it();
}

static size_t as_it_is(unsigned flags, size_t count, const unsigned values[], size_t length,
                       size_t *room, void **bytes)
{
	(void)flags, (void)count, (void)values, (void)room, (void)bytes;
	return length;
}

/* HDF5 flushes all files before it forgets a filter. */
static void dies_while_hdf5_flushes_all(void)
{
	H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 300, 1, 1, "as it is", NULL, NULL, as_it_is};

	set_out();
	for (unsigned i = 0; i <= shared->moment; i++) {
		good(field_put(u, "u", MORE + i, MORE + i + 1));
		DEMAND(H5Zregister(&filter) >= 0);
		DEMAND(H5Zunregister(300) >= 0);
	}
	_exit(STATUS);
}

static void *close_it(void *unused)
{
	(void)unused;
	sluice_writer_close(w, -1);
	return NULL;
}

static void ends_while_it_is_closed(void)
{
	set_out();
	start(close_it, NULL);
	usleep(shared->moment * 50);
	exit(STATUS);
}

static void be_a_child(void)
{
	struct sluice_writer_counts stats = {.size = sizeof(stats)};
	void *frame;

	alarm(SECONDS);
	DEMAND(sluice_series_acquire(u, -1, &frame) == -ECHILD);
	DEMAND(sluice_series_push(u, folder, (double *)path, -1) == -ECHILD);
	DEMAND(sluice_writer_flush(w, -1) == -ECHILD);
	DEMAND(sluice_writer_stats(w, &stats) == -ECHILD);
	DEMAND(sluice_writer_close(w, -1) == -ECHILD);
	sluice_writer_discard(w);
	end_by_exit(STATUS + 1);
}

/* Children call what they like, and end by exit(), whatever the writer's thread is doing; the parent goes on. */
static void go_on_with_children(void)
{
	for (unsigned i = 0; i < CHILDREN; i++) {
		int status;
		pid_t child;

		if (i)
			good(field_put(u, "u", MORE + i - 1, MORE + i));
		else
			set_out();
		usleep(i * 40);
		child = fork();
		if (!child)
			be_a_child();
		DEMAND(waitpid(child, &status, 0) == child);
		DEMAND(WIFEXITED(status) && WEXITSTATUS(status) == STATUS + 1);
	}
	good(field_put(u, "u", MORE + CHILDREN - 1, MORE + CHILDREN));
	good(field_put(p, "p", MORE, MORE + CHILDREN));
	good(sluice_writer_close(w, -1));
	good(sluice_context_close(ctx));
	exit(STATUS);
}

static void goes_on_though_a_child_ended(void)
{
	go_on_with_children();
}

static void goes_on_though_a_child_with_hdf5_ended(void)
{
	use_hdf5();
	go_on_with_children();
}

/* ------------------------------------------------------------------------------- a dead thread */

static unsigned dies_at;

/* The thread that has the file, in a write of HDF5's. */
static int leave_the_thread(unsigned point)
{
	if (point == dies_at) {
		points_hook = NULL;
		pthread_exit(NULL);
	}
	return 0;
}

static void its_thread_dies(void)
{
	struct sluice_writer_failure error = {.size = sizeof(error)};
	double time = 0;
	uint64_t frame = MORE;
	void *memory;
	int rc = 0;

	set_out();
	good(sluice_writer_flush(w, -1));
	dies_at = shared->moment;
	points_hook = leave_the_thread;
	for (; !rc && frame < 1000; frame++) {
		rc = field_put(u, "u", frame, frame + 1);
		if (!rc && frame % 3 == 0)
			rc = sluice_writer_flush(w, -1);
	}
	DEMAND(rc == -EIO);
	DEMAND(strstr(sluice_last_message(), "died"));
	DEMAND(sluice_writer_error(w, &error) == 1 && error.error == -EIO);
	DEMAND(sluice_series_acquire(p, -1, &memory) == -EIO);
	DEMAND(sluice_series_push(p, folder, &time, -1) == -EIO);
	DEMAND(sluice_writer_flush(w, -1) == -EIO);
	DEMAND(field_add(w, "x", "none", 0, &u) == -EIO);
	DEMAND(sluice_writer_close(w, SECONDS * 1000) == -EIO);
	good(sluice_context_close(ctx));
	end_by_exit(STATUS);
}

/* ---------------------------------------------------------------------------------------- test */

static void run(void (*what)(void), uint64_t least, uint64_t most)
{
	pid_t process;
	int status;

	unlink(path);
	shared->promised = 0;
	process = fork();
	if (!process) {
		alarm(SECONDS);
		what();
		_exit(3);
	}
	assert_int_equal(waitpid(process, &status, 0), process);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS)
		fail_msg("%u: %s %d", shared->moment, WIFEXITED(status) ? "status" : "signal",
		         WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	least = SL_MAX(least, shared->promised);
	assert_int_equal(field_look_apart(path, "u", least, most), 0);
	assert_int_equal(field_look_apart(path, "p", SL_MIN(least, MORE), SL_MIN(most, 30)), 0);
}

TEST(exit_leaves_the_last_flush)
{
	run(ends_at_once, FLUSHED, FLUSHED);
	run(ends_after_hdf5_was_used, FLUSHED, FLUSHED);
}

TEST(exit_comes_at_any_moment)
{
	unsigned rounds = getenv("STRESS") ? 100 : 6;

	for (shared->moment = 0; shared->moment < rounds; ++shared->moment) {
		run(ends_while_threads_are_in_it, FLUSHED, UINT64_MAX / 2);
		run(ends_while_threads_are_in_it_and_in_hdf5, FLUSHED, UINT64_MAX / 2);
		run(ends_while_it_is_closed, FLUSHED, MORE);
	}
}

TEST(partial_frame_is_not_shown_by_other_hdf5_calls)
{
	unsigned rounds = getenv("STRESS") ? 100 : 10;

	for (shared->moment = 0; shared->moment < rounds; ++shared->moment)
		run(dies_while_hdf5_flushes_all, FLUSHED, FLUSHED);
}

TEST(a_child_that_exits_harms_nothing)
{
	unsigned rounds = getenv("STRESS") ? 100 : 2;

	for (unsigned i = 0; i < rounds; i++) {
		run(goes_on_though_a_child_ended, MORE + CHILDREN, MORE + CHILDREN);
		run(goes_on_though_a_child_with_hdf5_ended, MORE + CHILDREN, MORE + CHILDREN);
	}
}

TEST(a_writer_whose_thread_dies_says_so_and_leaves_the_last_flush)
{
	unsigned most = getenv("STRESS") ? 200 : 60, step = getenv("STRESS") ? 1 : 6;

	for (shared->moment = 1; shared->moment < most; shared->moment += step)
		run(its_thread_dies, MORE, 1000);
}

int main(void)
{
	const char *base = getenv("SLUICE_TEST_DIR");
	char own[300];
	int failed;

	snprintf(folder, sizeof(folder), "%.200s/end-XXXXXX", base ? base : ".");
	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof(path), "%s/frames.h5", folder);
	snprintf(own, sizeof(own), "%s/own.h5", folder);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	if (shared == MAP_FAILED)
		return 1;
	failed = RUN_TESTS(NULL, NULL);
	unlink(path);
	unlink(own);
	rmdir(folder);
	return failed;
}
