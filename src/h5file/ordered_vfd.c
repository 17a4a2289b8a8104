/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordered file driver: HDF5's writes, in an order in which the file is valid after each of
 * them. Called by the thread that is in HDF5, and by the file thread for settle and room.
 *
 * Raw data is written at once, to places that nothing in the file refers to. Metadata is held
 * back, and a flush writes it in this order:
 *
 *   new blocks      Beyond the end at the last flush: nothing refers to them.
 *   superblock      It has the end of the file. Readers refuse addresses beyond it and shorter
 *                   files, so the file is extended before, and blocks with references come
 *                   later.
 *   heaps           Names that groups will refer to, see seal_heaps(), and texts of attributes.
 *   B-tree nodes    From the root down. A split node gives half its entries to a new node:
 *   first the parent sends readers there, then the node loses them. A root stays in place, and
 *   its previous contents become a new block.
 *   symbol tables   The leaves of the B-trees of groups.
 *   object headers  They have the extents: frames become visible when their chunks can be
 *   reached.
 *
 * Except for new blocks, concurrent readers may see a mix of old and new blocks. The word of
 * the file (word.h) tells them: it is odd from the first of these writes to the last.
 *
 * A write that crosses a page may be cut there when the process is killed. So metadata blocks
 * are placed inside a page, and the file gets its space before the first of these writes. If
 * another program has placed a leaf across two pages, it is written in two steps if it only
 * grows; all other such blocks are exposed to a kill inside the call that writes them.
 *
 * None of these writes needs HDF5's lock. A chunk is in the caller's memory, HDF5 only gives it
 * a place, and nothing reads it before the flush. A flush writes the driver's copies of the
 * blocks; HDF5 takes them for written, and reads are served from the copies until they are.
 * Only calls of the driver change them, which the mutex excludes.
 */
#include "h5file/ordered_vfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "h5file/held.h"
#include "h5file/word.h"

#define PAGE 4096
/* Of drivers that are nobody's in HDF5's list: from 512 on. */
#define ORDERED_VALUE 0x5c1
/* The first bytes of a local heap, and where among them HDF5 says which place for names is free. */
#define HEAP_HEAD 32
#define HEAP_FREE 16
/* Largest offset: that of off_t. */
#define LAST_ADDRESS ((haddr_t)INT64_MAX)
/* Of space that is taken for chunks before they come, so that not each of them asks for some. */
#define STEP ((haddr_t)2 << 20)
/* Of space behind a chunk: for nodes of the index that it makes necessary, each in a page. */
#define AHEAD ((haddr_t)64 << 10)
/* Of free space: more than other programs fill until the next chunk comes. */
#define PLENTY ((haddr_t)1 << 30)

enum rank {
	RANK_NEW,
	RANK_SUPERBLOCK,
	RANK_HEAP,
	RANK_HEAP_HEAD,
	RANK_TREE, /* of 256 levels */
	RANK_SYMBOLS = RANK_TREE + 256,
	RANK_HEADER,
};

/* Space of a chunk that has moved. The file refers to it until the flush that comes next. */
struct place {
	struct place *next;
	haddr_t start;
	hsize_t size;
	uint64_t flushes; /* that there had been */
};

struct ordered_file {
	H5FD_t pub; /* HDF5's; first */
	int fd;
	pid_t process; /* that has opened it */
	bool ours;     /* this is that process */
	bool ignores_missing_locks;
	dev_t device;
	ino_t inode;
	haddr_t eoa, flush_eoa; /* end of HDF5's allocations, now and at the flush */
	uint64_t word;          /* see word.h; 0: the file has none */
	haddr_t eof;            /* end of the file itself */
	haddr_t taken;          /* end of the space that is taken for it */
	bool changed;           /* flushed_eoa is known: the superblock has been read */
	haddr_t flushed_eoa;    /* nothing in the file refers beyond it */
	struct sl_held held;
	bool superblock; /* is among it */
	bool leaving;    /* settle writes it */
	bool written;    /* it is, and is forgotten at the next call */
	/* Raw data in memory that was lent, which settle writes, too; NULL: there is none. */
	const void *noted;
	haddr_t noted_start;
	size_t noted_size;
	struct place *places;       /* of chunks that have moved */
	struct sl_ordered_vfd *vfd; /* the caller's */
};

/* The contents of the property list. */
struct ordered_info {
	struct sl_ordered_vfd *vfd;
};

static hid_t driver = H5I_INVALID_HID; /* guarded by HDF5's own lock, as the driver's calls are */

#define complain(minor, ...)                                                             \
	H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_VFL, minor, \
	         __VA_ARGS__)

/* The first error stays. */
static int keep_error(struct ordered_file *file, int error, uint64_t offset)
{
	if (error && !file->vfd->error) {
		file->vfd->error = error;
		file->vfd->error_offset = offset;
	}
	return error;
}

/* HDF5 hears of the first error. Without the mutex, as it may wait for HDF5's lock. */
static herr_t ordered_tell(int error, uint64_t offset, const char *what)
{
	if (!error)
		return 0;
	complain(H5E_WRITEERROR, "%s at offset %llu: %s", what, (unsigned long long)offset,
	         error == -ESTALE ? "another program has truncated or overwritten the file"
	                          : sl_error_text(error));
	return -1;
}

/*
 * Around each call to the driver. A child of fork() has no thread that would unlock the mutex,
 * and needs none: nothing changes while settle holds it, which leaves the held blocks to the
 * next call.
 */
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

/* ------------------------------------------------------------------------------ other programs */

/*
 * HDF5's lock does not keep other programs from open(2) with O_TRUNC, as HDF5 itself calls it before it asks
 * for the lock. The file would be filled up again behind its new end, with nothing before. So its length is
 * compared before each write of raw data, and with its word before each flush.
 */
static int check_length(const struct ordered_file *file)
{
	off_t length = lseek(file->fd, 0, SEEK_END); /* quicker than fstat() */

	if (length < 0)
		return -errno;
	return (haddr_t)length < file->eof ? -ESTALE : 0;
}

/* The word says whether it is the file that the last flush left. */
static int ordered_check_file(const struct ordered_file *file)
{
	uint64_t word = 0;
	/* A new file has it with the first flush. */
	if (!file->word || !file->flushed_eoa)
		return check_length(file);
	if (sl_word_read(file->fd, &word) < 0)
		return -EIO;
	return word == file->word ? check_length(file) : -ESTALE;
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
		err = sl_word_write(file->fd, ++file->word);
	return err;
}

static H5FD_t *ordered_open(const char *name, unsigned flags, hid_t fapl, haddr_t max_address)
{
	const struct ordered_info *info = H5Pget_driver_info(fapl);
	hbool_t locks, ignores_missing_locks;
	struct ordered_file *file;
	struct stat status;
	int err;

	(void)max_address;
	if (!info || H5Pget_file_locking(fapl, &locks, &ignores_missing_locks) < 0)
		return NULL;
	file = calloc(1, sizeof(*file));
	if (!file) {
		info->vfd->error = -ENOMEM;
		return NULL;
	}
	file->vfd = info->vfd;
	file->fd = ordered_open_file(file->vfd, name, flags);
	err = file->fd < 0 || fstat(file->fd, &status) < 0 ? -errno : take_word(file, flags);
	if (err) {
		info->vfd->error = err;
		complain(H5E_CANTOPENFILE, "%s: %s", name, sl_error_text(err));
		if (file->fd >= 0)
			close(file->fd);
		free(file);
		return NULL;
	}
	/* HDF5 opens more than once when it makes a file, and the first time may fail. */
	info->vfd->error = 0;
	file->ignores_missing_locks = ignores_missing_locks;
	file->process = getpid();
	file->ours = true;
	file->device = status.st_dev;
	file->inode = status.st_ino;
	file->eof = status.st_size;
	file->vfd->file = file;
	return &file->pub;
}

/* Space that was taken behind the end of the file; a part of it may have been before there was no more. */
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
	ordered_give_back(file);
	/* After a flush, or a failed flush: the blocks that are still held are never written. */
	sl_held_clear(&file->held);
	count_held(file);
	for (struct place *place; (place = file->places); free(place))
		file->places = place->next;
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

/*
 * HDF5 must not gather metadata into larger writes nor allocate ahead: each block comes as a
 * write of its own with its type, and the end of the allocations is the end of the used bytes.
 * HDF5 must not look up the name, which a file may not have yet.
 */
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

/* As HDF5's own driver does; HDF5 calls it unless HDF5_USE_FILE_LOCKING or the fapl says no. */
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

/* Takes a free place of this size that the file does not refer to, or returns 0. */
static haddr_t ordered_take_place(struct ordered_file *file, hsize_t size)
{
	for (struct place **at = &file->places; *at; at = &(*at)->next) {
		struct place *place = *at;
		haddr_t start = place->start;

		if (place->size != size || place->flushes == file->vfd->flushes)
			continue;
		*at = place->next;
		free(place);
		return start;
	}
	return 0;
}

static haddr_t ordered_alloc(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, hsize_t size)
{
	struct ordered_file *file = (struct ordered_file *)base;
	haddr_t start = file->eoa, place = 0;

	(void)dxpl;
	begin_change(file);
	if (type == H5FD_MEM_DRAW && !file->vfd->pages)
		place = ordered_take_place(file, size);
	if (place)
		return place;
	if (type == H5FD_MEM_DRAW ? file->vfd->pages
	                          : size <= PAGE && start / PAGE != (start + size - 1) / PAGE)
		start = (start + PAGE - 1) / PAGE * PAGE;
	file->eoa = start + size;
	if (type == H5FD_MEM_SUPER && start == 0) {
		file->eoa = SL_WORD_END;
		/* Even, and none that the file of that name had before. */
		file->word = (uint64_t)sl_now() << 1;
	}
	return start;
}

/* Nothing is given back at once: the file may still refer to it. */
static herr_t ordered_free(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, haddr_t start, hsize_t size)
{
	struct ordered_file *file = (struct ordered_file *)base;
	struct sl_ordered_vfd *vfd = file->vfd;
	struct place *place;

	(void)type, (void)dxpl;
	if (!vfd->moved_bytes || start != vfd->moved || size != vfd->moved_bytes)
		return 0;
	vfd->moved_bytes = 0;
	place = malloc(sizeof(*place)); /* without it the space stays unused */
	if (!place)
		return 0;
	*place = (struct place){file->places, start, size, vfd->flushes};
	file->places = place;
	return 0;
}

/*
 * HDF5 reuses freed space at once from its own list; only space at the end of the file goes to
 * the driver. So the driver reports, for raw data, the end of the moving chunk as the end of
 * the file until the chunk is freed.
 */
static haddr_t ordered_get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
	const struct ordered_file *file = (const struct ordered_file *)base;
	const struct sl_ordered_vfd *vfd = file->vfd;

	return type == H5FD_MEM_DRAW && vfd->moved_bytes ? vfd->moved + vfd->moved_bytes
	                                                 : file->eoa;
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
	size_t done = 0;

	(void)type, (void)dxpl;
	while (done < size) {
		ssize_t n = pread(file->fd, (char *)buffer + done, size - done, start + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			complain(H5E_READERROR, "reading at offset %llu: %s",
			         (unsigned long long)start, sl_error_text(-errno));
			return -1;
		}
		if (n == 0)
			break;
		done += n;
	}
	/* HDF5 expects zeroes beyond the end of the file. */
	memset((char *)buffer + done, 0, size - done);
	ordered_enter(file);
	sl_held_get(&file->held, start, size, buffer);
	ordered_leave(file);
	return 0;
}

static int ordered_write_all(struct ordered_file *file, uint64_t start, size_t size,
                             const void *bytes)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pwrite(file->fd, (const char *)bytes + done, size - done, start + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += n;
	}
	file->eof = SL_MAX(file->eof, start + size);
	return 0;
}

/* So that no write of metadata that follows finds the disk full. */
static int ordered_reserve(struct ordered_file *file, uint64_t end)
{
	int done;

	if (file->eof >= end)
		return 0;
	done = TEMP_FAILURE_RETRY(fallocate(file->fd, 0, file->eof, end - file->eof));
	if (done < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		done = ftruncate(file->fd, end);
	if (done < 0)
		return -errno;
	file->eof = end;
	return 0;
}

bool sl_is_full(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

/* In tmpfs a page costs more if its space was taken before. There it is taken only while little is left. */
static bool has_plenty(const struct ordered_file *file, haddr_t bytes)
{
	struct statfs system;

	return !fstatfs(file->fd, &system) && system.f_type == TMPFS_MAGIC &&
	       (haddr_t)system.f_bavail * (haddr_t)system.f_bsize > PLENTY + bytes;
}

/* From max(eof, taken) on, behind the end of the file; -errno. */
static int ordered_take_space(struct ordered_file *file, haddr_t end)
{
	haddr_t from = SL_MAX(file->eof, file->taken);
	int done;

	done = TEMP_FAILURE_RETRY(fallocate(file->fd, FALLOC_FL_KEEP_SIZE, from, end - from));
	file->taken = done ? from : end;
	return done ? -errno : 0;
}

int sl_ordered_vfd_room(struct sl_ordered_vfd *vfd, uint64_t bytes)
{
	struct ordered_file *file;
	haddr_t end;
	int err = 0;

	sl_mutex_lock(&vfd->mutex);
	file = vfd->file;
	end = file ? file->eoa + bytes + AHEAD + vfd->ahead : 0;
	if (file && !vfd->error && SL_MAX(file->eof, file->taken) < end &&
	    !has_plenty(file, bytes)) {
		err = ordered_take_space(file, end + STEP);
		if (err)
			err = ordered_take_space(file, end);
		/* Where the file system cannot, it is not asked again, and the write sees. */
		if (err && !sl_is_full(err))
			file->taken = LAST_ADDRESS;
	}
	sl_mutex_unlock(&vfd->mutex);
	return sl_is_full(err) ? err : 0;
}

static enum rank rank_of(H5FD_mem_t type, const uint8_t *bytes, size_t size)
{
	switch (type) {
	case H5FD_MEM_SUPER:
		return RANK_SUPERBLOCK;
	case H5FD_MEM_BTREE:
		/* After the signature: the kind of the node and its level; leaves are 0. */
		if (size > 5 && memcmp(bytes, "TREE", 4) == 0)
			return RANK_TREE + 255 - bytes[5];
		return RANK_SYMBOLS;
	case H5FD_MEM_OHDR:
		return RANK_HEADER;
	case H5FD_MEM_LHEAP:
		return size == HEAP_HEAD && !memcmp(bytes, "HEAP", 4) ? RANK_HEAP_HEAD : RANK_HEAP;
	default:
		return RANK_HEAP;
	}
}

/* Makes room: nobody can see the new blocks, so that they may be written at any time. */
static int write_new(struct ordered_file *file)
{
	struct sl_held_block **blocks;
	size_t count = file->held.count;
	int err = sl_held_sorted(&file->held, &blocks);

	if (err)
		return err;
	for (size_t i = 0; !err && i < count && blocks[i]->rank == RANK_NEW; i++) {
		uint64_t start = blocks[i]->range.start, end = blocks[i]->range.end;

		err = ordered_write_all(file, start, end - start, blocks[i]->bytes);
		if (!err)
			err = sl_held_forget(&file->held, start, end);
		file->vfd->early_bytes += err ? 0 : end - start;
	}
	free(blocks);
	return err;
}

static bool held_is_full(const struct ordered_file *file, size_t size)
{
	return file->vfd->held_limit && !file->vfd->error &&
	       file->held.bytes + size > file->vfd->held_limit;
}

static int ordered_hold(struct ordered_file *file, H5FD_mem_t type, haddr_t start, size_t size,
                        const void *bytes)
{
	bool new = start >= file->flushed_eoa &&type != H5FD_MEM_SUPER;
	enum rank rank = new ? RANK_NEW : rank_of(type, bytes, size);
	int err = 0;

	if (held_is_full(file, size))
		err = sl_held_forget(&file->held, start, start + size);
	if (!err && held_is_full(file, size))
		err = write_new(file);
	/* Over the limit while the disk is full, which is waited for in the next settle. */
	if (sl_is_full(err))
		err = 0;
	else if (!err && held_is_full(file, size))
		err = -ENOBUFS;
	return err ? err : sl_held_put(&file->held, start, size, type, rank, bytes);
}

/* HDF5 writes the head of a heap together with its names until these move. */
static int ordered_hold_parts(struct ordered_file *file, H5FD_mem_t type, haddr_t start,
                              size_t size, const char *bytes)
{
	bool heap = type == H5FD_MEM_LHEAP && size > HEAP_HEAD && !memcmp(bytes, "HEAP", 4);
	size_t head = heap ? HEAP_HEAD : 0;
	int err = heap ? ordered_hold(file, type, start, head, bytes) : 0;

	return err ? err : ordered_hold(file, type, start + head, size - head, bytes + head);
}

static int write_raw(struct ordered_file *file, haddr_t start, size_t size, const void *bytes)
{
	int err = check_length(file);

	/* The range between belongs to held blocks and contiguous datasets. */
	if (!err)
		err = ordered_reserve(file, start);
	if (!err)
		err = ordered_write_all(file, start, size, bytes);
	file->vfd->raw_bytes += err ? 0 : size;
	return err;
}

static bool is_lent(const struct ordered_file *file, const void *bytes, size_t size)
{
	const char *first = file->vfd->lent, *at = bytes;

	return first && at >= first && at + size <= first + file->vfd->lent_bytes && !file->noted;
}

static int take_raw(struct ordered_file *file, haddr_t start, size_t size, const void *bytes)
{
	int err = sl_held_forget(&file->held, start, start + size);

	if (err || !is_lent(file, bytes, size))
		return err ? err : write_raw(file, start, size, bytes);
	file->vfd->lent_place = start;
	file->noted = (const char *)bytes + file->vfd->lent_from;
	file->noted_start = start + file->vfd->lent_from;
	file->noted_size = file->vfd->lent_to ? file->vfd->lent_to - file->vfd->lent_from : size;
	return 0;
}

/* A block of texts, which HDF5 takes for raw data and writes in its place, in H5Fflush. */
static bool is_texts(const void *bytes, size_t size)
{
	return size > 4 && size <= PAGE && memcmp(bytes, "GCOL", 4) == 0;
}

static herr_t ordered_write(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, haddr_t start, size_t size,
                            const void *bytes)
{
	struct ordered_file *file = (struct ordered_file *)base;
	bool raw = type == H5FD_MEM_DRAW && !is_texts(bytes, size);
	int err = 0;

	(void)dxpl;
	ordered_enter(file);
	begin_change(file);
	if (!raw) {
		err = ordered_hold_parts(file, type, start, size, bytes);
		file->superblock |= type == H5FD_MEM_SUPER;
		count_held(file);
	} else if (!file->vfd->error) {
		/* HDF5 does not get over an error while it closes a dataset. */
		err = take_raw(file, start, size, bytes);
	}
	keep_error(file, err, start);
	ordered_leave(file);
	return ordered_tell(err, start, raw ? "writing" : "holding metadata back");
}

/* ------------------------------------------------------------------------------------- flush */

static int ordered_barrier(struct ordered_file *file)
{
	/* Raw data may be lost by it, too: not to be tried again. */
	return file->vfd->durable && fdatasync(file->fd) < 0 ? keep_error(file, -errno, 0) : 0;
}

/* Entries of a node of a B-tree, which are said behind its signature, kind and level. */
static unsigned entries_of(const uint8_t *node)
{
	return node[6] | node[7] << 8;
}

/*
 * Returns where to divide a block that another program has placed across two pages; 0: nowhere.
 * A leaf that grows has its new entries at its end and their number at its start: written from
 * its end, it has either all entries or the old entries.
 */
static uint64_t where_to_cut(struct ordered_file *file, const struct sl_held_block *block)
{
	uint64_t start = block->range.start, end = block->range.end;
	uint64_t boundary = (start / PAGE + 1) * PAGE;
	uint8_t head[8];

	/* Kind 1: an index of chunks, where visible entries come before new entries. */
	if (block->rank != RANK_SYMBOLS - 1 || block->bytes[4] != 1 || boundary >= end)
		return 0;
	if (pread(file->fd, head, sizeof(head), start) != sizeof(head))
		return 0;
	return entries_of(head) <= entries_of(block->bytes) ? boundary : 0;
}

static int write_block(struct ordered_file *file, const struct sl_held_block *block)
{
	uint64_t start = block->range.start, end = block->range.end;
	uint64_t cut = where_to_cut(file, block);
	int err = 0;

	if (cut)
		err = ordered_write_all(file, cut, end - cut, block->bytes + (cut - start));
	return err ? err : ordered_write_all(file, start, (cut ? cut : end) - start, block->bytes);
}

static int step_word(struct ordered_file *file, unsigned step)
{
	int err = sl_word_write(file->fd, file->word + step);

	file->word += err ? 0 : step;
	return err;
}

/* Makes the word odd or even. While it is odd readers wait, or repeat their reads. */
static int turn_word(struct ordered_file *file, bool odd)
{
	if (!file->word || file->word % 2 == odd)
		return 0;
	file->eof = SL_MAX(file->eof, SL_WORD_END);
	return step_word(file, 1);
}

/*
 * HDF5 links the free places among the names of a group through these places themselves, and refuses a group
 * where a new name lies in a place that its head calls free. So the heads say first that nothing is free, then
 * the names are written, and then the heads, which may send readers to another block of names.
 */
static int seal_heaps(struct ordered_file *file, struct sl_held_block **blocks)
{
	static const uint8_t none[8] = {1};
	char signature[4];
	int err = 0;

	for (size_t i = 0; !err && i < file->held.count; i++) {
		uint64_t start = blocks[i]->range.start;

		if (blocks[i]->rank == RANK_HEAP_HEAD &&
		    pread(file->fd, signature, 4, start) == 4 && !memcmp(signature, "HEAP", 4))
			err = ordered_write_all(file, start + HEAP_FREE, sizeof(none), none);
	}
	return err ? err : ordered_barrier(file);
}

static int write_held(struct ordered_file *file, struct sl_held_block **blocks, uint64_t *offset)
{
	int err = ordered_check_file(file);
	unsigned sealed = 0;

	/* This is tried again; readers may have been there in between. */
	if (!err && file->word % 2 && !sl_word_lock(file->fd, F_WRLCK))
		err = step_word(file, 2);
	if (!err)
		err = ordered_reserve(file, file->flush_eoa);
	*offset = file->eof;
	for (size_t i = 0; !err && i < file->held.count; i++) {
		struct sl_interval *range = &blocks[i]->range;

		*offset = range->start;
		/* The first rank follows raw data. */
		if (blocks[i]->rank != RANK_NEW &&
		    (i == 0 || blocks[i]->rank != blocks[i - 1]->rank))
			err = ordered_barrier(file);
		if (!err && blocks[i]->rank != RANK_NEW)
			err = turn_word(file, true);
		if (!err && blocks[i]->rank == RANK_HEAP && !sealed++)
			err = seal_heaps(file, blocks);
		if (!err)
			err = write_block(file, blocks[i]);
	}
	if (!err)
		err = ordered_barrier(file);
	if (!err)
		err = turn_word(file, false);
	/* Nothing is written any more: to readers, without the lock the file stands still. */
	if (err)
		sl_word_lock(file->fd, F_UNLCK);
	return err;
}

/* Returns whether HDF5 has written everything: then the superblock has the end of its
 * allocations, too. */
static bool flush_is_complete(const struct ordered_file *file)
{
	return file->eoa == file->flushed_eoa || file->superblock;
}

static int flush_held(struct ordered_file *file, uint64_t *offset)
{
	struct sl_held_block **blocks;
	int err = sl_held_sorted(&file->held, &blocks);

	if (!err) {
		err = write_held(file, blocks, offset);
		free(blocks);
	}
	if (err)
		return err;
	file->vfd->metadata_bytes += file->held.bytes;
	file->vfd->flushes++;
	file->vfd->held = 0;
	file->flushed_eoa = file->flush_eoa;
	file->superblock = false;
	file->written = true;
	return 0;
}

static herr_t ordered_flush(H5FD_t *base, hid_t dxpl, hbool_t closing)
{
	struct ordered_file *file = (struct ordered_file *)base;
	struct sl_ordered_vfd *vfd = file->vfd;
	uint64_t offset = 0;
	int err = 0;

	(void)dxpl;
	ordered_enter(file);
	/* At the end all is flushed already, but where HDF5 is closed without that. */
	if (file->changed && !vfd->sealed && flush_is_complete(file) &&
	    (file->held.count || !closing)) {
		file->leaving = vfd->apart;
		file->flush_eoa = file->eoa;
		err = vfd->error || vfd->apart ? vfd->error : flush_held(file, &offset);
		keep_error(file, err, offset);
	}
	ordered_leave(file);
	/* HDF5 does not get over an error while it closes; it is told by vfd->error. */
	return closing ? 0 : ordered_tell(err, vfd->error_offset, "flushing");
}

int sl_ordered_vfd_change(struct sl_ordered_vfd *vfd, uint64_t place, const void *bytes, size_t n)
{
	struct ordered_file *file;
	int err = -EIO;

	sl_mutex_lock(&vfd->mutex);
	file = vfd->file;
	if (file && !vfd->error)
		err = turn_word(file, true);
	if (!err)
		err = ordered_write_all(file, place, n, bytes);
	if (!err)
		err = ordered_barrier(file);
	if (!err)
		err = turn_word(file, false);
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
		err = flush_held(file, &offset);
	if (again && sl_is_full(err) && !file->vfd->error)
		return err;
	file->noted = NULL;
	file->leaving = false;
	return keep_error(file, err, offset);
}

int sl_ordered_vfd_settle(struct sl_ordered_vfd *vfd, bool again)
{
	bool before = vfd->error;
	int err;

	sl_mutex_lock(&vfd->mutex);
	if (!vfd->file && !vfd->error)
		vfd->error = -EIO; /* HDF5 was taken down meanwhile */
	err = vfd->file ? write_left(vfd->file, again) : vfd->error;
	vfd->lent = NULL;
	vfd->lent_from = vfd->lent_to = 0;
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
	.fapl_size = sizeof(struct ordered_info),
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
	/* As HDF5 has it, but for the places of names that have moved: until the next flush the file refers to them,
	 * and only names may come there. */
	.fl_map = {H5FD_MEM_SUPER, H5FD_MEM_SUPER, H5FD_MEM_SUPER, H5FD_MEM_DRAW, H5FD_MEM_DRAW,
                   H5FD_MEM_LHEAP, H5FD_MEM_SUPER},
};

int sl_ordered_vfd_set(hid_t fapl, struct sl_ordered_vfd *vfd)
{
	struct ordered_info info = {vfd};

	if (H5Iget_type(fapl) != H5I_GENPROP_LST || H5Pisa_class(fapl, H5P_FILE_ACCESS) <= 0)
		return sl_fail(-EINVAL, "the property list is not one of file access");
	if (driver < 0)
		driver = H5FDregister(&ordered_class);
	if (driver < 0 || H5Pset_driver(fapl, driver, &info) < 0)
		return sl_fail(-ENOMEM, "HDF5 does not take the file driver");
	*vfd = (struct sl_ordered_vfd){
		.durable = vfd->durable,
		.held_limit = vfd->held_limit,
		.fd = vfd->fd,
		.mutex = SL_MUTEX_INIT,
	};
	return 0;
}
