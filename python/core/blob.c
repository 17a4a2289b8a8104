/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs, whose bytes are exported by the buffer protocol and DLPack. The handle of a blob is kept until the last export
 * has gone, and that of the store until its last blob has.
 */
#include "store.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <unistd.h>

#include <sluice/device.h>

/* A get that its caller may have left looks so often, in milliseconds, whether it is needed still. */
#define LEFT_MS 10000

PyTypeObject *blob_type;

static int get_at(struct request *request, int slice)
{
	struct handle *handle = request->call.handle;
	int rc;

	handle_lock(handle);
	rc = sluice_collection_attach_at(request->store->store, request->name, slice,
	                                 handle->collection);
	atomic_store(&handle->busy, false);
	return rc;
}

int run_get(struct request *request)
{
	struct handle *handle = request->call.handle;
	int left = request->timeout_ms, slice, rc;

	do {
		slice = left < 0 || left > LEFT_MS ? LEFT_MS : left;
		if (request->context)
			rc = sluice_collection_fetch(handle->of->store, &request->origin,
			                             request->name, slice, &handle->collection);
		else if (request->store)
			rc = get_at(request, slice);
		else if (request->attaches)
			rc = sluice_collection_attach(handle->of->store, request->name,
			                              request->place, slice, &handle->collection);
		else
			rc = sluice_blob_get(handle->of->store, request->name, slice,
			                     &handle->blob);
		left -= left < 0 ? 0 : slice;
	} while (rc == -ETIMEDOUT && left && !atomic_load(&request->call.left));
	return rc;
}

static int run_create(struct request *request)
{
	struct handle *handle = request->call.handle;
	int device = -1, rc = 0;

	if (request->device)
		rc = sluice_device_find(request->device, &device);
	request->options.metadata = &request->metadata;
	return rc ? rc
	          : sluice_blob_create(handle->of->store, request->name, request->bytes, device,
	                               &request->options, &handle->blob);
}

/* Reads (bytes, device, flags, id to be replaced, type, shape) into a request to create a blob. */
static int request_parse(struct request *request, PyObject *made)
{
	struct sluice_blob_metadata *m = &request->metadata;
	const char *device, *type;
	PyObject *shape;

	request->options = (struct sluice_blob_options)SLUICE_BLOB_OPTIONS_INIT;
	*m = (struct sluice_blob_metadata)SLUICE_BLOB_METADATA_INIT;
	if (!PyArg_ParseTuple(made, "O&zIO&sO!", parse_number, &request->bytes, &device,
	                      &request->options.flags, parse_number, &request->options.replaces,
	                      &type, &PyTuple_Type, &shape))
		return -1;
	if (device && !(request->device = call_copy(&request->call, device, strlen(device))))
		return -1;
	m->type = type_of_word(type);
	m->rank = (unsigned)PyTuple_Size(shape);
	if (m->rank > SLUICE_BLOB_RANK_MOST) {
		PyErr_Format(PyExc_ValueError, "a blob has at most %d dimensions, not %u",
		             SLUICE_BLOB_RANK_MOST, m->rank);
		return -1;
	}
	for (unsigned i = 0; i < m->rank; i++)
		m->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
	return PyErr_Occurred() ? -1 : 0;
}

/* Blob(store, name, timeout_ms, None), or Blob(store, name, 0, (bytes, ...)) to create. */
static int blob_init(Blob *self, PyObject *args, PyObject *kwargs)
{
	struct request *request;
	PyObject *store, *name, *made;
	const char *text;
	int timeout;

	if (!PyArg_ParseTuple(args, "O!OiO:Blob", store_type, &store, &name, &timeout, &made) ||
	    !(text = parse_text("name", name)))
		return -1;
	request = request_new_object((Store *)store, self->name,
	                             made == Py_None ? run_get : run_create, text);
	if (request)
		request->timeout_ms = timeout;
	if (request && made != Py_None && request_parse(request, made)) {
		call_free(&request->call);
		return -1;
	}
	if (request_open(request, &self->handle))
		return -1;
	self->name = Py_NewRef(name);
	return 0;
}

static void blob_dealloc(Blob *self)
{
	handle_drop(self->handle);
	Py_XDECREF(self->name);
	object_free(self);
}

/* Returns the library's handle, or NULL with an exception. */
static sluice_blob *blob_handle(Blob *self)
{
	if (self->handle && !self->released && !atomic_load(&self->handle->busy))
		return self->handle->blob;
	if (!self->name)
		PyErr_SetString(PyExc_TypeError, "blobs are made by the calls of a store");
	else
		PyErr_Format(PyExc_ValueError, "blob %R is %s", self->name,
		             self->handle && !self->released ? "being sealed" : "released");
	return NULL;
}

/* Returns the memory, or NULL with an exception. */
static void *blob_memory(Blob *self)
{
	sluice_blob *blob = blob_handle(self);
	void *data = NULL;

	if (blob && self->handle->process != getpid())
		raise_error(-ECHILD,
		            "the blob is the parent's: a child of fork() has to get it itself");
	else if (blob && !(data = (void *)sluice_blob_data(blob)))
		PyErr_Format(PyExc_ValueError, "blob %R was deleted when it was sealed",
		             self->name);
	return data;
}

static bool blob_is_sealed(sluice_blob *blob)
{
	return !sluice_blob_mutable_data(blob);
}

static int blob_getbuffer(Blob *self, Py_buffer *view, int flags)
{
	void *data = blob_memory(self);
	sluice_blob *blob = data ? self->handle->blob : NULL;

	view->obj = NULL;
	if (blob && sluice_blob_device(blob) >= 0)
		PyErr_Format(PyExc_BufferError, "blob %R is in the memory of a device", self->name);
	if (PyErr_Occurred() ||
	    PyBuffer_FillInfo(view, (PyObject *)self, data, sluice_blob_size(blob),
	                      blob_is_sealed(blob), flags))
		return -1;
	self->exports++;
	return 0;
}

static PyObject *blob_release(Blob *self, PyObject *none)
{
	struct handle *handle = self->handle;

	self->released = true;
	if (!self->exports) {
		self->handle = NULL;
		handle_drop(handle);
	}
	Py_RETURN_NONE;
}

static void blob_releasebuffer(Blob *self, Py_buffer *view)
{
	if (!--self->exports && self->released)
		Py_XDECREF(blob_release(self, NULL));
}

/* Seals, and gets the blob again: memory that is mapped for reading only is protected from this process as well, and
 * children of fork() have it. */
static int run_seal(struct request *request)
{
	struct handle *handle = request->call.handle, *reader = request->made;
	int rc = sluice_blob_seal(handle->blob);

	if (!rc && sluice_blob_device(handle->blob) < 0 &&
	    !sluice_blob_get(handle->of->store, request->name, 0, &reader->blob) &&
	    sluice_blob_id(reader->blob) != sluice_blob_id(handle->blob)) {
		sluice_blob_release(reader->blob); /* another has the name already */
		reader->blob = NULL;
	}
	atomic_store(&handle->busy, false);
	return rc;
}

/* A seal whose call is interrupted goes on; `busy` says until when. */
static PyObject *blob_seal(Blob *self, PyObject *none)
{
	struct handle *handle = self->handle;
	struct request *request;

	if (!blob_memory(self))
		return NULL;
	if (self->exports && !blob_is_sealed(handle->blob))
		return PyErr_Format(PyExc_BufferError,
		                    "blob %R has %zd views that can write to it: they have to go "
		                    "before the seal",
		                    self->name, self->exports);
	request = request_new(handle, run_seal, sluice_blob_name(handle->blob), 0);
	if (!request)
		return NULL;
	request->made = handle_new();
	if (!request->made) {
		call_free(&request->call);
		return NULL;
	}
	request->made->of = handle->of;
	handle_take(handle->of);
	atomic_store(&handle->busy, true);
	if (request_run(request))
		return NULL;
	if (request->made->blob && self->handle == handle) {
		self->handle = request->made;
		request->made = handle;
	}
	Py_BEGIN_ALLOW_THREADS call_free(&request->call);
	Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

/* Copies the memory of a buffer, in the order of a stream if there is one. */
static int fill_from(sluice_blob *blob, const struct held *held, bool on, sluice_stream stream)
{
	void *to = sluice_blob_mutable_data(blob);
	int device = sluice_device_of(held->data), rc;

	if (!on)
		return sluice_copy(to, held->data, held->length);
	rc = sluice_copy_on(to, held->data, held->length, stream);
	return rc ? rc
	          : sluice_stream_synchronize(device < 0 ? sluice_blob_device(blob) : device,
	                                      stream);
}

/* _fill(buffer, stream or None) */
static PyObject *blob_fill(Blob *self, PyObject *args)
{
	PyObject *buffer, *on;
	uint64_t stream = 0;
	struct held held;
	sluice_blob *blob;
	int rc = -1;

	if (!PyArg_ParseTuple(args, "OO:_fill", &buffer, &on) ||
	    (on != Py_None && !parse_number(on, &stream)) || held_take(buffer, false, &held))
		return NULL;
	blob = blob_memory(self) ? self->handle->blob : NULL;
	if (blob && (held.length > sluice_blob_size(blob) || blob_is_sealed(blob))) {
		PyErr_Format(PyExc_ValueError, "blob %R is sealed, or too small", self->name);
	} else if (blob) {
		self->exports++; /* no other thread seals or releases it meanwhile */
		Py_BEGIN_ALLOW_THREADS rc =
			fill_from(blob, &held, on != Py_None, (sluice_stream)(uintptr_t)stream);
		Py_END_ALLOW_THREADS if (rc) raise_last(rc);
		blob_releasebuffer(self, NULL);
	}
	held_give(&held);
	if (rc)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *blob_dlpack(Blob *self, PyObject *versioned)
{
	sluice_blob *blob = blob_memory(self) ? self->handle->blob : NULL;
	bool is_versioned = PyObject_IsTrue(versioned) > 0;
	void *tensor;
	int rc;

	if (!blob)
		return NULL;
	rc = sluice_blob_to_dlpack(blob, is_versioned, &tensor);
	return rc ? raise_last(rc) : wrap_dlpack(tensor, is_versioned, self->handle);
}

/* _open() opens the memory: (descriptor, offset). */
static PyObject *blob_open(Blob *self, PyObject *none)
{
	sluice_blob *blob = blob_memory(self) ? self->handle->blob : NULL;
	uint64_t offset;
	int fd, rc;

	if (!blob)
		return NULL;
	rc = sluice_blob_descriptor(blob, &offset, &fd);
	return rc ? raise_last(rc) : Py_BuildValue("iK", fd, (unsigned long long)offset);
}

static PyObject *numbers_tuple(const int64_t *numbers, unsigned count)
{
	PyObject *tuple = PyTuple_New(count);

	for (unsigned i = 0; tuple && i < count; i++)
		PyTuple_SetItem(tuple, i, PyLong_FromLongLong(numbers[i]));
	return tuple;
}

/* _describe(): (address, bytes, id, sealed, device, type or None, shape, strides, offset). */
static PyObject *blob_describe(Blob *self, PyObject *none)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	sluice_blob *blob = blob_handle(self);

	if (!blob)
		return NULL;
	sluice_blob_get_metadata(blob, &m);
	return Py_BuildValue("KKKONzNNK", (unsigned long long)(uintptr_t)sluice_blob_data(blob),
	                     (unsigned long long)sluice_blob_size(blob),
	                     (unsigned long long)sluice_blob_id(blob),
	                     blob_is_sealed(blob) ? Py_True : Py_False,
	                     device_name(sluice_blob_device(blob)), type_word(m.type),
	                     numbers_tuple(m.shape, m.rank), numbers_tuple(m.strides, m.rank),
	                     (unsigned long long)m.offset);
}

static PyMethodDef blob_methods[] = {
	{"seal", ANY(PyCFunction, blob_seal), METH_NOARGS,
         "seal($self, /)\n--\n\nPublish the blob: it does not change any more, and others can get "
         "it. "
         "Raises BufferError "
         "while a view of it can write, FileExistsError if another blob has taken the name.\n\n"
         ">>> store.create('zeros', 3, 'f8').seal()  # doctest: +SKIP"},
	{"release", ANY(PyCFunction, blob_release), METH_NOARGS,
         "release($self, /)\n--\n\nGive the blob back, as soon as it has no views. One that is not "
         "sealed "
         "disappears."},
	{"_fill", ANY(PyCFunction, blob_fill), METH_VARARGS, NULL},
	{"_dlpack", ANY(PyCFunction, blob_dlpack), METH_O, NULL},
	{"_open", ANY(PyCFunction, blob_open), METH_NOARGS, NULL},
	{"_describe", ANY(PyCFunction, blob_describe), METH_NOARGS, NULL},
	{0},
};
static PyMemberDef blob_members[] = {
	{"name", T_OBJECT, offsetof(Blob, name), READONLY, "Its name in the store."},
	{0},
};
static PyType_Slot blob_slots[] = {
	{Py_tp_init, blob_init},
	{Py_tp_methods, blob_methods},
	{Py_tp_members, blob_members},
	{Py_bf_getbuffer, blob_getbuffer},
	{Py_bf_releasebuffer, blob_releasebuffer},
	{Py_tp_dealloc, blob_dealloc},
	{0, NULL},
};
PyType_Spec blob_spec = {"sluice._core.Blob", sizeof(Blob), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, blob_slots};
