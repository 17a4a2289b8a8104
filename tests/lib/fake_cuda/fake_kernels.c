/* SPDX-License-Identifier: Apache-2.0 */
/* One function for each kernel, one row for each function. */
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "core/core.h"
#include "lib/fake_cuda/fake_kernels.h"

#define ARGUMENT(type, index) (*(type *)parameters[index])
#define POINTER               sizeof(void *)
#define U64                   sizeof(uint64_t)
#define U32                   sizeof(uint32_t)

/* The pattern of support/pattern.c, byte by byte. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static unsigned char pattern(uint64_t at, uint64_t seed)
{
	return (unsigned char)(mix(at / 8 * 0x2545f4914f6cdd1dull + seed) >> at % 8 * 8);
}

/* sluice_fill(unsigned char *bytes, uint64_t n, uint64_t offset, uint64_t seed) */
static void fill(void **parameters, unsigned grid_x, unsigned block_x)
{
	uint64_t n = ARGUMENT(uint64_t, 1), offset = ARGUMENT(uint64_t, 2);
	uint64_t seed = ARGUMENT(uint64_t, 3);
	unsigned char *bytes = fake_kernel_out(ARGUMENT(void *, 0), n);

	(void)grid_x;
	(void)block_x;
	for (uint64_t i = 0; bytes && i < n; i++)
		bytes[i] = pattern(offset + i, seed);
}

/* sluice_scribble(unsigned char *bytes, uint64_t n, uint32_t byte) */
static void scribble(void **parameters, unsigned grid_x, unsigned block_x)
{
	uint64_t n = ARGUMENT(uint64_t, 1);
	unsigned char *bytes = fake_kernel_out(ARGUMENT(void *, 0), n);

	(void)grid_x;
	(void)block_x;
	if (bytes)
		memset(bytes, (int)ARGUMENT(uint32_t, 2), n);
}

/* sluice_match(const unsigned char *bytes, uint64_t n, uint64_t offset, uint64_t seed,
 *              uint64_t *wrong) */
static void match(void **parameters, unsigned grid_x, unsigned block_x)
{
	uint64_t n = ARGUMENT(uint64_t, 1), offset = ARGUMENT(uint64_t, 2);
	uint64_t seed = ARGUMENT(uint64_t, 3), differing = 0;
	const unsigned char *bytes = fake_kernel_in(ARGUMENT(void *, 0), n);
	_Atomic uint64_t *wrong = fake_kernel_out(ARGUMENT(void *, 4), sizeof(*wrong));

	(void)grid_x;
	(void)block_x;
	if (!bytes || !wrong)
		return;
	for (uint64_t i = 0; i < n; i++)
		differing += bytes[i] != pattern(offset + i, seed);
	atomic_fetch_add(wrong, differing);
}

/* sluice_take(const unsigned char *bytes, unsigned char *out, uint64_t n) */
static void take(void **parameters, unsigned grid_x, unsigned block_x)
{
	uint64_t n = ARGUMENT(uint64_t, 2);
	const void *bytes = fake_kernel_in(ARGUMENT(void *, 0), n);
	void *out = fake_kernel_out(ARGUMENT(void *, 1), n);

	(void)grid_x;
	(void)block_x;
	if (bytes && out)
		memmove(out, bytes, n);
}

/* sluice_spin(uint64_t nanoseconds) */
static void spin(void **parameters, unsigned grid_x, unsigned block_x)
{
	int64_t end = sl_now() + (int64_t)ARGUMENT(uint64_t, 0);

	(void)grid_x;
	(void)block_x;
	while (sl_now() < end)
		;
}

/* sluice_stamp(uint64_t *at) */
static void stamp(void **parameters, unsigned grid_x, unsigned block_x)
{
	_Atomic uint64_t *at = fake_kernel_out(ARGUMENT(void *, 0), sizeof(*at));

	(void)grid_x;
	(void)block_x;
	if (at)
		atomic_store(at, (uint64_t)sl_now());
}

/* sum(const unsigned char *bytes, uint64_t n, uint64_t *sum), of examples/read_to_gpu.c */
static void sum(void **parameters, unsigned grid_x, unsigned block_x)
{
	uint64_t n = ARGUMENT(uint64_t, 1), mine = 0;
	const unsigned char *bytes = fake_kernel_in(ARGUMENT(void *, 0), n);
	_Atomic uint64_t *all = fake_kernel_out(ARGUMENT(void *, 2), sizeof(*all));

	(void)grid_x;
	(void)block_x;
	if (!all || (n && !bytes))
		return;
	for (uint64_t i = 0; i < n; i++)
		mine += bytes[i];
	atomic_fetch_add(all, mine);
}

const struct fake_kernel fake_kernels[] = {
	{"sluice_fill", fill, {POINTER, U64, U64, U64}},
	{"sluice_scribble", scribble, {POINTER, U64, U32}},
	{"sluice_match", match, {POINTER, U64, U64, U64, POINTER}},
	{"sluice_take", take, {POINTER, POINTER, U64}},
	{"sluice_spin", spin, {U64}},
	{"sluice_stamp", stamp, {POINTER}},
	{"sum", sum, {POINTER, U64, POINTER}},
	{NULL, NULL, {0}},
};
