/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of calls for pieces of local files
 *
 * Takes the result of each system call, of each request of io_uring and of each call of cuFile,
 * decides whether another call is needed, and ends the piece. On the thread of that call.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#include "local/local_internal.h"

/* Returns whether the rest of the piece can still bypass the page cache. */
static bool rest_is_aligned(const struct sl_piece *piece)
{
	uint32_t alignment = sl_local_of(piece->backend)->offset_alignment;

	return piece->moved % alignment == 0 && piece->length % alignment == 0;
}

static void log_result(const struct sl_piece *piece, ssize_t result)
{
	const struct sl_local *local = sl_local_of(piece->backend);
	size_t asked = piece->length - piece->moved;

	sl_log(&local->core->settings, SL_LOG_DEBUG,
	       "%s '%s' bytes %" PRIu64 "+%zu%s by %s: %zd%s%s", piece->write ? "write" : "read",
	       local->path, piece->offset + piece->moved, asked, piece->direct ? " direct" : "",
	       sl_local_way_of(piece)->permits == &local->permits[SL_PERMIT_RING] ? "io_uring"
	                                                                          : "a thread",
	       result,
	       result < 0                ? " "
	       : result < (ssize_t)asked ? ", short"
	                                 : "",
	       result < 0 ? sl_error_text((int)result) : "");
}

/* Falls back to plain buffered I/O if a kind of access is refused; false if it was plain. */
static bool fall_back(struct sl_piece *piece, ssize_t result)
{
	struct sl_local *local = sl_local_of(piece->backend);
	struct sl_local_way *way = sl_local_way_of(piece);

	if (piece->direct && (result == -EINVAL || result == -EOPNOTSUPP)) {
		atomic_store(&local->use_direct, false);
		piece->direct = false;
		return true;
	}
	if (way->dontcache && (result == -EOPNOTSUPP || result == -EINVAL)) {
		atomic_store(&local->use_dontcache, false);
		way->dontcache = false;
		return true;
	}
	return false;
}

int sl_transfer_step(struct sl_piece *piece, ssize_t result)
{
	struct sl_local_way *way = sl_local_way_of(piece);

	if (sl_local_of(piece->backend)->core->settings.log >= SL_LOG_DEBUG)
		log_result(piece, result);
	way->vain = result == -EINTR || result == -EAGAIN ? way->vain + 1 : 0;
	if (result > 0) {
		piece->moved += result;
		if (piece->moved == piece->length)
			return true;
		if (piece->direct && !rest_is_aligned(piece))
			piece->direct = false;
	} else if (result == 0) {
		if (piece->write)
			piece->error = -EIO;
		return true;
	} else if (!way->vain && !fall_back(piece, result)) {
		/* That of a file system: only the library cancels operations. */
		piece->error = result == -ECANCELED ? -EIO : (int)result;
		return true;
	}
	if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed)) {
		piece->error = -ECANCELED;
		return true;
	}
	return false;
}

/* Drops the page cache that a piece has read, unless the kernel did. May wait for storage. */
static void piece_drop_pages(struct sl_piece *piece)
{
	uint64_t start = piece->offset - piece->offset % sl_page_size();
	const struct sl_local_way *way = sl_local_way_of(piece);

	if (way->drops && !piece->direct && !way->dontcache)
		posix_fadvise(sl_local_of(piece->backend)->descriptor, start,
		              sl_whole_pages(piece->offset + piece->length - start),
		              POSIX_FADV_DONTNEED);
}

void sl_local_done(struct sl_piece *piece)
{
	const struct sl_local_way *way = sl_local_way_of(piece);

	/* On a reactor only if the file system has just refused the flags that do the same. */
	piece_drop_pages(piece);
	if (way->permits)
		sl_permit_give(piece);
	if (!way->bounce || sl_bounce_finish(piece))
		sl_piece_done(piece);
}
