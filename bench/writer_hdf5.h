/* SPDX-License-Identifier: Apache-2.0 */
/* How writer_hdf5.c makes its file: alone (writer_hdf5_serial.c), or with the other ranks of MPI (mpi_hdf5.c). */
#ifndef BENCH_WRITER_HDF5_H
#define BENCH_WRITER_HDF5_H

#include <hdf5.h>

#include "writer_bench.h"

/* The file, or a negative number; *transfer: the property list for H5Dwrite. */
hid_t hdf5_create_file(const struct sink_options *o, hid_t *transfer);

#endif
