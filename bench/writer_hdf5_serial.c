/* SPDX-License-Identifier: Apache-2.0 */
#include "writer_hdf5.h"

hid_t hdf5_create_file(const struct sink_options *o, hid_t *transfer)
{
	*transfer = H5P_DEFAULT;
	return H5Fcreate(o->path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
}
