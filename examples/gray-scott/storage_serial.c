/* SPDX-License-Identifier: Apache-2.0 */
#include "storage_hdf5.h"

hid_t storage_create_file(const char *path, hid_t *transfer)
{
	*transfer = H5P_DEFAULT;
	return H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
}
