/* SPDX-License-Identifier: Apache-2.0 */
/* Packers: states, scratch and packed chunks for compressors. Made and freed by the program's
 * threads. */
#include <errno.h>
#include <stdlib.h>

#include "frames/frames_internal.h"

/* Buffers of packed chunks, and scratch for each compressor; they may be exchanged. */
static size_t rooms_of(const struct sl_packer *packer)
{
	return packer->in_place ? 0 : (size_t)packer->count * (SL_PACKED_PER_COMPRESSOR + 1);
}

static size_t room_of(const struct sl_packer *packer)
{
	return (packer->chunk_bytes + 4095) / 4096 * 4096;
}

void sl_packer_free(struct sl_packer *packer)
{
	if (!packer)
		return;
	for (unsigned i = 0; packer->states && i < packer->count; i++)
		packer->codec->state_free(packer->states[i]);
	sl_area_release(&packer->area);
	free(packer->states);
	free(packer->scratch);
	free(packer->packed);
	free(packer);
}

int sl_packer_new(const struct sl_packer *kind, struct sl_packer **out)
{
	struct sl_packer *packer = calloc(1, sizeof(*packer));
	size_t packed = (size_t)kind->count * SL_PACKED_PER_COMPRESSOR;
	int rc;

	if (!packer)
		return sl_fail(-ENOMEM, "no memory");
	*packer = *kind;
	sl_list_init(&packer->locked.free);
	packer->states = calloc(kind->count, sizeof(*packer->states));
	packer->scratch = calloc(kind->count, sizeof(*packer->scratch));
	packer->packed = calloc(packed, sizeof(*packer->packed));
	if (!packer->states || !packer->scratch || !packer->packed)
		rc = sl_fail(-ENOMEM, "no memory");
	else
		rc = kind->codec->state_new(kind->level, kind->element, kind->chunk_bytes,
		                            &packer->states[0]);
	if (rc) {
		sl_packer_free(packer);
		return rc;
	}
	packer->bytes = (uint64_t)rooms_of(packer) * room_of(packer) +
	                (uint64_t)kind->codec->state_bytes(packer->states[0]) * kind->count +
	                packed * sizeof(struct sl_packed_chunk);
	*out = packer;
	return 0;
}

int sl_packer_fill(struct sl_packer *packer)
{
	size_t packed = (size_t)packer->count * SL_PACKED_PER_COMPRESSOR;
	int rc = sl_area_take(&packer->area, rooms_of(packer) * room_of(packer));
	char *room = packer->area.memory;

	for (unsigned i = 1; !rc && i < packer->count; i++)
		rc = packer->codec->state_new(packer->level, packer->element, packer->chunk_bytes,
		                              &packer->states[i]);
	if (rc)
		return rc;
	for (size_t i = 0; i < packed; i++) {
		if (!packer->in_place)
			packer->packed[i].room = room + i * room_of(packer);
		sl_list_append(&packer->locked.free, &packer->packed[i].link);
	}
	for (unsigned i = 0; i < packer->count && !packer->in_place; i++)
		packer->scratch[i] = room + (packed + i) * room_of(packer);
	return 0;
}
