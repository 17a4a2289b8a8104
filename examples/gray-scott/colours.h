/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_COLOURS_H
#define GRAY_SCOTT_COLOURS_H

#include <stddef.h>
#include <stdint.h>

enum { COLOURS = 256 };

struct colour {
	uint8_t red, green, blue;
};

/*
 * From a dark blue by teal and a warm yellow to white. The lightness grows evenly, so that what is twice
 * as far apart looks twice as far apart, also without colours.
 */
void colours_fill(struct colour table[COLOURS]);

/* Which values get which colour. */
struct scale {
	float low, high;          /* the first colour, and the last one; beyond them the same */
	uint8_t colours[1 << 16]; /* of values evenly between them */
};

/* gamma: the power of a value, as a share of the way from low to high, that is the share of the way
 * through the colours. */
void scale_fill(struct scale *scale, float low, float high, float gamma);

/* What is no number gets the first colour. */
void colours_map(const struct scale *scale, const float *values, size_t count, uint8_t *out);

#endif
