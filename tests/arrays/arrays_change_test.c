/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets that change, and reads that end early: beside a writer, after other programs, cancelled, closed; and memory. */
#include <fcntl.h>
#include <pthread.h>
#include <sluice/writer.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrays/dataset.h"
#include "codec/codec.h"
#include "core/core.h"

enum { ELEMENTS = 500, FRAMES = 900 };

static unsigned tasks; /* of pools */

void __real_sl_pool_submit(struct sl_pool *pool, struct sl_task *task);
void __wrap_sl_pool_submit(struct sl_pool *pool, struct sl_task *task);
void __wrap_sl_pool_submit(struct sl_pool *pool, struct sl_task *task)
{
	__atomic_fetch_add(&tasks, 1, __ATOMIC_RELAXED);
	__real_sl_pool_submit(pool, task);
}

struct sl_array;
struct sl_undoing;

static _Atomic bool gives_slowly, is_closed, gave_late;

void __real_sl_undoing_give(struct sl_array *array, struct sl_undoing *undoing);
void __wrap_sl_undoing_give(struct sl_array *array, struct sl_undoing *undoing);
void __wrap_sl_undoing_give(struct sl_array *array, struct sl_undoing *undoing)
{
	if (gives_slowly && undoing)
		usleep(100000);
	if (is_closed)
		gave_late = true;
	else
		__real_sl_undoing_give(array, undoing);
}

/* ------------------------------------------------------------------------------ beside a writer */

static float value(uint64_t frame, unsigned i)
{
	return (float)(frame * 31 % 977) + (float)(i / 9);
}

struct writing {
	sluice_writer *writer;
	sluice_series *series;
	unsigned frames, gather;
	_Atomic int rc;
};

static void *write_all(void *argument)
{
	struct writing *w = argument;
	float frame[ELEMENTS];

	for (unsigned k = 0; k < w->frames && !w->rc; k++) {
		for (unsigned i = 0; i < ELEMENTS; i++)
			frame[i] = value(k, i);
		w->rc = sluice_series_push(w->series, frame, NULL, -1);
		if (!w->rc && k % 5 == 4)
			w->rc = sluice_writer_flush(w->writer, -1);
	}
	return NULL;
}

static void writing_begin(struct writing *w, sluice_context *ctx, const char *path,
                          const char *codec)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options s = SLUICE_SERIES_OPTIONS_INIT;

	s.type = SLUICE_FLOAT32;
	s.rank = 1;
	s.shape[0] = ELEMENTS;
	s.chunk[0] = 200;
	s.codec = codec;
	s.chunk_frames = w->gather;
	assert_ok(sluice_writer_open(ctx, path, &o, &w->writer));
	assert_ok(sluice_series_add(w->writer, "u", &s, &w->series));
}

static void writing_continue(struct writing *w, sluice_context *ctx, const char *path, uint64_t at)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options s = SLUICE_SERIES_OPTIONS_INIT;

	o.flags = SLUICE_WRITER_APPEND;
	s.type = SLUICE_FLOAT32;
	s.rank = 1;
	s.shape[0] = ELEMENTS;
	s.flags = SLUICE_SERIES_CONTINUE_AT;
	s.continue_at = at;
	assert_ok(sluice_writer_open(ctx, path, &o, &w->writer));
	assert_ok(sluice_series_add(w->writer, "u", &s, &w->series));
}

/* Writes all frames, and closes the file. */
static void write_file(struct writing *w, sluice_context *ctx, const char *path, const char *codec)
{
	writing_begin(w, ctx, path, codec);
	write_all(w);
	assert_ok(w->rc);
	assert_ok(sluice_writer_close(w->writer, -1));
}

/* Reads the last frames that the dataset shows, or all. Returns how many it has. */
static uint64_t check_frames(sluice_file *file, bool all)
{
	struct sluice_array_info info = {sizeof(info)};
	uint64_t from, n;
	float *read;

	assert_ok(sluice_array_stat(file, &info));
	assert_int_equal(info.bytes, info.shape[0] * ELEMENTS * 4);
	from = all ? 0 : info.shape[0] - SL_MIN(info.shape[0], 40);
	n = info.shape[0] - from;
	read = malloc(n * ELEMENTS * 4 + 1);
	assert_read(file, read, n * ELEMENTS * 4, from * ELEMENTS * 4);
	for (uint64_t k = 0; k < n; k++)
		for (unsigned i = 0; i < ELEMENTS; i++)
			if (read[k * ELEMENTS + i] != value(from + k, i))
				fail_msg("element %u of frame %d is %f", i, (int)(from + k),
				         (double)read[k * ELEMENTS + i]);
	/* And some of them alone. */
	for (uint64_t k = 0; n && k < 12; k++) {
		uint64_t start[] = {from + k * 7919 % n, k * 41}, count[] = {1, 20};
		float few[20];
		sluice_op *op;

		assert_ok(box_submit(file, 2, start, count, few, sizeof(few), &op));
		assert_moves(op, sizeof(few));
		for (unsigned i = 0; i < 20; i++)
			assert_true(few[i] == value(start[0], (unsigned)start[1] + i));
	}
	free(read);
	return info.shape[0];
}

static void read_beside(struct fixture *f, const char *codec, unsigned gather)
{
	struct writing w = {.frames = under_sanitizer() ? FRAMES / 3 : FRAMES, .gather = gather};
	const char *path = scratch(f, "beside.h5");
	float first[ELEMENTS] = {0};
	sluice_file *file;
	uint64_t seen = 0;
	pthread_t thread;

	unlink(path);
	writing_begin(&w, f->ctx, path, codec);
	for (unsigned i = 0; i < ELEMENTS; i++)
		first[i] = value(0, i);
	/* The file has its name from the first flush on. */
	assert_ok(sluice_series_push(w.series, first, NULL, -1));
	assert_ok(sluice_writer_flush(w.writer, -1));
	assert_ok(sluice_writer_close(w.writer, -1));
	unlink(path);
	writing_begin(&w, f->ctx, path, codec);
	assert_ok(sluice_writer_flush(w.writer, -1));
	file = dataset_open(f->ctx, path, "/u");
	assert_int_equal(pthread_create(&thread, NULL, write_all, &w), 0);
	while (seen < w.frames) {
		uint64_t now;

		assert_ok(sluice_array_refresh(file));
		now = check_frames(file, false);
		assert_in_range(now, seen, w.frames);
		seen = now;
		/* Without a refresh, while it goes on. */
		check_frames(file, true);
		if (w.rc)
			break;
	}
	pthread_join(thread, NULL);
	assert_ok(w.rc);
	assert_ok(sluice_writer_close(w.writer, -1));
	assert_int_equal(check_frames(file, true), seen);
	assert_ok(sluice_array_refresh(file));
	assert_int_equal(check_frames(file, true), w.frames);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(frames_are_right_while_their_writer_goes_on)
{
	read_beside(f, "deflate", 1);
	read_beside(f, "deflate", 8);
	read_beside(f, "none", 1);
	read_beside(f, "none", 8);
}

FIXTURE_TEST(a_dataset_that_has_become_shorter_is_stale)
{
	struct writing w = {.frames = 30, .gather = 1};
	const char *path = scratch(f, "shorter.h5");
	sluice_file *file;
	char byte;

	write_file(&w, f->ctx, path, "deflate");
	file = dataset_open(f->ctx, path, "u");
	assert_int_equal(check_frames(file, true), 30);
	writing_continue(&w, f->ctx, path, 10);
	assert_ok(sluice_writer_close(w.writer, -1));
	assert_refused(sluice_array_refresh(file), ESTALE, "shorter");
	assert_int_equal(read_now(file, &byte, 1, 0), -ESTALE);
	assert_ok(sluice_close(file));
}

/* -------------------------------------------------------------------------- by other programs */

static void make_as(struct dataset *d, const char *path, struct rng *r, hsize_t rows,
                    hsize_t columns, bool chunks, bool deflate)
{
	hsize_t chunk[] = {64, columns};
	hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

	*d = (struct dataset){.name = "u", .rank = 2, .shape = {rows, columns}};
	d->type = H5Tcopy(H5T_NATIVE_INT);
	d->list = H5Pcreate(H5P_DATASET_CREATE);
	if (chunks)
		H5Pset_chunk(d->list, 2, chunk);
	if (deflate)
		H5Pset_deflate(d->list, 1);
	dataset_fill(d, r);
	dataset_write(d, file);
	H5Fclose(file);
}

static void make(struct dataset *d, const char *path, struct rng *r, hsize_t rows, hsize_t columns,
                 bool deflate)
{
	make_as(d, path, r, rows, columns, deflate, deflate);
}

FIXTURE_TEST(a_file_that_another_program_changes_is_stale_until_a_refresh)
{
	const char *path = scratch(f, "stale.h5");
	struct rng r = rng_new(4210);

	for (int way = 0; way < 4; way++) {
		struct timespec times[2] = {{0, UTIME_OMIT}, {1000, 0}};
		struct dataset d;
		sluice_file *file;
		sluice_op *op;
		char byte;

		make(&d, path, &r, 200, 30, way % 2);
		file = dataset_open(f->ctx, path, "u");
		assert_read(file, &byte, 1, 0);
		if (way < 2)
			assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
		else
			file_truncate(path, file_length(path) + 1);
		op = start_read(file, &byte, 1, 0);
		assert_int_equal(sluice_wait(op, PATIENCE_MS), -ESTALE);
		assert_non_null(strstr(sluice_op_message(op), "has changed"));
		sluice_op_free(op);
		assert_ok(sluice_array_refresh(file));
		assert_read(file, &byte, 1, 0);
		assert_ok(sluice_close(file));
		dataset_clear(&d);
	}
}

static void change_byte(const char *path, off_t at)
{
	int fd = open(path, O_WRONLY);

	assert_int_equal(pwrite(fd, "!", 1, at), 1);
	close(fd);
}

/* Makes a dataset of bytes in its header, or in these of another file. */
static void make_apart(const char *path, const char *raw, off_t offset, struct rng *r)
{
	struct dataset d = {.name = "u", .rank = 1, .shape = {64}};
	hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

	d.type = H5Tcopy(H5T_NATIVE_UINT8);
	d.list = H5Pcreate(H5P_DATASET_CREATE);
	if (raw)
		H5Pset_external(d.list, raw, offset, 64);
	else
		H5Pset_layout(d.list, H5D_COMPACT);
	dataset_fill(&d, r);
	dataset_write(&d, file);
	H5Fclose(file);
	dataset_clear(&d);
}

FIXTURE_TEST(bytes_that_a_refresh_does_not_read_again_are_the_same)
{
	const char *path = scratch(f, "apart.h5"), *raw[] = {NULL, scratch(f, "apart.raw")};
	struct timespec times[2] = {{0, UTIME_OMIT}, {1000, 0}};
	struct rng r = rng_new(4211);

	for (size_t i = 0; i < COUNT_OF(raw); i++) {
		unsigned char before[64], now[64];
		sluice_file *file;

		make_apart(path, raw[i], 0, &r);
		file = dataset_open(f->ctx, path, "u");
		assert_read(file, before, sizeof(before), 0);
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
		assert_ok(sluice_array_refresh(file));
		assert_read(file, now, sizeof(now), 0);
		assert_memory_equal(now, before, sizeof(now));
		make_apart(path, raw[i], 64, &r);
		assert_refused(sluice_array_refresh(file), ESTALE, "apart.h5#/u");
		assert_int_equal(read_now(file, now, sizeof(now), 0), -ESTALE);
		assert_ok(sluice_close(file));
	}
}

static void *refresh(void *file)
{
	return (void *)(intptr_t)sluice_array_refresh(file);
}

/* A refresh waits until the change is 20 ms ago. */
FIXTURE_TEST(a_read_beside_a_refresh_is_of_one_state)
{
	enum { BYTES = 128 * 30 * sizeof(int) };
	const char *path = scratch(f, "beside.h5");
	struct rng r = rng_new(4216);

	for (int i = 0; i < 10; i++) {
		static char to[BYTES];
		struct dataset before, after;
		sluice_file *file;
		pthread_t thread;
		void *rc;
		int64_t n;

		make(&before, path, &r, 128, 30, true);
		file = dataset_open(f->ctx, path, "u");
		assert_read(file, to, 1, 0); /* the first chunk is kept */
		make(&after, path, &r, 128, 30, true);
		pthread_create(&thread, NULL, refresh, file);
		sleep_ms(5);
		n = read_now(file, to, BYTES, 0);
		pthread_join(thread, &rc);
		assert_null(rc);
		if (n != -ESTALE) {
			assert_int_equal(n, BYTES);
			assert_true(!memcmp(to, before.model, BYTES) ||
			            !memcmp(to, after.model, BYTES));
		}
		assert_read(file, to, BYTES, 0);
		assert_bytes(to, after.model, BYTES);
		assert_ok(sluice_close(file));
		dataset_clear(&before);
		dataset_clear(&after);
	}
}

FIXTURE_TEST(a_change_at_once_after_another_is_seen)
{
	const char *path = scratch(f, "young.h5");
	struct rng r = rng_new(4214);

	for (int round = 0; round < 10; round++) {
		struct dataset d;
		sluice_file *file;
		char byte;

		make(&d, path, &r, 200, 30, round % 2);
		file = dataset_open(f->ctx, path, "u");
		change_byte(path, (off_t)file_length(path) - 1);
		assert_int_equal(read_now(file, &byte, 1, 0), -ESTALE);
		assert_ok(sluice_close(file));
		dataset_clear(&d);
	}
}

FIXTURE_TEST(a_file_of_a_writer_that_another_program_changes_is_stale_until_a_refresh)
{
	struct writing w = {.frames = 30, .gather = 1};
	const char *path = scratch(f, "other.h5");
	sluice_file *file;
	char byte;

	write_file(&w, f->ctx, path, "deflate");
	file = dataset_open(f->ctx, path, "u");
	assert_int_equal(check_frames(file, true), 30);
	change_byte(path, (off_t)file_length(path) - 1);
	assert_int_equal(read_now(file, &byte, 1, 0), -ESTALE);
	assert_ok(sluice_array_refresh(file));
	assert_read(file, &byte, 1, 0);
	assert_ok(sluice_close(file));
}

/* Where HDF5 has a chunk of a frame. */
static haddr_t place_of(const char *path, hsize_t frame)
{
	hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT),
	      set = H5Dopen2(file, "u", H5P_DEFAULT);
	hsize_t at[] = {frame, 0}, length;
	haddr_t address;
	unsigned mask;

	assert_true(H5Dget_chunk_info_by_coord(set, at, &mask, &address, &length) >= 0);
	H5Dclose(set);
	H5Fclose(file);
	return address;
}

FIXTURE_TEST(places_that_are_known_are_forgotten_with_their_state)
{
	const uint64_t start[] = {20, 0}, count[] = {1, 20};
	const char *path = scratch(f, "places.h5");
	struct writing w = {.frames = 30, .gather = 1};
	float frame[ELEMENTS], few[20];
	sluice_file *file;
	sluice_op *op;
	haddr_t before;

	write_file(&w, f->ctx, path, "none");
	before = place_of(path, start[0]);
	file = dataset_open(f->ctx, path, "u");
	assert_ok(box_submit(file, 2, start, count, few, sizeof(few), &op));
	assert_moves(op, sizeof(few));
	/* The frames are written again, elsewhere. */
	writing_continue(&w, f->ctx, path, 10);
	for (unsigned k = 10; k < w.frames; k++) {
		for (unsigned i = 0; i < ELEMENTS; i++)
			frame[i] = -value(k, i);
		assert_ok(sluice_series_push(w.series, frame, NULL, -1));
	}
	assert_ok(sluice_writer_close(w.writer, -1));
	assert_true(place_of(path, start[0]) != before);
	assert_ok(sluice_array_refresh(file));
	assert_ok(box_submit(file, 2, start, count, few, sizeof(few), &op));
	assert_moves(op, sizeof(few));
	for (unsigned i = 0; i < COUNT_OF(few); i++)
		assert_true(few[i] == -value(start[0], i));
	assert_ok(sluice_close(file));
}

/* ------------------------------------------------------------------------------ early ends */

FIXTURE_TEST(cancelled_reads_end_and_leave_their_memory_alone)
{
	enum { OPS = 24 };
	const char *path = scratch(f, "cancel.h5");
	struct rng r = rng_new(4211);
	struct dataset d;
	sluice_file *file;

	make(&d, path, &r, 4096, 200, true);
	file = dataset_open(f->ctx, path, "u");
	for (int round = 0; round < rounds_of(12); round++) {
		struct buffer b[OPS];
		sluice_op *ops[OPS];

		if (round % 3 == 0)
			file_set_residency(path, COLD);
		for (int i = 0; i < OPS; i++) {
			b[i] = buffer_new(d.bytes, 0);
			ops[i] = start_read(file, b[i].data, d.bytes - (size_t)i, (uint64_t)i);
		}
		for (int i = 0; i < OPS; i++)
			if (rng_below(&r, 4))
				sluice_cancel(ops[i]);
		for (int i = 0; i < OPS; i++) {
			int64_t moved = finish(ops[i]);

			if (moved != -ECANCELED) {
				assert_int_equal(moved, d.bytes - (size_t)i);
				assert_bytes(b[i].data, d.model + i, d.bytes - (size_t)i);
			}
			memset(b[i].data, 0, d.bytes);
			buffer_free(&b[i]);
		}
	}
	assert_ok(sluice_close(file));
	dataset_clear(&d);
}

FIXTURE_TEST(a_close_waits_for_reads_in_flight)
{
	const char *path = scratch(f, "close.h5");
	struct rng r = rng_new(4212);
	struct dataset d;

	make(&d, path, &r, 2048, 200, true);
	for (int round = 0; round < rounds_of(30); round++) {
		sluice_file *file = dataset_open(f->ctx, path, "u");
		struct buffer b = buffer_new(d.bytes, 0);
		sluice_op *op = start_read(file, b.data, d.bytes, 0);

		assert_ok(sluice_close(file));
		assert_moves(op, d.bytes);
		assert_bytes(b.data, d.model, d.bytes);
		buffer_free(&b);
	}
	dataset_clear(&d);
}

FIXTURE_TEST(no_thread_touches_a_file_that_is_closed)
{
	const char *path = scratch(f, "late.h5");
	struct rng r = rng_new(4216);
	struct dataset d;
	sluice_file *file;
	char byte;

	/* A chunk that has a task of its own. */
	make(&d, path, &r, 64, 1000, true);
	file = dataset_open(f->ctx, path, "u");
	file_set_residency(path, COLD);
	gives_slowly = true;
	assert_read(file, &byte, 1, 0);
	assert_ok(sluice_close(file));
	is_closed = true;
	usleep(200000);
	assert_false(gave_late);
	gives_slowly = is_closed = false;
	dataset_clear(&d);
}

/* ------------------------------------------------------------------------------------- memory */

FIXTURE_TEST(a_chunk_that_many_reads_need_is_decoded_once)
{
	const char *path = scratch(f, "once.h5");
	struct rng r = rng_new(4213);
	struct dataset d;
	sluice_file *file;
	char to[100];

	make(&d, path, &r, 640, 50, true);
	file = dataset_open(f->ctx, path, "u");
	undone = 0;
	for (size_t at = 0; at + sizeof(to) <= d.bytes; at += 4 * sizeof(to)) {
		assert_read(file, to, sizeof(to), at);
		assert_bytes(to, d.model + at, sizeof(to));
	}
	assert_int_equal(undone, 10);
	assert_ok(sluice_close(file));
	dataset_clear(&d);
}

FIXTURE_TEST(thousands_of_small_reads_at_a_time_need_few_threads)
{
	enum { OPS = 3000, BYTES = 60 };
	const char *path = scratch(f, "many.h5");
	struct rng r = rng_new(4214);
	size_t threads = count_threads(), most = 0;
	static char to[OPS][BYTES];
	static sluice_op *ops[OPS];
	static uint64_t at[OPS];
	struct dataset d;
	sluice_file *file;

	make(&d, path, &r, 6400, 50, true);
	file = dataset_open(f->ctx, path, "u");
	for (int i = 0; i < OPS; i++) {
		at[i] = rng_below(&r, d.bytes - BYTES);
		ops[i] = start_read(file, to[i], BYTES, at[i]);
		if (i % 100 == 0)
			most = SL_MAX(most, count_threads());
	}
	for (int i = 0; i < OPS; i++) {
		assert_moves(ops[i], BYTES);
		assert_bytes(to[i], d.model + at[i], BYTES);
	}
	assert_in_range(most, 0, threads + 20);
	assert_ok(sluice_close(file));
	dataset_clear(&d);
}

/* Where that is so of a plain file. */
FIXTURE_TEST(small_reads_of_what_is_known_end_in_the_call)
{
	const uint64_t start[] = {7, 3}, count[] = {1, 11};
	const char *path = scratch(f, "known.h5");
	struct rng r = rng_new(4216);
	sluice_file *plain;
	char bytes[64];
	sluice_op *op;
	unsigned before;
	bool at_once;

	for (int way = 0; way < 3; way++) {
		struct dataset d;
		sluice_file *file;

		make_as(&d, path, &r, 100, 50, way > 0, way > 1);
		assert_ok(sluice_open(f->ctx, path, NULL, &plain));
		before = tasks;
		assert_read(plain, bytes, sizeof(bytes), 0);
		at_once = tasks == before;
		assert_ok(sluice_close(plain));
		file = dataset_open(f->ctx, path, "u");
		for (int again = 0; again < 2; again++) {
			before = tasks;
			assert_ok(box_submit(file, 2, start, count, bytes, 44, &op));
			assert_moves(op, 44);
			if (again && at_once)
				assert_int_equal(tasks, before);
			assert_bytes(bytes, d.model + (7 * 50 + 3) * sizeof(int), 44);
		}
		assert_ok(sluice_close(file));
		dataset_clear(&d);
	}
}

/* In memory, and from storage to memory that is not aligned. */
FIXTURE_TEST(long_chunks_without_filters_are_read_in_parts)
{
	hsize_t chunk[] = {3000, 1000};
	const char *path = scratch(f, "long.h5");
	struct rng r = rng_new(4217);

	for (int chunked = 0; chunked < 2; chunked++) {
		struct dataset d = {.name = "u", .rank = 2, .shape = {3500, 2000}};
		hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
		sluice_file *opened;

		d.type = H5Tcopy(H5T_NATIVE_INT8);
		d.list = H5Pcreate(H5P_DATASET_CREATE);
		if (chunked)
			H5Pset_chunk(d.list, 2, chunk);
		dataset_fill(&d, &r);
		dataset_write(&d, file);
		H5Fclose(file);
		opened = dataset_open(f->ctx, path, "u");
		for (int i = 0; i < 6; i++) {
			uint64_t start[] = {0, i % 2 * 1000}, count[] = {i < 4 ? 3000 : 3500, 1000};
			struct buffer b = buffer_new(count[0] * 1000, i % 3);
			sluice_op *op;

			file_set_residency(path, i % 2 ? COLD : CACHED);
			assert_ok(box_submit(opened, 2, start, count, b.data, b.length, &op));
			assert_moves(op, b.length);
			for (size_t y = 0; y < count[0]; y++)
				assert_bytes(b.data + y * 1000, d.model + y * 2000 + start[1],
				             1000);
			buffer_free(&b);
			dataset_check_box(&d, opened, &r);
		}
		dataset_check_bytes(&d, opened, &r);
		assert_ok(sluice_close(opened));
		dataset_clear(&d);
	}
}

FIXTURE_TEST(memory_is_bounded_however_long_the_dataset_is)
{
	enum { ROWS_EACH = 512, COLUMNS = 1024, CHUNKS = 300 };
	const char *path = scratch(f, "memory.h5");
	hsize_t shape[] = {ROWS_EACH * CHUNKS, COLUMNS}, chunk[] = {ROWS_EACH, COLUMNS};
	uint64_t start[] = {0, 5}, count[] = {shape[0], 1};
	hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, shape, NULL), set;
	struct sluice_config config = row_config();
	unsigned char *bytes = malloc(ROWS_EACH * COLUMNS), *column = malloc(shape[0]);
	size_t before, most = 0;
	sluice_file *opened;
	sluice_op *op;

	/* Of 512 KiB a chunk, 150 MiB in all, which fit a small file. */
	H5Pset_chunk(list, 2, chunk);
	H5Pset_deflate(list, 1);
	set = H5Dcreate2(file, "u", H5T_NATIVE_UINT8, space, H5P_DEFAULT, list, H5P_DEFAULT);
	for (size_t i = 0; i < ROWS_EACH * COLUMNS; i++)
		bytes[i] = (unsigned char)(i / COLUMNS);
	for (hsize_t i = 0; i < CHUNKS; i++) {
		hsize_t at[] = {i * ROWS_EACH, 0}, some[] = {ROWS_EACH, COLUMNS};
		hid_t memory = H5Screate_simple(2, some, NULL);

		H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, some, NULL);
		assert_true(H5Dwrite(set, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, bytes) >=
		            0);
		H5Sclose(memory);
	}
	H5Dclose(set);
	H5Sclose(space);
	H5Pclose(list);
	H5Fclose(file);
	fixture_config(f, &config);
	opened = dataset_open(f->ctx, path, "u");
	memset(column, 1, shape[0]);
	before = resident_bytes();
	assert_ok(box_submit(opened, 2, start, count, column, shape[0], &op));
	while (sluice_wait(op, 1) == -EINPROGRESS)
		most = SL_MAX(most, resident_bytes());
	most = SL_MAX(most, resident_bytes());
	assert_moves(op, shape[0]);
	for (size_t i = 0; i < shape[0]; i++)
		if (column[i] != (unsigned char)i)
			fail_msg("row %zu is %d", i, column[i]);
	if (!under_sanitizer())
		assert_in_range(most - SL_MIN(before, most), 0, 140 * MIB);
	assert_ok(sluice_close(opened));
	free(bytes);
	free(column);
}

FIXTURE_TEST(of_tiny_chunks_few_are_kept)
{
	enum { CHUNKS = 40000, ROW = 16 };
	const char *path = scratch(f, "tiny.h5");
	hsize_t shape[] = {CHUNKS, ROW}, chunk[] = {1, ROW};
	uint64_t start[] = {0, 3}, count[] = {CHUNKS, 1};
	struct rng r = rng_new(4215);
	struct dataset d = {.name = "u", .rank = 2, .shape = {CHUNKS, ROW}};
	unsigned char *column = malloc(CHUNKS);
	hid_t access = H5Pcreate(H5P_FILE_ACCESS), file;
	sluice_file *opened;
	size_t before;
	sluice_op *op;

	H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
	file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
	H5Pclose(access);
	d.type = H5Tcopy(H5T_NATIVE_UINT8);
	d.list = H5Pcreate(H5P_DATASET_CREATE);
	H5Pset_chunk(d.list, 2, chunk);
	H5Pset_shuffle(d.list);
	dataset_fill(&d, &r);
	dataset_write(&d, file);
	H5Fclose(file);
	opened = dataset_open(f->ctx, path, "u");
	memset(column, 1, CHUNKS);
	before = resident_bytes();
	assert_ok(box_submit(opened, 2, start, count, column, CHUNKS, &op));
	assert_moves(op, CHUNKS);
	for (size_t i = 0; i < shape[0]; i++)
		assert_int_equal(column[i], d.model[i * ROW + 3]);
	if (!under_sanitizer())
		assert_in_range(resident_bytes() - SL_MIN(before, resident_bytes()), 0, 12 * MIB);
	assert_ok(sluice_close(opened));
	dataset_clear(&d);
	free(column);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	H5dont_atexit();
	return RUN_TESTS(NULL, NULL);
}
