/* SPDX-License-Identifier: Apache-2.0 */
/* Byte and bit shuffle with AVX2. Threads: any; no state. */
#define KERNEL             sl_shuffle_avx2
#define TARGET             __attribute__((target("avx2")))
#define MM(name)           _mm256_##name
#define REGISTER           __m256i
#define LOAD(from)         _mm256_loadu_si256((const __m256i *)(from))
#define STORE(to, v)       _mm256_storeu_si256((__m256i *)(to), v)
#define JOIN(from, next)   _mm256_loadu2_m128i((const __m128i *)(next), (const __m128i *)(from))
#define SPLIT(to, next, v) _mm256_storeu2_m128i((__m128i *)(next), (__m128i *)(to), v)
#define MASK               uint32_t
#include "codec/shuffle_loops.h"
