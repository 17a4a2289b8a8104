/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk of a frame becomes what it will be in the file: rounded, shuffled, compressed. */
#include <errno.h>
#include <string.h>

#include "frames/pipeline.h"

#define PROOF_BYTES 4096 /* that are compared at a time */

static enum sl_float float_of(enum sluice_type type)
{
	return type == SLUICE_FLOAT16   ? SL_FLOAT16
	       : type == SLUICE_FLOAT32 ? SL_FLOAT32
	                                : SL_FLOAT64;
}

/* In the frame, which is ours: no two chunks have an element in common. */
static double round_block(struct sluice_series *s, const struct sl_output *output)
{
	const struct sl_geometry *g = &s->geometry;
	struct sl_run run;
	double most = 0;

	for (uint64_t at = 0; sl_block_run(g, &output->block, &at, &run);) {
		char *from = output->frame->data + run.frame * g->element;
		double error = sl_precision_round(float_of(s->layout.type), from, run.elements,
		                                  s->layout.precision, from);

		most = SL_MAX(most, error);
	}
	return most;
}

/* What the frame does not have of a chunk becomes 0, HDF5's fill value. */
static void gather(const struct sluice_series *s, const struct sl_output *output, bool shuffle,
                   char *to)
{
	const struct sl_geometry *g = &s->geometry;
	size_t plane = g->chunk_bytes / g->element;
	struct sl_run run;

	if (output->block.edge)
		memset(to, 0, g->chunk_bytes);
	for (uint64_t at = 0; sl_block_run(g, &output->block, &at, &run);) {
		const char *from = output->frame->data + run.frame * g->element;

		if (shuffle)
			sl_shuffle_row(from, run.elements, g->element, to + run.chunk, plane);
		else
			memcpy(to + run.chunk * g->element, from, run.elements * g->element);
	}
}

/* ------------------------------------------------------------------------------------- proof */

/* Whether a shuffled run is that of the frame. */
static bool run_is(const struct sl_geometry *g, const char *planes, const struct sl_run *run,
                   const char *frame)
{
	char bytes[PROOF_BYTES];
	size_t most = PROOF_BYTES / g->element;

	for (size_t i = 0; i < run->elements; i += most) {
		size_t count = SL_MIN(most, run->elements - i);

		sl_unshuffle_row(planes + run->chunk + i, g->chunk_bytes / g->element, count,
		                 g->element, bytes);
		if (memcmp(bytes, frame + (run->frame + i) * g->element, count * g->element))
			return false;
	}
	return true;
}

/* The first chunk of a series that is compressed is decoded, and has to be what the frame has: so a
 * library that does not do what it says is known before anything is lost. */
static int prove(struct sluice_series *s, void *state, const struct sl_output *output)
{
	const struct sl_geometry *g = &s->geometry;
	const char *frame = output->frame->data, *decoded = s->proof.memory;
	struct sl_run run;
	int rc = s->layout.codec->decompress(state, output->bytes, output->length, s->proof.memory,
	                                     g->chunk_bytes);

	for (uint64_t at = 0; !rc && sl_block_run(g, &output->block, &at, &run);) {
		bool same = s->layout.shuffle ? run_is(g, decoded, &run, frame)
		                              : !memcmp(decoded + run.chunk * g->element,
		                                        frame + run.frame * g->element,
		                                        run.elements * g->element);

		if (!same)
			rc = sl_fail(-EBADMSG, "what %s compressed does not come back",
			             s->layout.codec->encoder);
	}
	sl_area_release(&s->proof);
	return rc;
}

/* ----------------------------------------------------------------------------------- chunks */

/*
 * A chunk that does not become smaller. If it lies in the frame as it is, the file gets that: it costs
 * us nothing, and readers no filter. Otherwise it is as gathered, and shuffled if that is so.
 */
static void keep_raw(struct sluice_series *s, char **scratch, const char *gathered,
                     struct sl_output *output)
{
	output->length = s->geometry.chunk_bytes;
	output->mask = s->mask_codec;
	/* Frames of it may lie there so already. */
	if (s->slabs && !output->block.whole) {
		gather(s, output, false, output->room);
		output->mask |= s->mask_shuffle;
		output->bytes = output->room;
		return;
	}
	if (output->block.whole) {
		output->bytes = output->frame->data + output->block.start;
		output->mask |= s->mask_shuffle;
		return;
	}
	if (gathered == *scratch) {
		*scratch = output->room;
		output->room = (char *)(uintptr_t)gathered;
	}
	output->bytes = output->room;
}

static int compress(struct sluice_series *s, unsigned compressor, struct sl_output *output)
{
	const struct sl_codec *codec = s->layout.codec;
	struct sl_tools *tools = s->tools;
	void *state = tools->states[compressor];
	size_t n = s->geometry.chunk_bytes;
	const char *in = output->frame->data + output->block.start;
	bool lies = output->block.whole && !s->layout.shuffle;
	size_t length = 0;

	if (!lies) {
		in = tools->scratch[compressor];
		gather(s, output, s->layout.shuffle, tools->scratch[compressor]);
	}
	if (sl_codec_pays(codec, state, in, n, output->room, n))
		length = codec->compress(state, in, n, output->room, n - 1);
	if (!length) {
		keep_raw(s, &tools->scratch[compressor], in, output);
		return 0;
	}
	output->bytes = output->room;
	output->length = length;
	output->mask = 0;
	if (atomic_load_explicit(&s->verified, memory_order_relaxed) ||
	    atomic_exchange(&s->verified, true))
		return 0;
	return prove(s, state, output);
}

int sl_chunk_make(struct sluice_series *s, unsigned compressor, struct sl_output *output,
                  double *max_error)
{
	*max_error = s->layout.precision ? round_block(s, output) : 0;
	if (s->layout.codec->filter)
		return compress(s, compressor, output);
	/* A dataset of somebody else may have a shuffle and no codec; what is gathered is shuffled. */
	output->mask = s->mask_shuffle;
	output->length = s->geometry.chunk_bytes;
	output->bytes = output->frame->data + output->block.start;
	if (!output->block.whole && !s->layout.contiguous) {
		gather(s, output, s->layout.shuffle, output->room);
		output->bytes = output->room;
		output->mask = 0;
	}
	return 0;
}

double sl_chunk_rows(struct sluice_series *s, struct sl_output *output, uint64_t from, uint64_t to)
{
	double max_error = 0;

	sl_geometry_block(&s->geometry, output->number, &output->block);
	output->block.offset[0] = from;
	output->block.extent[0] = to - from;
	if (s->layout.precision)
		max_error = round_block(s, output);
	output->block.offset[0] = 0;
	output->block.extent[0] = to;
	output->bytes = output->frame->data;
	if (s->rows.memory) {
		gather(s, output, false, s->rows.memory);
		output->bytes = s->rows.memory;
	}
	return max_error;
}
