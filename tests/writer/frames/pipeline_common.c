/* SPDX-License-Identifier: Apache-2.0 */
#include "frames/pipeline_test.h"

int pipeline_setup(void **state)
{
	fake_reset();
	return fixture_setup(state);
}

int pipeline_teardown(void **state)
{
	unsigned wrong = atomic_load(&fake.wrong);

	fake_reset();
	return fixture_teardown(state) || wrong;
}

sluice_writer *writer_open(struct fixture *f, const struct sluice_writer_options *o)
{
	sluice_writer *w = NULL;

	assert_ok(sluice_writer_open(f->ctx, scratch(f, "frames.h5"), o, &w));
	return w;
}

struct sluice_series_options small_options(void)
{
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.chunk_frames = 1;
	o.type = SLUICE_FLOAT32;
	o.rank = 2;
	o.shape[0] = 40;
	o.shape[1] = 50;
	o.chunk[0] = 7;
	o.chunk[1] = 50;
	return o;
}

sluice_series *series_add(sluice_writer *w, const char *name, const struct sluice_series_options *o)
{
	sluice_series *s = NULL;

	assert_ok(sluice_series_add(w, name, o, &s));
	return s;
}

void frame_fill(void *data, size_t bytes, uint64_t seed, uint64_t number)
{
	unsigned char *to = data;
	uint64_t z = seed * UINT64_C(0x9e3779b97f4a7c15) + number;

	for (size_t i = 0; i < bytes; i++) {
		if (i % 61 == 0)
			z = z * UINT64_C(6364136223846793005) + 1;
		to[i] = (unsigned char)((i >> 3) + (i % 61 ? z : z >> 56));
	}
}

void frame_put(sluice_series *s, uint64_t seed, uint64_t number)
{
	void *frame;

	assert_ok(sluice_series_acquire(s, PATIENCE_MS, &frame));
	frame_fill(frame, sluice_series_frame_bytes(s), seed, number);
	assert_ok(sluice_series_submit(s, frame, NULL));
}

void assert_frames(const struct fake_dataset *d, uint64_t seed, uint64_t count)
{
	size_t bytes = d->layout.element;
	unsigned char *expected, *found;

	for (unsigned i = 0; i < d->layout.rank; i++)
		bytes *= d->layout.shape[i];
	expected = malloc(bytes);
	found = malloc(bytes);
	assert_int_equal(d->whole, count);
	for (uint64_t k = 0; k < count; k++) {
		frame_fill(expected, bytes, seed, k);
		memset(found, 0x5a, bytes);
		assert_true(fake_read(d, d->first + k, found));
		assert_bytes(found, expected, bytes);
	}
	free(found);
	free(expected);
}

struct sluice_writer_counts writer_stats(sluice_writer *w)
{
	struct sluice_writer_counts stats = {.size = sizeof(stats)};

	assert_ok(sluice_writer_stats(w, &stats));
	return stats;
}

struct sluice_writer_counts series_stats(sluice_series *s)
{
	struct sluice_writer_counts stats = {.size = sizeof(stats)};

	assert_ok(sluice_series_stats(s, &stats));
	return stats;
}
