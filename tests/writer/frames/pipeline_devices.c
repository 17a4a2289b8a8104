/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from memory of a device, in the order of a stream. */
#include <pthread.h>

#include "frames/pipeline_test.h"
#include "io/device_suite.h"

/* One that compresses, if any is built in: a machine with a GPU may have another one than deflate. */
static const char *any_codec(void)
{
	struct sluice_codec codec = {.size = sizeof(codec)};

	for (size_t i = 0; !sluice_codec_describe(i, &codec); i++)
		if (codec.filter && !codec.missing)
			return codec.name;
	return "none";
}

static struct sluice_series_options device_options(void)
{
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.chunk_frames = 1;
	o.codec = any_codec();
	o.type = SLUICE_UINT8;
	o.rank = 2;
	o.shape[0] = 3;
	o.shape[1] = 700001;
	o.depth = 3;
	return o;
}

static void assert_patterns(const struct fake_dataset *d, uint64_t count)
{
	size_t n = d->layout.shape[0] * d->layout.shape[1];
	unsigned char *found = malloc(n);

	assert_int_equal(d->whole, count);
	for (uint64_t k = 0; k < count; k++) {
		assert_true(fake_read(d, k, found));
		assert_pattern(found, n, 0, 100 + k);
	}
	free(found);
}

PIPELINE_TEST(a_frame_is_what_the_stream_had_done_and_may_be_overwritten_behind_it)
{
	for (int round = 0; round < 3; round++) {
		struct sluice_series_options o = device_options();
		sluice_stream stream = stream_new(0);
		sluice_writer *w = writer_open(f, NULL);
		sluice_series *s;
		size_t n;
		void *memory;

		if (round)
			o.codec = "none";
		o.frames = round == 2 ? 12 : 0;
		s = series_add(w, "u", &o);
		n = sluice_series_frame_bytes(s);
		memory = device_new(0, n);
		for (uint64_t k = 0; k < 12; k++) {
			launch_fill(0, stream, memory, n, 0, 100 + k);
			assert_ok(sluice_series_submit_on(s, memory, NULL, stream, PATIENCE_MS));
		}
		launch_fill(0, stream, memory, n, 0, 7);
		assert_ok(sluice_writer_close(w, -1));
		assert_patterns(&fake.datasets[0], 12);
		device_free(memory);
		stream_free(stream);
		fake_reset();
	}
}

PIPELINE_TEST(a_stream_that_is_held_up_holds_up_its_series_alone)
{
	struct sluice_series_options o = device_options();
	sluice_stream stream = stream_new(0);
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *u = series_add(w, "u", &o), *v = series_add(w, "v", &o);
	size_t n = sluice_series_frame_bytes(u);
	unsigned char *host = malloc(n);
	struct gpu_hold hold;
	void *memory = device_new(0, n);
	void *frame;

	warm_up(f, 0);
	device_fill(memory, n, 0, 100);
	hold_begin(&hold, 0, stream);
	assert_ok(sluice_series_submit_on(u, memory, NULL, stream, -1));
	/* Behind it in its line; and in another one. */
	assert_ok(sluice_series_acquire(u, -1, &frame));
	pattern_fill(frame, n, 0, 101);
	assert_ok(sluice_series_submit(u, frame, NULL));
	pattern_fill(host, n, 0, 100);
	for (int k = 0; k < 8; k++) {
		pattern_fill(host, n, 0, 100 + (uint64_t)k);
		assert_ok(sluice_series_push(v, host, NULL, PATIENCE_MS));
	}
	while (series_stats(v).stored < 8)
		sleep_ms(1);
	assert_int_equal(series_stats(u).stored, 0);
	assert_refused(sluice_writer_flush(w, 20), EINPROGRESS, "not flushed");
	assert_refused(sluice_writer_close(w, 20), EINPROGRESS, "not closed");
	hold_end(&hold);
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
	assert_patterns(&fake.datasets[0], 2);
	assert_patterns(&fake.datasets[1], 8);
	device_free(memory);
	stream_free(stream);
	free(host);
}

PIPELINE_TEST(close_keeps_its_deadline_while_a_stream_has_a_frame)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = device_options();
	sluice_stream stream = stream_new(0);
	sluice_series *u, *v;
	struct gpu_hold hold;
	sluice_writer *w;
	size_t n;
	void *memory, *frame;

	wo.checkpoint_ms = -1;
	w = writer_open(f, &wo);
	u = series_add(w, "u", &o);
	v = series_add(w, "v", &o);
	n = sluice_series_frame_bytes(u);
	memory = device_new(0, n);
	warm_up(f, 0);
	device_fill(memory, n, 0, 100);
	hold_begin(&hold, 0, stream);
	assert_ok(sluice_series_submit_on(u, memory, NULL, stream, -1));
	fake.fail_error = -ENOSPC;
	fake.fail_at = 1;
	assert_ok(sluice_series_acquire(v, -1, &frame));
	assert_ok(sluice_series_submit(v, frame, NULL));
	assert_refused(sluice_writer_flush(w, -1), ENOSPC, "cannot store frame 0 of 'v'");
	assert_refused(sluice_writer_close(w, 30), EINPROGRESS, "not closed");
	hold_end(&hold);
	assert_refused(sluice_writer_close(w, PATIENCE_MS), ENOSPC, "told to fail");
	device_free(memory);
	stream_free(stream);
}

static void *add_another(void *w)
{
	struct sluice_series_options o = device_options();
	sluice_series *s;

	return (void *)(intptr_t)sluice_series_add(w, "another", &o, &s);
}

/*
 * The outputs that a frame stored in part still needs are taken by an older one, which was not there when the
 * other was begun, and which may not be begun before the cut.
 */
PIPELINE_TEST(a_cut_comes_though_a_late_frame_has_all_outputs)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = device_options();
	sluice_stream stream = stream_new(0);
	sluice_series *u, *v;
	struct gpu_hold hold;
	sluice_writer *w;
	pthread_t thread;
	size_t n;
	void *memory, *frame, *result;

	wo.threads = 1;
	wo.checkpoint_ms = -1;
	o.chunk[0] = 1;
	o.chunk[1] = 65536;
	w = writer_open(f, &wo);
	u = series_add(w, "u", &o);
	v = series_add(w, "v", &o);
	n = sluice_series_frame_bytes(u);
	memory = device_new(0, n);
	warm_up(f, 0);
	device_fill(memory, n, 0, 100);
	hold_begin(&hold, 0, stream);
	assert_ok(sluice_series_submit_on(u, memory, NULL, stream, -1));
	atomic_store(&fake.shut, true);
	assert_ok(sluice_series_acquire(v, -1, &frame));
	pattern_fill(frame, n, 0, 100);
	assert_ok(sluice_series_submit(v, frame, NULL));
	while (!atomic_load(&fake.waiting))
		sleep_ms(1);
	assert_int_equal(pthread_create(&thread, NULL, add_another, w), 0);
	sleep_ms(30);
	hold_end(&hold);
	stream_pass(0, stream);
	/* One more chunk at a time, until the late one has what there is. */
	sleep_ms(30);
	atomic_store(&fake.shut, false);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
	assert_patterns(&fake.datasets[0], 1);
	assert_patterns(&fake.datasets[1], 1);
	device_free(memory);
	stream_free(stream);
}

PIPELINE_TEST(refused_call_leaves_the_writer_as_it_was)
{
	struct sluice_series_options o = device_options();
	sluice_stream other = stream_new(1);
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *s = series_add(w, "u", &o);
	size_t n = sluice_series_frame_bytes(s);
	void *memory = device_new(0, n);

	assert_refused(sluice_series_submit_on(s, NULL, NULL, other, -1), EINVAL, "NULL");
	for (int k = 0; gpu_has_two() && k < 5; k++)
		assert_refused(sluice_series_submit_on(s, memory, NULL, other, -1), EINVAL,
		               "the stream of");
	device_fill(memory, n, 0, 100);
	for (int k = 0; k < 3; k++)
		assert_ok(sluice_series_submit_on(s, memory, NULL, SLUICE_STREAM_DEFAULT, -1));
	device_free(memory);
	assert_ok(sluice_writer_close(w, -1));
	assert_int_equal(fake.datasets[0].whole, 3);
	stream_free(other);
}

PIPELINE_TEST(a_device_that_is_lost_is_an_error_of_the_copy)
{
	struct sluice_writer_failure error = {.size = sizeof(error)};
	struct sluice_series_options o = device_options();
	sluice_stream stream;
	sluice_writer *w;
	sluice_series *s;
	void *memory;
	int rc;

	if (gpu_is_real())
		SKIP("a GPU cannot be made to fail");
	stream = stream_new(0);
	w = writer_open(f, NULL);
	s = series_add(w, "u", &o);
	memory = device_new(0, sluice_series_frame_bytes(s));
	warm_up(f, 0);
	assert_ok(sluice_series_submit_on(s, memory, NULL, stream, -1));
	assert_ok(sluice_writer_flush(w, -1));
	sluice_emulated_lose(0, 1);
	rc = sluice_series_submit_on(s, memory, NULL, stream, -1);
	if (!rc) {
		while (!sluice_writer_error(w, &error))
			sleep_ms(1);
		assert_string_equal(error.stage, "copy");
		assert_int_equal(error.frame, 1);
		rc = error.error;
		assert_int_equal(sluice_writer_close(w, -1), rc);
	} else {
		assert_ok(sluice_writer_close(w, -1));
	}
	assert_int_equal(rc, -EIO);
	assert_int_equal(fake.datasets[0].flushed, 1);
	sluice_device_free(memory);
	sluice_stream_free(stream);
	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;
	sluice_emulated_lose(0, 0);
}
