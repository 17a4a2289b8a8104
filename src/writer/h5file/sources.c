/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual datasets: the frames are in other files, in datasets with the same name. HDF5 does not
 * open these files here: the driver refuses (ordered_open), because a dataset of frames is neither
 * read nor asked for the length of sources. Where a source is missing or shorter, readers get the
 * fill value. Threads: the file thread.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/h5file_internal.h"

#define NAME_MOST 1024 /* bytes of the name of a file, for comparison */

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
