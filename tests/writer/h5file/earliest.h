/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5's earliest format, which is the default before HDF5 2. */
#ifndef TESTS_FRAMES_EARLIEST_H
#define TESTS_FRAMES_EARLIEST_H

#include <hdf5.h>

static inline hid_t hdf5_earliest(void)
{
	hid_t how = H5Pcreate(H5P_FILE_ACCESS);

	H5Pset_libver_bounds(how, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST);
	return how;
}

#endif
