/* SPDX-License-Identifier: Apache-2.0 */
/* sink=hdf5: H5Dwrite of parallel HDF5, with collective=1 by all ranks together, otherwise by each when it is called. */
#include "mpi_bench.h"
#include "writer_hdf5.h"

#include <string.h>

hid_t hdf5_create_file(const struct sink_options *o, hid_t *transfer)
{
	hid_t access = H5Pcreate(H5P_FILE_ACCESS), file;

	*transfer = H5Pcreate(H5P_DATASET_XFER);
	H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
	H5Pset_dxpl_mpio(*transfer, o->collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
	file = H5Fcreate(o->path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
	H5Pclose(access);
	return file;
}

const struct sink_ops *mpi_choose(int rank, int *files)
{
	(void)rank;
	(void)files;
	return strcmp(options.kind, sink_hdf5.name) ? NULL : &sink_hdf5;
}
