/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Gray-Scott reaction as one would write it down, in double precision, to compare
 * examples/gray-scott with. usage: reference ROWS COLUMNS IMAGES STEPS FEED KILL DELTAT, with STEPS before
 * each image; writes v of the images as float32.
 */
#include <stdio.h>
#include <stdlib.h>

static long rows, columns;

static double *grid_new(void)
{
	double *grid = calloc((size_t)(rows * columns), sizeof *grid);

	if (!grid)
		exit(1);
	return grid;
}

static double at(const double *grid, long row, long column)
{
	row = row < 0 ? 0 : row >= rows ? rows - 1 : row;
	column = column < 0 ? 0 : column >= columns ? columns - 1 : column;
	return grid[row * columns + column];
}

static double diffusion(const double *grid, long row, long column)
{
	static const double weights[3][3] = {{0.25, 0.5, 0.25}, {0.5, 0, 0.5}, {0.25, 0.5, 0.25}};
	double sum = 0;

	for (long i = 0; i < 3; i++)
		for (long j = 0; j < 3; j++)
			sum += weights[i][j] *
			       (at(grid, row + i - 1, column + j - 1) - at(grid, row, column));
	return sum;
}

static void begin(double *u, double *v)
{
	long height = rows / 16 > 0 ? rows / 16 : 1, width = columns / 16 > 0 ? columns / 16 : 1;
	long top = (rows - height) / 2, left = (columns - width) / 2;

	for (long i = 0; i < rows * columns; i++)
		u[i] = 1;
	for (long row = top; row < top + height; row++) {
		for (long column = left; column < left + width; column++) {
			u[row * columns + column] = 0;
			v[row * columns + column] = 1;
		}
	}
}

int main(int argc, char **argv)
{
	double *u, *v, *next_u, *next_v, *swap, feed, kill, deltat;
	long images, steps;

	if (argc != 8)
		return 2;
	rows = atol(argv[1]);
	columns = atol(argv[2]);
	images = atol(argv[3]);
	steps = atol(argv[4]);
	feed = atof(argv[5]);
	kill = atof(argv[6]);
	deltat = atof(argv[7]);
	u = grid_new();
	v = grid_new();
	next_u = grid_new();
	next_v = grid_new();
	begin(u, v);
	for (long step = 1; step <= images * steps; step++) {
		for (long row = 0; row < rows; row++) {
			for (long column = 0; column < columns; column++) {
				long i = row * columns + column;
				double uvv = u[i] * v[i] * v[i];

				next_u[i] = u[i] + deltat * (0.1 * diffusion(u, row, column) - uvv +
				                             feed * (1 - u[i]));
				next_v[i] = v[i] + deltat * (0.05 * diffusion(v, row, column) +
				                             uvv - (feed + kill) * v[i]);
			}
		}
		swap = u, u = next_u, next_u = swap;
		swap = v, v = next_v, next_v = swap;
		for (long i = 0; step % steps == 0 && i < rows * columns; i++) {
			float value = (float)v[i];

			fwrite(&value, sizeof value, 1, stdout);
		}
	}
	free(u), free(v), free(next_u), free(next_v);
	return fflush(stdout) ? 1 : 0;
}
