/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a piece. What is resident is read through the page cache by the workers; what is not,
 * goes around it if it is large and aligned, and through the reactors if there are any. On write,
 * large aligned pieces go around the page cache, the rest through it.
 */
#include "local/local_internal.h"

void sl_auto_execute(struct sl_piece *piece)
{
	struct sl_local *local = sl_local(piece->backend);

	if (local->core->uring && !atomic_load(&local->core->kernel.uring_error) &&
	    local->choice != SL_CHOICE_POSIX && !local->pseudo &&
	    (!local->blocks || local->choice == SL_CHOICE_URING))
		sl_uring_submit(piece);
	else
		sl_posix_submit(piece);
}

/* Sends a piece around the page cache, if that is possible. */
static bool submit_direct(struct sl_local *local, struct sl_piece *piece)
{
	if (!piece->large || !piece->aligned || local->direct < 0 ||
	    piece->moved % local->offset_alignment ||
	    !atomic_load_explicit(&local->use_direct, memory_order_relaxed))
		return false;
	piece->direct = true;
	if ((uintptr_t)piece->data % local->memory_alignment) {
		if (sl_bounce_submit(piece))
			return true;
		piece->direct = false;
		return false;
	}
	sl_auto_execute(piece);
	return true;
}

void sl_auto_submit_cold(struct sl_piece *piece)
{
	struct sl_local *local = sl_local(piece->backend);

	atomic_store_explicit(&local->resident, false, memory_order_relaxed);
	piece->nowait = false;
	if (submit_direct(local, piece))
		return;
	piece->dontcache =
		piece->large && atomic_load_explicit(&local->use_dontcache, memory_order_relaxed);
	sl_auto_execute(piece);
}

static void submit_read(struct sl_local *local, struct sl_piece *piece)
{
	bool nowait = atomic_load_explicit(&local->use_nowait, memory_order_relaxed);

	if (local->pseudo) {
		sl_posix_submit(piece);
		return;
	}
	if (piece->missed) {
		sl_auto_submit_cold(piece);
		return;
	}
	/*
	 * For a small piece the last look is believed while the kernel can say on the way that it was
	 * wrong. For a large one that answer would come too late, behind the copies of the others, and
	 * would have begun to read into the page cache what is then read around it.
	 */
	if (piece->large || !nowait ||
	    !atomic_load_explicit(&local->resident, memory_order_relaxed)) {
		if (!sl_resident(local, piece->offset, piece->length)) {
			sl_auto_submit_cold(piece);
			return;
		}
		atomic_store_explicit(&local->resident, true, memory_order_relaxed);
	}
	if (local->choice == SL_CHOICE_URING) {
		sl_uring_submit(piece);
		return;
	}
	piece->nowait = nowait;
	sl_posix_submit(piece);
}

void sl_auto_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	struct sl_local *local = sl_local(backend);

	piece->direct = piece->nowait = piece->dontcache = false;
	piece->bounce = NULL;
	piece->turns = NULL;
	piece->vain = 0;
	if (!piece->write)
		submit_read(local, piece);
	else if (submit_direct(local, piece))
		return;
	else if (local->choice == SL_CHOICE_URING)
		sl_auto_execute(piece);
	else
		sl_posix_submit(piece);
}
