/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests share: cmocka in its order of includes, and seeded random numbers. */
#ifndef UNIT_H
#define UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/core.h"
#include "lib/cases.h"

/* A unit test calls one thread's functions and then reads guarded fields without their mutex. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wthread-safety-analysis"
#endif

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static inline uint64_t unit_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* SLUICE_TEST_SEED, or a fixed one; printed, so that a failure can be repeated. */
static inline uint64_t unit_seed(void)
{
	const char *text = getenv("SLUICE_TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : 20240229;

	print_message("seed %llu\n", (unsigned long long)seed);
	return seed;
}

#endif
