/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The share of a process: frames are blocks of an array, and fragments of chunks travel. Most of a
 * writer's work for a sink is here.
 *
 * Threads: the pool and the file thread; the threads of the sink bring fragments and progress; the
 * program's wait.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frames/frames_internal.h"

void sl_share_free(struct sl_share *share)
{
	if (!share)
		return;
	for (size_t i = 0; i < share->fragment_count; i++)
		for (unsigned slot = 0; slot < SLUICE_RANKS_AHEAD; slot++)
			free(share->fragments[i].slots[slot]);
	free(share->fragments);
	free(share->cells);
	free(share->outgoing);
	free(share);
}

/* --------------------------------------------------------------------------------------- names */

#define NAMED (sizeof(((struct sl_rank_names *)0)->first) / sizeof(int))

void sl_rank_names_add(struct sl_rank_names *names, int rank)
{
	size_t named = SL_MIN((size_t)names->count, NAMED);

	for (size_t i = 0; i < named; i++)
		if (names->first[i] == rank)
			return;
	if (named < NAMED)
		names->first[named] = rank;
	names->count++;
}

void sl_rank_names_text(const struct sl_rank_names *names, char *out, size_t size)
{
	int named = SL_MIN(names->count, (int)NAMED), others = names->count - named;
	int n = snprintf(out, size, "%s", named > 1 ? "ranks" : "rank");

	for (int i = 0; i < named; i++)
		n += snprintf(out + n, size - (size_t)n, "%s %d", i ? "," : "", names->first[i]);
	if (others)
		snprintf(out + n, size - (size_t)n, " and %d others", others);
}

void sl_share_waits_for_locked(const struct sluice_series *s, struct sl_rank_names *names)
{
	const struct sl_share *share = s->share;
	const struct sl_frame *frame;

	*names = (struct sl_rank_names){0};
	if (!share || sl_list_empty(&s->locked.queue))
		return;
	frame = SL_CONTAINER(s->locked.queue.next, struct sl_frame, locked.link);
	if (frame->locked.number >= share->locked.limit)
		*names = share->locked.behind;
	else if (frame->locked.begun >= share->alone)
		for (size_t i = 0; i < share->fragment_count; i++)
			if (!share->fragments[i].slots[frame->locked.number % SLUICE_RANKS_AHEAD])
				sl_rank_names_add(names, share->fragments[i].from);
}

/* ----------------------------------------------------------------------------------- fragments */

void sl_share_gather(struct sluice_series *s, struct sl_packed_chunk *packed)
{
	const struct sl_share *share = s->share;
	const struct sl_cell *cell = &share->cells[packed->number];
	uint64_t slot = packed->frame->locked.number % SLUICE_RANKS_AHEAD;
	char *to = share->outgoing + slot * share->stride + cell->start;
	struct sl_geometry dense = s->geometry;
	struct sl_block block = packed->block;
	struct sl_run run;

	memcpy(dense.chunk, block.extent, sizeof(dense.chunk));
	memset(block.at, 0, sizeof(block.at));
	for (uint64_t at = 0; sl_block_run(&dense, &block, &at, &run);)
		memcpy(to + share->head + run.chunk * dense.element,
		       packed->frame->data + run.frame * dense.element,
		       run.elements * dense.element);
	packed->bytes = to;
	packed->length = share->head + cell->bytes;
	packed->mask = 0;
}

void sl_fragment_geometry(const struct sl_geometry *g, const struct sl_foreign_fragment *fragment,
                          struct sl_geometry *out, struct sl_block *block)
{
	*out = (struct sl_geometry){.element = g->element, .rank = g->rank};
	memcpy(out->shape, fragment->extent, sizeof(fragment->extent));
	memcpy(out->chunk, g->chunk, sizeof(out->chunk));
	*block = (struct sl_block){0};
	memcpy(block->extent, fragment->extent, sizeof(fragment->extent));
	memcpy(block->at, fragment->at, sizeof(fragment->at));
}

/* Before the frame is reported, because then fragments of another frame come to its slots. */
void sl_share_drop_fragments_locked(struct sl_frame *frame)
{
	struct sl_share *share = frame->series->share;
	uint64_t slot = frame->locked.number % SLUICE_RANKS_AHEAD;

	for (size_t i = 0; i < share->fragment_count; i++) {
		free(share->fragments[i].slots[slot]);
		share->fragments[i].slots[slot] = NULL;
	}
	share->locked.arrived[slot] = 0;
}

/* ---------------------------------------------------------------------------- from the sink */

bool sl_series_take_fragment(struct sluice_series *s, size_t fragment, uint64_t frame, void *bytes,
                             size_t n)
{
	struct sl_share *share = s->share;
	uint64_t slot = frame % SLUICE_RANKS_AHEAD;
	struct sluice_writer *w = s->writer;
	bool expected;

	sl_mutex_lock(&w->mutex);
	/* Others may have heard earlier that an earlier frame is complete. */
	expected = fragment < share->fragment_count && n == share->fragments[fragment].bytes &&
	           !share->fragments[fragment].slots[slot];
	if (expected) {
		share->fragments[fragment].slots[slot] = bytes;
		share->locked.arrived[slot]++;
		if (share->locked.arrived[slot] == share->fragment_count)
			sl_queue_kick_locked(w);
	}
	sl_mutex_unlock(&w->mutex);
	return expected;
}

void sl_series_sent(struct sluice_series *s, uint64_t frame)
{
	struct sluice_writer *w = s->writer;
	size_t *sending = &s->share->locked.sending[frame % SLUICE_RANKS_AHEAD];

	sl_mutex_lock(&w->mutex);
	if (!--*sending)
		sl_queue_kick_locked(w);
	sl_mutex_unlock(&w->mutex);
}

void sl_share_check_locked(struct sluice_writer *w)
{
	const struct sluice_series *stuck = NULL;

	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		uint64_t complete = s->share->locked.limit - SLUICE_RANKS_AHEAD;

		if (complete < SL_MIN(s->locked.next, s->share->locked.last))
			return;
		stuck = s->locked.next > s->share->locked.last ? s : stuck;
	}
	if (!stuck)
		return;
	sl_fail(-ENODATA, "rank %d has closed the writer after %" PRIu64 " frames of '%s'",
	        stuck->share->locked.leaver, stuck->share->locked.last, stuck->name);
	sl_writer_fail_locked(w, -ENODATA, "complete", NULL);
}

void sl_series_last(struct sluice_series *s, uint64_t last, int leaver)
{
	struct sl_share *share = s->share;

	sl_mutex_lock(&s->writer->mutex);
	if (last < share->locked.last) {
		share->locked.last = last;
		share->locked.leaver = leaver;
		pthread_cond_signal(&s->writer->work);
	}
	sl_mutex_unlock(&s->writer->mutex);
}

void sl_series_progress(struct sluice_series *s, uint64_t complete, uint64_t visible,
                        const struct sl_rank_names *behind)
{
	struct sluice_writer *w = s->writer;
	struct sluice_writer_counts *counts = &s->locked.counts;

	sl_mutex_lock(&w->mutex);
	s->share->locked.limit = complete + SLUICE_RANKS_AHEAD;
	s->share->locked.behind = *behind;
	counts->visible = SL_MAX(counts->visible, visible - s->first);
	if (w->flags & SLUICE_WRITER_DURABLE)
		counts->durable = counts->visible;
	sl_queue_kick_locked(w);
	pthread_cond_signal(&w->work);
	sl_mutex_unlock(&w->mutex);
}

/* ------------------------------------------------------------------------------------ waiting */

#define PUMP_NS ((int64_t)200000) /* between two calls of pump() */

int sl_sink_wait(struct sl_sink *sink, pthread_cond_t *condition, struct sl_mutex *mutex,
                 int64_t deadline)
{
	int64_t until = deadline;

	if (sink && sink->pumped) {
		sl_mutex_unlock(mutex);
		sink->ops->pump(sink);
		sl_mutex_lock(mutex);
		until = SL_MIN(deadline, sl_now() + PUMP_NS);
	}
	return sl_cond_wait(condition, mutex, until) && until == deadline ? -ETIMEDOUT : 0;
}
