/* SPDX-License-Identifier: Apache-2.0 */
/* Errors and values of Python, as all types of the extension use them, and the hooks of the package. With the GIL. */
#include "core.h"

#include <errno.h>
#include <string.h>

#include <sluice/device.h>

struct hooks hooks;

PyObject *raise_text(int error, PyObject *text)
{
	PyObject *value = text ? PyObject_CallFunction(PyExc_OSError, "iO", -error, text) : NULL;

	if (value)
		PyErr_SetObject((PyObject *)Py_TYPE(value), value);
	Py_XDECREF(value);
	return NULL;
}

PyObject *raise_error(int error, const char *message)
{
	PyObject *text = PyUnicode_DecodeUTF8(message, strlen(message), "replace");

	raise_text(error, text);
	Py_XDECREF(text);
	return NULL;
}

PyObject *raise_last(int error)
{
	return raise_error(error, sluice_last_message());
}

int parse_number(PyObject *number, void *out)
{
	PyObject *index = PyNumber_Index(number);
	unsigned long long found = index ? PyLong_AsUnsignedLongLong(index) : 0;

	if (index && PyErr_Occurred())
		PyErr_Format(PyExc_OverflowError, "%R is not from 0 to 2**64 - 1", number);
	Py_XDECREF(index);
	if (PyErr_Occurred())
		return 0;
	*(uint64_t *)out = found;
	return 1;
}

int parse_device(const char *name, int *device)
{
	*device = -1;
	if (strcmp(name, "cpu") && sluice_device_find(name, device)) {
		raise_last(-ENODEV);
		return -1;
	}
	return 0;
}

int parse_lengths(PyObject *tuple, void *out)
{
	struct lengths *lengths = out;
	Py_ssize_t rank = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;

	if (rank < 0)
		PyErr_Format(PyExc_TypeError, "a tuple is needed, not %R", tuple);
	for (Py_ssize_t i = 0; i < rank && i < SLUICE_ARRAY_RANK_MOST; i++)
		if (!parse_number(PyTuple_GetItem(tuple, i), &lengths->of[i]))
			return 0;
	/* The library refuses ranks that it does not have. */
	lengths->rank = (unsigned)rank;
	return rank >= 0;
}

PyObject *lengths_tuple(const uint64_t *lengths, unsigned rank)
{
	PyObject *tuple = PyTuple_New(rank);

	for (unsigned i = 0; tuple && i < rank; i++) {
		PyObject *length = PyLong_FromUnsignedLongLong(lengths[i]);

		if (!length || PyTuple_SetItem(tuple, i, length))
			Py_CLEAR(tuple);
	}
	return tuple;
}

const char *parse_text(const char *name, PyObject *text)
{
	Py_ssize_t length = 0;
	const char *utf8 = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;

	if (!PyErr_Occurred() && !utf8)
		PyErr_Format(PyExc_TypeError, "%s: a str is needed, not %R", name, text);
	if (utf8 && strlen(utf8) == (size_t)length)
		return utf8;
	if (utf8)
		PyErr_Format(PyExc_ValueError, "%s: %R contains a null character", name, text);
	return NULL;
}

void object_free(void *object)
{
	PyTypeObject *type = Py_TYPE((PyObject *)object);

	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}
