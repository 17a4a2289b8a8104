/* SPDX-License-Identifier: Apache-2.0 */
/* Within the room: the checksum of zlib's format (RFC 1950), at the speed of the memory. */
#ifndef SL_ADLER32_H
#define SL_ADLER32_H

#include "codec/codec.h"

#define SL_ADLER_BASE 65521 /* the largest prime below 65536 */

/* The sum of the bytes and the sum of its states, modulo SL_ADLER_BASE. */
struct sl_adler {
	uint32_t a, b;
};

uint32_t sl_adler32(const void *in, size_t n);

/* Goes on with as many bytes as go into whole registers, and returns how many. */
typedef size_t sl_adler_adder(struct sl_adler *sum, const unsigned char *in, size_t n);
/* NULL: this processor has nothing better than what all have. */
sl_adler_adder *sl_adler_kernel(void);

#endif
