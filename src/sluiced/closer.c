/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is given back to the kernel, which for a gigabyte takes a third of a second, and descriptors of clients, whose
 * close may wait for somebody. One thread does both. The account says at once that the memory is free. If the server dies
 * before, the memory is free when the last process has unmapped it. While a close hangs, the loop gives back what is more
 * than a part of all memory.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sluiced/server.h"

/* What is not larger costs less than to tell a thread. */
#define AT_ONCE (UINT64_C(1) << 20)
/* Of all memory: while so much is to be given back, the server does it itself. */
#define MUCH_PART 8

/* Of NVIDIA's devices, in the kernel's list: what stands for their memory is a file of one of them. */
#define NVIDIA_MAJOR 195

struct piece {
	struct sl_task task;
	struct sl_closer *closer;
	int fd;
	uint64_t range_bytes, ranges; /* to be taken out of it before it is closed */
};

static uint64_t bytes_of(uint64_t range_bytes, uint64_t ranges)
{
	return (unsigned)__builtin_popcountll(ranges) * range_bytes;
}

static void punch(int fd, uint64_t range_bytes, uint64_t ranges)
{
	for (unsigned from = 0, to; from < 64; from = to + 1) {
		for (to = from; to < 64 && ranges >> to & 1; to++)
			;
		/* What is sealed against writing stays with those who have it mapped. */
		if (to > from)
			(void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			                 (off_t)(from * range_bytes),
			                 (off_t)((to - from) * range_bytes));
	}
}

static void close_piece(struct sl_task *task)
{
	struct piece *piece = SL_CONTAINER(task, struct piece, task);

	punch(piece->fd, piece->range_bytes, piece->ranges);
	close(piece->fd);
	atomic_fetch_sub(&piece->closer->bytes, bytes_of(piece->range_bytes, piece->ranges));
	free(piece);
}

/* The thread has the descriptor then. */
static bool hand_over(struct sl_closer *closer, int fd, uint64_t range_bytes, uint64_t ranges)
{
	struct piece *piece = malloc(sizeof(*piece));

	if (!piece)
		return false;
	*piece = (struct piece){.task.run = close_piece,
	                        .closer = closer,
	                        .fd = fd,
	                        .range_bytes = range_bytes,
	                        .ranges = ranges};
	atomic_fetch_add(&closer->bytes, bytes_of(range_bytes, ranges));
	sl_pool_submit(closer->pool, &piece->task);
	return true;
}

void sl_memory_release(struct sl_server *server, int fd, uint64_t range_bytes, uint64_t ranges)
{
	struct sl_closer *closer = &server->closer;
	int own = -1;

	/* So that what counts as free and is not stays within bounds: one piece, or a part of all. */
	if (bytes_of(range_bytes, ranges) > AT_ONCE &&
	    atomic_load(&closer->bytes) <= server->settings->memory_bytes / MUCH_PART)
		own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own >= 0 && hand_over(closer, own, range_bytes, ranges))
		return;
	if (own >= 0)
		close(own);
	punch(fd, range_bytes, ranges);
}

bool sl_stray_is_memory(int fd)
{
	struct statx about;

	if (fcntl(fd, F_GET_SEALS) >= 0)
		return true;
	/* As it is known here: whoever serves the file is not asked. */
	return !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &about) &&
	       S_ISCHR(about.stx_mode) && about.stx_rdev_major == NVIDIA_MAJOR;
}

void sl_stray_close(struct sl_server *server, int fd)
{
	if (!hand_over(&server->closer, fd, 0, 0))
		close(fd);
}
