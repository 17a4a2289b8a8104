/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks as they go to the file: gathered from a frame, rounded, shuffled and compressed.
 * Threads: the writer's pool; the file thread, for chunks of a bundle in a flush. */
#include <errno.h>
#include <string.h>

#include "frames/frames_internal.h"

#define COMPARED_BYTES 4096 /* at a time */

/* In the frame: no two chunks have an element in common. Both parts of complex numbers are
 * rounded. */
static double chunk_round(struct sluice_series *s, const struct sl_packed_chunk *packed)
{
	const struct sl_geometry *g = &s->geometry;
	bool complex = s->layout.type == SLUICE_COMPLEX64 || s->layout.type == SLUICE_COMPLEX128;
	size_t parts = complex ? 2 : 1;
	size_t bytes = g->element / parts;
	enum sl_float type = bytes == 2 ? SL_FLOAT16 : bytes == 4 ? SL_FLOAT32 : SL_FLOAT64;
	struct sl_run run;
	double most = 0;

	for (uint64_t at = 0; sl_block_run(g, &packed->block, &at, &run);) {
		char *from = packed->frame->data + run.frame * g->element;
		double error = sl_precision_round(type, from, run.elements * parts,
		                                  s->layout.precision, from);

		most = SL_MAX(most, error);
	}
	return most;
}

static void gather_block(const struct sl_geometry *g, const struct sl_block *block,
                         const char *data, bool shuffle, size_t plane, char *to)
{
	struct sl_run run;

	for (uint64_t at = 0; sl_block_run(g, block, &at, &run);) {
		const char *from = data + run.frame * g->element;

		if (shuffle)
			sl_shuffle_row(from, run.elements, g->element, to + run.chunk, plane);
		else
			memcpy(to + run.chunk * g->element, from, run.elements * g->element);
	}
}

/* Copies a chunk out of its frame. Other elements come from fragments, or are 0, as HDF5 fills. */
static void chunk_gather(const struct sluice_series *s, const struct sl_packed_chunk *packed,
                         bool shuffle, char *to)
{
	const struct sl_geometry *g = &s->geometry;
	size_t plane = g->chunk_bytes / g->element;
	uint64_t slot = packed->frame->locked.number % SLUICE_RANKS_AHEAD;

	if (packed->block.edge)
		memset(to, 0, g->chunk_bytes);
	gather_block(g, &packed->block, packed->frame->data, shuffle, plane, to);
	if (!s->share || packed->number < s->share->alone)
		return;
	for (size_t i = s->share->cells[packed->number].fragment; i < s->share->fragment_count;
	     i++) {
		const struct sl_foreign_fragment *fragment = &s->share->fragments[i];
		struct sl_geometry of;
		struct sl_block all;

		if (fragment->cell != packed->number)
			return;
		sl_fragment_geometry(g, fragment, &of, &all);
		gather_block(&of, &all, (char *)fragment->slots[slot] + s->share->head, shuffle,
		             plane, to);
	}
}

/* ------------------------------------------------------------------------------------- proof */

/* Whether a shuffled run equals the frame's. */
static bool chunk_run_equals(const struct sl_geometry *g, const char *planes,
                             const struct sl_run *run, const char *frame)
{
	char bytes[COMPARED_BYTES];
	size_t most = COMPARED_BYTES / g->element;

	for (size_t i = 0; i < run->elements; i += most) {
		size_t count = SL_MIN(most, run->elements - i);

		sl_unshuffle_row(planes + run->chunk + i, g->chunk_bytes / g->element, count,
		                 g->element, bytes);
		if (memcmp(bytes, frame + (run->frame + i) * g->element, count * g->element))
			return false;
	}
	return true;
}

/* Decodes the first compressed chunk of a series and compares it: a codec library may be broken. */
static int chunk_verify(struct sluice_series *s, void *state, const struct sl_packed_chunk *packed)
{
	const struct sl_geometry *g = &s->geometry;
	const char *frame = packed->frame->data, *decoded = s->decoded.memory;
	struct sl_run run;
	int rc = s->layout.codec->decompress(state, packed->bytes, packed->length,
	                                     s->decoded.memory, g->chunk_bytes);

	for (uint64_t at = 0; !rc && sl_block_run(g, &packed->block, &at, &run);) {
		bool same = s->layout.shuffle ? chunk_run_equals(g, decoded, &run, frame)
		                              : !memcmp(decoded + run.chunk * g->element,
		                                        frame + run.frame * g->element,
		                                        run.elements * g->element);

		if (!same)
			rc = sl_fail(-EBADMSG, "what %s compressed does not come back",
			             s->layout.codec->encoder);
	}
	sl_area_release(&s->decoded);
	return rc;
}

/* ----------------------------------------------------------------------------------- chunks */

static int chunk_compress(struct sluice_series *s, unsigned compressor,
                          struct sl_packed_chunk *packed)
{
	const struct sl_codec *codec = s->layout.codec;
	struct sl_packer *packer = s->packer;
	void *state = packer->states[compressor];
	size_t n = s->geometry.chunk_bytes;
	const char *in = packed->frame->data + packed->block.start;
	bool lies = packed->block.whole && !s->layout.shuffle;
	/* With a checksum, too, it is smaller than a chunk without filters. */
	size_t most = n - SL_MIN(n, s->layout.sum ? SL_FLETCHER32_BYTES + 1 : 1), length = 0;

	if (!lies) {
		in = packer->scratch[compressor];
		chunk_gather(s, packed, s->layout.shuffle, packer->scratch[compressor]);
	}
	if (sl_codec_pays(codec, state, in, n, packed->room, n))
		length = codec->compress(state, in, n, packed->room, most);
	packed->bytes = packed->room;
	packed->length = length ? length : codec->store(state, in, n, packed->room);
	packed->mask = 0;
	if (!length || atomic_load_explicit(&s->verified, memory_order_relaxed) ||
	    atomic_exchange(&s->verified, true))
		return 0;
	return chunk_verify(s, state, packed);
}

/* For a series without a codec. */
static void chunk_copy(struct sluice_series *s, struct sl_packed_chunk *packed)
{
	packed->mask = 0;
	packed->length = s->geometry.chunk_bytes;
	packed->bytes = packed->frame->data + packed->block.start;
	/* Another program's dataset may have a shuffle and no codec. */
	if ((!packed->block.whole && !s->layout.contiguous) || s->layout.sum || s->layout.shuffle) {
		chunk_gather(s, packed, s->layout.shuffle, packed->room);
		packed->bytes = packed->room;
	}
}

int sl_chunk_make(struct sluice_series *s, unsigned compressor, struct sl_packed_chunk *packed,
                  double *max_error)
{
	int rc = 0;

	*max_error = s->layout.precision ? chunk_round(s, packed) : 0;
	if (s->share && packed->number < s->share->sent) {
		sl_share_gather(s, packed);
		return 0;
	}
	if (s->layout.codec->filter)
		rc = chunk_compress(s, compressor, packed);
	else
		chunk_copy(s, packed);
	if (!rc && s->layout.sum) {
		sl_fletcher32_put(packed->room, packed->length);
		packed->length += SL_FLETCHER32_BYTES;
	}
	return rc;
}

double sl_chunk_make_plain(struct sluice_series *s, struct sl_packed_chunk *packed, uint64_t from,
                           uint64_t to)
{
	double max_error = 0;

	sl_geometry_block(&s->geometry, packed->number, &packed->block);
	packed->block.offset[0] = from;
	packed->block.extent[0] = to - from;
	if (s->layout.precision)
		max_error = chunk_round(s, packed);
	packed->block.offset[0] = 0;
	packed->block.extent[0] = to;
	packed->bytes = packed->frame->data;
	if (s->rows.memory) {
		chunk_gather(s, packed, false, s->rows.memory);
		packed->bytes = s->rows.memory;
	}
	return max_error;
}
