/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_ANIMATION_H
#define GRAY_SCOTT_ANIMATION_H

#include <stddef.h>
#include <stdio.h>

#include "picture.h"

/*
 * Writes pictures of the same size and colours as one animated PNG, which browsers play again and again,
 * and programs that know no animations show as the first picture. So many hundredths of a second each.
 * 0 or -1 and errno.
 */
int animation_write(const struct png *pictures, size_t count, unsigned hundredths, FILE *file);

#endif
