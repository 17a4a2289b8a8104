/* SPDX-License-Identifier: Apache-2.0 */
/* Byte shuffle, in each way that this processor has, by the definition of it. */
#include "codec/codec_common.h"

static const char *const way_names[] = {"plain", "sse2", "avx2"};

/* For each way that is here. */
#define each_way(way) for (enum sl_simd way = 0; way < SL_SIMD_WAYS && way_here(way); way++)

static bool way_here(enum sl_simd way)
{
	return sl_simd_limit(way) == way;
}

static void define(const unsigned char *in, size_t n, size_t size, unsigned char *out)
{
	size_t elements = n / size;

	for (size_t i = 0; i < n; i++)
		out[i < elements * size ? i % size * elements + i / size : i] = in[i];
}

static void check(size_t n, size_t size, uint64_t *seed)
{
	struct fenced in = fenced_new(n), out = fenced_new(n), back = fenced_new(n);
	unsigned char *expected = malloc(n + 1);

	field_fill(FIELD_NOISE, seed, in.data, n);
	define(in.data, n, size, expected);
	memset(out.data, 0x5a, n);
	memset(back.data, 0x5a, n);
	sl_shuffle(in.data, n, size, out.data);
	assert_memory_equal(out.data, expected, n);
	sl_unshuffle(out.data, n, size, back.data);
	assert_memory_equal(back.data, in.data, n);
	free(expected);
	fenced_free(&back);
	fenced_free(&out);
	fenced_free(&in);
}

TEST(every_length_and_size_is_shuffled_and_comes_back)
{
	static const size_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16};
	uint64_t seed = unit_seed();

	each_way(way)
	{
		print_message("%s\n", way_names[way]);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (size_t n = 0; n < 70 * sizes[i]; n += 1 + n % 3)
				check(n, sizes[i], &seed);
	}
	sl_simd_limit(SL_SIMD_WAYS - 1);
}

TEST(long_chunks_are_shuffled)
{
	uint64_t seed = unit_seed();

	each_way(way) for (size_t size = 1; size <= 8; size *= 2) for (int round = 0; round < 4;
	                                                               round++)
		check(unit_random(&seed) % (1 << 20), size, &seed);
	sl_simd_limit(SL_SIMD_WAYS - 1);
}

/* Rows of a frame that is wider than the chunk, one after the other into their places. */
TEST(rows_go_into_the_places_that_they_have_in_the_chunk)
{
	enum { ROWS = 7 };
	uint64_t seed = unit_seed();

	each_way(way) for (size_t size = 1; size <= 8; size++) for (size_t width = 1; width < 150;
	                                                            width += 1 + width / 20)
	{
		size_t n = ROWS * width * size, pitch = (width + 5) * size;
		struct fenced out = fenced_new(n);
		unsigned char *frame = malloc(ROWS * pitch), *back = malloc(n);
		unsigned char *chunk = malloc(n), *expected = malloc(n);

		field_fill(FIELD_NOISE, &seed, frame, ROWS * pitch);
		for (size_t row = 0; row < ROWS; row++) {
			memcpy(chunk + row * width * size, frame + row * pitch, width * size);
			sl_shuffle_row(frame + row * pitch, width, size, out.data + row * width,
			               ROWS * width);
		}
		define(chunk, n, size, expected);
		assert_memory_equal(out.data, expected, n);
		for (size_t row = 0; row < ROWS; row++)
			sl_unshuffle_row(out.data + row * width, ROWS * width, width, size,
			                 back + row * width * size);
		assert_memory_equal(back, chunk, n);
		free(expected);
		free(chunk);
		free(back);
		free(frame);
		fenced_free(&out);
	}
	sl_simd_limit(SL_SIMD_WAYS - 1);
}

TEST(an_x86_has_sse2_and_what_it_says_of_avx2)
{
#ifdef __x86_64__
	assert_int_equal(sl_simd_limit(SL_SIMD_SSE2), SL_SIMD_SSE2);
	assert_int_equal(sl_simd_limit(SL_SIMD_AVX2),
	                 __builtin_cpu_supports("avx2") ? SL_SIMD_AVX2 : SL_SIMD_SSE2);
#else
	assert_int_equal(sl_simd_limit(SL_SIMD_AVX2), SL_SIMD_NONE);
#endif
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
