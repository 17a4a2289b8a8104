/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "contract/contract.h"

TEST(null_is_a_valid_argument_to_every_destructor)
{
	assert_int_equal(sluice_context_close(NULL), 0);
	assert_int_equal(sluice_close(NULL), 0);
	sluice_discard(NULL);
	sluice_op_free(NULL);
}

LOCAL_TEST(a_context_with_open_files_is_not_freed, WRITES_IN_PLACE)
{
	const char *path = scratch(f, "busy");
	sluice_file *a = open_both(f->ctx, path), *b = open_both(f->ctx, path);

	assert_refused(sluice_context_close(f->ctx), EBUSY, "");
	assert_write(a, "works", 5, 0);
	assert_ok(sluice_close(a));
	assert_refused(sluice_context_close(f->ctx), EBUSY, "");
	assert_write(b, "still", 5, 5);
	assert_ok(sluice_close(b));
	assert_file_is(path, "worksstill", 10);
	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;
}

FIXTURE_TEST(a_context_without_work_comes_and_goes)
{
	int i;

	for (i = 0; i < 20; i++) {
		sluice_context *ctx = NULL;

		assert_ok(sluice_context_new(&row->config, &ctx));
		assert_ok(sluice_context_close(ctx));
	}
	fixture_config(f, &row->config);
}

LOCAL_TEST(operations_that_are_over_outlive_their_context, WRITES_IN_PLACE)
{
	struct buffer b = buffer_new(MIB, 0);
	sluice_file *file = open_both(f->ctx, scratch(f, "outlive"));
	sluice_op *good = start_write(file, b.data, MIB, 0);
	sluice_op *bad = start_write(file, NOWHERE, 4096, MIB);
	sluice_op *waited = start_write(file, "x", 1, 0), *with_fd = start_write(file, "y", 1, 1);
	sluice_op *unseen = start_read(file, b.data, 10, 5);
	int fd = sluice_op_fd(with_fd);

	assert_int_equal(sluice_wait(waited, PATIENCE_MS), 1);
	assert_ok(sluice_close(file));
	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;

	assert_int_equal(sluice_poll(good), 1);
	assert_int_equal(sluice_wait(good, 0), MIB);
	assert_null(sluice_op_user(good));
	assert_refused(sluice_cancel(good), EALREADY, "");
	assert_int_equal(sluice_wait(bad, -1), -EFAULT);
	assert_non_null(strstr(sluice_op_message(bad), "outlive"));
	assert_true(readable(fd, 0));
	assert_int_equal(sluice_op_fd(with_fd), fd);
	assert_true(readable(sluice_op_fd(good), 0));
	sluice_op_free(good);
	sluice_op_free(bad);
	sluice_op_free(waited);
	sluice_op_free(with_fd);
	sluice_op_free(unseen);
	buffer_free(&b);
}

/* The only handle is given up at once; close is then the one way to know. */
LOCAL_TEST(a_freed_operation_goes_on_to_its_end, WRITES_IN_PLACE)
{
	enum { WRITES = 40, SPAN = 300001 };
	const char *path = scratch(f, "orphans");
	struct buffer b = buffer_new(WRITES * SPAN, 0);
	sluice_file *file = open_both(f->ctx, path);
	int i;

	pattern_fill(b.data, b.length, 0, 1);
	for (i = 0; i < WRITES; i++)
		sluice_op_free(start_write(file, b.data + i * SPAN, SPAN, (uint64_t)i * SPAN));
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, b.length);
	buffer_free(&b);
}

FIXTURE_TEST(close_waits_for_reads_too)
{
	const char *path = scratch(f, "reads");
	struct buffer b = buffer_new(row_bytes(16 * MIB), 0);
	size_t part = b.length / 4;
	sluice_op *ops[4];
	sluice_file *file;
	size_t i;

	file_make(path, b.length, 1);
	file_set_residency(path, COLD);
	file = open_read(f->ctx, address(f, "reads"));
	for (i = 0; i < 4; i++)
		ops[i] = start_read(file, b.data + i * part, part, i * part);
	assert_ok(sluice_close(file));
	for (i = 0; i < 4; i++) {
		assert_int_equal(sluice_poll(ops[i]), 1);
		assert_int_equal(sluice_wait(ops[i], 0), part);
		sluice_op_free(ops[i]);
	}
	assert_pattern(b.data, b.length, 0, 1);
	buffer_free(&b);
}

LOCAL_TEST(the_array_of_a_call_may_go_at_once, WRITES_IN_PLACE)
{
	const char *path = scratch(f, "uri");
	char *uri = strdup(path);
	struct sluice_open_options *o = malloc(sizeof(*o));
	struct sluice_config *config = malloc(sizeof(*config));
	char *backend = strdup(row->config.backend ? row->config.backend : "auto");
	sluice_context *ctx = NULL;
	sluice_file *file = NULL, *failing = NULL;

	*config = row_config();
	config->backend = backend;
	assert_ok(sluice_context_new(config, &ctx));
	memset(backend, 'x', strlen(backend));
	free(backend);
	free(config);
	*o = (struct sluice_open_options)SLUICE_OPEN_OPTIONS_INIT;
	o->flags = SLUICE_OPEN_REPLACE;
	assert_ok(sluice_open(ctx, uri, o, &file));
	assert_ok(sluice_open(ctx, uri, o, &failing));
	memset(uri, 'x', strlen(uri));
	free(uri);
	free(o);
	assert_fails(start_write(failing, NOWHERE, 100, 0), EFAULT);
	assert_refused(sluice_close(failing), EFAULT, "uri");
	assert_write(file, "done", 4, 0);
	assert_ok(sluice_close(file));
	assert_file_is(path, "done", 4);
	assert_ok(sluice_context_close(ctx));
}

/* A bit for each signal, from /proc/self/task/TID/status; 0 if the thread is not ours to judge. */
static uint64_t blocked_signals(const char *tid)
{
	char path[320], line[256];
	unsigned long long mask = 0;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "SigBlk: %llx", &mask) == 1)
			break;
	if (status)
		fclose(status);
	return mask;
}

FIXTURE_TEST(the_threads_block_all_signals)
{
	static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGUSR1, SIGUSR2, SIGALRM,
	                              SIGCHLD, SIGPIPE, SIGXFSZ, SIGQUIT, SIGIO,   SIGPROF};
	char known[64][32];
	size_t n = 0, i, fresh = 0;
	struct dirent *e;
	DIR *d;

	/* Threads that were there before the context do not count (a sanitizer has one). */
	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;
	sleep_ms(50);
	d = opendir("/proc/self/task");
	while ((e = readdir(d)) && n < COUNT_OF(known))
		snprintf(known[n++], sizeof(known[0]), "%.31s", e->d_name);
	closedir(d);
	assert_ok(sluice_context_new(&row->config, &f->ctx));
	sluice_close(open_any(f, "any"));
	d = opendir("/proc/self/task");
	while ((e = readdir(d))) {
		uint64_t mask;

		for (i = 0; i < n && strcmp(known[i], e->d_name) != 0; i++)
			;
		if (i < n)
			continue;
		fresh++;
		mask = blocked_signals(e->d_name);
		for (i = 0; i < COUNT_OF(signals); i++)
			if (!(mask >> (signals[i] - 1) & 1))
				fail_msg("thread %s takes signal %d", e->d_name, signals[i]);
	}
	closedir(d);
	assert_true(fresh > 0);
}

FIXTURE_TEST(failed_memory_is_not_handed_out)
{
	sluice_file *mark = (sluice_file *)f, *file = mark;
	sluice_op *op = (sluice_op *)f;

	assert_int_equal(sluice_open(f->ctx, address(f, "missing"), NULL, &file), -ENOENT);
	assert_ptr_equal(file, mark);
	file = open_any(f, "there");
	assert_int_equal(sluice_read(file, NULL, 5, 0, &op), -EINVAL);
	assert_ptr_equal(op, f);
	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 0, &op), -EAGAIN);
	assert_ptr_equal(op, f);
	assert_ok(sluice_close(file));
}
