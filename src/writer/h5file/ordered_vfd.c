/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordered file driver: the functions that HDF5 calls, and settle, by which the file thread
 * writes the data they have deferred. See write_order.c for the order of the writes.
 *
 * Threads: the thread that is in HDF5, which is the file thread or a thread that takes HDF5 down.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5file/ordered_internal.h"
#include "h5file/word.h"

/* The driver's number in HDF5's list, where numbers from 512 on are free. */
#define ORDERED_VALUE 0x5c1

/* Where the superblock has the end of the file. */
#define SUPERBLOCK_END 40

static hid_t driver = H5I_INVALID_HID; /* guarded by HDF5's own lock, as the driver's calls are */

#define complain(minor, ...)                                                             \
	H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_VFL, minor, \
	         __VA_ARGS__)

/* Reports an error to HDF5. Called without the mutex, because it may wait for HDF5's lock. */
static herr_t ordered_tell(int error, uint64_t offset, const char *what)
{
	if (!error)
		return 0;
	complain(H5E_WRITEERROR, "%s at offset %llu: %s", what, (unsigned long long)offset,
	         error == -ESTALE ? "another program has truncated or overwritten the file"
	                          : sl_error_text(error));
	return -1;
}

/* Around each call to the driver. In a child of fork() no thread would unlock the mutex, and none
 * needs to: nothing changes while settle holds it, and the next call clears held blocks. */
static void ordered_enter(struct ordered_file *file) SL_UNCHECKED
{
	if (file->process != getpid() && file->ours) {
		file->ours = false;
		file->vfd->error = file->vfd->error ? file->vfd->error : -ECHILD;
	}
	if (file->ours)
		sl_mutex_lock(&file->vfd->mutex);
	if (file->written)
		sl_held_clear(&file->held);
	file->written = false;
}

static void ordered_leave(struct ordered_file *file) SL_UNCHECKED
{
	if (file->ours)
		sl_mutex_unlock(&file->vfd->mutex);
}

static void count_held(struct ordered_file *file)
{
	file->vfd->held = file->held.bytes;
	file->vfd->held_most = SL_MAX(file->vfd->held_most, file->held.bytes);
}

/* ---------------------------------------------------------------------------- open and close */

/* As open(2). */
static int ordered_open_file(const struct sl_ordered_vfd *vfd, const char *name, unsigned flags)
{
	int mode = flags & H5F_ACC_RDWR ? O_RDWR : O_RDONLY, fd;

	mode |= flags & H5F_ACC_TRUNC ? O_TRUNC : 0;
	mode |= flags & H5F_ACC_CREAT ? O_CREAT : 0;
	mode |= flags & H5F_ACC_EXCL ? O_EXCL : 0;
	if (vfd->fd <= 0)
		return open(name, mode | O_CLOEXEC, 0666);
	fd = fcntl(vfd->fd, F_DUPFD_CLOEXEC, 0);
	if (fd >= 0 && mode & O_TRUNC && ftruncate(fd, 0) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The lock excludes other writers, so a flush that is not over belongs to a dead writer. */
static int take_word(struct ordered_file *file, unsigned flags)
{
	int err = flags & H5F_ACC_RDWR ? sl_word_lock(file->fd, F_WRLCK) : 0;
	int there = err ? 0 : sl_word_read(file->fd, &file->word);

	if (there <= 0)
		file->word = 0;
	else if (file->word % 2 && flags & H5F_ACC_RDWR)
		err = sl_word_write(file->fd, (file->left_word = file->word++) + 1);
	return err;
}

static H5FD_t *ordered_open(const char *name, unsigned flags, hid_t fapl, haddr_t max_address)
{
	/* The property list has the address of the caller's struct. */
	struct sl_ordered_vfd *const *info = H5Pget_driver_info(fapl);
	hbool_t locks, ignores_missing_locks;
	struct ordered_file *file;
	struct stat status;
	int err;

	(void)max_address;
	/* While it is open: a source of a virtual dataset, which nothing here reads. */
	if (!info || (*info)->file || H5Pget_file_locking(fapl, &locks, &ignores_missing_locks) < 0)
		return NULL;
	file = calloc(1, sizeof(*file));
	if (!file) {
		(*info)->error = -ENOMEM;
		return NULL;
	}
	file->vfd = *info;
	file->fd = ordered_open_file(file->vfd, name, flags);
	err = file->fd < 0 || fstat(file->fd, &status) < 0 ? -errno : take_word(file, flags);
	if (err) {
		file->vfd->error = err;
		complain(H5E_CANTOPENFILE, "%s: %s", name, sl_error_text(err));
		if (file->fd >= 0)
			close(file->fd);
		free(file);
		return NULL;
	}
	/* HDF5 opens more than once when it makes a file, and the first time may fail. */
	file->vfd->error = 0;
	file->ignores_missing_locks = ignores_missing_locks;
	file->process = getpid();
	file->ours = true;
	file->device = status.st_dev;
	file->inode = status.st_ino;
	file->eof = status.st_size;
	file->vfd->file = file;
	return &file->pub;
}

/* Cuts spare space off the end of a flushed file. Before, the superblock says so, if it is of
 * version 0 and at the begin of the file. */
static void ordered_shorten(struct ordered_file *file)
{
	uint64_t head[SUPERBLOCK_END / 8 + 1], end = sl_ordered_used_end(file);
	int err, turned;

	if (!file->changed || file->vfd->error || file->granted > file->eoa || end == file->eoa ||
	    pread(file->fd, head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head, "\x89HDF\r\n\x1a\n", 9) || head[SUPERBLOCK_END / 8] != file->eoa)
		return;
	err = sl_ordered_turn_word(file, true);
	if (!err)
		err = sl_ordered_write_all(file, SUPERBLOCK_END, sizeof(end), &end);
	if (!err)
		err = sl_ordered_barrier(file);
	turned = sl_ordered_turn_word(file, false);
	err = err ? err : turned;
	if (!err && ftruncate(file->fd, (off_t)end))
		err = -errno;
	/* On a full disk the file stays as it is, which is complete. */
	sl_ordered_keep_error(file, sl_is_full(err) ? 0 : err, SUPERBLOCK_END);
}

/* Space taken behind the end of the file, maybe not all that was asked for. */
static void ordered_give_back(struct ordered_file *file)
{
	struct stat status;

	if (file->taken && file->process == getpid() && !fstat(file->fd, &status) &&
	    ftruncate(file->fd, status.st_size))
		complain(H5E_CANTCLOSEFILE, "space of the file stays: %s", sl_error_text(-errno));
}

static herr_t ordered_close(H5FD_t *base)
{
	struct ordered_file *file = (struct ordered_file *)base;

	ordered_enter(file);
	if (file->process == getpid())
		ordered_shorten(file);
	ordered_give_back(file);
	/* After a flush, or a failed flush: the blocks that are still held are never written. */
	sl_held_clear(&file->held);
	count_held(file);
	sl_ordered_forget_space(file);
	/* Nothing was changed: the file is as it was found, unless others change it. */
	if (file->left_word && file->process == getpid() && !sl_ordered_check_length(file))
		sl_word_write(file->fd, file->left_word);
	if (close(file->fd) < 0 && !file->vfd->error)
		file->vfd->error = -errno;
	if (file->vfd->file == file)
		file->vfd->file = NULL;
	ordered_leave(file);
	free(file);
	return 0;
}

static int ordered_compare(const H5FD_t *left, const H5FD_t *right)
{
	const struct ordered_file *a = (const struct ordered_file *)left;
	const struct ordered_file *b = (const struct ordered_file *)right;

	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	return a->inode < b->inode ? -1 : a->inode > b->inode;
}

/* HDF5 must not gather metadata into larger writes nor allocate ahead: each block is a write with
 * its type, and allocations end where used bytes do. It must not look up a name that a file may not
 * have yet. */
static herr_t ordered_query(const H5FD_t *base, unsigned long *flags)
{
	(void)base;
	if (flags)
		*flags = H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
	return 0;
}

static herr_t ordered_get_handle(H5FD_t *base, hid_t fapl, void **out)
{
	(void)fapl;
	*out = &((struct ordered_file *)base)->fd;
	return 0;
}

/* As HDF5's own driver. HDF5 calls it unless HDF5_USE_FILE_LOCKING or the fapl says no. */
static herr_t lock_as(struct ordered_file *file, int how)
{
	if (flock(file->fd, how | LOCK_NB) == 0 || (errno == ENOSYS && file->ignores_missing_locks))
		return 0;
	file->vfd->error = -errno;
	complain(H5E_CANTLOCKFILE, "the file is locked by someone else: %s", sl_error_text(-errno));
	return -1;
}

static herr_t ordered_lock(H5FD_t *base, hbool_t exclusive)
{
	return lock_as((struct ordered_file *)base, exclusive ? LOCK_EX : LOCK_SH);
}

static herr_t ordered_unlock(H5FD_t *base)
{
	return lock_as((struct ordered_file *)base, LOCK_UN);
}

/* --------------------------------------------------------------------------------- addresses */

/* Before the first change HDF5's superblock is that of the file. */
static void begin_change(struct ordered_file *file)
{
	if (!file->changed)
		file->flushed_eoa = file->eoa;
	file->changed = true;
}

static haddr_t ordered_alloc(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, hsize_t size)
{
	struct ordered_file *file = (struct ordered_file *)base;
	haddr_t start, spare = 0;

	(void)dxpl;
	begin_change(file);
	start = file->eoa = SL_MAX(file->eoa, file->granted);
	if (type == H5FD_MEM_DRAW && file->vfd->chunk && file->vfd->chunk->in.granted)
		return file->vfd->chunk->in.granted;
	if (type == H5FD_MEM_DRAW && !file->vfd->pages)
		spare = sl_ordered_take(file, size, file->vfd->chunk && file->vfd->chunk->in.last);
	if (spare)
		return spare;
	if (type == H5FD_MEM_DRAW ? file->vfd->pages
	                          : start / PAGE != (start + SL_MIN(size, PAGE) - 1) / PAGE)
		start = (start + PAGE - 1) / PAGE * PAGE;
	file->eoa = start + size;
	if (type == H5FD_MEM_SUPER && start == 0) {
		file->eoa = SL_WORD_END;
		/* Even, and none that the file of that name had before. */
		file->word = (uint64_t)sl_now() << 1;
	}
	return start;
}

/* The chunk that has old space, until HDF5 frees it; NULL: none. */
static struct sl_vfd_chunk *chunk_moving(const struct sl_ordered_vfd *vfd)
{
	struct sl_vfd_chunk *chunk = vfd->chunk;

	return chunk && chunk->in.old_bytes && !chunk->out.old_freed ? chunk : NULL;
}

/* Nothing is given back at once: the file may still refer to it. */
static herr_t ordered_free(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, haddr_t start, hsize_t size)
{
	struct ordered_file *file = (struct ordered_file *)base;
	struct sl_vfd_chunk *chunk = chunk_moving(file->vfd);

	(void)type, (void)dxpl;
	if (!chunk || start != chunk->in.old_start || size != chunk->in.old_bytes)
		return 0;
	chunk->out.old_freed = true;
	sl_ordered_moved(file, start, size);
	return 0;
}

/* HDF5 reuses freed space at once from its own list; only space at the end of the file goes to the
 * driver. So for raw data the driver reports the end of the old space as the end of the file until
 * it is freed. A block of texts ends before the end that is reported: HDF5 doubles the last of the
 * file, and a kill could tear what it then writes in place. Metadata may grow at the end of the
 * file, so granted space counts. */
static haddr_t ordered_get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
	const struct ordered_file *file = (const struct ordered_file *)base;
	const struct sl_vfd_chunk *chunk = type == H5FD_MEM_DRAW ? chunk_moving(file->vfd) : NULL;
	haddr_t end = SL_MAX(file->eoa, file->granted);

	if (chunk)
		return chunk->in.old_start + chunk->in.old_bytes;
	return type == H5FD_MEM_DRAW && file->vfd->pages ? end + 1 : end;
}

static herr_t ordered_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t end)
{
	(void)type;
	((struct ordered_file *)base)->eoa = end;
	return 0;
}

static haddr_t ordered_get_eof(const H5FD_t *base, H5FD_mem_t type)
{
	(void)type;
	return ((const struct ordered_file *)base)->eof;
}

/* ---------------------------------------------------------------------------- read and write */

static herr_t ordered_read(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, haddr_t start, size_t size,
                           void *buffer)
{
	struct ordered_file *file = (struct ordered_file *)base;
	int err = sl_vfd_read(file->fd, start, size, buffer);

	(void)type, (void)dxpl;
	if (err)
		return -1;
	ordered_enter(file);
	sl_held_get(&file->held, start, size, buffer);
	ordered_leave(file);
	return 0;
}

static int write_raw(struct ordered_file *file, haddr_t start, size_t size, const void *bytes)
{
	int err = sl_ordered_check_length(file);

	/* The range between belongs to held blocks and contiguous datasets. */
	if (!err)
		err = sl_ordered_reserve(file, start);
	if (!err)
		err = sl_ordered_write_all(file, start, size, bytes);
	file->vfd->raw_bytes += err ? 0 : size;
	return err;
}

static bool is_of_chunk(const struct sl_vfd_chunk *chunk, const void *bytes, size_t size)
{
	const char *first = chunk ? chunk->in.bytes : NULL, *at = bytes;

	return first && at >= first && at + size <= first + chunk->in.n;
}

static int take_raw(struct ordered_file *file, haddr_t start, size_t size, const void *bytes)
{
	struct sl_vfd_chunk *chunk = file->vfd->chunk;
	int err = sl_held_forget(&file->held, start, start + size);

	if (err || file->noted || !is_of_chunk(chunk, bytes, size))
		return err ? err : write_raw(file, start, size, bytes);
	chunk->out.start = start;
	if (chunk->in.granted)
		return 0;
	file->noted = (const char *)bytes + chunk->in.from;
	file->noted_start = start + chunk->in.from;
	file->noted_size = chunk->in.to ? chunk->in.to - chunk->in.from : size;
	return 0;
}

/* Whether it is a block of texts: HDF5 treats it as raw data and rewrites it in H5Fflush. Frames
 * may begin as one. */
static bool is_texts(const struct sl_vfd_chunk *chunk, const void *bytes, size_t size)
{
	return !is_of_chunk(chunk, bytes, size) && size > 4 && size <= PAGE &&
	       memcmp(bytes, "GCOL", 4) == 0;
}

static herr_t ordered_write(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, haddr_t start, size_t size,
                            const void *bytes)
{
	struct ordered_file *file = (struct ordered_file *)base;
	bool raw = type == H5FD_MEM_DRAW && !is_texts(file->vfd->chunk, bytes, size);
	int err = 0;

	(void)dxpl;
	ordered_enter(file);
	begin_change(file);
	if (!raw) {
		err = sl_ordered_hold(file, type, start, size, bytes);
		file->superblock |= type == H5FD_MEM_SUPER;
		count_held(file);
	} else if (!file->vfd->error) {
		/* HDF5 does not get over an error while it closes a dataset. */
		err = take_raw(file, start, size, bytes);
	}
	sl_ordered_keep_error(file, err, start);
	ordered_leave(file);
	return ordered_tell(err, start, raw ? "writing" : "holding metadata back");
}

/* ------------------------------------------------------------------------------------- flush */

static herr_t ordered_flush(H5FD_t *base, hid_t dxpl, hbool_t closing)
{
	struct ordered_file *file = (struct ordered_file *)base;
	struct sl_ordered_vfd *vfd = file->vfd;
	uint64_t offset = 0;
	int err = 0;

	(void)dxpl;
	ordered_enter(file);
	/* At the end all is flushed already, but where HDF5 is closed without that. */
	if (file->changed && !vfd->flush_blocked && sl_ordered_is_complete(file) &&
	    (file->held.count || !closing)) {
		file->leaving = vfd->deferred;
		file->flush_eoa = file->eoa;
		err = vfd->error || vfd->deferred ? vfd->error
		                                  : sl_ordered_flush_held(file, &offset);
		sl_ordered_keep_error(file, err, offset);
	}
	ordered_leave(file);
	/* HDF5 does not get over an error while it closes; it is told by vfd->error. */
	return closing ? 0 : ordered_tell(err, vfd->error_offset, "flushing");
}

int sl_ordered_vfd_change(struct sl_ordered_vfd *vfd, uint64_t start, const void *bytes, size_t n)
{
	struct ordered_file *file;
	int err = -EIO;

	sl_mutex_lock(&vfd->mutex);
	file = vfd->file;
	if (file && !vfd->error)
		err = sl_ordered_turn_word(file, true);
	if (!err)
		err = sl_ordered_write_all(file, start, n, bytes);
	if (!err)
		err = sl_ordered_barrier(file);
	if (!err)
		err = sl_ordered_turn_word(file, false);
	sl_mutex_unlock(&vfd->mutex);
	return err;
}

/* Writes the noted raw data and the deferred flush. A repeated call writes all of it again. */
static int write_left(struct ordered_file *file, bool again)
{
	int err = file->vfd->error;
	uint64_t offset = 0;

	if (!err && file->noted) {
		offset = file->noted_start;
		err = write_raw(file, offset, file->noted_size, file->noted);
	}
	file->noted = err ? file->noted : NULL;
	if (!err && file->leaving)
		err = sl_ordered_flush_held(file, &offset);
	if (again && sl_is_full(err) && !file->vfd->error)
		return err;
	file->noted = NULL;
	file->leaving = false;
	return sl_ordered_keep_error(file, err, offset);
}

int sl_ordered_vfd_settle(struct sl_ordered_vfd *vfd, bool again)
{
	bool before = vfd->error;
	int err;

	sl_mutex_lock(&vfd->mutex);
	if (!vfd->file && !vfd->error)
		vfd->error = -EIO; /* HDF5 was taken down meanwhile */
	err = vfd->file ? write_left(vfd->file, again) : vfd->error;
	sl_mutex_unlock(&vfd->mutex);
	if (!before)
		ordered_tell(vfd->error, vfd->error_offset, "writing");
	return err;
}

/* ------------------------------------------------------------------------------------ driver */

static herr_t ordered_terminate(void)
{
	driver = H5I_INVALID_HID;
	return 0;
}

static const H5FD_class_t ordered_class = {
#ifdef H5FD_CLASS_VERSION /* since 1.13 */
	.version = H5FD_CLASS_VERSION,
	.value = (H5FD_class_value_t)ORDERED_VALUE,
#endif
	.name = "sluice_ordered",
	.maxaddr = LAST_ADDRESS,
	.fc_degree = H5F_CLOSE_WEAK,
	.terminate = ordered_terminate,
	.fapl_size = sizeof(struct sl_ordered_vfd *),
	.open = ordered_open,
	.close = ordered_close,
	.cmp = ordered_compare,
	.query = ordered_query,
	.alloc = ordered_alloc,
	.free = ordered_free,
	.get_eoa = ordered_get_eoa,
	.set_eoa = ordered_set_eoa,
	.get_eof = ordered_get_eof,
	.get_handle = ordered_get_handle,
	.read = ordered_read,
	.write = ordered_write,
	.flush = ordered_flush,
	.lock = ordered_lock,
	.unlock = ordered_unlock,
	/* As HDF5 has it, but for old space of names: until the next flush the file refers to it,
	 * and only names may come there. */
	.fl_map = {H5FD_MEM_SUPER, H5FD_MEM_SUPER, H5FD_MEM_SUPER, H5FD_MEM_DRAW, H5FD_MEM_DRAW,
                   H5FD_MEM_LHEAP, H5FD_MEM_SUPER},
};

int sl_ordered_vfd_set(hid_t fapl, struct sl_ordered_vfd *vfd)
{
	if (H5Iget_type(fapl) != H5I_GENPROP_LST || H5Pisa_class(fapl, H5P_FILE_ACCESS) <= 0)
		return sl_fail(-EINVAL, "the property list is not one of file access");
	if (driver < 0)
		driver = H5FDregister(&ordered_class);
	if (driver < 0 || H5Pset_driver(fapl, driver, &vfd) < 0)
		return sl_fail(-ENOMEM, "HDF5 does not take the file driver");
	*vfd = (struct sl_ordered_vfd){
		.durable = vfd->durable,
		.held_limit = vfd->held_limit,
		.fd = vfd->fd,
		.mutex = SL_MUTEX_INIT,
		.has_frames = vfd->has_frames,
	};
	return 0;
}
