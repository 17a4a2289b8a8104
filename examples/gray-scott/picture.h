/* SPDX-License-Identifier: Apache-2.0 */
/* PNG: pictures of at most 256 colours, and animations of them. */
#ifndef GRAY_SCOTT_PICTURE_H
#define GRAY_SCOTT_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "colours.h"

/* One byte for each pixel, its colour; rows from the top. */
struct picture {
	size_t rows, columns;
	const uint8_t *pixels;
	const struct colour *colours; /* COLOURS of them */
};

/* A file in memory. */
struct png {
	unsigned char *data; /* the caller's; free() */
	size_t size;
};

/* 0, or a negative errno with a sentence in why. Any thread. */
int picture_encode(const struct picture *picture, struct png *out, char *why, size_t size);

#endif
