/* SPDX-License-Identifier: Apache-2.0 */
/* Many extents in one operation: where their bytes go, and in how many pieces they are read. */
#include "io/device_suite.h"
#include "lib/gate.h"

#define NO_GATE "results of requests do not pass the gate"
#define BLANK   0x3c /* as device_new() fills */

enum layout { IN_ORDER, WITH_GAPS, BACKWARDS, OVERLAPPING, AT_RANDOM, LAYOUTS };
enum { MANY = 20000, APART = 9 };

/* Extents of one operation, of a file of `length` bytes; no two of them in the same memory. */
struct layout_test {
	struct sluice_extent *v;
	size_t count;
	char *memory;
	size_t room;
	uint64_t length;
};

static size_t choose_length(struct rng *r, size_t most)
{
	if (rng_below(r, 20) == 0)
		return 0;
	return 1 + rng_below(r, (size_t)1 << rng_below(r, most)) % (row_bytes(MIB) - 1);
}

static uint64_t place(struct rng *r, enum layout layout, uint64_t end, size_t n)
{
	switch (layout) {
	case WITH_GAPS:
		return end + (rng_below(r, 2) ? rng_below(r, 3 * n + 100) : rng_below(r, 64));
	case OVERLAPPING:
		return end - rng_below(r, (size_t)(end < n ? end : n) + 1);
	case AT_RANDOM:
		return rng_below(r, 2 * MIB);
	default:
		return end;
	}
}

static void shuffle(struct rng *r, size_t *order, size_t count)
{
	for (size_t i = 0; i < count; i++)
		order[i] = i;
	for (size_t i = count; i > 1; i--) {
		size_t other = rng_below(r, i), last = order[i - 1];

		order[i - 1] = order[other];
		order[other] = last;
	}
}

/* In memory they are APART, in an order of their own. */
static void layout_new(struct layout_test *t, struct rng *r, enum layout layout, size_t count,
                       size_t most)
{
	size_t *order = calloc(count, sizeof(*order)), at = APART;
	uint64_t end = rng_below(r, 5000);

	t->v = calloc(count, sizeof(*t->v));
	t->count = count;
	t->length = 0;
	for (size_t i = 0; i < count; i++) {
		size_t n = choose_length(r, most);

		t->v[i].length = n;
		t->v[i].offset = place(r, layout, end, n);
		end = t->v[i].offset + n;
		if (end > t->length)
			t->length = end;
	}
	for (size_t i = 0; layout == BACKWARDS && i < count / 2; i++) {
		struct sluice_extent first = t->v[i];

		t->v[i] = t->v[count - 1 - i];
		t->v[count - 1 - i] = first;
	}
	shuffle(r, order, count);
	t->room = APART;
	for (size_t i = 0; i < count; i++)
		t->room += t->v[i].length + APART;
	t->memory = device_new(0, t->room);
	for (size_t i = 0; i < count; i++) {
		t->v[order[i]].data = t->memory + at;
		at += t->v[order[i]].length + APART;
	}
	free(order);
}

static void layout_free(struct layout_test *t)
{
	device_free(t->memory);
	free(t->v);
}

/* Each extent has its bytes of the file, and the bytes between them are as they were. */
static void assert_layout(const struct layout_test *t, uint64_t file_size, uint64_t seed)
{
	unsigned char *held = malloc(t->room), *marks = calloc(1, t->room);

	device_get(held, t->memory, t->room);
	for (size_t i = 0; i < t->count; i++) {
		const struct sluice_extent *e = &t->v[i];
		size_t at = (size_t)((char *)e->data - t->memory);
		size_t n = e->offset >= file_size              ? 0
		           : e->length < file_size - e->offset ? e->length
		                                               : file_size - e->offset;

		assert_pattern(held + at, n, e->offset, seed);
		memset(marks + at, 1, n);
	}
	for (size_t i = 0; i < t->room; i++)
		if (!marks[i] && held[i] != BLANK)
			fail_msg("byte %zu of %zu was written", i, t->room);
	free(held);
	free(marks);
}

static size_t bytes_of(const struct layout_test *t, uint64_t file_size)
{
	size_t sum = 0;

	for (size_t i = 0; i < t->count; i++)
		if (t->v[i].offset < file_size)
			sum += t->v[i].length < file_size - t->v[i].offset
			               ? t->v[i].length
			               : file_size - t->v[i].offset;
	return sum;
}

static sluice_op *start_readv(sluice_file *file, const struct layout_test *t, bool on,
                              sluice_stream stream)
{
	sluice_op *op = NULL;

	if (on)
		assert_ok(submit_read_on(file, t->v, t->count, stream, &op));
	else
		assert_ok(submit_read(file, t->v, t->count, &op));
	return op;
}

static void read_layout(struct fixture *f, struct rng *r, int round, size_t count, size_t most)
{
	bool on = round % 2;
	struct layout_test t;
	sluice_stream stream = stream_new(0);
	const char *path = scratch(f, "extents");
	sluice_file *file;

	layout_new(&t, r, (enum layout)(round / 2 % LAYOUTS), count, most);
	/* Awaited on the host the last bytes may be missing. */
	if (!on && round % 3 == 0)
		t.length -= t.length / 10;
	file_make(path, t.length, (uint64_t)round);
	file_set_residency(path, (enum residency)(round % RESIDENCIES));
	file = open_read(f->ctx, address(f, "extents"));
	assert_moves(start_readv(file, &t, on, stream), bytes_of(&t, t.length));
	assert_layout(&t, t.length, (uint64_t)round);
	assert_ok(sluice_close(file));
	stream_free(stream);
	layout_free(&t);
}

FIXTURE_TEST(extents_land_where_they_belong_and_nothing_lies_beside_them)
{
	struct rng r = rng_new(4711);

	for (int round = 0; round < (row->remote ? 10 : 30); round++)
		read_layout(f, &r, round, 1 + rng_below(&r, 300), 8 + rng_below(&r, 10));
}

FIXTURE_TEST(twenty_thousand_extents_are_one_read)
{
	struct rng r = rng_new(4712);

	for (int round = 0; round < 2; round++)
		read_layout(f, &r, round, row->remote ? MANY / 4 : MANY, 12);
}

LOCAL_TEST(extents_come_back_as_they_were_written, "a remote file cannot be written in place")
{
	static const enum layout layouts[] = {IN_ORDER, WITH_GAPS, BACKWARDS};
	struct rng r = rng_new(4713);

	for (int round = 0; round < 12; round++) {
		sluice_stream stream = stream_new(0);
		const char *path = scratch(f, "written");
		struct layout_test t;
		unsigned char *image, *expected;
		sluice_op *op = NULL;
		sluice_file *file;

		layout_new(&t, &r, layouts[round % 3], 1 + rng_below(&r, 300), 16);
		image = malloc(t.room);
		expected = malloc(t.length);
		file_make(path, t.length, 1);
		pattern_fill(expected, t.length, 0, 1);
		for (size_t i = 0; i < t.count; i++) {
			pattern_fill(image + ((char *)t.v[i].data - t.memory), t.v[i].length,
			             t.v[i].offset, 2);
			pattern_fill(expected + t.v[i].offset, t.v[i].length, t.v[i].offset, 2);
		}
		assert_ok(sluice_copy(t.memory, image, t.room));
		file = open_both(f->ctx, path);
		if (round % 2)
			assert_ok(submit_write_on(file, t.v, t.count, stream, &op));
		else
			assert_ok(submit_write(file, t.v, t.count, &op));
		assert_moves(op, bytes_of(&t, t.length));
		assert_ok(sluice_close(file));
		assert_file_is(path, expected, t.length);
		free(image);
		free(expected);
		stream_free(stream);
		layout_free(&t);
	}
}

/* The most spans of a chunk, one of them in memory that was pinned in two steps, beside as many. */
LOCAL_TEST(a_chunk_of_the_most_spans_lies_in_memory_of_two_steps, "a remote file is not written")
{
	enum { SPANS = 256, SMALL = 64, LARGE = 300 * KIB };
	struct sluice_config c = row_config();
	char *memory = device_new(0, (size_t)SPANS * LARGE);
	const char *path = scratch(f, "most");
	struct sluice_extent v[2 * SPANS];
	sluice_op *op = NULL;
	sluice_file *file;

	c.staging_bytes = 768 * MIB;
	config_tune(&c, "slots", 2);
	c.direct_bytes = MIB;
	config_tune(&c, "slot_bytes", 128 * MIB);
	fixture_config(f, &c);
	for (size_t i = 0; i < 2 * SPANS; i++)
		v[i] = (struct sluice_extent){
			.data = memory + i % SPANS * LARGE,
			.length = i < SPANS ? SMALL : LARGE,
			.offset = i * 2 * LARGE,
		};
	file_make(path, 100, 1);
	file = open_both(f->ctx, path);
	assert_ok(submit_write(file, v, 2 * SPANS, &op));
	assert_moves(op, (int64_t)SPANS * (SMALL + LARGE));
	assert_ok(sluice_close(file));
	device_free(memory);
}

/* Later extents come after earlier ones; the legacy default stream takes no batches. */
FIXTURE_TEST(in_stream_order_the_last_of_the_extents_in_one_place_stays)
{
	enum { COUNT = 100, LENGTH = 700 };
	size_t n = (size_t)COUNT * LENGTH;
	struct sluice_extent v[COUNT];
	sluice_stream streams[2] = {stream_new(0), NULL};
	char *memory = device_new(0, n);
	struct rng r = rng_new(4714);
	sluice_file *file;

	file_make(scratch(f, "over"), n, 1);
	file = open_read(f->ctx, address(f, "over"));
	for (int round = 0; round < 6; round++) {
		unsigned char *expected = malloc(n), *held = malloc(n);
		sluice_op *op = NULL;

		device_get(expected, memory, n);
		for (size_t i = 0; i < COUNT; i++) {
			size_t at = rng_below(&r, round < 2 ? 1 : n - LENGTH);

			v[i] = (struct sluice_extent){memory + at, LENGTH, i * LENGTH};
			pattern_fill(expected + at, LENGTH, v[i].offset, 1);
		}
		assert_ok(submit_read_on(file, v, COUNT, streams[round % 2], &op));
		assert_moves(op, n);
		device_get(held, memory, n);
		assert_memory_equal(held, expected, n);
		free(expected);
		free(held);
	}
	assert_ok(sluice_close(file));
	stream_free(streams[0]);
	device_free(memory);
}

LOCAL_TEST(extents_that_follow_each_other_are_read_in_few_pieces, NO_GATE)
{
	enum { EXTENTS = 4000, LENGTH = 500, GAP = 12 };
	size_t n = (size_t)EXTENTS * (LENGTH + GAP);
	struct sluice_extent *v = calloc(EXTENTS, sizeof(*v));
	char *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	struct sluice_config c = SLUICE_CONFIG_INIT;
	sluice_file *file;

	c.backend = row_config().backend;
	fixture_config(f, &c);
	file_make(scratch(f, "near"), n, 1);
	file = open_read(f->ctx, scratch(f, "near"));
	for (size_t i = 0; i < EXTENTS; i++)
		v[i] = (struct sluice_extent){memory + i * LENGTH, LENGTH, i * (LENGTH + GAP)};
	for (int round = 0; round < 2; round++) {
		sluice_op *op = NULL;

		bend(NULL);
		if (round)
			assert_ok(submit_read_on(file, v, EXTENTS, stream, &op));
		else
			assert_ok(submit_read(file, v, EXTENTS, &op));
		assert_moves(op, (size_t)EXTENTS * LENGTH);
		assert_in_range(gate_count(), 1, EXTENTS / 16);
	}
	for (size_t i = 0; i < EXTENTS; i += 97)
		assert_device(memory + i * LENGTH, LENGTH, i * (LENGTH + GAP), 1);
	gate_reset();
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
	free(v);
}

static bool ends_the_file(const struct sl_piece *piece)
{
	return piece->offset > 0;
}

LOCAL_TEST(an_operation_of_many_extents_ends_when_it_is_cancelled_in_the_middle, NO_GATE)
{
	struct rng r = rng_new(4715);
	sluice_stream stream = stream_new(0);
	struct layout_test t;
	sluice_file *file;

	make_room(f);
	/* Without batches so many are as many commands, which have to fit into the device's queue at once. */
	layout_new(&t, &r, WITH_GAPS, 250, 16);
	file_make(scratch(f, "stop"), t.length, 1);
	for (int round = 0; round < 6; round++) {
		sluice_op *op;
		int64_t got;

		file = open_read(f->ctx, scratch(f, "stop"));
		file_set_residency(scratch(f, "stop"), (enum residency)(round % RESIDENCIES));
		gate_close(round % 3 ? ends_the_file : NULL);
		op = start_readv(file, &t, round % 2, stream);
		assert_true(gate_holds(1));
		sluice_cancel(op);
		gate_open();
		got = finish(op);
		assert_int_equal(got, -ECANCELED);
		if (round % 2)
			stream_pass(0, stream);
		/* The next one is right, and has the slots. */
		assert_moves(start_readv(file, &t, round % 2, stream), bytes_of(&t, t.length));
		assert_layout(&t, t.length, 1);
		assert_ok(sluice_close(file));
		gate_reset();
	}
	stream_free(stream);
	layout_free(&t);
}

static _Atomic unsigned left_to_fail;

static ssize_t fail_one(const struct sl_piece *piece, ssize_t result)
{
	(void)piece;
	return atomic_fetch_sub(&left_to_fail, 1) == 1 ? -EIO : result;
}

LOCAL_TEST(a_piece_that_fails_in_the_middle_fails_the_operation_of_many_extents, NO_GATE)
{
	struct rng r = rng_new(4716);
	sluice_stream stream = stream_new(0);
	struct layout_test t;
	sluice_file *file;

	layout_new(&t, &r, AT_RANDOM, 400, 12);
	file_make(scratch(f, "fail"), t.length, 1);
	file = open_read(f->ctx, scratch(f, "fail"));
	for (int round = 0; round < 4; round++) {
		sluice_op *op;

		atomic_store(&left_to_fail, 5);
		bend(fail_one);
		op = start_readv(file, &t, round % 2, stream);
		assert_fails(op, EIO);
		if (round % 2)
			stream_pass(0, stream);
		gate_reset();
		assert_moves(start_readv(file, &t, round % 2, stream), bytes_of(&t, t.length));
		assert_layout(&t, t.length, 1);
	}
	assert_ok(sluice_close(file));
	stream_free(stream);
	layout_free(&t);
}
