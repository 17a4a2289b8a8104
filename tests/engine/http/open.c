/* SPDX-License-Identifier: Apache-2.0 */
/* Opens that end later: where they can be cancelled or dropped, and how many there may be at a time. */
#include "http/cases.h"

static sluice_op *start_open(struct fixture *f, const char *uri, sluice_queue *queue)
{
	sluice_op *op = NULL;

	assert_ok(sluice_open_start(f->ctx, uri, NULL, queue, f, &op));
	assert_non_null(op);
	return op;
}

/* An open whose handle is gone keeps the context until its end. */
static void wait_until_free(struct fixture *f)
{
	while (sluice_context_close(f->ctx) == -EBUSY)
		sleep_ms(1);
	f->ctx = NULL;
	assert_ok(sluice_context_new(&row->config, &f->ctx));
}

static void cancel_open(sluice_op *op)
{
	sluice_file *file = NULL;
	double begun = seconds_now();

	assert_int_equal(sluice_poll(op), 0);
	assert_int_equal(sluice_op_file(op, &file), -EINPROGRESS);
	assert_int_equal(sluice_cancel(op), 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ECANCELED);
	assert_soon(begun);
	assert_int_equal(sluice_op_file(op, &file), -ECANCELED);
	assert_null(file);
	assert_int_equal(sluice_cancel(op), -EALREADY);
	sluice_op_free(op);
}

HTTP_TEST(an_open_is_cancelled_where_it_waits)
{
	const char *silent = fault_uri("size=50000&fault=stall:head&on=HEAD"), *busy, *third;
	sluice_op *first, *second;

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	with(f, "SLUICE_HTTP_RETRY_MS", "60000");
	with(f, "SLUICE_HTTP_BACKOFF_MAX_MS", "60000");
	with(f, "SLUICE_HTTP_BACKOFF_MS", "60000");
	first = start_open(f, silent, NULL);
	wait_until_asked(silent, "HEAD", 1);
	cancel_open(first);
	/* Before the next attempt. */
	busy = fault_uri("size=50000&fault=status:503&retry_after=60&head=501");
	first = start_open(f, busy, NULL);
	wait_until_asked(busy, "GET", 1);
	sleep_ms(30);
	cancel_open(first);
	/* One connection is all there is, and another open has it. */
	with(f, "SLUICE_MAX_CONNECTIONS", "1");
	silent = fault_uri("size=50000&fault=stall:head&on=HEAD");
	third = fault_uri("size=50000");
	first = start_open(f, silent, NULL);
	wait_until_asked(silent, "HEAD", 1);
	second = start_open(f, third, NULL);
	sleep_ms(30);
	assert_int_equal(asked(third, "HEAD"), 0);
	cancel_open(second);
	cancel_open(first);
	reads_right(f, third, 50000, 0);
}

/* The handle goes before the end, or with a file that nobody has taken. */
HTTP_TEST(an_open_that_is_dropped_leaves_no_file)
{
	const char *uri = fault_uri("size=50000");
	sluice_op *op = start_open(f, uri, NULL);
	sluice_file *file = NULL;
	char five[5];

	sluice_op_free(op);
	op = start_open(f, uri, NULL);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), 0);
	sluice_op_free(op);
	op = start_open(f, uri, NULL);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), 0);
	assert_ok(sluice_op_file(op, &file));
	assert_refused(sluice_op_file(op, &file), EINVAL, "taken");
	sluice_op_free(op);
	op = start_read(file, five, 5, 0);
	assert_refused(sluice_op_file(op, &(sluice_file *){NULL}), EINVAL, "opens no file");
	assert_moves(op, 5);
	assert_ok(sluice_close(file));
	wait_until_free(f);
}

HTTP_TEST(opens_that_cannot_begin_or_fail_say_why)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	const char *headers[] = {"no header", NULL};
	sluice_op *op = NULL;

	assert_refused(sluice_open_start(f->ctx, NULL, NULL, NULL, NULL, &op), EINVAL,
	               "uri is NULL");
	assert_refused(sluice_open_start(f->ctx, "x", NULL, NULL, NULL, NULL), EINVAL,
	               "out is NULL");
	assert_refused(sluice_op_file(NULL, &(sluice_file *){NULL}), EINVAL, "op is NULL");
	assert_refused(sluice_open_start(f->ctx, "gopher://x", NULL, NULL, NULL, &op),
	               EPROTONOSUPPORT, "gopher");
	assert_null(op);
	o.headers = headers;
	assert_refused(sluice_open_start(f->ctx, fault_uri("size=1"), &o, NULL, NULL, &op), EINVAL,
	               "header 1");
	op = start_open(f, fault_uri("size=9&fault=status:404&on=HEAD,GET"), NULL);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ENOENT);
	assert_non_null(strstr(sluice_op_message(op), "HTTP 404"));
	sluice_op_free(op);
	op = start_open(f, "/no/such/file", NULL);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ENOENT);
	assert_non_null(strstr(sluice_op_message(op), "/no/such/file"));
	sluice_op_free(op);
}

/* Each op that is started ends, with a file that has the right bytes, or with its error; cancels and drops come at any time. */
HTTP_TEST(random_opens_end_once)
{
	enum { OPENS = 400 };
	static const char *const faults[] = {"size=4000",
	                                     "size=4000&head=501",
	                                     "size=0",
	                                     "size=4000&ranges=no",
	                                     "size=4000&fault=reset:head&on=HEAD,GET",
	                                     "size=4000&fault=status:403&on=HEAD,GET"};
	struct rng r = rng_new(0x09e4);
	unsigned left = 0, opened = 0, refused = 0;
	const char *uris[COUNT_OF(faults)];
	struct buffer b = buffer_new(4000, 0);
	sluice_queue *queue;
	sluice_op *op;

	for (size_t i = 0; i < COUNT_OF(faults); i++)
		uris[i] = strdup(fault_uri("%s", faults[i]));
	assert_ok(sluice_queue_new(&queue));
	for (unsigned i = 0; i < OPENS || left;) {
		sluice_file *file = NULL;

		if (i < OPENS && (left < 40 || rng_below(&r, 2))) {
			op = start_open(f, uris[rng_below(&r, COUNT_OF(uris))], queue);
			i++, left++;
			if (!rng_below(&r, 4))
				sluice_cancel(op);
			continue;
		}
		assert_ok(sluice_queue_next(queue, PATIENCE_MS, &op));
		assert_ptr_equal(sluice_op_user(op), f);
		left--;
		if (!rng_below(&r, 8)) {
			sluice_op_free(op);
			continue;
		}
		if (!sluice_op_file(op, &file)) {
			struct sluice_file_info info = {sizeof(info)};

			assert_ok(sluice_stat(file, &info));
			sluice_op_free(op);
			op = start_read(file, b.data, 4000, 0);
			assert_in_set(sluice_wait(op, PATIENCE_MS), ((uintmax_t[]){info.length}),
			              1);
			assert_served(b.data, info.length, 0);
			assert_ok(sluice_close(file));
			opened++;
		} else {
			assert_null(file);
			refused++;
		}
		sluice_op_free(op);
	}
	assert_true(opened > OPENS / 4 && refused > OPENS / 8);
	sluice_queue_free(queue);
	wait_until_free(f);
	for (size_t i = 0; i < COUNT_OF(uris); i++)
		free((char *)uris[i]);
	buffer_free(&b);
}
