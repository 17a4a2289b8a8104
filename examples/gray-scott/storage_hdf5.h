/* SPDX-License-Identifier: Apache-2.0 */
/* How storage_plain.c makes its file: alone (storage_serial.c), or with all ranks of MPI (storage_parallel.c). */
#ifndef GRAY_SCOTT_STORAGE_HDF5_H
#define GRAY_SCOTT_STORAGE_HDF5_H

#include <hdf5.h>

/* The file, or a negative number; *transfer: the property list for H5Dwrite. */
hid_t storage_create_file(const char *path, hid_t *transfer);

#endif
