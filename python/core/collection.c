/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collections of tensors in the store (<sluice/tensors.h>), to which the package adds the rest (_collection.py). Exports
 * by DLPack keep the handle, and so the memory.
 */
#include "store.h"

#include <errno.h>
#include <string.h>

#include <sluice/device.h>
#include <sluice/tensors.h>

PyTypeObject *collection_type;

static int run_make(struct request *request)
{
	struct handle *handle = request->call.handle;
	const struct sluice_collection_options *o = &request->set;
	sluice_store *store = handle->of->store;
	sluice_collection *made, *read;
	int rc;

	if (!request->files && !request->copies)
		return sluice_collection_new(store, request->name, request->tensors,
		                             request->tensor_count, o, &handle->collection);
	rc = request->files
	             ? sluice_collection_publish_files(store, request->name, request->files, NULL,
	                                               0, request->place, o, NULL, &made)
	             : sluice_collection_publish(store, request->name, request->tensors,
	                                         request->tensor_count, o, &made);
	if (rc)
		return rc;
	if (o->on)
		rc = sluice_blob_wait_sealed(sluice_collection_blob(made), -1);
	/* Mapped for reading only, it is protected from this process as well. */
	if (!rc && !sluice_collection_attach_id(store, sluice_blob_id(sluice_collection_blob(made)),
	                                        0, &read)) {
		sluice_collection_release(made);
		made = read;
	}
	if (rc)
		sluice_collection_release(made);
	else
		handle->collection = made;
	return rc;
}

static int run_seal(struct request *request)
{
	sluice_blob *owner = sluice_collection_blob(request->call.handle->collection);
	int rc = request->set.on ? sluice_blob_seal_on(owner, request->set.stream)
	                         : sluice_blob_seal(owner);

	return rc || !request->set.on ? rc : sluice_blob_wait_sealed(owner, -1);
}

/* Reads None, or a number of a stream. Returns 0, or -1 with an exception. */
static int request_stream(struct request *request, PyObject *on)
{
	uint64_t stream = 0;

	if (on != Py_None && !parse_number(on, &stream))
		return -1;
	request->set.on = on != Py_None;
	request->set.stream = (sluice_stream)(uintptr_t)stream;
	return 0;
}

/* Reads [(name, bytes), ...], of which the caller keeps the bytes. */
static int request_files(struct request *request, PyObject *list)
{
	size_t count = (size_t)PyList_Size(list);
	struct sluice_collection_file *files =
		call_copy(&request->call, NULL, count * sizeof(*files));

	request->set.files = files;
	request->set.file_count = count;
	for (size_t i = 0; files && i < count; i++) {
		const char *name;
		Py_ssize_t bytes;

		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sy#", &name, &files[i].data,
		                      &bytes) ||
		    !(files[i].name = call_copy(&request->call, name, strlen(name))))
			return -1;
		files[i].bytes = (size_t)bytes;
	}
	return files ? 0 : -1;
}

struct sluice_collection_tensor *call_tensors(struct call *call, PyObject *list)
{
	size_t count = (size_t)PyList_Size(list);
	struct sluice_collection_tensor *tensors = call_copy(call, NULL, count * sizeof(*tensors));
	const char *found = NULL; /* the device before, whose text most rows share */

	for (size_t i = 0; tensors && i < count; i++) {
		struct sluice_collection_tensor *t = &tensors[i];
		const char *name, *type, *device;
		struct lengths shape = {0};
		uint64_t data;

		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "ssO&sO&", &name, &type,
		                      parse_lengths, &shape, &device, parse_number, &data) ||
		    (device != found && parse_device(device, &t->device)) ||
		    !(t->name = call_copy(call, name, strlen(name))) ||
		    !(t->shape = call_copy(call, shape.of, sizeof(shape.of))))
			return NULL;
		t->size = sizeof(*t);
		t->device = device == found ? t[-1].device : t->device;
		found = device;
		t->type = type_of_word(type);
		t->rank = shape.rank;
		t->data = (void *)(uintptr_t)data;
	}
	return tensors;
}

/* made: (flags, id to be replaced, device, files, stream, copies, tensors, Tensors or None) */
static int request_parse(struct request *request, PyObject *made)
{
	PyObject *files, *on, *tensors, *opened;
	const char *device;
	int copies;

	request->set = (struct sluice_collection_options)SLUICE_COLLECTION_OPTIONS_INIT;
	if (!PyArg_ParseTuple(made, "IO&sO!OpO!O", &request->set.flags, parse_number,
	                      &request->set.replaces, &device, &PyList_Type, &files, &on, &copies,
	                      &PyList_Type, &tensors, &opened) ||
	    parse_device(device, &request->place) || request_files(request, files) ||
	    request_stream(request, on) ||
	    !(request->tensors = call_tensors(&request->call, tensors)))
		return -1;
	request->copies = copies;
	request->tensor_count = (size_t)PyList_Size(tensors);
	request->files = opened == Py_None ? NULL : tensors_of(opened);
	return 0;
}

/* Collection(store, name, timeout_ms, made or None, origin or None) */
static int collection_init(Collection *self, PyObject *args, PyObject *kwargs)
{
	PyObject *store, *made, *origin;
	struct request *request;
	const char *name;
	int timeout;

	if (!PyArg_ParseTuple(args, "O!siOO:Collection", store_type, &store, &name, &timeout, &made,
	                      &origin))
		return -1;
	request = request_new_object((Store *)store, self->handle,
	                             made == Py_None ? run_get : run_make, name);
	if (request) {
		request->timeout_ms = timeout;
		request->attaches = made == Py_None;
		request->here = made != Py_None;
	}
	if (request && ((made != Py_None && request_parse(request, made)) ||
	                (origin != Py_None && request_origin(request, origin)))) {
		call_free(&request->call);
		return -1;
	}
	return request_open(request, &self->handle);
}

static sluice_collection *collection_of(Collection *self)
{
	if (self->handle)
		return self->handle->collection;
	PyErr_SetString(PyExc_ValueError, "the collection is closed");
	return NULL;
}

static PyObject *collection_seal(Collection *self, PyObject *on)
{
	struct request *request =
		collection_of(self) ? request_new(self->handle, run_seal, NULL, 0) : NULL;

	if (request && request_stream(request, on)) {
		call_free(&request->call);
		return NULL;
	}
	return request ? call_finish(&request->call) : NULL;
}

/* _entry(name): (index, word, shape, device, address, bytes, sealed) */
static PyObject *collection_entry(Collection *self, PyObject *name)
{
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	sluice_collection *collection = collection_of(self);
	const char *text = collection ? parse_text("name", name) : NULL;
	size_t index;
	int rc;

	if (!text)
		return NULL;
	rc = sluice_collection_find(collection, text, &index);
	if (rc == -ENOENT) {
		PyErr_SetObject(PyExc_KeyError, name);
		return NULL;
	}
	if (!rc)
		rc = sluice_collection_get(collection, index, &t);
	if (rc)
		return raise_last(rc);
	return Py_BuildValue(
		"nsNNKKO", (Py_ssize_t)index, type_word(t.type), lengths_tuple(t.shape, t.rank),
		device_name(t.device), (unsigned long long)(uintptr_t)t.data,
		(unsigned long long)t.bytes,
		sluice_blob_mutable_data(sluice_collection_blob(collection)) ? Py_False : Py_True);
}

/* _names(): [name, ...] */
static PyObject *collection_names(Collection *self, PyObject *none)
{
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	sluice_collection *collection = collection_of(self);
	size_t count = sluice_collection_count(collection);
	PyObject *all = collection ? PyList_New((Py_ssize_t)count) : NULL;

	for (size_t i = 0; all && i < count; i++) {
		int rc = sluice_collection_get(collection, i, &t);

		if (rc) {
			Py_DECREF(all);
			return raise_last(rc);
		}
		PyList_SetItem(all, (Py_ssize_t)i, PyUnicode_FromString(t.name));
	}
	return all;
}

static PyObject *collection_files(Collection *self, PyObject *none)
{
	struct sluice_collection_file file;
	sluice_collection *collection = collection_of(self);
	PyObject *all = collection ? PyDict_New() : NULL;
	int rc = 0;

	for (size_t i = 0; all && !(rc = sluice_collection_get_file(collection, i, &file)); i++) {
		PyObject *bytes = PyBytes_FromStringAndSize(file.data, (Py_ssize_t)file.bytes);

		if (!bytes || PyDict_SetItemString(all, file.name, bytes))
			Py_CLEAR(all);
		Py_XDECREF(bytes);
	}
	if (!all || rc == -ENOENT)
		return all;
	Py_DECREF(all);
	return raise_last(rc);
}

/* _dlpack(index, versioned) */
static PyObject *collection_dlpack(Collection *self, PyObject *args)
{
	sluice_collection *collection = collection_of(self);
	Py_ssize_t index;
	void *tensor;
	int versioned, rc;

	if (!collection || !PyArg_ParseTuple(args, "np:_dlpack", &index, &versioned))
		return NULL;
	rc = sluice_collection_to_dlpack(collection, (size_t)index, versioned, &tensor);
	return rc ? raise_last(rc) : wrap_dlpack(tensor, versioned, self->handle);
}

/* _describe(): (id, 0 before the seal; name; number of tensors) */
static PyObject *collection_describe(Collection *self, PyObject *none)
{
	sluice_collection *collection = collection_of(self);
	const sluice_blob *owner = sluice_collection_blob(collection);

	return owner ? Py_BuildValue("Ksn", (unsigned long long)sluice_blob_id(owner),
	                             sluice_blob_name(owner),
	                             (Py_ssize_t)sluice_collection_count(collection))
	             : NULL;
}

static PyMethodDef collection_methods[] = {
	{"_seal", ANY(PyCFunction, collection_seal), METH_O, NULL},
	{"_entry", ANY(PyCFunction, collection_entry), METH_O, NULL},
	{"_names", ANY(PyCFunction, collection_names), METH_NOARGS, NULL},
	{"_files", ANY(PyCFunction, collection_files), METH_NOARGS, NULL},
	{"_dlpack", ANY(PyCFunction, collection_dlpack), METH_VARARGS, NULL},
	{"_describe", ANY(PyCFunction, collection_describe), METH_NOARGS, NULL},
	{"close", ANY(PyCFunction, store_close), METH_NOARGS,
         "close($self, /)\n--\n\nGive the collection back; arrays and tensors of it keep its "
         "memory. One that is not sealed disappears with the last of them."},
	{0},
};
static PyType_Slot collection_slots[] = {
	{Py_tp_init, collection_init},
	{Py_tp_methods, collection_methods},
	{Py_tp_dealloc, store_dealloc},
	{0, NULL},
};
PyType_Spec collection_spec = {"sluice._core.Collection", sizeof(Collection), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, collection_slots};
