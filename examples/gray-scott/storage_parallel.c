/* SPDX-License-Identifier: Apache-2.0 */
/* With a filter HDF5 writes collectively only: each H5Dwrite is a call of all ranks, which wait for each other in it. */
#include <mpi.h>

#include "storage.h"
#include "storage_hdf5.h"

const struct storage_kind *const storage_kinds[] = {&storage_collective, NULL};

hid_t storage_create_file(const char *path, hid_t *transfer)
{
	hid_t access = H5Pcreate(H5P_FILE_ACCESS), file = H5I_INVALID_HID;

	*transfer = H5Pcreate(H5P_DATASET_XFER);
	if (access >= 0 && *transfer >= 0 &&
	    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0 &&
	    H5Pset_dxpl_mpio(*transfer, H5FD_MPIO_COLLECTIVE) >= 0)
		file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
	if (access >= 0)
		H5Pclose(access);
	return file;
}
