/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "contract/contract.h"

#define LENGTH (4 * MIB)

static sluice_op *start_vector(sluice_file *file, bool write, const struct sluice_extent *v,
                               size_t count)
{
	sluice_op *op = NULL;

	if (write)
		assert_ok(submit_write(file, v, count, &op));
	else
		assert_ok(submit_read(file, v, count, &op));
	assert_non_null(op);
	return op;
}

static void shuffle(struct rng *r, struct sluice_extent *v, size_t count)
{
	for (size_t i = count - 1; i > 0; i--) {
		size_t j = rng_below(r, i + 1);
		struct sluice_extent t = v[i];

		v[i] = v[j];
		v[j] = t;
	}
}

FIXTURE_TEST(extents_in_any_order_are_read)
{
	enum { EXTENTS = 50 };
	const char *path = scratch(f, "readv");
	struct rng r = rng_new(300);
	sluice_file *file;
	int round, i;

	file_make(path, LENGTH, 2);
	file = open_read(f->ctx, address(f, "readv"));
	for (round = 0; round < rounds_of(9); round++) {
		struct buffer b[EXTENTS];
		struct sluice_extent v[EXTENTS];
		size_t total = 0;

		for (i = 0; i < EXTENTS; i++) {
			size_t n = rng_length(&r, 64 * KIB, 300 * KIB);

			b[i] = buffer_new(n, i % 2 ? 16 : 0);
			/* Overlaps are welcome: it is a read. */
			v[i] = (struct sluice_extent){b[i].data, n, rng_below(&r, LENGTH - n + 1)};
			total += n;
		}
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		assert_moves(start_vector(file, false, v, EXTENTS), total);
		for (i = 0; i < EXTENTS; i++) {
			assert_pattern(b[i].data, v[i].length, v[i].offset, 2);
			buffer_free(&b[i]);
		}
	}
	assert_ok(sluice_close(file));
}

/* Small ones that follow each other in the file, with gaps of all lengths, and a large one here and there. */
FIXTURE_TEST(extents_in_the_order_of_the_file_are_read)
{
	enum { EXTENTS = 3000 };
	static const size_t gaps[] = {1, 300, 5000, 20 * KIB, 150 * KIB};
	const char *path = scratch(f, "near");
	struct sluice_extent *v = calloc(EXTENTS, sizeof(*v));
	struct buffer b = buffer_new(LENGTH, 16);
	struct rng r = rng_new(330);
	sluice_file *file;

	file_make(path, LENGTH, 2);
	file = open_read(f->ctx, address(f, "near"));
	for (int round = 0; round < rounds_of(10); round++) {
		size_t at = 0, total = 0, count = 0;

		for (; count < EXTENTS; count++) {
			size_t gap = rng_below(&r, gaps[round % COUNT_OF(gaps)]);
			size_t n = rng_below(&r, rng_below(&r, 50) ? 3000 : 300 * KIB);

			at += gap / 2 * rng_below(&r, 3);
			if (at + n > LENGTH)
				break;
			v[count] = (struct sluice_extent){b.data + total, n, at};
			total += n;
			at += n;
		}
		memset(b.data, 0, LENGTH);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		assert_moves(start_vector(file, false, v, count), total);
		for (size_t i = 0; i < count; i++)
			assert_pattern(v[i].data, v[i].length, v[i].offset, 2);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
	free(v);
}

LOCAL_TEST(a_thousand_extents_are_written_and_read_back, WRITES_IN_PLACE)
{
	enum { EXTENTS = 1000 };
	struct rng r = rng_new(310);
	int round;

	for (round = 0; round < 3; round++) {
		const char *path = scratch(f, "thousand");
		struct sluice_extent *v = calloc(EXTENTS, sizeof(*v));
		struct buffer b = buffer_new(EXTENTS * 5000, 0), back;
		sluice_file *file = open_both(f->ctx, path);
		size_t at = 0, total, i;
		sluice_op *op;

		pattern_fill(b.data, b.length, 0, 4);
		for (i = 0; i < EXTENTS; i++) {
			/* Neighbours in the file, with a gap and an empty one here and there. */
			size_t n = round == 0 ? 4096 : rng_below(&r, 5000);

			v[i] = (struct sluice_extent){b.data + at, n, at};
			at += n;
		}
		total = at;
		shuffle(&r, v, EXTENTS);
		op = start_vector(file, true, v, EXTENTS);
		memset(v, 0xff, EXTENTS * sizeof(*v)); /* the array was copied */
		assert_moves(op, total);
		assert_file_is(path, b.data, total);

		back = buffer_new(total, 0);
		for (i = 0, at = 0; i < EXTENTS; i++, at += total / EXTENTS)
			v[i] = (struct sluice_extent){back.data + at, total / EXTENTS, at};
		shuffle(&r, v, EXTENTS);
		op = start_vector(file, false, v, EXTENTS);
		memset(v, 0xff, EXTENTS * sizeof(*v));
		assert_moves(op, total / EXTENTS * EXTENTS);
		assert_bytes(back.data, b.data, total / EXTENTS * EXTENTS);
		assert_ok(sluice_close(file));
		unlink(path);
		buffer_free(&back);
		buffer_free(&b);
		free(v);
	}
}

LOCAL_TEST(extents_of_one_write_must_not_overlap, WRITES_IN_PLACE)
{
	const char *path = scratch(f, "overlap");
	static char src[200];
	static const struct {
		struct sluice_extent v[3];
	} bad[] = {
		{{{src, 10, 0}, {src, 10, 9}, {src, 1, 100}}},
		{{{src, 10, 9}, {src, 1, 100}, {src, 10, 0}}},
		{{{src, 1, 5}, {src, 1, 5}, {src, 1, 6}}},
		{{{src, 100, 50}, {src, 1, 100}, {src, 10, 0}}},
		{{{src, 1, 149}, {src, 10, 0}, {src, 100, 50}}},
	};
	static const struct sluice_extent fine[] = {
		{src, 10, 10}, {src, 10, 0}, {src, 0, 5}, {src, 0, 5}, {src, 10, 20},
	};
	sluice_file *file = open_both(f->ctx, path);
	struct sluice_extent *many = calloc(500, sizeof(*many));
	sluice_op *op = NULL;
	size_t i;

	for (i = 0; i < COUNT_OF(bad); i++)
		assert_refused(submit_write(file, bad[i].v, 3, &op), EINVAL, "overlap");
	for (i = 0; i < 500; i++)
		many[i] = (struct sluice_extent){src, 7, (i * 211 % 500) * 7};
	many[77].length++;
	assert_refused(submit_write(file, many, 500, &op), EINVAL, "overlap");
	assert_null(op);
	assert_int_equal(file_length(path), 0);
	assert_moves(start_vector(file, true, fine, COUNT_OF(fine)), 30);
	assert_int_equal(file_length(path), 30);
	assert_ok(sluice_close(file));
	free(many);
}

FIXTURE_TEST(each_extent_is_read_up_to_the_end)
{
	const char *path = scratch(f, "ends");
	struct buffer b = buffer_new(3 * MIB, 0);
	sluice_file *file;
	int cold;

	file_make(path, MIB + 100, 2);
	file = open_read(f->ctx, address(f, "ends"));
	for (cold = 0; cold < 2; cold++) {
		const struct sluice_extent v[] = {
			{b.data, 1000, 5 * MIB},            /* nothing of it */
			{b.data + 1000, 1000, MIB},         /* 100 bytes */
			{b.data + 2000, 10, 50},            /* all */
			{b.data + MIB, 2 * MIB, 200 * KIB}, /* to the end */
			{b.data + 3000, 50, MIB + 100},     /* just past it */
			{b.data + 3100, 1, MIB + 99},       /* the last byte */
		};
		size_t tail = MIB + 100 - 200 * KIB;

		file_set_residency(path, cold ? COLD : CACHED);
		assert_moves(start_vector(file, false, v, COUNT_OF(v)), 100 + 10 + tail + 1);
		assert_pattern(b.data + 1000, 100, MIB, 2);
		assert_pattern(b.data + 2000, 10, 50, 2);
		assert_pattern(b.data + MIB, tail, 200 * KIB, 2);
		assert_pattern(b.data + 3100, 1, MIB + 99, 2);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

LOCAL_TEST(call_with_a_bad_extent_is_refused_whole, WRITES_IN_PLACE)
{
	const char *path = scratch(f, "bad");
	static char data[100];
	const struct sluice_extent null[] = {{data, 10, 0}, {NULL, 10, 20}};
	const struct sluice_extent far[] = {{data, 10, 0}, {data, 10, (uint64_t)INT64_MAX - 5}};
	sluice_file *file = open_both(f->ctx, path);
	sluice_op *op = NULL;

	assert_refused(submit_write(file, null, 2, &op), EINVAL, "");
	assert_refused(submit_read(file, null, 2, &op), EINVAL, "");
	assert_refused(submit_write(file, far, 2, &op), EINVAL, "");
	assert_refused(submit_read(file, far, 2, &op), EINVAL, "");
	assert_refused(submit_read(file, NULL, 2, &op), EINVAL, "");
	assert_null(op);
	assert_int_equal(file_length(path), 0);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(a_malformed_request_is_refused)
{
	static char data[10];
	const struct sluice_extent v = {data, 10, 0};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	sluice_file *file = open_any(f, "request");
	sluice_op *op = NULL;

	r.extents = &v;
	r.count = 1;
	assert_refused(sluice_submit(file, &r, &op), EINVAL, "kind");
	r.kind = 77;
	assert_refused(sluice_submit(file, &r, &op), EINVAL, "kind");
	r.kind = row->remote ? SLUICE_READ : SLUICE_WRITE;
	r.size = 0;
	assert_refused(sluice_submit(file, &r, &op), EINVAL, "size");
	assert_null(op);
	r.size = sizeof(r);
	assert_ok(sluice_submit(file, &r, &op));
	assert_null(sluice_op_user(op));
	assert_moves(op, 10);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(extents_may_share_one_destination_page)
{
	enum { EXTENTS = 256 };
	const char *path = scratch(f, "scatter");
	struct sluice_extent v[EXTENTS];
	struct buffer b = buffer_new(EXTENTS * 3, 1);
	struct rng r = rng_new(320);
	sluice_file *file;
	size_t i;

	file_make(path, LENGTH, 3);
	file_set_residency(path, COLD);
	file = open_read(f->ctx, address(f, "scatter"));
	for (i = 0; i < EXTENTS; i++)
		v[i] = (struct sluice_extent){b.data + 3 * i, 3, rng_below(&r, LENGTH - 3)};
	assert_moves(start_vector(file, false, v, EXTENTS), EXTENTS * 3);
	for (i = 0; i < EXTENTS; i++)
		assert_pattern(v[i].data, 3, v[i].offset, 3);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
