/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a series: checked, and completed with defaults.
 * Threads: any. No state. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "frames/frames_internal.h"

#define FLAGS (unsigned)(SLUICE_SERIES_DROP | SLUICE_SERIES_CONTINUE_AT | SLUICE_SERIES_FLETCHER32)
/* Bytes of a chunk with several small frames. */
#define SMALL       ((uint64_t)64 << 10)
#define GATHER_MOST ((uint64_t)1024)

static int read_shape(const struct sluice_series_options *o, struct sl_h5_layout *layout)
{
	const struct sl_type *type = sl_type_find(o->type);

	if (!type)
		return sl_fail(-EINVAL, "series options: %d is no type", o->type);
	if (type->number >= SL_BFLOAT)
		return sl_fail(-EINVAL, "series options: HDF5 has no standard type for %s",
		               type->name);
	if (type->number == SL_STRING ? !o->string_bytes || o->string_bytes > SLUICE_STRING_MOST
	                              : o->string_bytes != 0)
		return sl_fail(-EINVAL,
		               "series options: string_bytes is %" PRIu64
		               ", and has to be 1 to %d for strings, and 0 for other types",
		               o->string_bytes, SLUICE_STRING_MOST);
	if (o->rank > SLUICE_FRAME_RANK_MOST)
		return sl_fail(-EINVAL, "series options: rank %u is not 0 to %d", o->rank,
		               SLUICE_FRAME_RANK_MOST);
	if (!o->rank && (o->shape[0] || o->chunk[0]))
		return sl_fail(-EINVAL, "series options: rank is 0, and there is a %s",
		               o->shape[0] ? "shape" : "chunk");
	layout->type = (enum sluice_type)o->type;
	layout->element = o->string_bytes ? o->string_bytes : sl_type_bytes(type);
	layout->rank = SL_MAX(o->rank, 1);
	layout->single = !o->rank;
	layout->shape[0] = 1;
	for (unsigned i = 0; i < o->rank; i++) {
		if (!o->shape[i])
			return sl_fail(-EINVAL, "series options: shape[%u] is 0", i);
		layout->shape[i] = o->shape[i];
	}
	if (o->frames > INT64_MAX)
		return sl_fail(-EINVAL, "series options: %" PRIu64 " frames are too many",
		               o->frames);
	layout->frames = o->frames;
	return 0;
}

static int read_chunk(const struct sluice_series_options *o, unsigned threads,
                      struct sl_h5_layout *layout, struct sl_h5_set_options *set)
{
	struct sl_geometry g = {.element = layout->element, .rank = layout->rank, .shape = {1}};
	unsigned given = 0;
	int rc;

	g.chunk[0] = 1;
	for (unsigned i = 0; i < o->rank; i++) {
		given += o->chunk[i] != 0;
		g.shape[i] = layout->shape[i];
		g.chunk[i] = SL_MIN(o->chunk[i] ? o->chunk[i] : 1, o->shape[i]);
	}
	if (given && given < o->rank)
		return sl_fail(-EINVAL, "series options: chunk has %u of %u sizes", given, o->rank);
	rc = sl_geometry_init(&g);
	if (rc)
		return rc;
	if (!given)
		sl_geometry_choose(&g, threads);
	set->chunk = given;
	set->gather = o->chunk_frames;
	layout->gather = SL_MAX(o->chunk_frames, 1);
	if (!o->chunk_frames && !given && !layout->contiguous && g.frame_bytes < SMALL)
		layout->gather = SL_MAX(SL_MIN(SMALL / g.frame_bytes, GATHER_MOST), 1);
	if (layout->frames)
		layout->gather = SL_MIN(layout->gather, layout->frames);
	memcpy(layout->chunk, g.chunk, sizeof(layout->chunk));
	return 0;
}

static int read_shuffle(const struct sluice_series_options *o, struct sl_h5_layout *layout,
                        struct sl_h5_set_options *set)
{
	bool codec = layout->codec->filter && !layout->codec->shuffles;
	bool byte = o->shuffle == SLUICE_SHUFFLE_BYTE;

	set->shuffle = o->shuffle != SLUICE_SHUFFLE_DEFAULT;
	if (set->shuffle && !byte && o->shuffle != SLUICE_SHUFFLE_NONE)
		return sl_fail(-EINVAL, "series options: %d is no shuffle", o->shuffle);
	if (byte && !codec)
		return sl_fail(-EINVAL, "series options: codec '%s' has no use for a shuffle",
		               layout->codec->name);
	layout->shuffle =
		set->shuffle ? byte : codec && layout->element > 1 && layout->type != SLUICE_STRING;
	return 0;
}

static int read_codec(const struct sluice_series_options *o, struct sl_h5_layout *layout,
                      struct sl_h5_set_options *set)
{
	int rc;

	set->codec = o->codec;
	set->level = o->level;
	layout->level = o->level ? o->level : SL_CODEC_LEVEL;
	rc = sl_codec_find(o->codec ? o->codec : "deflate", layout->level, &layout->codec);
	if (!rc)
		rc = read_shuffle(o, layout, set);
	if (rc)
		return rc;
	layout->sum = o->flags & SLUICE_SERIES_FLETCHER32;
	layout->contiguous =
		layout->frames && !layout->codec->filter && !layout->sum && o->chunk_frames < 2;
	if (o->precision && !sl_h5_has_mantissa(layout))
		return sl_fail(-EINVAL, "series options: precision is for floating-point numbers");
	layout->precision = o->precision;
	return 0;
}

int sl_series_options(const struct sluice_series_options *o, unsigned threads,
                      struct sl_h5_layout *layout, struct sl_h5_set_options *set)
{
	int rc = read_shape(o, layout);

	if (!rc)
		rc = read_codec(o, layout, set);
	if (!rc)
		rc = read_chunk(o, threads, layout, set);
	if (!rc)
		rc = sl_h5_names_check("scalar", o->scalars, o->scalar_count);
	if (!rc && o->dimensions)
		rc = sl_h5_names_check("dimension", o->dimensions, o->rank + 1);
	if (!rc)
		rc = sl_h5_attributes_check(o->attributes, o->attribute_count);
	if (!rc && o->flags & ~FLAGS)
		rc = sl_fail(-EINVAL, "series options: unknown flags 0x%x", o->flags & ~FLAGS);
	if (rc)
		return rc;
	set->at = o->flags & SLUICE_SERIES_CONTINUE_AT;
	set->frame = o->continue_at;
	layout->scalars = o->scalars;
	layout->scalar_count = o->scalar_count;
	layout->dimensions = o->dimensions;
	layout->attributes = o->attributes;
	layout->attribute_count = o->attribute_count;
	return 0;
}
