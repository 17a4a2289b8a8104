/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers by chance, from one seed, and memory with guards around it. */
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "lib/support.h"

enum { GUARD = 4096, GUARD_BYTE = 0xa5 };

uint64_t test_seed(void)
{
	static uint64_t seed;
	static bool known;

	if (!known) {
		const char *given = getenv("SLUICE_TEST_SEED");
		struct timespec now;

		clock_gettime(CLOCK_REALTIME, &now);
		seed = given ? strtoull(given, NULL, 0)
		             : pattern_mix((uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32) %
		                       1000000000;
		known = true;
		print_message("seed %llu; the same again with SLUICE_TEST_SEED=%llu\n",
		              (unsigned long long)seed, (unsigned long long)seed);
	}
	return seed;
}

struct rng rng_new(uint64_t stream)
{
	return (struct rng){pattern_mix(test_seed()) ^ pattern_mix(stream + 1)};
}

uint64_t rng_next(struct rng *r)
{
	r->state += 0x9e3779b97f4a7c15ull;
	return pattern_mix(r->state);
}

size_t rng_below(struct rng *r, size_t bound)
{
	return bound ? rng_next(r) % bound : 0;
}

size_t rng_length(struct rng *r, size_t piece, size_t most)
{
	size_t n;

	switch (rng_below(r, 6)) {
	case 0: {
		static const size_t edges[] = {0, 1, 511, 512, 4095, 4096, 4097, 8192};
		n = edges[rng_below(r, COUNT_OF(edges))];
		break;
	}
	case 1:
		n = piece - 1 + rng_below(r, 3);
		break;
	case 2:
		n = 4096 * rng_below(r, most / 4096 + 1);
		break;
	case 3:
		n = rng_below(r, 10000);
		break;
	default:
		n = rng_below(r, most + 1);
		break;
	}
	return n < most ? n : most;
}

struct buffer buffer_new(size_t n, size_t skew)
{
	struct buffer b = {.length = n};

	b.mapped = (2 * GUARD + skew + n + 4095) / 4096 * 4096;
	b.base = mmap(NULL, b.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.base == MAP_FAILED)
		fail_msg("no memory for a buffer of %zu bytes", n);
	b.data = (unsigned char *)b.base + GUARD + skew;
	memset(b.base, GUARD_BYTE, GUARD + skew);
	memset(b.data + n, GUARD_BYTE, b.mapped - GUARD - skew - n);
	return b;
}

void buffer_free(struct buffer *b)
{
	unsigned char *at = b->base, *end = at + b->mapped;

	for (; at < end; at++) {
		if (at == b->data)
			at += b->length;
		if (at < end && *at != GUARD_BYTE)
			fail_msg("byte %td beside a buffer of %zu bytes was written", at - b->data,
			         b->length);
	}
	munmap(b->base, b->mapped);
	*b = (struct buffer){0};
}
