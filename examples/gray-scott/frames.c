/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "frames.h"
#include "hdf5_error.h"

static int fail(char *why, size_t size, const char *what)
{
	char reason[256];

	hdf5_error(reason, sizeof reason);
	snprintf(why, size, "%s: %s", what, reason);
	return -1;
}

static int check_shape(struct frames *f, const char *dataset, char *why, size_t size)
{
	hid_t space = H5Dget_space(f->dataset), type = H5Dget_type(f->dataset);
	int rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
	H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
	hsize_t dimensions[3];
	int rc = -1;

	if (class != H5T_FLOAT && class != H5T_INTEGER)
		snprintf(why, size, "'%s' has no numbers", dataset);
	else if (rank != 3)
		snprintf(why, size, "'%s' has %d dimensions, not images, rows and columns", dataset,
		         rank);
	else if (H5Sget_simple_extent_dims(space, dimensions, NULL) < 0)
		fail(why, size, dataset);
	else if (dimensions[0] == 0 || dimensions[1] == 0 || dimensions[2] == 0)
		snprintf(why, size, "'%s' is empty", dataset);
	else
		rc = 0;
	if (rc == 0) {
		f->count = dimensions[0];
		f->rows = dimensions[1];
		f->columns = dimensions[2];
	}
	if (type >= 0)
		H5Tclose(type);
	if (space >= 0)
		H5Sclose(space);
	return rc;
}

int frames_open(struct frames *f, const char *path, const char *dataset, char *why, size_t size)
{
	hdf5_errors_quiet();
	*f = (struct frames){.file = H5I_INVALID_HID, .dataset = H5I_INVALID_HID};
	pthread_mutex_init(&f->mutex, NULL);
	f->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	if (f->file < 0)
		return fail(why, size, "cannot be opened as HDF5");
	f->dataset = H5Dopen2(f->file, dataset, H5P_DEFAULT);
	if (f->dataset < 0) {
		snprintf(why, size, "there is no dataset '%s'", dataset);
		return -1;
	}
	return check_shape(f, dataset, why, size);
}

void frames_close(struct frames *f)
{
	if (f->dataset >= 0)
		H5Dclose(f->dataset);
	if (f->file >= 0)
		H5Fclose(f->file);
	pthread_mutex_destroy(&f->mutex);
}

static int read_locked(struct frames *f, uint64_t index, float *out, char *why, size_t size)
{
	hsize_t first[3] = {index, 0, 0}, one[3] = {1, f->rows, f->columns};
	hid_t memory = H5Screate_simple(3, one, NULL), space = H5Dget_space(f->dataset);
	char what[64];
	int rc = 0;

	hdf5_errors_quiet();
	snprintf(what, sizeof what, "image %llu cannot be read", (unsigned long long)index);
	if (memory < 0 || space < 0 ||
	    H5Sselect_hyperslab(space, H5S_SELECT_SET, first, NULL, one, NULL) < 0 ||
	    H5Dread(f->dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, out) < 0)
		rc = fail(why, size, what);
	if (space >= 0)
		H5Sclose(space);
	if (memory >= 0)
		H5Sclose(memory);
	return rc;
}

int frames_read(struct frames *f, uint64_t index, float *out, char *why, size_t size)
{
	int rc;

	pthread_mutex_lock(&f->mutex);
	rc = read_locked(f, index, out, why, size);
	pthread_mutex_unlock(&f->mutex);
	return rc;
}
