/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random reads and writes of a small file, submitted without waiting, through several handles:
 * every read gives, and the file ends as, what the same operations give one after the other.
 */
#include <unistd.h>

#include "contract/contract.h"

enum { LENGTH = 200000, OPERATIONS = 250, EXTENTS_MOST = 6, HANDLES = 3 };

/* One operation and, for a read, what it must give. */
struct step {
	sluice_op *op;
	bool write;
	size_t total, count;
	struct sluice_extent v[EXTENTS_MOST];
	struct buffer b;
	unsigned char *expected;
};

/* Up to EXTENTS_MOST ranges; those of a write are kept apart, as the contract asks. */
static void choose_extents(struct rng *r, struct step *s)
{
	size_t i, j, at = 0;

	s->write = rng_below(r, 2);
	s->count = rng_below(r, 3) ? 1 : 1 + rng_below(r, EXTENTS_MOST);
	s->total = 0;
	for (i = 0; i < s->count; i++) {
		struct sluice_extent *v = &s->v[i];
		bool clear;

		v->length = rng_length(r, 8192, rng_below(r, 3) ? 20000 : 60000);
		v->offset = rng_below(r, LENGTH - v->length + 1);
		if (rng_below(r, 3) == 0)
			v->offset &= ~4095ull;
		clear = true;
		for (j = 0; s->write && j < i; j++)
			clear = clear && (v->offset >= s->v[j].offset + s->v[j].length ||
			                  s->v[j].offset >= v->offset + v->length);
		if (!clear)
			v->length = 0;
		s->total += v->length;
	}
	s->b = buffer_new(s->total, rng_below(r, 2) * 16);
	for (i = 0; i < s->count; at += s->v[i++].length)
		s->v[i].data = s->b.data + at;
}

static void submit_step(struct step *s, sluice_file *file, unsigned char *model, uint64_t seed)
{
	size_t i, at = 0;

	s->expected = malloc(s->total + 1);
	for (i = 0; i < s->count; i++) {
		const struct sluice_extent *v = &s->v[i];

		if (s->write) {
			pattern_fill(v->data, v->length, v->offset, seed);
			memcpy(model + v->offset, v->data, v->length);
		} else {
			memcpy(s->expected + at, model + v->offset, v->length);
		}
		at += v->length;
	}
	if (s->write)
		assert_ok(submit_write(file, s->v, s->count, &s->op));
	else
		assert_ok(submit_read(file, s->v, s->count, &s->op));
}

static void finish_step(struct step *s)
{
	assert_moves(s->op, s->total);
	if (!s->write)
		assert_bytes(s->b.data, s->expected, s->total);
	free(s->expected);
	buffer_free(&s->b);
}

FIXTURE_TEST(random_operations_equal_the_sequential_ones)
{
	struct rng r = rng_new(400);
	int round, i;

	for (round = 0; round < rounds_of(8); round++) {
		const char *path = scratch(f, "model");
		struct step *steps = calloc(OPERATIONS, sizeof(*steps));
		unsigned char *model = malloc(LENGTH);
		sluice_file *file[HANDLES];
		int first = 0, in_flight = round % 2 ? 16 : OPERATIONS;

		file_make(path, LENGTH, 1);
		pattern_fill(model, LENGTH, 0, 1);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		for (i = 0; i < HANDLES; i++)
			file[i] = open_both(f->ctx, path);
		for (i = 0; i < OPERATIONS; i++) {
			choose_extents(&r, &steps[i]);
			submit_step(&steps[i], file[rng_below(&r, HANDLES)], model,
			            1000 + (uint64_t)i);
			if (i - first >= in_flight)
				finish_step(&steps[first++]);
		}
		while (first < OPERATIONS)
			finish_step(&steps[first++]);
		assert_file_is(path, model, LENGTH);
		for (i = 0; i < HANDLES; i++)
			assert_ok(sluice_close(file[i]));
		file_set_residency(path, COLD);
		assert_file_is(path, model, LENGTH);
		unlink(path);
		free(model);
		free(steps);
	}
}

/* No handle is kept, so only sync and close wait for them. */
FIXTURE_TEST(random_writes_without_handles_equal_the_sequential_ones)
{
	const char *path = scratch(f, "handless");
	struct buffer src = buffer_new(2 * LENGTH, 0);
	unsigned char *model = malloc(LENGTH);
	struct rng r = rng_new(410);
	sluice_file *file;
	int i;

	file_make(path, LENGTH, 1);
	pattern_fill(model, LENGTH, 0, 1);
	pattern_fill(src.data, src.length, 0, 2);
	file = open_both(f->ctx, path);
	for (i = 0; i < 500; i++) {
		size_t n = rng_length(&r, 8192, 50000), from = rng_below(&r, LENGTH);
		uint64_t at = rng_below(&r, LENGTH - n + 1);

		assert_ok(sluice_write(file, src.data + from, n, at, NULL));
		memcpy(model + at, src.data + from, n);
		if (i == 250) {
			assert_ok(sluice_sync(file));
			assert_file_is(path, model, LENGTH);
		}
	}
	assert_ok(sluice_close(file));
	assert_file_is(path, model, LENGTH);
	free(model);
	buffer_free(&src);
}

/* Writes anywhere, also far behind the end, and truncates, which wait for what they touch. */
FIXTURE_TEST(random_writes_and_truncates_equal_the_sequential_ones)
{
	struct rng r = rng_new(420);
	int round, i;

	for (round = 0; round < rounds_of(6); round++) {
		const char *path = scratch(f, "lengths");
		struct buffer src = buffer_new(2 * LENGTH, 0);
		unsigned char *model = calloc(1, LENGTH);
		sluice_file *file = open_both(f->ctx, path);
		size_t length = 0;

		pattern_fill(src.data, src.length, 0, (uint64_t)round);
		for (i = 0; i < 150; i++) {
			if (rng_below(&r, 8) == 0) {
				size_t to = rng_below(&r, LENGTH);

				assert_ok(sluice_truncate(file, to));
				if (to < length)
					memset(model + to, 0, length - to);
				length = to;
			} else {
				size_t n = rng_length(&r, 8192, 30000);
				size_t at = rng_below(&r, LENGTH - n), from = rng_below(&r, LENGTH);

				assert_ok(sluice_write(file, src.data + from, n, at, NULL));
				memcpy(model + at, src.data + from, n);
				if (n && at + n > length)
					length = at + n;
			}
		}
		assert_ok(sluice_close(file));
		assert_file_is(path, model, length);
		unlink(path);
		free(model);
		buffer_free(&src);
	}
}
