/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of an array: whether they are all of it, and the rank for each chunk.
 * Threads: any. No state. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_internal.h"

/* A range in each dimension. */
struct box {
	uint64_t start[SLUICE_FRAME_RANK_MOST], end[SLUICE_FRAME_RANK_MOST];
};

static struct box box_of(unsigned rank, const struct sluice_block *block)
{
	struct box box = {0};

	for (unsigned i = 0; i < rank; i++) {
		box.start[i] = block->start[i];
		box.end[i] = block->start[i] + block->count[i];
	}
	return box;
}

static uint64_t box_elements(unsigned rank, const struct box *box)
{
	uint64_t elements = 1;

	for (unsigned i = 0; i < rank; i++)
		elements *= box->end[i] > box->start[i] ? box->end[i] - box->start[i] : 0;
	return elements;
}

static struct box box_common(unsigned rank, const struct box *a, const struct box *b)
{
	struct box common = {0};

	for (unsigned i = 0; i < rank; i++) {
		common.start[i] = SL_MAX(a->start[i], b->start[i]);
		common.end[i] = SL_MIN(a->end[i], b->end[i]);
	}
	return common;
}

/* --------------------------------------------------------------------------------------- check */

static int block_check(unsigned rank, const uint64_t *shape, const struct sluice_block *block,
                       int of)
{
	for (unsigned i = 0; i < rank; i++) {
		uint64_t end;

		if (!block->count[i])
			return 0;
		if (__builtin_add_overflow(block->start[i], block->count[i], &end) ||
		    end > shape[i])
			return sl_fail(-EINVAL,
			               "the block of rank %d has %" PRIu64 " elements from %" PRIu64
			               " on in dimension %u, and the array ends at %" PRIu64,
			               of, block->count[i], block->start[i], i, shape[i]);
	}
	return 0;
}

int sl_blocks_check(unsigned rank, const uint64_t *shape, const struct sluice_block *blocks,
                    int ranks)
{
	struct box whole = {0};
	uint64_t sum = 0;
	int rc = 0;

	memcpy(whole.end, shape, rank * sizeof(*shape));
	for (int r = 0; !rc && r < ranks; r++)
		rc = block_check(rank, shape, &blocks[r], r);
	for (int r = 0; !rc && r < ranks; r++) {
		struct box box = box_of(rank, &blocks[r]);

		sum += box_elements(rank, &box);
		for (int other = 0; !rc && other < r; other++) {
			struct box against = box_of(rank, &blocks[other]);
			struct box common = box_common(rank, &box, &against);

			if (box_elements(rank, &common))
				rc = sl_fail(-EINVAL, "the blocks of rank %d and rank %d overlap",
				             other, r);
		}
	}
	if (!rc && sum != box_elements(rank, &whole))
		rc = sl_fail(-EINVAL,
		             "the blocks of all ranks have %" PRIu64
		             " elements, and the array %" PRIu64 ": some are in no block",
		             sum, box_elements(rank, &whole));
	return rc;
}

/* -------------------------------------------------------------------------------------- chunks */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Whether the last chunk has too many elements beyond the array: more than an eighth of it. */
static bool chunk_wastes(uint64_t length, uint64_t size)
{
	uint64_t rest = length % size;

	return rest && (size - rest) > length / 8;
}

/* The next smaller size that divides `unit`, or the wanted size if none is near. */
static uint64_t chunk_near(uint64_t unit, uint64_t wanted, uint64_t length)
{
	for (uint64_t size = SL_MIN(wanted, unit); size && size * 4 >= wanted; size--)
		if (unit % size == 0 && !chunk_wastes(length, size))
			return size;
	return wanted;
}

void sl_blocks_chunk(struct sl_h5_layout *layout, const struct sluice_block *blocks, int ranks,
                     unsigned threads)
{
	uint64_t largest[SLUICE_FRAME_RANK_MOST] = {0}, units[SLUICE_FRAME_RANK_MOST] = {0};

	for (int r = 0; r < ranks; r++)
		for (unsigned i = 0; i < layout->rank; i++) {
			uint64_t end = blocks[r].start[i] + blocks[r].count[i];

			if (!blocks[r].count[i])
				break;
			largest[i] = SL_MAX(largest[i], blocks[r].count[i]);
			units[i] = common_divisor(units[i], blocks[r].start[i]);
			if (end < layout->shape[i])
				units[i] = common_divisor(units[i], end);
		}
	sl_chunk_choose(layout->element, layout->rank, largest, threads, layout->chunk);
	for (unsigned i = 0; i < layout->rank; i++)
		if (units[i])
			layout->chunk[i] = chunk_near(units[i], layout->chunk[i], layout->shape[i]);
}

static uint64_t chunks_across(const struct sl_h5_layout *layout, unsigned i)
{
	return (layout->shape[i] - 1) / layout->chunk[i] + 1;
}

void sl_blocks_offset(const struct sl_h5_layout *layout, uint64_t chunk, uint64_t *offset)
{
	for (unsigned i = layout->rank; i--;) {
		offset[i] = chunk % chunks_across(layout, i) * layout->chunk[i];
		chunk /= chunks_across(layout, i);
	}
}

/* -------------------------------------------------------------------------------------- shares */

struct sharing {
	const struct sl_h5_layout *layout;
	const struct sluice_block *blocks;
	const int *files;
	int ranks, rank;
	size_t head;
	struct sl_share *share;
	uint64_t first[SLUICE_FRAME_RANK_MOST],
		across[SLUICE_FRAME_RANK_MOST]; /* chunks of the block */
};

/* A chunk by its number in the block: returns the number in the dataset. */
static uint64_t block_chunk_at(const struct sharing *sh, size_t number, struct box *box)
{
	const struct sl_h5_layout *layout = sh->layout;
	uint64_t chunk = 0;

	for (unsigned i = layout->rank; i--;) {
		box->start[i] = (sh->first[i] + number % sh->across[i]) * layout->chunk[i];
		box->end[i] = SL_MIN(box->start[i] + layout->chunk[i], layout->shape[i]);
		number /= sh->across[i];
	}
	for (unsigned i = 0; i < layout->rank; i++)
		chunk = chunk * chunks_across(layout, i) + box->start[i] / layout->chunk[i];
	return chunk;
}

/* The elements of a chunk in the block of a rank; none, if it uses another file. */
static struct box box_in(const struct sharing *sh, const struct box *chunk, int rank)
{
	struct box block = {0};

	if (sh->files[rank] == sh->files[sh->rank])
		block = box_of(sh->layout->rank, &sh->blocks[rank]);
	return box_common(sh->layout->rank, chunk, &block);
}

/* Returns the rank to store a chunk, with most elements. alone: this rank has all of them. */
static int chunk_owner(const struct sharing *sh, const struct box *chunk, bool *alone)
{
	unsigned rank = sh->layout->rank;
	struct box own = box_in(sh, chunk, sh->rank);
	uint64_t most = 0;
	int owner = sh->rank;

	*alone = box_elements(rank, &own) == box_elements(rank, chunk);
	for (int r = 0; !*alone && r < sh->ranks; r++) {
		struct box common = box_in(sh, chunk, r);
		uint64_t elements = box_elements(rank, &common);

		owner = elements > most ? r : owner;
		most = SL_MAX(most, elements);
	}
	return owner;
}

/* Other ranks' fragments of a chunk. */
static int add_fragments(struct sharing *sh, size_t cell, const struct box *chunk)
{
	struct sl_share *share = sh->share;
	unsigned rank = sh->layout->rank;

	for (int r = 0; r < sh->ranks; r++) {
		struct box box = box_in(sh, chunk, r);
		uint64_t elements = r == sh->rank ? 0 : box_elements(rank, &box);
		struct sl_foreign_fragment *fragments, *fragment;

		if (!elements)
			continue;
		fragments =
			realloc(share->fragments, (share->fragment_count + 1) * sizeof(*fragments));
		if (!fragments)
			return sl_fail(-ENOMEM, "no memory");
		share->fragments = fragments;
		fragment = &fragments[share->fragment_count++];
		*fragment = (struct sl_foreign_fragment){.cell = cell,
		                                         .from = r,
		                                         .bytes = sh->head +
		                                                  elements * sh->layout->element};
		for (unsigned i = 0; i < rank; i++) {
			fragment->at[i] = box.start[i] - chunk->start[i];
			fragment->extent[i] = box.end[i] - box.start[i];
		}
		share->fragment_bytes += fragment->bytes;
	}
	return 0;
}

enum { CHUNK_SENT, CHUNK_ALONE, CHUNK_SHARED, CHUNK_KINDS };

/* Adds the chunks of a kind, which follow each other. */
static int add_cells(struct sharing *sh, size_t chunks, int kind)
{
	struct sl_share *share = sh->share;
	int rc = 0;

	for (size_t number = 0; !rc && number < chunks; number++) {
		struct box box = {0}, own;
		uint64_t chunk = block_chunk_at(sh, number, &box);
		struct sl_cell *cell = &share->cells[share->count];
		bool alone;
		int owner = chunk_owner(sh, &box, &alone);

		if (kind != (owner != sh->rank ? CHUNK_SENT : alone ? CHUNK_ALONE : CHUNK_SHARED))
			continue;
		*cell = (struct sl_cell){.number = number, .chunk = chunk, .to = -1};
		if (kind == CHUNK_SENT) {
			own = box_in(sh, &box, sh->rank);
			cell->to = owner;
			cell->start = share->stride;
			cell->bytes = box_elements(sh->layout->rank, &own) * sh->layout->element;
			share->stride += (sh->head + cell->bytes + 15) / 16 * 16;
		}
		cell->fragment = share->fragment_count;
		if (kind == CHUNK_SHARED)
			rc = add_fragments(sh, share->count, &box);
		share->count++;
	}
	return rc;
}

int sl_blocks_share(const struct sl_h5_layout *layout, const struct sluice_block *blocks,
                    const int *files, int ranks, int rank, size_t head, struct sl_share **out)
{
	struct sl_share *share = *out = calloc(1, sizeof(*share));
	struct sharing sh = {layout, blocks, files, ranks, rank, head, share, {0}, {0}};
	size_t chunks = 1;
	int rc = 0;

	if (!share)
		return sl_fail(-ENOMEM, "no memory");
	share->block = blocks[rank];
	share->head = head;
	for (unsigned i = 0; i < layout->rank; i++) {
		uint64_t last = share->block.start[i] + share->block.count[i] - 1;

		sh.first[i] = share->block.start[i] / layout->chunk[i];
		sh.across[i] = last / layout->chunk[i] - sh.first[i] + 1;
		chunks *= sh.across[i];
	}
	share->cells = calloc(chunks, sizeof(*share->cells));
	if (!share->cells)
		rc = sl_fail(-ENOMEM, "no memory");
	for (int kind = 0; !rc && kind < CHUNK_KINDS; kind++) {
		rc = add_cells(&sh, chunks, kind);
		if (kind == CHUNK_SENT)
			share->sent = share->count;
		if (kind == CHUNK_ALONE)
			share->alone = share->count;
	}
	if (!rc && share->stride) {
		share->outgoing = malloc(share->stride * SLUICE_RANKS_AHEAD);
		if (!share->outgoing)
			rc = sl_fail(-ENOMEM, "no memory");
	}
	if (rc) {
		sl_share_free(share);
		*out = NULL;
	}
	return rc;
}
