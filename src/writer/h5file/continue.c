/* SPDX-License-Identifier: Apache-2.0 */
/* Continuing a dataset: whether frames can be added, and the layout it has.
 * Threads: the file thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "h5file/h5file_internal.h"

/* --------------------------------------------------------------------------------------- types */

static const char *type_name(hid_t type, size_t bytes)
{
	const struct sl_type *of;

	for (int i = 1; (of = sl_type_find(i)); i++) {
		hid_t ours = of->number < SL_BFLOAT ? sl_h5_type(i, bytes) : H5I_INVALID_HID;
		htri_t same = ours < 0 ? 0 : H5Tequal(type, ours);

		if (ours >= 0)
			H5Tclose(ours);
		if (same > 0)
			return of->name;
	}
	return "of another type";
}

static int check_type(const struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout)
{
	const char *asked = sl_type_find(layout->type)->name, *name;
	hid_t type = H5Dget_type(dataset->id);
	size_t bytes = H5Tget_size(type);

	name = type_name(type, bytes);
	H5Tclose(type);
	if (name != asked)
		return sl_fail(-EEXIST, "'%s' is %s, asked for %s", dataset->name, name, asked);
	return bytes == layout->element
	               ? 0
	               : sl_fail(-EEXIST, "'%s' has strings of %zu bytes, asked for %zu",
	                         dataset->name, bytes, layout->element);
}

/* --------------------------------------------------------------------------------------- shape */

/* "4 x 5", for sentences. */
static void print_shape(const uint64_t *shape, unsigned rank, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < rank && used < size; i++)
		used += snprintf(text + used, size - used, "%s%llu", i ? " x " : "",
		                 (unsigned long long)shape[i]);
}

#define SHAPE_TEXT 128

static int dataset_differs(const struct sl_h5_dataset *dataset, const char *what,
                           const uint64_t *is, const uint64_t *asked, unsigned rank)
{
	char one[SHAPE_TEXT], other[SHAPE_TEXT];

	print_shape(is, rank, one, sizeof(one));
	print_shape(asked, rank, other, sizeof(other));
	return sl_fail(-EEXIST, "'%s' has %s of %s, asked for %s", dataset->name, what, one, other);
}

static int check_shape(struct sl_h5_dataset *dataset, struct sl_h5_layout *layout)
{
	hsize_t most[H5S_MAX_RANK], extent[H5S_MAX_RANK];
	hid_t space = H5Dget_space(dataset->id);
	int rank = H5Sget_simple_extent_dims(space, extent, most);
	uint64_t shape[SLUICE_FRAME_RANK_MOST] = {1}, frames;

	H5Sclose(space);
	if (rank != (int)dataset->rank)
		return sl_fail(-EEXIST, "'%s' has %d dimensions, and not %u as a series of frames",
		               dataset->name, rank, dataset->rank);
	for (unsigned i = 0; i < dataset->rank; i++)
		dataset->extent[i] = extent[i];
	for (unsigned i = 0; i + 1 < dataset->rank; i++)
		shape[i] = extent[i + 1];
	if (memcmp(shape, layout->shape, layout->rank * sizeof(shape[0])))
		return dataset_differs(dataset, "frames", shape, layout->shape, layout->rank);
	frames = most[0] == H5S_UNLIMITED ? 0 : most[0];
	if (layout->frames && layout->frames != frames)
		return sl_fail(-EEXIST, "'%s' is for %llu frames (0: any number), asked for %llu",
		               dataset->name, (unsigned long long)frames,
		               (unsigned long long)layout->frames);
	layout->frames = frames;
	return 0;
}

static int check_chunk(const struct sl_h5_dataset *dataset, hid_t list, struct sl_h5_layout *layout,
                       const struct sl_h5_set_options *set)
{
	hsize_t chunk[H5S_MAX_RANK];
	uint64_t its[SLUICE_FRAME_RANK_MOST] = {1};

	if (H5Pget_chunk(list, H5S_MAX_RANK, chunk) != (int)dataset->rank)
		return sl_hdf5_fail(-EEXIST, "'%s' has no chunks of its rank", dataset->name);
	if (set->gather && chunk[0] != SL_MIN(SL_MAX(layout->gather, 1),
	                                      layout->frames ? layout->frames : UINT64_MAX))
		return sl_fail(-EEXIST, "'%s' has chunks of %llu frames, asked for %llu",
		               dataset->name, (unsigned long long)chunk[0],
		               (unsigned long long)layout->gather);
	layout->gather = chunk[0];
	for (unsigned i = 0; i + 1 < dataset->rank; i++)
		its[i] = chunk[i + 1];
	if (set->chunk && memcmp(its, layout->chunk, layout->rank * sizeof(its[0])))
		return dataset_differs(dataset, "chunks", its, layout->chunk, layout->rank);
	memcpy(layout->chunk, its, layout->rank * sizeof(its[0]));
	return 0;
}

/* ------------------------------------------------------------------------------------- filters */

/* Bits of elements of another size, in blocks of another length, or without LZ4. */
static bool is_other(const struct sl_codec *codec, const unsigned *values, size_t element)
{
	return codec->shuffles &&
	       (values[2] != element || values[3] || values[4] != SL_BITSHUFFLE_LZ4);
}

int sl_h5_filters_read(const char *name, hid_t list, size_t element, struct sl_h5_layout *out)
{
	struct sl_filters filters;
	unsigned options = 0;
	int err;

	*out = (struct sl_h5_layout){
		.element = element, .codec = &sl_codec_none, .level = SL_CODEC_LEVEL};
	if (sl_h5_filters_get(list, &filters) ||
	    (H5Pget_layout(list) == H5D_CHUNKED && H5Pget_chunk_opts(list, &options) < 0))
		return sl_hdf5_fail(-EIO, "the filters of '%s' cannot be read", name);
	if (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS)
		return sl_fail(-ENOTSUP, "'%s' has chunks without filters at its edges", name);
	for (unsigned i = 0; i < filters.count; i++) {
		const struct sl_filter *filter = &filters.filter[i];
		const struct sl_codec *codec = sl_codec_of(filter->number);
		char codecs[SL_CODEC_LIST];

		if (filter->number == SL_SHUFFLE_FILTER && i == 0 && filter->values[0] == element) {
			out->shuffle = true;
		} else if (filter->number == SL_FLETCHER32_FILTER && i + 1 == filters.count) {
			out->sum = true;
		} else if (codec && out->codec == &sl_codec_none &&
		           !is_other(codec, filter->values, element)) {
			out->codec = codec;
			out->level = filter->count ? (int)filter->values[0] : 0;
		} else {
			sl_codec_list(codecs);
			return sl_fail(-ENOTSUP,
			               "'%s' has filter %d (%s), which is neither shuffle, as the "
			               "first filter, nor one of %s behind it, nor "
			               "fletcher32, as the last",
			               name, filter->number, filter->name, codecs);
		}
	}
	/* A level that the codec lacks, such as 0 of zstd, has the same format. */
	err = sl_codec_find(out->codec->name, out->level, &out->codec);
	return err == -EINVAL ? sl_codec_find(out->codec->name, SL_CODEC_LEVEL, &out->codec) : err;
}

/* Whether the level is the first parameter of its filter; lz4 has the bytes of a block there. */
static bool tells_level(const struct sl_codec *codec)
{
	unsigned values[SL_CODEC_VALUES] = {0};

	return codec->filter && codec->client_data(SL_CODEC_LEVEL, 1, values) &&
	       values[0] == SL_CODEC_LEVEL;
}

static int check_set(const struct sl_h5_dataset *dataset, const struct sl_h5_layout *its,
                     const struct sl_h5_layout *layout, const struct sl_h5_set_options *set)
{
	if (set->codec && strcmp(its->codec->name, layout->codec->name))
		return sl_fail(-EEXIST, "'%s' has codec %s, asked for %s", dataset->name,
		               its->codec->name, layout->codec->name);
	if (set->shuffle && its->shuffle != layout->shuffle)
		return sl_fail(-EEXIST, "'%s' is %s, asked for the other", dataset->name,
		               its->shuffle ? "shuffled" : "not shuffled");
	if (layout->sum && !its->sum)
		return sl_fail(-EEXIST, "'%s' has no fletcher32, which is asked for",
		               dataset->name);
	if (set->level && tells_level(its->codec) && its->level != layout->level)
		return sl_fail(-EEXIST, "'%s' has level %d of %s, asked for %d", dataset->name,
		               its->level, its->codec->name, layout->level);
	return 0;
}

static int adopt_filters(const struct sl_h5_dataset *dataset, hid_t list,
                         struct sl_h5_layout *layout, const struct sl_h5_set_options *set)
{
	struct sl_h5_layout its;
	int err = sl_h5_filters_read(dataset->name, list, layout->element, &its);

	if (!err)
		err = check_set(dataset, &its, layout, set);
	if (err)
		return err;
	layout->codec = its.codec;
	layout->level = its.level >= its.codec->least && its.level <= its.codec->most
	                        ? its.level
	                        : SL_CODEC_LEVEL;
	layout->shuffle = its.shuffle;
	layout->sum = its.sum;
	return 0;
}

/* -------------------------------------------------------------------------------------- format */

/* Requirements of ordered_vfd.h: the default format, and index nodes of the size that it has. */
static int check_format(const struct sl_h5_dataset *dataset, bool chunked)
{
	hid_t list = H5Fget_create_plist(dataset->file->id);
	unsigned half = 0, order = 0, sizes = 8 + 8 * (dataset->rank + 1);
	H5D_chunk_index_t index = H5D_CHUNK_IDX_BTREE;
	H5O_info_t info;

	H5Pget_istore_k(list, &half);
	H5Pclose(list);
	list = H5Dget_create_plist(dataset->id);
	H5Pget_attr_creation_order(list, &order);
	H5Pclose(list);
	if (order)
		return sl_fail(
			-EBADMSG,
			"'%s' keeps the order of its attributes, as netCDF makes it, for which "
			"HDF5 has a later format that cannot be continued; h5repack keeps it, "
			"too, so copy the frames to a new dataset",
			dataset->name);
	if (H5Oget_info2(dataset->id, &info, H5O_INFO_HDR) < 0)
		return sl_hdf5_fail(-EBADMSG, "'%s' cannot be looked at", dataset->name);
	if (info.hdr.version != 1 ||
	    (chunked &&
	     (H5Dget_chunk_index_type(dataset->id, &index) < 0 || index != H5D_CHUNK_IDX_BTREE)))
		return sl_fail(-EBADMSG,
		               "'%s' is in a later format of HDF5 (see libver), which cannot be "
		               "continued; %s",
		               dataset->name, SL_H5_REPACK);
	if (chunked && 24 + 16 * half + (2 * half + 1) * sizes > SL_H5_NODE)
		return sl_fail(-EBADMSG,
		               "the index of '%s' has nodes of more than %d bytes, which are not "
		               "written in an order that is safe: see H5Pset_istore_k",
		               dataset->name, SL_H5_NODE);
	return 0;
}

/* ---------------------------------------------------------------------------------- attributes */

/* A value to be updated in place; 1, 0: there is none, or an error with a sentence. */
static int attribute_open_own(const struct sl_h5_dataset *dataset, const char *name, hid_t type,
                              hid_t *out, void *value)
{
	htri_t there = H5Aexists(dataset->id, name);
	hid_t its_type, space;
	bool good;

	if (there <= 0)
		return there < 0 ? sl_hdf5_fail(-EIO, "'%s' has no attributes", dataset->name) : 0;
	*out = H5Aopen(dataset->id, name, H5P_DEFAULT);
	its_type = H5Aget_type(*out);
	space = H5Aget_space(*out);
	good = H5Tequal(its_type, type) > 0 && H5Sget_simple_extent_type(space) == H5S_SCALAR &&
	       H5Aread(*out, type, value) >= 0;
	H5Sclose(space);
	H5Tclose(its_type);
	return good ? 1
	            : sl_hdf5_fail(-EEXIST, "'%s' of '%s' is not as sluice makes it", name,
	                           dataset->name);
}

static int adopt_precision(struct sl_h5_dataset *dataset, struct sl_h5_layout *layout)
{
	hid_t attribute = H5I_INVALID_HID;
	unsigned bits = 0;
	int err =
		attribute_open_own(dataset, "sluice_precision", H5T_NATIVE_UINT, &attribute, &bits);

	if (attribute >= 0)
		H5Aclose(attribute);
	if (err < 0)
		return err;
	/* Another program may have given it to integers, which have no mantissa. */
	if (bits && !sl_h5_has_mantissa(layout))
		return sl_fail(-EEXIST, "'%s' is %s, and says that it keeps %u bits of a mantissa",
		               dataset->name, sl_type_find(layout->type)->name, bits);
	if (layout->precision && layout->precision != bits)
		return sl_fail(-EEXIST, "'%s' keeps %u bits of the mantissa (0: all), asked for %u",
		               dataset->name, bits, layout->precision);
	layout->precision = bits;
	err = attribute_open_own(dataset, "sluice_max_error", H5T_NATIVE_DOUBLE,
	                         &dataset->error_attribute, &dataset->max_error);
	dataset->error_written = dataset->max_error;
	return SL_MIN(err, 0);
}

/* ----------------------------------------------------------------------------------- both kinds */

/* Contiguous, or virtual: then its extent is that of its sources. */
static int adopt_counted(struct sl_h5_dataset *dataset, hid_t list, struct sl_h5_layout *layout,
                         const struct sl_h5_set_options *set)
{
	const struct sl_h5_layout none = {.codec = &sl_codec_none};
	int there = attribute_open_own(dataset, "sluice_frames", H5T_NATIVE_UINT64,
	                               &dataset->frames_attribute, &dataset->frames_written);
	int err = layout->sources ? sl_h5_sources_check(dataset, list, layout)
	                          : check_set(dataset, &none, layout, set);

	if (there < 0)
		return there;
	if (!there || (!layout->sources && (dataset->frames_written > dataset->extent[0] ||
	                                    H5Pget_external_count(list) > 0)))
		return sl_fail(
			-EEXIST,
			"'%s' has no chunks, and no attribute sluice_frames that says how far "
			"it is written",
			dataset->name);
	dataset->frames = dataset->frames_written;
	if (err || layout->sources)
		return err;
	layout->codec = &sl_codec_none;
	layout->level = SL_CODEC_LEVEL;
	layout->gather = 1;
	layout->shuffle = false;
	return sl_h5_offset_find(dataset);
}

static int adopt_chunked(struct sl_h5_dataset *dataset, hid_t list, struct sl_h5_layout *layout,
                         const struct sl_h5_set_options *set)
{
	H5D_alloc_time_t time;
	int err = check_chunk(dataset, list, layout, set);

	if (!err && (H5Pget_alloc_time(list, &time) < 0 || time == H5D_ALLOC_TIME_EARLY))
		err = sl_fail(-EEXIST,
		              "'%s' has chunks before they are written (its space is "
		              "allocated early)",
		              dataset->name);
	if (!err)
		err = adopt_filters(dataset, list, layout, set);
	if (!err && layout->gather > 1 && layout->shuffle && !layout->codec->filter)
		err = sl_fail(-ENOTSUP,
		              "'%s' has a shuffle without a codec, in chunks of %llu frames",
		              dataset->name, (unsigned long long)layout->gather);
	dataset->frames = dataset->extent[0];
	return err;
}

/* From here on frames are those that stay, and the extent is that of the file still. */
static int check_frame(struct sl_h5_dataset *dataset, const struct sl_h5_set_options *set)
{
	if (set->at && dataset->frames < set->frame)
		return sl_fail(-EINVAL, "'%s' has %llu frames, and cannot go on at %llu",
		               dataset->name, (unsigned long long)dataset->frames,
		               (unsigned long long)set->frame);
	dataset->frames = set->at ? set->frame : dataset->frames;
	return 0;
}

int sl_h5_dataset_go_back(struct sl_h5_dataset *dataset, bool back)
{
	bool has_error = dataset->error_attribute >= 0;
	int err = 0;

	if (dataset->counted && back) {
		err = sl_h5_dataset_flush(dataset);
		err = err ? err : sl_h5_flush(dataset->file);
	} else if (!dataset->counted) {
		/* By the attribute HDF5 would have the header in memory. */
		if (has_error)
			H5Aclose(dataset->error_attribute);
		err = sl_h5_truncate(dataset->file, dataset->name, &dataset->id, dataset->extent[0],
		                     dataset->frames);
		dataset->extent[0] = dataset->frames;
		dataset->error_attribute =
			has_error && !err ? H5Aopen(dataset->id, "sluice_max_error", H5P_DEFAULT)
					  : H5I_INVALID_HID;
	}
	return err ? err : sl_h5_scalars_truncate(dataset, back ? dataset->frames : UINT64_MAX);
}

int sl_h5_dataset_continue(struct sl_h5_dataset *dataset, struct sl_h5_layout *layout,
                           const struct sl_h5_set_options *set)
{
	H5D_layout_t kind;
	hid_t list;
	int err;

	dataset->id = sl_h5_dataset_open(dataset->file->id, dataset->name);
	if (dataset->id < 0)
		return sl_hdf5_fail(-EBADMSG, "'%s' cannot be opened", dataset->name);
	list = H5Dget_create_plist(dataset->id);
	kind = H5Pget_layout(list);
	err = check_type(dataset, layout);
	if (!err)
		err = check_shape(dataset, layout);
	if (!err && kind != H5D_CHUNKED && kind != H5D_CONTIGUOUS && kind != H5D_VIRTUAL)
		err = sl_fail(-EEXIST, "'%s' is neither chunked nor contiguous", dataset->name);
	if (!err && (kind == H5D_VIRTUAL) != (layout->sources != NULL))
		err = sl_fail(-EEXIST, "'%s' has its frames in %s: see SLUICE_WRITER_NODE_FILES",
		              dataset->name, layout->sources ? "this file" : "other files");
	dataset->contiguous = layout->contiguous = kind == H5D_CONTIGUOUS;
	dataset->counted = kind != H5D_CHUNKED;
	if (!err)
		err = check_format(dataset, kind == H5D_CHUNKED);
	if (!err)
		err = kind == H5D_CHUNKED ? adopt_chunked(dataset, list, layout, set)
		                          : adopt_counted(dataset, list, layout, set);
	H5Pclose(list);
	if (!err && dataset->scales[0])
		err = sl_h5_scales_agree(dataset);
	if (!err)
		err = check_frame(dataset, set);
	return err ? err : adopt_precision(dataset, layout);
}
