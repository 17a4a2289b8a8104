/* SPDX-License-Identifier: Apache-2.0 */
/* Stores and watches of them. */
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sluice/device.h>

#define ROWS 64

PyTypeObject *store_type, *watch_type;

/* -------------------------------------------------------------------------------------- requests */

static void request_clean(struct call *call)
{
	struct request *request = (struct request *)call;

	if (request->made)
		handle_give(request->made);
	if (request->context)
		handle_give(request->context);
	if (request->store)
		handle_give(request->store);
}

static int request_make(struct call *call)
{
	struct request *request = (struct request *)call;
	int rc = request->run(request);

	if (rc && request->name && !strstr(sluice_last_message(), request->name))
		snprintf(call->message, sizeof(call->message), "'%s': %s", request->name,
		         sluice_last_message());
	return rc;
}

struct request *request_new(struct handle *handle, int (*run)(struct request *request),
                            const char *name, size_t rows)
{
	struct request *request;

	if (!handle) {
		PyErr_SetString(PyExc_ValueError, "the store is closed");
		return NULL;
	}
	request = call_new(sizeof(*request) + rows * sizeof(request->rows[0]), handle, request_make,
	                   request_clean);
	if (!request)
		return NULL;
	request->run = run;
	if (name && !(request->name = call_copy(&request->call, name, strlen(name)))) {
		call_free(&request->call);
		return NULL;
	}
	return request;
}

int request_run(struct request *request)
{
	if (!request)
		return -1;
	return request->here ? call_make_here(&request->call) : call_run(&request->call);
}

void handle_drop(struct handle *handle)
{
	if (handle) {
		Py_BEGIN_ALLOW_THREADS handle_give(handle);
		Py_END_ALLOW_THREADS
	}
}

int request_open(struct request *request, struct handle **out)
{
	struct handle *handle = request ? request->call.handle : NULL;

	if (!handle)
		return -1;
	handle_take(handle);
	if (request_run(request)) {
		handle_drop(handle);
		return -1;
	}
	call_free(&request->call);
	*out = handle;
	return 0;
}

struct request *request_new_object(Store *store, bool made, int (*run)(struct request *request),
                                   const char *name)
{
	struct request *request;
	struct handle *handle;

	if (made || (store && !store->handle)) {
		PyErr_SetString(PyExc_ValueError,
		                made ? "the object is made" : "the store is closed");
		return NULL;
	}
	handle = handle_new();
	if (handle && store) {
		handle->of = store->handle;
		handle_take(handle->of);
	}
	request = handle ? request_new(handle, run, name, 0) : NULL;
	if (handle)
		handle_give(handle); /* the request has it */
	return request;
}

/* ----------------------------------------------------------------------------------------- store */

static int run_open(struct request *request)
{
	return sluice_store_open(request->name, NULL, &request->call.handle->store);
}

static int store_init(Store *self, PyObject *args, PyObject *kwargs)
{
	const char *path;

	if (!PyArg_ParseTuple(args, "z:Store", &path))
		return -1;
	return request_open(request_new_object(NULL, self->handle, run_open, path), &self->handle);
}

PyObject *store_close(Store *self, PyObject *none)
{
	struct handle *handle = self->handle;

	self->handle = NULL;
	handle_drop(handle);
	Py_RETURN_NONE;
}

void store_dealloc(Store *self)
{
	handle_drop(self->handle);
	object_free(self);
}

PyObject *device_name(int device)
{
	static PyObject *names[64]; /* a driver is asked once */
	const int most = sizeof(names) / sizeof(*names);
	struct sluice_device d = {.size = sizeof(d)};
	PyObject *name = device >= 0 && device < most ? names[device] : NULL;

	if (name)
		return Py_NewRef(name);
	if (device < 0 || sluice_device_describe(device, &d))
		return PyUnicode_FromString("cpu");
	name = PyUnicode_FromString(d.name);
	if (device < most)
		names[device] = Py_XNewRef(name);
	return name;
}

PyObject *find_memory(PyObject *module, PyObject *buffer)
{
	struct held held;
	PyObject *found;

	if (held_take(buffer, false, &held))
		return NULL;
	found = Py_BuildValue("KnN", (unsigned long long)(uintptr_t)held.data,
	                      (Py_ssize_t)held.length, device_name(sluice_device_of(held.data)));
	held_give(&held);
	return found;
}

static PyObject *info_row(const struct sluice_blob_info *i)
{
	PyObject *device =
		i->device == -2 ? PyUnicode_FromString(i->place) : device_name(i->device);

	return Py_BuildValue("(sKKNiIIIiL)", i->name, (unsigned long long)i->id,
	                     (unsigned long long)i->bytes, device, i->state, i->flags, i->holders,
	                     i->user, i->process, (long long)i->made_ns);
}

static int run_list(struct request *request)
{
	sluice_store *store = request->call.handle->store;

	request->rows[0].size = sizeof(request->rows[0]);
	if (!request->listing)
		return sluice_blob_stat(store, request->name, request->rows);
	request->count =
		sluice_blob_list(store, request->name, &request->cursor, request->rows, ROWS);
	return request->count < 0 ? request->count : 0;
}

/* _rows(name): [row]; _rows(prefix, cursor): [row, ...], and the next cursor. */
static PyObject *store_rows(Store *self, PyObject *args)
{
	uint64_t cursor = 0;
	struct request *request;
	PyObject *name, *rows;
	const char *text;

	if (!PyArg_ParseTuple(args, "O|O&:_rows", &name, parse_number, &cursor) ||
	    !(text = parse_text("name", name)))
		return NULL;
	request = request_new(self->handle, run_list, text, ROWS);
	if (request) {
		request->listing = PyTuple_Size(args) > 1;
		request->cursor = cursor;
		request->count = 1;
	}
	if (request_run(request))
		return NULL;
	rows = PyList_New(request->count);
	for (int i = 0; rows && i < request->count; i++) {
		PyObject *row = info_row(&request->rows[i]);

		if (!row || PyList_SetItem(rows, i, row))
			Py_CLEAR(rows);
	}
	if (rows)
		rows = Py_BuildValue("(NK)", rows, (unsigned long long)request->cursor);
	call_free(&request->call);
	return rows;
}

static int run_delete(struct request *request)
{
	return sluice_blob_delete(request->call.handle->store, request->name);
}

static PyObject *store_delete(Store *self, PyObject *name)
{
	const char *text = parse_text("name", name);
	struct request *request = text ? request_new(self->handle, run_delete, text, 0) : NULL;

	return request ? call_finish(&request->call) : NULL;
}

/* --------------------------------------------------------------------------------------- origin */

int request_origin(struct request *request, PyObject *origin)
{
	struct sluice_origin *o = &request->origin;
	const char *uri, *device;
	PyObject *context;

	*o = (struct sluice_origin)SLUICE_ORIGIN_INIT;
	if (!PyArg_ParseTuple(origin, "O!zs", context_type, &context, &uri, &device) ||
	    !context_is_made((Context *)context) || parse_device(device, &o->device) ||
	    (uri && !(o->uri = call_copy(&request->call, uri, strlen(uri)))))
		return -1;
	request->context = ((Context *)context)->handle;
	handle_take(request->context);
	o->ctx = request->context->context;
	return 0;
}

static int run_refresh(struct request *request)
{
	return sluice_blob_refresh(request->call.handle->store, &request->origin, request->name,
	                           &request->cursor);
}

static int run_push(struct request *request)
{
	return sluice_blob_push(request->call.handle->store, &request->origin, request->name,
	                        request->options.flags);
}

static struct request *origin_request(Store *self, int (*run)(struct request *request),
                                      const char *name, PyObject *origin)
{
	struct request *request = request_new(self->handle, run, name, 0);

	if (request && request_origin(request, origin)) {
		call_free(&request->call);
		return NULL;
	}
	return request;
}

/* _refresh(name, (context, URI or None, device)): the id of what has the name then */
static PyObject *store_refresh(Store *self, PyObject *args)
{
	struct request *request;
	PyObject *origin, *id;
	const char *name;

	if (!PyArg_ParseTuple(args, "sO!:_refresh", &name, &PyTuple_Type, &origin))
		return NULL;
	request = origin_request(self, run_refresh, name, origin);
	if (request_run(request))
		return NULL;
	id = PyLong_FromUnsignedLongLong(request->cursor);
	call_free(&request->call);
	return id;
}

/* _push(name, (context, URI, device), exclusive) */
static PyObject *store_push(Store *self, PyObject *args)
{
	struct request *request;
	PyObject *origin;
	const char *name;
	int exclusive;

	if (!PyArg_ParseTuple(args, "sO!p:_push", &name, &PyTuple_Type, &origin, &exclusive))
		return NULL;
	request = origin_request(self, run_push, name, origin);
	if (!request)
		return NULL;
	request->options.flags = exclusive ? SLUICE_OPEN_EXCLUSIVE : 0;
	return call_finish(&request->call);
}

/* ---------------------------------------------------------------------------------------- watch */

static int run_watch(struct request *request)
{
	return sluice_watch_open(request->call.handle->of->store, request->name,
	                         &request->call.handle->watch);
}

static int watch_init(Watch *self, PyObject *args, PyObject *kwargs)
{
	const char *prefix;
	PyObject *store;

	if (!PyArg_ParseTuple(args, "O!s:Watch", store_type, &store, &prefix))
		return -1;
	return request_open(request_new_object((Store *)store, self->handle, run_watch, prefix),
	                    &self->handle);
}

void handle_lock(struct handle *handle)
{
	while (atomic_exchange(&handle->busy, true))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* A call that was interrupted may still take an event. */
static int run_next(struct request *request)
{
	struct handle *handle = request->call.handle;
	int rc;

	handle_lock(handle);
	request->event.size = sizeof(request->event);
	rc = sluice_watch_next(handle->watch, 0, &request->event);
	atomic_store(&handle->busy, false);
	request->count = rc != -EAGAIN;
	return rc == -EAGAIN ? 0 : rc;
}

static PyObject *watch_take(Watch *self, PyObject *none)
{
	struct request *request = request_new(self->handle, run_next, NULL, 0);
	const struct sluice_watch_event *e;
	PyObject *event = NULL;

	if (request_run(request))
		return NULL;
	e = &request->event;
	if (request->count)
		event = Py_BuildValue("(isKK)", e->kind, e->name, (unsigned long long)e->id,
		                      (unsigned long long)e->bytes);
	else
		event = Py_NewRef(Py_None);
	call_free(&request->call);
	return event;
}

static PyObject *watch_fileno(Watch *self, PyObject *none)
{
	if (self->handle)
		return PyLong_FromLong(sluice_watch_fd(self->handle->watch));
	PyErr_SetString(PyExc_ValueError, "the watch is closed");
	return NULL;
}

static PyMethodDef store_methods[] = {
	{"_rows", ANY(PyCFunction, store_rows), METH_VARARGS, NULL},
	{"_refresh", ANY(PyCFunction, store_refresh), METH_VARARGS, NULL},
	{"_push", ANY(PyCFunction, store_push), METH_VARARGS, NULL},
	{"delete", ANY(PyCFunction, store_delete), METH_O,
         "delete($self, name, /)\n--\n\nDelete a blob: its name is free at once, its memory when "
         "nobody "
         "holds it any more. Raises FileNotFoundError if there is none.\n\n>>> "
         "store.delete('numbers')  "
         "# doctest: +SKIP"},
	{"close", ANY(PyCFunction, store_close), METH_NOARGS,
         "close($self, /)\n--\n\nClose the store. Blobs, views and watches of it stay valid; the "
         "connection ends with "
         "the last of them."},
	{0},
};
static PyType_Slot store_slots[] = {
	{Py_tp_init, store_init},
	{Py_tp_methods, store_methods},
	{Py_tp_dealloc, store_dealloc},
	{0, NULL},
};
PyType_Spec store_spec = {"sluice._core.Store", sizeof(Store), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, store_slots};

static PyMethodDef watch_methods[] = {
	{"_take", ANY(PyCFunction, watch_take), METH_NOARGS, NULL},
	{"fileno", ANY(PyCFunction, watch_fileno), METH_NOARGS,
         "fileno($self, /)\n--\n\nA descriptor that is readable while there are events."},
	{"_close", ANY(PyCFunction, store_close), METH_NOARGS, NULL},
	{0},
};
static PyType_Slot watch_slots[] = {
	{Py_tp_init, watch_init},
	{Py_tp_methods, watch_methods},
	{Py_tp_dealloc, store_dealloc},
	{0, NULL},
};
PyType_Spec watch_spec = {"sluice._core.Watch", sizeof(Store), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, watch_slots};
