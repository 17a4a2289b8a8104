/* SPDX-License-Identifier: Apache-2.0 */
/* A series is added: its dataset, and all the memory that it will need. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frames/pipeline.h"

/* ------------------------------------------------------------------------------------- memory */

/* Takes it from memory_bytes. */
static int take_bytes(struct sluice_writer *w, const char *name, uint64_t bytes)
{
	uint64_t had;
	bool fits;

	pthread_mutex_lock(&w->mutex);
	had = w->locked.bytes;
	fits = !w->memory_bytes || (had <= w->memory_bytes && bytes <= w->memory_bytes - had);
	if (fits)
		w->locked.bytes += bytes;
	pthread_mutex_unlock(&w->mutex);
	if (fits)
		return 0;
	return sl_fail(-ENOBUFS,
	               "'%s' needs %" PRIu64 " bytes of memory beside %" PRIu64
	               " that are taken; memory_bytes is %" PRIu64 " and would have to be %" PRIu64,
	               name, bytes, had, w->memory_bytes, had + bytes);
}

static void give_bytes(struct sluice_writer *w, uint64_t bytes)
{
	pthread_mutex_lock(&w->mutex);
	w->locked.bytes -= bytes;
	pthread_mutex_unlock(&w->mutex);
}

static int shape_frames(struct sluice_series *s)
{
	const struct sl_frame_layout *layout = &s->layout;
	struct sl_geometry *g = &s->geometry;
	int rc;

	*g = (struct sl_geometry){.element = layout->element, .rank = layout->rank};
	memcpy(g->shape, layout->shape, sizeof(layout->shape));
	memcpy(g->chunk, layout->chunk, sizeof(layout->chunk));
	rc = sl_geometry_init(g);
	s->frame_bytes = g->frame_bytes;
	s->stride = sl_whole_pages(g->frame_bytes);
	if (!rc && layout->gather > 1) {
		g->rank++;
		g->shape[0] = g->chunk[0] = layout->gather;
		memcpy(g->shape + 1, layout->shape, sizeof(layout->shape));
		memcpy(g->chunk + 1, layout->chunk, sizeof(layout->chunk));
		rc = sl_geometry_init(g);
	}
	if (!rc && s->stride > INT64_MAX / s->depth)
		rc = sl_fail(-EINVAL, "%u frames of %zu bytes are too much", s->depth,
		             s->frame_bytes);
	if (!rc && layout->contiguous && layout->frames > INT64_MAX / 2 / g->frame_bytes)
		rc = sl_fail(-EINVAL, "%" PRIu64 " frames of %zu bytes are too much for a file",
		             layout->frames, g->frame_bytes);
	/* Nothing has to be done to them. */
	if (layout->contiguous && !layout->precision)
		g->chunks = 0;
	return rc;
}

static int make_frames(struct sluice_series *s)
{
	size_t scalars = s->layout.scalar_count;
	int rc;

	s->bytes = (uint64_t)s->stride * s->depth;
	if (s->writer->memory_bytes)
		s->bytes += sl_frame_held(&s->layout);
	rc = take_bytes(s->writer, s->name, s->bytes);
	if (rc) {
		s->bytes = 0;
		return rc;
	}
	s->frame_count = s->depth + (size_t)s->writer->threads * SL_OUTPUTS + 1;
	s->frames = calloc(s->frame_count, sizeof(*s->frames));
	s->owners = calloc(s->depth, sizeof(*s->owners));
	if (!s->frames || !s->owners)
		return sl_fail(-ENOMEM, "no memory");
	rc = sl_area_take(&s->area, s->stride * s->depth);
	for (size_t i = 0; !rc && i < s->frame_count; i++) {
		struct sl_frame *frame = &s->frames[i];

		frame->series = s;
		if (i < s->depth) {
			frame->data = s->area.memory + i * s->stride;
			s->owners[i] = frame;
		}
		sl_list_init(&frame->locked.finished);
		sl_frame_recycle(frame);
		frame->scalars = scalars ? calloc(scalars, sizeof(double)) : NULL;
		if (scalars && !frame->scalars)
			return sl_fail(-ENOMEM, "no memory");
	}
	return rc;
}

static bool lies_whole(const struct sl_geometry *g)
{
	struct sl_block first, last;

	sl_geometry_block(g, 0, &first);
	sl_geometry_block(g, g->chunks - 1, &last);
	return first.whole && last.whole;
}

static int make_slabs(struct sluice_series *s)
{
	uint64_t gather = s->layout.gather, scalars = s->layout.scalar_count * gather, least;
	size_t stride = sl_whole_pages(s->geometry.frame_bytes);
	size_t row = lies_whole(&s->geometry) ? 0 : s->geometry.chunk_bytes, count;
	int rc;

	if (gather < 2)
		return 0;
	/* All frames that the program may have, and two slabs that are stored. */
	least = s->depth / gather + 3;
	count = SL_MAX(least, SL_SLABS);
	s->slab_bytes =
		(stride + scalars * sizeof(double) + gather * sizeof(struct sl_slab_slot)) * count +
		row;
	rc = take_bytes(s->writer, s->name, s->slab_bytes);
	if (rc) {
		s->slab_bytes = 0;
		return rc;
	}
	s->bytes += s->slab_bytes;
	s->slabs = calloc(count, sizeof(*s->slabs));
	if (!s->slabs)
		return sl_fail(-ENOMEM, "no memory");
	s->slab_count = count;
	rc = sl_area_take(&s->slab_area, count * stride);
	if (!rc)
		rc = sl_area_take(&s->rows, row);
	for (size_t i = 0; !rc && i < count; i++) {
		struct sl_frame *slab = &s->slabs[i];

		slab->series = s;
		slab->data = s->slab_area.memory + i * stride;
		slab->slots = calloc(gather, sizeof(*slab->slots));
		slab->scalars = scalars ? calloc(scalars, sizeof(double)) : NULL;
		sl_list_init(&slab->locked.finished);
		if (!slab->slots || (scalars && !slab->scalars))
			return sl_fail(-ENOMEM, "no memory");
		sl_frame_recycle(slab);
	}
	return rc;
}

static void drop_slabs(struct sluice_series *s)
{
	for (size_t i = 0; i < s->slab_count; i++) {
		free(s->slabs[i].slots);
		free(s->slabs[i].scalars);
	}
	give_bytes(s->writer, s->slab_bytes);
	s->bytes -= s->slab_bytes;
	sl_area_release(&s->slab_area);
	sl_area_release(&s->rows);
	free(s->slabs);
	s->slabs = NULL;
	s->slab_bytes = s->slab_count = s->locked.room = 0;
	sl_list_init(&s->locked.slabs);
}

/* Whether all chunks of a series lie in the frame as they will be in the file. */
static bool needs_no_room(const struct sluice_series *s)
{
	const struct sl_geometry *g = &s->geometry;

	if (s->layout.contiguous)
		return true;
	return !s->layout.codec->filter && lies_whole(g);
}

/* The tools of another series, if there are some of this kind. */
static struct sl_tools *find_tools(struct sluice_writer *w, const struct sl_tools *kind)
{
	sl_list_each (link, &w->locked.tools) {
		struct sl_tools *tools = SL_CONTAINER(link, struct sl_tools, link);

		if (tools->codec == kind->codec && tools->level == kind->level &&
		    tools->element == kind->element && tools->chunk_bytes == kind->chunk_bytes &&
		    tools->bare == kind->bare)
			return tools;
	}
	return NULL;
}

static int make_tools(struct sluice_series *s, const struct sl_tools *kind, struct sl_tools **out)
{
	struct sluice_writer *w = s->writer;
	struct sl_tools *tools;
	int rc = sl_tools_new(kind, &tools);

	if (rc)
		return rc;
	rc = take_bytes(w, s->name, tools->bytes);
	if (!rc) {
		rc = sl_tools_fill(tools);
		if (rc)
			give_bytes(w, tools->bytes);
	}
	if (rc) {
		sl_tools_free(tools);
		return rc;
	}
	pthread_mutex_lock(&w->mutex);
	sl_list_append(&w->locked.tools, &tools->link);
	pthread_mutex_unlock(&w->mutex);
	*out = tools;
	return 0;
}

static void drop_tools(struct sluice_series *s)
{
	struct sluice_writer *w = s->writer;
	struct sl_tools *tools = s->tools;

	s->tools = NULL;
	if (!tools || --tools->users)
		return;
	pthread_mutex_lock(&w->mutex);
	sl_list_remove(&tools->link);
	w->locked.bytes -= tools->bytes;
	pthread_mutex_unlock(&w->mutex);
	sl_tools_free(tools);
}

static void drop_proof(struct sluice_series *s)
{
	give_bytes(s->writer, s->proof.length);
	s->bytes -= s->proof.length;
	sl_area_release(&s->proof);
}

/* With writer->adding, which guards the numbers of users. */
static int take_tools(struct sluice_series *s)
{
	struct sl_tools kind = {.codec = s->layout.codec,
	                        .level = s->layout.level,
	                        .element = s->geometry.element,
	                        .chunk_bytes = s->geometry.chunk_bytes,
	                        .count = s->writer->threads};
	size_t proof = s->layout.codec->filter ? sl_whole_pages(s->geometry.chunk_bytes) : 0;
	int rc;

	kind.bare = needs_no_room(s);
	if (kind.bare && !s->layout.precision)
		return 0;
	s->tools = find_tools(s->writer, &kind);
	rc = s->tools ? 0 : make_tools(s, &kind, &s->tools);
	if (rc)
		return rc;
	s->tools->users++;
	rc = take_bytes(s->writer, s->name, proof);
	if (rc)
		return rc;
	s->bytes += proof;
	return sl_area_take(&s->proof, proof);
}

/* ------------------------------------------------------------------------------------ dataset */

struct adding {
	struct sl_errand errand;
	struct sluice_series *series;
	const struct sl_frame_set *set;
};

/* On the keeper. */
static int add_dataset(struct sl_errand *errand)
{
	struct adding *adding = SL_CONTAINER(errand, struct adding, errand);
	struct sluice_series *s = adding->series;
	int rc = sl_frame_file_add(s->writer->file, s->name, &s->layout, adding->set, &s->dataset,
	                           &s->first);

	if (rc)
		return rc;
	s->mask_codec = sl_frame_file_mask_codec(s->dataset);
	s->mask_shuffle = sl_frame_file_mask_shuffle(s->dataset);
	s->plain.mask = s->mask_shuffle;
	rc = s->layout.contiguous ? sl_direct_open(s) : 0;
	if (rc) {
		sl_frame_file_drop(s->dataset);
		s->dataset = NULL;
	}
	return rc;
}

/* On the keeper. */
static int drop_dataset(struct sl_errand *errand)
{
	sl_frame_file_drop(SL_CONTAINER(errand, struct adding, errand)->series->dataset);
	return 0;
}

static bool is_same(const struct sl_frame_layout *a, const struct sl_frame_layout *b)
{
	return a->codec == b->codec && a->gather == b->gather && a->level == b->level &&
	       a->contiguous == b->contiguous && a->precision == b->precision &&
	       !memcmp(a->chunk, b->chunk, a->rank * sizeof(a->chunk[0]));
}

/* What the dataset has may be other than what was asked for: then it is continued as it is. */
static int ask_dataset(struct sluice_series *s, const struct sl_frame_set *set)
{
	struct sl_frame_layout asked = s->layout;
	struct adding adding = {.errand = {.run = add_dataset}, .series = s, .set = set};
	int rc = sl_writer_ask(s->writer, &adding.errand);

	s->layout.scalars = s->layout.dimensions = NULL;
	s->layout.attributes = NULL;
	if (rc || is_same(&asked, &s->layout))
		return rc;
	drop_tools(s);
	drop_proof(s);
	drop_slabs(s);
	rc = shape_frames(s);
	if (!rc)
		rc = make_slabs(s);
	return rc ? rc : take_tools(s);
}

/* The chunks of a slab, as they are in the file. */
static int read_slab(struct sluice_series *s, struct sl_frame *slab)
{
	const struct sl_geometry *g = &s->geometry;
	char *chunk = malloc(g->chunk_bytes);
	int rc = chunk ? 0 : sl_fail(-ENOMEM, "no memory");

	for (size_t i = 0; !rc && i < g->chunks; i++) {
		struct sl_block block;
		struct sl_run run;

		sl_geometry_block(g, i, &block);
		rc = sl_frame_file_read(s->dataset, &s->layout, slab->locked.number,
		                        block.offset + 1, chunk, g->chunk_bytes);
		for (uint64_t at = 0; !rc && sl_block_run(g, &block, &at, &run);)
			memcpy(slab->data + run.frame * g->element, chunk + run.chunk * g->element,
			       run.elements * g->element);
	}
	free(chunk);
	return rc;
}

/* The last chunk has only a part of its frames: it comes to lie in the file as those do that are gathered. On the keeper. */
static int resume(struct sl_errand *errand)
{
	struct sluice_series *s = SL_CONTAINER(errand, struct adding, errand)->series;
	uint64_t count = s->first % s->layout.gather;
	struct sl_frame *slab = sl_slab_open(s, s->first - count);
	double max_error;
	int rc = read_slab(s, slab);

	for (uint64_t i = 0; i < count; i++)
		slab->slots[i].there = true;
	slab->locked.taken = slab->locked.there = slab->locked.rows = count;
	s->locked.room -= count;
	return rc ? rc : sl_keeper_rows(slab, 0, count, &max_error);
}

static int ask_series(struct sluice_series *s, const struct sl_frame_set *set)
{
	struct adding adding = {.errand = {.run = resume}, .series = s};
	int rc = ask_dataset(s, set);

	if (!rc && s->slabs && s->first % s->layout.gather)
		rc = sl_writer_ask(s->writer, &adding.errand);
	if (rc && s->dataset) {
		char message[1024];

		snprintf(message, sizeof(message), "%s", sluice_last_message());
		adding.errand = (struct sl_errand){.run = drop_dataset};
		sl_writer_ask(s->writer, &adding.errand);
		sl_fail(rc, "%s", message);
	}
	return rc;
}

/* -------------------------------------------------------------------------------------- life */

void sl_series_close(struct sluice_series *s)
{
	/* The keeper knows of errors already. */
	sluice_discard(s->file);
	sluice_discard(s->mirror);
	s->file = s->mirror = NULL;
}

void sl_series_free(struct sluice_series *s)
{
	sl_series_close(s);
	for (size_t i = 0; s->frames && i < s->frame_count; i++)
		free(s->frames[i].scalars);
	drop_tools(s);
	drop_slabs(s);
	give_bytes(s->writer, s->bytes);
	sl_area_release(&s->area);
	sl_area_release(&s->proof);
	pthread_cond_destroy(&s->freed);
	free(s->frames);
	free(s->owners);
	free(s->name);
	free(s);
}

static int new_series(struct sluice_writer *w, const char *name,
                      const struct sluice_series_options *o, struct sl_frame_set *set,
                      struct sluice_series **out)
{
	struct sluice_series *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return sl_fail(-ENOMEM, "no memory");
	s->writer = w;
	s->depth = o->depth ? o->depth : 2;
	s->flags = o->flags;
	sl_condition_init(&s->freed);
	sl_list_init(&s->locked.free);
	sl_list_init(&s->locked.spare);
	sl_list_init(&s->locked.line);
	sl_list_init(&s->locked.slabs);
	s->name = strdup(name);
	rc = s->name ? sl_series_options(o, w->threads, &s->layout, set)
	             : sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = shape_frames(s);
	if (!rc)
		rc = make_frames(s);
	if (!rc)
		rc = make_slabs(s);
	if (!rc)
		rc = take_tools(s);
	if (!rc)
		rc = sl_mirror_open(s);
	if (!rc)
		rc = ask_series(s, set);
	if (rc) {
		sl_series_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

static int check_name(struct sluice_writer *w, const char *name)
{
	int rc = sl_writer_check(w);

	sl_list_each (link, &w->locked.series) {
		const char *other = SL_CONTAINER(link, struct sluice_series, locked.link)->name;

		if (!rc && !strcmp(name + (*name == '/'), other + (*other == '/')))
			rc = sl_fail(-EEXIST, "this writer has a series '%s'", name);
	}
	return rc;
}

/* With writer->adding. */
static int add(struct sluice_writer *w, const char *name, const struct sluice_series_options *o,
               struct sluice_series **out)
{
	struct sl_frame_set set = {0};
	struct sluice_series *s = NULL;
	int rc;

	pthread_mutex_lock(&w->mutex);
	rc = check_name(w, name);
	pthread_mutex_unlock(&w->mutex);
	if (!rc)
		rc = new_series(w, name, o, &set, &s);
	if (rc)
		return rc;
	pthread_mutex_lock(&w->mutex);
	s->locked.next = s->first;
	sl_list_append(&w->locked.series, &s->locked.link);
	w->locked.dirty = true;
	if (w->locked.dirty_since == SL_FOREVER)
		w->locked.dirty_since = sl_now();
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->mutex);
	*out = s;
	return 0;
}

int sluice_series_add(sluice_writer *w, const char *dataset, const struct sluice_series_options *o,
                      sluice_series **out)
{
	struct sluice_series_options options = {0};
	int rc = w ? sl_context_check(w->ctx)
	           : sl_fail(-EINVAL, "sluice_series_add: the writer is NULL");

	if (rc)
		return rc;
	if (!dataset || !dataset[dataset[0] == '/'] || !out)
		return sl_fail(-EINVAL, "sluice_series_add: %s",
		               out ? "the dataset has no name" : "out is NULL");
	if (!o || o->size < sizeof(o->size))
		return sl_fail(-EINVAL, "series options: %s", o ? "size is not set" : "missing");
	memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	pthread_mutex_lock(&w->adding);
	rc = add(w, dataset, &options, out);
	pthread_mutex_unlock(&w->adding);
	return rc;
}
