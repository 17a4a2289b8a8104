/* SPDX-License-Identifier: Apache-2.0 */
/* What a writer takes of memory: what its statistics say and not much beside it, however many frames come. */
#include <unistd.h>

#include "core/core.h"
#include "frames/content.h"

/*
 * Beside memory_bytes: HDF5 with its cache of metadata, what of the file is held back until a flush, and the
 * threads. That cache has 2 MiB as they are in the file; nodes of the index, which it has read, take six times
 * as much. Chunks of small frames have few nodes: they fill the cache after some 600,000 frames, and before that add
 * 16 bytes for each frame.
 */
#define BESIDE (20 * MIB)
/* The same of a few frames. */
#define BESIDE_FEW (6 * MIB)
/* Of memory_bytes, beside depth x frame, with 4 threads: each compresses a chunk of 1 MiB from one into
 * another, and may be three ahead of what is stored. */
#define TOOLS (24 * MIB)
enum { FILLED = 20000, FILLED_WHOLE = 600000, FRAMES = 10000 };
/* What ten thousand frames may take more after FILLED, and any number of them after FILLED_WHOLE. */
#define GROWS (512 * KIB)

static struct sluice_series_options options(uint64_t rows, uint64_t columns, const char *codec)
{
	static const char *const scalars[] = {"time", "step"};
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.type = SLUICE_FLOAT32;
	o.rank = 2;
	o.shape[0] = rows;
	o.shape[1] = columns;
	o.codec = codec;
	o.scalars = scalars;
	o.scalar_count = 2;
	return o;
}

static sluice_writer *writer_open(struct fixture *f, uint64_t checkpoint_frames)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	sluice_writer *w = NULL;

	o.flags = SLUICE_WRITER_REPLACE;
	o.threads = 4;
	o.checkpoint_frames = checkpoint_frames;
	assert_ok(sluice_writer_open(f->ctx, scratch(f, "x.h5"), &o, &w));
	return w;
}

static sluice_series *series_add(sluice_writer *w, const char *name,
                                 const struct sluice_series_options *o)
{
	sluice_series *s = NULL;

	assert_ok(sluice_series_add(w, name, o, &s));
	return s;
}

static void put(sluice_series *s, const struct content *c, uint64_t frame, size_t elements)
{
	double values[] = {content_scalar(c, frame, 0), content_scalar(c, frame, 1)};
	void *memory;

	assert_ok(sluice_series_acquire(s, PATIENCE_MS, &memory));
	content_fill(c, frame, 0, elements, memory);
	assert_ok(sluice_series_submit(s, memory, values));
}

FIXTURE_TEST(memory_stays_as_it_is_over_ten_thousand_frames)
{
	struct content c = {SLUICE_FLOAT32, CONTENT_SMOOTH, 5};
	struct sluice_series_options o = options(16, 20, "deflate"), p = options(16, 20, "none");
	struct sluice_writer_counts stats = {.size = sizeof(stats)};
	size_t before = resident_bytes(), filled = 0, most = 0;
	size_t first = under_stress() ? FILLED_WHOLE : FILLED;
	size_t frames = first + (under_stress() ? 20 : 1) * FRAMES;
	sluice_writer *w;
	sluice_series *u, *v;

	if (under_sanitizer())
		SKIP("a sanitizer has memory of its own");
	w = writer_open(f, 50);
	u = series_add(w, "u", &o);
	v = series_add(w, "v", &p);
	for (size_t frame = 1; frame <= frames; frame++) {
		put(u, &c, frame, 320);
		put(v, &c, frame, 320);
		if (frame == first)
			filled = resident_bytes();
		if (frame > first && frame % 500 == 0)
			most = SL_MAX(most, resident_bytes());
	}
	assert_ok(sluice_writer_stats(w, &stats));
	print_message(
		"%.2f MiB before, %.2f after %zu frames, at most %.2f up to %zu; memory_bytes "
		"%.2f, %llu flushes\n",
		(double)before / MIB, (double)filled / MIB, first, (double)most / MIB, frames,
		(double)stats.memory_bytes / MIB, (unsigned long long)stats.flushes);
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
	assert_in_range(most, 0, filled + GROWS);
	assert_in_range(most, 0, before + stats.memory_bytes + BESIDE);
}

FIXTURE_TEST(memory_is_what_the_statistics_say)
{
	static const char *const codecs[] = {"deflate", "none", "deflate"};
	struct content c = {SLUICE_FLOAT32, CONTENT_MIXED, 5};

	if (under_sanitizer())
		SKIP("a sanitizer has memory of its own");
	for (unsigned round = 0; round < COUNT_OF(codecs); round++) {
		enum { ROWS = 1024, COLUMNS = 2048 };
		struct sluice_series_options o = options(ROWS, COLUMNS, codecs[round]);
		struct sluice_writer_counts stats = {.size = sizeof(stats)};
		size_t before = resident_bytes(), after;
		uint64_t frame_bytes = (uint64_t)ROWS * COLUMNS * 4;
		sluice_writer *w = writer_open(f, 0);
		sluice_series *s;

		o.depth = 3 + 3 * round;
		s = series_add(w, "u", &o);
		for (uint64_t frame = 0; frame < 12; frame++)
			put(s, &c, frame, (size_t)ROWS * COLUMNS);
		assert_ok(sluice_writer_stats(w, &stats));
		after = resident_bytes();
		print_message("%s, depth %u: memory_bytes %.1f MiB = depth x frame + %.1f, "
		              "resident %.1f\n",
		              codecs[round], o.depth, (double)stats.memory_bytes / MIB,
		              (double)(stats.memory_bytes - o.depth * frame_bytes) / MIB,
		              (double)(after - before) / MIB);
		assert_ok(sluice_writer_close(w, PATIENCE_MS));
		assert_in_range(stats.memory_bytes, o.depth * frame_bytes,
		                o.depth * frame_bytes + TOOLS);
		assert_in_range(after - before, stats.memory_bytes / 10 * 9,
		                stats.memory_bytes + BESIDE_FEW);
		/* And it is given back. */
		assert_in_range(resident_bytes(), 0, before + BESIDE_FEW);
	}
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return RUN_TESTS(NULL, NULL);
}
