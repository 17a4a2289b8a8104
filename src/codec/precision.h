/* SPDX-License-Identifier: Apache-2.0 */
/* Within the room: what rounds, for one kind of processor. */
#ifndef SL_PRECISION_H
#define SL_PRECISION_H

#include "codec/codec.h"

/* How many bits of a mantissa are dropped, half of the place above them, and what stays. */
struct sl_rounding {
	uint64_t half, mask;
	unsigned drop;
};

/* Returns the largest error. in may be out. */
typedef double sl_rounder(const void *in, size_t count, const struct sl_rounding *rounding,
                          void *out);

/* By enum sl_float; NULL: this processor has nothing better than what all have. */
sl_rounder *const *sl_precision_rounders(void);

#endif
