/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks, by HDF5 itself: what it reads of ours, and what it writes where we would write the same. */
#include <hdf5.h>

#include "codec/codec_common.h"

enum { ELEMENTS = 7919, CHUNKS = 2 };

struct file {
	hid_t file, type, space, properties, set;
	size_t size; /* of an element */
};

/* An element of any size without a number in it: bytes that HDF5 leaves as they are. */
static void file_new(struct file *f, size_t size)
{
	hid_t access = H5Pcreate(H5P_FILE_ACCESS);
	hsize_t chunk = ELEMENTS, all = CHUNKS * ELEMENTS;

	/* In memory; nothing of it is written. */
	assert_true(H5Pset_fapl_core(access, 1 << 20, 0) >= 0);
	f->size = size;
	f->file = H5Fcreate("codec_hdf5_test.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
	assert_true(f->file >= 0);
	H5Pclose(access);
	f->type = H5Tcreate(H5T_OPAQUE, size);
	f->space = H5Screate_simple(1, &all, NULL);
	f->properties = H5Pcreate(H5P_DATASET_CREATE);
	assert_true(H5Pset_chunk(f->properties, 1, &chunk) >= 0);
}

static void file_set(struct file *f)
{
	f->set = H5Dcreate2(f->file, "set", f->type, f->space, H5P_DEFAULT, f->properties,
	                    H5P_DEFAULT);
	assert_true(f->set >= 0);
}

static void file_free(struct file *f)
{
	H5Dclose(f->set);
	H5Pclose(f->properties);
	H5Sclose(f->space);
	H5Tclose(f->type);
	H5Fclose(f->file);
}

static const size_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The raw bytes of the second chunk. */
static size_t raw_chunk(struct file *f, unsigned char *out, size_t room)
{
	hsize_t offset = ELEMENTS, stored;
	uint32_t mask = 1;

	assert_true(H5Dget_chunk_storage_size(f->set, &offset, &stored) >= 0);
	assert_in_range(stored, 1, room);
	assert_true(H5Dread_chunk(f->set, H5P_DEFAULT, &offset, &mask, out) >= 0);
	assert_int_equal(mask, 0);
	return stored;
}

TEST(the_shuffle_is_that_of_hdf5)
{
	uint64_t seed = unit_seed();

	for (size_t i = 0; i < SIZES; i++) {
		size_t n = ELEMENTS * sizes[i];
		unsigned char *field = malloc(CHUNKS * n), *theirs = malloc(2 * n),
			      *ours = malloc(n);
		struct file f;

		file_new(&f, sizes[i]);
		assert_true(H5Pset_shuffle(f.properties) >= 0);
		file_set(&f);
		field_fill(FIELD_NOISE, &seed, field, CHUNKS * n);
		assert_true(H5Dwrite(f.set, f.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, field) >= 0);
		assert_int_equal(raw_chunk(&f, theirs, 2 * n), n);
		sl_shuffle(field + n, n, sizes[i], ours);
		assert_memory_equal(theirs, ours, n);
		file_free(&f);
		free(ours);
		free(theirs);
		free(field);
	}
}

/* With a checksum of four bytes behind the chunk its length is no multiple of the element's. */
TEST(shuffle_leaves_the_rest_where_hdf5_does)
{
	uint64_t seed = unit_seed();
	size_t left = 0;

	for (size_t i = 0; i < SIZES; i++) {
		size_t n = ELEMENTS * sizes[i];
		unsigned char *field = malloc(CHUNKS * n), *theirs = malloc(2 * n + 4);
		unsigned char *back = malloc(n + 4), *ours = malloc(n + 4);
		struct file f;

		file_new(&f, sizes[i]);
		assert_true(H5Pset_fletcher32(f.properties) >= 0);
		assert_true(H5Pset_shuffle(f.properties) >= 0);
		file_set(&f);
		field_fill(FIELD_NOISE, &seed, field, CHUNKS * n);
		assert_true(H5Dwrite(f.set, f.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, field) >= 0);
		assert_int_equal(raw_chunk(&f, theirs, 2 * n + 4), n + 4);
		sl_unshuffle(theirs, n + 4, sizes[i], back);
		assert_memory_equal(back, field + n, n);
		sl_shuffle(back, n + 4, sizes[i], ours);
		assert_memory_equal(ours, theirs, n + 4);
		left += (n + 4) % sizes[i];
		file_free(&f);
		free(ours);
		free(back);
		free(theirs);
		free(field);
	}
	assert_in_range(left, 1, SIZE_MAX);
}

TEST(the_checksum_is_that_of_hdf5)
{
	uint64_t seed = unit_seed();
	bool odd = false;

	for (size_t i = 0; i < SIZES; i++) {
		size_t n = ELEMENTS * sizes[i];
		unsigned char *field = malloc(CHUNKS * n), *theirs = malloc(n + 4);
		unsigned char *ours = malloc(n + 4), swapped[4];
		struct file f;

		file_new(&f, sizes[i]);
		assert_true(H5Pset_fletcher32(f.properties) >= 0);
		file_set(&f);
		/* The largest words are those that a sum could overflow with. */
		field_fill(FIELD_NOISE, &seed, field, CHUNKS * n);
		if (i % 2)
			memset(field, 0xff, CHUNKS * n);
		assert_true(H5Dwrite(f.set, f.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, field) >= 0);
		assert_int_equal(raw_chunk(&f, theirs, n + 4), n + 4);
		memcpy(ours, theirs, n);
		sl_fletcher32_put(ours, n);
		assert_memory_equal(ours, theirs, n + 4);
		assert_true(sl_fletcher32_holds(theirs, n));
		/* As HDF5 before 1.6.3 had it on little-endian machines. */
		for (size_t k = 0; k < sizeof(swapped); k++)
			swapped[k] = ours[n + (k ^ 1)];
		memcpy(ours + n, swapped, sizeof(swapped));
		assert_true(sl_fletcher32_holds(ours, n));
		for (size_t k = 0; k < n + 4; k += n / 7) {
			theirs[k] ^= 16;
			assert_false(sl_fletcher32_holds(theirs, n));
			theirs[k] ^= 16;
		}
		odd |= n % 2;
		file_free(&f);
		free(ours);
		free(theirs);
		free(field);
	}
	assert_true(odd);
}

static void check_deflate(const struct sl_codec *codec, int level, size_t size, enum field field,
                          uint64_t *seed)
{
	size_t n = ELEMENTS * size, room = codec->bound(n);
	unsigned char *in = malloc(CHUNKS * n), *shuffled = malloc(n), *packed = malloc(room);
	unsigned char *back = malloc(CHUNKS * n);
	unsigned values[SL_CODEC_VALUES];
	struct file f;
	void *state;

	assert_int_equal(codec->state_new(level, 1, n, &state), 0);
	assert_int_equal(codec->client_data(level, 1, values), 1);
	file_new(&f, size);
	assert_true(H5Pset_shuffle(f.properties) >= 0);
	assert_true(H5Pset_filter(f.properties, codec->filter, H5Z_FLAG_OPTIONAL, 1, values) >= 0);
	file_set(&f);
	field_fill(field, seed, in, CHUNKS * n);
	for (hsize_t i = 0; i < CHUNKS; i++) {
		hsize_t offset = i * ELEMENTS;
		size_t length;

		sl_shuffle(in + i * n, n, size, shuffled);
		length = codec->compress(state, shuffled, n, packed, n - 1);
		if (field == FIELD_NOISE || field == FIELD_ZEROS)
			assert_int_equal(!length, field == FIELD_NOISE);
		if (!length)
			length = codec->store(state, shuffled, n, packed);
		assert_true(H5Dwrite_chunk(f.set, H5P_DEFAULT, 0, &offset, length, packed) >= 0);
	}
	memset(back, 0x5a, CHUNKS * n);
	assert_true(H5Dread(f.set, f.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) >= 0);
	assert_memory_equal(back, in, CHUNKS * n);

	file_free(&f);
	codec->state_free(state);
	free(back);
	free(packed);
	free(shuffled);
	free(in);
}

TEST(hdf5_reads_what_deflate_writes)
{
	uint64_t seed = unit_seed();
	size_t encoders = 0;

	for (size_t c = 0; sl_codec_at(c); c++) {
		const struct sl_codec *codec = sl_codec_at(c);

		if (codec->missing || codec->filter != H5Z_FILTER_DEFLATE)
			continue;
		encoders++;
		for (int level = codec->least; level <= codec->most; level++)
			for (size_t i = 0; i < SIZES; i++)
				for (enum field f = 0; f < FIELDS; f++)
					check_deflate(codec, level, sizes[i], f, &seed);
	}
	if (!encoders) {
		print_message("skipped: no encoder of deflate is built in\n");
		skip();
	}
}

TEST(numbers_of_filters_are_those_of_hdf5)
{
	assert_int_equal(SL_SHUFFLE_FILTER, H5Z_FILTER_SHUFFLE);
	assert_int_equal(sl_codec_libdeflate.filter, H5Z_FILTER_DEFLATE);
	assert_int_equal(sl_codec_isal.filter, H5Z_FILTER_DEFLATE);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
