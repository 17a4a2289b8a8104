/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations
 *
 * The life of a read or write from its submission to its result. The memory stays exported, and the
 * file open, until the operation is over, whatever becomes of the Operation that Python sees.
 *
 * An operation ends in operation_finish(), with the GIL: in a wait, or as Queue.drain() of its event
 * loop or of the daemon thread finds it. All that looks at the queues has the GIL, so no operation is
 * freed while another thread has it in its hands.
 */
#include "core.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

struct operation {
	PyObject_HEAD struct pending *pending; /* NULL: over, and no thread uses it */
	unsigned users;                        /* threads in sluice_wait() */
	bool over;
	PyObject *result; /* bytes or int; NULL: `error` */
	int error;
	PyObject *message;
	PyObject *callbacks; /* list, which keeps the operation until its end, or NULL */
};

struct pending *pending_new(File *file, size_t count)
{
	struct pending *pending = calloc(1, sizeof(*pending) + count * sizeof(pending->held[0]));

	if (!pending) {
		PyErr_NoMemory();
		return NULL;
	}
	Py_INCREF((PyObject *)file);
	pending->file = file;
	return pending;
}

/* Gives back all but the handle of the operation. May run code of Python. */
static void pending_release(struct pending *pending)
{
	read_leave(pending);
	read_let_go(pending);
	for (; pending->count; pending->count--)
		held_give(&pending->held[pending->count - 1]);
	if (pending->wanted)
		pending->queue->wanted--;
	pending->wanted = false;
	Py_CLEAR(pending->bytes);
	Py_CLEAR(pending->file);
	Py_CLEAR(pending->queue);
}

void pending_free(struct pending *pending)
{
	sluice_op_free(pending->op); /* first: no other thread finds it in its queue */
	pending_release(pending);
	/* Last, as it may have the last use of the context, which an open keeps from being freed. */
	if (pending->open) {
		Py_BEGIN_ALLOW_THREADS call_free(&pending->open->call);
		Py_END_ALLOW_THREADS
	}
	free(pending);
	reads_begin();
}

int pending_try(struct pending *pending, int kind, const uint64_t *offsets, bool on,
                sluice_stream stream)
{
	struct sluice_request request = SLUICE_REQUEST_INIT;
	struct handle *handle = pending->handle ? pending->handle : pending->file->handle;
	struct sluice_extent one, *extents = &one;
	int rc;

	if (pending->count > 1)
		extents = calloc(pending->count, sizeof(*extents));
	if (!extents)
		return -ENOMEM;
	for (size_t i = 0; i < pending->count; i++)
		extents[i] = (struct sluice_extent){pending->held[i].data, pending->held[i].length,
		                                    pending->rank ? 0 : offsets[i]};
	request.kind = kind;
	request.extents = extents;
	request.count = pending->count;
	request.user = pending;
	request.on = on;
	request.stream = stream;
	request.queue = pending->queue ? pending->queue->queue : NULL;
	request.unless_full = 1;
	request.rank = pending->rank;
	request.box_start = offsets;
	request.box_count = pending->rank ? offsets + pending->rank : NULL;
	handle_take(handle);
	/* The end of the operation may free `pending` before this returns. */
	Py_BEGIN_ALLOW_THREADS rc = sluice_submit(handle->file, &request, &pending->op);
	handle_give(handle);
	Py_END_ALLOW_THREADS if (extents != &one) free(extents);
	return rc;
}

/* Submits as soon as there is a place among max_operations. Returns 0, or -1 with an exception. */
static int pending_submit(struct pending *pending, int kind, const uint64_t *offsets, bool on,
                          sluice_stream stream)
{
	int rc = -EBUSY;

	/* It is asked again and again, so that signals are seen. */
	while (!PyErr_CheckSignals()) {
		if (!pending->file->handle) {
			PyErr_SetString(PyExc_ValueError, "the file is closed");
			break;
		}
		rc = pending_try(pending, kind, offsets, on, stream);
		if (rc != -EBUSY)
			break;
		Py_BEGIN_ALLOW_THREADS nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
		Py_END_ALLOW_THREADS
	}
	if (rc && !PyErr_Occurred())
		raise_last(rc);
	else if (!rc && pending->state == READ_BEGINS)
		pending->state = READ_RUNS;
	return rc ? -1 : 0;
}

/* Gives the file that was opened to its object, and returns that. */
static PyObject *pending_take_file(struct pending *pending)
{
	if (!pending->file->handle && !sluice_op_file(pending->op, &pending->handle->file)) {
		pending->file->handle = pending->handle;
		pending->handle = NULL;
	}
	Py_INCREF((PyObject *)pending->file);
	return (PyObject *)pending->file;
}

/* Returns the value of a call that moved n bytes. */
static PyObject *pending_value(struct pending *pending, int64_t n)
{
	PyObject *bytes = pending->bytes;

	if (pending->open)
		return pending_take_file(pending);
	if (!bytes)
		return PyLong_FromLongLong(n);
	if (n < PyBytes_Size(bytes)) /* the file ends there */
		return PyBytes_FromStringAndSize(PyBytes_AsString(bytes), n);
	pending->bytes = NULL;
	return bytes;
}

/* Returns an Operation, which owns pending; NULL with an exception. */
static PyObject *pending_wrap(struct pending *pending)
{
	struct operation *self =
		(struct operation *)PyObject_CallFunctionObjArgs(hooks.operation, NULL);

	if (!self)
		return NULL;
	self->pending = pending;
	pending->owner = self;
	return (PyObject *)self;
}

/* Cancels an operation whose call is interrupted, and has it ended. Keeps the exception. */
static void pending_abandon(struct pending *pending)
{
	PyObject *value, *operation, *type, *error, *traceback;

	PyErr_Fetch(&type, &error, &traceback);
	sluice_cancel(pending->op);
	operation = pending_wrap(pending);
	value = operation ? PyObject_CallFunctionObjArgs(hooks.adopt, operation, NULL) : NULL;
	Py_XDECREF(value);
	Py_XDECREF(operation);
	PyErr_Restore(type, error, traceback);
}

void call_back(PyObject *callback, PyObject *operation)
{
	PyObject *done = PyObject_CallFunctionObjArgs(callback, operation, NULL);

	if (!done && !call_put_off())
		PyErr_WriteUnraisable(callback);
	Py_XDECREF(done);
}

static void operation_call_back(struct operation *self, PyObject *callbacks)
{
	for (Py_ssize_t i = 0; callbacks && i < PyList_Size(callbacks); i++)
		call_back(PyList_GetItem(callbacks, i), (PyObject *)self);
	Py_XDECREF(callbacks);
}

static void operation_forget(struct operation *self)
{
	struct pending *pending = self->pending;

	if (!self->over || self->users || !pending)
		return;
	self->pending = NULL;
	pending_free(pending);
}

void operation_end(struct operation *self, int64_t n, const char *message)
{
	struct pending *pending = self->pending;
	PyObject *callbacks = self->callbacks;

	self->over = true;
	if (n < 0) {
		self->error = (int)n;
		self->message = PyUnicode_DecodeUTF8(message, strlen(message), "replace");
	} else {
		self->result = pending_value(pending, n);
	}
	self->callbacks = NULL;
	if (!callbacks)
		Py_INCREF((PyObject *)self);
	pending_release(pending);
	operation_forget(self);
	reads_begin();
	operation_call_back(self, callbacks);
	Py_DECREF(self);
}

/* Takes the result if the operation is over; returns whether it is. */
static bool operation_finish(struct operation *self)
{
	struct pending *pending = self->pending;
	int64_t n;

	if (self->over)
		return true;
	if ((pending->state == READ_WAITS || pending->state == READ_BEGINS) && pending->link.next)
		return false;
	if (!pending->op) {
		operation_end(self, -ECHILD, "the operation is the parent's");
		return true;
	}
	n = sluice_wait(pending->op, 0);
	if (n == -EINPROGRESS)
		return false;
	operation_end(self, n, n < 0 ? sluice_op_message(pending->op) : "");
	return true;
}

void operation_use(struct operation *self)
{
	Py_INCREF((PyObject *)self);
	self->users++;
}

void operation_give(struct operation *self)
{
	self->users--;
	operation_forget(self);
	Py_DECREF((PyObject *)self);
}

/* Returns the Operation of what this thread is about to start, and frees pending if there is none. It is known before:
 * another thread may end it at once. */
static struct operation *pending_own(struct pending *pending)
{
	struct operation *self = NULL;

	pending->queue = (Queue *)PyObject_CallFunctionObjArgs(hooks.queue, NULL);
	if (pending->queue)
		self = (struct operation *)pending_wrap(pending);
	if (!self)
		pending_free(pending);
	return self;
}

PyObject *pending_start(struct pending *pending, int kind, const uint64_t *offsets, bool on,
                        sluice_stream stream)
{
	struct operation *self = pending_own(pending);
	int rc;

	if (!self)
		return NULL;
	/* Another thread may end it, and frees it then after this one has the handle. */
	self->users++;
	rc = read_enter(pending);
	if (!rc)
		rc = pending_submit(pending, kind, offsets, on, stream);
	self->users--;
	if (rc < 0) {
		Py_DECREF((PyObject *)self);
		return NULL;
	}
	/* Bytes that were in memory. */
	if (!rc && !self->over && sluice_poll(pending->op))
		operation_finish(self);
	operation_forget(self);
	return (PyObject *)self;
}

PyObject *pending_open(struct pending *pending)
{
	struct opening *opening = pending->open;
	struct operation *self = pending_own(pending);
	int rc;

	if (!self)
		return NULL;
	self->users++;
	Py_BEGIN_ALLOW_THREADS rc =
		sluice_open_start(opening->call.handle->context, opening->uri, &opening->options,
	                          pending->queue->queue, pending, &pending->op);
	Py_END_ALLOW_THREADS self->users--;
	if (rc) {
		pending->op = NULL;
		operation_end(self, rc, sluice_last_message());
		return (PyObject *)self;
	}
	if (!self->over && sluice_poll(pending->op))
		operation_finish(self);
	operation_forget(self);
	return (PyObject *)self;
}

static int operation_is_none(struct operation *self)
{
	if (self->over || self->pending)
		return 0;
	PyErr_SetString(PyExc_ValueError, "operations are made by the calls of a file");
	return -1;
}

static PyObject *operation_result(struct operation *self)
{
	if (!self->result)
		return raise_text(self->error, self->message ? self->message : Py_None);
	Py_INCREF(self->result);
	return self->result;
}

/* Waits for so many seconds, or for ever. */
static PyObject *operation_await(struct operation *self, double left, bool forever)
{
	while (!operation_finish(self)) {
		bool waits = !self->pending->op || self->pending->state == READ_BEGINS;
		double most = waits ? 0.002 : SLICE_MS / 1000., slice = left < most ? left : most;
		sluice_op *op = self->pending->op;

		if (left <= 0) {
			PyErr_SetString(PyExc_TimeoutError, "the operation is still running");
			return NULL;
		}
		self->users++;
		Py_BEGIN_ALLOW_THREADS if (waits)
			nanosleep(&(struct timespec){.tv_nsec = (long)(slice * 1e9)}, NULL);
		else sluice_wait(op, (int)(slice * 1000 + 0.999));
		Py_END_ALLOW_THREADS self->users--;
		operation_forget(self);
		reads_look();
		left -= forever ? 0 : slice;
		if (PyErr_CheckSignals())
			return NULL;
	}
	return operation_result(self);
}

static PyObject *operation_wait(struct operation *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"timeout", NULL};
	PyObject *timeout = Py_None;
	double left = 1e9;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:wait", names, &timeout) ||
	    operation_is_none(self))
		return NULL;
	if (timeout != Py_None)
		left = PyFloat_AsDouble(timeout);
	return PyErr_Occurred() ? NULL : operation_await(self, left, timeout == Py_None);
}

PyObject *pending_run(struct pending *pending, int kind, const uint64_t *offsets)
{
	int rc = read_has_to_wait(pending);
	struct operation *operation;
	PyObject *value = NULL;
	bool raised = false;
	int64_t n;

	if (rc > 0) {
		operation = (struct operation *)pending_start(pending, kind, offsets, false, NULL);
		value = operation ? operation_await(operation, 1, true) : NULL;
		Py_XDECREF((PyObject *)operation); /* which cancels it after an interrupt */
		return value;
	}
	if (rc || read_enter(pending) || pending_submit(pending, kind, offsets, false, NULL)) {
		pending_free(pending);
		return NULL;
	}
	do {
		Py_BEGIN_ALLOW_THREADS n = sluice_wait(pending->op, SLICE_MS);
		Py_END_ALLOW_THREADS raised = n == -EINPROGRESS && PyErr_CheckSignals();
	} while (n == -EINPROGRESS && !raised);
	if (raised) {
		pending_abandon(pending);
		return NULL;
	}
	value = n < 0 ? raise_error((int)n, sluice_op_message(pending->op))
	              : pending_value(pending, n);
	pending_free(pending);
	return value;
}

static PyObject *operation_cancel(struct operation *self, PyObject *none)
{
	bool asked = true;

	if (operation_is_none(self))
		return NULL;
	if (operation_finish(self))
		asked = false;
	else if (self->pending->state == READ_WAITS)
		operation_end(self, -ECANCELED, READ_CANCELLED);
	else if (self->pending->state == READ_BEGINS)
		self->pending->cancelled = true;
	else
		asked = !sluice_cancel(self->pending->op);
	return PyBool_FromLong(asked);
}

static PyObject *operation_done(struct operation *self, void *none)
{
	return operation_is_none(self) ? NULL : PyBool_FromLong(operation_finish(self));
}

/* Has the daemon thread end the operations of its queue, unless an event loop does. */
static int pending_watch(struct pending *pending)
{
	PyObject *watched;

	if (!pending->queue || pending->wanted)
		return 0;
	pending->wanted = true;
	pending->queue->wanted++;
	watched = PyObject_CallFunctionObjArgs(hooks.watch, pending->queue, NULL);
	Py_XDECREF(watched);
	return watched ? 0 : -1;
}

static PyObject *operation_add_done_callback(struct operation *self, PyObject *callback)
{
	if (operation_is_none(self))
		return NULL;
	if (!PyCallable_Check(callback))
		return PyErr_Format(PyExc_TypeError, "%R cannot be called", callback);
	if (operation_finish(self)) {
		operation_call_back(self, Py_BuildValue("[O]", callback));
		Py_RETURN_NONE;
	}
	if (!self->callbacks && (self->callbacks = PyList_New(0)))
		Py_INCREF((PyObject *)self);
	if (!self->callbacks || PyList_Append(self->callbacks, callback) ||
	    pending_watch(self->pending))
		return NULL;
	Py_RETURN_NONE;
}

/* Leaves an operation that runs to its queue, which the daemon thread or an event loop looks at. Bytes that none can get any
 * more are not read. */
static void operation_drop(struct operation *self)
{
	struct pending *pending = self->pending;
	PyObject *type, *error, *traceback;

	self->pending = NULL;
	pending->owner = NULL;
	PyErr_Fetch(&type, &error, &traceback);
	if (!pending->op || sluice_wait(pending->op, 0) != -EINPROGRESS) {
		pending_free(pending);
		PyErr_Restore(type, error, traceback);
		return;
	}
	if (pending->bytes || pending->open)
		sluice_cancel(pending->op);
	/* At the end of the interpreter no thread can be started: the memory is kept for good. */
	if (pending_watch(pending) && !call_put_off())
		PyErr_Clear();
	PyErr_Restore(type, error, traceback);
}

static void operation_dealloc(struct operation *self)
{
	if (self->pending)
		operation_drop(self);
	Py_XDECREF(self->callbacks);
	Py_XDECREF(self->result);
	Py_XDECREF(self->message);
	object_free(self);
}

static PyMethodDef operation_methods[] = {
	{"wait", ANY(PyCFunction, operation_wait), METH_VARARGS | METH_KEYWORDS,
         "wait($self, /, timeout=None)\n--\n\nWait until the operation is over, and return its "
         "result: the "
         "bytes, or the number of bytes moved.\n\ntimeout: seconds; None waits for ever.\n\n"
         "Raises TimeoutError while it runs, or the error of the operation.\n\n>>> with "
         "sluice.open(path) as f:\n...     f.read_async(2).wait(timeout=60)\nb'he'"},
	{"cancel", ANY(PyCFunction, operation_cancel), METH_NOARGS,
         "cancel($self, /)\n--\n\nAsk the operation to end early. Returns False if it is over. "
         "wait() "
         "tells whether it was cancelled (OSError, ECANCELED) or completed.\n\n>>> with "
         "sluice.open(path) as f:\n...     operation = f.read_async(2)\n...     value = "
         "operation.wait()\n...     operation.cancel()\nFalse"},
	{"add_done_callback", ANY(PyCFunction, operation_add_done_callback), METH_O,
         "add_done_callback($self, callback, /)\n--\n\nCall callback(operation) when the operation "
         "is "
         "over, on the thread that sees its end, or now if it is over.\n\n>>> ends = []\n>>> with "
         "sluice.open(path) as f:\n...     f.read_async(2).add_done_callback(ends.append)"},
	{0},
};
static PyGetSetDef operation_attributes[] = {
	{"done", ANY(getter, operation_done), NULL, "Whether the operation is over.", NULL},
	{0},
};
static PyType_Slot operation_slots[] = {
	{Py_tp_methods, operation_methods},
	{Py_tp_getset, operation_attributes},
	{Py_tp_dealloc, operation_dealloc},
	{Py_tp_doc, "A read or write in flight."},
	{0, NULL},
};
PyType_Spec operation_spec = {"sluice._core.Operation", sizeof(struct operation), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, operation_slots};

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	Queue *self;
	int rc;

	if (!PyArg_ParseTuple(args, ":Queue") || (kwargs && PyDict_Size(kwargs)))
		return NULL;
	self = (Queue *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	rc = self ? sluice_queue_new(&self->queue) : -1;
	if (self && rc) {
		raise_last(rc);
		Py_CLEAR(self);
	}
	return (PyObject *)self;
}

static void queue_dealloc(Queue *self)
{
	sluice_queue_free(self->queue);
	object_free(self);
}

static PyObject *queue_fileno(Queue *self, PyObject *none)
{
	int fd = sluice_queue_fd(self->queue);

	return fd < 0 ? raise_last(fd) : PyLong_FromLong(fd);
}

static PyObject *queue_drain(Queue *self, PyObject *none)
{
	sluice_op *op;

	/* An end may free the last operation that has the queue. */
	Py_INCREF((PyObject *)self);
	while (!sluice_queue_next(self->queue, 0, &op)) {
		struct pending *pending = sluice_op_user(op);

		pending->op = op;
		if (pending->state == READ_BEGINS)
			pending->state = READ_RUNS;
		if (pending->owner)
			operation_finish(pending->owner);
		else
			pending_free(pending);
	}
	Py_DECREF(self);
	Py_RETURN_NONE;
}

static PyMethodDef queue_methods[] = {
	{"fileno", ANY(PyCFunction, queue_fileno), METH_NOARGS,
         "A descriptor that is readable while operations of the queue have ended."},
	{"drain", ANY(PyCFunction, queue_drain), METH_NOARGS, "End the operations that are over."},
	{0},
};
static PyMemberDef queue_members[] = {
	{"wanted", T_UINT, offsetof(Queue, wanted), READONLY, NULL},
	{0},
};
static PyType_Slot queue_slots[] = {
	{Py_tp_new, queue_new},
	{Py_tp_methods, queue_methods},
	{Py_tp_members, queue_members},
	{Py_tp_dealloc, queue_dealloc},
	{0, NULL},
};
PyType_Spec queue_spec = {"sluice._core.Queue", sizeof(Queue), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, queue_slots};
