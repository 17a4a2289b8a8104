/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files
 *
 * The reads and writes of a file, which the package's File adds the rest to. A call that waits has
 * no Operation: its memory is exported on behalf of the call.
 */
#include "core.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_LIMITED (64 << 20) /* bytes of a read that is compared with the file's size */

/* Whether a stat() of the file asks nobody, so that it never waits. */
static bool is_remote(const char *uri)
{
	return !strncasecmp(uri, "http:", 5) || !strncasecmp(uri, "https:", 6) ||
	       !strncasecmp(uri, "s3:", 3);
}

/* ---------------------------------------------------------------------------------------- open */

static int open_make(struct call *call)
{
	struct opening *o = (struct opening *)call;

	return sluice_open(call->handle->context, o->uri, &o->options, &o->opened);
}

static void open_clean(struct call *call)
{
	struct opening *o = (struct opening *)call;

	if (o->opened)
		sluice_discard(o->opened);
}

static int file_open(File *self, struct opening *o)
{
	struct handle *handle = handle_new();

	if (!handle) {
		call_free(&o->call);
		return -1;
	}
	if (call_run(&o->call)) {
		handle_give(handle);
		return -1;
	}
	handle->file = o->opened;
	o->opened = NULL;
	self->handle = handle;
	call_free(&o->call);
	return 0;
}

/* Takes the arguments of a file that is to be opened. NULL with an exception. */
static struct opening *file_parse(File *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"context",       "uri",         "flags",   "permissions",
	                        "expected_size", "first_bytes", "backend", "part",
	                        "headers",       "s3",          "dataset", NULL};
	PyObject *uri, *backend = Py_None, *part = Py_None, *headers = Py_None, *context;
	PyObject *s3 = Py_None, *dataset = Py_None;
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	uint64_t size = 0, first = 0, permissions = o.mode;
	struct opening *made;

	if (self->handle) {
		PyErr_SetString(PyExc_ValueError, "the file is open");
		return NULL;
	}
	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "O!O&|IO&O&O&OOOOO:File", names, context_type, &context,
		    PyUnicode_FSConverter, &uri, &o.flags, parse_number, &permissions, parse_number,
		    &size, parse_number, &first, &backend, &part, &headers, &s3, &dataset))
		return NULL;
	made = context_is_made((Context *)context)
	               ? call_new(sizeof(*made), ((Context *)context)->handle, open_make,
	                          open_clean)
	               : NULL;
	if (made) {
		struct call *call = &made->call;

		/* The library refuses the largest number as no permissions. */
		o.mode = permissions < UINT_MAX ? (unsigned)permissions : UINT_MAX;
		o.expected_size = size;
		o.first_bytes = first;
		if (backend != Py_None)
			o.backend = call_text(call, "backend", backend);
		if (part != Py_None)
			o.part = call_text(call, "part", part);
		if (dataset != Py_None)
			o.dataset = call_text(call, "dataset", dataset);
		made->options = o;
		made->uri = call_copy(call, PyBytes_AsString(uri), PyBytes_Size(uri));
		if (opening_copy_options(made, headers, s3)) {
			call_free(call);
			made = NULL;
		}
	}
	Py_DECREF(uri);
	if (!made)
		return NULL;
	Py_INCREF(context);
	Py_XDECREF(self->context);
	self->context = context;
	self->remote = is_remote(made->uri);
	return made;
}

static int file_init(File *self, PyObject *args, PyObject *kwargs)
{
	struct opening *made = file_parse(self, args, kwargs);

	return made ? file_open(self, made) : -1;
}

/* _start(...): as __init__, but returns an Operation at once, whose result is the file. */
static PyObject *file_start(File *self, PyObject *args, PyObject *kwargs)
{
	struct opening *made = file_parse(self, args, kwargs);
	struct pending *pending = made ? pending_new(self, 0) : NULL;

	if (made && !pending)
		call_free(&made->call);
	if (!pending)
		return NULL;
	pending->open = made;
	pending->handle = handle_new();
	if (pending->handle)
		return pending_open(pending);
	pending_free(pending);
	return NULL;
}

static void file_dealloc(File *self)
{
	if (self->handle) {
		Py_BEGIN_ALLOW_THREADS handle_give(self->handle);
		Py_END_ALLOW_THREADS
	}
	Py_XDECREF(self->context);
	object_free(self);
}

/* Starts a transfer of a buffer that is held: waits for it, or returns its Operation. */
static PyObject *transfer(struct pending *pending, int kind, const uint64_t *offsets, bool async)
{
	return async ? pending_start(pending, kind, offsets, false, NULL)
	             : pending_run(pending, kind, offsets);
}

static PyObject *file_stat(File *self, PyObject *none);

/*
 * Sets *n to what is left of a regular file, or of an object whose size is known, where that is less: a buffer is made for
 * so many bytes. Returns 0, or -1 with an exception.
 */
static int file_limit(File *self, Py_ssize_t *n, uint64_t offset)
{
	PyObject *found = *n > READ_LIMITED ? file_stat(self, NULL) : NULL;
	uint64_t size, most = READ_LIMITED;
	unsigned long mode;
	bool known;

	if (!found)
		return *n > READ_LIMITED ? -1 : 0;
	size = PyLong_AsUnsignedLongLong(PyTuple_GetItem(found, 0));
	mode = PyLong_AsUnsignedLong(PyTuple_GetItem(found, 1));
	known = PyTuple_GetItem(found, 7) == Py_False && (!mode || S_ISREG(mode));
	Py_DECREF(found);
	if (size > offset && size - offset > most)
		most = size - offset;
	if (known && (uint64_t)*n > most)
		*n = (Py_ssize_t)most;
	return 0;
}

static PyObject *file_read_some(File *self, PyObject *args, PyObject *kwargs, bool async)
{
	static char *names[] = {"n", "offset", NULL};
	struct pending *pending;
	uint64_t offset = 0;
	Py_ssize_t n;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|O&", names, &n, parse_number, &offset))
		return NULL;
	if (n < 0) {
		PyErr_Format(PyExc_ValueError, "n is %zd, which is no count of bytes", n);
		return NULL;
	}
	if (file_limit(self, &n, offset))
		return NULL;
	pending = pending_new(self, 1);
	if (!pending)
		return NULL;
	pending->state = READ_NEW;
	pending->length = (size_t)n;
	pending->offset = offset;
	return transfer(pending, SLUICE_READ, &offset, async);
}

/* Returns an operation on the buffer, yet to be submitted; NULL with an exception. */
static struct pending *transfer_of(File *self, PyObject *buffer, int kind)
{
	struct pending *pending = pending_new(self, 1);

	if (pending && held_take(buffer, kind == SLUICE_READ, &pending->held[0])) {
		pending_free(pending);
		return NULL;
	}
	if (pending)
		pending->count = 1;
	return pending;
}

static PyObject *file_move(File *self, PyObject *args, PyObject *kwargs, int kind, bool async)
{
	static char *names[] = {"buffer", "offset", NULL};
	struct pending *pending;
	uint64_t offset = 0;
	PyObject *buffer;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&", names, &buffer, parse_number,
	                                 &offset))
		return NULL;
	pending = transfer_of(self, buffer, kind);
	return pending ? transfer(pending, kind, &offset, async) : NULL;
}

/* _box(buffer, start, count, async[, stream]): a box of a dataset, in the order of a stream if there is one. */
static PyObject *file_box(File *self, PyObject *args)
{
	struct lengths start = {0}, count = {0};
	uint64_t box[2 * SLUICE_ARRAY_RANK_MOST] = {0};
	PyObject *buffer, *on = Py_None;
	unsigned long long stream = 0;
	struct pending *pending;
	int async;

	if (!PyArg_ParseTuple(args, "OO&O&p|O:_box", &buffer, parse_lengths, &start, parse_lengths,
	                      &count, &async, &on))
		return NULL;
	if (on != Py_None)
		stream = PyLong_AsUnsignedLongLong(on);
	if (PyErr_Occurred())
		return NULL;
	if (start.rank != count.rank || start.rank > SLUICE_ARRAY_RANK_MOST)
		return PyErr_Format(PyExc_ValueError, "start has %u dimensions, and count %u",
		                    start.rank, count.rank);
	memcpy(box, start.of, start.rank * sizeof(*box));
	memcpy(box + start.rank, count.of, start.rank * sizeof(*box));
	pending = transfer_of(self, buffer, SLUICE_READ);
	if (!pending)
		return NULL;
	pending->rank = start.rank;
	if (on != Py_None)
		return pending_start(pending, SLUICE_READ, box, true,
		                     (sluice_stream)(uintptr_t)stream);
	return transfer(pending, SLUICE_READ, box, async);
}

/* In stream order: _on(buffer, offset, stream, write). */
static PyObject *file_on(File *self, PyObject *args)
{
	unsigned long long stream;
	struct pending *pending;
	PyObject *buffer;
	uint64_t offset;
	int write, kind;

	if (!PyArg_ParseTuple(args, "OO&Ki:_on", &buffer, parse_number, &offset, &stream, &write))
		return NULL;
	kind = write ? SLUICE_WRITE : SLUICE_READ;
	pending = transfer_of(self, buffer, kind);
	return pending ? pending_start(pending, kind, &offset, true,
	                               (sluice_stream)(uintptr_t)stream)
	               : NULL;
}

/* Takes the pairs of a list. Returns 0, or -1 with an exception. */
static int pending_take_pairs(struct pending *pending, PyObject *pairs, uint64_t *offsets,
                              size_t count)
{
	for (size_t i = 0; i < count; i++) {
		PyObject *pair = PySequence_GetItem(pairs, i),
			 *tuple = pair ? PySequence_Tuple(pair) : NULL;
		PyObject *buffer;
		int rc = tuple && PyArg_ParseTuple(tuple,
		                                   "OO&;a pair of buffer and offset is needed",
		                                   &buffer, parse_number, &offsets[i])
		                 ? held_take(buffer, true, &pending->held[i])
		                 : -1;

		Py_XDECREF(tuple);
		Py_XDECREF(pair);
		if (rc)
			return -1;
		pending->count++;
	}
	return 0;
}

static PyObject *file_readv_some(File *self, PyObject *pairs, bool async)
{
	Py_ssize_t count = PySequence_Size(pairs);
	struct pending *pending;
	PyObject *value = NULL;
	uint64_t *offsets;

	if (count < 0)
		return NULL;
	offsets = calloc(count ? count : 1, sizeof(*offsets));
	pending = offsets ? pending_new(self, count) : NULL;
	if (!offsets)
		PyErr_NoMemory();
	if (pending && pending_take_pairs(pending, pairs, offsets, count))
		pending_free(pending);
	else if (pending)
		value = transfer(pending, SLUICE_READ, offsets, async);
	free(offsets);
	return value;
}

/* Two methods: NAME waits, and NAME_async returns an Operation. */
#define FORMS(name, parameters, call)            \
	static PyObject *name parameters         \
	{                                        \
		const bool async = false;        \
                                                 \
		return call;                     \
	}                                        \
	static PyObject *name##_async parameters \
	{                                        \
		const bool async = true;         \
                                                 \
		return call;                     \
	}
#define ARGS (File * self, PyObject * args, PyObject * kwargs)
FORMS(file_read, ARGS, file_read_some(self, args, kwargs, async))
FORMS(file_read_into, ARGS, file_move(self, args, kwargs, SLUICE_READ, async))
FORMS(file_write, ARGS, file_move(self, args, kwargs, SLUICE_WRITE, async))
FORMS(file_readv, (File * self, PyObject *pairs), file_readv_some(self, pairs, async))

struct file_call {
	struct call call;
	uint64_t length;
	struct sluice_file_info info;
	struct sluice_array_info array;
};

/* Returns a call of a file that is open; NULL with an exception. */
static struct file_call *file_call_new(File *self, int (*make)(struct call *))
{
	if (self->handle)
		return call_new(sizeof(struct file_call), self->handle, make, NULL);
	PyErr_SetString(PyExc_ValueError, "the file is closed");
	return NULL;
}

static int sync_make(struct call *call)
{
	return sluice_sync(call->handle->file);
}

static PyObject *file_sync(File *self, PyObject *none)
{
	return call_finish((struct call *)file_call_new(self, sync_make));
}

static int truncate_make(struct call *call)
{
	return sluice_truncate(call->handle->file, ((struct file_call *)call)->length);
}

static PyObject *file_truncate(File *self, PyObject *length)
{
	struct file_call *made = file_call_new(self, truncate_make);

	if (!made)
		return NULL;
	if (!parse_number(length, &made->length)) {
		call_free(&made->call);
		return NULL;
	}
	return call_finish(&made->call);
}

static int stat_make(struct call *call)
{
	struct sluice_file_info *info = &((struct file_call *)call)->info;

	info->size = sizeof(*info);
	return sluice_stat(call->handle->file, info);
}

static PyObject *file_stat(File *self, PyObject *none)
{
	struct file_call *made = file_call_new(self, stat_make);
	struct sluice_file_info *info;
	PyObject *found;

	if (!made || (self->remote ? call_make_here(&made->call) : call_run(&made->call)))
		return NULL;
	info = &made->info;
	found = Py_BuildValue("KIKLzzsOO", (unsigned long long)info->length, info->mode,
	                      (unsigned long long)info->allocated, (long long)info->modified_ns,
	                      info->full_etag ? info->full_etag : info->etag, info->final_uri,
	                      info->backend,
	                      info->flags & SLUICE_STAT_SIZE_UNKNOWN ? Py_True : Py_False,
	                      info->flags & SLUICE_STAT_WHOLE_ONLY ? Py_True : Py_False);
	call_free(&made->call);
	return found;
}

static int array_make(struct call *call)
{
	struct sluice_array_info *info = &((struct file_call *)call)->array;

	info->size = sizeof(*info);
	return sluice_array_stat(call->handle->file, info);
}

/* _array(): type, shape, chunk or None, filters, of a dataset. Not while another thread refreshes it. */
static PyObject *file_array(File *self, PyObject *none)
{
	struct file_call *made = file_call_new(self, array_make);
	const struct sluice_array_info *info;
	PyObject *found;

	if (!made || call_make_here(&made->call))
		return NULL;
	info = &made->array;
	found = Py_BuildValue("sNNs", info->type, lengths_tuple(info->shape, info->rank),
	                      info->chunk[0] ? lengths_tuple(info->chunk, info->rank)
	                                     : Py_NewRef(Py_None),
	                      info->filters);
	call_free(&made->call);
	return found;
}

static int refresh_make(struct call *call)
{
	return sluice_array_refresh(call->handle->file);
}

static PyObject *file_refresh(File *self, PyObject *none)
{
	return call_finish((struct call *)file_call_new(self, refresh_make));
}

static int close_make(struct call *call)
{
	sluice_file *file = call->handle->file;

	call->handle->file = NULL;
	return sluice_close(file);
}

static int discard_make(struct call *call)
{
	sluice_discard(call->handle->file);
	call->handle->file = NULL;
	return 0;
}

/* Ends the file by that call. */
static PyObject *file_end(File *self, int (*make)(struct call *))
{
	struct handle *handle;
	struct call *call;

	if (!self->handle)
		Py_RETURN_NONE;
	handle = handle_withdraw(&self->handle);
	if (!handle)
		return NULL;
	call = call_new(sizeof(*call), handle, make, NULL);
	handle_give(handle);
	return call_finish(call);
}

static PyObject *file_close(File *self, PyObject *none)
{
	return file_end(self, close_make);
}

static PyObject *file_discard(File *self, PyObject *none)
{
	return file_end(self, discard_make);
}

static PyObject *file_closed(File *self, void *none)
{
	return PyBool_FromLong(!self->handle);
}

#define KEYWORDS(function) ANY(PyCFunction, function), METH_VARARGS | METH_KEYWORDS

static PyMethodDef file_methods[] = {
	{"read", KEYWORDS(file_read),
         "read($self, /, n, offset=0)\n--\n\nRead n bytes at offset. The result is shorter only "
         "where the "
         "file ends.\n\n>>> with sluice.open(path) as f:\n...     f.read(5)\nb'hello'"},
	{"read_async", KEYWORDS(file_read_async),
         "read_async($self, /, n, offset=0)\n--\n\nAs read(), but returns an Operation at "
         "once.\n\n>>> with "
         "sluice.open(path) as f:\n...     f.read_async(5).wait()\nb'hello'"},
	{"read_into", KEYWORDS(file_read_into),
         "read_into($self, /, buffer, offset=0)\n--\n\nRead into a C-contiguous buffer in the "
         "memory of "
         "the host or of a device, until it is full or the file ends. Returns the number of "
         "bytes.\n\n>>> with sluice.open(path) as f:\n...     b = bytearray(4)\n...     "
         "f.read_into(b, 1), b\n(4, bytearray(b'ello'))"},
	{"read_into_async", KEYWORDS(file_read_into_async),
         "read_into_async($self, /, buffer, offset=0)\n--\n\nAs read_into(), but returns an "
         "Operation at "
         "once. The buffer stays exported until the operation is over."},
	{"write", KEYWORDS(file_write),
         "write($self, /, buffer, offset=0)\n--\n\nWrite the bytes of a C-contiguous buffer at "
         "offset. "
         "Returns their number.\n\n>>> with sluice.open(path, 'r+') as f:\n...     f.write(b'J', "
         "0)\n1"},
	{"write_async", KEYWORDS(file_write_async),
         "write_async($self, /, buffer, offset=0)\n--\n\nAs write(), but returns an Operation at "
         "once. The "
         "buffer must not change until the operation is over."},
	{"readv", ANY(PyCFunction, file_readv), METH_O,
         "readv($self, pairs, /)\n--\n\nRead many ranges at once: a list of (buffer, offset). "
         "Returns the "
         "sum of the bytes.\n\n>>> with sluice.open(path) as f:\n...     a, b = bytearray(1), "
         "bytearray(2)\n...     f.readv([(a, 0), (b, 3)]), a, b\n(3, bytearray(b'h'), "
         "bytearray(b'lo'))"},
	{"readv_async", ANY(PyCFunction, file_readv_async), METH_O,
         "readv_async($self, pairs, /)\n--\n\nAs readv(), but returns an Operation at once."},
	{"sync", ANY(PyCFunction, file_sync), METH_NOARGS,
         "sync($self, /)\n--\n\nWait for the writes so far, and for stable storage, as "
         "os.fsync().\n\n>>> "
         "with sluice.open(path, 'r+') as f:\n...     f.write(b'J'), f.sync()\n(1, None)"},
	{"truncate", ANY(PyCFunction, file_truncate), METH_O,
         "truncate($self, length, /)\n--\n\nSet the length of the file in bytes.\n\n>>> with "
         "sluice.open(path, 'r+') as f:\n...     f.truncate(2), f.size\n(None, 2)"},
	{"_array", ANY(PyCFunction, file_array), METH_NOARGS, NULL},
	{"_box", ANY(PyCFunction, file_box), METH_VARARGS, NULL},
	{"_refresh", ANY(PyCFunction, file_refresh), METH_NOARGS, NULL},
	{"_on", ANY(PyCFunction, file_on), METH_VARARGS, NULL},
	{"_start", KEYWORDS(file_start), NULL},
	{"_stat", ANY(PyCFunction, file_stat), METH_NOARGS, NULL},
	{"close", ANY(PyCFunction, file_close), METH_NOARGS,
         "close($self, /)\n--\n\nWait for the operations of the file, commit it, and close "
         "it.\n\n>>> f = "
         "sluice.open(path)\n>>> f.close()"},
	{"discard", ANY(PyCFunction, file_discard), METH_NOARGS,
         "discard($self, /)\n--\n\nClose the file without a commit: with mode 'w' or 'x' nothing "
         "of it "
         "remains.\n\n>>> f = sluice.open(path, 'w')\n>>> f.discard()  # the old contents stay"},
	{0},
};
static PyGetSetDef file_attributes[] = {
	{"closed", ANY(getter, file_closed), NULL, "Whether the file is closed.", NULL},
	{0},
};
static PyType_Slot file_slots[] = {
	{Py_tp_init, file_init},
	{Py_tp_methods, file_methods},
	{Py_tp_getset, file_attributes},
	{Py_tp_dealloc, file_dealloc},
	{0, NULL},
};
PyType_Spec file_spec = {"sluice._core.File", sizeof(File), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, file_slots};
