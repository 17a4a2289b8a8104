/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache
 *
 * Moves bytes out of the cache of the core that wrote them before a device copies them: from there
 * a device reads at a fifth of its speed (docs/performance.md). During a long read the next bytes
 * drive the previous bytes out to the cache that all cores share; the last bytes before a pause are
 * driven out here, on processors that have an instruction for it. To do that always would cost more
 * than it gains. Any thread.
 */
#include "staging/staging_internal.h"

#ifdef __x86_64__

#include <cpuid.h>

#define LINE     64
#define CLDEMOTE (1u << 25) /* Intel SDM, CPUID leaf 7, ECX */

static bool cache_can_demote(void)
{
	unsigned a, b, c = 0, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & CLDEMOTE;
}

static void cache_demote(const char *data, size_t length)
{
	for (size_t at = 0; at < length; at += LINE)
		__asm__ volatile("cldemote %0" ::"m"(data[at]));
}

#else

#define cache_can_demote()         false
#define cache_demote(data, length) ((void)(data), (void)(length))

#endif

#define OWN_CACHE ((uint64_t)2 << 20) /* of a core, as far as is known */

void sl_cache_start(struct sl_staging *staging)
{
	staging->caches = cache_can_demote() ? sl_cores() * OWN_CACHE : 0;
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
		cache_demote(data, length);
}
