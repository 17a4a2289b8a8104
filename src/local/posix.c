/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking calls on the workers. */
#include <errno.h>
#include <pthread.h>
#include <sys/uio.h>
#include <time.h>

#include "local/local_internal.h"

#define LARGEST_CALL ((size_t)1 << 30)

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
		sl_local_done(piece);
		return;
	}
	do {
		pause_in_vain(piece->vain);
		result = transfer(piece);
		if (piece->nowait && gone_cold(piece, result))
			return;
	} while (!sl_transfer_step(piece, result));
	sl_local_done(piece);
}

void sl_posix_start(struct sl_piece *piece)
{
	struct sl_core *core = sl_local(piece->backend)->core;

	/* With NOWAIT a call waits for nobody. */
	sl_pool_submit(piece->nowait ? core->pool : core->waiting, &piece->task);
}

void sl_posix_submit(struct sl_piece *piece)
{
	bool page_cache = !piece->direct && !sl_local(piece->backend)->block_device;

	piece->task.run = run;
	piece->task.urgent = piece->urgent;
	piece->task.home = (uintptr_t)piece->data / piece->length;
	/* What comes from the reactors keeps its turn. */
	if (piece->nowait || piece->turns)
		sl_posix_start(piece);
	else
		sl_turn_take(piece, piece->write && page_cache ? SL_TURN_WRITE : SL_TURN_CALL);
}
