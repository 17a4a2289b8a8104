/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of a slot are when a device copies them. What a core has just written is in its own
 * cache, and out of there a device reads at a fifth of its speed (docs/performance.md). While much is
 * read, the next bytes drive the last ones out to the cache that all cores share; the last bytes before
 * a pause are driven out here, where the processor can be told so. To do that always would cost more than
 * it gains.
 */
#include "staging/room.h"

#ifdef __x86_64__

#include <cpuid.h>

#define LINE     64
#define CLDEMOTE (1u << 25) /* Intel SDM, CPUID leaf 7, ECX */

static bool can_demote(void)
{
	unsigned a, b, c = 0, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & CLDEMOTE;
}

static void demote(const char *data, size_t length)
{
	for (size_t at = 0; at < length; at += LINE)
		__asm__ volatile("cldemote %0" ::"m"(data[at]));
}

#else

static bool can_demote(void)
{
	return false;
}

static void demote(const char *data, size_t length)
{
	(void)data;
	(void)length;
}

#endif

#define OWN_CACHE ((uint64_t)2 << 20) /* of a core, as far as is known */

void sl_cache_start(struct sl_staging *staging)
{
	staging->caches = can_demote() ? sl_cores() * OWN_CACHE : 0;
}

void sl_slots_expect(struct sl_staging *staging, uint64_t bytes)
{
	atomic_fetch_add_explicit(&staging->expected, bytes, memory_order_relaxed);
}

void sl_slots_got(struct sl_staging *staging, uint64_t bytes, const char *data, size_t length)
{
	uint64_t left =
		atomic_fetch_sub_explicit(&staging->expected, bytes, memory_order_relaxed) - bytes;

	if (left < staging->caches)
		demote(data, length);
}
