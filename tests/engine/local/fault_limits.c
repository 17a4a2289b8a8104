/* SPDX-License-Identifier: Apache-2.0 */
/* The process may not have more: descriptors, length of files, threads. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "local/fault.h"

/* Takes all descriptors but n. */
static struct rlimit leave_descriptors(size_t n)
{
	struct rlimit before, now;
	rlim_t highest = 0;
	int fd;

	getrlimit(RLIMIT_NOFILE, &before);
	for (fd = 0; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			highest = (rlim_t)fd;
	/* Free numbers below the highest one are taken by copies. */
	while ((fd = dup(STDIN_FILENO)) >= 0 && (rlim_t)fd < highest)
		;
	if (fd >= 0)
		close(fd);
	now = before;
	now.rlim_cur = highest + 1 + n;
	setrlimit(RLIMIT_NOFILE, &now);
	return before;
}

static void give_back_descriptors(const struct rlimit *before, const bool *ours)
{
	setrlimit(RLIMIT_NOFILE, before);
	for (int fd = 0; fd < 1024; fd++)
		if (!ours[fd])
			close(fd);
}

static void note_descriptors(bool *ours)
{
	for (int fd = 0; fd < 1024; fd++)
		ours[fd] = fcntl(fd, F_GETFD) >= 0;
}

FAULT_TEST(without_descriptors_there_is_a_clear_error)
{
	sluice_file *file = open_both(f->ctx, scratch(f, "there")), *none = NULL;
	sluice_op *op = start_write(file, "x", 1, 0);
	sluice_context *ctx = NULL;
	struct sluice_file_info st = {.size = sizeof(st)};
	struct rlimit before;
	bool ours[1024];
	char said[3][256], byte;
	int rc[5];

	assert_int_equal(sluice_wait(op, PATIENCE_MS), 1);
	note_descriptors(ours);
	before = leave_descriptors(0);
	rc[0] = sluice_open(f->ctx, scratch(f, "there"), NULL, &none);
	snprintf(said[0], sizeof(said[0]), "%.255s", sluice_last_message());
	rc[1] = sluice_op_fd(op);
	snprintf(said[1], sizeof(said[1]), "%.255s", sluice_last_message());
	rc[2] = sluice_queue_fd(sluice_context_queue(f->ctx));
	rc[3] = sluice_context_new(&row->config, &ctx);
	snprintf(said[2], sizeof(said[2]), "%.255s", sluice_last_message());
	rc[4] = open_flags(f->ctx, scratch(f, "new"), SLUICE_OPEN_REPLACE, &none);
	/* What is open goes on. */
	assert_read(file, &byte, 1, 0);
	assert_write(file, "y", 1, 0);
	assert_ok(sluice_stat(file, &st));
	give_back_descriptors(&before, ours);

	assert_int_equal(rc[0], -EMFILE);
	assert_non_null(strstr(said[0], "there"));
	assert_int_equal(rc[1], -EMFILE);
	assert_true(*said[1]);
	assert_int_equal(rc[2], -EMFILE);
	assert_int_equal(rc[4], -EMFILE);
	if (rc[3] == 0) /* posix alone needs none */
		assert_ok(sluice_context_close(ctx));
	else
		assert_true(*said[2]);
	assert_null(none);
	assert_true(sluice_op_fd(op) >= 0);
	assert_true(readable(sluice_op_fd(op), 0));
	assert_int_equal(directory_entries(f->dir), 1);
	sluice_op_free(op);
	assert_ok(sluice_close(file));
}

/* One descriptor less each time, until there are enough; nothing is lost on the way. */
FAULT_TEST(opening_with_few_descriptors_leaks_none)
{
	size_t left, before_count;
	int failed = 0, rc = -1;

	file_make(scratch(f, "few"), 10, 1);
	before_count = count_descriptors();
	for (left = 0; left < 12 && rc != 0; left++) {
		sluice_file *file = NULL;
		struct rlimit before;
		bool ours[1024];

		note_descriptors(ours);
		before = leave_descriptors(left);
		rc = open_flags(f->ctx, scratch(f, "few"), SLUICE_OPEN_READ | SLUICE_OPEN_WRITE,
		                &file);
		if (rc == 0)
			sluice_close(file);
		failed += rc == -EMFILE;
		give_back_descriptors(&before, ours);
		assert_true(rc == 0 || rc == -EMFILE);
		assert_int_equal(count_descriptors(), before_count);
	}
	assert_int_equal(rc, 0);
	assert_true(failed > 0);
}

FAULT_TEST(a_file_longer_than_allowed_is_an_error)
{
	const char *path = scratch(f, "long");
	struct buffer b = buffer_new(4 * MIB, 0);
	struct rlimit before, now;
	struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
	sluice_file *file = open_both(f->ctx, path);
	int64_t got[2];
	char said[512];
	sluice_op *op;
	int rc;

	sigaction(SIGXFSZ, &ignore, &old);
	getrlimit(RLIMIT_FSIZE, &before);
	now = before;
	now.rlim_cur = 2 * MIB;
	setrlimit(RLIMIT_FSIZE, &now);
	op = start_write(file, b.data, b.length, 0);
	got[0] = sluice_wait(op, PATIENCE_MS);
	snprintf(said, sizeof(said), "%s", sluice_op_message(op));
	sluice_op_free(op);
	got[1] = write_now(file, "x", 1, 3 * MIB);
	rc = sluice_truncate(file, 3 * MIB);
	setrlimit(RLIMIT_FSIZE, &before);
	sigaction(SIGXFSZ, &old, NULL);
	assert_int_equal(got[0], -EFBIG);
	assert_non_null(strstr(said, "long"));
	assert_int_equal(got[1], -EFBIG);
	assert_int_equal(rc, -EFBIG);
	assert_write(file, b.data, b.length, 0);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* Each thread in turn does not start; the others are gone afterwards, as the fixture checks. */
FAULT_TEST(a_thread_that_does_not_start_is_an_error)
{
	struct sluice_config c = row_config();
	unsigned n;
	int failed = 0, rc = -1;

	c.workers = 3;
	config_tune(&c, "reactors", 2);
	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;
	for (n = 1; n < 20 && rc != 0; n++) {
		sluice_context *ctx = NULL;

		fail_thread(n);
		rc = sluice_context_new(&c, &ctx);
		if (rc == 0 && allocation_failed()) {
			/* auto does without io_uring then; a context all the same. */
			sluice_file *file = open_both(ctx, scratch(f, "works"));

			assert_write(file, "x", 1, 0);
			assert_ok(sluice_close(file));
			assert_ok(sluice_context_close(ctx));
			failed++;
			rc = -1;
			continue;
		}
		if (rc == 0) {
			assert_ok(sluice_context_close(ctx));
			break;
		}
		assert_true(rc == -EAGAIN || rc == -ENOSYS);
		assert_true(*sluice_last_message());
		assert_null(ctx);
		failed++;
	}
	fail_thread(0);
	assert_int_equal(rc, 0);
	assert_true(failed >= 3);
}
