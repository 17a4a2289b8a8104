/* SPDX-License-Identifier: Apache-2.0 */
/* Space in the file that nothing refers to, for chunks: the places of chunks that have moved, each
 * for a chunk of its size, and pieces, which frames had that were given up. Without memory for one
 * of them its space stays unused. Called by the driver. */
#include <stdlib.h>

#include "h5file/ordered_internal.h"

void sl_ordered_moved(struct ordered_file *file, haddr_t start, hsize_t size)
{
	struct vfd_place *place = malloc(sizeof(*place));

	if (!place)
		return;
	*place = (struct vfd_place){file->places, start, size, file->vfd->flushes};
	file->places = place;
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

haddr_t sl_ordered_take(struct ordered_file *file, hsize_t size)
{
	for (struct vfd_place **at = &file->places; *at; at = &(*at)->next) {
		struct vfd_place *place = *at;
		haddr_t start = place->start;

		if (place->size != size || place->flushes == file->vfd->flushes)
			continue;
		*at = place->next;
		free(place);
		return start;
	}
	return piece_take(file, size);
}

void sl_ordered_forget_places(struct ordered_file *file)
{
	for (struct vfd_place *place; (place = file->places); free(place))
		file->places = place->next;
	for (struct sl_interval *piece; (piece = file->pieces.root); free(piece))
		sl_intervals_remove(&file->pieces, piece);
}
