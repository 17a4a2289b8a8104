/* SPDX-License-Identifier: Apache-2.0 */
#include "staging/staging.h"

#ifdef __x86_64__

#include <cpuid.h>

#define LINE     64
#define CLDEMOTE (1u << 25) /* Intel SDM, CPUID leaf 7, ECX */

static bool can_demote(void)
{
	static _Atomic int known; /* 1: yes, 2: no */
	unsigned a, b, c = 0, d;
	int can = atomic_load_explicit(&known, memory_order_relaxed);

	if (!can) {
		can = __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & CLDEMOTE ? 1 : 2;
		atomic_store_explicit(&known, can, memory_order_relaxed);
	}
	return can == 1;
}

void sl_slot_demote(const char *data, size_t length)
{
	if (!can_demote())
		return;
	for (size_t at = 0; at < length; at += LINE)
		__asm__ volatile("cldemote %0" ::"m"(data[at]));
}

#else

void sl_slot_demote(const char *data, size_t length)
{
	(void)data;
	(void)length;
}

#endif
