/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that end while operations are in flight, some on streams that will never come to them. They
 * end, and the next process finds the device as it is to be.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/check.h"

enum { STREAMS = 8, CHILD_SECONDS = 20 };

/* ------------------------------------------------------------------------------- who ends early */

static void start_operations(void)
{
	/* Not lost when main() returns. */
	static struct gpu_hold holds[2];
	static sluice_file *in, *out;
	size_t n = file_bytes / 8;
	sluice_stream streams[STREAMS];
	char *memory[STREAMS];

	in = open_in();
	out = open_out();
	for (int i = 0; i < STREAMS; i++) {
		memory[i] = new_memory(0, 2 * n);
		streams[i] = new_stream(0);
	}
	MUST(sluice_context_staging(ctx, gpu_device(0), NULL, 0));
	GPU(gpu_hold(0, streams[0], &holds[0]));
	GPU(gpu_hold(0, streams[1], &holds[1]));
	for (int i = 0; i < STREAMS; i++) {
		uint64_t at = (uint64_t)i * n;

		/* Enough for those that run, and little that those hold which do not. */
		size_t part = i < 2 ? 100000 : n;

		MUST(sluice_read_on(in, memory[i], part, at, streams[i], NULL));
		GPU(gpu_scribble(0, streams[i], memory[i], part, 1));
		MUST(sluice_write_on(out, memory[i], part, at, streams[i], NULL));
		MUST(sluice_read(in, memory[i] + n, n, at, NULL));
	}
}

static void *end_on_thread(void *unused)
{
	(void)unused;
	exit(0);
}

/* What a process does that is to show how one ends. */
static int end_early(const char *how)
{
	pthread_t thread;

	start_operations();
	if (!strcmp(how, "exit"))
		exit(0);
	if (!strcmp(how, "_exit"))
		_exit(0);
	if (!strcmp(how, "term"))
		kill(getpid(), SIGTERM);
	if (!strcmp(how, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(how, "thread") && !pthread_create(&thread, NULL, end_on_thread, NULL))
		for (;;)
			pause();
	return 0;
}

/* ------------------------------------------------------------------------------- who comes next */

/* Whether the device works, for a process that begins now. */
static int use_device(void)
{
	struct gpu_match match;
	sluice_stream stream = new_stream(0);
	void *memory = new_memory(0, MIB);
	sluice_file *in = open_in();
	sluice_op *op;
	bool good;

	MUST(sluice_read_on(in, memory, MIB, 1, stream, &op));
	look_on(0, stream, &match, memory, MIB, 1);
	good = right(0, stream, &match, "read") && moved(op, MIB);
	MUST(sluice_close(in));
	MUST(sluice_device_free(memory));
	MUST(sluice_stream_free(stream));
	MUST(sluice_context_close(ctx));
	return !good;
}

int play(const char *how)
{
	if (!strncmp(how, "share-", 6))
		return share_end(how);
	return strcmp(how, "use") ? end_early(how) : use_device();
}

static bool ends(const char *how, int expected)
{
	static const char *const then = "use";
	int status = run_self(how, CHILD_SECONDS);
	int signo = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (status == -1 || signo != expected || (!signo && WEXITSTATUS(status))) {
		printf("       it %s: status %#x\n",
		       status == -1 ? "did not end" : "ended otherwise", (unsigned)status);
		return false;
	}
	status = run_self(then, CHILD_SECONDS);
	if (status)
		printf("       the next process %s: status %#x\n",
		       status == -1 ? "did not end" : "failed", (unsigned)status);
	return !status;
}

static bool by_exit(void)
{
	return ends("exit", 0);
}

static bool by_return(void)
{
	return ends("return", 0);
}

static bool on_another_thread(void)
{
	return ends("thread", 0);
}

static bool by__exit(void)
{
	return ends("_exit", 0);
}

static bool by_term(void)
{
	return ends("term", SIGTERM);
}

static bool by_kill(void)
{
	return ends("kill", SIGKILL);
}

const struct check exit_checks[] = {
	{"exit", "a process may end by exit() with operations in flight", by_exit, 50, true},
	{"return", "and by return from main()", by_return, 50, true},
	{"exit_thread", "and by exit() on another thread", on_another_thread, 50, true},
	{"_exit", "and by _exit()", by__exit, 50, true},
	{"term", "and by SIGTERM", by_term, 50, true},
	{"kill", "and by SIGKILL", by_kill, 50, true},
	{NULL, NULL, NULL, 0, true},
};

const struct check *const check_tables[] = {bytes_checks,   stream_checks, pointer_checks,
                                            sharing_checks, exit_checks,   NULL};
