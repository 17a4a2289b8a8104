/* SPDX-License-Identifier: Apache-2.0 */
/* Packers: the compressors' memory for a kind of chunks, used by all series with such chunks.
 * Threads: the program's, in the calls that add a series or free it. */
#include <errno.h>
#include <stdlib.h>

#include "frames/frames_internal.h"

/* Buffers for packed chunks, and scratch for each compressor. */
static size_t rooms_of(const struct sl_packer *packer)
{
	return packer->in_place ? 0 : (size_t)packer->count * (SL_PACKED_PER_COMPRESSOR + 1);
}

static size_t room_of(const struct sl_packer *packer)
{
	size_t most = packer->codec->bound(packer->chunk_bytes);

	return sl_whole_pages(most + (packer->sum ? SL_FLETCHER32_BYTES : 0));
}

static void packer_free(struct sl_packer *packer)
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

/* Makes the fields behind `bytes`. */
static int packer_new(const struct sl_packer *kind, struct sl_packer **out)
{
	size_t packed = (size_t)kind->count * SL_PACKED_PER_COMPRESSOR;
	struct sl_packer *packer = *out = calloc(1, sizeof(*packer));
	int rc;

	if (!packer)
		return sl_fail(-ENOMEM, "no memory");
	*packer = *kind;
	sl_list_init(&packer->locked.free);
	packer->states = calloc(kind->count, sizeof(*packer->states));
	packer->scratch = calloc(kind->count, sizeof(*packer->scratch));
	packer->packed = calloc(packed, sizeof(*packer->packed));
	if (!packer->states || !packer->scratch || !packer->packed)
		return sl_fail(-ENOMEM, "no memory");
	rc = kind->codec->state_new(kind->level, kind->element, kind->chunk_bytes,
	                            &packer->states[0]);
	if (rc)
		return rc;
	packer->bytes = (uint64_t)rooms_of(packer) * room_of(packer) +
	                (uint64_t)kind->codec->state_bytes(packer->states[0]) * kind->count +
	                packed * sizeof(struct sl_packed_chunk);
	return 0;
}

static int packer_fill(struct sl_packer *packer)
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

/* Returns a packer for equal chunks, or NULL. */
static struct sl_packer *packer_find(struct sluice_writer *w, const struct sl_packer *kind)
{
	sl_list_each_of (packer, &w->locked.packers, struct sl_packer, link) {
		if (packer->codec == kind->codec && packer->level == kind->level &&
		    packer->element == kind->element && packer->chunk_bytes == kind->chunk_bytes &&
		    packer->in_place == kind->in_place && packer->sum == kind->sum)
			return packer;
	}
	return NULL;
}

static int packer_make(struct sluice_series *s, const struct sl_packer *kind,
                       struct sl_packer **out)
{
	struct sluice_writer *w = s->writer;
	struct sl_packer *packer;
	int rc = packer_new(kind, &packer);

	if (!rc)
		rc = sl_bytes_take(s, packer->bytes);
	if (!rc) {
		rc = packer_fill(packer);
		if (rc)
			sl_bytes_give(s, packer->bytes);
	}
	if (rc) {
		packer_free(packer);
		return rc;
	}
	/* They are the packer's, which other series use, too. */
	s->bytes -= packer->bytes;
	sl_mutex_lock(&w->mutex);
	sl_list_append(&w->locked.packers, &packer->link);
	sl_mutex_unlock(&w->mutex);
	*out = packer;
	return 0;
}

void sl_packer_drop(struct sluice_series *s)
{
	struct sluice_writer *w = s->writer;
	struct sl_packer *packer = s->packer;

	s->packer = NULL;
	if (!packer || --packer->users)
		return;
	sl_mutex_lock(&w->mutex);
	sl_list_remove(&packer->link);
	w->locked.bytes -= packer->bytes;
	sl_mutex_unlock(&w->mutex);
	packer_free(packer);
}

int sl_packer_take(struct sluice_series *s)
{
	struct sl_packer kind = {.codec = s->layout.codec,
	                         .level = s->layout.level,
	                         .element = s->geometry.element,
	                         .chunk_bytes = s->geometry.chunk_bytes,
	                         .sum = s->layout.sum,
	                         .count = s->writer->threads};
	size_t decoded = s->layout.codec->filter ? sl_whole_pages(s->geometry.chunk_bytes) : 0;
	int rc;

	/* All chunks lie in the frame as they will be in the file. */
	kind.in_place =
		s->layout.contiguous || (!s->layout.codec->filter && !s->layout.shuffle &&
	                                 !kind.sum && sl_geometry_lies_whole(&s->geometry) &&
	                                 (!s->share || s->share->alone == s->share->count));
	if (kind.in_place && !s->layout.precision)
		return 0;
	s->packer = packer_find(s->writer, &kind);
	rc = s->packer ? 0 : packer_make(s, &kind, &s->packer);
	if (rc)
		return rc;
	s->packer->users++;
	rc = sl_bytes_take(s, decoded);
	return rc ? rc : sl_area_take(&s->decoded, decoded);
}
