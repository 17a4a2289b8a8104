/* SPDX-License-Identifier: Apache-2.0 */
/* In a child of fork() the handles of its parent do not work, and nothing that it does with them harms
 * the parent. A context of its own does. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract/contract.h"

/* What the parent made; the child tries everything with it. */
struct inherited {
	sluice_context *ctx;
	sluice_file *file, *replacing;
	sluice_op *done, *running;
	sluice_queue *queue;
	const char *uri; /* of file: pattern 1 */
};

/* The number of the first check that fails, for the exit status; 0: all are right. */
#define CHECK(n, condition)       \
	do {                      \
		if (!(condition)) \
			return n; \
	} while (0)

static int try_inherited(const struct inherited *h)
{
	struct sluice_file_info st = {.size = sizeof(st)};
	struct sluice_setting setting = {.size = sizeof(setting)};
	struct sluice_feature feature = {.size = sizeof(feature)};
	struct sluice_extent v = {"x", 1, 0};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	sluice_file *file = NULL;
	sluice_op *op = NULL;
	char byte;

	r.kind = SLUICE_WRITE;
	r.extents = &v;
	r.count = 1;
	CHECK(2, sluice_context_setting(h->ctx, 0, &setting) == -ECHILD);
	CHECK(3, sluice_context_feature(h->ctx, 0, &feature) == -ECHILD);
	CHECK(4, sluice_open(h->ctx, "/dev/null", NULL, &file) == -ECHILD && !file);
	CHECK(5, sluice_stat(h->file, &st) == -ECHILD);
	CHECK(6, sluice_sync(h->file) == -ECHILD);
	CHECK(7, sluice_truncate(h->file, 0) == -ECHILD);
	CHECK(8, sluice_read(h->file, &byte, 1, 0, &op) == -ECHILD && !op);
	CHECK(9, sluice_write(h->file, "x", 1, 0, &op) == -ECHILD && !op);
	CHECK(10, submit_read(h->file, &v, 1, &op) == -ECHILD && !op);
	CHECK(11, submit_write(h->file, &v, 1, &op) == -ECHILD && !op);
	CHECK(12, sluice_submit(h->file, &r, &op) == -ECHILD && !op);
	CHECK(13, sluice_wait(h->done, -1) == -ECHILD);
	CHECK(14, sluice_wait(h->running, -1) == -ECHILD);
	CHECK(15, sluice_cancel(h->running) == -ECHILD);
	CHECK(16, sluice_op_fd(h->running) == -ECHILD);
	CHECK(17, sluice_queue_next(sluice_context_queue(h->ctx), -1, &op) == -ECHILD && !op);
	CHECK(18, sluice_queue_fd(sluice_context_queue(h->ctx)) == -ECHILD);
	CHECK(19, *sluice_version());
	CHECK(20, sluice_last_message());
	CHECK(21, sluice_poll(h->done) == -ECHILD);
	CHECK(25, sluice_queue_next(h->queue, -1, &op) == -ECHILD && !op);
	CHECK(26, sluice_queue_fd(h->queue) == -ECHILD);
	/* Destructors do nothing. */
	sluice_op_free(h->done);
	sluice_op_free(h->running);
	sluice_queue_free(h->queue);
	CHECK(22, sluice_close(h->file) == -ECHILD);
	sluice_discard(h->replacing);
	CHECK(23, sluice_close(h->replacing) == -ECHILD);
	CHECK(24, sluice_context_close(h->ctx) == -ECHILD);
	return 0;
}

#define PARTS      64
#define PART_BYTES 40000

/* Reads as the worker of a data loader does, with a context of its own: many parts at once, which it
 * takes from a queue. The queue of its parent is refused. */
static int read_parts(const struct inherited *h, sluice_context *ctx)
{
	unsigned char *bytes = calloc(PARTS, PART_BYTES);
	sluice_queue *queue = NULL;
	sluice_file *file = NULL;
	sluice_op *op = NULL;

	CHECK(41, bytes && sluice_queue_new(&queue) == 0);
	CHECK(42, sluice_open(ctx, h->uri, NULL, &file) == 0);
	for (int i = -1; i < PARTS; i++) {
		struct sluice_extent extent = {bytes + (i < 0 ? 0 : i) * PART_BYTES, PART_BYTES,
		                               (uint64_t)(i < 0 ? 0 : i) * PART_BYTES};
		struct sluice_request r = SLUICE_REQUEST_INIT;

		r.kind = SLUICE_READ;
		r.extents = &extent;
		r.count = 1;
		r.queue = i < 0 ? h->queue : queue;
		CHECK(43, sluice_submit(file, &r, &op) == (i < 0 ? -ECHILD : 0));
	}
	for (int i = 0; i < PARTS; i++) {
		CHECK(44, sluice_queue_next(queue, PATIENCE_MS, &op) == 0);
		CHECK(45, sluice_wait(op, 0) == PART_BYTES);
		sluice_op_free(op);
	}
	CHECK(46,
	      pattern_match(bytes, (size_t)PARTS * PART_BYTES, 0, 1) == (size_t)PARTS * PART_BYTES);
	CHECK(47, sluice_close(file) == 0);
	sluice_queue_free(queue);
	free(bytes);
	return 0;
}

static int child(const struct inherited *h)
{
	sluice_context *ctx = NULL;
	int failed = try_inherited(h);

	/* The thread sanitizer ends a child that starts threads, and the allocator of the address sanitizer may stay
	 * locked in a child. So may a lock of OpenSSL that another thread held at the fork. */
	if (failed || under_sanitizer() || !strncmp(h->uri, "https:", 6))
		return failed;
	CHECK(27, sluice_context_new(&row->config, &ctx) == 0 && ctx);
	failed = read_parts(h, ctx);
	if (failed)
		return failed;
	CHECK(28, sluice_context_close(ctx) == 0);
	/* The context of this process makes its parent's no better. */
	return try_inherited(h);
}

/* A child that hangs is killed by the alarm that it sets itself. */
static int run_child(const struct inherited *h, int generations)
{
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(60);
		_exit(generations > 1 ? run_child(h, generations - 1) : child(h));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 100;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status) % 50;
}

/* A thread that forks. */
struct forker {
	const struct inherited *h;
	int generations, status;
	pthread_t thread;
};

static void *fork_and_wait(void *argument)
{
	struct forker *forker = argument;

	forker->status = run_child(forker->h, forker->generations);
	return NULL;
}

static void fork_children(const struct inherited *h, int generations, int children)
{
	struct forker forkers[8];

	for (int i = 0; i < children; i++) {
		forkers[i] = (struct forker){.h = h, .generations = generations};
		pthread_create(&forkers[i].thread, NULL, fork_and_wait, &forkers[i]);
	}
	for (int i = 0; i < children; i++)
		pthread_join(forkers[i].thread, NULL);
	for (int i = 0; i < children; i++)
		if (forkers[i].status)
			fail_msg("in child %d, check %d failed", i, forkers[i].status);
}

/* Where the row keeps it: nginx has what the disk has, a blob is somewhere else. */
static void check_holds(struct fixture *f, const char *uri, const char *path, const void *expected,
                        size_t n)
{
	struct buffer b = buffer_new(n + 1, 0);
	sluice_file *file;

	if (row_is_store()) {
		file = open_read(f->ctx, uri);
		assert_moves(start_read(file, b.data, n + 1, 0), n);
		assert_bytes(b.data, expected, n);
		assert_ok(sluice_close(file));
	} else {
		assert_file_is(path, expected, n);
	}
	buffer_free(&b);
}

static void check_fork(struct fixture *f, int generations, int children)
{
	struct buffer b = buffer_new(16 * MIB, 0), out = buffer_new(MIB, 0);
	const char *path = scratch(f, "forked"), *name = scratch(f, "replaced");
	char *uri = strdup(address(f, "forked"));
	struct inherited h = {.ctx = f->ctx, .uri = uri};
	struct sluice_open_options replace = SLUICE_OPEN_OPTIONS_INIT;
	const char *replaced;
	sluice_op *op;

	file_make(path, b.length, 1);
	file_write(name, "old", 3, 0);
	file_set_residency(path, COLD);
	pattern_fill(out.data, out.length, 0, 2);
	h.file = row->remote ? open_read(f->ctx, address(f, "forked")) : open_both(f->ctx, path);
	replace.flags = SLUICE_OPEN_REPLACE;
	replace.expected_size = out.length;
	replaced = address(f, "replaced");
	assert_ok(sluice_open(f->ctx, replaced, &replace, &h.replacing));
	h.done = start_read(h.file, b.data, 10, 0);
	assert_int_equal(sluice_wait(h.done, PATIENCE_MS), 10);
	h.running = start_read(h.file, b.data, b.length, 0);
	assert_ok(sluice_queue_new(&h.queue));
	assert_ok(sluice_write(h.replacing, out.data, out.length, 0, NULL));
	fork_children(&h, generations, children);

	/* The parent goes on. */
	assert_moves(h.running, b.length);
	assert_pattern(b.data, b.length, 0, 1);
	assert_moves(h.done, 10);
	op = start_any(h.file, 6, 0);
	assert_moves(op, 6);
	check_holds(f, replaced, name, "old", 3);
	assert_ok(sluice_close(h.replacing));
	check_holds(f, replaced, name, out.data, out.length);
	assert_ok(sluice_close(h.file));
	sluice_queue_free(h.queue);
	free(uri);
	assert_int_equal(file_length(path), b.length);
	buffer_free(&b);
	buffer_free(&out);
}

#define DEVICES "the parent has used devices, so its children must not"

ROW_TEST(a_child_has_a_context_of_its_own_and_the_parent_goes_on, .device = DEVICES)
{
	check_fork(f, 1, 1);
}

ROW_TEST(a_grandchild_has_a_context_of_its_own_too, .device = DEVICES)
{
	check_fork(f, 2, 1);
}

/* As the workers of a data loader, made while their parent reads. */
ROW_TEST(several_threads_fork_children_that_read_at_once, .device = DEVICES)
{
	check_fork(f, 1, 4);
}
