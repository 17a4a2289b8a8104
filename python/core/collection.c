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

/* made: (flags, id to be replaced, device, files, stream, copies, tensors, Tensors or None) */
static int request_parse(struct request *request, PyObject *made)
{
	PyObject *files, *on, *tensors, *opened;
	const char *device;
	int copies;

	request->set = (struct sluice_collection_options)SLUICE_COLLECTION_OPTIONS_INIT;
	if (!PyArg_ParseTuple(made, "IO&sO!OpO!O", &request->set.flags, parse_number,
	                      &request->set.replaces, &device, &PyList_Type, &files, &on, &copies,
	                      &PyByteArray_Type, &tensors, &opened) ||
	    parse_device(device, &request->place) || request_files(request, files) ||
	    request_stream(request, on) ||
	    !(request->tensors = call_tensors(&request->call, tensors, &request->tensor_count)))
		return -1;
	request->copies = copies;
	request->files = opened == Py_None ? NULL : tensors_of(opened);
	return 0;
}

/* Attaches at the addresses that another keeps, and takes its handle away from it. Other threads may close either
 * meanwhile. */
static int collection_open_at(Collection *self, Collection *kept, Store *store, const char *name,
                              int timeout)
{
	struct handle *of = store->handle, *before;
	struct request *request =
		kept->handle && of ? request_new(kept->handle, run_get, name, 0) : NULL;

	if (!request) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError, "the collection or the store is closed");
		return -1;
	}
	request->timeout_ms = timeout;
	request->store = of;
	handle_take(of);
	handle_take(of); /* for this object */
	if (request_open(request, &self->handle)) {
		handle_drop(of);
		return -1;
	}
	before = self->handle->of;
	self->handle->of = of;
	Py_XDECREF(store_close(kept, NULL));
	handle_drop(before);
	return 0;
}

/* Collection(store, name, timeout_ms, made or None, origin or None, device, kept or None) */
static int collection_init(Collection *self, PyObject *args, PyObject *kwargs)
{
	PyObject *store, *made, *origin, *kept;
	struct request *request;
	const char *name, *device;
	int timeout, place;

	if (!PyArg_ParseTuple(args, "O!siOOsO:Collection", store_type, &store, &name, &timeout,
	                      &made, &origin, &device, &kept) ||
	    parse_device(device, &place))
		return -1;
	if (kept != Py_None && !PyObject_TypeCheck(kept, collection_type)) {
		PyErr_Format(PyExc_TypeError, "at is a Collection, and not %R", kept);
		return -1;
	}
	if (kept != Py_None && !self->handle)
		return collection_open_at(self, (Collection *)kept, (Store *)store, name, timeout);
	request = request_new_object((Store *)store, self->handle,
	                             made == Py_None ? run_get : run_make, name);
	if (request) {
		request->timeout_ms = timeout;
		request->attaches = made == Py_None;
		request->here = made != Py_None;
		request->place = place;
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
	if (self->handle && sluice_collection_blob(self->handle->collection))
		return self->handle->collection;
	PyErr_SetString(PyExc_ValueError,
	                self->handle ? "the collection is closed, but for its addresses"
	                             : "the collection is closed");
	return NULL;
}

/* _keep(): unmaps the collection, and keeps its addresses. */
static int run_keep(struct request *request)
{
	struct handle *handle = request->call.handle;
	int rc;

	handle_lock(handle);
	rc = sluice_collection_keep(handle->collection);
	atomic_store(&handle->busy, false);
	return rc;
}

static PyObject *collection_keep(Collection *self, PyObject *none)
{
	struct request *request =
		collection_of(self) ? request_new(self->handle, run_keep, NULL, 0) : NULL;

	return request ? call_finish(&request->call) : NULL;
}

static int run_copy(struct request *request)
{
	return sluice_collection_copy(request->call.handle->collection, request->targets,
	                              request->target_count, request->set.on, request->set.stream);
}

/* _copy_to([(index, address), ...], stream): the caller keeps the memory. */
static PyObject *collection_copy(Collection *self, PyObject *args)
{
	struct request *request;
	PyObject *rows, *on;
	uint64_t index, address;

	if (!PyArg_ParseTuple(args, "O!O:_copy_to", &PyList_Type, &rows, &on) ||
	    !collection_of(self))
		return NULL;
	request = request_new(self->handle, run_copy, NULL, 0);
	if (!request)
		return NULL;
	request->here = true; /* the memory is the caller's, who does not leave it */
	request->target_count = (size_t)PyList_Size(rows);
	request->targets =
		call_copy(&request->call, NULL, request->target_count * sizeof(*request->targets));
	for (size_t i = 0; request->targets && i < request->target_count; i++) {
		if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "O&O&", parse_number, &index,
		                      parse_number, &address))
			break;
		request->targets[i] =
			(struct sluice_collection_target){index, (void *)(uintptr_t)address};
	}
	if (PyErr_Occurred() || request_stream(request, on)) {
		call_free(&request->call);
		return NULL;
	}
	return call_finish(&request->call);
}

/* _registered(device): (bytes, nanoseconds of the registration) */
static PyObject *collection_registered(Collection *self, PyObject *name)
{
	sluice_collection *collection = collection_of(self);
	const char *text = collection ? parse_text("device", name) : NULL;
	uint64_t bytes;
	int64_t ns;
	int device, rc;

	if (!text || parse_device(text, &device))
		return NULL;
	rc = sluice_collection_registered(collection, device, &bytes, &ns);
	return rc ? raise_last(rc) : Py_BuildValue("KL", (unsigned long long)bytes, (long long)ns);
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
	{"_keep", ANY(PyCFunction, collection_keep), METH_NOARGS, NULL},
	{"_copy_to", ANY(PyCFunction, collection_copy), METH_VARARGS, NULL},
	{"_registered", ANY(PyCFunction, collection_registered), METH_O, NULL},
	{"_close", ANY(PyCFunction, store_close), METH_NOARGS, NULL},
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
