/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that the filters of other programs have packed: an encoder for each, and reads by sluice. */
#include "arrays/dataset.h"
#include "codec/codec.h"
#include "core/core.h"

/* Shuffles the bits of blocks, as filter 32008 does, and stores or compresses each. */
static size_t bits_encode(const struct sl_codec *codec, void *state, const unsigned char *from,
                          size_t n, size_t element, size_t block, unsigned char *to)
{
	unsigned char *at = to, *planes = malloc(3 * block + 64), *packed = planes + block;

	if (codec) {
		for (int i = 0; i < 8; i++)
			*at++ = (unsigned char)((uint64_t)n >> (56 - 8 * i));
		for (int i = 0; i < 4; i++)
			*at++ = (unsigned char)(block >> (24 - 8 * i));
	}
	while (n >= 8 * element) {
		size_t here = SL_MIN(n / (8 * element) * (8 * element), block), length = here;

		sl_bit_shuffle(from, here / element, element, planes, packed);
		if (codec) {
			/* Of LZ4 the test has no encoder of blocks: literals alone. */
			unsigned char *head = at;

			at += 4;
			if (codec == &sl_codec_zstd) {
				length = codec->compress(state, packed, here, at,
				                         codec->bound(here));
			} else {
				size_t rest = here - 15, k = 0;

				at[k++] = 15 << 4;
				for (; rest >= 255; rest -= 255)
					at[k++] = 255;
				at[k++] = (unsigned char)rest;
				memcpy(at + k, packed, here);
				length = k + here;
			}
			for (int i = 0; i < 4; i++)
				head[i] = (unsigned char)(length >> (24 - 8 * i));
		} else {
			memcpy(at, packed, here);
		}
		at += length;
		from += here;
		n -= here;
	}
	memcpy(at, from, n);
	free(planes);
	return (size_t)(at + n - to);
}

/* LZF of literals and of a run that repeats the byte before it. */
static size_t lzf_encode(const unsigned char *from, size_t n, unsigned char *to)
{
	unsigned char *at = to;
	size_t i = 0;

	while (i < n) {
		size_t run = 0, literals;

		while (i && i + run < n && run < 200 && from[i + run] == from[i - 1])
			run++;
		if (run >= 3) {
			size_t code = run - 2;

			*at++ = (unsigned char)(SL_MIN(code, 7) << 5);
			if (code >= 7)
				*at++ = (unsigned char)(code - 7);
			*at++ = 0;
			i += run;
			continue;
		}
		literals = SL_MIN(n - i, 5);
		*at++ = (unsigned char)(literals - 1);
		memcpy(at, from + i, literals);
		at += literals;
		i += literals;
	}
	return (size_t)(at - to);
}

enum { LZF = 32000, BITSHUFFLE = 32008, CHUNK_ROWS = 16, ROWS = 70, COLUMNS = 50 };

/* Writes the chunks of a dataset of rows, each encoded, by HDF5 without its filters. */
static void write_encoded(const struct dataset *d, hid_t file, int filter, unsigned codec_number,
                          size_t block)
{
	hid_t space = H5Screate_simple(2, d->shape, NULL), set;
	hsize_t chunk[] = {CHUNK_ROWS, COLUMNS};
	unsigned values[] = {0, 2, (unsigned)d->element, (unsigned)(block / d->element),
	                     codec_number};
	const struct sl_codec *codec = codec_number == 3   ? &sl_codec_zstd
	                               : codec_number == 2 ? &sl_codec_lz4
	                                                   : NULL;
	size_t line = COLUMNS * d->element, n = CHUNK_ROWS * line;
	unsigned char *bytes = calloc(1, n), *packed = malloc(3 * n + 4096);
	const struct sl_codec *whole = NULL;
	void *state = NULL;

	for (size_t i = 0; filter != BITSHUFFLE && sl_codec_at(i); i++)
		if (sl_codec_at(i)->filter == filter && !whole)
			whole = sl_codec_at(i);
	if (codec == &sl_codec_zstd || whole)
		assert_ok((whole ? whole : codec)->state_new(1, d->element, n, &state));
	H5Pset_chunk(d->list, 2, chunk);
	H5Pset_filter(d->list, filter, H5Z_FLAG_OPTIONAL, filter == BITSHUFFLE ? 5 : 0, values);
	set = H5Dcreate2(file, d->name, d->type, space, H5P_DEFAULT, d->list, H5P_DEFAULT);
	assert_true(set >= 0);
	for (hsize_t at[2] = {0}; at[0] < ROWS; at[0] += CHUNK_ROWS) {
		size_t rows = SL_MIN(ROWS - at[0], CHUNK_ROWS), length;
		/* A chunk without its filter, as the mask says. */
		uint32_t mask = at[0] == 2 * CHUNK_ROWS;

		memset(bytes, 7, n);
		memcpy(bytes, d->model + at[0] * line, rows * line);
		length = mask            ? n
		         : filter == LZF ? lzf_encode(bytes, n, packed)
		         : filter == BITSHUFFLE
		                 ? bits_encode(codec, state, bytes, n, d->element, block, packed)
		                 : whole->compress(state, bytes, n, packed, 3 * n + 4096);
		assert_true(length);
		assert_true(H5Dwrite_chunk(set, H5P_DEFAULT, mask, at, length,
		                           mask ? bytes : packed) >= 0);
	}
	if (state)
		(whole ? whole : codec)->state_free(state);
	free(bytes);
	free(packed);
	H5Dclose(set);
	H5Sclose(space);
}

FIXTURE_TEST(chunks_of_other_programs_are_decoded_whatever_their_filter)
{
	static const struct {
		int filter;
		unsigned codec;
		size_t block, element;
		const char *name;
	} ways[] = {{LZF, 0, 0, 4, "lzf"},
	            {32015, 0, 0, 4, "zstd"},
	            {32004, 0, 0, 4, "lz4"},
	            {BITSHUFFLE, 0, 0, 4, "bitshuffle"},
	            {BITSHUFFLE, 0, 512, 4, "bitshuffle"},
	            {BITSHUFFLE, 2, 8192, 4, "bitshuffle-lz4"},
	            {BITSHUFFLE, 2, 1000 * 8, 8, "bitshuffle-lz4"},
	            {BITSHUFFLE, 2, 128 * 100, 100, "bitshuffle-lz4"},
	            {BITSHUFFLE, 3, 8192, 4, "bitshuffle-zstd"},
	            {BITSHUFFLE, 3, 640, 2, "bitshuffle-zstd"}};
	struct rng r = rng_new(4204);

	for (size_t i = 0; i < COUNT_OF(ways); i++) {
		const char *path = scratch(f, "filter.h5");
		hid_t file = file_create(path, false);
		struct dataset d = {.name = "u", .rank = 2, .shape = {ROWS, COLUMNS}};
		struct sluice_array_info info = {sizeof(info)};
		sluice_file *opened;
		size_t block = ways[i].block ? ways[i].block : 8192;

		d.type = H5Tcreate(H5T_OPAQUE, ways[i].element);
		d.list = H5Pcreate(H5P_DATASET_CREATE);
		dataset_fill(&d, &r);
		write_encoded(&d, file, ways[i].filter, ways[i].codec,
		              block / (8 * d.element) * (8 * d.element));
		H5Fclose(file);
		opened = dataset_open(f->ctx, path, "u");
		assert_ok(sluice_array_stat(opened, &info));
		assert_string_equal(info.filters, ways[i].name);
		dataset_check_bytes(&d, opened, &r);
		for (int k = 0; k < 5; k++)
			dataset_check_box(&d, opened, &r);
		assert_ok(sluice_close(opened));
		dataset_clear(&d);
	}
}

FIXTURE_TEST(a_filter_that_is_not_known_is_refused_by_name)
{
	const char *path = scratch(f, "unknown.h5");
	hid_t file = file_create(path, false), space, two;
	struct dataset d = {.name = "u", .rank = 1, .shape = {100}};
	hsize_t chunk = 10;

	d.type = H5Tcopy(H5T_NATIVE_INT);
	d.list = H5Pcreate(H5P_DATASET_CREATE);
	H5Pset_chunk(d.list, 1, &chunk);
	two = H5Pcopy(d.list);
	H5Pset_filter(d.list, 32013, H5Z_FLAG_OPTIONAL, 0, NULL);
	H5Pset_deflate(two, 1);
	H5Pset_filter(two, 32015, H5Z_FLAG_OPTIONAL, 0, NULL);
	space = H5Screate_simple(1, d.shape, NULL);
	H5Dclose(H5Dcreate2(file, "u", d.type, space, H5P_DEFAULT, d.list, H5P_DEFAULT));
	H5Dclose(H5Dcreate2(file, "two", d.type, space, H5P_DEFAULT, two, H5P_DEFAULT));
	H5Pclose(two);
	H5Sclose(space);
	H5Fclose(file);
	assert_refused(dataset_try(f->ctx, path, "u"), ENOTSUP, "32013");
	assert_refused(dataset_try(f->ctx, path, "two"), ENOTSUP, "deflate and zstd both compress");
	dataset_clear(&d);
}
