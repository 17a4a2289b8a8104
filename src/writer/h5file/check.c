/* SPDX-License-Identifier: Apache-2.0 */
/* Checks: attributes and names, without HDF5.
 * Threads: any. */
#include <errno.h>
#include <string.h>

#include "h5file/h5file.h"

/* HDF5 has them in the header of the object, in messages of 64 KiB at most. */
#define VALUE_MOST 64000
#define NAME_MOST  1000
/* Names that mean something here. */
#define RESERVED "sluice_"

/* A text of a list is a reference in the header. */
#define REFERENCE 16

static size_t value_bytes(const struct sluice_attribute *a)
{
	size_t bytes = 0;

	if (a->text)
		return strlen(a->text);
	if (!a->texts)
		return a->count > VALUE_MOST ? a->count : a->count * sizeof(int64_t);
	for (size_t i = 0; i < a->count && bytes <= VALUE_MOST; i++)
		bytes += REFERENCE + strlen(a->texts[i]);
	return bytes;
}

static int attribute_check(const struct sluice_attribute *a)
{
	unsigned pointers = !!a->text + !!a->texts + !!a->numbers + !!a->integers;

	if (!a->name || !a->name[0] || strlen(a->name) > NAME_MOST)
		return sl_fail(-EINVAL, "an attribute needs a name, of up to %d bytes", NAME_MOST);
	if (!strncmp(a->name, RESERVED, sizeof(RESERVED) - 1))
		return sl_fail(-EINVAL, "attribute '%s': names with " RESERVED " are sluice's own",
		               a->name);
	if (pointers != 1)
		return sl_fail(-EINVAL,
		               "attribute '%s' needs exactly one of text, texts, numbers and "
		               "integers",
		               a->name);
	if (!a->text && !a->count)
		return sl_fail(-EINVAL, "attribute '%s' has no %s", a->name,
		               a->texts ? "texts" : "numbers");
	if (a->columns && (a->text || a->texts || a->count % a->columns))
		return sl_fail(-EINVAL, "attribute '%s' has %zu columns, and %s", a->name,
		               a->columns,
		               a->text || a->texts ? "texts" : "its last row is not full");
	for (size_t i = 0; a->texts && i < SL_MIN(a->count, VALUE_MOST); i++)
		if (!a->texts[i])
			return sl_fail(-EINVAL, "attribute '%s': text %zu is NULL", a->name, i);
	if (value_bytes(a) > VALUE_MOST)
		return sl_fail(-EINVAL, "attribute '%s' is longer than %d bytes, as HDF5 has them",
		               a->name, VALUE_MOST);
	return 0;
}

int sl_h5_attributes_check(const struct sluice_attribute *list, size_t count)
{
	int err = 0;

	if (count && !list)
		return sl_fail(-EINVAL, "attributes is NULL, and there is a number of them");
	for (size_t i = 0; !err && i < count; i++) {
		err = attribute_check(&list[i]);
		for (size_t j = 0; !err && j < i; j++)
			if (!strcmp(list[i].name, list[j].name))
				err = sl_fail(-EINVAL, "attribute '%s' comes twice", list[i].name);
	}
	return err;
}

int sl_h5_names_check(const char *what, const char *const *names, size_t count)
{
	if (count && !names)
		return sl_fail(-EINVAL, "%ss is NULL, and there is a number of them", what);
	for (size_t i = 0; i < count; i++) {
		if (!names[i] || !names[i][0] || strchr(names[i], '/'))
			return sl_fail(-EINVAL, "a %s needs a name without '/'", what);
		for (size_t j = 0; j < i; j++)
			if (!strcmp(names[i], names[j]))
				return sl_fail(-EINVAL, "%s '%s' comes twice", what, names[i]);
	}
	return 0;
}
