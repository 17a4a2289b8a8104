/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store:// for blobs on devices: written and read by files, from whatever memory. Reading is also what the rows
 * "store_there" of the conformance suite are about.
 */
#include "lib/daemon.h"
#include "lib/gpu.h"
#include "sluice/emulated.h"

#define SHELF_TEST(name) TEST_OF(struct shelf *s, name, setup, teardown, NULL)

/* The blob is on the second device, so that a number that is mixed up shows. */
enum { ELSE, HERE, SEED = 5 };

struct shelf {
	struct daemon *d;
	sluice_context *ctx;
	sluice_stream stream;
	char uri[64]; /* of a blob to be made */
};

static int setup(void **state)
{
	struct shelf *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	daemon_setup((void **)&s->d);
	setenv("SLUICE_STORE", s->d->path, 1);
	assert_ok(sluice_context_new(NULL, &s->ctx));
	assert_ok(sluice_stream_new(gpu_device(HERE), &s->stream));
	snprintf(s->uri, sizeof(s->uri), "store://x?device=%d", gpu_device(HERE));
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct shelf *s = *state;
	void *d = s->d;

	assert_ok(sluice_stream_free(s->stream));
	assert_ok(sluice_context_close(s->ctx));
	assert_idle(s->d->store);
	daemon_teardown(&d);
	free(s);
	return 0;
}

static sluice_file *open_with(struct shelf *s, uint64_t n, unsigned flags)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	o.flags = SLUICE_OPEN_READ | SLUICE_OPEN_REPLACE | flags;
	o.expected_size = n;
	assert_ok(sluice_open(s->ctx, s->uri, &o, &file));
	return file;
}

static sluice_file *open_new(struct shelf *s, uint64_t n)
{
	return open_with(s, n, 0);
}

static void *alloc_on(int which, size_t n)
{
	void *memory = NULL;

	assert_ok(sluice_device_alloc(gpu_device(which), n, &memory));
	return memory;
}

/* The blob is there and sealed, on its device, and holds that; then it goes. */
static void take_away(struct shelf *s, const void *expected, size_t n)
{
	struct buffer b = buffer_new(n, 0);
	sluice_blob *blob = got(s->d->store, "x");

	assert_int_equal(sluice_blob_device(blob), gpu_device(HERE));
	assert_int_equal(sluice_blob_size(blob), n);
	assert_ok(sluice_copy(b.data, sluice_blob_data(blob), n));
	assert_bytes(b.data, expected, n);
	assert_let_go(blob, s->d->store, "x");
	buffer_free(&b);
}

/* ------------------------------------------------------------------------------ as any other file */

SHELF_TEST(device_file_has_the_written_bytes_after_close)
{
	static const size_t sizes[] = {1, 4096, 100001, 37 * MIB + 5};

	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		size_t n = sizes[i], part = n / 3;
		struct buffer b = buffer_new(n, 1);
		sluice_file *file = open_new(s, n);
		sluice_op *ops[2];
		sluice_blob *blob;

		pattern_fill(b.data, n, 0, SEED);
		assert_ok(sluice_write(file, b.data + part, n - part, part, &ops[0]));
		assert_ok(sluice_write(file, b.data, part, 0, &ops[1]));
		assert_int_equal(finish(ops[0]), n - part);
		assert_int_equal(finish(ops[1]), part);
		assert_ok(sluice_sync(file));
		assert_refused(sluice_blob_get(s->d->store, "x", 0, &blob), ENOENT, "x");
		assert_ok(sluice_close(file));
		take_away(s, b.data, n);
		buffer_free(&b);
	}
}

/* One operation from or to memory of some place. */
struct transfer {
	struct buffer host, expected; /* expected: of a read */
	void *memory;                 /* of a device, in place of the host's; or NULL */
	sluice_op *op;
	size_t n;
};

static void begin(struct shelf *s, struct transfer *t, sluice_file *file, struct rng *r,
                  struct buffer *model)
{
	size_t n = 1 + rng_length(r, 2 * MIB, 9 * MIB), at = rng_below(r, model->length - n);
	uint64_t where = rng_below(r, 4), writes = rng_below(r, 2);
	void *data;

	*t = (struct transfer){.host = buffer_new(n, at % 3), .n = n};
	if (writes) {
		pattern_fill(t->host.data, n, at, rng_next(r));
		memcpy(model->data + at, t->host.data, n);
	} else {
		t->expected = buffer_new(n, 0);
		memcpy(t->expected.data, model->data + at, n);
	}
	if (where)
		t->memory = alloc_on(where == 1 ? ELSE : HERE, n);
	if (where && writes)
		assert_ok(sluice_copy(t->memory, t->host.data, n));
	data = where ? t->memory : t->host.data;
	/* The last of them in stream order. */
	if (where == 3)
		assert_ok(writes ? sluice_write_on(file, data, n, at, s->stream, &t->op)
		                 : sluice_read_on(file, data, n, at, s->stream, &t->op));
	else
		assert_ok(writes ? sluice_write(file, data, n, at, &t->op)
		                 : sluice_read(file, data, n, at, &t->op));
}

static void end(struct transfer *t)
{
	assert_int_equal(finish(t->op), t->n);
	if (t->expected.data) {
		if (t->memory)
			assert_ok(sluice_copy(t->host.data, t->memory, t->n));
		assert_bytes(t->host.data, t->expected.data, t->n);
		buffer_free(&t->expected);
	}
	if (t->memory)
		assert_ok(sluice_device_free(t->memory));
	buffer_free(&t->host);
}

SHELF_TEST(overlapping_operations_keep_their_order_in_every_memory)
{
	enum { N = 20 * MIB + 7, AT_ONCE = 10, ROUNDS = 8 };
	struct buffer model = buffer_new(N, 0);
	struct transfer transfers[AT_ONCE];
	sluice_file *file = open_new(s, N);
	struct rng r = rng_new(1);

	memset(model.data, 7, N);
	assert_write(file, model.data, N, 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < AT_ONCE; i++)
			begin(s, &transfers[i], file, &r, &model);
		for (unsigned i = 0; i < AT_ONCE; i++)
			end(&transfers[i]);
	}
	assert_ok(sluice_close(file));
	take_away(s, model.data, N);
	buffer_free(&model);
}

SHELF_TEST(several_extents_are_one_operation)
{
	enum { COUNT = 200, EACH = 1001, N = COUNT * EACH };
	struct buffer b = buffer_new(N, 0);
	struct sluice_extent v[COUNT];
	sluice_file *file = open_new(s, N);
	sluice_op *op;

	pattern_fill(b.data, N, 0, SEED);
	for (size_t i = 0; i < COUNT; i++)
		v[i] = (struct sluice_extent){b.data + i * EACH, EACH, i * EACH};
	assert_ok(submit_write(file, v, COUNT, &op));
	assert_int_equal(finish(op), N);
	memset(b.data, 0, N);
	assert_ok(submit_read(file, v, COUNT, &op));
	assert_int_equal(finish(op), N);
	assert_pattern(b.data, N, 0, SEED);
	assert_ok(sluice_close(file));
	take_away(s, b.data, N);
	buffer_free(&b);
}

SHELF_TEST(oversized_request_makes_no_blob)
{
	sluice_file *file = open_new(s, 100);
	char bytes[200] = {0};
	sluice_op *op;

	assert_refused(sluice_context_close(s->ctx), EBUSY, "1 file");
	assert_ok(sluice_read(file, bytes, 200, 50, &op));
	assert_int_equal(finish(op), 50);
	assert_ok(sluice_write(file, bytes, 100, 1, &op));
	assert_int_equal(finish(op), -EFBIG);
	assert_ok(sluice_write(file, bytes, 1, INT64_MAX - 1, NULL));
	assert_refused(sluice_close(file), EFBIG, "x");
	assert_int_equal(sluice_blob_exists(s->d->store, "x"), 0);
}

/* -------------------------------------------------------------------------------- stream order */

/* Pinned memory is made for the first operation, which no held stream may keep from that. */
static void write_first(sluice_file *file, const void *data)
{
	sluice_op *op;

	assert_ok(sluice_write(file, data, 1, 0, &op));
	assert_int_equal(finish(op), 1);
}

SHELF_TEST(a_stream_copies_what_is_of_its_device)
{
	enum { N = 3 * MIB + 1 };
	struct buffer b = buffer_new(N, 0);
	char *memory = alloc_on(HERE, N), *back = alloc_on(HERE, N);
	sluice_file *file = open_new(s, N);
	struct gpu_hold hold;
	sluice_op *ops[2];
	void *pinned;

	assert_ok(sluice_pinned_alloc(gpu_device(HERE), N, &pinned));
	memset(pinned, 0, N);
	write_first(file, memory);
	assert_ok(gpu_hold(HERE, s->stream, &hold));
	assert_ok(gpu_fill(HERE, s->stream, memory, N, 0, SEED));
	assert_ok(sluice_write_on(file, memory, N, 0, s->stream, &ops[0]));
	/* The source may be written over, and what was written is read, as the stream comes to it. */
	assert_ok(gpu_scribble(HERE, s->stream, memory, N, 0xee));
	assert_ok(sluice_read_on(file, back, N, 0, s->stream, &ops[1]));
	assert_int_equal(sluice_poll(ops[0]), 0);
	assert_int_equal(sluice_poll(ops[1]), 0);
	gpu_let_go(&hold);
	assert_int_equal(finish(ops[0]), N);
	assert_int_equal(finish(ops[1]), N);
	assert_ok(sluice_copy(b.data, back, N));
	assert_pattern(b.data, N, 0, SEED);
	/* Pinned memory as well, both ways. */
	assert_ok(sluice_read_on(file, pinned, N, 0, s->stream, &ops[0]));
	assert_int_equal(finish(ops[0]), N);
	assert_pattern(pinned, N, 0, SEED);
	pattern_fill(pinned, N, 0, SEED + 1);
	assert_ok(sluice_write_on(file, pinned, N, 0, s->stream, &ops[0]));
	assert_int_equal(finish(ops[0]), N);
	assert_ok(sluice_close(file));
	take_away(s, pinned, N);
	assert_ok(sluice_pinned_free(pinned));
	assert_ok(sluice_device_free(memory));
	assert_ok(sluice_device_free(back));
	buffer_free(&b);
}

/* Of a stream that is one of each thread nobody can tell whether it is the same, so it orders nothing. */
SHELF_TEST(overlap_waits_in_submission_unless_the_stream_orders_it)
{
	sluice_file *file = open_with(s, 1000, SLUICE_OPEN_NONBLOCK);
	sluice_stream per_thread = (sluice_stream)2;
	char *memory = alloc_on(HERE, 1000);
	struct gpu_hold hold;
	sluice_op *ops[3];

	gpu_use(HERE);
	write_first(file, memory);
	assert_ok(gpu_hold(HERE, s->stream, &hold));
	assert_ok(sluice_write_on(file, memory, 600, 0, s->stream, &ops[0]));
	assert_ok(sluice_write_on(file, memory, 600, 400, s->stream, &ops[1]));
	assert_refused(sluice_write_on(file, memory, 10, 0, per_thread, &ops[2]), EAGAIN, "");
	gpu_let_go(&hold);
	assert_int_equal(finish(ops[0]), 600);
	assert_int_equal(finish(ops[1]), 600);
	assert_ok(gpu_hold(HERE, per_thread, &hold));
	assert_ok(sluice_write_on(file, memory, 600, 0, per_thread, &ops[0]));
	assert_refused(sluice_write_on(file, memory, 600, 400, per_thread, &ops[1]), EAGAIN, "");
	assert_ok(sluice_write_on(file, memory, 400, 600, per_thread, &ops[1]));
	gpu_let_go(&hold);
	assert_int_equal(finish(ops[0]), 600);
	assert_int_equal(finish(ops[1]), 400);
	sluice_discard(file);
	assert_ok(sluice_device_free(memory));
}

SHELF_TEST(memory_out_of_a_streams_reach_is_refused)
{
	sluice_file *file = open_new(s, 1000);
	char *memory = alloc_on(HERE, 2000), host[10];
	struct sluice_extent v[65];
	sluice_stream other;
	sluice_op *op;

	assert_refused(sluice_write_on(file, host, 10, 0, s->stream, &op), ENOTSUP, "pinned");
	for (size_t i = 0; i < 65; i++)
		v[i] = (struct sluice_extent){memory + i, 1, i};
	assert_refused(submit_write_on(file, v, 65, s->stream, &op), E2BIG, "64");
	if (gpu_has_two()) {
		char *far = alloc_on(ELSE, 10);

		assert_ok(sluice_stream_new(gpu_device(ELSE), &other));
		assert_refused(sluice_write_on(file, far, 10, 0, other, &op), ENOTSUP,
		               gpu_name(HERE));
		assert_refused(sluice_write_on(file, far, 10, 0, s->stream, &op), EINVAL, "");
		assert_ok(sluice_stream_free(other));
		assert_ok(sluice_device_free(far));
	}
	sluice_discard(file);
	assert_ok(sluice_device_free(memory));
}

SHELF_TEST(excess_in_stream_order_is_an_error)
{
	sluice_file *file = open_new(s, 1000);
	char *memory = alloc_on(HERE, 2000);
	struct gpu_hold hold;
	sluice_op *ops[3];

	write_first(file, memory);
	/* Also behind others on the same stream, of which nobody knows what they will have done. */
	assert_ok(gpu_hold(HERE, s->stream, &hold));
	assert_ok(sluice_write_on(file, memory, 1000, 0, s->stream, &ops[0]));
	assert_ok(sluice_read_on(file, memory, 1001, 0, s->stream, &ops[1]));
	assert_ok(sluice_write_on(file, memory, 1001, 0, s->stream, &ops[2]));
	gpu_let_go(&hold);
	assert_int_equal(finish(ops[0]), 1000);
	assert_int_equal(finish(ops[1]), -EIO);
	assert_int_equal(finish(ops[2]), -EFBIG);
	assert_ok(sluice_read_on(file, memory, 10, 995, s->stream, &ops[0]));
	assert_int_equal(finish(ops[0]), -EIO);
	assert_ok(sluice_stream_synchronize(gpu_device(HERE), s->stream));
	sluice_discard(file);
	assert_ok(sluice_device_free(memory));
}

/* ---------------------------------------------------------------------------- slow, and failing */

static void set_delay(unsigned us)
{
	struct sluice_emulated_options o = SLUICE_EMULATED_OPTIONS_INIT;

	o.seed = us ? SEED : 0;
	o.delay_us = us;
	assert_ok(sluice_emulated_configure(gpu_device(HERE), &o));
}

SHELF_TEST(a_call_does_not_wait_for_copies_and_they_can_be_cancelled)
{
	enum { N = 64 * MIB };
	struct buffer b = buffer_new(N, 0);
	void *memory = alloc_on(HERE, N);
	sluice_op *ops[2];
	sluice_file *file;
	double begun, submitted;

	if (gpu_is_real())
		SKIP("a real device is not slow when it is told to be");
	file = open_new(s, N);
	write_first(file, b.data);
	set_delay(1000000);
	begun = seconds_now();
	assert_ok(sluice_write(file, b.data, N / 2, 0, &ops[0]));
	assert_ok(sluice_write(file, memory, N / 2, N / 2, &ops[1]));
	submitted = seconds_now() - begun;
	assert_int_equal(sluice_poll(ops[0]), 0);
	assert_int_equal(sluice_poll(ops[1]), 0);
	assert_ok(sluice_cancel(ops[0]));
	assert_ok(sluice_cancel(ops[1]));
	assert_int_equal(finish(ops[0]), -ECANCELED);
	assert_int_equal(finish(ops[1]), -ECANCELED);
	if (submitted > 0.5 * (seconds_now() - begun))
		fail_msg("%.3f s of %.3f s in the calls", submitted, seconds_now() - begun);
	sluice_discard(file);
	set_delay(0);
	assert_ok(sluice_device_free(memory));
	buffer_free(&b);
}

SHELF_TEST(a_default_stream_waits_for_what_is_awaited_on_the_host)
{
	enum { N = 24 * MIB };
	struct buffer b = buffer_new(N, 0);
	char *memory = alloc_on(HERE, MIB);
	sluice_op *ops[2];
	sluice_file *file;

	if (gpu_is_real())
		SKIP("a real device is not slow when it is told to be");
	file = open_new(s, N);
	write_first(file, b.data);
	memset(b.data, 1, N);
	assert_ok(sluice_copy(memory, b.data, MIB));
	memset(b.data, 2, N);
	set_delay(20000);
	assert_ok(sluice_write(file, b.data, N, 0, &ops[0]));
	assert_ok(sluice_write_on(file, memory, MIB, N - MIB, SLUICE_STREAM_DEFAULT, &ops[1]));
	assert_int_equal(finish(ops[0]), N);
	assert_int_equal(finish(ops[1]), MIB);
	set_delay(0);
	memset(b.data + N - MIB, 1, MIB);
	assert_ok(sluice_close(file));
	take_away(s, b.data, N);
	assert_ok(sluice_device_free(memory));
	buffer_free(&b);
}

SHELF_TEST(a_copy_that_fails_fails_the_operation)
{
	enum { N = 3 * MIB };
	struct buffer b = buffer_new(N, 0);
	void *here = alloc_on(HERE, N), *far = alloc_on(ELSE, N);
	void *data[] = {b.data, here, far, here};

	if (gpu_is_real())
		SKIP("a real device does not fail when it is told to");
	for (unsigned i = 0; i < COUNT_OF(data); i++) {
		sluice_file *file = open_new(s, N);
		sluice_op *op;

		sluice_emulated_fail(SLUICE_EMULATED_COPY, 1, -ENXIO);
		assert_ok(i == 3 ? sluice_write_on(file, data[i], N, 0, s->stream, &op)
		                 : sluice_write(file, data[i], N, 0, &op));
		assert_int_equal(finish(op), -ENXIO);
		/* A file that lacks something goes without being asked, whoever knows of it. */
		assert_refused(sluice_close(file), ENXIO, "");
		assert_int_equal(sluice_blob_exists(s->d->store, "x"), 0);
		assert_ok(sluice_stream_synchronize(gpu_device(HERE), s->stream));
	}
	assert_ok(sluice_device_free(here));
	assert_ok(sluice_device_free(far));
	buffer_free(&b);
}

SHELF_TEST(a_device_that_is_lost_ends_what_is_in_flight)
{
	enum { N = 64 * MIB };
	struct buffer b = buffer_new(N, 0);
	void *memory = alloc_on(HERE, N);
	sluice_op *ops[2];
	sluice_file *file;

	if (gpu_is_real())
		SKIP("a real device is not lost when it is told to be");
	file = open_new(s, N);
	set_delay(200000);
	assert_ok(sluice_write(file, b.data, N / 2, 0, &ops[0]));
	assert_ok(sluice_write(file, memory, N / 2, N / 2, &ops[1]));
	sluice_emulated_lose(gpu_device(HERE), 1);
	assert_int_equal(finish(ops[0]), -EIO);
	assert_int_equal(finish(ops[1]), -EIO);
	sluice_discard(file);
	sluice_emulated_lose(gpu_device(HERE), 0);
	set_delay(0);
	assert_ok(sluice_device_free(memory));
	buffer_free(&b);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "256M", NULL};

	row_start(1, argv);
	(void)argc;
	row_start_devices();
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
