/* SPDX-License-Identifier: Apache-2.0 */
/* Inspection of an HDF5 file: each chunk is read and decoded, with sluice's own decoders where HDF5
 * has no plugin. Threads: any, with HDF5's lock until the end. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/frames.h>

#include "h5file/h5file_internal.h"

/* Cells of the grid of chunks for each chunk that is there; a sparser dataset is searched by its
 * chunks. */
#define SPARSE 4

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
	size_t bytes;        /* of a chunk */
	H5Z_filter_t filter; /* registered here */
	char filters[256], message[1024];
};

static void inspect_wrong(struct inspected *x, const char *what)
{
	if (x->report.wrong++)
		return;
	sl_hdf5_fail(-EBADMSG, "%s", what);
	snprintf(x->message, sizeof(x->message), "%s", sluice_last_message());
}

/* ------------------------------------------------------------------------------------- decoders */

/* Of the dataset that is being read: HDF5 gives a filter neither its number nor the length of its
 * result. */
static _Thread_local struct {
	const struct sl_codec *codec;
	void *state;
	size_t bytes;
} decoder;

static size_t inspect_decode(unsigned flags, size_t count, const unsigned *values, size_t n,
                             size_t *room, void **bytes)
{
	void *out = flags & H5Z_FLAG_REVERSE && decoder.state
	                    ? H5allocate_memory(decoder.bytes, false)
	                    : NULL;

	(void)count;
	(void)values;
	if (!out || decoder.codec->decompress(decoder.state, *bytes, n, out, decoder.bytes)) {
		H5free_memory(out);
		return 0;
	}
	H5free_memory(*bytes);
	*bytes = out;
	return *room = decoder.bytes;
}

/* Returns a codec of ours with that filter, or NULL. */
static const struct sl_codec *inspect_codec(H5Z_filter_t filter)
{
	const struct sl_codec *codec;

	for (size_t i = 0; (codec = sl_codec_at(i)); i++)
		if (codec->filter == filter && !codec->missing)
			return codec;
	return NULL;
}

/* Names the filters, and registers a decoder. Returns its filter, 0: none is needed, or -1: one is
 * missing. */
static H5Z_filter_t filters_take(struct inspected *x, hid_t list)
{
	H5Z_class2_t class = {H5Z_CLASS_T_VERS, 0,    false, true,
	                      "sluice",         NULL, NULL,  inspect_decode};
	int count = H5Pget_nfilters(list);
	size_t sums = 0, element = H5Tget_size(x->type);

	for (int i = 0; i < count; i++) {
		size_t n = SL_CODEC_VALUES, at = strlen(x->filters);
		unsigned flags, config, values[SL_CODEC_VALUES] = {0};
		char name[40] = "", text[64];
		H5Z_filter_t filter = H5Pget_filter2(list, (unsigned)i, &flags, &n, values,
		                                     sizeof(name), name, &config);
		const struct sl_codec *codec = inspect_codec(filter);

		snprintf(x->filters + at, sizeof(x->filters) - at, "%s%s", at ? " " : "",
		         codec     ? codec->name
		         : name[0] ? name
		                   : "unknown");
		sums += filter == H5Z_FILTER_FLETCHER32 ? 4 : 0;
		if (!codec && H5Zfilter_avail(filter) <= 0) {
			snprintf(text, sizeof(text), "no plugin for its filter %d is here", filter);
			inspect_wrong(x, text);
			return -1;
		}
		/* HDF5 decodes with its own and with plugins; bit shuffle may have other
		 * parameters. */
		if (!codec || class.id || H5Zfilter_avail(filter) > 0 ||
		    (codec->shuffles && (values[2] != element || values[4] != SL_BITSHUFFLE_LZ4)) ||
		    codec->state_new(1, element, x->bytes + sums, &decoder.state))
			continue;
		decoder.codec = codec;
		decoder.bytes = x->bytes + sums;
		class.id = filter;
	}
	return class.id && H5Zregister(&class) >= 0 ? class.id : 0;
}

static void filters_drop(H5Z_filter_t filter)
{
	if (filter > 0)
		H5Zunregister(filter);
	if (decoder.state)
		decoder.codec->state_free(decoder.state);
	decoder.state = NULL;
}

/* --------------------------------------------------------------------------------------- chunks */

/* Reads the elements of a chunk that lie in the dataset. */
static void chunk_inspect(struct inspected *x, const hsize_t *at, void *memory)
{
	hsize_t count[H5S_MAX_RANK];
	char text[64];
	hid_t space;
	bool right;

	for (int i = 0; i < x->rank; i++)
		count[i] = SL_MIN(x->chunk[i], x->shape[i] - at[i]);
	space = H5Screate_simple(x->rank, count, NULL);
	right = H5Sselect_hyperslab(x->part, H5S_SELECT_SET, at, NULL, count, NULL) >= 0 &&
	        H5Dread(x->id, x->type, space, x->part, H5P_DEFAULT, memory) >= 0;
	if (right && H5Tget_class(x->type) >= H5T_STRING)
		H5Dvlen_reclaim(x->type, space, H5P_DEFAULT, memory);
	snprintf(text, sizeof(text), "the chunk at %" PRIu64 " cannot be read", (uint64_t)at[0]);
	if (!right)
		inspect_wrong(x, text);
	H5Sclose(space);
}

static void chunk_note(struct inspected *x, const hsize_t *at, unsigned mask, haddr_t address,
                       void *memory)
{
	if (address == HADDR_UNDEF)
		return;
	x->report.masked += mask != 0;
	for (int i = 0; i < x->rank; i++)
		if (at[i] >= x->shape[i])
			return;
	chunk_inspect(x, at, memory);
}

/* By their places; or where few of these have a chunk, by their numbers, which HDF5 counts from the
 * first each time. */
static void chunks_inspect(struct inspected *x, void *memory)
{
	hsize_t at[H5S_MAX_RANK] = {0}, number = 0, size;
	double cells = 1;
	haddr_t address;
	unsigned mask;
	int i = 0;

	if (H5Dget_num_chunks(x->id, x->space, &number) < 0)
		inspect_wrong(x, "its index of chunks cannot be read");
	x->report.chunks = number;
	for (i = 0; i < x->rank; i++)
		cells *= (double)((x->shape[i] + x->chunk[i] - 1) / x->chunk[i]);
	if (cells > SPARSE * (double)number) {
		for (hsize_t k = 0; k < number; k++)
			if (H5Dget_chunk_info(x->id, x->space, k, at, &mask, &address, &size) < 0)
				inspect_wrong(x, "its index of chunks cannot be read");
			else
				chunk_note(x, at, mask, address, memory);
		return;
	}
	while (cells > 0 && i >= 0) {
		if (H5Dget_chunk_info_by_coord(x->id, at, &mask, &address, &size) < 0)
			inspect_wrong(x, "its index of chunks cannot be read");
		else
			chunk_note(x, at, mask, address, memory);
		for (i = x->rank - 1; i >= 0 && (at[i] += x->chunk[i]) >= x->shape[i]; i--)
			at[i] = 0;
	}
}

/* ------------------------------------------------------------------------------------- datasets */

static void chunked_inspect(struct inspected *x, hid_t list)
{
	double bytes = (double)H5Tget_size(x->type);
	void *memory;

	for (int i = 0; i < x->rank; i++)
		bytes *= (double)x->chunk[i];
	x->bytes = bytes <= (double)SL_CODEC_MOST ? (size_t)bytes : 0;
	memory = x->bytes ? malloc(x->bytes) : NULL;
	if (!memory) {
		inspect_wrong(x, "there is no memory for a chunk of it");
		return;
	}
	x->filter = filters_take(x, list);
	if (x->filter >= 0)
		chunks_inspect(x, memory);
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
	if (x->type < 0 || x->space < 0 || list < 0 || x->rank < 0)
		inspect_wrong(x, "its header cannot be read");
	else if (layout == H5D_CHUNKED && H5Pget_chunk(list, H5S_MAX_RANK, x->chunk) == x->rank)
		chunked_inspect(x, list);
	else if (layout == H5D_CONTIGUOUS && start != HADDR_UNDEF &&
	         (start > length || x->report.bytes > length - start))
		inspect_wrong(x, "its bytes lie behind the end of the file");
	/* Of a contiguous dataset, how many are stored. */
	if (H5Aexists(x->id, "sluice_frames") > 0) {
		hid_t attribute = H5Aopen(x->id, "sluice_frames", H5P_DEFAULT);

		if (H5Aget_storage_size(attribute) == sizeof(frames) &&
		    H5Aread(attribute, H5T_NATIVE_INT64, &frames) >= 0 && frames >= 0)
			x->report.frames = SL_MIN(x->report.frames, (uint64_t)frames);
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
	filters_drop(x.filter); /* HDF5 keeps the filters of open datasets */
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
