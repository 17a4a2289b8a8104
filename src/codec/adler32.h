/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of zlib's format (RFC 1950) at the speed of memory; private to the room. */
#ifndef SL_ADLER32_H
#define SL_ADLER32_H

#include "codec/codec.h"

#define SL_ADLER_BASE 65521 /* the largest prime below 65536 */

/* The sum of the bytes and the sum of its states, modulo SL_ADLER_BASE. */
struct sl_adler {
	uint32_t a, b;
};

uint32_t sl_adler32(const void *in, size_t n);

/* Adds as many bytes as fill whole registers, and returns how many. */
typedef size_t sl_adler_adder(struct sl_adler *sum, const unsigned char *in, size_t n);
/* Returns the fastest adder of this processor, or NULL if there is only the portable one. */
#ifdef __x86_64__
sl_adler_adder *sl_adler_kernel(void);
#else
#define sl_adler_kernel() NULL
#endif

#endif
