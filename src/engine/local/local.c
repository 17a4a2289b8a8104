/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local files
 *
 * Opens local files, finds their properties, and has the backend's calls but those of io.c.
 *
 * Threads: any; opening, stat, sync, truncate and commit may wait for storage.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "local/cufile.h"
#include "local/cufile_api.h"
#include "local/local_internal.h"

#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000 /* Linux 6.8 */
#endif

/* Alignment of direct I/O if the file system does not tell it: no disk needs more than a page. */
#define GUESSED_ALIGNMENT 4096
/* A small read that is alone is shared among workers, in pieces worth waking a thread for. */
#define LEAST_PIECE ((size_t)128 << 10)
#define LOOK        ((uint64_t)256 << 10)
/* Bytes between two extents that a piece passes over. */
#define PASSES ((size_t)64 << 10)

static const char *local_kind_name(mode_t mode)
{
	return S_ISFIFO(mode)   ? "a FIFO"
	       : S_ISSOCK(mode) ? "a socket"
	       : S_ISCHR(mode)  ? "a character device"
	                        : "no regular file";
}

static int local_check_kind(struct sl_local *local, const struct stat *stat)
{
	if (S_ISDIR(stat->st_mode))
		return sl_fail(-EISDIR, "'%s' is a directory", local->path);
	/* /dev/null takes writes at any offset and drops them: for measuring. */
	local->sink = local->flags & SLUICE_OPEN_WRITE && S_ISCHR(stat->st_mode) &&
	              stat->st_rdev == makedev(1, 3);
	if (local->sink)
		return 0;
	if (!S_ISREG(stat->st_mode) && !S_ISBLK(stat->st_mode))
		return sl_fail(-ESPIPE, "'%s' is %s, which has no offsets to read or write at",
		               local->path, local_kind_name(stat->st_mode));
	local->block_device = S_ISBLK(stat->st_mode);
	return 0;
}

/* Opens or makes the file. local->made: by an open with O_EXCL, so there was no file. */
static int local_open_or_make(struct sl_local *local, int flags, mode_t mode)
{
	int fd;

	if (flags & O_CREAT) {
		fd = TEMP_FAILURE_RETRY(open(local->path, flags | O_EXCL, mode));
		local->made = fd >= 0;
		if (fd >= 0 || errno != EEXIST || flags & O_EXCL)
			return fd;
	}
	return TEMP_FAILURE_RETRY(open(local->path, flags, mode));
}

/* Removes the file if a failed open has made it, unless another file has its name by now. */
static void local_unmake(struct sl_local *local)
{
	struct stat made, there;

	if (local->made && !fstat(local->descriptor, &made) && !lstat(local->path, &there) &&
	    made.st_dev == there.st_dev && made.st_ino == there.st_ino && !there.st_size)
		unlink(local->path);
}

static int local_open_by_name(struct sl_local *local, const struct sluice_open_options *options)
{
	/* NONBLOCK so that opening a FIFO does not wait for its other end. */
	int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

	if (!(local->flags & SLUICE_OPEN_WRITE))
		flags |= O_RDONLY;
	else
		flags |= local->flags & SLUICE_OPEN_READ ? O_RDWR : O_WRONLY;
	if (local->flags & SLUICE_OPEN_CREATE)
		flags |= O_CREAT;
	if (local->flags & SLUICE_OPEN_EXCLUSIVE)
		flags |= O_EXCL;
	int fd = local_open_or_make(local, flags, options->mode ? options->mode & 07777 : 0666);
	if (fd >= 0)
		return fd;
	/* The error of open(2) for a FIFO without a reader, and for a socket. */
	if (errno == ENXIO)
		return sl_fail(-ESPIPE,
		               "'%s' is a FIFO or a socket, which has no offsets to read or "
		               "write at",
		               local->path);
	return sl_fail(-errno, "cannot open '%s': %s", local->path, sl_error_text(-errno));
}

/* As fstat(); one call of the kernel tells the alignment of direct I/O as well. */
static int local_look(struct sl_local *local, struct stat *out)
{
	struct statx found;

	local->offset_alignment = local->memory_alignment = GUESSED_ALIGNMENT;
	if (!local->core->kernel.dioalign ||
	    statx(local->descriptor, "", AT_EMPTY_PATH,
	          STATX_BASIC_STATS | STATX_DIOALIGN | STATX_MNT_ID_UNIQUE, &found))
		return fstat(local->descriptor, out);
	*out = (struct stat){.st_mode = found.stx_mode,
	                     .st_ino = found.stx_ino,
	                     .st_size = (off_t)found.stx_size,
	                     .st_blocks = (blkcnt_t)found.stx_blocks};
	out->st_dev = makedev(found.stx_dev_major, found.stx_dev_minor);
	out->st_rdev = makedev(found.stx_rdev_major, found.stx_rdev_minor);
	local->mount = found.stx_mask & STATX_MNT_ID_UNIQUE ? found.stx_mnt_id : 0;
	local->told = found.stx_mask & STATX_DIOALIGN;
	if (local->told) {
		local->offset_alignment = found.stx_dio_offset_align;
		local->memory_alignment = found.stx_dio_mem_align;
	}
	return 0;
}

/* Opens the file again without /proc: by its name, if the name still leads to it. */
static int local_open_same(const struct sl_local *local, int flags)
{
	const char *name = local->temporary ? local->temporary : local->path;
	int fd = open(name, flags | O_NOCTTY | O_NONBLOCK);
	struct stat ours, found;

	if (fd >= 0 && !fstat(local->descriptor, &ours) && !fstat(fd, &found) &&
	    ours.st_dev == found.st_dev && ours.st_ino == found.st_ino &&
	    !fcntl(fd, F_SETFL, flags & O_DIRECT))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Opens a second description. Of several threads that do so, the first descriptor is kept. */
int sl_local_direct(struct sl_local *local)
{
	int fd = atomic_load(&local->direct), flags;
	char name[32];

	if (fd >= 0 || !atomic_load(&local->use_direct))
		return fd;
	flags = (fcntl(local->descriptor, F_GETFL) & O_ACCMODE) | O_DIRECT | O_CLOEXEC;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", local->descriptor);
	fd = open(name, flags);
	if (fd < 0 && errno == ENOENT)
		fd = local_open_same(local, flags);
	if (fd < 0) {
		sl_log(&local->core->settings, SL_LOG_INFO, "'%s' is without direct I/O: %s",
		       local->path, sl_error_text(-errno));
		atomic_store(&local->use_direct, false);
	} else if (!atomic_compare_exchange_strong(&local->direct, &(int){-1}, fd)) {
		close(fd);
	}
	return atomic_load(&local->direct);
}

/* Returns whether the file system answers fstat() from memory, and asks no server or process. */
static bool file_system_knows_sizes(long type)
{
	static const long types[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
	                             F2FS_SUPER_MAGIC, TMPFS_MAGIC,     RAMFS_MAGIC,
	                             HUGETLBFS_MAGIC};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (type == types[i])
			return true;
	return false;
}

/*
 * Returns whether the file is in /proc, /sys or the like, which have no blocks, nor have their
 * files. A file system of a server may have blocks and not tell how many.
 */
static bool file_system_is_pseudo(const struct statfs *fs, const struct stat *stat)
{
	bool served = fs->f_type == FUSE_SUPER_MAGIC || fs->f_type == V9FS_MAGIC;

	return !fs->f_blocks && !stat->st_blocks && !(served && stat->st_size);
}

/* Asks the file system, perhaps a server, unless the last opened file is in the same mount. */
static void local_find_file_system(struct sl_local *local, const struct stat *stat)
{
	_Atomic uint64_t *last = &local->core->last_mount;
	uint64_t known = atomic_load(last);
	struct statfs fs;

	/* A block device is in the mount of its name. */
	if (local->block_device)
		return;
	if (local->mount && known >> 3 == local->mount) {
		local->memory = known & 4;
		local->remote = known & 2;
		local->blocks = known & 1;
		return;
	}
	if (fstatfs(local->descriptor, &fs))
		return;
	local->memory = fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
	local->pseudo = !local->memory && file_system_is_pseudo(&fs, stat);
	local->remote = !local->pseudo && !file_system_knows_sizes(fs.f_type);
	local->blocks = local->remote && fs.f_type != OVERLAYFS_SUPER_MAGIC;
	if (fs.f_blocks)
		atomic_store(last, local->mount << 3 | (uint64_t)local->memory << 2 |
		                           (uint64_t)local->remote << 1 | local->blocks);
}

/* Whether a file has bytes, or a read that fails, though its server or process says that it is
 * empty. */
static bool local_has_hidden_bytes(const struct sl_local *local, const struct stat *stat)
{
	char byte;

	return local->blocks && !stat->st_size && !(local->flags & SLUICE_OPEN_WRITE) &&
	       TEMP_FAILURE_RETRY(pread(local->descriptor, &byte, 1, 0)) != 0;
}

static void local_find_abilities(struct sl_local *local)
{
	const struct sl_kernel *kernel = &local->core->kernel;

	atomic_init(&local->use_nowait, kernel->nowait && !local->pseudo);
	atomic_init(&local->use_dontcache, kernel->dontcache && !local->pseudo && !local->memory);
	atomic_init(&local->resident, false);
	local->uncached = local->flags & SLUICE_OPEN_UNCACHED && !local->memory && !local->pseudo;
	/* No read then brings in more pages than it was asked for. */
	if (local->uncached)
		posix_fadvise(local->descriptor, 0, 0, POSIX_FADV_RANDOM);
	if (local->memory || local->pseudo)
		local->buffered = "its file system has no disk";
	else if (!local->offset_alignment || !local->memory_alignment)
		local->buffered = "the file cannot";
	/* Direct and buffered writes never share a page: else the page cache could write back a
	 * page with bytes that are older than those of the direct write. */
	local->offset_alignment =
		local->buffered ? 0 : SL_MAX(local->offset_alignment, sl_page_size());
	atomic_init(&local->use_direct, !local->buffered);
	/* A piece of such a file opens it on the calling thread, and reactors do not wait. */
	if (local->blocks && local->choice == SL_CHOICE_URING)
		sl_local_direct(local);
}

static int local_fallocate(struct sl_local *local, int mode, uint64_t offset, uint64_t length)
{
	struct statfs fs;
	struct stat stat;

	/* In memory it would clear all pages, a third of a second for 1 GiB, before the first
	 * write: only the free space is compared, where there is a limit. */
	if (local->memory && !fstatfs(local->descriptor, &fs) && !fstat(local->descriptor, &stat)) {
		if (!fs.f_blocks ||
		    length <= (uint64_t)stat.st_blocks * 512 + fs.f_bavail * (uint64_t)fs.f_bsize)
			return 0;
		errno = ENOSPC;
	} else if (!fallocate(local->descriptor, mode, (off_t)offset, (off_t)length)) {
		return 0;
	}
	/* If the call is refused and not the space, the first write looks for space. */
	if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG && errno != EIO)
		return 0;
	return sl_fail(-errno, "cannot reserve %" PRIu64 " bytes for '%s': %s", length, local->path,
	               sl_error_text(-errno));
}

static int local_prepare(struct sl_local *local, const struct sluice_open_options *options)
{
	struct stat stat;

	if (local_look(local, &stat))
		return sl_fail(-errno, "cannot look at '%s': %s", local->path,
		               sl_error_text(-errno));
	local->device = S_ISBLK(stat.st_mode) ? stat.st_rdev : stat.st_dev;
	local->inode = S_ISBLK(stat.st_mode) ? 0 : stat.st_ino;
	int rc = local_check_kind(local, &stat);
	if (rc)
		return rc;
	if (local->flags & SLUICE_OPEN_TRUNCATE && S_ISREG(stat.st_mode) &&
	    ftruncate(local->descriptor, 0))
		return sl_fail(-errno, "cannot truncate '%s': %s", local->path,
		               sl_error_text(-errno));
	local_find_file_system(local, &stat);
	local->pseudo |= local_has_hidden_bytes(local, &stat);
	local_find_abilities(local);
	if (options->expected_size && !local->block_device)
		return local_fallocate(local, FALLOC_FL_KEEP_SIZE, 0, options->expected_size);
	return 0;
}

static void local_close(struct sl_backend *backend)
{
	struct sl_local *local = sl_local_of(backend);

	sl_permits_destroy(local);
	sl_cufile_close(local);
	sl_replace_abandon(local);
	if (atomic_load(&local->direct) >= 0)
		close(atomic_load(&local->direct));
	if (local->descriptor >= 0)
		close(local->descriptor);
	sl_residency_close(local);
	free(local->path);
	free(local);
}

static int local_choose(struct sl_local *local, const char *backend)
{
	int rc, error;

	local->choice = local->core->settings.choice;
	if (!backend)
		return 0;
	rc = sl_choice_parse("options.backend", backend, &local->choice);
	error = atomic_load(&local->core->kernel.uring_error);
	if (!rc && local->choice == SL_CHOICE_URING && error)
		return sl_fail(-ENOSYS, "options.backend: uring: %s", sl_error_text(error));
	if (!rc && local->choice == SL_CHOICE_CUFILE && !sl_cufile_load())
		return sl_fail(-ENOSYS, "options.backend: cufile: %s", sl_cufile_missing());
	return rc;
}

/* Logs which kinds of I/O the file has, and why not the others. */
static void log_opened(struct sl_local *local)
{
	int error = atomic_load(&local->core->kernel.uring_error);
	const char *why = local->choice == SL_CHOICE_POSIX ? "posix was chosen"
	                  : local->pseudo                  ? "it is read in order"
	                  : error == -ECANCELED            ? "SLUICE_DISABLE"
	                  : error                          ? sl_error_text(error)
	                  : local->blocks && local->choice != SL_CHOICE_URING
	                          ? "its server or process would be waited for"
	                          : NULL;

	sl_log(&local->core->settings, SL_LOG_INFO,
	       "open '%s'%s%s: %" PRId64 " bytes, backend %s, %s%s, %s%s", local->path,
	       local->temporary ? ", until it is complete " : "",
	       local->temporary ? local->temporary : "", sl_local_size(&local->base),
	       sl_choice_name(local->choice), why ? "without io_uring: " : "with io_uring",
	       why ? why : "", local->buffered ? "without direct I/O: " : "with direct I/O",
	       local->buffered ? local->buffered : "");
}

static int local_open(struct sl_core *core, const struct sl_uri *uri,
                      const struct sluice_open_options *options, struct sl_backend **out)
{
	struct sl_local *local = calloc(1, sizeof(*local));
	int rc;

	if (!local)
		return sl_fail(-ENOMEM, "no memory");
	local->base.ops = &sl_local_ops;
	local->core = core;
	local->flags = options->flags;
	local->descriptor = -1;
	atomic_init(&local->direct, -1);
	sl_mutex_init(&local->map.mutex);
	sl_mutex_init(&local->cufile.mutex);
	sl_permits_init(local);
	local->path = strdup(uri->path);
	rc = local->path ? local_choose(local, options->backend) : sl_fail(-ENOMEM, "no memory");
	if (!rc) {
		rc = local->flags & SLUICE_OPEN_REPLACE ? sl_replace_open(local, options)
		                                        : local_open_by_name(local, options);
		local->descriptor = rc;
		if (rc >= 0)
			rc = local_prepare(local, options);
		if (rc)
			local_unmake(local);
	}
	if (rc) {
		local_close(&local->base);
		return rc;
	}
	if (core->settings.log >= SL_LOG_INFO)
		log_opened(local);
	*out = &local->base;
	return 0;
}

static void local_limits(struct sl_backend *backend, struct sl_limits *out)
{
	struct sl_local *local = sl_local_of(backend);
	const struct sl_settings *settings = &local->core->settings;

	out->piece_bytes = settings->piece_bytes;
	out->least_piece = SL_MIN(settings->piece_bytes, LEAST_PIECE);
	out->depth = settings->operation_depth;
	out->alignment = local->offset_alignment;
	out->sequential = local->pseudo;
	out->size_waits = local->remote;
	out->piece_size = sizeof(struct sl_local_piece);
}

/* Four looks find a file of which a part is in memory, unless it is a short one. A server has other
 * needs than a disk, and holes come as fast as memory. */
static uint64_t local_cold(struct sl_backend *backend, uint64_t offset, uint64_t length)
{
	struct sl_local *local = sl_local_of(backend);
	const unsigned looks = 4;
	struct stat stat;

	if (local->pseudo || local->memory || local->remote || length < LOOK ||
	    atomic_load(&local->core->quick) == local->device || fstat(local->descriptor, &stat) ||
	    stat.st_blocks * 512 < stat.st_size)
		return 0;
	for (unsigned i = 0; i < looks; i++)
		if (sl_resident(local, offset + (length - LOOK) / (looks - 1) * i, LOOK))
			return 0;
	return local->device;
}

/*
 * Of bytes that come from storage each extent is a piece, so that many are on their way at a time.
 * So it is of an uncached file, because the pages in the gaps are to stay.
 */
static size_t local_passes(struct sl_backend *backend)
{
	struct sl_local *local = sl_local_of(backend);

	return local->choice != SL_CHOICE_URING && !local->uncached &&
	                       atomic_load_explicit(&local->resident, memory_order_relaxed)
	               ? PASSES
	               : 0;
}

static char *local_identity(struct sl_backend *backend)
{
	struct sl_local *local = sl_local_of(backend);
	char text[64];

	snprintf(text, sizeof(text), "%s %" PRIu64 ":%" PRIu64,
	         local->block_device ? "block" : "inode", (uint64_t)local->device,
	         (uint64_t)local->inode);
	return strdup(text);
}

static int local_stat(struct sl_backend *backend, struct sluice_file_info *out)
{
	struct sl_local *local = sl_local_of(backend);
	struct stat stat;
	int64_t size = sl_local_size(backend);

	if (fstat(local->descriptor, &stat))
		return sl_fail(-errno, "cannot look at '%s': %s", local->path,
		               sl_error_text(-errno));
	out->mode = stat.st_mode;
	out->length = size >= 0 ? (uint64_t)size : (uint64_t)stat.st_size;
	out->allocated = local->block_device ? out->length : (uint64_t)stat.st_blocks * 512;
	out->flags = local->pseudo ? SLUICE_STAT_SIZE_UNKNOWN : 0;
	out->modified_ns = sl_modified_ns(&stat);
	/* A file system that does not tell may refuse to open the file. */
	if (local->told ? atomic_load(&local->use_direct) : sl_local_direct(local) >= 0) {
		out->direct_offset = local->offset_alignment;
		out->direct_memory = local->memory_alignment;
	}
	out->backend = sl_choice_name(local->choice);
	return 0;
}

static int local_reserve(struct sl_backend *backend, uint64_t offset, uint64_t length)
{
	struct sl_local *local = sl_local_of(backend);

	/* Only direct writes are slow while they extend the file. */
	if (local->block_device || sl_local_direct(local) < 0)
		return 0;
	return local_fallocate(local, 0, offset, length);
}

static int local_sync(struct sl_backend *backend)
{
	struct sl_local *local = sl_local_of(backend);

	return fsync(local->descriptor) ? -errno : 0;
}

static int local_truncate(struct sl_backend *backend, uint64_t length)
{
	struct sl_local *local = sl_local_of(backend);

	return ftruncate(local->descriptor, (off_t)length) ? -errno : 0;
}

static int local_commit(struct sl_backend *backend)
{
	struct sl_local *local = sl_local_of(backend);
	bool durable = local->flags & SLUICE_OPEN_DURABLE && local->flags & SLUICE_OPEN_WRITE;
	int rc;

	if (durable) {
		rc = local_sync(backend);
		if (rc)
			return sl_fail(rc, "cannot sync '%s': %s", local->path, sl_error_text(rc));
	}
	rc = sl_replace_commit(local);
	if (!rc && durable && local->flags & SLUICE_OPEN_CREATE)
		rc = sl_sync_folder_of(local->path);
	return rc;
}

const struct sl_backend_ops sl_local_ops = {
	.open = local_open,
	.limits = local_limits,
	.identity = local_identity,
	.size = sl_local_size,
	.stat = local_stat,
	.read_now = sl_local_read_now,
	.moves = &sl_cufile_moves,
	.passes = local_passes,
	.cold = local_cold,
	.submit = sl_local_submit,
	.cancel = sl_permits_cancel,
	.reserve = local_reserve,
	.sync = local_sync,
	.truncate = local_truncate,
	.commit = local_commit,
	.close = local_close,
};
