/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of zlib's format, in each way that this processor has, beside its definition. */
#include "codec/codec_common.h"

#include "codec/simd.h"

static uint32_t define(const unsigned char *in, size_t n)
{
	uint64_t a = 1, b = 0;

	for (size_t i = 0; i < n; i++) {
		a = (a + in[i]) % SL_ADLER_BASE;
		b = (b + a) % SL_ADLER_BASE;
	}
	return (uint32_t)(b << 16 | a);
}

static void check(const unsigned char *in, size_t n)
{
	for (enum sl_simd way = 0; way < SL_SIMD_WAYS; way++) {
		sl_simd_limit(way);
		assert_int_equal(sl_adler32(in, n), define(in, n));
	}
}

TEST(the_known_checksum_of_a_word_comes_out)
{
	assert_int_equal(sl_adler32("Wikipedia", 9), 0x11E60398);
	assert_int_equal(sl_adler32("", 0), 1);
}

TEST(every_length_and_place_has_the_checksum_of_the_definition)
{
	uint64_t seed = unit_seed();

	for (size_t n = 0; n < 300; n++) {
		struct fenced in = fenced_new(n);

		field_fill(FIELD_NOISE, &seed, in.data, n);
		for (size_t from = 0; from <= n && from < 40; from++)
			check(in.data + from, n - from);
		fenced_free(&in);
	}
}

/* What makes the sums as large as they can be. */
TEST(no_sum_runs_over)
{
	size_t n = (3 << 20) + 17;
	unsigned char *in = malloc(n);

	memset(in, 0xff, n);
	check(in, n);
	for (size_t length = 5500; length < 5600; length++)
		check(in, length);
	for (size_t length = 32740; length < 32800; length++)
		check(in, length);
	free(in);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
