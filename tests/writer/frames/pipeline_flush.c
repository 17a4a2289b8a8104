/* SPDX-License-Identifier: Apache-2.0 */
/* Flushes, checkpoints and the end: what is in the file when, and how long a call may wait. */
#include <pthread.h>

#include "frames/pipeline_test.h"

PIPELINE_TEST(a_flush_has_all_that_was_submitted_before_it)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	sluice_series *u, *v;
	sluice_writer *w;

	wo.checkpoint_ms = -1;
	w = writer_open(f, &wo);
	u = series_add(w, "u", &o);
	o.codec = "none";
	v = series_add(w, "v", &o);
	atomic_store(&fake.slow_us, 300);
	for (uint64_t k = 0; k < 12; k++) {
		frame_put(u, 1, k);
		if (k % 2)
			frame_put(v, 2, k / 2);
		if (k % 4)
			continue;
		assert_ok(sluice_writer_flush(w, -1));
		assert_int_equal(series_stats(u).visible, k + 1);
		assert_int_equal(series_stats(v).visible, (k + 1) / 2);
	}
	/* There is nothing more to flush. */
	assert_ok(sluice_writer_flush(w, -1));
	assert_int_equal(writer_stats(w).durable, 0);
	o.rank = 1;
	series_add(w, "later", &o);
	assert_ok(sluice_writer_flush(w, -1));
	assert_ok(sluice_writer_flush(w, -1));
	assert_int_equal(atomic_load(&fake.flushes), writer_stats(w).flushes);
	assert_in_range(writer_stats(w).flushes, 5, 5);
	assert_ok(sluice_writer_close(w, -1));
	assert_frames(&fake.datasets[0], 1, 12);
	assert_frames(&fake.datasets[1], 2, 6);
}

PIPELINE_TEST(a_flush_that_takes_too_long_goes_on)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *s = series_add(w, "u", &o);
	double begun;

	atomic_store(&fake.shut, true);
	frame_put(s, 1, 0);
	assert_refused(sluice_writer_flush(w, 0), EINPROGRESS, "not flushed yet");
	begun = seconds_now();
	assert_refused(sluice_writer_flush(w, 50), EINPROGRESS, "not flushed yet");
	assert_true(seconds_now() - begun >= 0.05);
	assert_int_equal(series_stats(s).visible, 0);
	atomic_store(&fake.shut, false);
	assert_ok(sluice_writer_flush(w, PATIENCE_MS));
	assert_int_equal(series_stats(s).visible, 1);
	assert_ok(sluice_writer_close(w, -1));
}

/* Checkpoints come in between, which have fewer of the frames. */
PIPELINE_TEST(a_checkpoint_is_not_taken_for_the_flush_that_is_waited_for)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	sluice_writer *w;
	sluice_series *s;

	wo.checkpoint_frames = 1;
	w = writer_open(f, &wo);
	o.codec = "none";
	o.depth = 6;
	s = series_add(w, "u", &o);
	atomic_store(&fake.slow_us, 500);
	for (uint64_t round = 0; round < 3; round++) {
		for (uint64_t k = 0; k < 6; k++)
			frame_put(s, 1, round * 6 + k);
		assert_ok(sluice_writer_flush(w, -1));
		assert_int_equal(series_stats(s).visible, round * 6 + 6);
	}
	assert_true(writer_stats(w).flushes > 6);
	assert_ok(sluice_writer_close(w, -1));
}

static void *flush_once(void *argument)
{
	return (void *)(intptr_t)sluice_writer_flush(argument, PATIENCE_MS);
}

PIPELINE_TEST(a_flush_is_not_put_off_by_those_that_are_asked_for_later)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	double begun = seconds_now();
	sluice_writer *w;
	sluice_series *s;
	pthread_t thread;
	uint64_t k = 0;
	void *result;

	wo.checkpoint_ms = -1;
	o.codec = "none";
	o.depth = 4;
	w = writer_open(f, &wo);
	s = series_add(w, "u", &o);
	atomic_store(&fake.slow_us, 1000);
	for (; k < 4; k++)
		frame_put(s, 1, k);
	assert_int_equal(pthread_create(&thread, NULL, flush_once, w), 0);
	for (; pthread_tryjoin_np(thread, &result) && seconds_now() - begun < 60; k++) {
		int rc;

		frame_put(s, 1, k);
		rc = sluice_writer_flush(w, 0);
		assert_true(!rc || rc == -EINPROGRESS);
	}
	assert_int_equal((intptr_t)result, 0);
	assert_ok(sluice_writer_flush(w, -1));
	assert_int_equal(series_stats(s).visible, k);
	assert_ok(sluice_writer_close(w, -1));
}

PIPELINE_TEST(durable_frames_are_counted_where_they_are)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	sluice_writer *w;
	sluice_series *s;

	wo.flags = SLUICE_WRITER_DURABLE;
	w = writer_open(f, &wo);
	s = series_add(w, "u", &o);
	frame_put(s, 1, 0);
	assert_ok(sluice_writer_flush(w, -1));
	assert_int_equal(series_stats(s).durable, 1);
	assert_ok(sluice_writer_close(w, -1));
}

PIPELINE_TEST(checkpoints_come_by_the_number_of_frames)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	sluice_writer *w;
	sluice_series *s;

	wo.checkpoint_frames = 3;
	wo.checkpoint_ms = -1;
	w = writer_open(f, &wo);
	s = series_add(w, "u", &o);
	for (uint64_t k = 0; k < 10; k++)
		frame_put(s, 1, k);
	while (series_stats(s).stored < 10)
		sleep_ms(1);
	sleep_ms(20);
	assert_int_equal(writer_stats(w).flushes, 3);
	assert_int_equal(series_stats(s).visible, 9);
	assert_ok(sluice_writer_close(w, -1));
}

PIPELINE_TEST(checkpoints_come_by_time_if_there_is_anything)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	unsigned calls;
	double cpu;
	sluice_writer *w;
	sluice_series *s;

	wo.checkpoint_ms = 20;
	wo.checkpoint_frames = 2;
	w = writer_open(f, &wo);
	sleep_ms(60);
	s = series_add(w, "u", &o);
	sleep_ms(60);
	assert_int_equal(atomic_load(&fake.flushes), 0);
	frame_put(s, 1, 0);
	while (series_stats(s).visible < 1)
		sleep_ms(1);
	calls = atomic_load(&fake.calls);
	cpu = cpu_seconds();
	sleep_ms(200);
	assert_int_equal(atomic_load(&fake.calls), calls);
	if (!under_sanitizer())
		assert_true(cpu_seconds() - cpu < 0.05);
	assert_ok(sluice_writer_close(w, -1));
}

PIPELINE_TEST(close_has_a_deadline_and_can_be_called_again)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *s = series_add(w, "u", &o);
	double begun;
	void *frame;

	frame_put(s, 1, 0);
	assert_ok(sluice_writer_flush(w, -1));
	atomic_store(&fake.shut, true);
	frame_put(s, 1, 1);
	assert_refused(sluice_writer_close(w, 0), EINPROGRESS, "not closed yet");
	begun = seconds_now();
	assert_refused(sluice_writer_close(w, 40), EINPROGRESS, "not closed yet");
	assert_true(seconds_now() - begun >= 0.04);
	assert_refused(sluice_series_acquire(s, -1, &frame), EINVAL, "being closed");
	assert_refused(sluice_writer_flush(w, -1), EINVAL, "being closed");
	atomic_store(&fake.shut, false);
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
	assert_frames(&fake.datasets[0], 1, 2);
	assert_refused(sluice_writer_close(w, -1), EINVAL, "no such writer");
	sluice_writer_discard(w);
	assert_ok(sluice_writer_close(NULL, -1));
}

PIPELINE_TEST(discarded_writer_leaves_the_file_at_its_last_flush)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *s;

	o.depth = 6;
	s = series_add(w, "u", &o);
	frame_put(s, 1, 0);
	assert_ok(sluice_writer_flush(w, -1));
	/* It takes half a second to store them. */
	atomic_store(&fake.slow_us, 100000);
	atomic_store(&fake.shut, true);
	for (uint64_t k = 1; k < 6; k++)
		frame_put(s, 1, k);
	atomic_store(&fake.shut, false);
	sluice_writer_discard(w);
	assert_true(fake.closed);
	assert_false(fake.kept);
	assert_int_equal(fake.datasets[0].flushed, 1);
	assert_true(fake.datasets[0].whole < 6);
	sluice_writer_discard(NULL);
}

static void *wait_for_a_frame(void *argument)
{
	void *frame;

	return (void *)(intptr_t)sluice_series_acquire(argument, -1, &frame);
}

PIPELINE_TEST(waiter_for_a_frame_learns_of_the_end)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *s;
	pthread_t thread;
	void *result;

	o.codec = "none";
	s = series_add(w, "u", &o);
	atomic_store(&fake.shut, true);
	frame_put(s, 1, 0);
	frame_put(s, 1, 1);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_a_frame, s), 0);
	sleep_ms(30);
	assert_refused(sluice_writer_close(w, 0), EINPROGRESS, "not closed yet");
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, -EINVAL);
	atomic_store(&fake.shut, false);
	assert_ok(sluice_writer_close(w, -1));
}

/* Without the disk: frames that wait to be stored are compressed meanwhile. */
PIPELINE_TEST(chunks_of_the_next_frames_are_compressed_while_one_is_stored)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	sluice_writer *w;
	sluice_series *s;

	wo.threads = 2;
	o.chunk[0] = 40;
	o.depth = 4;
	w = writer_open(f, &wo);
	s = series_add(w, "u", &o);
	atomic_store(&fake.shut, true);
	for (uint64_t k = 0; k < 4; k++)
		frame_put(s, 1, k);
	while (series_stats(s).compress.bytes < 4 * 8000)
		sleep_ms(1);
	assert_int_equal(series_stats(s).stored, 0);
	assert_int_equal(series_stats(s).in_flight, 4);
	assert_int_equal(series_stats(s).queued, 0);
	atomic_store(&fake.shut, false);
	assert_ok(sluice_writer_close(w, -1));
	assert_frames(&fake.datasets[0], 1, 4);
}
