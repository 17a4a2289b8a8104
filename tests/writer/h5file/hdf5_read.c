/* SPDX-License-Identifier: Apache-2.0 */
#include "h5file/hdf5_read.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

uint64_t hdf5_frames(hid_t set)
{
	hid_t space = H5Dget_space(set), attribute;
	hsize_t extent[H5S_MAX_RANK] = {0};
	uint64_t frames;

	H5Sget_simple_extent_dims(space, extent, NULL);
	H5Sclose(space);
	if (H5Aexists(set, "sluice_frames") <= 0)
		return extent[0];
	attribute = H5Aopen(set, "sluice_frames", H5P_DEFAULT);
	if (H5Aread(attribute, H5T_NATIVE_UINT64, &frames) < 0)
		frames = UINT64_MAX;
	H5Aclose(attribute);
	return frames;
}

void *hdf5_read_all(hid_t set, hid_t type)
{
	hid_t space = H5Dget_space(set);
	size_t n = (size_t)H5Sget_simple_extent_npoints(space) * H5Tget_size(type);
	void *all = malloc(n + 1);

	H5Sclose(space);
	if (all && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0)
		return all;
	free(all);
	return NULL;
}

int hdf5_look_apart(int (*look)(const void *argument), const void *argument)
{
	pid_t process = fork(), ended;
	int status;

	if (!process) {
		alarm(20);
		setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
		_exit(look(argument));
	}
	do
		ended = process < 0 ? -1 : waitpid(process, &status, 0);
	while (ended < 0 && process > 0 && errno == EINTR);
	if (ended < 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
