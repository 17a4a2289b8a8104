/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left of a file when its writer dies, or a write fails, at any point. Every run has a
 * process of its own, so that HDF5 begins anew; a tenth of the points, with STRESS all of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "h5file/points.h"
#include "h5file/workload.h"
#include "lib/support.h"
#include "lib/unit.h"

/* What a run tells; in memory that it shares with the test. */
struct told {
	volatile unsigned flushed;
	unsigned points, at; /* all of them; the one where something was made to happen */
	unsigned after;      /* points after that one */
	unsigned sights[SIGHTS], bad;
	int error;
	struct sl_ordered_vfd vfd;
};

static struct told *told;
static char path[512];
static unsigned stride, usual_stride, phase; /* which points are looked at */
static const char *looker_path = path;
static int injected;
static struct {
	int ask, answer;
	pid_t process;
} looker;

/* ---------------------------------------------------------------------------------- processes */

static int end_of(pid_t process)
{
	int status;

	while (waitpid(process, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return status;
}

/* Looks from a process of its own: HDF5 may not survive a broken file. */
static enum sight look(const struct workload *load, unsigned flushed)
{
	pid_t process = fork();
	int status;

	if (process == 0) {
		setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
		alarm(20);
		_exit(workload_look(load, path, flushed));
	}
	assert_true(process > 0);
	status = end_of(process);
	return WIFEXITED(status) ? WEXITSTATUS(status) : SIGHT_CLOSED;
}

/* Looks again and again, while all is right. Whether somebody else is to go on. */
static int look_on(const struct workload *load, int ask, int answer)
{
	enum sight sight = SIGHT_RIGHT;
	unsigned flushed;

	setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
	while (sight == SIGHT_RIGHT && read(ask, &flushed, sizeof(flushed)) == sizeof(flushed)) {
		alarm(20);
		sight = workload_look(load, looker_path, flushed);
		if (write(answer, &sight, sizeof(sight)) != sizeof(sight))
			abort();
	}
	return sight != SIGHT_RIGHT;
}

/* A process that has never called HDF5, and forks for the looks, anew after each broken file. */
static void looker_start(const struct workload *load)
{
	static const enum sight broken = SIGHT_CLOSED;
	int ask[2], answer[2], status = 1;

	if (pipe2(ask, O_CLOEXEC) < 0 || pipe2(answer, O_CLOEXEC) < 0)
		abort();
	looker.process = fork();
	if (looker.process == 0) {
		close(ask[1]);
		while (status) {
			pid_t process = fork();

			if (process == 0)
				_exit(look_on(load, ask[0], answer[1]));
			if (waitpid(process, &status, 0) != process ||
			    (!WIFEXITED(status) &&
			     write(answer[1], &broken, sizeof(broken)) != sizeof(broken)))
				abort();
		}
		_exit(0);
	}
	close(ask[0]);
	close(answer[1]);
	looker.ask = ask[1];
	looker.answer = answer[0];
}

static void looker_stop(void)
{
	close(looker.ask);
	close(looker.answer);
	waitpid(looker.process, NULL, 0);
}

/* ---------------------------------------------------------------------------------- the hooks */

static int count(unsigned point)
{
	told->points = point;
	return 0;
}

static void ask_looker(unsigned point)
{
	unsigned flushed = told->flushed;
	enum sight sight;

	if (write(looker.ask, &flushed, sizeof(flushed)) != sizeof(flushed) ||
	    read(looker.answer, &sight, sizeof(sight)) != sizeof(sight))
		abort();
	told->sights[sight]++;
	if (sight != SIGHT_RIGHT && !told->bad)
		told->bad = point;
}

static int watch(unsigned point)
{
	told->points = point;
	if (point >= told->at && point % stride == phase % stride)
		ask_looker(point);
	return 0;
}

static int die(unsigned point)
{
	told->points = point;
	if (point == told->at)
		kill(getpid(), SIGKILL);
	return 0;
}

static int refuse(unsigned point)
{
	told->points = point;
	told->after += point > told->at;
	return point == told->at ? injected : 0;
}

/* ---------------------------------------------------------------------------- loss of power */

/* The disk: what was there at the last barrier, and what may or may not have come there since. */
static struct {
	uint8_t *bytes, *image;
	size_t size;
	struct lost {
		int64_t offset;
		size_t size; /* 0: offset is the length of the file */
		uint8_t bytes[4096];
	} writes[20000];
	size_t count;
	uint64_t seed;
} disk;
enum { DISK_BYTES = 4 << 20 };
static char image_path[sizeof(path)];

static void remember(int64_t offset, const void *bytes, size_t size)
{
	struct lost *write = &disk.writes[disk.count++];

	if (disk.count == sizeof(disk.writes) / sizeof(disk.writes[0]) ||
	    offset + size > DISK_BYTES)
		abort();
	write->offset = offset;
	write->size = size;
	if (bytes)
		memcpy(write->bytes, bytes, size);
}

/* Each write has come, or not, with a probability of share in 4. The length of the file. */
static size_t apply(uint8_t *bytes, size_t length, unsigned share)
{
	for (size_t i = 0; i < disk.count; i++) {
		const struct lost *write = &disk.writes[i];

		if (unit_random(&disk.seed) % 4 >= share)
			continue;
		memcpy(bytes + write->offset, write->bytes, write->size);
		length = SL_MAX(length, (size_t)write->offset + write->size);
	}
	return length;
}

static void lose_power(void)
{
	for (unsigned share = 1; share < 4; share++) {
		int fd = open(image_path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
		size_t length;

		memcpy(disk.image, disk.bytes, DISK_BYTES);
		length = apply(disk.image, disk.size, share);
		if (fd < 0 || write(fd, disk.image, length) != (ssize_t)length || close(fd) < 0)
			abort();
		ask_looker(told->points);
	}
	disk.size = apply(disk.bytes, disk.size, 4);
	disk.count = 0;
}

/* Writes load in a new process, with hook at each point. Its status as waitpid() has it. */
static int run(struct workload load, int (*hook)(unsigned), unsigned at)
{
	pid_t process;

	memset(told, 0, sizeof(*told));
	told->at = at;
	unlink(path);
	process = fork();
	if (process == 0) {
		int error;

		alarm(600);
		if (hook == watch)
			looker_start(&load);
		points_hook = hook;
		error = workload_write(&load, path, &told->flushed);
		points_hook = NULL;
		told->vfd = load.vfd;
		told->error = error;
		if (hook == watch)
			looker_stop();
		/* exit() looks for leaks. */
		if (load.leaks)
			_exit(0);
		exit(0);
	}
	assert_true(process > 0);
	return end_of(process);
}

/* ---------------------------------------------------------------------------------- the cases */

static const struct workload small = {.rows = 3, .columns = 3, .every = 3};
/* Four children a node: the index gets six levels, and nearly every flush splits. */
static const struct workload deep = {.rows = 3, .columns = 3, .every = 3, .node = 2};
static const struct workload mixed = {
	.rows = 3, .columns = 3, .every = 5, .node = 2, .mixed = true};
/* Nodes of 6208 bytes, as of a page and a half. */
static const struct workload long_nodes = {.rows = 3, .columns = 3, .every = 3, .node = 64};
static const struct workload appended = {.rows = 2, .columns = 3, .every = 4, .appended = 50};
static const struct workload adding = {.rows = 2, .columns = 2, .every = 3, .adds = true};
static const struct workload large = {.rows = 6, .columns = 6, .every = 2};

/* from: the first point that is looked at. */
static void watch_from(const char *name, struct workload load, unsigned from)
{
	assert_int_equal(run(load, watch, from), 0);
	print_message("%-24s %5u points: %u right, %u lost, %u wrong, %u do not open; %llu bytes "
	              "of metadata in %llu flushes, at most %llu held\n",
	              name, told->points, told->sights[SIGHT_RIGHT], told->sights[SIGHT_LOST],
	              told->sights[SIGHT_WRONG], told->sights[SIGHT_CLOSED],
	              (unsigned long long)told->vfd.metadata_bytes,
	              (unsigned long long)told->vfd.flushes,
	              (unsigned long long)told->vfd.held_most);
	if (told->bad)
		print_message("the first bad one is point %u\n", told->bad);
	assert_int_equal(told->error, 0);
	assert_int_equal(look(&load, WORKLOAD_FRAMES), SIGHT_RIGHT);
}

static void watch_it(const char *name, struct workload load)
{
	watch_from(name, load, 0);
}

static void expect_right(const char *name, struct workload load)
{
	watch_it(name, load);
	assert_true(told->sights[SIGHT_RIGHT] >= told->points / stride);
	assert_int_equal(told->bad, 0);
	assert_int_equal(told->vfd.held, 0);
}

TEST(no_flushed_frame_is_lost_wherever_the_writer_dies)
{
	struct workload durable = small;

	expect_right("small", small);
	expect_right("deep index", deep);
	expect_right("deep, any order", mixed);
	expect_right("long nodes", long_nodes);
	expect_right("appended", appended);
	expect_right("datasets added", adding);
	durable.vfd.durable = true;
	durable.every = 10;
	expect_right("durable", durable);
	if (getenv("STRESS"))
		expect_right("large", large);
}

/* The index is a leaf of 85 entries, and with the last flush a root of 88 leaves; 84 entries are in the first page. */
TEST(a_leaf_becomes_a_root_whose_entries_do_not_fit_a_page)
{
	static const struct workload load = {.rows = 5,
	                                     .columns = 17,
	                                     .every = 1000,
	                                     .node = 64,
	                                     .appended = WORKLOAD_FRAMES - 1};

	assert_int_equal(run(load, count, 0), 0);
	stride = 1;
	watch_from("leaf to root", load, told->points - 60);
	stride = usual_stride;
	assert_int_equal(told->bad, 0);
}

TEST(the_driver_of_hdf5_does_lose_some)
{
	struct workload load = deep;

	stride = SL_MIN(stride, 10u);
	load.sec2 = true;
	watch_it("HDF5's own, deep", load);
	assert_true(told->sights[SIGHT_RIGHT] < told->points / stride);
	load = small;
	load.sec2 = true;
	watch_it("HDF5's own, small", load);
	assert_true(told->sights[SIGHT_RIGHT] < told->points / stride);
	stride = usual_stride;
}

TEST(a_process_that_was_killed_has_left_what_was_flushed)
{
	const struct workload *loads[] = {&small, &deep};
	unsigned runs = 0;

	for (size_t i = 0; i < 2; i++) {
		unsigned points, step;

		assert_int_equal(run(*loads[i], count, 0), 0);
		points = told->points;
		step = SL_MAX(points / (getenv("STRESS") ? 400 : 20), 1u);
		for (unsigned at = 1 + phase % step; at <= points; at += step, runs++) {
			int status = run(*loads[i], die, at);

			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
			assert_int_equal(look(loads[i], told->flushed), SIGHT_RIGHT);
		}
	}
	print_message("%u processes killed\n", runs);
}

TEST(a_write_that_fails_leaves_what_was_flushed)
{
	static const int errors[] = {ENOSPC, EIO};
	struct workload load = deep;
	unsigned points, step, runs = 0;

	assert_int_equal(run(load, count, 0), 0);
	points = told->points;
	step = getenv("STRESS") ? 1 : points / (under_sanitizer() ? 20 : 60);
	for (unsigned at = 1 + phase % step; at <= points; at += step, runs++) {
		injected = errors[runs % 2];
		assert_int_equal(run(load, refuse, at), 0);
		/* The last flush is in H5Fclose, which cannot say so. */
		assert_int_equal(told->vfd.error, -injected);
		assert_int_equal(told->after, 0);
		assert_int_equal(told->vfd.held, 0);
		assert_int_equal(look(&load, told->flushed), SIGHT_RIGHT);
	}
	print_message("%u runs with a write that fails\n", runs);
}

static void lose_power_everywhere(const char *name, struct workload load, unsigned every)
{
	load.vfd.durable = true;
	load.every = getenv("STRESS") ? 2 : every;
	snprintf(image_path, sizeof(image_path), "%.500s.disk", path);
	looker_path = image_path;
	points_written = remember;
	points_barrier = lose_power;
	disk.bytes = calloc(2, DISK_BYTES);
	disk.image = disk.bytes + DISK_BYTES;
	disk.seed = phase;
	/* Between the barriers the image is that of the last one: nobody looks. */
	watch_from(name, load, UINT32_MAX);
	points_written = NULL;
	points_barrier = NULL;
	looker_path = path;
	free(disk.bytes);
	unlink(image_path);
	memset(&disk, 0, sizeof(disk));
	assert_true(told->sights[SIGHT_RIGHT] > 3 * 3);
	assert_int_equal(told->bad, 0);
}

TEST(durable_frames_survive_the_loss_of_power)
{
	lose_power_everywhere("loss of power", deep, 20);
	/* Two flushes split leaves that have entries in their second page. */
	lose_power_everywhere("the same, long nodes", long_nodes, 6);
}

TEST(held_blocks_stay_below_the_limit)
{
	struct workload load = deep;

	load.every = 40;
	assert_int_equal(run(load, count, 0), 0);
	assert_true(told->vfd.held_most > 16384);
	load.vfd.held_limit = 16384;
	expect_right("limit of 16 KiB", load);
	assert_true(told->vfd.held_most <= 16384);
	assert_true(told->vfd.early_bytes > 0);
	load.vfd.held_limit = 512;
	assert_int_equal(run(load, count, 0), 0);
	assert_int_equal(told->vfd.error, -ENOBUFS);
	assert_int_equal(look(&load, told->flushed), SIGHT_RIGHT);
}

/* ------------------------------------------------------------------------------------- single */

TEST(a_list_that_is_none_of_file_access_is_refused)
{
	struct sl_ordered_vfd vfd = {0};
	pid_t process = fork();

	if (process == 0) {
		bool good = sl_ordered_vfd_set(H5P_DEFAULT, &vfd) == -EINVAL &&
		            sl_ordered_vfd_set(H5Pcreate(H5P_DATASET_CREATE), &vfd) == -EINVAL;

		H5close();
		_exit(!good);
	}
	assert_int_equal(end_of(process), 0);
}

static int open_nothing(void)
{
	struct sl_ordered_vfd vfd = {0};
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
	bool good;

	H5dont_atexit();
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	sl_ordered_vfd_set(fapl, &vfd);
	good = H5Fopen("/nowhere/at.all", H5F_ACC_RDWR, fapl) < 0 && vfd.error == -ENOENT;
	good &= H5Fcreate("/proc/no.file", H5F_ACC_TRUNC, H5P_DEFAULT, fapl) < 0 && vfd.error < 0;
	H5Pclose(fapl);
	H5close();
	return !good;
}

TEST(errors_of_open_are_told)
{
	pid_t process = fork();

	if (process == 0)
		exit(open_nothing());
	assert_int_equal(end_of(process), 0);
}

/* Whether a writer is kept out while another has the file. */
static bool second_writer_is_kept_out(bool mine, bool locking)
{
	int ready[2], done[2];
	pid_t holder, other;
	char byte = 0;
	int status;

	setenv("HDF5_USE_FILE_LOCKING", locking ? "TRUE" : "FALSE", 1);
	assert_int_equal(pipe(ready) | pipe(done), 0);
	holder = fork();
	if (holder == 0) {
		struct sl_ordered_vfd vfd = {0};
		hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file;

		close(done[1]);
		sl_ordered_vfd_set(fapl, &vfd);
		file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
		H5Fflush(file, H5F_SCOPE_GLOBAL);
		if (write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 0)
			_exit(1);
		_exit(H5Fclose(file) < 0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	other = fork();
	if (other == 0) {
		struct sl_ordered_vfd vfd = {0};
		hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file;

		H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
		if (mine)
			sl_ordered_vfd_set(fapl, &vfd);
		file = H5Fopen(path, H5F_ACC_RDWR, fapl);
		if (file < 0 && mine && vfd.error != -EWOULDBLOCK)
			_exit(2);
		_exit(file < 0);
	}
	status = end_of(other);
	close(done[1]);
	assert_int_equal(end_of(holder), 0);
	close(done[0]), close(ready[0]), close(ready[1]);
	unsetenv("HDF5_USE_FILE_LOCKING");
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 2);
	return WEXITSTATUS(status);
}

TEST(the_file_is_locked_as_hdf5_locks_it)
{
	assert_true(second_writer_is_kept_out(false, true));
	assert_true(second_writer_is_kept_out(true, true));
	assert_false(second_writer_is_kept_out(false, false));
	/* The lock on the word is there all the same. */
	assert_true(second_writer_is_kept_out(true, false));
}

int main(void)
{
	const char *folder = getenv("SLUICE_TEST_DIR");
	uint64_t seed = unit_seed();
	int failed;

	stride = getenv("STRESS") ? 1 : under_sanitizer() ? 100 : 10;
	usual_stride = stride;
	phase = unit_random(&seed) % 1000;
	snprintf(path, sizeof(path), "%s/ordered-%d.h5", folder ? folder : ".", (int)getpid());
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	failed = told == MAP_FAILED ? 1 : RUN_TESTS(NULL, NULL);
	unlink(path);
	return failed;
}
