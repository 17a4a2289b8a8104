/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual datasets: the frames are in other files, in datasets with the same name. HDF5 does not
 * open these files here: the driver refuses (ordered_open), because a dataset of frames is neither
 * read nor asked for the length of sources. Where a source is missing or shorter, readers get the
 * fill value. Threads: the file thread, and of sl_h5_parts_get() any.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/h5file_internal.h"

#define NAME_MOST  1024 /* bytes of a file's name, for comparison */
#define PARTS_MOST 4096 /* in a dataset: each is compared with each */

/* In a name of a source HDF5 replaces %b by a number; the caller frees it. */
static char *source_name(const char *name)
{
	char *out = malloc(2 * strlen(name) + 1), *to = out;

	for (; out && *name; *to++ = *name++)
		if (*name == '%')
			*to++ = '%';
	if (out)
		*to = '\0';
	return out;
}

/* All frames, and of each the elements of the source. */
static herr_t source_select(hid_t space, unsigned rank, const struct sl_h5_source *source)
{
	hsize_t start[SL_H5_RANK] = {0}, count[SL_H5_RANK] = {H5S_UNLIMITED};
	hsize_t block[SL_H5_RANK] = {1};

	for (unsigned i = 0; i < rank; i++) {
		start[i + 1] = source->start[i];
		count[i + 1] = 1;
		block[i + 1] = source->count[i];
	}
	return H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, block);
}

static bool set_fill_value(hid_t list, const struct sl_h5_layout *layout)
{
	bool complex = sl_type_find(layout->type)->number == SL_COMPLEX;
	hid_t type = sl_h5_type(complex ? SLUICE_COMPLEX128 : SLUICE_FLOAT64, 0);
	bool done = !sl_h5_has_mantissa(layout) ||
	            H5Pset_fill_value(list, type, (const double[]){NAN, NAN}) >= 0;

	H5Tclose(type);
	return done;
}

bool sl_h5_sources_set(hid_t list, const char *name, const struct sl_h5_layout *layout)
{
	hsize_t extent[SL_H5_RANK] = {0};
	hsize_t most[SL_H5_RANK] = {layout->frames ? layout->frames : H5S_UNLIMITED};
	char *set = source_name(name);
	bool good = set && set_fill_value(list, layout);
	hid_t space;

	for (unsigned i = 0; i < layout->rank; i++)
		extent[i + 1] = most[i + 1] = layout->shape[i];
	space = H5Screate_simple((int)sl_h5_rank(layout), extent, most);
	for (size_t i = 0; good && i < layout->source_count; i++) {
		char *file = source_name(layout->sources[i].file);

		good = file &&
		       source_select(space, sl_h5_rank(layout) - 1, &layout->sources[i]) >= 0 &&
		       H5Pset_virtual(list, space, file, set, space) >= 0;
		free(file);
	}
	H5Sclose(space);
	free(set);
	return good;
}

static bool source_is(hid_t list, size_t number, unsigned rank, const struct sl_h5_source *source,
                      const char *file)
{
	hsize_t start[SL_H5_RANK], stride[SL_H5_RANK], count[SL_H5_RANK], block[SL_H5_RANK];
	hid_t space = H5Pget_virtual_vspace(list, number);
	char *wanted = source_name(source->file);
	bool same = wanted && !strcmp(file, wanted) &&
	            H5Sget_regular_hyperslab(space, start, stride, count, block) >= 0;

	for (unsigned i = 0; same && i < rank; i++)
		same = start[i + 1] == source->start[i] &&
		       count[i + 1] * block[i + 1] == source->count[i];
	H5Sclose(space);
	free(wanted);
	return same;
}

int sl_h5_sources_check(const struct sl_h5_dataset *dataset, hid_t list,
                        const struct sl_h5_layout *layout)
{
	char file[NAME_MOST] = "";
	size_t count = 0, i = 0;

	if (H5Pget_virtual_count(list, &count) < 0)
		return sl_hdf5_fail(-EIO, "the sources of '%s' cannot be read", dataset->name);
	for (bool same = true; same && i < SL_MIN(count, layout->source_count); i += same)
		same = H5Pget_virtual_filename(list, i, file, sizeof(file)) >= 0 &&
		       source_is(list, i, sl_h5_rank(layout) - 1, &layout->sources[i], file);
	if (i == count && i == layout->source_count)
		return 0;
	return sl_fail(
		-EEXIST,
		"'%s' has %zu parts in other files, and here are %zu: part %zu, of '%s', is not "
		"that of '%s'; ranks must be on as many nodes as before, with the same blocks",
		dataset->name, count, layout->source_count, i, file,
		i < layout->source_count ? layout->sources[i].file : "");
}

/* ---------------------------------------------------------------------------------------- read */

/* Undoes source_name(). Returns false if HDF5 puts a number there. */
static bool source_unname(char *name)
{
	char *to = name;

	for (; *name; *to++ = *name++)
		if (*name == '%' && *++name != '%')
			return false;
	*to = '\0';
	return true;
}

/* Reads a selection of a rank, which is set if it is 0. Returns false if it is no block, or has no
 * end in another dimension than the first, where it begins with all frames. count: of the first
 * dimension UINT64_MAX then. */
static bool block_get(hid_t space, unsigned *rank, uint64_t *from, uint64_t *n)
{
	hsize_t start[H5S_MAX_RANK], stride[H5S_MAX_RANK], count[H5S_MAX_RANK], block[H5S_MAX_RANK];
	int found = H5Sget_simple_extent_ndims(space);
	bool good = found > 0 && found <= SL_H5_DIMENSIONS &&
	            (!*rank || *rank == (unsigned)found) &&
	            H5Sget_select_type(space) == H5S_SEL_HYPERSLABS &&
	            H5Sis_regular_hyperslab(space) > 0 &&
	            H5Sget_regular_hyperslab(space, start, stride, count, block) >= 0;

	*rank = good ? (unsigned)found : 0;
	for (unsigned i = 0; good && i < *rank; i++) {
		bool ends = count[i] != H5S_UNLIMITED && block[i] != H5S_UNLIMITED;

		from[i] = start[i];
		n[i] = UINT64_MAX;
		good = ends ? (count[i] == 1 || stride[i] == block[i]) &&
		                       !__builtin_mul_overflow(count[i], block[i], &n[i]) &&
		                       n[i] != UINT64_MAX
		            : !i && !start[0] &&
		                       (block[0] == H5S_UNLIMITED || block[0] == stride[0]);
	}
	return good;
}

bool sl_h5_part_match(struct sl_h5_part *part, unsigned all, unsigned rank, const uint64_t *count)
{
	unsigned i = 0, k = 0;

	part->rank = rank;
	while (i < all || k < rank) {
		if (i < all && k < rank && part->count[i] == count[k])
			part->dimension[k++] = i++;
		else if (i < all && part->count[i] == 1)
			i++;
		else if (k < rank && count[k] == 1)
			part->dimension[k++] = SL_H5_DIMENSIONS;
		else
			return false;
	}
	return true;
}

static uint64_t part_end(const struct sl_h5_part *part, unsigned i)
{
	return part->count[i] == UINT64_MAX ? UINT64_MAX : part->start[i] + part->count[i];
}

static bool parts_overlap(const struct sl_h5_part *a, const struct sl_h5_part *b, unsigned rank)
{
	bool overlap = true;

	for (unsigned i = 0; overlap && i < rank; i++)
		overlap = a->start[i] < part_end(b, i) && b->start[i] < part_end(a, i);
	return overlap;
}

/* Returns whether the name begins at the root, or a part of it is "..". */
static bool source_leaves(const char *file)
{
	for (const char *at = file; (at = strstr(at, "..")); at += 2)
		if ((at == file || at[-1] == '/') && (!at[2] || at[2] == '/'))
			return true;
	return file[0] == '/';
}

/* Returns why the part is not read, or NULL. */
static const char *part_get(hid_t list, size_t number, const struct sl_h5_array *array,
                            struct sl_h5_part *out)
{
	ssize_t file = H5Pget_virtual_filename(list, number, NULL, 0);
	ssize_t dataset = H5Pget_virtual_dsetname(list, number, NULL, 0);
	hid_t space = H5Pget_virtual_vspace(list, number);
	hid_t source = H5Pget_virtual_srcspace(list, number);
	bool all = H5Sget_select_type(space) == H5S_SEL_ALL, good = file > 0 && dataset > 0;
	unsigned rank = array->rank, its = 0;
	uint64_t count[SL_H5_DIMENSIONS];

	if (all)
		memcpy(out->count, array->shape, sizeof(out->count));
	else
		good = good && block_get(space, &rank, out->start, out->count);
	/* Such a selection has no shape before its source is open. */
	out->whole = H5Sget_select_type(source) == H5S_SEL_ALL;
	if (!out->whole)
		good = good && block_get(source, &its, out->from, count) &&
		       sl_h5_part_match(out, rank, its, count);
	H5Sclose(source);
	H5Sclose(space);
	for (unsigned i = 0; good && i < array->rank; i++)
		good = out->count[i] == UINT64_MAX ||
		       (out->start[i] <= array->shape[i] &&
		        out->count[i] <= array->shape[i] - out->start[i]);
	if (!good)
		return "a part is no block of it with the shape of a block of its source";
	out->file = malloc((size_t)file + 1);
	out->dataset = malloc((size_t)dataset + 1);
	if (!out->file || !out->dataset ||
	    H5Pget_virtual_filename(list, number, out->file, (size_t)file + 1) < 0 ||
	    H5Pget_virtual_dsetname(list, number, out->dataset, (size_t)dataset + 1) < 0)
		return "the names of a part cannot be read";
	if (!source_unname(out->file) || !source_unname(out->dataset))
		return "a name of a source has a number that HDF5 counts (%b)";
	if (source_leaves(out->file))
		return "a source is not in its folder, or below that";
	return NULL;
}

int sl_h5_parts_get(hid_t list, hid_t space, const char *name, struct sl_h5_array *out)
{
	hsize_t most[H5S_MAX_RANK];
	size_t count = 0;
	const char *why = out->depth || H5Sget_simple_extent_dims(space, NULL, most) <= 0
	                          ? "its elements are arrays, or it has no dimension"
	                  : H5Pget_virtual_count(list, &count) < 0 || count > PARTS_MOST
	                          ? "it has too many parts"
	                          : NULL;

	out->layout = SL_H5_VIRTUAL;
	out->parts = why ? NULL : calloc(SL_MAX(count, 1), sizeof(*out->parts));
	if (!why && !out->parts)
		why = "there is no memory for its parts";
	for (; !why && out->part_count < count; out->part_count++) {
		struct sl_h5_part *part = &out->parts[out->part_count];

		why = part_get(list, out->part_count, out, part);
		for (size_t i = 0; !why && i < out->part_count; i++)
			if (parts_overlap(part, &out->parts[i], out->rank))
				why = "two parts have an element";
		if (!why && (part->count[0] == UINT64_MAX) != (out->parts->count[0] == UINT64_MAX))
			why = "some parts have an end in the first dimension, and some have none";
	}
	H5Eclear2(H5E_DEFAULT);
	if (why)
		return sl_fail(-ENOTSUP,
		               "'%s' is a virtual dataset, and %s: open the datasets that it is "
		               "made of",
		               name, why);
	out->address = count && out->parts->count[0] == UINT64_MAX ? most[0] : out->shape[0];
	return 0;
}
