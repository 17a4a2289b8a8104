/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct I/O of data that is not aligned as the disk wants it, which is what malloc() gives: by way
 * of a few buffers of huge pages, with a copy on a worker. docs/performance.md compares it with the
 * page cache.
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
		unsigned blocked; /* buffers that files have whose storage may wait for a server */
		unsigned free;
		char *buffers[]; /* the first `free` are nobody's */
	} locked;                /* guarded by mutex */
};

int sl_bounce_new(const struct sl_settings *settings, struct sl_bounce **out)
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

void sl_bounce_free(struct sl_bounce *bounce)
{
	if (!bounce)
		return;
	if (bounce->locked.memory)
		munmap(bounce->locked.memory, bounce->count * bounce->buffer_bytes);
	sl_mutex_destroy(&bounce->mutex);
	free(bounce);
}

/* The mutex is held. Pages are touched by whoever uses them first. */
static bool ensure_memory(struct sl_bounce *bounce)
{
	size_t bytes = bounce->count * bounce->buffer_bytes;
	char *memory;

	if (bounce->locked.memory || bounce->locked.failed)
		return !bounce->locked.failed;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bounce->locked.failed = memory == MAP_FAILED;
	if (bounce->locked.failed)
		return false;
	/* One segment for the disk instead of one for each page. */
	madvise(memory, bytes, MADV_HUGEPAGE);
	bounce->locked.memory = memory;
	while (bounce->locked.free < bounce->count) {
		bounce->locked.buffers[bounce->locked.free++] = memory;
		memory += bounce->buffer_bytes;
	}
	return true;
}

static void copy_in(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);

	memcpy(piece->bounce + piece->moved, piece->data + piece->moved,
	       piece->length - piece->moved);
	sl_auto_execute(piece);
}

/* The piece has its buffer. */
static void launch(struct sl_piece *piece)
{
	piece->bounced = piece->moved;
	if (piece->write) {
		piece->task.run = copy_in;
		sl_pool_submit(sl_local(piece->backend)->core->pool, &piece->task);
	} else {
		sl_auto_execute(piece);
	}
}

/*
 * Whether the piece may have a buffer that is free; the mutex is held. Files whose storage may wait for a server
 * have no more than half of them, so that the others have some.
 */
static bool may_have(const struct sl_bounce *bounce, const struct sl_piece *piece)
{
	return !sl_local(piece->backend)->blocks ||
	       bounce->locked.blocked < SL_MAX(bounce->count / 2, 1);
}

/* The mutex is held. */
static void give(struct sl_bounce *bounce, struct sl_piece *piece, char *buffer)
{
	piece->bounce = buffer;
	bounce->locked.blocked += sl_local(piece->backend)->blocks;
}

bool sl_bounce_submit(struct sl_piece *piece)
{
	struct sl_bounce *bounce = sl_local(piece->backend)->core->bounce;
	bool usable, now, cancelled = false;

	sl_mutex_lock(&bounce->mutex);
	usable = ensure_memory(bounce);
	now = usable && bounce->locked.free && may_have(bounce, piece);
	if (now)
		give(bounce, piece, bounce->locked.buffers[--bounce->locked.free]);
	else if (usable)
		/* sl_bounce_cancel() comes later, and finds it, or has been, and is not heard of again. */
		cancelled = atomic_load_explicit(&piece->cancelled, memory_order_relaxed);
	if (usable && !now && !cancelled)
		sl_list_append(&bounce->locked.waiting, &piece->link);
	/* A piece that waits is another thread's from here on. */
	sl_mutex_unlock(&bounce->mutex);
	if (now)
		launch(piece);
	else if (cancelled)
		sl_local_end_cancelled(piece);
	return usable;
}

void sl_bounce_cancel(struct sl_backend *backend, struct sl_list *out)
{
	struct sl_bounce *bounce = sl_local(backend)->core->bounce;

	sl_mutex_lock(&bounce->mutex);
	sl_local_take_cancelled(backend, &bounce->locked.waiting, out);
	sl_mutex_unlock(&bounce->mutex);
}

/* Hands the buffer to the piece that has waited longest of those that may have it. */
static void release(struct sl_piece *piece)
{
	struct sl_bounce *bounce = sl_local(piece->backend)->core->bounce;
	struct sl_piece *next = NULL;

	sl_mutex_lock(&bounce->mutex);
	bounce->locked.blocked -= sl_local(piece->backend)->blocks;
	sl_list_each (link, &bounce->locked.waiting) {
		next = SL_CONTAINER(link, struct sl_piece, link);
		if (may_have(bounce, next))
			break;
		next = NULL;
	}
	if (next) {
		sl_list_remove(&next->link);
		give(bounce, next, piece->bounce);
	} else {
		bounce->locked.buffers[bounce->locked.free++] = piece->bounce;
	}
	sl_mutex_unlock(&bounce->mutex);
	piece->bounce = NULL;
	if (next)
		launch(next);
}

static void copy_out(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);

	memcpy(piece->data + piece->bounced, piece->bounce + piece->bounced,
	       piece->moved - piece->bounced);
	release(piece);
	sl_piece_done(piece);
}

void sl_local_done(struct sl_piece *piece)
{
	sl_turn_give(piece);
	if (piece->bounce && !piece->write && !piece->error) {
		piece->task.run = copy_out;
		sl_pool_submit(sl_local(piece->backend)->core->pool, &piece->task);
		return;
	}
	if (piece->bounce)
		release(piece);
	sl_piece_done(piece);
}
