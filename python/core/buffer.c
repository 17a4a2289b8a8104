/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers
 *
 * Finds the memory of an object that a caller passes: by the buffer protocol here, all other kinds by
 * the package (_memory.py). Reads the tensors of DLPack for it.
 */
#include "core.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void held_give(struct held *held)
{
	if (held->exported)
		PyBuffer_Release(&held->view);
	held->exported = false;
	Py_CLEAR(held->keeper);
}

/* Clears an error; returns -1 if it is the exception of an interrupt, which stays. */
static int held_clear(void)
{
	if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
		return -1;
	PyErr_Clear();
	return 0;
}

/* Returns whether the array refuses the buffer protocol in every form; an interrupt stays. */
static bool held_never(PyObject *buffer)
{
	Py_buffer view;

	if (PyObject_GetBuffer(buffer, &view, PyBUF_INDIRECT))
		return !held_clear();
	PyBuffer_Release(&view);
	return false;
}

/* Exporters raise ValueError or BufferError: callers see BufferError. Returns -1, or 0 if the array has
 * another way: CuPy's have the buffer protocol, and refuse it for memory of a device, and JAX's for bf16 and
 * FP8. The capsules of JAX omit that its arrays are read-only: they are no destinations. */
static int held_refuse(PyObject *buffer, bool writable)
{
	PyObject *type, *value, *traceback, *other;

	PyErr_Fetch(&type, &value, &traceback);
	PyErr_NormalizeException(&type, &value, &traceback);
	other = PyObject_GetAttrString(buffer, "__cuda_array_interface__");
	if (!other && !held_clear() && !writable && held_never(buffer))
		other = PyObject_GetAttrString(buffer, "__dlpack__");
	if (!other && !held_clear())
		PyErr_Format(PyErr_GivenExceptionMatches(type, PyExc_ValueError) ? PyExc_BufferError
		                                                                 : type,
		             "%S", value);
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(traceback);
	Py_XDECREF(other);
	return other ? 0 : -1;
}

/* Returns whether there are references among the elements, or -1. format: as of the module struct; NULL: numpy knows. */
static int buffer_has_objects(PyObject *buffer, const char *format)
{
	PyObject *dtype, *objects;
	bool name = false, found = false;

	for (const char *at = format; at && *at; at++) {
		name ^= *at == ':';
		found |= *at == 'O' && !name;
	}
	dtype = format ? NULL : PyObject_GetAttrString(buffer, "dtype");
	objects = dtype ? PyObject_GetAttrString(dtype, "hasobject") : NULL;
	found |= objects == Py_True;
	Py_XDECREF(objects);
	Py_XDECREF(dtype);
	return held_clear() ? -1 : found;
}

/* Returns 1; 0 if the array has another way; or -1 with an exception. */
static int held_export(PyObject *buffer, int flags, struct held *out)
{
	int objects;

	/* numpy has no format for times. */
	if (PyObject_GetBuffer(buffer, &out->view, flags | PyBUF_ND | PyBUF_FORMAT)) {
		if (held_clear())
			return -1;
		if (PyObject_GetBuffer(buffer, &out->view, flags))
			return PyErr_ExceptionMatches(PyExc_Exception)
			               ? held_refuse(buffer, flags & PyBUF_WRITABLE)
			               : -1;
	}
	out->exported = true;
	out->data = out->view.buf;
	out->length = out->view.len;
	objects = buffer_has_objects(buffer, out->view.format);
	if (!objects)
		return 1;
	held_give(out);
	if (objects > 0)
		PyErr_SetString(PyExc_TypeError, "the elements are Python objects, and not bytes");
	return -1;
}

int held_take(PyObject *buffer, bool writable, struct held *out)
{
	PyObject *found;
	uint64_t address, length;
	int exported = 0;

	*out = (struct held){0};
	if (PyObject_CheckBuffer(buffer))
		exported = held_export(buffer, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE, out);
	if (exported)
		return exported > 0 ? 0 : -1;
	found = PyObject_CallFunction(hooks.memory, "Oi", buffer, writable);
	if (!found)
		return -1;
	if (!PyArg_ParseTuple(found, "O&O&O", parse_number, &address, parse_number, &length,
	                      &out->keeper)) {
		out->keeper = NULL;
		Py_DECREF(found);
		return -1;
	}
	Py_INCREF(out->keeper);
	Py_DECREF(found);
	out->data = (void *)(uintptr_t)address;
	out->length = length;
	return 0;
}

/* The layout of DLPack's version 1. */
struct dlpack_versioned {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct dlpack_versioned *);
	uint64_t flags;
	struct dlpack_tensor tensor;
};
#define DLPACK_READ_ONLY 1

int64_t dlpack_bytes(const struct dlpack_tensor *t)
{
	int64_t count = 1, bits = (int64_t)t->bits * t->lanes;
	bool over = t->dimensions < 0, apart = false;

	for (int i = t->dimensions - 1; i >= 0 && !over; i--) {
		apart |= t->strides && t->shape[i] > 1 && t->strides[i] != count;
		over = t->shape[i] < 0 || __builtin_mul_overflow(count, t->shape[i], &count);
	}
	over = over || __builtin_mul_overflow(count, bits, &bits) || bits > INT64_MAX - 7;
	if (over || (apart && count))
		PyErr_SetString(PyExc_BufferError, over ? "the array has no such shape"
		                                        : "the array is not C-contiguous");
	return PyErr_Occurred() ? -1 : (bits + 7) / 8;
}

/* Returns (address, bytes, device type, read only) of a capsule, which stays as it is: its own
 * destructor frees the tensor. */
PyObject *parse_dlpack(PyObject *module, PyObject *capsule)
{
	const struct dlpack_versioned *versioned;
	const struct dlpack_tensor *t;
	int64_t bytes;
	int read_only = 0;

	if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
		versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
		t = &versioned->tensor;
		read_only = versioned->flags & DLPACK_READ_ONLY;
	} else {
		t = PyCapsule_GetPointer(capsule, "dltensor");
	}
	if (!t)
		return NULL;
	bytes = dlpack_bytes(t);
	if (bytes < 0)
		return NULL;
	return Py_BuildValue("KLii", (unsigned long long)(uintptr_t)t->data + t->byte_offset,
	                     (long long)bytes, (int)t->device_type, read_only);
}

/* The deleter of a tensor that was wrapped, and its argument's context. */
struct dlpack_wrap {
	struct handle *handle;
	void *context;
	void (*deleter)(void *tensor);
};
/* In both versions the deleter comes after the context. */
struct dlpack_slots {
	void *context;
	void (*deleter)(void *tensor);
};
#define DLPACK_SLOTS           sizeof(struct dlpack_tensor)
#define DLPACK_SLOTS_VERSIONED offsetof(struct dlpack_versioned, context)

static void dlpack_delete(void *tensor, size_t at)
{
	struct dlpack_slots *slots = (struct dlpack_slots *)((char *)tensor + at);
	struct dlpack_wrap *wrap = slots->context;

	slots->context = wrap->context;
	wrap->deleter(tensor);
	handle_give(wrap->handle);
	free(wrap);
}

static void dlpack_delete_plain(void *tensor)
{
	dlpack_delete(tensor, DLPACK_SLOTS);
}

static void dlpack_delete_versioned(void *tensor)
{
	dlpack_delete(tensor, DLPACK_SLOTS_VERSIONED);
}

/* A library that has taken the tensor has renamed the capsule. */
static void dlpack_capsule_free(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, "dltensor"))
		dlpack_delete_plain(PyCapsule_GetPointer(capsule, "dltensor"));
	else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
		dlpack_delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

PyObject *wrap_dlpack(void *tensor, bool versioned, struct handle *handle)
{
	size_t at = versioned ? DLPACK_SLOTS_VERSIONED : DLPACK_SLOTS;
	struct dlpack_slots *slots = (struct dlpack_slots *)((char *)tensor + at);
	struct dlpack_wrap *wrap = malloc(sizeof(*wrap));
	PyObject *capsule;

	if (!wrap) {
		slots->deleter(tensor);
		return PyErr_NoMemory();
	}
	*wrap = (struct dlpack_wrap){handle, slots->context, slots->deleter};
	handle_take(handle);
	slots->context = wrap;
	slots->deleter = versioned ? dlpack_delete_versioned : dlpack_delete_plain;
	capsule = PyCapsule_New(tensor, versioned ? "dltensor_versioned" : "dltensor",
	                        dlpack_capsule_free);
	if (!capsule)
		slots->deleter(tensor);
	return capsule;
}

/* ------------------------------------------------------------------------------------- divide */

/* The structs of version 0 of DLPack. */
struct dlpack_plain {
	struct dlpack_tensor tensor;
	void *context;
	void (*deleter)(void *tensor);
};

/* A tensor that was divided; the last part that is deleted gives it back to its library. */
struct dlpack_block {
	struct dlpack_plain *whole;
	_Atomic size_t users;
};

static void dlpack_block_give(struct dlpack_block *block)
{
	if (atomic_fetch_sub(&block->users, 1) != 1)
		return;
	block->whole->deleter(block->whole);
	free(block);
}

/* On any thread, with the GIL or without it. */
static void dlpack_part_delete(void *part)
{
	dlpack_block_give(((struct dlpack_plain *)part)->context);
	free(part);
}

static void dlpack_part_free(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, "dltensor"))
		dlpack_part_delete(PyCapsule_GetPointer(capsule, "dltensor"));
}

/* Returns a capsule of the part (offset, code, bits, shape), or NULL with an exception. */
static PyObject *dlpack_part(struct dlpack_block *block, PyObject *row)
{
	const struct dlpack_tensor *whole = &block->whole->tensor;
	struct dlpack_plain *part;
	struct lengths lengths;
	uint64_t offset;
	int code, bits;
	int64_t bytes;
	PyObject *capsule;

	if (!PyTuple_Check(row)) {
		PyErr_Format(PyExc_TypeError, "a tuple is needed, not %R", row);
		return NULL;
	}
	if (!PyArg_ParseTuple(row, "O&iiO&", parse_number, &offset, &code, &bits, parse_lengths,
	                      &lengths))
		return NULL;
	if (lengths.rank > SLUICE_ARRAY_RANK_MOST) {
		PyErr_Format(PyExc_ValueError, "a tensor has %u dimensions", lengths.rank);
		return NULL;
	}
	part = malloc(sizeof(*part) + lengths.rank * sizeof(int64_t));
	if (!part)
		return PyErr_NoMemory();
	part->tensor = *whole;
	part->tensor.data = (char *)whole->data + whole->byte_offset + offset;
	part->tensor.byte_offset = 0;
	part->tensor.dimensions = (int)lengths.rank;
	part->tensor.code = (uint8_t)code;
	part->tensor.bits = (uint8_t)bits;
	part->tensor.shape = (int64_t *)(part + 1);
	part->tensor.strides = NULL;
	memcpy(part->tensor.shape, lengths.of, lengths.rank * sizeof(int64_t));
	bytes = dlpack_bytes(&part->tensor);
	if (bytes >= 0 && (offset > (uint64_t)whole->shape[0] ||
	                   (uint64_t)bytes > (uint64_t)whole->shape[0] - offset))
		PyErr_SetString(PyExc_ValueError, "the part is not in the tensor");
	capsule = PyErr_Occurred() ? NULL : PyCapsule_New(part, "dltensor", dlpack_part_free);
	if (!capsule) {
		free(part);
		return NULL;
	}
	part->context = block;
	part->deleter = dlpack_part_delete;
	atomic_fetch_add(&block->users, 1);
	return capsule;
}

/* (capsule of a tensor of bytes, [(offset, code, bits, shape)]) -> capsules of tensors in it. */
PyObject *divide_dlpack(PyObject *module, PyObject *args)
{
	PyObject *capsule, *rows, *parts;
	struct dlpack_block *block;
	struct dlpack_plain *whole;

	if (!PyArg_ParseTuple(args, "OO!:divide_dlpack", &capsule, &PyList_Type, &rows))
		return NULL;
	whole = PyCapsule_GetPointer(capsule, "dltensor");
	if (!whole)
		return NULL;
	if (whole->tensor.dimensions != 1 || whole->tensor.bits * whole->tensor.lanes != 8 ||
	    dlpack_bytes(&whole->tensor) < 0 || (!whole->tensor.data && whole->tensor.shape[0])) {
		PyErr_SetString(PyExc_ValueError, "it is no tensor of bytes, or has no memory");
		return NULL;
	}
	block = malloc(sizeof(*block));
	if (!block)
		return PyErr_NoMemory();
	block->whole = whole;
	atomic_init(&block->users, 1);
	PyCapsule_SetName(capsule, "used_dltensor");
	parts = PyList_New(0);
	for (Py_ssize_t i = 0; parts && i < PyList_Size(rows); i++) {
		PyObject *part = dlpack_part(block, PyList_GetItem(rows, i));

		if (!part || PyList_Append(parts, part))
			Py_CLEAR(parts);
		Py_XDECREF(part);
	}
	dlpack_block_give(block);
	return parts;
}
