/* SPDX-License-Identifier: Apache-2.0 */
/* A line for each image: its number and its CRC-32, that of zlib, as eight hexadecimal digits. */
#ifndef GRAY_SCOTT_CHECKSUM_H
#define GRAY_SCOTT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "parallel.h"

struct checksum {
	FILE *file; /* NULL: nobody wants one */
	const char *path;
};

/* 0 or -1 and errno. path NULL: nothing is written. */
int checksum_open(struct checksum *checksum, const char *path);
void checksum_add(struct checksum *checksum, struct parallel *parallel, uint64_t image,
                  const void *data, size_t size);
/* 0 or -1 and errno: not all of it was written. */
int checksum_close(struct checksum *checksum);

#endif
