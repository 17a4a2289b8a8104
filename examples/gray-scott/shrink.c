/* SPDX-License-Identifier: Apache-2.0 */
#include "shrink.h"

static float mean(const float *in, size_t stride, size_t rows, size_t columns)
{
	float sum = 0;

	for (size_t row = 0; row < rows; row++)
		for (size_t column = 0; column < columns; column++)
			sum += in[row * stride + column];
	return sum / (float)(rows * columns);
}

/* The end is rounded up: a cell that two share is in both. */
static size_t end_of(size_t index, size_t count, size_t of)
{
	return ((index + 1) * of + count - 1) / count;
}

void shrink(const float *in, size_t in_rows, size_t in_columns, float *out, size_t rows,
            size_t columns)
{
	for (size_t row = 0; row < rows; row++) {
		size_t top = row * in_rows / rows;

		for (size_t column = 0; column < columns; column++) {
			size_t left = column * in_columns / columns;

			out[row * columns + column] =
				mean(in + top * in_columns + left, in_columns,
			             end_of(row, rows, in_rows) - top,
			             end_of(column, columns, in_columns) - left);
		}
	}
}
