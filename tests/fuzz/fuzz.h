/* SPDX-License-Identifier: Apache-2.0 */
/* Chance and time of a fuzzer. usage of each: [SECONDS [SEED]] */
#ifndef FUZZ_H
#define FUZZ_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (z ^ z >> 31) % below;
}

/* Calls it again and again until the time is over. */
static void fuzz(int argc, char **argv, void (*some)(void))
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	struct timespec start, now;

	state = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	printf("seed %" PRIu64 "\n", state);
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		some();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9 <
	         seconds);
}

#endif
