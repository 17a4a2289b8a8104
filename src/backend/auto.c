/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a piece. What is resident is read through the page cache by the workers; what is not,
 * goes around it if it is large and aligned, and through the reactors if there are any. On write,
 * large aligned pieces go around the page cache, the rest through it.
 */
#include "backend/local.h"

static bool direct_is_possible(struct sl_local *local, const struct sl_piece *piece)
{
	return piece->large && piece->aligned && local->direct >= 0 &&
	       atomic_load_explicit(&local->use_direct, memory_order_relaxed);
}

static void submit_to_reactors(struct sl_local *local, struct sl_piece *piece)
{
	if (local->core->uring && local->choice != SL_CHOICE_POSIX && !local->pseudo)
		sl_uring_submit(piece);
	else
		sl_posix_submit(piece);
}

void sl_auto_submit_cold(struct sl_piece *piece)
{
	struct sl_local *local = sl_local(piece->backend);
	uint32_t alignment = local->offset_alignment;

	atomic_store_explicit(&local->resident, false, memory_order_relaxed);
	piece->nowait = false;
	piece->direct = direct_is_possible(local, piece) && piece->moved % alignment == 0;
	piece->dontcache = !piece->direct && piece->large &&
	                   atomic_load_explicit(&local->use_dontcache, memory_order_relaxed);
	submit_to_reactors(local, piece);
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
	/* The last look is believed while the kernel can say on the way that it was wrong. */
	if (!(nowait && atomic_load_explicit(&local->resident, memory_order_relaxed))) {
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
	if (!piece->write) {
		submit_read(local, piece);
		return;
	}
	piece->direct = direct_is_possible(local, piece);
	if (piece->direct || local->choice == SL_CHOICE_URING)
		submit_to_reactors(local, piece);
	else
		sl_posix_submit(piece);
}
