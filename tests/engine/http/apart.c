/* SPDX-License-Identifier: Apache-2.0 */
/* A server, a name server or an upload that stands still: what else there is goes on, and a cancel is obeyed. */
#include <pthread.h>
#include <stdatomic.h>

#include "http/cases.h"

enum { READS = 12 };

/* More reads than may run at a time, of a server that does not answer. */
struct stalled {
	sluice_file *file;
	sluice_op *ops[READS];
	char bytes[READS][100];
};

/* Four connections, of which one is reserved for other origins, and nobody gives up. */
static void patient(struct fixture *f)
{
	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	with(f, "SLUICE_MAX_CONNECTIONS", "4");
	with(f, "SLUICE_WORKERS", "2");
}

static void stall(struct fixture *f, struct stalled *s)
{
	const char *uri = fault_uri("size=50000&fault=stall:head");

	s->file = open_read(f->ctx, uri);
	for (int i = 0; i < READS; i++)
		s->ops[i] = start_read(s->file, s->bytes[i], 100, (uint64_t)i * 1000);
	wait_until_asked(uri, "GET", 4);
}

/* Cancels an operation, which must be obeyed soon. */
static void cancel_soon(sluice_op *op)
{
	double begun = seconds_now();

	assert_int_equal(sluice_cancel(op), 0);
	assert_int_equal(finish(op), -ECANCELED);
	assert_soon(begun);
}

/* The last ones first: they have no turn yet. */
static void unstall(struct stalled *s)
{
	for (int i = READS; i-- > 0;)
		cancel_soon(s->ops[i]);
	assert_ok(sluice_close(s->file));
}

HTTP_TEST(stalled_reads_leave_another_origin_alone)
{
	const char *uri = fault_uri_at("other", "size=%zu&latency=1", LONG);
	struct stalled s;
	double begun;

	patient(f);
	stall(f, &s);
	begun = seconds_now();
	reads_right(f, uri, LONG, 0);
	assert_soon(begun);
	/* What it has beside them is one connection. */
	assert_int_equal(asked(uri, "peak"), 1);
	unstall(&s);
}

HTTP_TEST(refusals_leave_another_origin_alone)
{
	const char *refusing = fault_uri("size=50000&fault=status:503&times=200"), *uri;
	struct stalled s;

	with(f, "SLUICE_HTTP_ATTEMPTS", "1000");
	s.file = open_read(f->ctx, refusing);
	for (int i = 0; i < READS; i++)
		s.ops[i] = start_read(s.file, s.bytes[i], 100, (uint64_t)i * 1000);
	for (int i = 0; i < READS; i++)
		assert_moves(s.ops[i], 100);
	assert_ok(sluice_close(s.file));
	uri = fault_uri_at("other", "size=50000&fault=hold:50");
	s.file = open_read(f->ctx, uri);
	for (int i = 0; i < READS; i++)
		s.ops[i] = start_read(s.file, s.bytes[i], 100, (uint64_t)i * 1000);
	wait_until_asked(uri, "peak", CONNECTIONS);
	release_held(uri);
	for (int i = 0; i < READS; i++)
		assert_moves(s.ops[i], 100);
	assert_int_equal(asked(uri, "peak"), CONNECTIONS);
	assert_ok(sluice_close(s.file));
}

HTTP_TEST(stalled_reads_leave_local_files_alone)
{
	struct buffer b = buffer_new(8 * MIB, 0);
	const char *path = scratch(f, "local");
	sluice_file *local;
	struct stalled s;
	double begun;

	patient(f);
	pattern_fill(b.data, b.length, 0, 3);
	file_write(path, b.data, b.length, 0);
	local = open_read(f->ctx, path);
	stall(f, &s);
	begun = seconds_now();
	assert_read(local, b.data, b.length, 0);
	assert_soon(begun);
	assert_pattern(b.data, b.length, 0, 3);
	assert_ok(sluice_close(local));
	unstall(&s);
	buffer_free(&b);
}

static sluice_file *open_put(struct fixture *f, const char *uri, uint64_t length)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	o.flags = SLUICE_OPEN_REPLACE;
	o.expected_size = length;
	assert_ok(sluice_open(f->ctx, uri, &o, &file));
	return file;
}

HTTP_TEST(stalled_reads_leave_an_upload_alone)
{
	const char *uri = fault_uri("stored=1"), *stuck;
	struct buffer b = buffer_new(20 * MIB, 0);
	sluice_file *file;
	struct stalled s;
	sluice_op *op;
	double begun;

	patient(f);
	stall(f, &s);
	begun = seconds_now();
	file = open_put(f, uri, 300000);
	assert_write(file, b.data, 300000, 0);
	assert_ok(sluice_close(file));
	assert_soon(begun);
	assert_non_null(strstr(asked_for(uri), "/object 300000\n"));
	stuck = fault_uri("fault=stall:1000&on=PUT");
	file = open_put(f, stuck, b.length);
	op = start_write(file, b.data, b.length, 0);
	wait_until_asked(stuck, "PUT", 1);
	/* And one that stands still leaves others alone. */
	reads_right(f, fault_uri_at("other", "size=50000"), 50000, 0);
	cancel_soon(op);
	sluice_discard(file);
	unstall(&s);
	buffer_free(&b);
}

HTTP_TEST(an_upload_that_rests_is_cancelled)
{
	struct buffer b = buffer_new(20 * MIB, 0);
	const char *uri = fault_uri("fault=status:503&on=PUT&unread=1&retry_after=60");
	sluice_file *file;
	sluice_op *op;

	with(f, "SLUICE_HTTP_BACKOFF_MAX_MS", "60000");
	with(f, "SLUICE_HTTP_RETRY_MS", "120000");
	file = open_put(f, uri, b.length);
	op = start_write(file, b.data, b.length, 0);
	wait_until_asked(uri, "PUT", 1);
	sleep_ms(50);
	cancel_soon(op);
	sluice_discard(file);
	buffer_free(&b);
}

struct opening {
	struct fixture *f;
	int rc;
	_Atomic bool over;
};

static void *open_slow(void *argument)
{
	struct opening *o = argument;
	sluice_file *file = NULL;

	o->rc = sluice_open(o->f->ctx, "http://" SLOW_NAME "/x", NULL, &file);
	atomic_store(&o->over, true);
	return NULL;
}

HTTP_TEST(a_name_server_that_does_not_answer_holds_up_nobody)
{
	struct opening o = {.f = f};
	double start = seconds_now();
	sluice_file *file;
	pthread_t thread;
	char bytes[100];

	with(f, "SLUICE_HTTP_ATTEMPTS", "1");
	with(f, "SLUICE_HTTP_CONNECT_MS", "200");
	file = open_read(f->ctx, fault_uri("size=50000"));
	slow_name_waits(true);
	assert_int_equal(pthread_create(&thread, NULL, open_slow, &o), 0);
	while (!atomic_load(&o.over)) {
		assert_read(file, bytes, 100, 0);
		sleep_ms(2);
	}
	pthread_join(thread, NULL);
	assert_true(o.rc == -ETIMEDOUT || o.rc == -EHOSTUNREACH);
	assert_ok(sluice_close(file));
	/* The context ends while the name is still looked up, by a thread of libcurl's that ends by itself. */
	fixture_config(f, &row->config);
	assert_soon(start);
	slow_name_waits(false);
}
