/* SPDX-License-Identifier: Apache-2.0 */
/* The frame writer and its HDF5 file, read back by HDF5 itself. */
#include <hdf5.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/frames.h>
#include <sluice/writer.h>

#include "lib/support.h"

enum { HEIGHT = 210, WIDTH = 130, COUNT = HEIGHT * WIDTH };

static float element(uint64_t frame, size_t i)
{
	return (float)(i % 97) + (float)frame * 0.5f;
}

static void frame_fill(float *to, uint64_t frame)
{
	for (size_t i = 0; i < COUNT; i++)
		to[i] = element(frame, i);
}

static struct sluice_series_options field_options(const char *codec, uint64_t frames)
{
	static const char *const scalars[] = {"time"};
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.type = SLUICE_FLOAT32;
	o.rank = 2;
	o.shape[0] = HEIGHT;
	o.shape[1] = WIDTH;
	o.chunk[0] = 64;
	o.chunk[1] = 100;
	o.codec = codec;
	o.frames = frames;
	o.scalars = scalars;
	o.scalar_count = 1;
	return o;
}

static sluice_writer *writer_open(sluice_context *ctx, const char *path, unsigned flags)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	sluice_writer *w = NULL;

	o.flags = flags;
	o.checkpoint_ms = -1;
	assert_ok(sluice_writer_open(ctx, path, &o, &w));
	return w;
}

static sluice_series *series_add(sluice_writer *w, const char *name, const char *codec,
                                 uint64_t frames)
{
	struct sluice_series_options o = field_options(codec, frames);
	sluice_series *s = NULL;

	assert_ok(sluice_series_add(w, name, &o, &s));
	return s;
}

static void frames_put(sluice_series *s, uint64_t from, uint64_t to)
{
	for (uint64_t k = from; k < to; k++) {
		double time = (double)k / 8;
		void *frame;

		assert_ok(sluice_series_acquire(s, PATIENCE_MS, &frame));
		frame_fill(frame, k);
		assert_ok(sluice_series_submit(s, frame, &time));
	}
}

static uint64_t rows_of(hid_t dataset)
{
	hsize_t shape[4];
	hid_t space = H5Dget_space(dataset);

	H5Sget_simple_extent_dims(space, shape, NULL);
	H5Sclose(space);
	return shape[0];
}

static void assert_dataset(hid_t file, const char *name, uint64_t count)
{
	hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), times;
	char companion[64];
	float *found;
	double *time;
	uint64_t rows;

	assert_true(dataset >= 0);
	rows = rows_of(dataset);
	assert_true(rows >= count);
	found = malloc(rows * COUNT * sizeof(*found));
	time = malloc((rows + 1) * sizeof(*time));
	assert_true(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0);
	snprintf(companion, sizeof(companion), "%s_time", name);
	times = H5Dopen2(file, companion, H5P_DEFAULT);
	assert_true(times >= 0);
	assert_true(H5Dread(times, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, time) >= 0);
	for (uint64_t k = 0; k < count; k++) {
		assert_true(time[k] == (double)k / 8);
		for (size_t i = 0; i < COUNT; i++)
			if (found[k * COUNT + i] != element(k, i))
				fail_msg("%s: frame %d, element %zu", name, (int)k, i);
	}
	H5Dclose(times);
	H5Dclose(dataset);
	free(time);
	free(found);
}

FIXTURE_TEST(hdf5_reads_the_submitted_frames)
{
	const char *path = scratch(f, "frames.h5");
	sluice_writer *w = writer_open(f->ctx, path, 0);
	sluice_series *u = series_add(w, "fields/u", "deflate", 0);
	sluice_series *v = series_add(w, "fields/v", "none", 0);
	sluice_series *p = series_add(w, "p", "none", 20);
	sluice_series *q = series_add(w, "q", "deflate", 20);
	hid_t file;

	assert_int_equal(access(path, F_OK), -1);
	for (uint64_t k = 0; k < 20; k++) {
		frames_put(u, k, k + 1);
		frames_put(v, k, k + 1);
		frames_put(p, k, k + 1);
		if (k % 2)
			frames_put(q, k / 2, k / 2 + 1);
		if (k == 10)
			assert_ok(sluice_writer_flush(w, -1));
	}
	assert_int_equal(access(path, F_OK), 0);
	assert_ok(sluice_writer_close(w, -1));
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	assert_true(file >= 0);
	assert_dataset(file, "fields/u", 20);
	assert_dataset(file, "fields/v", 20);
	assert_dataset(file, "p", 20);
	assert_dataset(file, "q", 10);
	H5Fclose(file);
}

/* HDF5's own blocks of texts begin so. */
FIXTURE_TEST(frames_may_begin_as_a_block_of_texts)
{
	static const char *const codecs[] = {"none", "deflate"};
	const char *path = scratch(f, "frames.h5");
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	uint8_t frame[16] = "GCOL\1", found[20][sizeof(frame)];
	hid_t file, dataset;

	o.type = SLUICE_UINT8;
	o.rank = 1;
	o.shape[0] = sizeof(frame);
	o.chunk_frames = 8;
	for (unsigned i = 0; i < COUNT_OF(codecs); i++) {
		sluice_writer *w = writer_open(f->ctx, path, SLUICE_WRITER_REPLACE);
		sluice_series *s;

		o.codec = codecs[i];
		assert_ok(sluice_series_add(w, "u", &o, &s));
		for (frame[5] = 0; frame[5] < COUNT_OF(found); frame[5]++) {
			assert_ok(sluice_series_push(s, frame, NULL, -1));
			if (frame[5] % 3 == 2)
				assert_ok(sluice_writer_flush(w, -1));
		}
		assert_ok(sluice_writer_close(w, -1));
		file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
		dataset = H5Dopen2(file, "u", H5P_DEFAULT);
		assert_int_equal(rows_of(dataset), COUNT_OF(found));
		assert_true(H5Dread(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT,
		                    found) >= 0);
		for (frame[5] = 0; frame[5] < COUNT_OF(found); frame[5]++)
			assert_memory_equal(found[frame[5]], frame, sizeof(frame));
		H5Dclose(dataset);
		H5Fclose(file);
	}
}

static void assert_before(const sluice_series *s, uint64_t frames)
{
	struct sluice_writer_counts stats = {.size = sizeof(stats)};

	assert_ok(sluice_series_stats(s, &stats));
	assert_int_equal(stats.frames_before, frames);
}

FIXTURE_TEST(a_file_is_continued)
{
	const char *path = scratch(f, "frames.h5");
	hid_t file;

	for (uint64_t part = 0; part < 3; part++) {
		sluice_writer *w = writer_open(f->ctx, path, part ? SLUICE_WRITER_APPEND : 0);
		sluice_series *u = series_add(w, "u", "deflate", 0);
		sluice_series *p = series_add(w, "p", "none", 30);

		assert_before(u, part * 5);
		assert_before(p, part * 5);
		frames_put(u, part * 5, part * 5 + 5);
		frames_put(p, part * 5, part * 5 + 5);
		assert_ok(sluice_writer_close(w, -1));
	}
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	assert_true(file >= 0);
	assert_dataset(file, "u", 15);
	assert_dataset(file, "p", 15);
	H5Fclose(file);
}

static uint64_t rows_in(const char *path, const char *name)
{
	hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
	uint64_t rows = rows_of(dataset);

	H5Dclose(dataset);
	H5Fclose(file);
	return rows;
}

FIXTURE_TEST(a_run_goes_on_at_an_earlier_frame)
{
	static const char *const names[] = {"u", "v", "p"}, *const codecs[] = {"deflate", "none",
	                                                                       "none"};
	const char *path = scratch(f, "frames.h5");
	struct sluice_series_options o;
	sluice_series *s[3];
	sluice_writer *w = writer_open(f->ctx, path, 0);
	sluice_frames *reader;
	hid_t file;

	for (unsigned i = 0; i < 3; i++) {
		s[i] = series_add(w, names[i], codecs[i], i == 2 ? 30 : 0);
		frames_put(s[i], 0, 7);
		/* Of a run that went wrong, and was not as long everywhere. */
		frames_put(s[i], 57, 60 + i);
	}
	assert_ok(sluice_writer_close(w, -1));
	w = writer_open(f->ctx, path, SLUICE_WRITER_APPEND);
	assert_ok(sluice_frames_open(path, &reader));
	for (unsigned i = 0; i < 3; i++) {
		o = field_options(codecs[i], i == 2 ? 30 : 0);
		o.flags = SLUICE_SERIES_CONTINUE_AT;
		o.continue_at = 13;
		assert_refused(sluice_series_add(w, names[i], &o, &s[i]), EINVAL, "frames");
		o.continue_at = 7;
		assert_ok(sluice_frames_begin(reader, 0));
		assert_ok(sluice_series_add(w, names[i], &o, &s[i]));
		assert_refused(sluice_frames_check(reader), EAGAIN, "has changed");
		assert_before(s[i], 7);
		frames_put(s[i], 7, 9);
	}
	sluice_frames_free(reader);
	assert_ok(sluice_writer_close(w, -1));
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	for (unsigned i = 0; i < 3; i++)
		assert_dataset(file, names[i], 9);
	H5Fclose(file);
	assert_int_equal(rows_in(path, "u"), 9);
	assert_int_equal(rows_in(path, "v_time"), 9);
	/* All that is visible between the two runs. */
	w = writer_open(f->ctx, path, SLUICE_WRITER_APPEND);
	o = field_options("deflate", 0);
	o.flags = SLUICE_SERIES_CONTINUE_AT;
	assert_ok(sluice_series_add(w, "u", &o, &s[0]));
	sluice_writer_discard(w);
	assert_int_equal(rows_in(path, "u"), 0);
	assert_int_equal(rows_in(path, "u_time"), 0);
}

/* Of each series there is a header and an index in the file that have to be held back. */
FIXTURE_TEST(series_that_fit_into_memory_bytes_are_stored)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options so = SLUICE_SERIES_OPTIONS_INIT;
	float frame[4] = {0};
	sluice_series *s[600];
	unsigned count = 0;
	sluice_writer *w;
	int rc;

	o.memory_bytes = 10 << 20;
	o.threads = 1;
	o.checkpoint_ms = -1;
	so.type = SLUICE_FLOAT32;
	so.rank = 1;
	so.shape[0] = 4;
	so.codec = "none";
	so.chunk_frames = 1;
	assert_ok(sluice_writer_open(f->ctx, scratch(f, "frames.h5"), &o, &w));
	assert_ok(sluice_writer_flush(w, -1));
	do {
		char name[16];

		snprintf(name, sizeof(name), "s%u", count);
		rc = sluice_series_add(w, name, &so, &s[count]);
		count += !rc;
	} while (!rc && count < 600);
	for (unsigned k = 0; k < 2 * count; k++) {
		assert_ok(sluice_series_push(s[k % count], frame, NULL, PATIENCE_MS));
		if (k == count)
			assert_ok(sluice_writer_flush(w, PATIENCE_MS));
	}
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
	assert_in_range(count, 200, 400);
	assert_int_equal(rc, -ENOBUFS);
}

/* HDF5 keeps some MiB of metadata itself before the driver holds it. */
FIXTURE_TEST(metadata_held_back_counts_as_memory)
{
	sluice_writer *w = writer_open(f->ctx, scratch(f, "frames.h5"), 0);
	struct sluice_writer_counts before = {.size = sizeof(before)}, now = before;
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	uint8_t frame[64] = {0};
	sluice_series *s;

	o.type = SLUICE_UINT8;
	o.rank = 1;
	o.shape[0] = sizeof(frame);
	o.chunk[0] = 1;
	o.codec = "none";
	assert_ok(sluice_series_add(w, "u", &o, &s));
	assert_ok(sluice_writer_stats(w, &before));
	for (unsigned i = 0; i < 8000 && now.memory_bytes <= before.memory_bytes; i++) {
		assert_ok(sluice_series_push(s, frame, NULL, PATIENCE_MS));
		assert_ok(sluice_writer_stats(w, &now));
	}
	assert_true(now.memory_bytes > before.memory_bytes);
	assert_ok(sluice_writer_flush(w, PATIENCE_MS));
	assert_ok(sluice_writer_stats(w, &now));
	assert_true(now.memory_bytes <= before.memory_bytes);
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
}

FIXTURE_TEST(a_file_that_is_replaced_keeps_its_permissions)
{
	const char *path = scratch(f, "frames.h5");
	struct stat status;

	for (int round = 0; round < 2; round++) {
		sluice_writer *w = writer_open(f->ctx, path, round ? SLUICE_WRITER_REPLACE : 0);

		frames_put(series_add(w, "u", "deflate", 0), 0, 2);
		assert_ok(sluice_writer_close(w, -1));
		if (!round)
			assert_int_equal(chmod(path, 0600), 0);
	}
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
}

/* Waits until so many frames are stored. */
static void wait_for(sluice_series *s, uint64_t stored)
{
	struct sluice_writer_counts stats = {.size = sizeof(stats)};

	do {
		sleep_ms(1);
		assert_ok(sluice_series_stats(s, &stats));
	} while (stats.stored < stored);
}

/* Processes of their own. HDF5 is theirs too, and is taken down by exit(). */
static sluice_series *begin(const char *path, sluice_writer **w)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	sluice_context *ctx;

	o.checkpoint_ms = -1;
	if (H5open() < 0 || sluice_context_new(NULL, &ctx) || sluice_writer_open(ctx, path, &o, w))
		_exit(1);
	return series_add(*w, "u", "deflate", 0);
}

static void leave_by_exit(const char *path)
{
	sluice_writer *w;
	sluice_series *s = begin(path, &w);

	frames_put(s, 0, 7);
	if (sluice_writer_flush(w, -1))
		_exit(2);
	frames_put(s, 7, 12);
	wait_for(s, 9);
	exit(0);
}

static void leave_a_child_behind(const char *path)
{
	sluice_writer *w;
	sluice_series *s = begin(path, &w);
	int ends[2], status;
	pid_t pid;
	char byte;

	frames_put(s, 0, 7);
	wait_for(s, 7);
	if (pipe(ends) || (pid = fork()) < 0)
		_exit(2);
	if (!pid) {
		close(ends[1]);
		/* As exit() has it done, but for leaks, of which a child has many. */
		_exit(read(ends[0], &byte, 1) || H5close() < 0);
	}
	frames_put(s, 7, 12);
	if (sluice_writer_flush(w, -1) || close(ends[1]) || waitpid(pid, &status, 0) != pid)
		_exit(3);
	_exit(status ? 4 : 0);
}

FIXTURE_TEST(attributes_come_at_any_time)
{
	const char *path = scratch(f, "attributes.h5");
	sluice_writer *w = writer_open(f->ctx, path, 0);
	sluice_series *u = series_add(w, "fields/u", "deflate", 0);
	const double end = 3.5;
	struct sluice_attribute early = {.name = "early", .text = "before the first flush"};
	struct sluice_attribute late[] = {{.name = "status", .text = "finished"},
	                                  {.name = "end", .numbers = &end, .count = 1}};
	double found = 0;
	hid_t file, attribute;

	assert_ok(sluice_series_attributes(u, &early, 1));
	frames_put(u, 0, 5);
	assert_ok(sluice_writer_flush(w, PATIENCE_MS));
	frames_put(u, 5, 8);
	assert_ok(sluice_writer_attributes(w, late, 2));
	assert_ok(sluice_series_attributes(u, late, 2));
	frames_put(u, 8, 10);
	assert_refused(sluice_series_attributes(u, late + 1, 1), EEXIST, "'end'");
	late[0].name = "sluice_mine";
	assert_refused(sluice_writer_attributes(w, late, 1), EINVAL, "sluice's own");
	assert_refused(sluice_writer_attributes(NULL, late, 1), EINVAL, "NULL");
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	assert_dataset(file, "fields/u", 10);
	assert_true(H5Aexists(file, "status") > 0);
	assert_true(H5Aexists_by_name(file, "fields/u", "early", H5P_DEFAULT) > 0);
	attribute = H5Aopen_by_name(file, "fields/u", "end", H5P_DEFAULT, H5P_DEFAULT);
	assert_true(H5Aread(attribute, H5T_NATIVE_DOUBLE, &found) >= 0);
	assert_true(found == end);
	H5Aclose(attribute);
	H5Fclose(file);
}

static void assert_left(void (*process)(const char *path), uint64_t frames)
{
	char dir[] = "writer-XXXXXX", path[64];
	const char *base = getenv("SLUICE_TEST_DIR");
	hid_t file, dataset;
	int status;
	pid_t pid;

	if (base)
		assert_int_equal(chdir(base), 0);
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/frames.h5", dir);
	pid = fork();
	if (!pid)
		process(path);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	assert_true(file >= 0);
	assert_dataset(file, "u", frames);
	dataset = H5Dopen2(file, "u", H5P_DEFAULT);
	assert_int_equal(rows_of(dataset), frames);
	H5Dclose(dataset);
	H5Fclose(file);
	unlink(path);
	rmdir(dir);
}

/* Children of a process that has no context, and has not used HDF5. */
FIRST_TEST(a_process_that_ends_without_closing_leaves_the_last_flush)
{
	assert_left(leave_by_exit, 7);
}

FIRST_TEST(a_child_of_fork_that_ends_leaves_the_file_alone)
{
	assert_left(leave_a_child_behind, 12);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return RUN_TESTS(NULL, NULL);
}
