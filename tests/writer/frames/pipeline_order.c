/* SPDX-License-Identifier: Apache-2.0 */
/* Frames go round, in order, and no more than there are. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frames/pipeline_test.h"

PIPELINE_TEST(frames_come_in_order_and_the_right_bytes_with_them)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *s = series_add(w, "u", &o);
	unsigned char *own = malloc(sluice_series_frame_bytes(s));

	assert_int_equal(sluice_series_frame_bytes(s), 8000);
	for (uint64_t k = 0; k < 60; k++) {
		if (k % 3) {
			frame_put(s, 1, k);
			continue;
		}
		frame_fill(own, 8000, 1, k);
		assert_ok(sluice_series_push(s, own, NULL, -1));
	}
	assert_ok(sluice_writer_close(w, -1));
	assert_true(fake.kept);
	assert_frames(&fake.datasets[0], 1, 60);
	free(own);
}

PIPELINE_TEST(scalars_come_with_their_frames)
{
	static const char *const names[] = {"time", "step"};
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	double scalars[2] = {0};
	sluice_series *s;
	void *frame;

	o.scalars = names;
	o.scalar_count = 2;
	s = series_add(w, "u", &o);
	for (int k = 0; k < 20; k++) {
		scalars[0] = k * 0.5;
		scalars[1] = k + 100;
		assert_ok(sluice_series_acquire(s, -1, &frame));
		assert_refused(sluice_series_submit(s, frame, NULL), EINVAL, "2 scalars");
		assert_ok(sluice_series_submit(s, frame, scalars));
		memset(scalars, 0, sizeof(scalars));
	}
	assert_ok(sluice_writer_close(w, -1));
	for (int k = 0; k < 20; k++) {
		assert_true(fake.datasets[0].frames[k].scalars[0] == k * 0.5);
		assert_true(fake.datasets[0].frames[k].scalars[1] == k + 100);
	}
}

PIPELINE_TEST(no_more_frames_are_held_than_the_depth)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	void *frame, *frames[5], *untouched = &frame;
	sluice_series *s;

	o.depth = 3;
	o.codec = "none";
	s = series_add(w, "u", &o);
	atomic_store(&fake.shut, true);
	for (int k = 0; k < 3; k++)
		frame_put(s, 1, (uint64_t)k);
	frame = untouched;
	assert_refused(sluice_series_acquire(s, 0, &frame), EAGAIN, "all 3 frames");
	assert_refused(sluice_series_acquire(s, 30, &frame), EAGAIN, "all 3 frames");
	assert_ptr_equal(frame, untouched);
	assert_true(writer_stats(w).waited_ns >= 30000000);
	assert_true(writer_stats(w).waited_most_ns >= 30000000);
	atomic_store(&fake.shut, false);
	for (int k = 0; k < 3; k++) {
		assert_ok(sluice_series_acquire(s, PATIENCE_MS, &frames[k]));
		assert_int_equal((uintptr_t)frames[k] % 4096, 0);
		for (int other = 0; other < k; other++)
			assert_ptr_not_equal(frames[k], frames[other]);
	}
	assert_int_equal(series_stats(s).held, 3);
	assert_refused(sluice_series_acquire(s, -1, &frame), EDEADLK, "all 3 frames");
	assert_refused(sluice_series_push(s, frames, NULL, -1), EDEADLK, "all 3 frames");
	assert_refused(sluice_series_acquire(s, 0, &frame), EAGAIN, "all 3 frames");
	assert_ok(sluice_series_discard(s, frames[1]));
	assert_ok(sluice_series_acquire(s, 0, &frame));
	assert_ptr_equal(frame, frames[1]);
	/* Those that are not submitted are forgotten. */
	assert_ok(sluice_writer_close(w, -1));
	assert_frames(&fake.datasets[0], 1, 3);
}

/* One that is compressed needs its memory no more; there are outputs for so many. */
PIPELINE_TEST(a_frame_is_free_again_when_its_chunks_are_compressed)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	sluice_writer *w;
	sluice_series *s;
	void *frame;

	wo.threads = 2;
	o.chunk[0] = 40;
	w = writer_open(f, &wo);
	s = series_add(w, "u", &o);
	atomic_store(&fake.shut, true);
	for (uint64_t k = 0; k < 8; k++)
		frame_put(s, 1, k);
	sleep_ms(20);
	assert_refused(sluice_series_acquire(s, 20, &frame), EAGAIN, "all 2 frames");
	assert_int_equal(series_stats(s).in_flight, 6);
	assert_int_equal(series_stats(s).queued, 2);
	atomic_store(&fake.shut, false);
	assert_ok(sluice_writer_close(w, -1));
	assert_frames(&fake.datasets[0], 1, 8);
}

PIPELINE_TEST(a_wrong_frame_is_told_from_a_right_one)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *s, *other;
	char *frame, *foreign;

	o.codec = "none";
	s = series_add(w, "u", &o);
	other = series_add(w, "v", &o);
	assert_ok(sluice_series_acquire(s, -1, (void **)&frame));
	assert_ok(sluice_series_acquire(other, -1, (void **)&foreign));
	assert_refused(sluice_series_submit(s, foreign, NULL), EINVAL, "no frame of 'u'");
	assert_refused(sluice_series_discard(s, foreign), EINVAL, "no frame of 'u'");
	assert_refused(sluice_series_submit(s, frame + 1, NULL), EINVAL, "no frame of 'u'");
	assert_refused(sluice_series_submit(s, &frame, NULL), EINVAL, "no frame of 'u'");
	assert_refused(sluice_series_submit(s, NULL, NULL), EINVAL, "NULL");
	atomic_store(&fake.shut, true);
	assert_ok(sluice_series_submit(s, frame, NULL));
	assert_refused(sluice_series_submit(s, frame, NULL), EINVAL, "submitted already");
	assert_refused(sluice_series_discard(s, frame), EINVAL, "submitted already");
	atomic_store(&fake.shut, false);
	assert_ok(sluice_series_discard(other, foreign));
	assert_refused(sluice_series_discard(other, foreign), EINVAL, "not acquired");
	assert_refused(sluice_series_submit(other, foreign, NULL), EINVAL, "not acquired");
	assert_ok(sluice_writer_close(w, -1));
	assert_int_equal(fake.datasets[0].whole, 1);
	assert_int_equal(fake.datasets[1].whole, 0);
}

PIPELINE_TEST(frames_that_find_no_room_are_dropped_and_counted_where_asked_for)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	unsigned char *own = calloc(1, 8000);
	void *frame;
	sluice_series *s;

	o.flags = SLUICE_SERIES_DROP;
	o.codec = "none";
	s = series_add(w, "u", &o);
	atomic_store(&fake.shut, true);
	for (int k = 0; k < 5; k++)
		assert_ok(sluice_series_push(s, own, NULL, 0));
	assert_refused(sluice_series_acquire(s, 0, &frame), EAGAIN, "on the way");
	assert_int_equal(series_stats(s).dropped, 4);
	assert_int_equal(series_stats(s).submitted, 2);
	atomic_store(&fake.shut, false);
	assert_ok(sluice_writer_close(w, -1));
	assert_int_equal(fake.datasets[0].whole, 2);
	free(own);
}

PIPELINE_TEST(a_fixed_number_of_frames_is_not_exceeded)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *s;
	void *frame;

	o.frames = 5;
	fake.first = 2;
	s = series_add(w, "u", &o);
	for (uint64_t k = 0; k < 3; k++)
		frame_put(s, 1, k);
	assert_refused(sluice_series_push(s, &frame, NULL, -1), ENOSPC, "all its 5 frames");
	assert_ok(sluice_series_acquire(s, -1, &frame));
	assert_refused(sluice_series_submit(s, frame, NULL), ENOSPC, "all its 5 frames");
	assert_ok(sluice_series_discard(s, frame));
	assert_ok(sluice_writer_close(w, -1));
	assert_frames(&fake.datasets[0], 1, 3);
}

static _Atomic int full;

static void *push_one_too_many(void *argument)
{
	static const char own[8000];

	if (sluice_series_push(argument, own, NULL, -1) == -ENOSPC)
		atomic_fetch_add(&full, 1);
	return NULL;
}

PIPELINE_TEST(all_who_wait_to_push_are_told_that_the_series_is_full)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	double begun = seconds_now();
	pthread_t threads[3];
	sluice_series *s;

	o.codec = "none";
	o.frames = 1;
	o.depth = 1;
	s = series_add(w, "u", &o);
	atomic_store(&fake.shut, true);
	atomic_store(&full, 0);
	frame_put(s, 1, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, push_one_too_many, s), 0);
	sleep_ms(30);
	assert_int_equal(atomic_load(&full), 0);
	atomic_store(&fake.shut, false);
	while (atomic_load(&full) < 3 && seconds_now() - begun < 60)
		sleep_ms(1);
	assert_int_equal(atomic_load(&full), 3);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_ok(sluice_writer_close(w, -1));
}

PIPELINE_TEST(memory_is_a_hard_limit_whose_need_is_told)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	sluice_series *s = NULL;
	unsigned long long need;
	sluice_writer *w;
	int rounds = 0;

	wo.memory_bytes = 1100000;
	wo.threads = 2;
	/* What is said to be enough is, once for each of what is asked for in turn. */
	for (;;) {
		w = writer_open(f, &wo);
		if (!sluice_series_add(w, "u", &o, &s))
			break;
		assert_refused(sluice_series_add(w, "u", &o, &s), ENOBUFS, "would have to be");
		need = strtoull(strstr(sluice_last_message(), "would have to be ") + 17, NULL, 10);
		assert_true(need > wo.memory_bytes);
		assert_int_equal(fake.count, 0);
		wo.memory_bytes = need;
		assert_ok(sluice_writer_close(w, -1));
		assert_true(++rounds < 5);
		fake_reset();
	}
	assert_true(rounds >= 1);
	assert_true(writer_stats(w).memory_bytes <= wo.memory_bytes);
	assert_true(writer_stats(w).memory_bytes >= 16384 + 2 * 4 * 1400);
	frame_put(s, 1, 0);
	assert_refused(sluice_series_add(w, "v", &o, &s), ENOBUFS, "'v' needs");
	assert_ok(sluice_writer_close(w, -1));
}

static void adopt_a_large_chunk(struct sl_h5_layout *layout)
{
	layout->chunk[0] = 1000;
	layout->chunk[1] = 1000;
}

PIPELINE_TEST(a_series_that_does_not_fit_can_be_added_when_it_does)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = small_options();
	sluice_writer *w;
	sluice_series *s;

	wo.memory_bytes = 8 << 20;
	wo.threads = 1;
	w = writer_open(f, &wo);
	fake.adopt = adopt_a_large_chunk;
	assert_refused(sluice_series_add(w, "u", &o, &s), ENOBUFS, "'u' needs");
	assert_int_equal(fake.count, 0);
	fake.adopt = NULL;
	s = series_add(w, "u", &o);
	frame_put(s, 1, 0);
	assert_ok(sluice_writer_close(w, -1));
	assert_frames(&fake.datasets[0], 1, 1);
}

PIPELINE_TEST(options_that_are_wrong_are_named)
{
	sluice_writer *w = writer_open(f, NULL);
	struct sluice_series_options o;
	sluice_series *s = NULL;

#define REFUSED(error, says, ...)                                               \
	do {                                                                    \
		o = small_options();                                            \
		__VA_ARGS__;                                                    \
		assert_refused(sluice_series_add(w, "u", &o, &s), error, says); \
		assert_null(s);                                                 \
	} while (0)
	REFUSED(EINVAL, "size", o.size = 0);
	REFUSED(EINVAL, "0 is no type", o.type = 0);
	REFUSED(EINVAL, "99 is no type", o.type = 99);
	REFUSED(EINVAL, "bfloat16", o.type = SLUICE_BFLOAT16);
	REFUSED(EINVAL, "25 is no type", o.type = SLUICE_STRING + 1);
	REFUSED(EINVAL, "string_bytes is 0", o.type = SLUICE_STRING);
	REFUSED(EINVAL, "string_bytes is 1025", o.type = SLUICE_STRING, o.string_bytes = 1025);
	REFUSED(EINVAL, "string_bytes is 4", o.string_bytes = 4);
	REFUSED(EINVAL, "floating-point", o.type = SLUICE_BOOL, o.precision = 5);
	REFUSED(EINVAL, "float8_e4m3", o.type = SLUICE_FLOAT8_E4M3);
	REFUSED(EINVAL, "float4_e2m1", o.type = SLUICE_FLOAT4_E2M1);
	REFUSED(EINVAL, "rank is 0, and there is a shape", o.rank = 0);
	REFUSED(EINVAL, "rank is 0, and there is a chunk", o.rank = 0, o.shape[0] = 0);
	REFUSED(EINVAL, "rank 5", o.rank = 5);
	REFUSED(EINVAL, "shape[1]", o.shape[1] = 0);
	REFUSED(EINVAL, "1 of 2", o.chunk[1] = 0);
	REFUSED(EINVAL, "too many bytes", o.shape[0] = UINT64_MAX / 2);
	REFUSED(EINVAL, "too much for a file", o.codec = "none", o.frames = UINT64_C(1) << 50);
	REFUSED(EINVAL, "'gzip'", o.codec = "gzip");
	REFUSED(EINVAL, "levels", o.level = 10);
	REFUSED(EINVAL, "no use for a shuffle", o.codec = "none", o.shuffle = SLUICE_SHUFFLE_BYTE);
	REFUSED(EINVAL, "3 is no shuffle", o.shuffle = 3);
	REFUSED(EINVAL, "floating-point", o.type = SLUICE_INT32, o.precision = 5);
	REFUSED(EINVAL, "unknown flags", o.flags = 8);
	REFUSED(EINVAL, "scalars is NULL", o.scalar_count = 1);
	REFUSED(EINVAL, "attributes is NULL", o.attribute_count = 1);
#undef REFUSED
	o = small_options();
	assert_refused(sluice_series_add(w, "", &o, &s), EINVAL, "no name");
	assert_refused(sluice_series_add(w, "/", &o, &s), EINVAL, "no name");
	assert_refused(sluice_series_add(w, NULL, &o, &s), EINVAL, "no name");
	assert_refused(sluice_series_add(NULL, "u", &o, &s), EINVAL, "NULL");
	assert_ok(sluice_series_add(w, "a/u", &o, &s));
	assert_refused(sluice_series_add(w, "/a/u", &o, &s), EEXIST, "'/a/u'");
	assert_ok(sluice_writer_close(w, -1));
}

/* The number of the first check that fails. */
static int child(sluice_context *ctx, sluice_writer *w, sluice_series *s, void *frame)
{
	struct sluice_writer_counts stats = {.size = sizeof(stats)};
	struct sluice_writer_failure error = {.size = sizeof(error)};
	struct sluice_series_options o = small_options();
	sluice_writer *writer = NULL;
	sluice_series *series = NULL;
	void *other = NULL;

	if (sluice_writer_open(ctx, "/nowhere", NULL, &writer) != -ECHILD)
		return 1;
	if (sluice_series_add(w, "x", &o, &series) != -ECHILD)
		return 2;
	if (sluice_series_acquire(s, 0, &other) != -ECHILD || other)
		return 3;
	if (sluice_series_submit(s, frame, NULL) != -ECHILD)
		return 4;
	if (sluice_series_discard(s, frame) != -ECHILD)
		return 5;
	if (sluice_series_push(s, "", NULL, 0) != -ECHILD)
		return 6;
	if (sluice_series_submit_on(s, "", NULL, NULL, 0) != -ECHILD)
		return 7;
	if (sluice_writer_flush(w, 0) != -ECHILD || sluice_writer_close(w, 0) != -ECHILD)
		return 8;
	if (sluice_writer_stats(w, &stats) != -ECHILD || sluice_series_stats(s, &stats) != -ECHILD)
		return 9;
	if (sluice_writer_error(w, &error) != -ECHILD)
		return 10;
	sluice_writer_discard(w);
	return 0;
}

PIPELINE_TEST(in_a_child_of_fork_every_call_answers_echild)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *s = series_add(w, "u", &o);
	void *frame;
	pid_t pid;
	int status;

	assert_ok(sluice_series_acquire(s, -1, &frame));
	pid = fork();
	if (!pid)
		_exit(child(f->ctx, w, s, frame));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	frame_fill(frame, 8000, 1, 0);
	assert_ok(sluice_series_submit(s, frame, NULL));
	assert_ok(sluice_writer_close(w, -1));
	assert_frames(&fake.datasets[0], 1, 1);
}

PIPELINE_TEST(a_context_stays_while_a_writer_is_open)
{
	sluice_writer *w = writer_open(f, NULL);

	assert_refused(sluice_context_close(f->ctx), EBUSY, "open");
	assert_ok(sluice_writer_close(w, -1));
}
