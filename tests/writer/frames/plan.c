/* SPDX-License-Identifier: Apache-2.0 */
#include "frames/plan.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_BYTES = 300000, MOST_CHUNKS = 60, MOST_FRAMES = 9 };

static const char *const names[PLAN_SERIES] = {"u", "fields/v", "fields/deep/w w", "fields/x"};
static const char *const scalars[PLAN_SCALARS] = {"time", "step", "a b"};
static const double numbers[] = {0.5, -1.5, 1e300};
static const int64_t integers[] = {-7};
static const struct sluice_attribute attributes[] = {
	{.name = "units", .text = "mol/m\xc2\xb3"},
	{.name = "numbers", .numbers = numbers, .count = 3},
	{.name = "integer", .integers = integers, .count = 1},
};

/* Edges, primes, and anything. */
static uint64_t draw_size(struct rng *r, uint64_t most)
{
	static const uint64_t liked[] = {1, 1, 2, 3, 7, 13, 31, 64, 127, 509, 1021, 4099, 65537};
	uint64_t size = rng_below(r, 2) ? liked[rng_below(r, COUNT_OF(liked))]
	                                : 1 + rng_below(r, rng_below(r, 2) ? 40 : most);

	return size < most ? size : most;
}

static uint64_t chunks_of(const struct sluice_series_options *o)
{
	uint64_t chunks = 1;

	for (unsigned d = 0; d < o->rank; d++)
		chunks *= (o->shape[d] + o->chunk[d] - 1) / o->chunk[d];
	return chunks;
}

static void draw_shape(struct rng *r, struct plan_series *s)
{
	struct sluice_series_options *o = &s->o;
	uint64_t room = MOST_BYTES / content_element_bytes(o->type);

	o->rank = (unsigned)rng_below(r, SLUICE_FRAME_RANK_MOST + 1);
	s->elements = 1;
	for (unsigned d = 0; d < o->rank; d++) {
		o->shape[d] = draw_size(r, room);
		room /= o->shape[d];
		s->elements *= o->shape[d];
	}
	s->bytes = s->elements * content_element_bytes(o->type);
	if (!rng_below(r, 3))
		return;
	for (unsigned d = 0; d < o->rank; d++)
		o->chunk[d] = draw_size(r, o->shape[d] * 2);
	for (unsigned d = o->rank; chunks_of(o) > MOST_CHUNKS; d = d ? d : o->rank)
		o->chunk[--d] *= 2;
}

static void draw_codec(struct rng *r, struct plan_series *s)
{
	struct sluice_series_options *o = &s->o;
	struct sluice_codec codec = {.size = sizeof(codec)};
	unsigned mantissa = content_mantissa(o->type);

	do
		if (sluice_codec_describe(rng_below(r, 8), &codec))
			codec.missing = "";
	while (codec.missing);
	o->codec = codec.name;
	if (rng_below(r, 2) && codec.most)
		o->level = codec.least + (int)rng_below(r, (size_t)(codec.most - codec.least) + 1);
	if (o->level > 9 || s->bytes * (size_t)o->level > MIB)
		o->level = codec.least;
	if (rng_below(r, 2))
		o->shuffle = SLUICE_SHUFFLE_NONE;
	else if (rng_below(r, 2) && codec.filter && codec.filter != 32008)
		o->shuffle = SLUICE_SHUFFLE_BYTE;
	if (mantissa && s->content.kind != CONTENT_BITS && !rng_below(r, 3))
		o->precision = 1 + (unsigned)rng_below(r, mantissa);
}

bool plan_is_contiguous(const struct plan_series *s)
{
	return s->o.frames && !strcmp(s->o.codec, "none") &&
	       !(s->o.flags & SLUICE_SERIES_FLETCHER32);
}

static void draw_series(struct plan *plan, struct plan_series *s)
{
	struct rng *r = &plan->r;
	uint64_t all = 0;

	s->o = (struct sluice_series_options)SLUICE_SERIES_OPTIONS_INIT;
	s->o.type = SLUICE_INT8 + (int)rng_below(r, SLUICE_FLOAT64);
	s->content = (struct content){s->o.type, rng_below(r, CONTENT_KINDS), rng_next(r)};
	draw_shape(r, s);
	draw_codec(r, s);
	s->o.depth = (unsigned)rng_below(r, 6);
	s->o.scalars = scalars;
	s->o.scalar_count = rng_below(r, PLAN_SCALARS + 1);
	s->o.attributes = attributes;
	s->o.attribute_count = rng_below(r, COUNT_OF(attributes) + 1);
	s->o.flags = rng_below(r, 8) ? 0 : SLUICE_SERIES_DROP;
	s->o.flags |= rng_below(r, 4) ? 0 : SLUICE_SERIES_FLETCHER32;
	s->devices = !rng_below(r, 3);
	s->born = rng_below(r, 4) ? 0 : (unsigned)rng_below(r, plan->sessions);
	for (unsigned i = s->born; i < plan->sessions; i++)
		all += s->wanted[i] = rng_below(r, MOST_FRAMES);
	if (rng_below(r, 2))
		s->o.frames = all + rng_below(r, 3);
	/* With several a fixed number does not lie in one piece. */
	if (rng_below(r, 2) && !plan_is_contiguous(s))
		s->o.chunk_frames = 1 + rng_below(r, 9);
}

void plan_draw(struct plan *plan, uint64_t number)
{
	*plan = (struct plan){.number = number, .r = rng_new(number)};
	plan->sessions = 1 + (unsigned)rng_below(&plan->r, PLAN_SESSIONS);
	plan->count = 1 + (unsigned)rng_below(&plan->r, PLAN_SERIES);
	for (unsigned i = 0; i < plan->count; i++) {
		plan->series[i].name = names[i];
		draw_series(plan, &plan->series[i]);
	}
}

static void print_list(FILE *to, const char *key, const uint64_t *list, unsigned count)
{
	fprintf(to, ", \"%s\": [", key);
	for (unsigned i = 0; i < count; i++)
		fprintf(to, "%s%" PRIu64, i ? ", " : "", list[i]);
	fprintf(to, "]");
}

static void print_series(const struct plan_series *s, FILE *to)
{
	const struct sluice_series_options *o = &s->o;

	fprintf(to, "{\"name\": \"%s\", \"type\": \"%s\", \"kind\": %d, \"seed\": %" PRIu64,
	        s->name, content_type_name(o->type), s->content.kind, s->content.seed);
	print_list(to, "shape", o->shape, o->rank);
	print_list(to, "chunk", o->chunk, o->chunk[0] ? o->rank : 0);
	print_list(to, "wanted", s->wanted, PLAN_SESSIONS);
	fprintf(to, ", \"frames\": %" PRIu64 ", \"fixed\": %" PRIu64, s->frames, o->frames);
	fprintf(to, ", \"codec\": \"%s\", \"level\": %d, \"shuffle\": %d, \"precision\": %u",
	        o->codec, o->level, o->shuffle, o->precision);
	fprintf(to, ", \"scalars\": %zu, \"attributes\": %zu, \"depth\": %u, \"flags\": %u}",
	        o->scalar_count, o->attribute_count, o->depth, o->flags);
}

void plan_print(const struct plan *plan, const char *path, FILE *to)
{
	fprintf(to, "{\"plan\": %" PRIu64 ", \"path\": \"%s\", \"series\": [", plan->number, path);
	for (unsigned i = 0; i < plan->count; i++) {
		fprintf(to, "%s", i ? ", " : "");
		print_series(&plan->series[i], to);
	}
	fprintf(to, "]}\n");
	fflush(to);
}
