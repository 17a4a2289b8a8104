/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the catalogue's stress share. One server makes, deletes, moves and recycles blobs; readers get
 * them, look whether they are what they should be, hold them for a while, look again, let go. Each blob has a
 * stamp that is never used twice, and everything of it follows from that: so memory that was recycled under a
 * reader shows.
 */
#ifndef TESTS_STORE_CATALOGUE_STRESS_H
#define TESTS_STORE_CATALOGUE_STRESS_H

#include "catalogue/layout.h"
#include "lib/support.h"

enum {
	READERS = 7,
	SLOTS = 64,
	REGIONS = 64, /* of memory for blobs */
	WORDS = 48,   /* of a region */
	NAMES = 24,
};

/* Errors that are put in, to see that they are found. */
enum plant { RIGHT, NO_SECOND_LOOK, LATE_SCAN, NO_SCAN };

/* Shared by all. */
struct stress {
	_Atomic bool stop;
	_Atomic uint64_t stamp; /* the last that was given */
	_Atomic uint64_t gets, asked, made, gone, moved, stayed, servers;
	_Atomic bool wrong;
	char what[256]; /* written by whoever set wrong */
	enum plant plant;
	bool threads;
	uint64_t seed;
	uint64_t memory[REGIONS][WORDS]; /* the server's, but for what is held */

	int segment_fd, references_fds[READERS];
	/* Of all threads; processes map their own. */
	struct sl_segment *segment;
	struct sl_references *references[READERS];
};
extern struct stress *stress;

void stress_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t stress_random(uint64_t *state);
/* A pause of no time, some hundred instructions, or a turn of others; so that what is rare gets common. */
void stress_pause(void);

static inline uint64_t stress_word(uint64_t stamp, unsigned i)
{
	return pattern_mix(stamp * 1000003 + i);
}
/* The length of the metadata of a blob; sometimes more than an entry holds. */
static inline size_t stress_metadata_size(uint64_t stamp)
{
	return stamp % 16 == 0 ? 300 : stamp % 60;
}

/* Until stop. Both end by themselves; the server may be killed at any time, and another one be started. */
void stress_serve(void);
void stress_read(unsigned reader);

#endif
