/* SPDX-License-Identifier: Apache-2.0 */
/* Space in the file that nothing refers to, for chunks: the places of chunks that have moved, each
 * for a chunk of its size. Without memory for one of them its space stays unused. Called by the
 * driver. */
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
	return 0;
}

void sl_ordered_forget_places(struct ordered_file *file)
{
	for (struct vfd_place *place; (place = file->places); free(place))
		file->places = place->next;
}
