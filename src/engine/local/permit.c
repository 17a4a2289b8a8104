/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Permits of local files
 *
 * Bounds how many pieces of a file are with threads, or in the kernel, at a time: three counting
 * semaphores for each file, with a list of the pieces that wait. So a file whose storage does not
 * answer leaves threads and requests to other files. Any thread; no function waits.
 */
#include <errno.h>

#include "local/local_internal.h"

/* Writes into the page cache share a lock in the kernel: more threads would only spin. */
#define WRITES_MOST 4

/* No other thread has the file yet. */
void sl_permits_init(struct sl_local *local) SL_UNCHECKED
{
	const struct sl_settings *settings = &local->core->settings;

	for (unsigned kind = 0; kind < SL_PERMIT_KINDS; kind++) {
		sl_mutex_init(&local->permits[kind].mutex);
		sl_list_init(&local->permits[kind].waiting);
		local->permits[kind].start = sl_posix_start;
	}
	local->permits[SL_PERMIT_WRITE].most = (unsigned)SL_MIN(settings->workers, WRITES_MOST);
	local->permits[SL_PERMIT_CALL].most = (unsigned)settings->calls;
	local->permits[SL_PERMIT_RING].most =
		(unsigned)(settings->reactors * settings->reactor_depth);
	local->permits[SL_PERMIT_RING].start = sl_uring_start_piece;
}

void sl_permits_destroy(struct sl_local *local)
{
	for (unsigned kind = 0; kind < SL_PERMIT_KINDS; kind++)
		sl_mutex_destroy(&local->permits[kind].mutex);
}

void sl_local_end_cancelled(struct sl_piece *piece)
{
	sl_local_way_of(piece)->permits = NULL;
	piece->error = -ECANCELED;
	sl_local_done(piece);
}

void sl_permit_take(struct sl_piece *piece, enum sl_permit_kind kind)
{
	struct sl_permits *permits = &sl_local_of(piece->backend)->permits[kind];
	bool now, cancelled;

	sl_local_way_of(piece)->permits = permits;
	sl_mutex_lock(&permits->mutex);
	now = permits->count < permits->most;
	/* sl_permits_cancel() finds the piece in the list later, or has run for good. */
	cancelled = !now && atomic_load_explicit(&piece->cancelled, memory_order_relaxed);
	if (now)
		permits->count++;
	else if (!cancelled)
		sl_list_append(&permits->waiting, &piece->link);
	sl_mutex_unlock(&permits->mutex);
	if (now)
		permits->start(piece);
	else if (cancelled)
		sl_local_end_cancelled(piece);
}

void sl_permit_give(struct sl_piece *piece)
{
	struct sl_permits *permits = sl_local_way_of(piece)->permits;

	sl_local_way_of(piece)->permits = NULL;
	sl_pool_task_waits_no_more();
	sl_mutex_lock(&permits->mutex);
	struct sl_piece *next = sl_list_take_first(&permits->waiting, struct sl_piece, link);
	if (!next)
		permits->count--;
	sl_mutex_unlock(&permits->mutex);
	if (next)
		permits->start(next);
}

void sl_local_take_cancelled(struct sl_backend *backend, struct sl_list *from, struct sl_list *out)
{
	sl_list_each_of (piece, from, struct sl_piece, link)
		if (piece->backend == backend &&
		    atomic_load_explicit(&piece->cancelled, memory_order_relaxed))
			sl_list_move(&piece->link, out);
}

/* The engine holds the file open meanwhile. */
void sl_permits_cancel(struct sl_backend *backend)
{
	struct sl_list cancelled = SL_LIST_INIT(cancelled);

	for (unsigned kind = 0; kind < SL_PERMIT_KINDS; kind++) {
		struct sl_permits *permits = &sl_local_of(backend)->permits[kind];

		sl_mutex_lock(&permits->mutex);
		sl_local_take_cancelled(backend, &permits->waiting, &cancelled);
		sl_mutex_unlock(&permits->mutex);
	}
	sl_bounce_cancel(backend, &cancelled);
	sl_list_each_of (piece, &cancelled, struct sl_piece, link)
		sl_local_end_cancelled(piece);
}
