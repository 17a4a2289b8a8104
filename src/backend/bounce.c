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

#include "backend/local.h"

struct sl_bounce {
	size_t buffer_bytes;
	unsigned count;
	pthread_mutex_t mutex;
	struct {
		char *memory; /* NULL until the first use */
		bool failed;  /* there was no memory for it */
		struct sl_list waiting;
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
	pthread_mutex_init(&bounce->mutex, NULL);
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
	pthread_mutex_destroy(&bounce->mutex);
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

bool sl_bounce_submit(struct sl_piece *piece)
{
	struct sl_local *local = sl_local(piece->backend);
	struct sl_bounce *bounce = local->core->bounce;
	bool usable;

	pthread_mutex_lock(&bounce->mutex);
	/* Where other files have them all, which may be slow ones, it does without. */
	usable = ensure_memory(bounce) && (bounce->locked.free || local->bounces);
	if (usable && bounce->locked.free) {
		piece->bounce = bounce->locked.buffers[--bounce->locked.free];
		local->bounces++;
	} else if (usable)
		sl_list_append(&bounce->locked.waiting, &piece->link);
	/* A piece that waits is another thread's once the mutex is released. */
	if (!usable || !piece->bounce) {
		pthread_mutex_unlock(&bounce->mutex);
		return usable;
	}
	pthread_mutex_unlock(&bounce->mutex);
	launch(piece);
	return true;
}

/* Hands the buffer to the piece of the same file that has waited longest, or else to that of any: so a file that
 * waits keeps those that it has. */
static void release(struct sl_piece *piece)
{
	struct sl_local *local = sl_local(piece->backend);
	struct sl_bounce *bounce = local->core->bounce;
	struct sl_list *waiting = &bounce->locked.waiting;
	struct sl_piece *next = NULL;

	pthread_mutex_lock(&bounce->mutex);
	local->bounces--;
	if (!sl_list_empty(waiting))
		next = SL_CONTAINER(waiting->next, struct sl_piece, link);
	sl_list_each (link, waiting) {
		struct sl_piece *other = SL_CONTAINER(link, struct sl_piece, link);

		if (other->backend != piece->backend)
			continue;
		next = other;
		break;
	}
	if (next) {
		sl_list_remove(&next->link);
		next->bounce = piece->bounce;
		sl_local(next->backend)->bounces++;
	} else {
		bounce->locked.buffers[bounce->locked.free++] = piece->bounce;
	}
	pthread_mutex_unlock(&bounce->mutex);
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
