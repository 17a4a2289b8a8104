/* SPDX-License-Identifier: Apache-2.0 */
/* In a child of fork() nothing of sluice works, and nothing that it does there harms the parent. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract/contract.h"

/* What the parent made; the child tries everything with it. */
struct inherited {
	sluice_context *ctx;
	sluice_file *file, *replacing;
	sluice_op *done, *running;
};

/* The number of the first check that fails, for the exit status; 0: all are right. */
#define CHECK(n, condition)       \
	do {                      \
		if (!(condition)) \
			return n; \
	} while (0)

static int child(const struct inherited *h)
{
	struct sluice_file_info st = {.size = sizeof(st)};
	struct sluice_setting setting = {.size = sizeof(setting)};
	struct sluice_feature feature = {.size = sizeof(feature)};
	struct sluice_extent v = {"x", 1, 0};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	sluice_context *ctx = NULL;
	sluice_file *file = NULL;
	sluice_op *op = NULL;
	char byte;

	r.kind = SLUICE_WRITE;
	r.extents = &v;
	r.count = 1;
	CHECK(1, sluice_context_new(NULL, &ctx) == -ECHILD && !ctx);
	CHECK(2, sluice_context_setting(h->ctx, 0, &setting) == -ECHILD);
	CHECK(3, sluice_context_feature(h->ctx, 0, &feature) == -ECHILD);
	CHECK(4, sluice_open(h->ctx, "/dev/null", NULL, &file) == -ECHILD && !file);
	CHECK(5, sluice_stat(h->file, &st) == -ECHILD);
	CHECK(6, sluice_sync(h->file) == -ECHILD);
	CHECK(7, sluice_truncate(h->file, 0) == -ECHILD);
	CHECK(8, sluice_read(h->file, &byte, 1, 0, &op) == -ECHILD && !op);
	CHECK(9, sluice_write(h->file, "x", 1, 0, &op) == -ECHILD && !op);
	CHECK(10, sluice_readv(h->file, &v, 1, &op) == -ECHILD && !op);
	CHECK(11, sluice_writev(h->file, &v, 1, &op) == -ECHILD && !op);
	CHECK(12, sluice_submit(h->file, &r, &op) == -ECHILD && !op);
	CHECK(13, sluice_wait(h->done, -1) == -ECHILD);
	CHECK(14, sluice_wait(h->running, -1) == -ECHILD);
	CHECK(15, sluice_cancel(h->running) == -ECHILD);
	CHECK(16, sluice_op_fd(h->running) == -ECHILD);
	CHECK(17, sluice_next_done(h->ctx, -1, &op) == -ECHILD && !op);
	CHECK(18, sluice_done_fd(h->ctx) == -ECHILD);
	CHECK(19, *sluice_version());
	CHECK(20, sluice_last_message());
	CHECK(21, sluice_poll(h->done) == -ECHILD);
	/* Destructors do nothing. */
	sluice_op_free(h->done);
	sluice_op_free(h->running);
	CHECK(22, sluice_close(h->file) == -ECHILD);
	sluice_discard(h->replacing);
	CHECK(23, sluice_close(h->replacing) == -ECHILD);
	CHECK(24, sluice_context_free(h->ctx) == -ECHILD);
	return 0;
}

/* A child that hangs is killed by the alarm that it sets itself. */
static int run_child(const struct inherited *h, int generations)
{
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(30);
		_exit(generations > 1 ? run_child(h, generations - 1) : child(h));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 100;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status) % 50;
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

static void check_fork(struct fixture *f, int generations)
{
	struct buffer b = buffer_new(16 * MIB, 0), out = buffer_new(MIB, 0);
	const char *path = scratch(f, "forked"), *name = scratch(f, "replaced");
	struct inherited h = {.ctx = f->ctx};
	struct sluice_open_options replace = SLUICE_OPEN_OPTIONS_INIT;
	const char *replaced;
	sluice_op *op;
	int status;

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
	assert_ok(sluice_write(h.replacing, out.data, out.length, 0, NULL));
	status = run_child(&h, generations);
	if (status != 0)
		fail_msg("in the child, check %d failed", status);

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
	assert_int_equal(file_length(path), b.length);
	buffer_free(&b);
	buffer_free(&out);
}

FIXTURE_TEST(a_child_is_refused_and_the_parent_goes_on)
{
	check_fork(f, 1);
}

FIXTURE_TEST(a_grandchild_is_refused_too)
{
	check_fork(f, 2);
}
