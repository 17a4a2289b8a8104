/* SPDX-License-Identifier: Apache-2.0 */
/* How operations are cut into slots: thousands of small extents, large ones at any offset. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/device_suite.h"

enum { EXTENTS = 5000, SPAN = 700 };

/* Small extents, in no order, that lie apart in the file and in memory. */
static size_t scatter(struct rng *r, struct sluice_extent *v, char *memory)
{
	size_t total = 0, i, j;

	for (i = 0; i < EXTENTS; i++) {
		size_t n = rng_below(r, 20) ? 1 + rng_below(r, SPAN - 10) : 0;

		v[i] = (struct sluice_extent){memory + i * SPAN + rng_below(r, 10), n, i * SPAN};
		total += n;
	}
	for (i = EXTENTS - 1; i > 0; i--) {
		struct sluice_extent t = v[i];

		j = rng_below(r, i + 1);
		v[i] = v[j];
		v[j] = t;
	}
	return total;
}

static void check_scattered(const struct sluice_extent *v, char *memory, uint64_t seed)
{
	unsigned char *held = malloc((size_t)EXTENTS * SPAN), *marks = calloc(EXTENTS, SPAN);

	device_get(held, memory, (size_t)EXTENTS * SPAN);
	for (size_t i = 0; i < EXTENTS; i++) {
		size_t at = (size_t)((char *)v[i].data - memory);

		assert_pattern(held + at, v[i].length, v[i].offset, seed);
		memset(marks + at, 1, v[i].length);
	}
	/* Between them nothing was written. */
	for (size_t i = 0; i < (size_t)EXTENTS * SPAN; i++)
		if (!marks[i] && held[i] != 0x3c)
			fail_msg("byte %zu was written", i);
	free(held);
	free(marks);
}

FIXTURE_TEST(thousands_of_small_extents_are_read)
{
	const char *path = scratch(f, "small");
	struct sluice_extent *v = calloc(EXTENTS, sizeof(*v));
	sluice_stream stream = stream_new(0);
	struct rng r = rng_new(960);
	sluice_file *file;
	int round;

	file_make(path, (size_t)EXTENTS * SPAN, 1);
	file = open_read(f->ctx, address(f, "small"));
	for (round = 0; round < (row->remote ? 2 : 6); round++) {
		char *memory = device_new(0, (size_t)EXTENTS * SPAN);
		size_t total = scatter(&r, v, memory);
		sluice_op *op = NULL;

		file_set_residency(path, (enum residency)(round / 2));
		if (round % 2)
			assert_ok(submit_read_on(file, v, EXTENTS, stream, &op));
		else
			assert_ok(submit_read(file, v, EXTENTS, &op));
		assert_moves(op, total);
		check_scattered(v, memory, 1);
		device_free(memory);
	}
	assert_ok(sluice_close(file));
	stream_free(stream);
	free(v);
}

LOCAL_TEST(thousands_of_small_extents_are_written, "a remote file cannot be written in place")
{
	const char *path = scratch(f, "small");
	size_t length = (size_t)EXTENTS * SPAN, i;
	struct sluice_extent *v = calloc(EXTENTS, sizeof(*v));
	unsigned char *expected = malloc(length), *image = malloc(length);
	char *memory = device_new(0, length);
	sluice_stream stream = stream_new(0);
	struct rng r = rng_new(970);
	int round;

	for (round = 0; round < 4; round++) {
		uint64_t seed = 30 + (uint64_t)round;
		size_t total = scatter(&r, v, memory);
		sluice_op *op = NULL;
		sluice_file *file;

		file_make(path, length, 1);
		pattern_fill(expected, length, 0, 1);
		for (i = 0; i < EXTENTS; i++) {
			pattern_fill(image + ((char *)v[i].data - memory), v[i].length, v[i].offset,
			             seed);
			pattern_fill(expected + v[i].offset, v[i].length, v[i].offset, seed);
		}
		assert_ok(sluice_copy(memory, image, length));
		file = open_both(f->ctx, path);
		if (round % 2)
			assert_ok(submit_write_on(file, v, EXTENTS, stream, &op));
		else
			assert_ok(submit_write(file, v, EXTENTS, &op));
		memset(v, 0xff, EXTENTS * sizeof(*v)); /* the array was copied */
		assert_moves(op, total);
		assert_ok(sluice_close(file));
		assert_file_is(path, expected, length);
	}
	device_free(memory);
	stream_free(stream);
	free(expected);
	free(image);
	free(v);
}

/* Small and large, aligned and not, neighbours and far apart in a sparse file. */
static size_t choose_mixed(struct rng *r, struct sluice_extent *v, size_t count, char *memory,
                           size_t room)
{
	size_t total = 0, at = 0, i;
	uint64_t offset = rng_below(r, 5000);

	for (i = 0; i < count; i++) {
		size_t n = rng_length(r, 64 * KIB, rng_below(r, 3) ? 20000 : row_bytes(MIB));

		if (at + n > room)
			n = room - at;
		if (rng_below(r, 3) == 0)
			offset = (offset + 4095) & ~4095ull;
		v[i] = (struct sluice_extent){memory + at, n, offset};
		at += n;
		total += n;
		offset += n + (rng_below(r, 2) ? 0 : rng_below(r, 300000));
	}
	return total;
}

LOCAL_TEST(extents_of_any_length_and_place_are_written_and_read_back,
           "a remote file cannot be written in place")
{
	enum { COUNT = 40 };
	const char *path = scratch(f, "mixed");
	size_t room = row_bytes(12 * MIB), i;
	char *src = device_new(1, room), *dst = device_new(1, room);
	unsigned char *image = malloc(room);
	sluice_stream stream = stream_new(1);
	struct rng r = rng_new(980);
	int round;

	for (round = 0; round < 12; round++) {
		struct sluice_extent v[COUNT];
		size_t total = choose_mixed(&r, v, COUNT, src, room);
		uint64_t seed = 40 + (uint64_t)round;
		sluice_op *op = NULL;
		sluice_file *file;

		for (i = 0; i < COUNT; i++)
			pattern_fill(image + ((char *)v[i].data - src), v[i].length, v[i].offset,
			             seed);
		assert_ok(sluice_copy(src, image, room));
		file = open_both(f->ctx, path);
		if (round & 1)
			assert_ok(submit_write_on(file, v, COUNT, stream, &op));
		else
			assert_ok(submit_write(file, v, COUNT, &op));
		assert_moves(op, total);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		for (i = 0; i < COUNT; i++)
			v[i].data = dst + ((char *)v[i].data - src);
		if (round & 2)
			assert_ok(submit_read_on(file, v, COUNT, stream, &op));
		else
			assert_ok(submit_read(file, v, COUNT, &op));
		assert_moves(op, total);
		device_get(image, dst, room);
		for (i = 0; i < COUNT; i++)
			assert_pattern(image + ((char *)v[i].data - dst), v[i].length, v[i].offset,
			               seed);
		assert_ok(sluice_close(file));
		unlink(path);
	}
	free(image);
	device_free(src);
	device_free(dst);
	stream_free(stream);
}

FIXTURE_TEST(a_large_extent_at_any_offset_crosses_its_slots)
{
	static const uint64_t skews[] = {0, 1, 511, 512, 4095, 4096, 4097, 65535, 65537, 1048575};
	const char *path = scratch(f, "large");
	size_t n = row_bytes(20 * MIB), i;
	char *memory = device_new(0, n + 64);
	sluice_stream stream = stream_new(0);
	sluice_file *file;

	file_make(path, n + 2 * MIB, 1);
	file = open_read(f->ctx, address(f, "large"));
	for (i = 0; i < COUNT_OF(skews); i++) {
		size_t part = n - rng_below(&(struct rng){i}, 10000);
		char *at = memory + i * 7 % 64;

		file_set_residency(path, i % 2 ? HALF_CACHED : COLD);
		assert_moves(start_read_on(file, at, part, skews[i], stream), part);
		assert_device(at, part, skews[i], 1);
		device_fill(memory, n + 64, 0, 9);
		assert_moves(start_read(file, at, part, skews[i]), part);
		assert_device(at, part, skews[i], 1);
	}
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}

static size_t cached_pages(const char *path)
{
	size_t length = file_length(path), pages = (length + 4095) / 4096, n = 0, i;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char *in = malloc(pages);
	void *map = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);

	assert_true(map != MAP_FAILED);
	assert_int_equal(mincore(map, length, in), 0);
	for (i = 0; i < pages; i++)
		n += in[i] & 1;
	munmap(map, length);
	close(fd);
	free(in);
	return n;
}

/* Slots are aligned as direct I/O wants it, whatever the device's memory is. */
LOCAL_TEST(large_cold_read_bypasses_the_page_cache, "it is about the page cache")
{
	const char *path = scratch(f, "cold");
	size_t n = 16 * MIB;
	char *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	struct sluice_file_info st = {.size = sizeof(st)};
	sluice_file *file;
	int round;

	file_make(path, n, 1);
	file_set_residency(path, COLD);
	file = open_read(f->ctx, path);
	assert_ok(sluice_stat(file, &st));
	if (!scratch_takes_direct(f) || !st.direct_offset || cached_pages(path) > 100) {
		assert_ok(sluice_close(file));
		device_free(memory);
		stream_free(stream);
		SKIP("this file system does not do direct I/O, or keeps its pages");
	}
	/* Odd edges go through the cache, and nothing else; but the kernel reads ahead of an edge, and what
	 * is resident is taken from the cache, which can go on and on if pieces are small. */
	for (round = 0; round < (config_tuned(&row->config, "piece_bytes") ? 2 : 4); round++) {
		size_t from = round < 2 ? 0 : 777, part = round < 2 ? n : n - 2000;
		size_t cached;

		file_set_residency(path, COLD);
		if (round % 2)
			assert_moves(start_read_on(file, memory + 1, part - 1, from, stream),
			             part - 1);
		else
			assert_moves(start_read(file, memory + 1, part - 1, from), part - 1);
		cached = cached_pages(path);
		assert_device(memory + 1, part - 1, from, 1);
		if (cached > n / 4096 / 8)
			fail_msg("round %d: %zu of %zu pages are in the page cache", round, cached,
			         n / 4096);
	}
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}

ROW_TEST(a_long_read_from_storage_goes_through_short_slots, .remote = "it is about the page cache",
         .gpu = "a real device does not count copies")
{
	struct sluice_config c = row_config();
	const char *path = scratch(f, "long");
	size_t n = 64 * MIB;
	char *memory;
	sluice_stream stream;
	sluice_file *file;
	uint64_t copies;

	if (config_tuned(&c, "slots") || config_tuned(&c, "slot_bytes") ||
	    config_tuned(&c, "piece_bytes"))
		SKIP("the row has slots of its own");
	file_make(path, n, 1);
	file_set_residency(path, COLD);
	if (cached_pages(path) > 100)
		SKIP("this file system keeps its pages");
	memory = device_new(0, n);
	stream = stream_new(0);
	for (unsigned round = 0; round < 4; round++) {
		/* A context that has found the disk quick has long slots for it. */
		fixture_config(f, &c);
		file = open_read(f->ctx, path);
		file_set_residency(path, round < 2 ? COLD : CACHED);
		sluice_emulated_reset_calls();
		assert_moves(round % 2 ? start_read_on(file, memory, n, 0, stream)
		                       : start_read(file, memory, n, 0),
		             n);
		copies = sluice_emulated_calls(SLUICE_EMULATED_COPY, NULL);
		assert_in_range(copies, round < 2 ? n / MIB : 1,
		                round < 2 ? n / MIB + 1 : n / MIB / 4);
		assert_device(memory, n, 0, 1);
		assert_ok(sluice_close(file));
	}
	device_free(memory);
	stream_free(stream);
}
