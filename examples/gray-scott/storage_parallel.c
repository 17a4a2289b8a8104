/* SPDX-License-Identifier: Apache-2.0 */
/* With a filter HDF5 writes collectively only: each H5Dwrite is a call of all ranks, which wait for each other in it. */
#include <mpi.h>

#include "storage.h"
#include "storage_hdf5.h"

const struct storage_kind *const storage_kinds[] = {&storage_sluice, &storage_plain, &storage_sync,
                                                    &storage_collective, NULL};

hid_t storage_create_file(const char *path, bool together, hid_t *transfer)
{
	hid_t access = H5P_DEFAULT;

	*transfer = H5P_DEFAULT;
	if (together) {
		access = H5Pcreate(H5P_FILE_ACCESS);
		*transfer = H5Pcreate(H5P_DATASET_XFER);
		if (H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL) < 0 ||
		    H5Pset_dxpl_mpio(*transfer, H5FD_MPIO_COLLECTIVE) < 0)
			return H5I_INVALID_HID;
	}
	/* To close the list would make HDF5 forget why there is no file. */
	return H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
}
