/* SPDX-License-Identifier: Apache-2.0 */
/* Contents: what byte `offset` of a file made with `seed` holds is a function of the two. */
#ifndef TESTS_PATTERN_H
#define TESTS_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* A number that looks like chance. gpu_kernels.c has the same for devices. */
uint64_t pattern_mix(uint64_t x);
void pattern_fill(void *dst, size_t n, uint64_t offset, uint64_t seed);
/* n, or the index of the first byte that differs. */
size_t pattern_match(const void *src, size_t n, uint64_t offset, uint64_t seed);
/* How many bytes differ. */
size_t pattern_differ(const void *src, size_t n, uint64_t offset, uint64_t seed);
size_t first_difference(const void *a, const void *b, size_t n);

#endif
