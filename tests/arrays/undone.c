/* SPDX-License-Identifier: Apache-2.0 */
/* For programs with sl_unfilter_run() wrapped. */
#include "arrays/dataset.h"
#include "codec/codec.h"

unsigned undone;

int __real_sl_unfilter_run(struct sl_unfilter *unfilter, uint32_t mask, const void *in, size_t n,
                           void *out);
int __wrap_sl_unfilter_run(struct sl_unfilter *unfilter, uint32_t mask, const void *in, size_t n,
                           void *out);
int __wrap_sl_unfilter_run(struct sl_unfilter *unfilter, uint32_t mask, const void *in, size_t n,
                           void *out)
{
	__atomic_fetch_add(&undone, 1, __ATOMIC_RELAXED);
	return __real_sl_unfilter_run(unfilter, mask, in, n, out);
}
