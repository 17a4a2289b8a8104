/* SPDX-License-Identifier: Apache-2.0 */
/* Byte and bit shuffle with SSE2, and the choice of the kernel. Threads: any; no state. */
#define KERNEL sl_shuffle_sse2
#define TARGET
#define MM(name)           _mm_##name
#define REGISTER           __m128i
#define LOAD(from)         _mm_loadu_si128((const __m128i *)(from))
#define STORE(to, v)       _mm_storeu_si128((__m128i *)(to), v)
#define JOIN(from, next)   LOAD(from)
#define SPLIT(to, next, v) STORE(to, v)
#define MASK               uint16_t
#include "codec/shuffle_loops.h"

const struct sl_shuffle_kernel *sl_shuffle_kernel_of(enum sl_simd way)
{
	if (way == SL_SIMD_AVX2)
		return __builtin_cpu_supports("avx2") ? &sl_shuffle_avx2 : NULL;
	return way == SL_SIMD_SSE2 ? &sl_shuffle_sse2 : NULL;
}
