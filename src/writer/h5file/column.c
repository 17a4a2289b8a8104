/* SPDX-License-Identifier: Apache-2.0 */
/* Bare datasets: types of elements, and columns, which have a single dimension.
 * Threads: the file thread. */
#include <errno.h>

#include "h5file/h5file_internal.h"

/* As h5py makes it: HDF5 1.10 has no name for it. */
static hid_t float16(void)
{
	hid_t type = H5Tcopy(H5T_NATIVE_FLOAT);

	H5Tset_fields(type, 15, 10, 5, 0, 10);
	H5Tset_size(type, 2);
	H5Tset_ebias(type, 15);
	return type;
}

static hid_t bool_type(void)
{
	hid_t type = H5Tenum_create(H5T_NATIVE_INT8);

	H5Tenum_insert(type, "FALSE", &(int8_t){0});
	H5Tenum_insert(type, "TRUE", &(int8_t){1});
	return type;
}

static hid_t complex_type(hid_t part)
{
	size_t bytes = H5Tget_size(part);
	hid_t type = H5Tcreate(H5T_COMPOUND, 2 * bytes);

	H5Tinsert(type, "r", 0, part);
	H5Tinsert(type, "i", bytes, part);
	return type;
}

static hid_t string_type(size_t bytes)
{
	hid_t type = H5Tcopy(H5T_C_S1);

	H5Tset_size(type, bytes);
	H5Tset_strpad(type, H5T_STR_NULLPAD);
	return type;
}

hid_t sl_h5_type(enum sluice_type type, size_t element)
{
	const hid_t native[] = {
		[SLUICE_INT8] = H5T_NATIVE_INT8,     [SLUICE_UINT8] = H5T_NATIVE_UINT8,
		[SLUICE_INT16] = H5T_NATIVE_INT16,   [SLUICE_UINT16] = H5T_NATIVE_UINT16,
		[SLUICE_INT32] = H5T_NATIVE_INT32,   [SLUICE_UINT32] = H5T_NATIVE_UINT32,
		[SLUICE_INT64] = H5T_NATIVE_INT64,   [SLUICE_UINT64] = H5T_NATIVE_UINT64,
		[SLUICE_FLOAT32] = H5T_NATIVE_FLOAT, [SLUICE_FLOAT64] = H5T_NATIVE_DOUBLE,
	};

	switch (type) {
	case SLUICE_FLOAT16:
		return float16();
	case SLUICE_BOOL:
		return bool_type();
	case SLUICE_COMPLEX64:
		return complex_type(H5T_NATIVE_FLOAT);
	case SLUICE_COMPLEX128:
		return complex_type(H5T_NATIVE_DOUBLE);
	case SLUICE_STRING:
		return string_type(element);
	default:
		return H5Tcopy(native[type]);
	}
}

/* Needs no cache of chunks: chunks are written whole, and scalars in place. */
static hid_t access_list(void)
{
	hid_t list = H5Pcreate(H5P_DATASET_ACCESS);

	H5Pset_chunk_cache(list, 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT);
	return list;
}

hid_t sl_h5_dataset_open(hid_t file, const char *name)
{
	hid_t access = access_list(), id = sl_hdf5_noted(H5Dopen2(file, name, access));

	H5Pclose(access);
	return id;
}

hid_t sl_h5_create(struct sl_h5_file *file, const char *name, hid_t type, unsigned rank,
                   const hsize_t *extent, const hsize_t *most, hid_t list)
{
	hid_t space = H5Screate_simple((int)rank, extent, most), access = access_list();
	hid_t id = H5I_INVALID_HID;

	if (list >= 0 && space >= 0 && access >= 0)
		id = sl_hdf5_noted(
			H5Dcreate2(file->id, name, type, space, H5P_DEFAULT, list, access));
	H5Pclose(access);
	H5Sclose(space);
	return id;
}

hid_t sl_h5_column(struct sl_h5_file *file, const char *name, hid_t type, hsize_t length)
{
	hsize_t most = length ? length : H5S_UNLIMITED, chunk = SL_H5_COLUMN;
	hid_t list = H5Pcreate(H5P_DATASET_CREATE), id = H5I_INVALID_HID;

	if (H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) >= 0 &&
	    H5Pset_obj_track_times(list, false) >= 0 &&
	    (length || H5Pset_chunk(list, 1, &chunk) >= 0))
		id = sl_h5_create(file, name, type, 1, &length, &most, list);
	H5Pclose(list);
	return id;
}

int sl_h5_offset_find(struct sl_h5_dataset *dataset)
{
	haddr_t start = H5Dget_offset(dataset->id);

	if (start == HADDR_UNDEF)
		return sl_h5_fail(dataset->file, -EIO, "HDF5 has no place for '%s'", dataset->name);
	dataset->start = start;
	return 0;
}
