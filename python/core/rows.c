/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of tensors
 *
 * Describes the tensors of a save or a collection in a bytearray. Tensors of torch are read by DLPack's table of
 * functions (torch 2.10), or by its capsules: an object of Python for each property would take most of a save's call.
 */
#include "core.h"

#include <stdio.h>
#include <string.h>

/* Then the name with its end, and as much as makes the row a multiple of 8 bytes. */
struct row {
	size_t bytes;
	uint64_t address;
	uint32_t rank;
	int32_t type, device;
	uint64_t lengths[];
};

static size_t row_lengths(unsigned rank)
{
	return (rank < SLUICE_ARRAY_RANK_MOST ? rank : SLUICE_ARRAY_RANK_MOST) * sizeof(uint64_t);
}

static bool row_put(PyObject *rows, PyObject *name, struct row row, const void *lengths)
{
	const char *text = parse_text("a name of a tensor", name);
	Py_ssize_t at = PyByteArray_Size(rows);
	size_t n = sizeof(row) + row_lengths(row.rank);
	char *to;

	if (!text)
		return false;
	row.bytes = (n + strlen(text) + sizeof(uint64_t)) & -sizeof(uint64_t);
	if (PyByteArray_Resize(rows, at + (Py_ssize_t)row.bytes))
		return false;
	to = PyByteArray_AsString(rows) + at;
	memcpy(to, &row, sizeof(row));
	memcpy(to + sizeof(row), lengths, n - sizeof(row));
	strcpy(to + n, text);
	return true;
}

PyObject *add_row(PyObject *module, PyObject *args)
{
	struct lengths lengths = {0};
	const char *word, *place;
	struct row row = {0};
	PyObject *rows, *name;

	if (!PyArg_ParseTuple(args, "O!OsO&sO&:add_row", &PyByteArray_Type, &rows, &name, &word,
	                      parse_lengths, &lengths, &place, parse_number, &row.address) ||
	    parse_device(place, &row.device))
		return NULL;
	row.type = type_of_word(word);
	row.rank = lengths.rank;
	if (!row_put(rows, name, row, lengths.of))
		return NULL;
	Py_RETURN_NONE;
}

struct sluice_collection_tensor *call_tensors(struct call *call, PyObject *rows, size_t *count)
{
	size_t end = (size_t)PyByteArray_Size(rows);
	char *copy = call_copy(call, PyByteArray_AsString(rows), end);
	struct sluice_collection_tensor *tensors;

	*count = 0;
	for (size_t at = 0; copy && at < end; at += ((struct row *)(copy + at))->bytes)
		++*count;
	tensors = copy ? call_copy(call, NULL, *count * sizeof(*tensors)) : NULL;
	for (size_t at = 0, i = 0; tensors && at < end; i++) {
		struct row *row = (struct row *)(copy + at);

		tensors[i] = (struct sluice_collection_tensor){
			.size = sizeof(*tensors),
			.name = (char *)row->lengths + row_lengths(row->rank),
			.type = row->type,
			.rank = row->rank,
			.shape = row->lengths,
			.device = row->device,
			.data = (void *)(uintptr_t)row->address};
		at += row->bytes;
	}
	return tensors;
}

/* ----------------------------------------------------------------------------------- of torch */

/* DLPack's DLPackExchangeAPI of version 1. */
struct dlpack_table {
	uint32_t major, minor;
	void *previous, *allocate, *make, *wrap;
	int (*look)(void *value, struct dlpack_tensor *out);
};
struct plain {
	PyObject *kinds;   /* of types, the tables or None */
	PyObject *capsule; /* a function that makes one */
	PyObject *streams;
	const char *place; /* of all rows; NULL: each tensor's */

	/* Of the last tensor. */
	PyTypeObject *kind;
	const struct dlpack_table *table;
	int32_t device_type, device_id;
	int device;
};

/* Codes and bits of DLPack. Complex numbers are not plain, as they may be conjugated, nor are bytes: torch's int1 to
 * uint7 look like these. */
static int plain_type(const struct dlpack_tensor *t)
{
	static const uint8_t types[][3] = {
		{4, 16, SLUICE_BFLOAT16},
		{2, 32, SLUICE_FLOAT32},
		{2, 16, SLUICE_FLOAT16},
		{2, 64, SLUICE_FLOAT64},
		{0, 64, SLUICE_INT64},
		{0, 32, SLUICE_INT32},
		{0, 16, SLUICE_INT16},
		{1, 16, SLUICE_UINT16},
		{1, 32, SLUICE_UINT32},
		{1, 64, SLUICE_UINT64},
		{6, 8, SLUICE_BOOL},
		{10, 8, SLUICE_FLOAT8_E4M3},
		{11, 8, SLUICE_FLOAT8_E4M3FNUZ},
		{12, 8, SLUICE_FLOAT8_E5M2},
		{13, 8, SLUICE_FLOAT8_E5M2FNUZ},
		{14, 8, SLUICE_FLOAT8_E8M0},
	};

	for (size_t i = 0; t->lanes == 1 && i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i][0] == t->code && types[i][1] == t->bits)
			return types[i][2];
	return 0;
}

static bool plain_kind(struct plain *p, PyTypeObject *kind)
{
	PyObject *found = PyDict_GetItem(p->kinds, (PyObject *)kind);

	p->kind = found ? kind : NULL;
	p->table = found && PyCapsule_IsValid(found, "dlpack_exchange_api")
	                   ? PyCapsule_GetPointer(found, "dlpack_exchange_api")
	                   : NULL;
	if (p->table && (p->table->major != 1 || !p->table->look))
		p->table = NULL;
	return found;
}

/* Returns false for a device whose stream is not known. */
static bool plain_device(struct plain *p, const struct dlpack_tensor *t)
{
	enum { DL_CPU = 1, DL_CUDA };
	char name[32] = "cpu";

	if (p->device_type == t->device_type && p->device_id == t->device_id)
		return true;
	if (t->device_type == DL_CUDA)
		snprintf(name, sizeof(name), "cuda:%d", (int)t->device_id);
	else if (t->device_type != DL_CPU)
		return false;
	if ((t->device_type == DL_CUDA && !PyDict_GetItemString(p->streams, name)) ||
	    parse_device(p->place ? p->place : name, &p->device))
		return false;
	p->device_type = t->device_type;
	p->device_id = t->device_id;
	return true;
}

/* Returns false, maybe with an exception, if the tensor is not plain. */
static bool plain_add(struct plain *p, PyObject *name, PyObject *value, PyObject *rows,
                      PyObject *keep)
{
	static PyObject *is_neg, *storage;
	struct dlpack_tensor t = {0};
	PyObject *capsule = NULL, *negative = NULL, *kept = NULL;
	struct row row;
	bool plain = p->kind == Py_TYPE(value) || plain_kind(p, Py_TYPE(value));

	if (!is_neg)
		is_neg = PyUnicode_InternFromString("is_neg");
	if (!storage)
		storage = PyUnicode_InternFromString("untyped_storage");
	if (plain)
		negative = PyObject_CallMethodObjArgs(value, is_neg, NULL);
	/* It keeps the memory, also if the tensor gets other memory meanwhile. Both calls may let
	 * other threads run, but from here on none does. */
	if (negative == Py_False)
		kept = PyObject_CallMethodObjArgs(value, storage, NULL);
	plain = kept;
	if (plain && p->table) {
		plain = !p->table->look(value, &t);
	} else if (plain) {
		capsule = PyObject_CallFunctionObjArgs(p->capsule, value, NULL);
		plain = capsule && PyCapsule_IsValid(capsule, "dltensor");
		if (plain)
			t = *(struct dlpack_tensor *)PyCapsule_GetPointer(capsule, "dltensor");
	}
	plain = plain && t.dimensions <= SLUICE_ARRAY_RANK_MOST && dlpack_bytes(&t) >= 0 &&
	        plain_device(p, &t);
	row = (struct row){.rank = (uint32_t)t.dimensions,
	                   .type = plain ? plain_type(&t) : 0,
	                   .device = p->device,
	                   .address = (uintptr_t)t.data + t.byte_offset};
	plain = row.type && !PyList_Append(keep, kept) && row_put(rows, name, row, t.shape);
	Py_XDECREF(kept);
	Py_XDECREF(negative);
	Py_XDECREF(capsule);
	return plain;
}

PyObject *plain_rows(PyObject *module, PyObject *args)
{
	PyObject *tensors, *rows, *keep, *name, *value;
	struct plain p = {0};
	Py_ssize_t at;

	if (!PyArg_ParseTuple(args, "O!nO!OO!zO!O!:plain_rows", &PyDict_Type, &tensors, &at,
	                      &PyDict_Type, &p.kinds, &p.capsule, &PyDict_Type, &p.streams,
	                      &p.place, &PyByteArray_Type, &rows, &PyList_Type, &keep))
		return NULL;
	while (PyDict_Next(tensors, &at, &name, &value)) {
		if (plain_add(&p, name, value, rows, keep))
			continue;
		if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
			return NULL;
		PyErr_Clear();
		return Py_BuildValue("(nOO)", at, name, value);
	}
	Py_RETURN_NONE;
}
