/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Space in the file: room on the disk before a chunk is written, space at the end for other
 * processes, and spare space for later chunks. Spare is the old space of a chunk with a new size,
 * for a chunk of the old size or for the last chunks, and pieces from frames that were given up.
 * At the end of the file it is cut off by the close. Without memory for its record, spare space
 * stays unused. Threads: the driver's, with vfd->mutex; the file thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "h5file/ordered_internal.h"

/* Space that is taken ahead for chunks, so that not each of them asks for some. */
#define STEP ((haddr_t)2 << 20)
/* Space behind a chunk for the index nodes that it requires, each in a page. */
#define AHEAD ((haddr_t)64 << 10)
/* Free space that other programs do not use up before the next chunk. */
#define PLENTY ((haddr_t)1 << 30)

/* -------------------------------------------------------------------------------- at the end */

/* In tmpfs a page costs more if its space was taken before: only when little is left. */
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
	int done = TEMP_FAILURE_RETRY(fallocate(file->fd, FALLOC_FL_KEEP_SIZE, from, end - from));

	file->taken = done ? from : end;
	return done ? -errno : 0;
}

int sl_ordered_vfd_room(struct sl_ordered_vfd *vfd, uint64_t bytes)
{
	struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
	struct ordered_file *file;
	haddr_t end;
	int err = 0;

	sl_mutex_lock(&vfd->mutex);
	file = vfd->file;
	end = file ? SL_MAX(file->eoa, file->granted) + bytes + AHEAD + vfd->ahead : 0;
	getrlimit(RLIMIT_FSIZE, &most);
	if (file && !vfd->error && end > most.rlim_cur) {
		err = -EFBIG;
	} else if (file && !vfd->error && SL_MAX(file->eof, file->taken) < end &&
	           !has_plenty(file, bytes)) {
		err = ordered_take_space(file, SL_MIN(end + STEP, most.rlim_cur));
		if (err)
			err = ordered_take_space(file, end);
		/* Where the file system cannot, it is not asked again, and the write sees. */
		if (err && !sl_is_full(err))
			file->taken = LAST_ADDRESS;
	}
	sl_mutex_unlock(&vfd->mutex);
	return sl_is_full(err) ? err : 0;
}

int sl_ordered_vfd_grant(struct sl_ordered_vfd *vfd, uint64_t bytes, bool page, uint64_t *start)
{
	struct ordered_file *file;
	int err;

	sl_mutex_lock(&vfd->mutex);
	file = vfd->file;
	err = vfd->error ? vfd->error : file ? sl_ordered_check_length(file) : -EIO;
	if (!err) {
		*start = SL_MAX(file->eoa, file->granted);
		*start = page ? (*start + PAGE - 1) / PAGE * PAGE : *start;
		err = sl_ordered_reserve(file, *start + bytes);
	}
	if (!err)
		file->granted = *start + bytes;
	sl_mutex_unlock(&vfd->mutex);
	return err;
}

/* -------------------------------------------------------------------------------------- spare */

void sl_ordered_moved(struct ordered_file *file, haddr_t start, hsize_t size)
{
	struct spare_chunk *spare = malloc(sizeof(*spare));

	if (!spare)
		return;
	*spare = (struct spare_chunk){file->spare, start, size, file->vfd->flushes};
	file->spare = spare;
}

static void piece_found(struct sl_interval *piece, void *out)
{
	*(struct sl_interval **)out = piece;
}

/* Between calls of HDF5. Joins it with pieces beside it. */
void sl_ordered_vfd_give_up(struct sl_ordered_vfd *vfd, uint64_t start, uint64_t size)
{
	struct sl_interval *piece = malloc(sizeof(*piece)), *near = piece;
	uint64_t end = start + size;

	sl_mutex_lock(&vfd->mutex);
	while (near && vfd->file && end <= vfd->file->eoa) {
		near = NULL;
		sl_intervals_overlapping(&vfd->file->pieces, start - 1, end + 1, piece_found,
		                         &near);
		if (near) {
			start = SL_MIN(start, near->start);
			end = SL_MAX(end, near->end);
			sl_intervals_remove(&vfd->file->pieces, near);
			free(near);
			continue;
		}
		*piece = (struct sl_interval){.start = start, .end = end, .sequence = end - start};
		sl_intervals_insert(&vfd->file->pieces, piece);
		piece = NULL;
	}
	sl_mutex_unlock(&vfd->mutex);
	free(piece);
}

/* The start of the largest piece: its length is its sequence. */
static haddr_t piece_take(struct ordered_file *file, hsize_t size)
{
	static const struct sl_interval all = {.end = UINT64_MAX};
	struct sl_interval *piece =
		sl_intervals_latest(&file->pieces, &all, size - 1, UINT64_MAX, UINT64_MAX);
	haddr_t start = piece ? piece->start : 0;

	if (!piece)
		return 0;
	sl_intervals_remove(&file->pieces, piece);
	piece->start += size;
	piece->sequence -= size;
	if (piece->sequence)
		sl_intervals_insert(&file->pieces, piece);
	else
		free(piece);
	return start;
}

haddr_t sl_ordered_take(struct ordered_file *file, hsize_t size, bool last)
{
	for (struct spare_chunk **at = &file->spare; *at; at = &(*at)->next) {
		struct spare_chunk *spare = *at;
		haddr_t start = spare->start;

		if (spare->size < size || (spare->size > size && !last) ||
		    spare->flushes == file->vfd->flushes)
			continue;
		spare->start += size;
		spare->size -= size;
		if (!spare->size) {
			*at = spare->next;
			free(spare);
		}
		return start;
	}
	return piece_take(file, size);
}

bool sl_ordered_vfd_fits(struct sl_ordered_vfd *vfd, uint64_t size, uint64_t before)
{
	struct spare_chunk *spare;

	sl_mutex_lock(&vfd->mutex);
	for (spare = vfd->file ? vfd->file->spare : NULL; spare; spare = spare->next)
		if (spare->size >= size && spare->start < before && spare->flushes != vfd->flushes)
			break;
	sl_mutex_unlock(&vfd->mutex);
	return spare;
}

haddr_t sl_ordered_used_end(const struct ordered_file *file)
{
	const struct spare_chunk *spare = file->spare;
	haddr_t end = file->eoa;

	while (spare) {
		bool last =
			spare->start + spare->size == end && spare->flushes != file->vfd->flushes;

		end = last ? spare->start : end;
		spare = last ? file->spare : spare->next;
	}
	return end;
}

void sl_ordered_forget_space(struct ordered_file *file)
{
	for (struct spare_chunk *spare; (spare = file->spare); free(spare))
		file->spare = spare->next;
	for (struct sl_interval *piece; (piece = file->pieces.root); free(piece))
		sl_intervals_remove(&file->pieces, piece);
}
