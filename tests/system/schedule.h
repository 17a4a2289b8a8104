/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random schedules: several threads read and write blocks of one small file through several handles,
 * cancel some reads, and learn in several ways that an operation is over. Afterwards what the reads
 * saw is held against the order that the contract promises.
 */
#ifndef TESTS_STRESS_SCHEDULE_H
#define TESTS_STRESS_SCHEDULE_H

#include "lib/support.h"

enum { BLOCK = 4096, BLOCKS = 192, MOST_BLOCKS = 90, THREADS = 4, HANDLES = 3 };

/* Each block says who wrote it: thread 0 to THREADS - 1, or NOBODY at the start. */
enum { NOBODY = THREADS };
struct stamp {
	uint32_t writer, sequence;
};

/* An operation on `count` blocks from `first` on, in the order in which its thread submitted it. */
struct step {
	bool write;
	bool cancelled; /* a read that was cancelled says nothing */
	uint32_t first, count, sequence;
	int64_t result;
	struct stamp *seen; /* by a read */
};

/* What one thread did in a round. */
struct history {
	struct step *steps;
	size_t count;
};

void block_write(unsigned char *block, uint32_t index, struct stamp stamp);
/* False: it is not whole, or of another place. */
bool block_read(const unsigned char *block, uint32_t index, struct stamp *out);

/*
 * Fails the test unless every operation of a thread saw the file as it was at its place in the
 * order of submission, as far as that can be told without knowing the order between the threads.
 */
void check_histories(const struct history *histories, const struct stamp *final);

#endif
