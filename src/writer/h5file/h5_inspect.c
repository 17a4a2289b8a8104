/* SPDX-License-Identifier: Apache-2.0 */
/* Inspection of an HDF5 file: each chunk is read and decoded, by sluice itself if it knows the
 * filters. Threads: any, with HDF5's lock until the end. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/frames.h>

#include "h5file/h5file_internal.h"

/* Cells of the grid of chunks for each chunk that is there; a sparser dataset is searched by the
 * numbers of its chunks, which HDF5 counts from the first each time. */
#define SPARSE 100

struct inspection {
	hid_t file;
	sluice_frames_found found;
	void *user;
	int wrong; /* datasets */
};

/* A dataset that is being read. */
struct inspected {
	struct sluice_frames_dataset report;
	hid_t id, type, space, part; /* part: with the elements of a chunk selected */
	int rank;
	hsize_t shape[H5S_MAX_RANK], chunk[H5S_MAX_RANK];
	struct sl_filters list;       /* its filters, with the bytes of a chunk */
	struct sl_unfilter *unfilter; /* NULL: HDF5 decodes */
	char filters[256], message[1024];
};

/* Counts an error, whose sentence is the last, and keeps the first. */
static void inspect_wrong(struct inspected *x)
{
	if (!x->report.wrong++)
		snprintf(x->message, sizeof(x->message), "%s", sluice_last_message());
}

/* ------------------------------------------------------------------------------------- filters */

/* Chunks of elements of variable length are all right when HDF5 finds what they refer to. */
static void filters_inspect(struct inspected *x, hid_t list)
{
	bool known = !sl_h5_filters_get(list, &x->list);
	unsigned options = 0;

	for (unsigned i = 0; known && i < x->list.count; i++) {
		size_t at = strlen(x->filters);

		snprintf(x->filters + at, sizeof(x->filters) - at, "%s%s", at ? " " : "",
		         sl_filter_name(&x->list.filter[i]));
	}
	/* Of chunks at an edge without filters HDF5 knows which they are. */
	H5Pget_chunk_opts(list, &options);
	if (known && x->list.count && !options && !sl_filters_check(&x->list) &&
	    !H5Tdetect_class(x->type, H5T_VLEN) && H5Tis_variable_str(x->type) <= 0)
		sl_unfilter_new(&x->list, &x->unfilter);
}

/* --------------------------------------------------------------------------------------- chunks */

/* Reads the elements of a chunk that lie in the dataset. */
static int selection_read(struct inspected *x, const hsize_t *at, void *memory)
{
	hsize_t count[H5S_MAX_RANK];
	hid_t space;
	int rc = 0;

	for (int i = 0; i < x->rank; i++)
		count[i] = SL_MIN(x->chunk[i], x->shape[i] - at[i]);
	space = H5Screate_simple(x->rank, count, NULL);
	if (H5Sselect_hyperslab(x->part, H5S_SELECT_SET, at, NULL, count, NULL) < 0 ||
	    H5Dread(x->id, x->type, space, x->part, H5P_DEFAULT, memory) < 0)
		rc = sl_hdf5_fail(-EBADMSG, "the chunk at %" PRIu64 " cannot be read",
		                  (uint64_t)at[0]);
	else if (H5Tget_class(x->type) >= H5T_STRING)
		H5Dvlen_reclaim(x->type, space, H5P_DEFAULT, memory);
	H5Sclose(space);
	return rc;
}

/* Reads and decodes a chunk. Returns whether there is one: HDF5 says neither of no chunk nor of a
 * damaged index how long it is, but it has counted the chunks, for which it reads all of the
 * index. */
static bool chunk_inspect(struct inspected *x, const hsize_t *at, void *memory)
{
	hsize_t length = 0;
	uint32_t mask = 0;
	void *packed = NULL;
	int rc = 0;

	if (H5Dget_chunk_storage_size(x->id, at, &length) < 0 || !length) {
		H5Eclear2(H5E_DEFAULT);
		return false;
	}
	if (x->filters[0]) {
		packed = malloc(length);
		rc = !packed ? sl_fail(-ENOMEM, "no memory")
		     : H5Dread_chunk(x->id, H5P_DEFAULT, at, &mask, packed) < 0
		             ? sl_hdf5_fail(-EBADMSG, "the chunk at %" PRIu64 " cannot be read",
		                            (uint64_t)at[0])
		             : 0;
	}
	x->report.masked += mask != 0;
	if (!rc && x->unfilter) {
		rc = sl_unfilter_run(x->unfilter, mask, packed, length, memory);
		if (rc)
			sl_fail(rc, "the chunk at %" PRIu64 " of '%s' cannot be decoded: %s",
			        (uint64_t)at[0], x->report.name, sluice_last_message());
	} else if (!rc) {
		rc = selection_read(x, at, memory);
	}
	if (rc)
		inspect_wrong(x);
	free(packed);
	return true;
}

/* Looks up the chunk of a number, which HDF5 counts from the first. Returns whether it is one of
 * the visible. */
static bool chunk_number(const struct inspected *x, hsize_t number, hsize_t *at)
{
	hsize_t size;
	haddr_t address;
	unsigned mask;
	bool visible = H5Dget_chunk_info(x->id, x->space, number, at, &mask, &address, &size) >= 0;

	for (int i = 0; i < x->rank; i++)
		visible = visible && at[i] < x->shape[i];
	return visible;
}

static void chunks_inspect(struct inspected *x, void *memory)
{
	hsize_t at[H5S_MAX_RANK] = {0}, number = 0, found = 0, visible = 0;
	double cells = 1;
	bool sparse;

	if (H5Dget_num_chunks(x->id, x->space, &number) < 0) {
		sl_hdf5_fail(-EBADMSG, "its chunks cannot be counted");
		inspect_wrong(x);
	}
	x->report.chunks = number;
	for (int i = 0; i < x->rank; i++)
		cells *= (double)(x->shape[i] / x->chunk[i] + !!(x->shape[i] % x->chunk[i]));
	sparse = cells > SPARSE * (double)number;
	for (hsize_t k = 0; !sparse && k < (hsize_t)cells; k++) {
		found += chunk_inspect(x, at, memory);
		for (int i = x->rank - 1; (at[i] += x->chunk[i]) >= x->shape[i] && i; i--)
			at[i] = 0;
	}
	/* Where a chunk lies behind the end, too, or is not found although it is there. */
	for (hsize_t k = 0; found < number && k < number; k++)
		if (chunk_number(x, k, at)) {
			visible++;
			found += sparse && chunk_inspect(x, at, memory);
		}
	if (found < visible) {
		sl_fail(-EBADMSG, "%" PRIu64 " of its chunks are not where its index is searched",
		        (uint64_t)(visible - found));
		inspect_wrong(x);
	}
}

/* ------------------------------------------------------------------------------------- datasets */

static void chunked_inspect(struct inspected *x, hid_t list)
{
	double bytes = (double)H5Tget_size(x->type);
	void *memory;

	for (int i = 0; i < x->rank; i++)
		bytes *= (double)x->chunk[i];
	x->list.bytes = bytes <= (double)SL_CODEC_MOST ? (size_t)bytes : 0;
	memory = x->list.bytes ? malloc(x->list.bytes) : NULL;
	filters_inspect(x, list);
	if (memory) {
		chunks_inspect(x, memory);
	} else {
		sl_fail(-ENOMEM, "there is no memory for a chunk of it");
		inspect_wrong(x);
	}
	sl_unfilter_free(x->unfilter);
	free(memory);
}

static void dataset_inspect(struct inspected *x, hid_t file)
{
	hid_t list = H5Dget_create_plist(x->id);
	H5D_layout_t layout = H5Pget_layout(list);
	haddr_t start = H5Dget_offset(x->id);
	hsize_t length = 0;
	int64_t frames;

	x->rank = H5Sget_simple_extent_dims(x->space, x->shape, NULL);
	x->report.frames = x->rank > 0 ? x->shape[0] : 0;
	x->report.bytes = H5Dget_storage_size(x->id);
	H5Fget_filesize(file, &length);
	if (x->type < 0 || x->space < 0 || list < 0 || x->rank < 0) {
		sl_hdf5_fail(-EBADMSG, "its header cannot be read");
		inspect_wrong(x);
	} else if (layout == H5D_CHUNKED && H5Pget_chunk(list, H5S_MAX_RANK, x->chunk) == x->rank) {
		chunked_inspect(x, list);
	} else if (layout == H5D_CONTIGUOUS && start != HADDR_UNDEF &&
	           (start > length || x->report.bytes > length - start)) {
		sl_fail(-EBADMSG, "its bytes lie behind the end of the file");
		inspect_wrong(x);
	}
	/* Of a contiguous dataset, how many are stored. */
	if (H5Aexists(x->id, "sluice_frames") > 0) {
		hid_t attribute = H5Aopen(x->id, "sluice_frames", H5P_DEFAULT);
		hid_t space = H5Aget_space(attribute), type = H5Aget_type(attribute);

		/* As many numbers as there is memory for. */
		if (H5Sget_simple_extent_npoints(space) == 1 && H5Tget_class(type) == H5T_INTEGER &&
		    H5Aread(attribute, H5T_NATIVE_INT64, &frames) >= 0 && frames >= 0)
			x->report.frames = SL_MIN(x->report.frames, (uint64_t)frames);
		H5Tclose(type);
		H5Sclose(space);
		H5Aclose(attribute);
	}
	H5Pclose(list);
}

static herr_t object_inspect(hid_t file, const char *name, const H5O_info_t *info, void *argument)
{
	struct inspection *all = argument;
	struct inspected x = {.report = {sizeof(x.report), name, .filters = x.filters}};

	if (info->type != H5O_TYPE_DATASET)
		return 0;
	x.id = H5Dopen2(file, name, H5P_DEFAULT);
	x.type = H5Dget_type(x.id);
	x.space = H5Dget_space(x.id);
	x.part = H5Scopy(x.space);
	dataset_inspect(&x, all->file);
	x.report.message = x.message[0] ? x.message : NULL;
	all->wrong += x.report.wrong != 0;
	all->found(all->user, &x.report);
	H5Sclose(x.part);
	H5Sclose(x.space);
	H5Tclose(x.type);
	H5Dclose(x.id);
	return 0;
}

int sluice_frames_inspect(const char *path, sluice_frames_found found, void *user)
{
	struct inspection all = {H5I_INVALID_HID, found, user, 0};
	hid_t access;
	int rc = path && found ? sl_hdf5_start(true)
	                       : sl_fail(-EINVAL, "sluice_frames_inspect: an argument is NULL");

	if (rc)
		return rc;
	sl_hdf5_enter();
	access = H5Pcreate(H5P_FILE_ACCESS);
	H5Pset_file_locking(access, false, true);
	all.file = H5Fopen(path, H5F_ACC_RDONLY, access);
	if (all.file < 0)
		rc = sl_hdf5_fail(-EBADMSG, "'%s' cannot be read", path);
	else if (H5Ovisit(all.file, H5_INDEX_NAME, H5_ITER_NATIVE, object_inspect, &all) < 0)
		rc = sl_hdf5_fail(-EBADMSG, "the objects of '%s' cannot be read", path);
	else if (all.wrong)
		rc = sl_fail(-EBADMSG, "'%s': %d datasets are wrong", path, all.wrong);
	if (all.file >= 0)
		H5Fclose(all.file);
	H5Pclose(access);
	H5Eclear2(H5E_DEFAULT);
	sl_hdf5_leave();
	return rc;
}
