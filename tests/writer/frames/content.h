/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in frames: every element tells its frame and its place, whatever its type. content.py has the same
 * for who reads the files.
 */
#ifndef CONTENT_H
#define CONTENT_H

#include <sluice/writer.h>

#include "lib/support.h"

enum content_kind {
	CONTENT_SAME,    /* one value for each frame */
	CONTENT_SMOOTH,  /* small numbers that compress well */
	CONTENT_MIXED,   /* parts of them do not compress */
	CONTENT_NUMBERS, /* none does; of floating point finite ones */
	CONTENT_BITS,    /* any bits, NaN and others that are no numbers included */
	CONTENT_KINDS
};

struct content {
	int type; /* of enum sluice_type */
	enum content_kind kind;
	uint64_t seed;
};

size_t content_element_bytes(int type);
const char *content_type_name(int type); /* as numpy calls it */
/* The elements from first on. */
void content_fill(const struct content *c, uint64_t frame, uint64_t first, size_t count, void *to);
/* The first element that is other than that; count: none is. dropped: so many bits of a floating-point
 * number are 0, and it is the nearest of those. */
size_t content_differs(const struct content *c, uint64_t frame, size_t count, unsigned dropped,
                       const void *found);
/* Bits of its mantissa; 0 if it is an integer. */
unsigned content_mantissa(int type);
/* A number that comes with a frame. */
double content_scalar(const struct content *c, uint64_t frame, unsigned which);

#endif
