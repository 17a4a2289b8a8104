/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep: a small program reads and writes in every way, in a child in which one or two system calls are refused, each with
 * one of four errors, from some moment on. Whatever is refused, the bytes are right or there is an error with a sentence, and
 * nothing hangs.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/support.h"

#define LENGTH  (MIB + 12345)
#define SKIPPED 77
#define PATIENT 40 /* seconds of a child, on a busy machine */

/*
 * What the library calls. Not write() and futex(), by which all waits of all threads end, and what the C library needs for
 * itself. Without the spare ones everything goes on.
 */
#define CALL(name)                       \
	{                                \
#name, SYS_##name, false \
	}
#define SPARE(name)                     \
	{                               \
#name, SYS_##name, true \
	}
static const struct {
	const char *name;
	int number;
	bool spare;
} calls[] = {
	CALL(read),
	SPARE(pread64),
	SPARE(pwrite64),
	SPARE(preadv),
	SPARE(pwritev),
	SPARE(preadv2),
	SPARE(pwritev2),
	CALL(openat),
	CALL(close),
	CALL(fstat),
	CALL(newfstatat),
	SPARE(statx),
	CALL(fstatfs),
	CALL(lseek),
	CALL(fcntl),
	CALL(ioctl),
	SPARE(flock),
	CALL(fsync),
	CALL(fdatasync),
	CALL(ftruncate),
	SPARE(fallocate),
	SPARE(fadvise64),
	SPARE(renameat),
	SPARE(renameat2),
	SPARE(linkat),
	CALL(unlinkat),
	CALL(readlinkat),
	SPARE(faccessat),
	SPARE(getdents64),
	CALL(getcwd),
	SPARE(madvise),
	SPARE(mincore),
	CALL(mmap),
	CALL(mprotect),
	CALL(eventfd2),
	CALL(pipe2),
	SPARE(ppoll),
	SPARE(clone),
	CALL(clone3),
	SPARE(prctl),
	SPARE(sched_getaffinity),
	SPARE(sched_yield),
	SPARE(nanosleep),
	SPARE(clock_nanosleep),
	SPARE(clock_gettime),
	CALL(getrandom),
	SPARE(getpid),
	SPARE(gettid),
	SPARE(getuid),
	CALL(geteuid),
	SPARE(getgid),
	SPARE(getrlimit),
	SPARE(prlimit64),
	SPARE(sysinfo),
	SPARE(uname),
	SPARE(getcpu),
	CALL(fchmod),
	CALL(fchown),
	SPARE(set_robust_list),
	CALL(rt_sigprocmask),
	SPARE(io_uring_setup),
	SPARE(io_uring_enter),
	SPARE(io_uring_register),
	{"cachestat", 451, true},
#ifdef SYS_rename
	CALL(rename),
	SPARE(link),
	CALL(unlink),
	CALL(readlink),
	SPARE(access),
	SPARE(lstat),
	SPARE(poll),
#endif
};
static const int errors[] = {EPERM, ENOSYS, EINVAL, EOPNOTSUPP};
static const char *const moments[] = {"from the start", "after the context", "after the open",
                                      "in the middle"};

struct refusal {
	size_t call[2];
	int error[2];
	unsigned count, moment;
};

static bool is_spare(const struct refusal *r)
{
	for (unsigned i = 0; i < r->count; i++)
		if (!calls[r->call[i]].spare)
			return false;
	return true;
}

/* What the child tells, in memory that it shares with the test. */
static struct report {
	char wrong[300];              /* what was not right, or "" */
	bool whole, renewed, changed; /* the files that must be as written */
	bool refused;                 /* something was */
} * report;

static char folder[256];
static bool must_succeed; /* of the child: what is refused is not needed */

static const char *path_of(const char *name)
{
	static char paths[4][300];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

/* --------------------------------------------------------------------------------- in the child */

static void refuse(const struct refusal *r)
{
	struct sock_filter filter[6];
	unsigned short n = 0;
	struct sock_fprog program = {0, filter};

	filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
	                                           offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < r->count; i++) {
		filter[n++] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[r->call[i]].number, 0, 1);
		filter[n++] = (struct sock_filter)BPF_STMT(
			BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)r->error[i]);
	}
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
		_exit(SKIPPED);
}

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(report->wrong, sizeof(report->wrong), format, arguments);
	va_end(arguments);
	_exit(1);
}

/* Returns whether a call succeeded; else it has said why. */
static bool said(const char *what, int rc)
{
	if (rc >= 0)
		return true;
	report->refused = true;
	if (!*sluice_last_message())
		wrong("%s: %d without a sentence", what, rc);
	if (must_succeed)
		wrong("%s: %s", what, sluice_last_message());
	return false;
}

/* Waits for an operation, and frees it; returns whether it has moved n bytes. */
static bool moved(const char *what, int rc, sluice_op **started, size_t n)
{
	sluice_op *op;
	int64_t got;

	if (!said(what, rc))
		return false;
	op = *started;
	got = sluice_wait(op, -1);
	if (got < 0) {
		report->refused = true;
		if (!*sluice_op_message(op))
			wrong("%s: %d without a sentence", what, (int)got);
		if (got == -ECANCELED || got == -EINPROGRESS || must_succeed)
			wrong("%s: %s", what, sluice_op_message(op));
	} else if ((size_t)got != n) {
		wrong("%s: %lld of %zu bytes", what, (long long)got, n);
	}
	sluice_op_free(op);
	return got >= 0;
}

static bool write_at(sluice_file *file, const unsigned char *bytes, size_t n, size_t at)
{
	sluice_op *op = NULL;

	return moved("write", sluice_write(file, bytes + at, n, at, &op), &op, n);
}

static void read_at(sluice_file *file, const unsigned char *bytes, unsigned char *back, size_t n,
                    size_t at)
{
	sluice_op *op = NULL;

	memset(back, 0, n);
	if (moved("read", sluice_read(file, back, n, at, &op), &op, n) &&
	    first_difference(back, bytes + at, n) != n)
		wrong("read: byte %zu of %zu at %zu", first_difference(back, bytes + at, n), n, at);
}

static void read_extents(sluice_file *file, const unsigned char *bytes, unsigned char *back)
{
	struct sluice_extent v[20];
	sluice_op *op = NULL;
	size_t sum = 0;

	for (size_t i = 0; i < COUNT_OF(v); i++) {
		v[i] = (struct sluice_extent){back + sum, 100 + i, 50000 + i * i * 500};
		sum += v[i].length;
	}
	if (!moved("readv", submit_read(file, v, COUNT_OF(v), &op), &op, sum))
		return;
	for (size_t i = 0; i < COUNT_OF(v); i++)
		if (memcmp(v[i].data, bytes + v[i].offset, v[i].length))
			wrong("readv: extent %zu", i);
}

/* A file under its own name: all ways to write and to read. */
static void use_file(sluice_context *ctx, const struct refusal *r, unsigned char *bytes,
                     unsigned char *back)
{
	struct sluice_file_info info = {.size = sizeof(info)};
	sluice_op *op = NULL;
	sluice_file *file;
	bool ok;

	if (!said("open",
	          open_flags(ctx, path_of("whole"),
	                     SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE, &file)))
		return;
	if (r->moment == 2)
		refuse(r);
	ok = said("write", sluice_write(file, bytes, 768 * KIB, 0, &op));
	if (r->moment == 3)
		refuse(r);
	ok = ok && moved("write", 0, &op, 768 * KIB);
	ok = write_at(file, bytes, LENGTH - 768 * KIB, 768 * KIB) && ok;
	ok = write_at(file, bytes, 100, 4000) && ok;
	ok = said("sync", sluice_sync(file)) && ok;
	for (int i = 0; i < 2 && ok; i++) {
		int fd = open(path_of("whole"), O_RDONLY);

		/* Cold, as far as this is allowed. */
		if (fd >= 0 && !i) {
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			close(fd);
		}
		read_at(file, bytes, back, MIB, 0);
		read_at(file, bytes, back, 10, 7000);
		read_at(file, bytes, back, 300000, 12345);
		read_extents(file, bytes, back);
	}
	if (said("stat", sluice_stat(file, &info)) && ok && info.length != LENGTH)
		wrong("stat: %llu bytes", (unsigned long long)info.length);
	/* Cancelled, which ends somehow. */
	if (said("read", sluice_read(file, back, MIB, 0, &op))) {
		sluice_cancel(op);
		if (sluice_wait(op, -1) == -EINPROGRESS)
			wrong("an operation that was cancelled has no end");
		sluice_op_free(op);
	}
	ok = said("truncate", sluice_truncate(file, LENGTH - 1)) && ok;
	ok = write_at(file, bytes, 1, LENGTH - 1) && ok;
	report->whole = said("close", sluice_close(file)) && ok;
}

/* A file that takes a name when it is complete. */
static bool replace(sluice_context *ctx, const char *name, unsigned flags,
                    const unsigned char *bytes)
{
	sluice_file *file;
	bool ok;

	if (!said("open", open_flags(ctx, path_of(name), SLUICE_OPEN_REPLACE | flags, &file)))
		return false;
	ok = write_at(file, bytes, LENGTH, 0);
	return said("close", sluice_close(file)) && ok;
}

static void use(const struct refusal *r)
{
	struct sluice_config c = row_config();
	unsigned char *bytes = malloc(LENGTH), *back = malloc(LENGTH);
	sluice_context *ctx;

	pattern_fill(bytes, LENGTH, 0, 1);
	alarm(PATIENT);
	must_succeed = is_spare(r);
	if (r->moment == 0)
		refuse(r);
	if (!said("context", sluice_context_new(&c, &ctx)))
		_exit(0);
	if (r->moment == 1)
		refuse(r);
	said("done fd", sluice_queue_fd(sluice_context_queue(ctx)));
	use_file(ctx, r, bytes, back);
	report->renewed = replace(ctx, "new", SLUICE_OPEN_EXCLUSIVE, bytes);
	report->changed = replace(ctx, "old", SLUICE_OPEN_DURABLE, bytes);
	said("free", sluice_context_close(ctx));
	_exit(0);
}

/* --------------------------------------------------------------------------------- in the test */

static const char *text_of(const struct refusal *r)
{
	static char text[300];
	int n = 0;

	for (unsigned i = 0; i < r->count; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%s %s, ", calls[r->call[i]].name,
		              strerrorname_np(r->error[i]));
	snprintf(text + n, sizeof(text) - (size_t)n, "%s", moments[r->moment]);
	return text;
}

/* Returns whether a file is all of it, none of it (-1), or old (0); fails for anything else. */
static int content_of(const struct refusal *r, const char *name)
{
	static unsigned char there[LENGTH + 1];
	int fd = open(path_of(name), O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, there, sizeof(there));
	close(fd);
	if (n == 3 && !memcmp(there, "old", 3))
		return 0;
	if (n == (ssize_t)LENGTH && pattern_match(there, LENGTH, 0, 1) == LENGTH)
		return 1;
	if (strcmp(name, "whole"))
		fail_msg("%s: '%s' has %zd bytes, not its own", text_of(r), name, n);
	return 2;
}

static void check(const struct refusal *r)
{
	int fd = open(path_of("old"), O_WRONLY | O_CREAT | O_TRUNC, 0600), status;
	pid_t child;

	assert_int_equal(write(fd, "old", 3), 3);
	close(fd);
	unlink(path_of("new"));
	unlink(path_of("whole"));
	memset(report, 0, sizeof(*report));
	child = fork();
	if (!child)
		use(r);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		SKIP("no filter of system calls is allowed here");
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		fail_msg("%s: it hangs", text_of(r));
	if (status)
		fail_msg("%s: status %x: %s", text_of(r), (unsigned)status, report->wrong);
	status = content_of(r, "whole");
	if (report->whole && status != 1)
		fail_msg("%s: the file is not what was written", text_of(r));
	status = content_of(r, "new");
	if (status == 0 || (report->renewed && status != 1))
		fail_msg("%s: the new file is not there", text_of(r));
	status = content_of(r, "old");
	if (status == -1 || (report->changed && status != 1))
		fail_msg("%s: the file that was replaced is not there", text_of(r));
}

static int setup(void **state)
{
	const char *below = getenv("SLUICE_TEST_DIR");

	(void)state;
	snprintf(folder, sizeof(folder), "%s/refused.XXXXXX", below ? below : "/tmp");
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	return report == MAP_FAILED || !mkdtemp(folder) ? -1 : 0;
}

static int teardown(void **state)
{
	char command[300];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

TEST_WITH(whatever_is_refused_the_bytes_are_right_or_a_sentence_says_why, setup, teardown)
{
	struct rng r = rng_new(1600);
	size_t all = COUNT_OF(calls) * COUNT_OF(errors) * COUNT_OF(moments);
	unsigned refused = 0, rounds = under_stress() ? 2 * (unsigned)all : 90;

	for (unsigned i = 0; i < rounds; i++) {
		/* Under stress each single refusal, and as many pairs. */
		size_t n = under_stress() && i < all ? i : rng_below(&r, all);
		struct refusal one = {.count = i < rounds / 2 ? 1 : 2};

		one.call[0] = n % COUNT_OF(calls);
		one.error[0] = errors[n / COUNT_OF(calls) % COUNT_OF(errors)];
		one.moment = (unsigned)(n / COUNT_OF(calls) / COUNT_OF(errors));
		one.call[1] = rng_below(&r, COUNT_OF(calls));
		one.error[1] = errors[rng_below(&r, COUNT_OF(errors))];
		check(&one);
		refused += report->refused;
	}
	print_message("%u rounds, in %u of which there was an error\n", rounds, refused);
}

/* The calls with vectors have two other forms, of which at most two are refused. */
TEST_WITH(without_vectors_or_flags_everything_goes_on, setup, teardown)
{
	static const int pairs[][2] = {{SYS_preadv, SYS_preadv2},
	                               {SYS_preadv2, SYS_pread64},
	                               {SYS_pwritev, SYS_pwritev2},
	                               {SYS_pwritev2, SYS_pwrite64}};
	struct refusal both = {.count = 2, .moment = 1};

	for (size_t i = 0; i < COUNT_OF(pairs) * COUNT_OF(errors); i++) {
		for (size_t k = 0; k < COUNT_OF(calls); k++)
			for (unsigned j = 0; j < 2; j++)
				if (calls[k].number == pairs[i % COUNT_OF(pairs)][j])
					both.call[j] = k;
		both.error[0] = errors[i / COUNT_OF(pairs)];
		both.error[1] = errors[(i / COUNT_OF(pairs) + 2) % COUNT_OF(errors)];
		check(&both);
	}
}

/* Without any refusal all must be right. */
FIRST_TEST(the_program_of_the_sweep_works)
{
	struct refusal none = {.moment = 4};

	assert_int_equal(setup(NULL), 0);
	check(&none);
	assert_true(report->whole && report->renewed && report->changed);
	assert_int_equal(teardown(NULL), 0);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	printf("row %s\n", row->name);
	return RUN_TESTS(NULL, NULL);
}
