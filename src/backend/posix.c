/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking calls on the workers. */
#include <errno.h>
#include <pthread.h>
#include <sys/uio.h>
#include <time.h>

#include "backend/local.h"

#define LARGEST_CALL ((size_t)1 << 30)
/* Into the page cache of one file, at a time: it has one lock, and more would only wait for it, awake. */
#define WRITES_MOST 4

static ssize_t transfer(struct sl_piece *piece)
{
	struct iovec vector = {sl_piece_memory(piece),
	                       SL_MIN(piece->length - piece->moved, LARGEST_CALL)};
	off_t offset = (off_t)(piece->offset + piece->moved);
	int descriptor = sl_piece_descriptor(piece);
	ssize_t rc;

	if (piece->write)
		rc = pwritev2(descriptor, &vector, 1, offset, sl_piece_flags(piece));
	else
		rc = preadv2(descriptor, &vector, 1, offset, sl_piece_flags(piece));
	return rc < 0 ? -errno : rc;
}

/* A piece that was thought resident: true if the rest of it is not, and has gone another way. */
static bool gone_cold(struct sl_piece *piece, ssize_t result)
{
	struct sl_local *local = sl_local(piece->backend);

	if (result == -EOPNOTSUPP || result == -EINVAL)
		atomic_store(&local->use_nowait, false);
	else if (result != -EAGAIN &&
	         (result <= 0 || (size_t)result + piece->moved == piece->length))
		return false;
	if (result > 0)
		piece->moved += result;
	sl_auto_submit_cold(piece);
	return true;
}

static void submit(struct sl_piece *piece)
{
	sl_pool_submit(sl_local(piece->backend)->core->pool, &piece->task);
}

/* What goes around the page cache may have to end through it: that is rare, and little. */
static bool takes_turns(const struct sl_piece *piece)
{
	return piece->write && !piece->direct && !sl_local(piece->backend)->block_device;
}

/* True: now. False: when another piece of the file gives its turn on. */
static bool take_turn(struct sl_piece *piece)
{
	struct sl_local *local = sl_local(piece->backend);
	bool now;

	pthread_mutex_lock(&local->writes.mutex);
	now = local->writes.count < WRITES_MOST;
	if (now)
		local->writes.count++;
	else
		sl_list_append(&local->writes.waiting, &piece->link);
	pthread_mutex_unlock(&local->writes.mutex);
	return now;
}

/* Before the piece is over: the file is there as long as one of its pieces is not. */
static void give_turn(struct sl_local *local)
{
	struct sl_list *next;

	pthread_mutex_lock(&local->writes.mutex);
	next = sl_list_take(&local->writes.waiting);
	if (!next)
		local->writes.count--;
	pthread_mutex_unlock(&local->writes.mutex);
	if (next)
		submit(SL_CONTAINER(next, struct sl_piece, link));
}

static void finish(struct sl_piece *piece)
{
	if (piece->turn)
		give_turn(sl_local(piece->backend));
	sl_local_done(piece);
}

/* A file system may say "again" for ever. A cancel is seen after at most one pause. */
static void pause_in_vain(unsigned vain)
{
	struct timespec pause = {0, (1000000 << SL_MIN(vain, 6)) / 2};

	/* The first time it may be over at once. */
	if (vain > 1)
		nanosleep(&pause, NULL);
}

static void run(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);
	ssize_t result;

	if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed)) {
		piece->error = -ECANCELED;
		finish(piece);
		return;
	}
	do {
		pause_in_vain(piece->vain);
		result = transfer(piece);
		if (piece->nowait && gone_cold(piece, result))
			return;
	} while (!sl_transfer_step(piece, result));
	finish(piece);
}

void sl_posix_submit(struct sl_piece *piece)
{
	piece->task.run = run;
	piece->task.urgent = piece->urgent;
	piece->task.home = (uintptr_t)piece->data / piece->length;
	piece->turn = takes_turns(piece);
	if (!piece->turn || take_turn(piece))
		submit(piece);
}
