/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves of tensors (<sluice/tensors.h>), to which the package adds the rest (_save.py)
 *
 * A Save keeps its context, the texts of its options, and the list of what has the memory of the tensors, until it is
 * over; _save.py empties that list when they are read no more.
 */
#include "core.h"

#include <errno.h>
#include <string.h>

typedef struct {
	PyObject_HEAD struct opening *opening; /* NULL: not made */
	PyObject *keep;                        /* a list; NULL: not made */
	sluice_tensor_save *save;
} Save;

PyTypeObject *save_type;

/* A converter of PyArg_Parse: a number of bytes, or a text such as "2 GiB". */
static int parse_size(PyObject *size, void *out)
{
	const char *text = PyUnicode_Check(size) ? parse_text("shard_bytes", size) : NULL;
	int rc = text ? sluice_size_parse(text, out) : 0;

	if (rc)
		PyErr_Format(PyExc_ValueError, "shard_bytes: %R is no size such as '2 GiB'", size);
	return text ? !rc : !PyErr_Occurred() && parse_number(size, out);
}

/* Reads [key, value, ...]. Returns NULL with an exception. */
static const char **save_metadata(struct call *call, PyObject *list)
{
	size_t count = (size_t)PyList_Size(list);
	const char **texts = call_copy(call, NULL, (count + 1) * sizeof(*texts));

	for (size_t i = 0; texts && i < count; i++)
		if (!(texts[i] = call_text(call, "metadata", PyList_GetItem(list, i))))
			return NULL;
	return texts;
}

static int save_parse(Save *self, PyObject *args, struct sluice_tensor_save_options *o,
                      struct sluice_collection_tensor **tensors, size_t *count)
{
	PyObject *context, *uri, *lines, *rows, *keep, *metadata, *stream;
	struct opening *opening;
	uint64_t number = 0;
	const char *device;
	int shared, durable, digests;

	if (!PyArg_ParseTuple(args, "O!O!O!O!O!O&O!pppsO:Save", context_type, &context,
	                      &PyUnicode_Type, &uri, &PyList_Type, &lines, &PyByteArray_Type, &rows,
	                      &PyList_Type, &keep, parse_size, &o->file_bytes, &PyList_Type,
	                      &metadata, &shared, &durable, &digests, &device, &stream) ||
	    parse_device(device, &o->device) || !context_is_made((Context *)context))
		return -1;
	if (self->opening) {
		PyErr_SetString(PyExc_ValueError, "the save has begun");
		return -1;
	}
	if (stream != Py_None && !parse_number(stream, &number))
		return -1;
	opening = call_new(sizeof(*opening), ((Context *)context)->handle, NULL, NULL);
	if (!opening)
		return -1;
	self->opening = opening;
	self->keep = Py_NewRef(keep);
	opening->options = (struct sluice_open_options)SLUICE_OPEN_OPTIONS_INIT;
	opening->uri = call_text(&opening->call, "uri", uri);
	if (!opening->uri || !(o->metadata = save_metadata(&opening->call, metadata)) ||
	    !(*tensors = call_tensors(&opening->call, rows, count)) ||
	    opening_copy_options(opening, lines, Py_None))
		return -1;
	o->metadata_count = (size_t)PyList_Size(metadata) / 2;
	o->refuse_shared = !shared;
	o->not_durable = !durable;
	o->digests = digests;
	o->on = stream != Py_None;
	o->stream = (sluice_stream)(uintptr_t)number;
	o->open_options = &opening->options;
	return 0;
}

static int save_init(Save *self, PyObject *args, PyObject *kwargs)
{
	struct sluice_tensor_save_options o = SLUICE_TENSOR_SAVE_OPTIONS_INIT;
	struct sluice_collection_tensor *tensors;
	size_t count;
	int rc;

	if (save_parse(self, args, &o, &tensors, &count))
		return -1;
	Py_BEGIN_ALLOW_THREADS rc =
		sluice_tensors_save(self->opening->call.handle->context, self->opening->uri,
	                            tensors, count, &o, &self->save);
	Py_END_ALLOW_THREADS if (rc) raise_last(rc);
	return rc ? -1 : 0;
}

/* A save that runs has a thread of _save.py, which keeps this object; or an exception came before it had. */
static void save_dealloc(Save *self)
{
	Py_BEGIN_ALLOW_THREADS sluice_tensor_save_free(self->save);
	if (self->opening)
		call_free(&self->opening->call);
	Py_END_ALLOW_THREADS Py_XDECREF(self->keep);
	object_free(self);
}

static PyObject *save_wait(Save *self, PyObject *args)
{
	int64_t result;
	int ms, fence;

	if (!PyArg_ParseTuple(args, "ip:wait", &ms, &fence))
		return NULL;
	Py_BEGIN_ALLOW_THREADS result = fence ? sluice_tensor_save_fence(self->save, ms)
	                                      : sluice_tensor_save_wait(self->save, ms);
	Py_END_ALLOW_THREADS if (result == -EINPROGRESS) Py_RETURN_NONE;
	return result < 0 ? raise_error((int)result, sluice_tensor_save_message(self->save))
	                  : PyLong_FromLongLong(result);
}

static PyObject *save_progress(Save *self, PyObject *none)
{
	uint64_t written = 0, all = 0; /* as they stay in a child of fork() */

	sluice_tensor_save_progress(self->save, &written, &all);
	return Py_BuildValue("(KK)", (unsigned long long)written, (unsigned long long)all);
}

static PyObject *save_cancel(Save *self, PyObject *none)
{
	sluice_tensor_save_cancel(self->save);
	Py_RETURN_NONE;
}

static PyObject *save_digests(Save *self, PyObject *none)
{
	struct sluice_tensor_saved saved = {.size = sizeof(saved)};
	PyObject *all = PyList_New(0);

	for (size_t i = 0; all && !sluice_tensor_save_file(self->save, i, &saved); i++) {
		PyObject *row = Py_BuildValue("(sy#)", saved.uri, saved.digest.bytes,
		                              (Py_ssize_t)sizeof(saved.digest.bytes));

		if (!row || PyList_Append(all, row))
			Py_CLEAR(all);
		Py_XDECREF(row);
	}
	return all;
}

static PyMethodDef save_methods[] = {
	{"wait", ANY(PyCFunction, save_wait), METH_VARARGS,
         "wait($self, ms, fence, /)\n--\n\nThe bytes of all files, or 0 for a fence; None: not "
         "yet."},
	{"progress", ANY(PyCFunction, save_progress), METH_NOARGS,
         "progress($self, /)\n--\n\nThe bytes that were written, and those that will be."},
	{"digests", ANY(PyCFunction, save_digests), METH_NOARGS,
         "digests($self, /)\n--\n\nThe files that are saved: (URI, SHA-256) each."},
	{"cancel", ANY(PyCFunction, save_cancel), METH_NOARGS,
         "cancel($self, /)\n--\n\nEnds it early."},
	{0},
};
static PyType_Slot save_slots[] = {
	{Py_tp_init, save_init},
	{Py_tp_methods, save_methods},
	{Py_tp_dealloc, save_dealloc},
	{0, NULL},
};
PyType_Spec save_spec = {"sluice._core.Save", sizeof(Save), 0, Py_TPFLAGS_DEFAULT, save_slots};
