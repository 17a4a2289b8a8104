/* SPDX-License-Identifier: Apache-2.0 */
/* The rounding functions of a kind of processor; private to the room. */
#ifndef SL_PRECISION_H
#define SL_PRECISION_H

#include "codec/codec.h"

/* A rounding: the dropped bits, half of the lowest kept place, and a mask of the kept bits. */
struct sl_rounding {
	uint64_t half, mask;
	unsigned drop;
};

/* Rounds numbers and returns the largest error. in may equal out. */
typedef double sl_rounder(const void *in, size_t count, const struct sl_rounding *rounding,
                          void *out);

/*
 * Returns rounders indexed by enum sl_float, or NULL if this processor has only the portable ones.
 */
#ifdef __x86_64__
sl_rounder *const *sl_precision_rounders(void);
#else
#define sl_precision_rounders() NULL
#endif

#endif
