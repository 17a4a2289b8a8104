/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_SHRINK_H
#define GRAY_SCOTT_SHRINK_H

#include <stddef.h>

/* Each value of out is the mean of those of in that it lies over. out is not larger. */
void shrink(const float *in, size_t in_rows, size_t in_columns, float *out, size_t rows,
            size_t columns);

#endif
