/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops that kinds of processors have of their own: checksum, rounding, shuffle; private to the
 * room. Each function that returns such loops returns NULL if there are only the portable ones.
 */
#ifndef SL_SIMD_H
#define SL_SIMD_H

#include "codec/codec.h"

/* ----------------------------------------------------------------------------------- checksum */

#define SL_ADLER_BASE 65521 /* the largest prime below 65536 */

/* The sum of the bytes and the sum of its states, modulo SL_ADLER_BASE. */
struct sl_adler {
	uint32_t a, b;
};
/* Returns the checksum of zlib's format (RFC 1950), at the speed of memory. */
uint32_t sl_adler32(const void *in, size_t n);
/* Adds as many bytes as fill whole registers, and returns how many. */
typedef size_t sl_adler_adder(struct sl_adler *sum, const unsigned char *in, size_t n);

/* ----------------------------------------------------------------------------------- rounding */

/* A rounding: the dropped bits, half of the lowest kept place, and a mask of the kept bits. */
struct sl_rounding {
	uint64_t half, mask;
	unsigned drop;
};
/* Rounds numbers and returns the largest error. in may equal out. */
typedef double sl_rounder(const void *in, size_t count, const struct sl_rounding *rounding,
                          void *out);

/* The store() of both encoders of deflate: blocks of 65535 bytes, each 5 bytes longer. */
size_t sl_deflate_store(void *state, const void *in, size_t n, void *out);

/* ------------------------------------------------------------------------------------ shuffle */

/*
 * Functions on rows and planes as in sl_shuffle_row(). They process as many elements as fill whole
 * registers and return how many: 0 for an unsupported size.
 */
struct sl_shuffle_kernel {
	size_t (*shuffle)(const unsigned char *in, size_t elements, size_t size, unsigned char *out,
	                  size_t plane);
	size_t (*unshuffle)(const unsigned char *in, size_t plane, size_t elements, size_t size,
	                    unsigned char *out);
	/*
	 * Moves bit i of byte k to bit k % 8 of out[i * row + k / 8]. Returns the number of bytes
	 * processed.
	 */
	size_t (*bits)(const unsigned char *in, size_t n, unsigned char *out, size_t row);
};

/* --------------------------------------------------------------------------------- processors */

#ifdef __x86_64__
sl_adler_adder *sl_adler_kernel(void);
sl_rounder *const *sl_precision_rounders(void); /* by enum sl_float */
const struct sl_shuffle_kernel *sl_shuffle_kernel_of(enum sl_simd level);
extern const struct sl_shuffle_kernel sl_shuffle_sse2, sl_shuffle_avx2;
#else
#define sl_adler_kernel()           NULL
#define sl_precision_rounders()     NULL
#define sl_shuffle_kernel_of(level) NULL
#endif

#endif
