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

/* A call that makes or attaches to a collection, or seals it, with copies of its arguments. */
struct collecting {
	struct call call;
	const char *name;
	int timeout_ms, device;
	bool copies; /* the data of the tensors */
	struct sluice_collection_options options;
	struct sluice_collection_tensor *tensors;
	size_t count;
	sluice_tensors *files;  /* NULL: it is made of tensors */
	struct handle *context; /* of the origin; NULL: there is none */
	struct sluice_origin origin;
};

static void collecting_clean(struct call *call)
{
	const struct collecting *c = (const struct collecting *)call;

	if (c->context)
		handle_give(c->context);
}

static int collecting_attach(struct call *call)
{
	struct collecting *c = (struct collecting *)call;
	struct handle *handle = call->handle;

	if (c->context)
		return sluice_collection_fetch(handle->of->store, &c->origin, c->name,
		                               c->timeout_ms, &handle->collection);
	return sluice_collection_attach(handle->of->store, c->name, -1, c->timeout_ms,
	                                &handle->collection);
}

static int collecting_make(struct call *call)
{
	struct collecting *c = (struct collecting *)call;
	struct handle *handle = call->handle;
	sluice_store *store = handle->of->store;
	sluice_collection *made, *read;
	int rc;

	if (!c->files && !c->copies)
		return sluice_collection_new(store, c->name, c->tensors, c->count, &c->options,
		                             &handle->collection);
	if (c->files)
		rc = sluice_collection_publish_files(store, c->name, c->files, NULL, 0, c->device,
		                                     &c->options, NULL, &made);
	else
		rc = sluice_collection_publish(store, c->name, c->tensors, c->count, &c->options,
		                               &made);
	if (rc)
		return rc;
	if (c->options.on)
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

static int collecting_seal(struct call *call)
{
	const struct collecting *c = (const struct collecting *)call;
	sluice_blob *owner = sluice_collection_blob(call->handle->collection);
	int rc = c->options.on ? sluice_blob_seal_on(owner, c->options.stream)
	                       : sluice_blob_seal(owner);

	return rc || !c->options.on ? rc : sluice_blob_wait_sealed(owner, -1);
}

/* Reads None, or a number of a stream. Returns 0, or -1 with an exception. */
static int collecting_stream(struct collecting *c, PyObject *on)
{
	uint64_t stream = 0;

	if (on != Py_None && !parse_number(on, &stream))
		return -1;
	c->options.on = on != Py_None;
	c->options.stream = (sluice_stream)(uintptr_t)stream;
	return 0;
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

/* Reads [(name, bytes), ...], of which the caller keeps the bytes. */
static int collecting_files(struct collecting *c, PyObject *list)
{
	size_t count = (size_t)PyList_Size(list);
	struct sluice_collection_file *files = call_copy(&c->call, NULL, count * sizeof(*files));

	c->options.files = files;
	c->options.file_count = count;
	for (size_t i = 0; files && i < count; i++) {
		const char *name;
		Py_ssize_t bytes;

		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sy#", &name, &files[i].data,
		                      &bytes) ||
		    !(files[i].name = call_copy(&c->call, name, strlen(name))))
			return -1;
		files[i].bytes = (size_t)bytes;
	}
	return files ? 0 : -1;
}

struct sluice_collection_tensor *call_tensors(struct call *call, PyObject *list)
{
	size_t count = (size_t)PyList_Size(list);
	struct sluice_collection_tensor *tensors =
		call_copy(call, NULL, (count + 1) * sizeof(*tensors));

	for (size_t i = 0; tensors && i < count; i++) {
		struct sluice_collection_tensor *t = &tensors[i];
		const char *name, *type, *word, *device;
		PyObject *shape;
		uint64_t *lengths, data;

		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "ssO!sO&", &name, &type,
		                      &PyTuple_Type, &shape, &device, parse_number, &data) ||
		    parse_device(device, &t->device) ||
		    !(t->name = call_copy(call, name, strlen(name))))
			return NULL;
		t->size = sizeof(*t);
		t->data = (void *)(uintptr_t)data;
		for (t->type = 1; (word = type_word(t->type)) && strcmp(word, type);)
			t->type++;
		t->rank = (unsigned)PyTuple_Size(shape);
		lengths = call_copy(call, NULL, t->rank * sizeof(*lengths));
		if (!lengths)
			return NULL;
		t->shape = lengths;
		for (unsigned d = 0; d < t->rank; d++)
			lengths[d] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(shape, d));
	}
	return PyErr_Occurred() ? NULL : tensors;
}

/* made: (flags, id to be replaced, device, files, stream, copies, tensors, Tensors or None) */
static int collecting_parse(struct collecting *c, PyObject *made)
{
	PyObject *files, *on, *tensors, *opened;
	const char *device;
	int copies;

	c->options = (struct sluice_collection_options)SLUICE_COLLECTION_OPTIONS_INIT;
	if (!PyArg_ParseTuple(made, "IO&sO!OpO!O", &c->options.flags, parse_number,
	                      &c->options.replaces, &device, &PyList_Type, &files, &on, &copies,
	                      &PyList_Type, &tensors, &opened) ||
	    parse_device(device, &c->device) || collecting_files(c, files) ||
	    collecting_stream(c, on) || !(c->tensors = call_tensors(&c->call, tensors)))
		return -1;
	c->count = (size_t)PyList_Size(tensors);
	c->copies = copies;
	c->files = opened == Py_None ? NULL : tensors_of(opened);
	return 0;
}

/* Collection(store, name, timeout_ms, made or None, origin or None); the caller holds what `made` has. */
static int collection_init(Store *self, PyObject *args, PyObject *kwargs)
{
	PyObject *store, *made, *origin;
	struct collecting *c;
	struct handle *handle;
	const char *name;
	int timeout;

	if (!PyArg_ParseTuple(args, "O!siOO:Collection", store_type, &store, &name, &timeout, &made,
	                      &origin))
		return -1;
	if (self->handle || !((Store *)store)->handle) {
		PyErr_SetString(PyExc_ValueError, "the store is closed");
		return -1;
	}
	handle = handle_new();
	if (!handle)
		return -1;
	handle->of = ((Store *)store)->handle;
	handle_take(handle->of);
	c = call_new(sizeof(*c), handle, made == Py_None ? collecting_attach : collecting_make,
	             collecting_clean);
	if (c && (!(c->name = call_copy(&c->call, name, strlen(name))) ||
	          (made != Py_None && collecting_parse(c, made)) ||
	          (origin != Py_None && origin_parse(&c->call, origin, &c->origin, &c->context)))) {
		call_free(&c->call);
		c = NULL;
	}
	if (!c) {
		handle_drop(handle);
		return -1;
	}
	c->timeout_ms = timeout;
	/* Not to be left: the tensors and files are the caller's. */
	if (made == Py_None ? call_run(&c->call) : call_make_here(&c->call)) {
		handle_drop(handle);
		return -1;
	}
	call_free(&c->call);
	self->handle = handle;
	return 0;
}

static sluice_collection *collection_of(Store *self)
{
	if (self->handle)
		return self->handle->collection;
	PyErr_SetString(PyExc_ValueError, "the collection is closed");
	return NULL;
}

static PyObject *collection_seal(Store *self, PyObject *on)
{
	struct collecting *c;

	if (!collection_of(self))
		return NULL;
	c = call_new(sizeof(*c), self->handle, collecting_seal, NULL);
	if (c && collecting_stream(c, on)) {
		call_free(&c->call);
		return NULL;
	}
	return c ? call_finish(&c->call) : NULL;
}

/* The name of a device, for which its driver is asked once. */
static PyObject *collection_device(int device)
{
	static PyObject *names[64];

	if (device < -1 || device + 2 > (int)(sizeof(names) / sizeof(*names)))
		return device_name(device);
	if (!names[device + 1])
		names[device + 1] = device_name(device);
	return Py_XNewRef(names[device + 1]);
}

/* _entry(name): (index, word, shape, device, address, bytes, sealed) */
static PyObject *collection_entry(Store *self, PyObject *name)
{
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	sluice_collection *collection = collection_of(self);
	const char *text = collection ? parse_text("name", name) : NULL;
	PyObject *shape;
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
	shape = PyTuple_New(t.rank);
	for (unsigned d = 0; shape && d < t.rank; d++)
		PyTuple_SetItem(shape, d, PyLong_FromUnsignedLongLong(t.shape[d]));
	return Py_BuildValue(
		"nsNNKKO", (Py_ssize_t)index, type_word(t.type), shape, collection_device(t.device),
		(unsigned long long)(uintptr_t)t.data, (unsigned long long)t.bytes,
		sluice_blob_mutable_data(sluice_collection_blob(collection)) ? Py_False : Py_True);
}

/* _names(): [name, ...] */
static PyObject *collection_names(Store *self, PyObject *none)
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

static PyObject *collection_files(Store *self, PyObject *none)
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
static PyObject *collection_dlpack(Store *self, PyObject *args)
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
static PyObject *collection_describe(Store *self, PyObject *none)
{
	sluice_collection *collection = collection_of(self);
	const sluice_blob *owner = sluice_collection_blob(collection);

	return owner ? Py_BuildValue("Ksn", (unsigned long long)sluice_blob_id(owner),
	                             sluice_blob_name(owner),
	                             (Py_ssize_t)sluice_collection_count(collection))
	             : NULL;
}

static PyObject *collection_close(Store *self, PyObject *none)
{
	struct handle *handle = self->handle;

	self->handle = NULL;
	handle_drop(handle);
	Py_RETURN_NONE;
}

static void collection_dealloc(Store *self)
{
	handle_drop(self->handle);
	object_free(self);
}

static PyMethodDef collection_methods[] = {
	{"_seal", ANY(PyCFunction, collection_seal), METH_O, NULL},
	{"_entry", ANY(PyCFunction, collection_entry), METH_O, NULL},
	{"_names", ANY(PyCFunction, collection_names), METH_NOARGS, NULL},
	{"_files", ANY(PyCFunction, collection_files), METH_NOARGS, NULL},
	{"_dlpack", ANY(PyCFunction, collection_dlpack), METH_VARARGS, NULL},
	{"_describe", ANY(PyCFunction, collection_describe), METH_NOARGS, NULL},
	{"close", ANY(PyCFunction, collection_close), METH_NOARGS,
         "close($self, /)\n--\n\nGive the collection back; arrays and tensors of it keep its "
         "memory. One that is not sealed disappears with the last of them."},
	{0},
};
static PyType_Slot collection_slots[] = {
	{Py_tp_init, collection_init},
	{Py_tp_methods, collection_methods},
	{Py_tp_dealloc, collection_dealloc},
	{0, NULL},
};
PyType_Spec collection_spec = {"sluice._core.Collection", sizeof(Store), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, collection_slots};
