/* SPDX-License-Identifier: Apache-2.0 */
/* How storage_hdf5.c makes its file, and which kinds of storage there are: without (storage_serial.c) or with parallel HDF5. */
#ifndef GRAY_SCOTT_STORAGE_HDF5_H
#define GRAY_SCOTT_STORAGE_HDF5_H

#include <hdf5.h>
#include <stdbool.h>

/* The file, or a negative number; *transfer: the property list for H5Dwrite. together: all ranks write it. */
hid_t storage_create_file(const char *path, bool together, hid_t *transfer);

#endif
