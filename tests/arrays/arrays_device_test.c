/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets into memory of a device, awaited and in stream order: what is decoded, what fails, what is cancelled, what grows. */
#include <sluice/writer.h>
#include <unistd.h>

#include "arrays/dataset.h"
#include "codec/codec.h"
#include "core/core.h"
#include "io/device_suite.h"

/* A dataset of integers with deflate, in chunks. */
static void make(struct dataset *d, const char *path, unsigned rank, const hsize_t *shape,
                 const hsize_t *chunk)
{
	hid_t file = file_create(path, false);

	*d = dataset_make(file, rank, shape, chunk, NULL, 1, 4301);
	H5Fclose(file);
}

/* Submits a read of a box of three dimensions, awaited on the host or in stream order. */
static sluice_op *start_box(sluice_file *file, const uint64_t *start, const uint64_t *count,
                            void *to, bool on, sluice_stream stream)
{
	struct sluice_extent extent = {to, 4 * count[0] * count[1] * count[2], 0};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	sluice_op *op = NULL;

	r.kind = SLUICE_READ;
	r.extents = &extent;
	r.count = 1;
	r.rank = 3;
	r.box_start = start;
	r.box_count = count;
	r.on = on;
	r.stream = stream;
	assert_ok(sluice_submit(file, &r, &op));
	return op;
}

/* Chunks of many frames, and of a part of a row each: each slot has rows of many chunks. */
FIXTURE_TEST(each_chunk_of_a_box_is_decoded_once)
{
	enum { FRAMES = 20, SIDE = 300 };
	static const hsize_t shape[] = {FRAMES, SIDE, SIDE}, chunk[] = {16, 64, 64};
	static const struct {
		uint64_t start[3], count[3];
		unsigned chunks;
		size_t slot;
	} ways[] = {{{0, 0, 0}, {FRAMES, SIDE, SIDE}, 50, 0},
	            {{3, 70, 1}, {11, 100, 250}, 8, 0},
	            {{3, 70, 1}, {11, 100, 250}, 8, 64 * KIB},
	            {{0, 0, 0}, {FRAMES, SIDE, SIDE}, 50, 64 * KIB}};
	const char *path = scratch(f, "once.h5");
	sluice_stream stream = stream_new(0);
	struct dataset d;
	char *memory, *host;

	make(&d, path, 3, shape, chunk);
	memory = device_new(0, d.bytes);
	host = malloc(d.bytes);
	for (size_t i = 0; i < 2 * COUNT_OF(ways); i++) {
		const uint64_t *start = ways[i / 2].start, *count = ways[i / 2].count;
		size_t n = 4 * count[0] * count[1] * count[2], at = 0;
		struct sluice_config config = row_config();
		sluice_file *file;

		config.tune = NULL;
		config.staging_bytes = 16 * MIB;
		if (ways[i / 2].slot) {
			config_tune(&config, "piece_bytes", 64 * KIB);
			config_tune(&config, "slot_bytes", ways[i / 2].slot);
		}
		fixture_config(f, &config);
		file = dataset_open(f->ctx, path, "u");
		undone = 0;
		assert_moves(start_box(file, start, count, memory, i % 2, stream), n);
		stream_pass(0, stream);
		assert_int_equal(undone, ways[i / 2].chunks);
		device_get(host, memory, n);
		for (uint64_t a = 0; a < count[0]; a++)
			for (uint64_t b = 0; b < count[1]; b++, at += 4 * count[2])
				assert_bytes(host + at,
				             d.model + 4 * (((start[0] + a) * SIDE + start[1] + b) *
				                                    SIDE +
				                            start[2]),
				             4 * count[2]);
		assert_ok(sluice_close(file));
	}
	free(host);
	device_free(memory);
	stream_free(stream);
	dataset_clear(&d);
}

/* Whole rows, as bytes of the file, are a box. */
FIXTURE_TEST(bytes_of_whole_rows_are_decoded_once_too)
{
	static const hsize_t shape[] = {64, 50, 40}, chunk[] = {64, 5, 40};
	const char *path = scratch(f, "rows.h5");
	struct sluice_config config = row_config();
	size_t line = 50 * 40 * 4, n = 60 * line;
	sluice_stream stream = stream_new(0);
	sluice_file *file;
	struct dataset d;
	char *memory, *host = malloc(n);

	make(&d, path, 3, shape, chunk);
	memory = device_new(0, n);
	config.tune = NULL;
	config_tune(&config, "piece_bytes", 64 * KIB);
	config_tune(&config, "slot_bytes", 64 * KIB);
	fixture_config(f, &config);
	for (int on = 0; on < 2; on++) {
		file = dataset_open(f->ctx, path, "u");
		undone = 0;
		assert_moves(on ? start_read_on(file, memory, n, 3 * line, stream)
		                : start_read(file, memory, n, 3 * line),
		             n);
		stream_pass(0, stream);
		assert_int_equal(undone, 10);
		device_get(host, memory, n);
		assert_bytes(host, d.model + 3 * line, n);
		/* Behind the end there is nothing: in stream order that is an error. */
		if (on)
			assert_int_equal(finish(start_read_on(file, memory, n, 5 * line, stream)),
			                 -EIO);
		else
			assert_moves(start_read(file, memory, n, 5 * line), n - line);
		assert_ok(sluice_close(file));
	}
	free(host);
	device_free(memory);
	stream_free(stream);
	dataset_clear(&d);
}

/* The stream is held by nothing that fails: what is given behind the read is done. */
static void stream_goes_on(sluice_stream stream, void *memory)
{
	launch_fill(0, stream, memory, 1000, 0, 5);
	stream_pass(0, stream);
	assert_device(memory, 1000, 0, 5);
}

FIXTURE_TEST(a_damaged_chunk_fails_its_read_and_the_stream_goes_on)
{
	static const hsize_t shape[] = {40, 64, 64}, chunk[] = {1, 64, 64};
	const uint64_t start[] = {0, 0, 0}, count[] = {40, 64, 64}, some[] = {20, 64, 64};
	const char *path = scratch(f, "damaged.h5");
	sluice_stream stream = stream_new(0);
	struct dataset d;
	char *memory;
	hid_t file, set;
	hsize_t at[] = {33, 0, 0};

	make(&d, path, 3, shape, chunk);
	file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
	set = H5Dopen2(file, "u", H5P_DEFAULT);
	assert_true(H5Dwrite_chunk(set, H5P_DEFAULT, 0, at, 6, "damage") >= 0);
	H5Dclose(set);
	H5Fclose(file);
	memory = device_new(0, d.bytes);
	for (int on = 0; on < 2; on++) {
		sluice_file *opened = dataset_open(f->ctx, path, "u");
		sluice_op *op = start_box(opened, start, count, memory, on, stream);

		if (on)
			stream_goes_on(stream, memory);
		assert_int_equal(sluice_wait(op, PATIENCE_MS), -EBADMSG);
		assert_non_null(strstr(sluice_op_message(op), "chunk at (33, 0, 0)"));
		sluice_op_free(op);
		op = start_box(opened, start, some, memory, on, stream);
		assert_moves(op, d.bytes / 2);
		assert_ok(sluice_close(opened));
	}
	device_free(memory);
	stream_free(stream);
	dataset_clear(&d);
}

FIXTURE_TEST(a_cancelled_read_lets_its_stream_go_on)
{
	enum { OPS = 6 };
	static const hsize_t shape[] = {200, 64, 64}, chunk[] = {3, 64, 64};
	const uint64_t start[] = {0, 0, 0}, count[] = {200, 64, 64};
	const char *path = scratch(f, "cancel.h5");
	struct rng r = rng_new(4302);
	sluice_stream stream = stream_new(0);
	sluice_file *file;
	struct dataset d;
	char *memory[OPS], *host;

	make(&d, path, 3, shape, chunk);
	host = malloc(d.bytes);
	for (int i = 0; i < OPS; i++)
		memory[i] = device_new(0, d.bytes);
	make_room(f);
	file = dataset_open(f->ctx, path, "u");
	for (int round = 0; round < rounds_of(12); round++) {
		sluice_op *ops[OPS];

		for (int i = 0; i < OPS; i++)
			ops[i] = start_box(file, start, count, memory[i], i % 3, stream);
		for (int i = 0; i < OPS; i++)
			if (rng_below(&r, 3))
				sluice_cancel(ops[i]);
		stream_goes_on(stream, memory[1]);
		for (int i = 0; i < OPS; i++) {
			int64_t moved = finish(ops[i]);
			size_t at;

			if (moved == -ECANCELED)
				continue;
			assert_int_equal(moved, d.bytes);
			device_get(host, memory[i], d.bytes);
			/* Of one the stream was given a kernel behind it. */
			at = i == 1 ? 1000 : 0;
			assert_bytes(host + at, d.model + at, d.bytes - at);
		}
	}
	assert_ok(sluice_close(file));
	for (int i = 0; i < OPS; i++)
		device_free(memory[i]);
	free(host);
	stream_free(stream);
	dataset_clear(&d);
}

/* More streams than a driver has channels wait for chunks, with kernels behind. */
FIXTURE_TEST(many_streams_wait_for_chunks_at_once)
{
	enum { STREAMS = 24, ROUNDS = 4, ROWS = 12, PART = 4 * 4 * 60 * ROWS };
	static const hsize_t shape[] = {60, 64, 60}, chunk[] = {5, 16, 60};
	const char *path = scratch(f, "streams.h5");
	char *memory[STREAMS], host[PART];
	sluice_stream streams[STREAMS];
	sluice_op *ops[STREAMS][ROUNDS];
	void *taken = NULL;
	sluice_file *file;
	struct dataset d;

	make(&d, path, 3, shape, chunk);
	for (int i = 0; i < STREAMS; i++) {
		streams[i] = stream_new(0);
		memory[i] = device_new(0, PART);
	}
	assert_ok(sluice_pinned_alloc(gpu_device(0), STREAMS * ROUNDS * PART, &taken));
	make_room(f);
	file_set_residency(path, COLD);
	file = dataset_open(f->ctx, path, "u");
	for (int k = 0; k < ROUNDS; k++) {
		for (int i = 0; i < STREAMS; i++) {
			uint64_t start[] = {(uint64_t)i * 2 + k, 7 * (uint64_t)k, 0},
				 count[] = {4, ROWS, 60};

			ops[i][k] = start_box(file, start, count, memory[i], true, streams[i]);
			launch_take(0, streams[i], memory[i], PART,
			            (char *)taken + (size_t)(i * ROUNDS + k) * PART);
			launch_fill(0, streams[i], memory[i], PART, 0, 1);
		}
	}
	for (int i = 0; i < STREAMS; i++) {
		stream_pass(0, streams[i]);
		for (int k = 0; k < ROUNDS; k++) {
			assert_moves(ops[i][k], PART);
			memcpy(host, (char *)taken + (size_t)(i * ROUNDS + k) * PART, PART);
			for (int a = 0; a < 4; a++)
				assert_bytes(host + (size_t)a * PART / 4,
				             d.model + 240 * ((size_t)(i * 2 + k + a) * 64 +
				                              7 * (size_t)k),
				             PART / 4);
		}
		stream_free(streams[i]);
		device_free(memory[i]);
	}
	assert_ok(sluice_pinned_free(taken));
	assert_ok(sluice_close(file));
	dataset_clear(&d);
}

FIXTURE_TEST(frames_of_a_writer_come_into_a_device_as_it_goes_on)
{
	enum { FRAMES = 30, ROWS = 20, COLUMNS = 50, BYTES = 4 * ROWS * COLUMNS };
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options s = SLUICE_SERIES_OPTIONS_INIT;
	const char *path = scratch(f, "grows.h5");
	sluice_stream stream = stream_new(0);
	sluice_writer *writer;
	sluice_series *series;
	static int frame[ROWS * COLUMNS], found[ROWS * COLUMNS];
	char *memory = device_new(0, BYTES);
	sluice_file *file = NULL;

	s.type = SLUICE_INT32;
	s.rank = 2;
	s.shape[0] = ROWS;
	s.shape[1] = COLUMNS;
	s.codec = "deflate";
	s.chunk_frames = 4;
	assert_ok(sluice_writer_open(f->ctx, path, &o, &writer));
	assert_ok(sluice_series_add(writer, "u", &s, &series));
	for (uint64_t k = 0; k < FRAMES; k++) {
		uint64_t start[] = {k, 0, 0}, count[] = {1, ROWS, COLUMNS};

		for (int i = 0; i < ROWS * COLUMNS; i++)
			frame[i] = (int)k * 1000 + i / 3;
		assert_ok(sluice_series_push(series, frame, NULL, -1));
		assert_ok(sluice_writer_flush(writer, -1));
		if (!file)
			file = dataset_open(f->ctx, path, "/u");
		assert_ok(sluice_array_refresh(file));
		assert_moves(start_box(file, start, count, memory, k % 2, stream), BYTES);
		stream_pass(0, stream);
		device_get(found, memory, BYTES);
		assert_memory_equal(found, frame, BYTES);
		assert_moves(k % 2 ? start_read_on(file, memory, BYTES, k * BYTES, stream)
		                   : start_read(file, memory, BYTES, k * BYTES),
		             BYTES);
	}
	assert_ok(sluice_close(file));
	assert_ok(sluice_writer_close(writer, -1));
	device_free(memory);
	stream_free(stream);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	row_start_devices();
	H5dont_atexit();
	return RUN_TESTS(NULL, NULL);
}
