/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounce buffers
 *
 * Direct I/O of data that is not aligned in memory, as malloc() gives it: through a few buffers of
 * huge pages, with a copy on a worker. docs/performance.md compares that with the page cache.
 *
 * Threads: any; the workers copy. No function waits: a piece without a buffer is in a list.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "local/local_internal.h"

struct sl_bounce {
	size_t buffer_bytes;
	unsigned count;
	struct sl_mutex mutex;
	struct {
		char *memory; /* NULL until the first use */
		bool failed;  /* there was no memory for it */
		struct sl_list waiting;
		unsigned blocked; /* buffers of files whose storage may wait for a server */
		unsigned free;
		char *buffers[]; /* the first `free` are free */
	} locked SL_GUARDED_BY(&mutex);
};

/* No other thread has the buffers yet. */
int sl_bounce_new(const struct sl_settings *settings, struct sl_bounce **out) SL_UNCHECKED
{
	unsigned count = settings->bounce_bytes / settings->piece_bytes;
	struct sl_bounce *bounce;

	bounce = calloc(1, sizeof(*bounce) + count * sizeof(bounce->locked.buffers[0]));
	if (!bounce)
		return sl_fail(-ENOMEM, "no memory");
	bounce->buffer_bytes = settings->piece_bytes;
	bounce->count = count;
	sl_mutex_init(&bounce->mutex);
	sl_list_init(&bounce->locked.waiting);
	*out = bounce;
	return 0;
}

/* No other thread has the buffers any more. */
void sl_bounce_free(struct sl_bounce *bounce) SL_UNCHECKED
{
	if (!bounce)
		return;
	if (bounce->locked.memory)
		munmap(bounce->locked.memory, bounce->count * bounce->buffer_bytes);
	sl_mutex_destroy(&bounce->mutex);
	free(bounce);
}

/* Maps the buffers at the first use; each page is touched by the first piece that uses it. */
static bool bounce_map_locked(struct sl_bounce *bounce) SL_REQUIRES(&bounce->mutex)
{
	size_t bytes = bounce->count * bounce->buffer_bytes;

	if (bounce->locked.memory || bounce->locked.failed)
		return !bounce->locked.failed;
	/* Of a huge page the disk gets a single segment instead of a segment for each small one. */
	char *memory = sl_private_map(bytes);
	bounce->locked.failed = !memory;
	if (!memory)
		return false;
	bounce->locked.memory = memory;
	while (bounce->locked.free < bounce->count) {
		bounce->locked.buffers[bounce->locked.free++] = memory;
		memory += bounce->buffer_bytes;
	}
	return true;
}

static void bounce_copy_in(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);

	memcpy(sl_piece_memory(piece), piece->data + piece->moved, piece->length - piece->moved);
	sl_local_execute(piece);
}

/* Executes a piece that has its buffer. */
static void bounce_execute(struct sl_piece *piece)
{
	sl_local_way_of(piece)->skipped = piece->moved;
	if (piece->write) {
		piece->task.run = bounce_copy_in;
		sl_pool_submit(sl_local_of(piece->backend)->core->pool, &piece->task);
	} else {
		sl_local_execute(piece);
	}
}

/* Returns whether the piece may have a free buffer. At most half of the buffers are for files of
 * servers, which may not answer, so that other files have some. */
static bool bounce_allows_locked(const struct sl_bounce *bounce, const struct sl_piece *piece)
	SL_REQUIRES(&bounce->mutex)
{
	return !sl_local_of(piece->backend)->blocks ||
	       bounce->locked.blocked < SL_MAX(bounce->count / 2, 1);
}

static void bounce_assign_locked(struct sl_bounce *bounce, struct sl_piece *piece, char *buffer)
	SL_REQUIRES(&bounce->mutex)
{
	sl_local_way_of(piece)->bounce = buffer;
	bounce->locked.blocked += sl_local_of(piece->backend)->blocks;
}

bool sl_bounce_submit(struct sl_piece *piece)
{
	struct sl_bounce *bounce = sl_local_of(piece->backend)->core->bounce;
	bool usable, now, cancelled = false;

	sl_mutex_lock(&bounce->mutex);
	usable = bounce_map_locked(bounce);
	now = usable && bounce->locked.free && bounce_allows_locked(bounce, piece);
	if (now)
		bounce_assign_locked(bounce, piece, bounce->locked.buffers[--bounce->locked.free]);
	else if (usable)
		/* sl_bounce_cancel() finds the piece in the list later, or has run. */
		cancelled = atomic_load_explicit(&piece->cancelled, memory_order_relaxed);
	if (usable && !now && !cancelled)
		sl_list_append(&bounce->locked.waiting, &piece->link);
	/* From here on a piece that waits belongs to the thread that gives it a buffer. */
	sl_mutex_unlock(&bounce->mutex);
	if (now)
		bounce_execute(piece);
	else if (cancelled)
		sl_local_end_cancelled(piece);
	return usable;
}

void sl_bounce_cancel(struct sl_backend *backend, struct sl_list *out)
{
	struct sl_bounce *bounce = sl_local_of(backend)->core->bounce;

	sl_mutex_lock(&bounce->mutex);
	sl_local_take_cancelled(backend, &bounce->locked.waiting, out);
	sl_mutex_unlock(&bounce->mutex);
}

/* Gives the buffer to the piece that has waited longest of those that may have it. */
static void bounce_release(struct sl_piece *piece)
{
	struct sl_bounce *bounce = sl_local_of(piece->backend)->core->bounce;
	char *buffer = sl_local_way_of(piece)->bounce;
	struct sl_piece *next = NULL;

	sl_mutex_lock(&bounce->mutex);
	bounce->locked.blocked -= sl_local_of(piece->backend)->blocks;
	sl_list_each_of (waiting, &bounce->locked.waiting, struct sl_piece, link)
		if (bounce_allows_locked(bounce, waiting)) {
			next = waiting;
			break;
		}
	if (next) {
		sl_list_remove(&next->link);
		bounce_assign_locked(bounce, next, buffer);
	} else {
		bounce->locked.buffers[bounce->locked.free++] = buffer;
	}
	sl_mutex_unlock(&bounce->mutex);
	sl_local_way_of(piece)->bounce = NULL;
	if (next)
		bounce_execute(next);
}

static void bounce_copy_out(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);
	const struct sl_local_way *way = sl_local_way_of(piece);

	memcpy(piece->data + way->skipped, way->bounce + way->skipped, piece->moved - way->skipped);
	bounce_release(piece);
	sl_piece_done(piece);
}

bool sl_bounce_finish(struct sl_piece *piece)
{
	if (!piece->write && !piece->error) {
		piece->task.run = bounce_copy_out;
		sl_pool_submit(sl_local_of(piece->backend)->core->pool, &piece->task);
		return false;
	}
	bounce_release(piece);
	return true;
}
