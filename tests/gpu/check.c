/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: gpu_check [--small] [DEVICE [NAME...]], and gpu_store_check the same
 *
 * Runs all checks, or those of these names, on "cuda" or another device, and prints a line for each.
 */
#include "gpu/check.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

sluice_context *ctx;
bool small;
size_t file_bytes;
uint64_t seed;
const char *const file_path = "bytes";

/* ------------------------------------------------------------------------------ for all checks */

static _Noreturn void end(int status, const char *format, va_list arguments)
{
	printf("       ");
	vprintf(format, arguments);
	printf("\n");
	fflush(stdout);
	/* Not exit(): what is in flight may be what is wrong. */
	_exit(status);
}

_Noreturn void broken(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	end(1, format, arguments);
}

_Noreturn void skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	end(SKIPPED, format, arguments);
}

void need_cuda(void)
{
	if (!gpu_is_real())
		skip("the device is emulated");
}

sluice_file *open_in(void)
{
	sluice_file *file;

	MUST(sluice_open(ctx, file_path, NULL, &file));
	return file;
}

sluice_file *open_out(void)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file;

	o.flags = SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | SLUICE_OPEN_TRUNCATE;
	MUST(sluice_open(ctx, "written", &o, &file));
	return file;
}

sluice_stream new_stream(int which)
{
	sluice_stream stream = NULL;

	MUST(sluice_stream_new(gpu_device(which), &stream));
	return stream;
}

void *new_memory(int which, size_t n)
{
	void *memory = NULL;

	MUST(sluice_device_alloc(gpu_device(which), n, &memory));
	return memory;
}

void *new_pinned(int which, size_t n)
{
	void *memory = NULL;

	MUST(sluice_pinned_alloc(gpu_device(which), n, &memory));
	return memory;
}

bool moved(sluice_op *op, size_t n)
{
	int64_t got = sluice_wait(op, 60000);

	if (got != (int64_t)n)
		printf("       %lld of %zu: %s\n", (long long)got, n, sluice_op_message(op));
	sluice_op_free(op);
	return got == (int64_t)n;
}

static void note(void *argument)
{
	(void)argument;
}

void look_for(int which, sluice_stream stream, struct gpu_match *match, const void *memory,
              size_t n, uint64_t offset, uint64_t of_seed)
{
	*match = (struct gpu_match){memory, n, offset, of_seed, NULL, n};
	GPU(gpu_match(which, stream, match, 1, note, NULL));
}

void look_on(int which, sluice_stream stream, struct gpu_match *match, const void *memory, size_t n,
             uint64_t offset)
{
	look_for(which, stream, match, memory, n, offset, seed);
}

bool right(int which, sluice_stream stream, const struct gpu_match *match, const char *what)
{
	MUST(sluice_stream_synchronize(gpu_device(which), stream));
	if (match->wrong)
		printf("       %s: %zu of %zu bytes from %llu on are wrong\n", what, match->wrong,
		       match->n, (unsigned long long)match->offset);
	return !match->wrong;
}

/* ------------------------------------------------------------------------------------ one check */

static void open_device(void)
{
	GPU(gpu_open(NULL));
	gpu_use(0);
	MUST(sluice_context_new(NULL, &ctx));
}

/* The check hangs. Addresses are for addr2line. */
static void say_where(int signo)
{
	void *frames[30];

	backtrace_symbols_fd(frames, backtrace(frames, 30), STDOUT_FILENO);
	signal(signo, SIG_DFL);
	raise(signo);
}

static int run_one(const struct check *check)
{
	bool good;

	signal(SIGALRM, say_where);
	alarm(check->seconds);
	if (!check->bare)
		open_device();
	good = check->run();
	fflush(stdout);
	if (ctx)
		MUST(sluice_context_close(ctx));
	return !good;
}

static const struct check *find(const char *name)
{
	for (int t = 0; check_tables[t]; t++)
		for (const struct check *c = check_tables[t]; c->name; c++)
			if (!strcmp(c->name, name))
				return c;
	printf("there is no check \"%s\"\n", name);
	exit(2);
}

/* ----------------------------------------------------------------------------------- all of them */

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void make_file(void)
{
	unsigned char *bytes = malloc(file_bytes);
	FILE *file = fopen(file_path, "we");

	pattern_fill(bytes, file_bytes, 0, seed);
	if (!file || fwrite(bytes, 1, file_bytes, file) != file_bytes || fclose(file)) {
		perror(file_path);
		exit(1);
	}
	free(bytes);
}

/* A grace beyond its own alarm. */
int wait_for(pid_t pid, unsigned seconds)
{
	double deadline = seconds_now() + seconds + 5;
	struct timespec pause = {0, 5000000};
	int status = 0;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (seconds_now() > deadline) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		nanosleep(&pause, NULL);
	}
	return status;
}

/* This program again, which finds the file and the seed that this one has made. */
static pid_t start_again(const char *task, const char *name)
{
	char text[32];
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
	execl("/proc/self/exe", program_invocation_short_name, small ? "--small" : "--whole", task,
	      name, text, NULL);
	_exit(126);
}

pid_t start_self(const char *how)
{
	return start_again("--end", how);
}

int run_self(const char *how, unsigned seconds)
{
	return wait_for(start_self(how), seconds);
}

static unsigned passed, failed, skipped;

static void report(const struct check *check, int status, double seconds)
{
	bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	bool none = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;

	passed += good;
	skipped += none;
	failed += !good && !none;
	printf("%s %s: %s (%.1f s)",
	       good   ? "ok     "
	       : none ? "skipped"
	              : "FAILED ",
	       check->name, check->sentence, seconds);
	if (status == -1 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
		printf(": it did not end");
	else if (WIFSIGNALED(status))
		printf(": signal %d", WTERMSIG(status));
	printf("\n");
	fflush(stdout);
}

static bool is_wanted(const struct check *check, char *const *names)
{
	bool wanted = !*names;

	for (; *names; names++)
		wanted |= !strcmp(*names, check->name);
	return wanted;
}

/* names: of those that are to run, or none; the last is NULL. */
static int run_all(char *const *names)
{
	static char folder[] = "gpu_check.XXXXXX";

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed) || !mkdtemp(folder) ||
	    chdir(folder)) {
		perror(folder);
		return 1;
	}
	make_file();
	for (int t = 0; check_tables[t]; t++) {
		for (const struct check *c = check_tables[t]; c->name; c++) {
			double begun = seconds_now();
			int status;

			if (!is_wanted(c, names))
				continue;
			status = wait_for(start_again("--check", c->name), c->seconds);
			report(c, status, seconds_now() - begun);
		}
	}
	unlink(file_path);
	unlink("written");
	/* Of a daemon that was not stopped. */
	unlink("store");
	unlink("store.lock");
	if (chdir("..") || rmdir(folder))
		perror(folder);
	printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
	return failed > 0;
}

/* Whether there is a device is found out in a process of its own, too: this one forks. */
static void look_for_device(void)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		struct sluice_device d = {.size = sizeof(d)};
		int rc;

		alarm(60);
		rc = gpu_open(NULL);
		if (rc) {
			printf("%s: %s\n", rc == -ENODEV ? "skipped" : "FAILED", gpu_message());
			exit(rc == -ENODEV ? SKIPPED : 1);
		}
		MUST(sluice_device_describe(gpu_device(0), &d));
		printf("%s: %s, %.1f GiB\n", d.name, d.detail, (double)d.memory_bytes / (1 << 30));
		exit(0);
	}
	status = wait_for(pid, 60);
	if (status)
		exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void become(uid_t user)
{
	char program[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
		broken("cannot become user %u: %s", (unsigned)user, strerror(errno));
	/* The libraries of the build lie beside it. */
	program[length > 0 ? length : 0] = '\0';
	if (access(program, R_OK))
		skip("user %u cannot reach %s: %s", (unsigned)user, program, strerror(errno));
}

/* The calling process waits for its child, which has number 1 in namespaces of its own, and ends with its status. */
static void enter_namespaces(void)
{
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS))
		skip("this system gives no new namespaces: %s", strerror(errno));
	pid = fork();
	if (!pid) {
		/* CUDA's driver looks for this process in /proc. */
		if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("proc", "/proc", "proc", 0, NULL))
			skip("cannot mount the /proc of a new namespace: %s", strerror(errno));
		return;
	}
	status = pid < 0 ? -1 : wait_for(pid, 30);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static int run_end(const char *how)
{
	/* Before the driver is loaded. */
	if (!strncmp(how, "namespaces_", 11))
		enter_namespaces();
	if (!strncmp(how, "user_", 5))
		become(OTHER_USER);
	open_device();
	return play(how);
}

int main(int argc, char **argv)
{
	small = argc > 1 && !strcmp(argv[1], "--small");
	file_bytes = (small ? 12 : 96) * MIB;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5 && !strncmp(argv[2], "--", 2)) {
		seed = strtoull(argv[4], NULL, 0);
		return strcmp(argv[2], "--end") ? run_one(find(argv[3])) : run_end(argv[3]);
	}
	argc -= small;
	argv += small;
	setenv("SLUICE_TEST_DEVICE", argc > 1 ? argv[1] : "cuda", 1);
	for (int i = 2; i < argc; i++)
		find(argv[i]);
	look_for_device();
	return run_all(argv + (argc > 2 ? 2 : argc));
}
