/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freeing without waiting: a thread gives memory back to the kernel and closes descriptors of
 * clients.
 *
 * Giving back a gigabyte takes a third of a second, and a close may wait for another process. The
 * account counts the memory as free at once. If the server dies first, the memory is free when the
 * last process has unmapped it. While a close hangs, the server's thread itself gives back memory
 * beyond a part of the total.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sluiced/memory/devices.h"

/* Freeing less costs less than waking a thread. */
#define AT_ONCE (UINT64_C(1) << 20)
/* While this part of all memory is queued, the server's thread frees memory itself. */
#define MUCH_PART 8

/* The major number of NVIDIA's devices: descriptors for their memory are such files. */
#define NVIDIA_MAJOR 195

struct free_job {
	struct sl_task task;
	struct sl_async_free *freeing;
	int fd;
	uint64_t range_bytes, ranges; /* removed from it before the close */
};

static uint64_t free_job_bytes(uint64_t range_bytes, uint64_t ranges)
{
	return (unsigned)__builtin_popcountll(ranges) * range_bytes;
}

static void memory_punch(int fd, uint64_t range_bytes, uint64_t ranges)
{
	for (unsigned from = 0, to; from < 64; from = to + 1) {
		for (to = from; to < 64 && ranges >> to & 1; to++)
			;
		/* Memory sealed against writing stays with processes that have it mapped. */
		if (to > from)
			(void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			                 (off_t)(from * range_bytes),
			                 (off_t)((to - from) * range_bytes));
	}
}

static void free_job_run(struct sl_task *task)
{
	struct free_job *job = SL_CONTAINER(task, struct free_job, task);

	memory_punch(job->fd, job->range_bytes, job->ranges);
	close(job->fd);
	atomic_fetch_sub(&job->freeing->bytes, free_job_bytes(job->range_bytes, job->ranges));
	free(job);
}

/* Queues a job. On success the thread owns the descriptor. */
static bool free_job_submit(struct sl_async_free *freeing, int fd, uint64_t range_bytes,
                            uint64_t ranges)
{
	struct free_job *job = malloc(sizeof(*job));

	if (!job)
		return false;
	*job = (struct free_job){.task.run = free_job_run,
	                         .freeing = freeing,
	                         .fd = fd,
	                         .range_bytes = range_bytes,
	                         .ranges = ranges};
	atomic_fetch_add(&freeing->bytes, free_job_bytes(range_bytes, ranges));
	sl_pool_submit(freeing->pool, &job->task);
	return true;
}

void sl_async_free_memory(struct sl_server *server, int fd, uint64_t range_bytes, uint64_t ranges)
{
	struct sl_async_free *freeing = &server->memory->freeing;
	int own = -1;

	/* Bounds memory that counts as free and is not: a job, or a part of all. */
	if (free_job_bytes(range_bytes, ranges) > AT_ONCE &&
	    atomic_load(&freeing->bytes) <= server->settings->memory_bytes / MUCH_PART)
		own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own >= 0 && free_job_submit(freeing, own, range_bytes, ranges))
		return;
	if (own >= 0)
		close(own);
	memory_punch(fd, range_bytes, ranges);
}

bool sl_fd_is_memory(int fd)
{
	struct statx about;

	if (fcntl(fd, F_GET_SEALS) >= 0)
		return true;
	/* From the kernel's cache: a server of that file, as of FUSE, is not asked. */
	return !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &about) &&
	       S_ISCHR(about.stx_mode) && about.stx_rdev_major == NVIDIA_MAJOR;
}

void sl_async_close(struct sl_server *server, int fd)
{
	if (!free_job_submit(&server->memory->freeing, fd, 0, 0))
		close(fd);
}
