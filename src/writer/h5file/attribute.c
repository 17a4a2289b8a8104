/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes: texts and numbers of a dataset or the file.
 * Threads: the file thread. */
#include <errno.h>

#include "h5file/h5file_internal.h"

/* --------------------------------------------------------------------------------------- write */

/* Texts of variable length: h5py returns them as str, and texts of fixed length as bytes. */
static hid_t text_type(void)
{
	hid_t type = H5Tcopy(H5T_C_S1);

	H5Tset_size(type, H5T_VARIABLE);
	H5Tset_cset(type, H5T_CSET_UTF8);
	return type;
}

static hid_t attribute_make(hid_t object, const char *name, hid_t type, int rank,
                            const hsize_t *shape, const void *value)
{
	hid_t space = rank ? H5Screate_simple(rank, shape, NULL) : H5Screate(H5S_SCALAR);
	hid_t list = H5Pcreate(H5P_ATTRIBUTE_CREATE), attribute;

	/* For a character set HDF5 has another message; in the default format links have none. */
	for (const char *c = name; *c; c++)
		if (*c & 0x80)
			H5Pset_char_encoding(list, H5T_CSET_UTF8);
	attribute = sl_hdf5_noted(H5Acreate2(object, name, type, space, list, H5P_DEFAULT));
	H5Pclose(list);
	H5Sclose(space);
	if (attribute >= 0 && sl_hdf5_noted(H5Awrite(attribute, type, value)) < 0) {
		H5Aclose(attribute);
		attribute = H5I_INVALID_HID;
	}
	return attribute;
}

hid_t sl_h5_attribute_make(hid_t object, const char *name, hid_t type, hsize_t count,
                           const void *value)
{
	return attribute_make(object, name, type, count != 0, &count, value);
}

bool sl_h5_attribute_write(hid_t object, const char *name, hid_t type, hsize_t count,
                           const void *value)
{
	hid_t attribute = sl_h5_attribute_make(object, name, type, count, value);

	return attribute >= 0 && H5Aclose(attribute) >= 0;
}

static bool attribute_set(hid_t object, const struct sluice_attribute *a)
{
	hsize_t shape[] = {a->columns ? a->count / a->columns : a->count, a->columns};
	int rank = a->columns ? 2 : a->texts || (!a->text && a->count > 1);
	hid_t type = a->numbers    ? H5Tcopy(H5T_NATIVE_DOUBLE)
	             : a->integers ? H5Tcopy(H5T_NATIVE_INT64)
	                           : text_type();
	const void *value = a->numbers    ? (const void *)a->numbers
	                    : a->integers ? (const void *)a->integers
	                    : a->texts    ? (const void *)a->texts
	                                  : (const void *)&a->text;
	hid_t attribute = attribute_make(object, a->name, type, rank, shape, value);

	H5Tclose(type);
	return attribute >= 0 && H5Aclose(attribute) >= 0;
}

int sl_h5_attributes_add(struct sl_h5_file *file, hid_t object, const char *name,
                         const struct sluice_attribute *list, size_t count)
{
	int err = 0;

	/* Texts lie in blocks of a page, which HDF5 writes while others read them. */
	file->vfd.pages = true;
	for (size_t i = 0; !err && i < count; i++) {
		htri_t there = H5Aexists(object, list[i].name);

		file->untouched &= there > 0;
		if (there < 0 || (!there && !attribute_set(object, &list[i])))
			err = sl_h5_fail(file, -EIO, "attribute '%s' of '%s' cannot be written",
			                 list[i].name, name);
	}
	file->vfd.pages = false;
	return err;
}
