/* SPDX-License-Identifier: Apache-2.0 */
/* Geometry: how frames are divided into chunks, and where a chunk's bytes are in the frame.
 * Threads: any. No state. */
#include <errno.h>
#include <string.h>

#include "frames/frames_internal.h"

#define LEAST ((uint64_t)256 << 10)
#define MOST  ((uint64_t)1 << 20)

int sl_geometry_init(struct sl_geometry *g)
{
	size_t frame = g->element, chunk = g->element;

	g->chunks = 1;
	for (unsigned i = 0; i < g->rank; i++) {
		if (__builtin_mul_overflow(frame, g->shape[i], &frame) ||
		    __builtin_mul_overflow(chunk, g->chunk[i], &chunk) || frame > INT64_MAX)
			return sl_fail(-EINVAL, "a frame of that shape has too many bytes");
		g->across[i] = (g->origin[i] + g->shape[i] - 1) / g->chunk[i] + 1;
		g->chunks *= g->across[i];
	}
	if (chunk > SL_CODEC_MOST)
		return sl_fail(-EINVAL, "a chunk of %zu bytes is more than %zu", chunk,
		               SL_CODEC_MOST);
	g->chunk_bytes = chunk;
	g->frame_bytes = frame;
	return 0;
}

/* Divides the slowest dimensions first, so that a chunk is contiguous in its frame. More chunks
 * than threads are a multiple of these, so that all threads end at once. */
void sl_geometry_choose(struct sl_geometry *g, unsigned threads)
{
	uint64_t bytes = g->element, wanted, size;

	for (unsigned i = 0; i < g->rank; i++)
		bytes *= g->shape[i];
	size = SL_MIN(SL_MAX(bytes / threads, LEAST), MOST);
	wanted = (bytes + size - 1) / size;
	if (wanted > threads)
		wanted = (wanted + threads - 1) / threads * threads;
	for (unsigned i = 0; i < g->rank; i++) {
		uint64_t count = SL_MIN(SL_MAX(wanted, 1), g->shape[i]);

		g->chunk[i] = (g->shape[i] + count - 1) / count;
		wanted = (wanted + count - 1) / count;
	}
}

void sl_geometry_block(const struct sl_geometry *g, size_t number, struct sl_block *out)
{
	bool thin = true; /* a single row in all dimensions so far */

	out->edge = false;
	out->whole = true;
	for (unsigned i = g->rank; i--;) {
		uint64_t from = number % g->across[i] * g->chunk[i];

		number /= g->across[i];
		out->at[i] = from < g->origin[i] ? g->origin[i] - from : 0;
		out->offset[i] = from + out->at[i] - g->origin[i];
		out->extent[i] = SL_MIN(g->chunk[i] - out->at[i], g->shape[i] - out->offset[i]);
		out->edge |= out->extent[i] < g->chunk[i];
	}
	out->start = 0;
	for (unsigned i = 0; i < g->rank; i++) {
		out->start = out->start * g->shape[i] + out->offset[i];
		/* Behind a dimension with several rows all have to be there whole. */
		out->whole &= thin || out->extent[i] == g->shape[i];
		thin &= out->extent[i] == 1;
	}
	out->start *= g->element;
	out->whole &= !out->edge;
}

/* Behind the result all dimensions lie in one piece, in the frame and in the chunk. */
static unsigned run_dimension(const struct sl_geometry *g, const struct sl_block *block)
{
	unsigned from = g->rank - 1;

	while (from && block->extent[from] == g->shape[from] && g->chunk[from] == g->shape[from])
		from--;
	return from;
}

bool sl_block_run(const struct sl_geometry *g, const struct sl_block *block, uint64_t *at,
                  struct sl_run *out)
{
	unsigned from = run_dimension(g, block);
	uint64_t position[SL_GEOMETRY_MOST] = {0}, left = *at;

	for (unsigned i = from; i--;) {
		position[i] = left % block->extent[i];
		left /= block->extent[i];
	}
	if (left)
		return false;
	out->elements = block->extent[from];
	for (unsigned i = from + 1; i < g->rank; i++)
		out->elements *= g->shape[i];
	out->frame = out->chunk = 0;
	for (unsigned i = 0; i < g->rank; i++) {
		out->frame = out->frame * g->shape[i] + block->offset[i] + position[i];
		out->chunk = out->chunk * g->chunk[i] + block->at[i] + position[i];
	}
	++*at;
	return true;
}

bool sl_geometry_lies_whole(const struct sl_geometry *g)
{
	struct sl_block first, last;

	sl_geometry_block(g, 0, &first);
	sl_geometry_block(g, g->chunks - 1, &last);
	return first.whole && last.whole;
}

void sl_chunk_choose(size_t element, unsigned rank, const uint64_t *shape, unsigned threads,
                     uint64_t *chunk)
{
	struct sl_geometry g = {.element = element, .rank = rank};

	memcpy(g.shape, shape, rank * sizeof(*shape));
	sl_geometry_choose(&g, threads);
	memcpy(chunk, g.chunk, rank * sizeof(*chunk));
}
