/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step reads 8 bytes and writes 8 bytes per cell and does little with them, so the memory is the limit.
 * Hence a pass over the grid makes PASS steps at once: each thread goes down its band of rows, and as soon
 * as a row and its neighbours are there, the next step of the row above is computed from them, and so on.
 * Of the steps in between only the last few rows exist, in the cache. At the ends of a band a thread
 * computes a few rows that its neighbour computes too, so nobody waits within a pass.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "reaction.h"
#include "reaction_row.h"

enum {
	PASS = 8, /* steps of one pass */
	/* Rows that are kept of a step in between: three are needed, a power of two is cheap. */
	WINDOW = 4,
	BANDS = 3, /* per thread, for one that is slower than the others */
	LINE = 64, /* bytes of a cache line */
	PAD = LINE / sizeof(float),
};

struct reaction {
	struct reaction_options options;
	struct row_rates rates;
	size_t stride; /* floats from one row to the next; row 0 begins PAD floats in */
	struct parallel *parallel;
	unsigned threads, bands;
	float *grids[2][2]; /* before and after a pass: u, v */
	float *scratch;     /* per thread: sums of one row, then the windows */
};

/* What a pass is given. */
struct pass {
	const struct reaction *reaction;
	unsigned steps; /* 1 to PASS */
};

static float *rows_new(const struct reaction *r, size_t rows)
{
	size_t bytes;

	if (__builtin_mul_overflow(rows, r->stride * sizeof(float), &bytes) ||
	    bytes > PTRDIFF_MAX - LINE)
		return NULL;
	/* A line more: the last cell of the last row has a neighbour, too. */
	return aligned_alloc(LINE, bytes + LINE);
}

static float *row_of(const struct reaction *r, float *grid, size_t row)
{
	return grid + PAD + row * r->stride;
}

/* The cells beside the first and the last: what the mirror shows. */
static void mirror(float *row, size_t columns)
{
	row[-1] = row[0];
	row[columns] = row[columns - 1];
}

static void band(const struct reaction *r, unsigned index, size_t *first, size_t *end)
{
	*first = r->options.rows * index / r->bands;
	*end = r->options.rows * (index + 1) / r->bands;
}

/* Filled by the threads that will work on it, so that each page lies near them. */
static void start_band(unsigned index, unsigned worker, void *argument)
{
	const struct reaction *r = argument;
	size_t first, end, columns = r->options.columns;

	(void)worker;
	band(r, index, &first, &end);
	for (size_t row = first; row < end; row++) {
		float *u = row_of(r, r->grids[0][0], row), *v = row_of(r, r->grids[0][1], row);

		for (size_t column = 0; column < columns; column++) {
			u[column] = 1.0F;
			v[column] = 0.0F;
		}
		mirror(u, columns);
		mirror(v, columns);
	}
}

/* A share of the grid, and at least one cell. */
static size_t share(size_t of, unsigned parts)
{
	return of / parts ? of / parts : 1;
}

static void put_block(struct reaction *r, size_t top, size_t left, size_t height, size_t width)
{
	size_t first = r->options.first, end = first + r->options.rows;

	for (size_t row = top > first ? top : first; row < top + height && row < end; row++)
		for (size_t column = left; column < left + width; column++)
			reaction_set(r, row - first, column, 0, 1);
}

/* Number i of a series in which each number falls into a wide gap between those before it. */
static size_t spread(unsigned i, double step, size_t below)
{
	double x = (i + 0.5) * step;

	return (size_t)((x - (double)(unsigned long)x) * (double)below);
}

static void put_blocks(struct reaction *r)
{
	size_t rows = r->options.whole ? r->options.whole : r->options.rows;
	size_t columns = r->options.columns;
	size_t height = share(rows, 16), width = share(columns, 16);
	/* The root of x * x * x = x + 1 does for points what the golden section does for numbers. */
	const double step = 1 / 1.32471795724474602596;

	if (r->options.blocks == 1) {
		put_block(r, (rows - height) / 2, (columns - width) / 2, height, width);
		return;
	}
	for (unsigned i = 0; i < r->options.blocks; i++) {
		size_t high = share(height, 2) + i % share(height, 2);
		size_t wide = share(width, 4) + 2 * i % share(width, 4);
		size_t top = spread(i, step, rows - high + 1);
		size_t left = spread(i, step * step, columns - wide + 1);

		put_block(r, top, left, high, wide);
	}
}

enum { SUMS = 3, SCRATCH = SUMS + 2 * WINDOW * (PASS - 1) }; /* rows per thread */

int reaction_new(const struct reaction_options *options, struct parallel *parallel,
                 struct reaction **out)
{
	const struct reaction_options *o = options;
	struct reaction *r = calloc(1, sizeof *r);
	size_t cells;

	if (!r)
		return -ENOMEM;
	r->options = *o;
	r->rates = (struct row_rates){.feed = o->feed,
	                              .decay = o->feed + o->kill,
	                              .deltat = o->deltat,
	                              .diffusion_u = o->diffusion_u,
	                              .diffusion_v = o->diffusion_v};
	r->parallel = parallel;
	r->threads = parallel_threads(parallel);
	r->bands = r->threads == 1 ? 1 : r->threads * BANDS;
	if (r->bands > o->rows)
		r->bands = (unsigned)o->rows;
	/* No overflow here, nor where rows and columns are multiplied later. */
	if (__builtin_mul_overflow(o->rows, o->columns, &cells) || cells > PTRDIFF_MAX / LINE)
		goto no_memory;
	r->stride = (o->columns + 1 + PAD - 1) / PAD * PAD + PAD;
	for (int i = 0; i < 4; i++)
		if (!(r->grids[i / 2][i % 2] = rows_new(r, o->rows)))
			goto no_memory;
	r->scratch = rows_new(r, (size_t)r->threads * SCRATCH);
	if (!r->scratch)
		goto no_memory;
	parallel_run(r->parallel, r->bands, start_band, r);
	put_blocks(r);
	*out = r;
	return 0;

no_memory:
	reaction_free(r);
	return -ENOMEM;
}

void reaction_free(struct reaction *reaction)
{
	if (!reaction)
		return;
	for (int i = 0; i < 4; i++)
		free(reaction->grids[i / 2][i % 2]);
	free(reaction->scratch);
	free(reaction);
}

float *reaction_row(const struct reaction *reaction, int which, size_t row)
{
	return row_of(reaction, reaction->grids[0][which], row);
}

size_t reaction_stride(const struct reaction *reaction)
{
	return reaction->stride;
}

void reaction_set(struct reaction *reaction, size_t row, size_t column, float u, float v)
{
	float *row_u = row_of(reaction, reaction->grids[0][0], row);
	float *row_v = row_of(reaction, reaction->grids[0][1], row);

	row_u[column] = u;
	row_v[column] = v;
	mirror(row_u, reaction->options.columns);
	mirror(row_v, reaction->options.columns);
}

/* Row `row` after `step` steps of the pass, 0 being what the pass began with: u and v. */
static void find_row(const struct pass *pass, float *windows, unsigned step, size_t row,
                     float *out[2])
{
	const struct reaction *r = pass->reaction;

	for (unsigned i = 0; i < 2; i++) {
		if (step == 0)
			out[i] = row_of(r, r->grids[0][i], row);
		else if (step == pass->steps)
			out[i] = row_of(r, r->grids[1][i], row);
		else
			out[i] = row_of(r, windows, ((step - 1) * 2 + i) * WINDOW + row % WINDOW);
	}
}

static void compute_row(const struct pass *pass, float *scratch, unsigned step, size_t row)
{
	const struct reaction *r = pass->reaction;
	float *windows = scratch + SUMS * r->stride, *above[2], *here[2], *below[2], *to[2];

	find_row(pass, windows, step - 1, row > 0 ? row - 1 : row, above);
	find_row(pass, windows, step - 1, row, here);
	find_row(pass, windows, step - 1, row + 1 < r->options.rows ? row + 1 : row, below);
	find_row(pass, windows, step, row, to);
	row_step(&r->rates, r->options.columns, (struct row_source){above[0], here[0], below[0]},
	         (struct row_source){above[1], here[1], below[1]}, scratch, to[0], to[1]);
	mirror(to[0], r->options.columns);
	mirror(to[1], r->options.columns);
}

/*
 * Each step is one row behind the one before it. To have the last one for rows [first, end), a step that
 * has `rest` steps after it is needed for that many rows more at both ends, as far as the grid has them.
 */
static void pass_band(unsigned index, unsigned worker, void *argument)
{
	const struct pass *pass = argument;
	const struct reaction *r = pass->reaction;
	float *scratch = r->scratch + (size_t)worker * SCRATCH * r->stride;
	size_t first, end, rows = r->options.rows, most = pass->steps - 1;

	band(r, index, &first, &end);
	for (size_t front = first > most ? first - most : 0; front < end + most; front++) {
		for (unsigned step = 1; step <= pass->steps && step - 1 <= front; step++) {
			size_t row = front - (step - 1), rest = pass->steps - step;

			if (row + rest >= first && row < end + rest && row < rows)
				compute_row(pass, scratch, step, row);
		}
	}
}

void reaction_step(struct reaction *reaction, unsigned steps)
{
	while (steps > 0) {
		/* Passes of the same length, rather than a short one at the end. */
		unsigned passes = steps / PASS + (steps % PASS != 0);
		struct pass pass = {.reaction = reaction, .steps = steps / passes};

		parallel_run(reaction->parallel, reaction->bands, pass_band, &pass);
		for (int i = 0; i < 2; i++) {
			float *before = reaction->grids[0][i];

			reaction->grids[0][i] = reaction->grids[1][i];
			reaction->grids[1][i] = before;
		}
		steps -= pass.steps;
	}
}

struct copy {
	const struct reaction *reaction;
	float *from, *to;
};

static void copy_band(unsigned index, unsigned worker, void *argument)
{
	const struct copy *copy = argument;
	const struct reaction *r = copy->reaction;
	size_t first, end, columns = r->options.columns, above = r->options.above;
	size_t below = r->options.rows - r->options.below;

	(void)worker;
	band(r, index, &first, &end);
	for (size_t row = first > above ? first : above; row < end && row < below; row++)
		memcpy(copy->to + (row - above) * columns, row_of(r, copy->from, row),
		       columns * sizeof(float));
}

void reaction_copy_u(const struct reaction *reaction, float *out)
{
	struct copy copy = {reaction, reaction->grids[0][0], out};

	parallel_run(reaction->parallel, reaction->bands, copy_band, &copy);
}

void reaction_copy_v(const struct reaction *reaction, float *out)
{
	struct copy copy = {reaction, reaction->grids[0][1], out};

	parallel_run(reaction->parallel, reaction->bands, copy_band, &copy);
}
