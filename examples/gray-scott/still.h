/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_STILL_H
#define GRAY_SCOTT_STILL_H

#include "colours.h"

/* The picture of one image. */
struct still {
	const char *directory, *name; /* of the file: what is behind the last '/' of it */
	unsigned long long number;
	size_t rows, columns;
	const float *values;
	uint8_t *pixels; /* as many; overwritten */
};

/* Writes DIRECTORY/NAME_NUMBER.png. 0, or a negative errno with a sentence. path, to be freed, may be NULL. Any
 * thread. */
int still_write(const struct still *still, const struct scale *scale, const struct colour *colours,
                char *why, size_t size, char **path);

#endif
