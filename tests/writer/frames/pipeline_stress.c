/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads on several series, with flushes between, by a seed. */
#include <pthread.h>

#include "frames/pipeline_test.h"
#include "io/device_suite.h"

enum { LINES = 4 };

struct line {
	sluice_writer *w;
	sluice_series *s;
	uint64_t seed, count;
	sluice_stream stream; /* NULL: all frames are in host memory */
	void *memory;         /* of the device */
	struct rng r;
	int rc; /* the first that was not expected; asserts are for the main thread */
};

static int hand_in(struct line *line, uint64_t number, unsigned char *own)
{
	size_t bytes = sluice_series_frame_bytes(line->s);
	void *frame;
	int rc;

	if (line->stream && rng_below(&line->r, 2)) {
		frame_fill(own, bytes, line->seed, number);
		rc = sluice_copy_on(line->memory, own, bytes, line->stream);
		return rc ? rc
		          : sluice_series_submit_on(line->s, line->memory, NULL, line->stream,
		                                    PATIENCE_MS);
	}
	if (!rng_below(&line->r, 3)) {
		frame_fill(own, bytes, line->seed, number);
		return sluice_series_push(line->s, own, NULL, PATIENCE_MS);
	}
	rc = sluice_series_acquire(line->s, PATIENCE_MS, &frame);
	if (!rc && !rng_below(&line->r, 5)) {
		rc = sluice_series_discard(line->s, frame);
		if (!rc)
			rc = sluice_series_acquire(line->s, PATIENCE_MS, &frame);
	}
	if (rc)
		return rc;
	frame_fill(frame, bytes, line->seed, number);
	return sluice_series_submit(line->s, frame, NULL);
}

static void *line_run(void *argument)
{
	struct line *line = argument;
	unsigned char *own = malloc(sluice_series_frame_bytes(line->s));

	for (uint64_t k = 0; k < line->count && !line->rc; k++) {
		line->rc = hand_in(line, k, own);
		if (!line->rc && !rng_below(&line->r, 9)) {
			int rc = sluice_writer_flush(line->w, rng_below(&line->r, 2) ? -1 : 1);

			line->rc = rc == -EINPROGRESS ? 0 : rc;
		}
	}
	free(own);
	return NULL;
}

static void round_of(struct fixture *f, struct rng *r)
{
	static const char *const names[LINES] = {"a", "b", "c", "d"};
	static const char *const codecs[] = {"none", "deflate"};
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct line lines[LINES] = {0};
	pthread_t threads[LINES];
	sluice_writer *w;

	wo.threads = 1 + rng_below(r, 4);
	wo.checkpoint_frames = rng_below(r, 4);
	wo.checkpoint_ms = rng_below(r, 2) ? 1 : -1;
	w = writer_open(f, &wo);
	atomic_store(&fake.slow_us, rng_below(r, 3) ? 0 : (unsigned)rng_below(r, 200));
	for (int i = 0; i < LINES; i++) {
		struct sluice_series_options o = small_options();

		/* Of a few kinds, so that some share what they compress with. */
		o.chunk[0] = rng_below(r, 2) ? 7 : 40;
		o.codec = codecs[rng_below(r, 3) != 0];
		o.depth = 1 + (unsigned)rng_below(r, 4);
		o.frames = rng_below(r, 2) ? 64 : 0;
		lines[i].w = w;
		lines[i].s = series_add(w, names[i], &o);
		lines[i].seed = rng_next(r);
		lines[i].count = 1 + rng_below(r, 60);
		if (!rng_below(r, 3)) {
			lines[i].stream = stream_new(0);
			lines[i].memory = device_new(0, sluice_series_frame_bytes(lines[i].s));
		}
		lines[i].r = rng_new(rng_next(r));
		assert_int_equal(pthread_create(&threads[i], NULL, line_run, &lines[i]), 0);
	}
	for (int i = 0; i < LINES; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(lines[i].rc, 0);
	}
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
	for (int i = 0; i < LINES; i++) {
		if (!lines[i].stream)
			continue;
		device_free(lines[i].memory);
		stream_free(lines[i].stream);
	}
	for (int i = 0; i < LINES; i++)
		assert_frames(&fake.datasets[i], lines[i].seed, lines[i].count);
	fake_reset();
}

PIPELINE_TEST(any_schedule_of_several_series_ends_with_all_frames_right)
{
	struct rng r = rng_new(3);
	int rounds = getenv("STRESS") ? 400 : under_sanitizer() ? 8 : 25;

	for (int i = 0; i < rounds; i++)
		round_of(f, &r);
}
