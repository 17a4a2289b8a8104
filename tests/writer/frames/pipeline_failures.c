/* SPDX-License-Identifier: Apache-2.0 */
/* Storage fails, or the thread that has it dies, at every single call: nothing hangs, and the first error stays. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frames/pipeline_test.h"

/* Hands in frames of three series, one of them contiguous, until something fails; the first error. */
static int work(sluice_writer *w, uint64_t *submitted)
{
	static const char *const names[] = {"u", "v", "w"};
	sluice_series *series[3] = {0};

	for (int i = 0; i < 3; i++) {
		struct sluice_series_options o = small_options();
		int rc;

		o.depth = 2;
		o.codec = i ? "none" : "deflate";
		o.frames = i == 2 ? 4 : 0;
		rc = sluice_series_add(w, names[i], &o, &series[i]);
		if (rc)
			return rc;
	}
	for (uint64_t k = 0; k < 4; k++) {
		for (int i = 0; i < 3; i++) {
			void *frame;
			int rc = sluice_series_acquire(series[i], PATIENCE_MS, &frame);

			if (!rc)
				rc = sluice_series_submit(series[i], frame, NULL);
			if (rc)
				return rc;
			++*submitted;
		}
		if (k == 1) {
			int rc = sluice_writer_flush(w, PATIENCE_MS);

			if (rc)
				return rc;
		}
	}
	return 0;
}

/* False: it was not reached. */
static bool fails_at(struct fixture *f, unsigned at, bool dies)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_writer_failure error = {.size = sizeof(error)};
	int expected = dies ? -EIO : -ENOSPC, rc;
	uint64_t submitted = 0;
	sluice_writer *w = NULL;
	sluice_series *s = NULL;
	struct sluice_series_options o = small_options();

	fake_reset();
	wo.checkpoint_frames = 2;
	if (dies)
		fake.die_at = at;
	else
		fake.fail_at = at;
	fake.fail_error = -ENOSPC;
	rc = sluice_writer_open(f->ctx, scratch(f, "x"), &wo, &w);
	if (rc) {
		assert_int_equal(rc, expected);
		assert_null(w);
		return true;
	}
	rc = work(w, &submitted);
	if (rc) {
		assert_int_equal(rc, expected);
		/* An order may fail alone: then the next call says so too, as the fake does. */
		if (sluice_writer_error(w, &error) == 1) {
			assert_int_equal(error.error, expected);
			assert_true(*error.message);
			assert_non_null(strstr("store flush compress", error.stage));
			assert_int_equal(sluice_writer_flush(w, -1), expected);
			assert_int_equal(sluice_series_add(w, "more", &o, &s), expected);
			assert_string_equal(sluice_last_message(), error.message);
		}
	}
	rc = sluice_writer_close(w, PATIENCE_MS);
	if (atomic_load(&fake.calls) < at) {
		assert_ok(rc);
		return false;
	}
	if (rc != expected)
		fail_msg("at call %u: close says %d", at, rc);
	assert_non_null(strstr(sluice_last_message(), dies ? "has died" : "told to fail"));
	return true;
}

PIPELINE_TEST(a_thread_that_dies_is_told_with_what_it_was_at)
{
	static const struct {
		unsigned at;
		const char *stage, *says;
	} rows[] = {
		{3, "store", "cannot store frame 0 of 'u'"}, /* after open and add: a chunk */
		{9, "store", "cannot store frame 0 of 'u'"}, /* the sixth, and the frame */
		{10, "flush", "cannot flush"},
	};
	struct sluice_series_options o = small_options();

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct sluice_writer_failure error = {.size = sizeof(error)};
		sluice_writer *w;
		sluice_series *s;

		fake_reset();
		fake.die_at = rows[i].at;
		w = writer_open(f, NULL);
		s = series_add(w, "u", &o);
		frame_put(s, 1, 0);
		assert_refused(sluice_writer_flush(w, -1), EIO, rows[i].says);
		assert_int_equal(sluice_writer_error(w, &error), 1);
		assert_string_equal(error.stage, rows[i].stage);
		assert_refused(sluice_writer_close(w, -1), EIO, "has died");
	}
}

PIPELINE_TEST(an_error_at_any_call_stays_and_nothing_hangs)
{
	unsigned at = 1;

	while (fails_at(f, at, false))
		at++;
	assert_true(at > 50);
}

PIPELINE_TEST(a_thread_that_dies_at_any_call_is_an_error_and_nothing_hangs)
{
	unsigned at = 1;

	while (fails_at(f, at, true))
		at++;
	assert_true(at > 50);
}

/* Frames of contiguous series are written past the file, which knows nothing of the error. */
PIPELINE_TEST(frames_that_are_stored_before_another_one_fails_are_kept)
{
	struct sluice_series_options o = small_options();
	struct sluice_writer_failure error = {.size = sizeof(error)};
	sluice_writer *w = writer_open(f, NULL);
	sluice_series *u = series_add(w, "u", &o), *v;

	frame_put(u, 1, 0);
	while (series_stats(u).stored < 1)
		sleep_ms(1);
	o.codec = "none";
	o.frames = 3;
	v = series_add(w, "v", &o);
	assert_int_equal(ftruncate(fake.memory, 8192), 0);
	assert_int_equal(fcntl(fake.memory, F_GET_SEALS) >= 0, 1);
	assert_int_equal(fcntl(fake.memory, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_WRITE), 0);
	frame_put(v, 1, 0);
	while (!sluice_writer_error(w, &error))
		sleep_ms(1);
	assert_string_equal(error.stage, "store");
	assert_string_equal(error.dataset, "v");
	assert_int_equal(error.frame, 0);
	assert_non_null(strstr(error.message, "cannot be written at byte"));
	assert_null(strstr(error.message, "/proc/"));
	assert_int_equal(sluice_writer_close(w, -1), error.error);
	assert_true(fake.kept);
	assert_int_equal(fake.datasets[0].flushed, 1);
	assert_int_equal(fake.datasets[1].flushed, 0);
}
PIPELINE_TEST(a_writer_that_fails_to_open_leaves_nothing)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	sluice_writer *w = NULL;

	wo.flags = SLUICE_WRITER_REPLACE | SLUICE_WRITER_APPEND;
	assert_refused(sluice_writer_open(f->ctx, "x", &wo, &w), EINVAL, "REPLACE and APPEND");
	wo.flags = 1u << 20;
	assert_refused(sluice_writer_open(f->ctx, "x", &wo, &w), EINVAL, "unknown flags");
	wo.flags = 0;
	wo.mode = 010000;
	assert_refused(sluice_writer_open(f->ctx, "x", &wo, &w), EINVAL, "permissions");
	wo.mode = 0;
	wo.size = 0;
	assert_refused(sluice_writer_open(f->ctx, "x", &wo, &w), EINVAL, "size");
	wo.size = sizeof(wo);
	wo.attribute_count = 1;
	assert_refused(sluice_writer_open(f->ctx, "x", &wo, &w), EINVAL, "attributes");
	wo.attribute_count = 0;
	assert_refused(sluice_writer_open(f->ctx, NULL, &wo, &w), EINVAL, "path");
	assert_refused(sluice_writer_open(NULL, "x", &wo, &w), EINVAL, "context");
	assert_refused(sluice_writer_open(f->ctx, "store://x", &wo, &w), EINVAL, "no local path");
	fake.fail_at = 1;
	fake.fail_error = -EACCES;
	assert_refused(sluice_writer_open(f->ctx, "x", &wo, &w), EACCES, "told to fail");
	assert_null(w);
}

/* ------------------------------------------------------------------------- memory and threads */

static _Atomic unsigned takes, takes_fail_at;

static bool is_refused(void)
{
	unsigned at = atomic_load(&takes_fail_at);

	return at && atomic_fetch_add(&takes, 1) + 1 == at;
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
	return is_refused() ? NULL : __real_calloc(count, size);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
	return is_refused() ? NULL : __real_strdup(text);
}

void *__real_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	return is_refused() ? MAP_FAILED : __real_mmap(at, length, protection, flags, fd, offset);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
	return is_refused() ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

PIPELINE_TEST(too_little_of_anything_is_an_error_of_open_or_add)
{
	static const char *const names[] = {"time"};
	struct sluice_series_options o = small_options();
	unsigned at = 0, opened = 0;
	int rc;

	o.scalars = names;
	o.scalar_count = 1;
	do {
		sluice_writer *w = NULL;
		sluice_series *s = NULL;

		fake_reset();
		atomic_store(&takes, 0);
		atomic_store(&takes_fail_at, ++at);
		rc = sluice_writer_open(f->ctx, scratch(f, "x"), NULL, &w);
		opened += !rc;
		if (!rc)
			rc = sluice_series_add(w, "u", &o, &s);
		atomic_store(&takes_fail_at, 0);
		if (rc) {
			assert_true(rc == -ENOMEM || rc == -EAGAIN);
			assert_true(*sluice_last_message());
			assert_null(s);
		}
		/* A series that could not be added harms nothing. */
		if (w && rc)
			assert_ok(sluice_series_add(w, "u", &o, &s));
		assert_ok(sluice_writer_close(w, -1));
	} while (rc);
	assert_true(opened > 10);
	assert_true(at - opened > 5);
}
