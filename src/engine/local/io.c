/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of local files on threads
 *
 * Decides how each piece is moved, and makes the blocking calls:
 *
 *   a read that is in the page cache      a worker reads it, with RWF_NOWAIT
 *   a large aligned piece                 direct I/O, by a reactor (uring.c) if there is any, and
 *                                         through a bounce buffer where memory is not aligned
 *   any other read                        buffered I/O, by a reactor if there is any
 *   any other write                       buffered I/O, by a worker
 *
 * Threads: submission is on any thread, without waits for storage; piece_run() on the workers.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "local/local_internal.h"

#define LARGEST_CALL ((size_t)1 << 30)
/* A call for several extents: vectors for them and the gaps, and the longest gap that it reads. */
#define CALL_VECTORS 64
#define CALL_GAP     4096
#define PAGES_ASKED  4096 /* of mincore() at a time */

/* --------------------------------------------------------------------------------- residency */

/* As in <linux/mman.h> of Linux 6.5. */
struct cachestat_range {
	uint64_t offset, length;
};
struct cachestat {
	uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

static int64_t resident_by_cachestat(struct sl_local *local, uint64_t offset, size_t length)
{
	struct cachestat_range range = {offset, length};
	struct cachestat stat;

	if (syscall(SYS_cachestat, local->descriptor, &range, &stat, 0))
		return -errno;
	return (int64_t)stat.cached;
}

/* Maps the file for mincore(), and again when it has grown. The mapping is never touched. */
static int map_until_locked(struct sl_local *local, uint64_t end) SL_REQUIRES(&local->map.mutex)
{
	struct stat stat;

	if (local->map.base && end <= local->map.length)
		return 0;
	if (fstat(local->descriptor, &stat))
		return -errno;
	if ((uint64_t)stat.st_size < end)
		return -ERANGE;
	void *base = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, local->descriptor, 0);
	if (base == MAP_FAILED)
		return -errno;
	if (local->map.base)
		munmap(local->map.base, local->map.length);
	local->map.base = base;
	local->map.length = stat.st_size;
	return 0;
}

static int64_t resident_by_mincore(struct sl_local *local, uint64_t offset, size_t length)
{
	size_t page = sl_page_size();
	uint64_t start = offset - offset % page, end = offset + length;
	unsigned char vector[PAGES_ASKED];
	int64_t cached = 0;

	sl_mutex_lock(&local->map.mutex);
	int rc = map_until_locked(local, end);
	while (!rc && start < end) {
		size_t pages = SL_MIN((end - start + page - 1) / page, PAGES_ASKED);

		if (mincore(local->map.base + start, pages * page, vector))
			rc = -errno;
		for (size_t i = 0; !rc && i < pages; i++)
			cached += vector[i] & 1;
		start += pages * page;
	}
	sl_mutex_unlock(&local->map.mutex);
	return rc ? rc : cached;
}

bool sl_resident(struct sl_local *local, uint64_t offset, size_t length)
{
	size_t page = sl_page_size();
	uint64_t pages = (offset + length - 1) / page - offset / page + 1;
	int64_t cached;

	/* mincore() needs the length of the file, for which a server may have to be asked. */
	if (!local->core->kernel.cachestat && local->remote)
		return !local->uncached;
	cached = local->core->kernel.cachestat ? resident_by_cachestat(local, offset, length)
	                                       : resident_by_mincore(local, offset, length);
	/* RWF_NOWAIT would begin to read the pages that are absent. */
	if (local->uncached)
		return cached >= 0 && (uint64_t)cached >= pages;
	/* If residency is unknown, reads through the page cache: that is always correct. */
	return cached < 0 || (uint64_t)cached * 2 >= pages;
}

/* The file is closed: no other thread has it. */
void sl_residency_close(struct sl_local *local) SL_UNCHECKED
{
	if (local->map.base)
		munmap(local->map.base, local->map.length);
	sl_mutex_destroy(&local->map.mutex);
}

/* -------------------------------------------------------------------------- the submitting call */

/* Returns the error of fstat(); -1 would mean something else to the engine. */
static int64_t size_error(void)
{
	return errno == EPERM ? -EIO : -errno;
}

int64_t sl_local_size(struct sl_backend *backend)
{
	struct sl_local *local = sl_local_of(backend);
	struct stat stat;
	uint64_t bytes;

	if (local->pseudo)
		return -1;
	if (local->block_device)
		return ioctl(local->descriptor, BLKGETSIZE64, &bytes) ? size_error()
		                                                      : (int64_t)bytes;
	return fstat(local->descriptor, &stat) ? size_error() : (int64_t)stat.st_size;
}

int64_t sl_local_read_now(struct sl_backend *backend, void *data, size_t length, uint64_t offset)
{
	struct sl_local *local = sl_local_of(backend);
	struct iovec vector = {data, length};

	if (!atomic_load_explicit(&local->use_nowait, memory_order_relaxed))
		return -EAGAIN;
	/* A call for absent pages starts to read them into the page cache: a head start for a small
	 * read, unless many are on their way, and twice the work for a large one, around it. */
	if ((local->uncached || length >= local->core->settings.direct_bytes ||
	     (local->core->kernel.cachestat && atomic_load(&local->core->deep))) &&
	    !sl_resident(local, offset, length))
		return -EAGAIN;
	/* Not preadv2(), which is a cancellation point of pthread_cancel(), and takes longer. */
	ssize_t rc = syscall(SYS_preadv2, local->descriptor, &vector, 1L, (long)offset,
	                     (long)(offset >> 32), local->memory ? 0L : (long)RWF_NOWAIT);
	if (rc < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EPERM))
		atomic_store(&local->use_nowait, false);
	/* A short read, at the end of the file or of resident pages: an operation looks. */
	if (rc != (ssize_t)length)
		return -EAGAIN;
	sl_log(&local->core->settings, SL_LOG_DEBUG,
	       "read '%s' bytes %" PRIu64 "+%zu at once: in memory", local->path, offset, length);
	return rc;
}

/* ------------------------------------------------------------------------- how a piece is moved */

void sl_local_execute(struct sl_piece *piece)
{
	struct sl_local *local = sl_local_of(piece->backend);

	if (local->core->uring && !piece->extents &&
	    !atomic_load(&local->core->kernel.uring_error) && local->choice != SL_CHOICE_POSIX &&
	    !local->pseudo && (!local->blocks || local->choice == SL_CHOICE_URING))
		sl_uring_submit(piece);
	else
		sl_posix_submit(piece);
}

/* Bypasses the page cache; returns false if the piece cannot. */
static bool submit_direct(struct sl_local *local, struct sl_piece *piece)
{
	if (!piece->large || !piece->aligned || piece->moved % local->offset_alignment ||
	    !atomic_load_explicit(&local->use_direct, memory_order_relaxed) ||
	    (!local->blocks && sl_local_direct(local) < 0))
		return false;
	piece->direct = true;
	if ((uintptr_t)piece->data % local->memory_alignment) {
		if (sl_bounce_submit(piece))
			return true;
		piece->direct = false;
		return false;
	}
	sl_local_execute(piece);
	return true;
}

/* Submits a read, or the rest of a read, that is not in the page cache. */
static void submit_cold(struct sl_piece *piece)
{
	struct sl_local *local = sl_local_of(piece->backend);
	struct sl_local_way *way = sl_local_way_of(piece);

	atomic_store_explicit(&local->resident, false, memory_order_relaxed);
	way->nowait = false;
	piece->task.patient = false;
	/* RWF_NOWAIT also refuses pages that the kernel is moving. */
	way->drops = local->uncached && !sl_resident(local, piece->offset + piece->moved,
	                                             piece->length - piece->moved);
	if (submit_direct(local, piece))
		return;
	way->dontcache = (piece->large || local->uncached) &&
	                 atomic_load_explicit(&local->use_dontcache, memory_order_relaxed);
	/* Dropping pages may wait for the file system, which no reactor does. */
	if (way->drops && !way->dontcache)
		sl_posix_submit(piece);
	else
		sl_local_execute(piece);
}

static void submit_local_read(struct sl_local *local, struct sl_piece *piece)
{
	bool nowait = atomic_load_explicit(&local->use_nowait, memory_order_relaxed);

	if (local->pseudo) {
		sl_posix_submit(piece);
		return;
	}
	/* Bytes that were not copied at once may be there, and their pages are to stay. */
	if (piece->missed && nowait && !local->uncached) {
		submit_cold(piece);
		return;
	}
	/*
	 * For a small piece, and a patient one, the result of the last look is used again, because
	 * RWF_NOWAIT notices if it is wrong. For a large piece that would come too late, behind the
	 * copies of other pieces, after a read into the page cache of pages that direct I/O reads
	 * once more.
	 */
	if ((piece->large && !piece->patient) || !nowait || local->uncached ||
	    !atomic_load_explicit(&local->resident, memory_order_relaxed)) {
		if (!sl_resident(local, piece->offset, piece->length)) {
			submit_cold(piece);
			return;
		}
		atomic_store_explicit(&local->resident, true, memory_order_relaxed);
	}
	if (local->choice == SL_CHOICE_URING) {
		sl_uring_submit(piece);
		return;
	}
	sl_local_way_of(piece)->nowait = nowait;
	sl_posix_submit(piece);
}

void sl_local_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	struct sl_local *local = sl_local_of(backend);

	*sl_local_way_of(piece) = (struct sl_local_way){0};
	if (piece->device) {
		sl_cufile_submit(piece);
		return;
	}
	/* io_uring fails on O_NONBLOCK instead of waiting; no other clearable flag is set. */
	if (!atomic_load(&local->blocking)) {
		fcntl(local->descriptor, F_SETFL, 0);
		atomic_store(&local->blocking, true);
	}
	if (!piece->write)
		submit_local_read(local, piece);
	else if (submit_direct(local, piece))
		return;
	else if (local->choice == SL_CHOICE_URING)
		sl_local_execute(piece);
	else
		sl_posix_submit(piece);
}

/* ------------------------------------------------------------------------------- blocking calls */

/* Whether the last call was refused, as a sandbox refuses what it does not know. */
static bool call_refused(ssize_t rc)
{
	return rc < 0 &&
	       (errno == EPERM || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS);
}

/*
 * Returns bytes or -errno. Where a sandbox refuses calls with flags, as if the kernel had none;
 * where it refuses those with vectors, too, the first vector alone.
 */
static ssize_t piece_call(struct sl_piece *piece, struct iovec *vectors, int count, uint64_t at)
{
	int descriptor = sl_piece_descriptor(piece), flags = sl_piece_flags(piece);
	off_t offset = (off_t)at;

	if (descriptor < 0)
		return -EOPNOTSUPP;
	ssize_t rc = piece->write ? pwritev2(descriptor, vectors, count, offset, flags)
	                          : preadv2(descriptor, vectors, count, offset, flags);
	if (call_refused(rc) && flags)
		return -EOPNOTSUPP;
	if (call_refused(rc))
		rc = piece->write ? pwritev(descriptor, vectors, count, offset)
		                  : preadv(descriptor, vectors, count, offset);
	if (call_refused(rc))
		rc = piece->write ? pwrite(descriptor, vectors->iov_base, vectors->iov_len, offset)
		                  : pread(descriptor, vectors->iov_base, vectors->iov_len, offset);
	return rc < 0 ? -errno : rc;
}

/* Returns the piece's first extent that ends behind a byte of the file, which the piece has. */
static const struct sluice_extent *piece_find(const struct sl_piece *piece, uint64_t at)
{
	const struct sluice_extent *first = piece->extents;
	size_t count = piece->extent_count;

	while (count > 1) {
		size_t half = (count - 1) / 2;

		if (first[half].offset + first[half].length > at) {
			count = half + 1;
		} else {
			first += half + 1;
			count -= half + 1;
		}
	}
	return first;
}

/*
 * Reads from a byte of the piece on, as many extents as a call takes, or as follow each other
 * without a long gap. Returns the bytes from there to the end of those that were read, or -errno.
 * *all: whether nothing of them lacks.
 */
static ssize_t piece_read_some(struct sl_piece *piece, uint64_t at, bool *all)
{
	static _Thread_local char dropped[CALL_GAP];
	const struct sluice_extent *e = piece_find(piece, at),
				   *end = piece->extents + piece->extent_count;
	struct iovec vectors[CALL_VECTORS];
	uint64_t begin = SL_MAX(at, e->offset), to = begin;
	int count = 0;

	for (; e < end && count + 2 <= CALL_VECTORS && (to == begin || e->offset - to <= CALL_GAP);
	     e++) {
		if (e->offset > to)
			vectors[count++] = (struct iovec){dropped, e->offset - to};
		to = SL_MAX(to, e->offset);
		vectors[count++] = (struct iovec){(char *)e->data + (to - e->offset),
		                                  e->offset + e->length - to};
		to = e->offset + e->length;
	}
	ssize_t rc = piece_call(piece, vectors, count, begin);
	*all = rc == (ssize_t)(to - begin);
	return rc > 0 ? rc + (ssize_t)(begin - at) : rc;
}

/* Reads the rest of a piece of several extents, until a call brings less than it was asked for. */
static ssize_t piece_read_extents(struct sl_piece *piece)
{
	size_t left = piece->length - piece->moved;
	ssize_t sum = 0, rc;
	bool all;

	do {
		rc = piece_read_some(piece, piece->offset + piece->moved + sum, &all);
		sum += rc > 0 ? rc : 0;
	} while (all && (size_t)sum < left);
	return sum ? sum : rc;
}

/* Submits a piece's rest anew, and returns true, if RWF_NOWAIT found it absent. */
static bool piece_gone_cold(struct sl_piece *piece, ssize_t result)
{
	struct sl_local *local = sl_local_of(piece->backend);

	if (result == -EOPNOTSUPP || result == -EINVAL)
		atomic_store(&local->use_nowait, false);
	else if (result != -EAGAIN &&
	         (result <= 0 || (size_t)result + piece->moved == piece->length))
		return false;
	if (result > 0)
		piece->moved += result;
	submit_cold(piece);
	return true;
}

/* Pauses before a repeated call: EAGAIN may come for ever. A cancel is seen afterwards. */
static void pause_in_vain(unsigned vain)
{
	struct timespec pause = {0, (1000000 << SL_MIN(vain, 6)) / 2};

	/* The first repetition is made at once. */
	if (vain > 1)
		nanosleep(&pause, NULL);
}

static void piece_run(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);
	const struct sl_local_way *way = sl_local_way_of(piece);
	ssize_t result;

	if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed)) {
		piece->error = -ECANCELED;
		sl_local_done(piece);
		return;
	}
	do {
		struct iovec vector = {sl_piece_memory(piece),
		                       SL_MIN(piece->length - piece->moved, LARGEST_CALL)};

		pause_in_vain(way->vain);
		result = piece->extents
		                 ? piece_read_extents(piece)
		                 : piece_call(piece, &vector, 1, piece->offset + piece->moved);
		if (way->nowait && piece_gone_cold(piece, result))
			return;
	} while (!sl_transfer_step(piece, result));
	sl_local_done(piece);
}

void sl_posix_start(struct sl_piece *piece)
{
	struct sl_core *core = sl_local_of(piece->backend)->core;

	/* A call with NOWAIT waits for no storage. */
	sl_pool_submit(sl_local_way_of(piece)->nowait ? core->pool : core->waiting, &piece->task);
}

void sl_posix_submit(struct sl_piece *piece)
{
	const struct sl_local_way *way = sl_local_way_of(piece);
	bool page_cache = !piece->direct && !sl_local_of(piece->backend)->block_device;

	piece->task.run = piece_run;
	piece->task.urgent = piece->urgent;
	piece->task.owner = piece->op;
	piece->task.patient = way->nowait && piece->patient;
	piece->task.home = (uintptr_t)piece->data / piece->length;
	/* A piece that comes from a reactor keeps its permit. */
	if (way->nowait || way->permits)
		sl_posix_start(piece);
	else
		sl_permit_take(piece,
		               piece->write && page_cache ? SL_PERMIT_WRITE : SL_PERMIT_CALL);
}
