/* SPDX-License-Identifier: Apache-2.0 */
/* That codecs take no memory for a chunk: this program counts what all libraries in it ask for. */
#include <errno.h>

#include "codec/codec_common.h"

#define MIB ((size_t)1 << 20)

static _Atomic unsigned long taken;

/* glibc's own, by the names that it has for who stands in their place. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t n);
extern void *__libc_memalign(size_t alignment, size_t n);

/* Seen by the libraries, which all else here is not. */
#pragma GCC visibility push(default)
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *old, size_t n);
void *aligned_alloc(size_t alignment, size_t n);
int posix_memalign(void **out, size_t alignment, size_t n);
#pragma GCC visibility pop

void *malloc(size_t n)
{
	taken++;
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	taken++;
	return __libc_calloc(n, size);
}

void *realloc(void *old, size_t n)
{
	taken++;
	return __libc_realloc(old, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
	taken++;
	return __libc_memalign(alignment, n);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
	taken++;
	*out = __libc_memalign(alignment, n);
	return *out ? 0 : ENOMEM;
}

TEST(memory_of_libraries_is_counted)
{
	unsigned long before = taken;

	free(strdup(field_names[FIELD_NOISE]));
	assert_int_equal(taken - before, 1);
}

/* As the writer has it: a sample, then the chunk; for long noise, which ends with the sample. zstd
 * is not asked for samples: after these it gives memory back. */
TEST(no_memory_is_taken_for_a_chunk)
{
	unsigned char *fields = malloc(FIELDS * MIB), *packed = malloc(2 * MIB);
	uint64_t seed = unit_seed();

	for (enum field f = 0; f < FIELDS; f++)
		field_fill(f, &seed, fields + f * MIB, MIB);
	for (size_t i = 0; sl_codec_at(i); i++) {
		const struct sl_codec *codec = sl_codec_at(i);

		if (codec->missing)
			continue;
		for (int level = codec->least; level <= SL_MIN(codec->most, 9); level++) {
			int rounds = level == 1 ? 400 : level < 5 ? 60 : 14;
			void *memory = NULL;
			unsigned long before;

			assert_int_equal(codec->state_new(level, 1, MIB, &memory), 0);
			before = taken;
			for (int round = 0; round < rounds; round++) {
				enum field f = round < rounds / 2 ? FIELD_NOISE : round % FIELDS;
				const unsigned char *in = fields + f * MIB;
				size_t n;

				if (codec != &sl_codec_zstd &&
				    !sl_codec_pays(codec, memory, in, MIB, packed, 2 * MIB))
					continue;
				n = codec->compress(memory, in, MIB, packed, MIB - 1);
				if (n && !round)
					assert_int_equal(codec->decompress(memory, packed, n,
					                                   packed + MIB, MIB),
					                 0);
			}
			if (taken != before)
				fail_msg("%s at level %d took memory %lu times", codec->encoder,
				         level, taken - before);
			codec->state_free(memory);
		}
	}
	free(packed);
	free(fields);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
