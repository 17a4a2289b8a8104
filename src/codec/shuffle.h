/* SPDX-License-Identifier: Apache-2.0 */
/* Within the room: what shuffles a part of a chunk, for one kind of processor. */
#ifndef SL_SHUFFLE_H
#define SL_SHUFFLE_H

#include "codec/codec.h"

/*
 * Elements in a row and their planes, as sl_shuffle_row() has them. They take as many elements as
 * go into whole registers and return how many; 0 for a size that they do not know.
 */
struct sl_shuffle_kernel {
	size_t (*shuffle)(const unsigned char *in, size_t elements, size_t size, unsigned char *out,
	                  size_t plane);
	size_t (*unshuffle)(const unsigned char *in, size_t plane, size_t elements, size_t size,
	                    unsigned char *out);
	/* Bit i of byte k of n comes to out[i * row + k / 8], as its bit k % 8. Returns how many bytes it took. */
	size_t (*bits)(const unsigned char *in, size_t n, unsigned char *out, size_t row);
};

/* NULL: this processor does not have it. */
const struct sl_shuffle_kernel *sl_shuffle_kernel(enum sl_simd way);

#endif
