/* SPDX-License-Identifier: Apache-2.0 */
/* Shuffle functions of a kind of processor; private to the room. */
#ifndef SL_SHUFFLE_H
#define SL_SHUFFLE_H

#include "codec/codec.h"

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

/* Returns NULL if this processor lacks the instructions. */
#ifdef __x86_64__
const struct sl_shuffle_kernel *sl_shuffle_kernel_of(enum sl_simd level);
#else
#define sl_shuffle_kernel_of(level) NULL
#endif

#endif
