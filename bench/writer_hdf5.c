/* SPDX-License-Identifier: Apache-2.0 */
/*
 * H5Dwrite at its best: the dataset has its final size, is not filled before it is written, contiguous
 * space is reserved when it is made, and a chunk is written whole. The caller waits for all of it.
 */
#include "writer_hdf5.h"

#include <err.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *hdf5_version(void)
{
	static char text[32];
	unsigned major, minor, release;

	H5get_libversion(&major, &minor, &release);
	snprintf(text, sizeof(text), "%u.%u.%u", major, minor, release);
	return text;
}

struct hdf5 {
	hid_t file, dataset, memory, space, transfer;
	hsize_t rows, columns, first, written;
	float *buffer;
};

static hid_t good(hid_t id, const char *what)
{
	if (id < 0)
		errx(1, "HDF5: %s", what);
	return id;
}

static hid_t creation(const struct sink_options *o)
{
	hid_t list = good(H5Pcreate(H5P_DATASET_CREATE), "property list");
	hsize_t chunk[3] = {o->chunk_frames ? o->chunk_frames : 1, o->chunk_rows, o->chunk_columns};

	H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
	if (!o->chunk_rows) {
		H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
		return list;
	}
	good(H5Pset_chunk(list, 3, chunk), "chunk");
	if (!strcmp(o->codec, "deflate")) {
		good(H5Pset_shuffle(list), "shuffle");
		good(H5Pset_deflate(list, (unsigned)o->level), "deflate");
	} else if (strcmp(o->codec, "none") != 0) {
		errx(2, "HDF5 has no codec '%s' here", o->codec);
	}
	return list;
}

static void *hdf5_open(const struct sink_options *o)
{
	struct hdf5 *h = calloc(1, sizeof(*h));
	hsize_t all[3] = {o->frames, o->whole, o->columns};
	hsize_t one[3] = {1, o->rows, o->columns};
	hid_t list = creation(o), access = good(H5Pcreate(H5P_DATASET_ACCESS), "property list");

	if (!h)
		err(1, "memory");
	h->rows = o->rows;
	h->columns = o->columns;
	h->first = o->first;
	/* Chunks that have been written whole go first. */
	if (o->cache)
		good(H5Pset_chunk_cache(access, 12421, o->cache, 1.0), "chunk cache");
	h->file = good(hdf5_create_file(o, &h->transfer), o->path);
	h->space = good(H5Screate_simple(3, all, NULL), "space");
	h->memory = good(H5Screate_simple(3, one, NULL), "space");
	h->dataset = good(
		H5Dcreate2(h->file, DATASET, H5T_NATIVE_FLOAT, h->space, H5P_DEFAULT, list, access),
		"dataset");
	H5Pclose(list);
	H5Pclose(access);
	h->buffer = touched(o->rows * o->columns * sizeof(float));
	return h;
}

static void hdf5_push(void *sink, const float *frame)
{
	struct hdf5 *h = sink;
	hsize_t first[3] = {h->written++, h->first, 0}, one[3] = {1, h->rows, h->columns};

	good(H5Sselect_hyperslab(h->space, H5S_SELECT_SET, first, NULL, one, NULL), "selection");
	good(H5Dwrite(h->dataset, H5T_NATIVE_FLOAT, h->memory, h->space, h->transfer, frame),
	     "H5Dwrite");
}

static float *hdf5_acquire(void *sink)
{
	return ((struct hdf5 *)sink)->buffer;
}

static void hdf5_submit(void *sink, float *frame)
{
	hdf5_push(sink, frame);
}

static void hdf5_close(void *sink)
{
	struct hdf5 *h = sink;

	good(H5Dclose(h->dataset), "H5Dclose");
	H5Sclose(h->memory);
	H5Sclose(h->space);
	good(H5Fclose(h->file), "H5Fclose");
	free(h->buffer);
	free(h);
}

const struct sink_ops sink_hdf5 = {"hdf5",      hdf5_open, hdf5_acquire,
                                   hdf5_submit, hdf5_push, hdf5_close};
