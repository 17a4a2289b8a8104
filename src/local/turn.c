/* SPDX-License-Identifier: Apache-2.0 */
/* Turns: how many pieces of one local file are with threads, or in the kernel, at a time. */
#include <errno.h>

#include "local/local_internal.h"

/* Writes into the page cache of one file take one lock, and more threads would only wait for it, awake. */
#define WRITES_MOST 4

void sl_turns_init(struct sl_local *local)
{
	const struct sl_settings *settings = &local->core->settings;
	for (unsigned kind = 0; kind < SL_TURN_KINDS; kind++) {
		sl_mutex_init(&local->turns[kind].mutex);
		sl_list_init(&local->turns[kind].waiting);
		local->turns[kind].start = sl_posix_start;
	}
	local->turns[SL_TURN_WRITE].most = (unsigned)SL_MIN(settings->workers, WRITES_MOST);
	local->turns[SL_TURN_CALL].most = (unsigned)settings->calls;
	local->turns[SL_TURN_RING].most = (unsigned)(settings->reactors * settings->reactor_depth);
	local->turns[SL_TURN_RING].start = sl_uring_start_piece;
}

void sl_turns_destroy(struct sl_local *local)
{
	for (unsigned kind = 0; kind < SL_TURN_KINDS; kind++)
		sl_mutex_destroy(&local->turns[kind].mutex);
}

void sl_local_end_cancelled(struct sl_piece *piece)
{
	piece->turns = NULL;
	piece->error = -ECANCELED;
	sl_local_done(piece);
}

void sl_turn_take(struct sl_piece *piece, enum sl_turn_kind kind)
{
	struct sl_turns *turns = &sl_local(piece->backend)->turns[kind];
	bool now, cancelled;

	piece->turns = turns;
	sl_mutex_lock(&turns->mutex);
	now = turns->count < turns->most;
	/* sl_turns_cancel() comes later, and finds it, or has been, and is not heard of again. */
	cancelled = !now && atomic_load_explicit(&piece->cancelled, memory_order_relaxed);
	if (now)
		turns->count++;
	else if (!cancelled)
		sl_list_append(&turns->waiting, &piece->link);
	sl_mutex_unlock(&turns->mutex);
	if (now)
		turns->start(piece);
	else if (cancelled)
		sl_local_end_cancelled(piece);
}

void sl_turn_give(struct sl_piece *piece)
{
	struct sl_turns *turns = piece->turns;
	struct sl_list *next;

	if (!turns)
		return;
	piece->turns = NULL;
	sl_pool_task_waits_no_more();
	sl_mutex_lock(&turns->mutex);
	next = sl_list_take(&turns->waiting);
	if (!next)
		turns->count--;
	sl_mutex_unlock(&turns->mutex);
	if (next)
		turns->start(SL_CONTAINER(next, struct sl_piece, link));
}

void sl_local_take_cancelled(struct sl_backend *backend, struct sl_list *from, struct sl_list *out)
{
	struct sl_list *next;

	for (struct sl_list *link = from->next; link != from; link = next) {
		struct sl_piece *piece = SL_CONTAINER(link, struct sl_piece, link);

		next = link->next;
		if (piece->backend != backend ||
		    !atomic_load_explicit(&piece->cancelled, memory_order_relaxed))
			continue;
		sl_list_remove(link);
		sl_list_append(out, link);
	}
}

/* The file is there meanwhile: the engine holds it. */
void sl_turns_cancel(struct sl_backend *backend)
{
	struct sl_list cancelled, *link;

	sl_list_init(&cancelled);
	for (unsigned kind = 0; kind < SL_TURN_KINDS; kind++) {
		struct sl_turns *turns = &sl_local(backend)->turns[kind];

		sl_mutex_lock(&turns->mutex);
		sl_local_take_cancelled(backend, &turns->waiting, &cancelled);
		sl_mutex_unlock(&turns->mutex);
	}
	sl_bounce_cancel(backend, &cancelled);
	while ((link = sl_list_take(&cancelled)))
		sl_local_end_cancelled(SL_CONTAINER(link, struct sl_piece, link));
}
