/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in files
 *
 * Opens files of tensors, lists them, and reads them into addresses or buffers that the package brings
 * (_tensors.py), by <sluice/tensors.h>. A Load keeps the memory that it reads into until it is over.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/tensors.h>

typedef struct {
	PyObject_HEAD PyObject *context; /* NULL: not made */
	sluice_tensors *tensors;
} Tensors;

/* A read of tensors. */
typedef struct {
	PyObject_HEAD PyObject *tensors;
	PyObject *keeper; /* of the memory that was given as addresses */
	sluice_tensor_plan *plan;
	sluice_tensor_load *load;
	size_t count;
	struct held *held;
} Load;

PyTypeObject *tensors_type, *load_type;

const char *type_word(int type)
{
	const char *word = sluice_type_word(type);

	return word ? word : type == SLUICE_COMPLEX128 ? "C128" : sluice_type_name(type);
}

int type_of_word(const char *word)
{
	int type = 1;

	for (const char *found; (found = type_word(type)) && strcmp(found, word);)
		type++;
	return type;
}

/* Raises the last error; a slice that cannot be is a ValueError. */
static PyObject *raise_of_slice(int rc)
{
	if (rc != -EINVAL)
		return raise_last(rc);
	PyErr_SetString(PyExc_ValueError, sluice_last_message());
	return NULL;
}

/* ---------------------------------------------------------------------------------------- open */

struct tensors_opening {
	struct opening opening;
	const char **uris;
	size_t count;
	sluice_tensors *opened;
};

static int tensors_opening_make(struct call *call)
{
	struct tensors_opening *o = (struct tensors_opening *)call;

	return sluice_tensors_open(call->handle->context, o->uris, o->count, &o->opening.options,
	                           &o->opened);
}

static void tensors_opening_clean(struct call *call)
{
	sluice_tensors_free(((struct tensors_opening *)call)->opened);
}

/* Takes copies of a list of bytes. Returns 0, or -1 with an exception. */
static int tensors_copy_uris(struct tensors_opening *o, PyObject *uris)
{
	struct call *call = &o->opening.call;

	o->count = (size_t)PyList_Size(uris);
	o->uris = call_copy(call, NULL, o->count * sizeof(*o->uris));
	for (size_t i = 0; o->uris && i < o->count; i++) {
		char *uri;

		/* An error if it has a zero. */
		if (PyBytes_AsStringAndSize(PyList_GetItem(uris, i), &uri, NULL) ||
		    !(o->uris[i] = call_copy(call, uri, strlen(uri))))
			return -1;
	}
	return o->uris ? 0 : -1;
}

static int tensors_init(Tensors *self, PyObject *args, PyObject *kwargs)
{
	PyObject *context, *uris, *lines;
	struct tensors_opening *o;

	if (!PyArg_ParseTuple(args, "O!O!O!:Tensors", context_type, &context, &PyList_Type, &uris,
	                      &PyList_Type, &lines) ||
	    !context_is_made((Context *)context))
		return -1;
	if (self->context) {
		PyErr_SetString(PyExc_ValueError, "the files are open");
		return -1;
	}
	o = call_new(sizeof(*o), ((Context *)context)->handle, tensors_opening_make,
	             tensors_opening_clean);
	if (!o)
		return -1;
	o->opening.options = (struct sluice_open_options)SLUICE_OPEN_OPTIONS_INIT;
	if (tensors_copy_uris(o, uris) || opening_copy_options(&o->opening, lines, Py_None)) {
		call_free(&o->opening.call);
		return -1;
	}
	if (call_run(&o->opening.call))
		return -1;
	self->tensors = o->opened;
	o->opened = NULL;
	call_free(&o->opening.call);
	self->context = Py_NewRef(context);
	return 0;
}

static void tensors_dealloc(Tensors *self)
{
	Py_BEGIN_ALLOW_THREADS sluice_tensors_free(self->tensors);
	Py_END_ALLOW_THREADS Py_XDECREF(self->context);
	object_free(self);
}

sluice_tensors *tensors_of(PyObject *tensors)
{
	return ((Tensors *)tensors)->tensors;
}

/* ---------------------------------------------------------------------------------------- list */

static PyObject *tensors_entries(Tensors *self, PyObject *none)
{
	size_t count = self->tensors ? sluice_tensors_count(self->tensors) : 0;
	PyObject *all = PyDict_New();

	for (size_t i = 0; all && i < count; i++) {
		struct sluice_tensor t = {.size = sizeof(t)};
		PyObject *row = NULL, *name = NULL, *shape;
		int rc = sluice_tensors_get(self->tensors, i, &t);

		shape = rc ? raise_last(rc) : lengths_tuple(t.shape, t.rank);
		if (shape)
			row = Py_BuildValue("(nsNnKK)", (Py_ssize_t)i, type_word(t.type), shape,
			                    (Py_ssize_t)t.file, (unsigned long long)t.offset,
			                    (unsigned long long)t.bytes);
		if (row)
			name = PyUnicode_FromString(t.name);
		if (!name || PyDict_SetItem(all, name, row))
			Py_CLEAR(all);
		Py_XDECREF(name);
		Py_XDECREF(row);
	}
	return all;
}

static PyObject *tensors_files(Tensors *self, PyObject *none)
{
	struct sluice_tensor_file f = {.size = sizeof(f)};
	PyObject *all = PyList_New(0);

	for (size_t i = 0; all && self->tensors && !sluice_tensors_file(self->tensors, i, &f);
	     i++) {
		PyObject *pairs = PyDict_New(), *row;
		const char *key, *value;

		for (size_t k = 0; pairs && k < f.metadata; k++) {
			PyObject *text = NULL;

			if (!sluice_tensors_metadata(self->tensors, i, k, &key, &value))
				text = PyUnicode_FromString(value);
			if (!text || PyDict_SetItemString(pairs, key, text))
				Py_CLEAR(pairs);
			Py_XDECREF(text);
		}
		row = pairs ? Py_BuildValue("(ssKN)", f.name, f.format, (unsigned long long)f.bytes,
		                            pairs)
		            : NULL;
		if (!row || PyList_Append(all, row))
			Py_CLEAR(all);
		Py_XDECREF(row);
	}
	return all;
}

/* The ranges (start, stop) of the slice of a rank. */
static PyObject *tensors_slice(Tensors *self, PyObject *args)
{
	struct sluice_tensor_range ranges[SLUICE_TENSOR_RANK_MOST];
	struct sluice_tensor t = {.size = sizeof(t)};
	unsigned rank, ranks;
	PyObject *all = NULL;
	Py_ssize_t index;
	int dimension, even, rc;

	if (!PyArg_ParseTuple(args, "niIIp:slice", &index, &dimension, &rank, &ranks, &even))
		return NULL;
	rc = sluice_tensors_slice(self->tensors, (size_t)index, dimension, rank, ranks, even,
	                          ranges);
	if (!rc)
		rc = sluice_tensors_get(self->tensors, (size_t)index, &t);
	if (rc)
		return raise_of_slice(rc);
	all = PyTuple_New(t.rank);
	for (unsigned i = 0; all && i < t.rank; i++) {
		PyObject *range = Py_BuildValue("(KK)", (unsigned long long)ranges[i].start,
		                                (unsigned long long)ranges[i].stop);

		if (!range || PyTuple_SetItem(all, i, range))
			Py_CLEAR(all);
	}
	return all;
}

/* ---------------------------------------------------------------------------------------- read */

/* Reads a tuple with (start, stop) for each dimension into *out, which the caller frees. None leaves NULL. */
static int parse_ranges(PyObject *ranges, const struct sluice_tensor *tensor,
                        struct sluice_tensor_range **out)
{
	Py_ssize_t rank = ranges == Py_None ? 0 : PyTuple_Size(ranges);

	*out = NULL;
	if (rank < 0 || ranges == Py_None)
		return (int)rank;
	if (rank != (Py_ssize_t)tensor->rank) {
		PyErr_Format(PyExc_ValueError, "tensor '%s' has %u dimensions, and not %zd",
		             tensor->name, tensor->rank, rank);
		return -1;
	}
	*out = calloc(rank + 1, sizeof(**out));
	for (Py_ssize_t i = 0; *out && i < rank; i++)
		if (!PyArg_ParseTuple(PyTuple_GetItem(ranges, i), "O&O&", parse_number,
		                      &(*out)[i].start, parse_number, &(*out)[i].stop))
			return -1;
	if (!*out)
		PyErr_NoMemory();
	return *out ? 0 : -1;
}

/* Reads (index, ranges, (address, bytes) or buffer). */
static int parse_want(Load *self, PyObject *row, struct sluice_tensor_want *out)
{
	struct sluice_tensor tensor = {.size = sizeof(tensor)};
	struct held *held = &self->held[self->count];
	struct sluice_tensor_range *ranges;
	PyObject *to, *range_list;
	uint64_t index, address, length;
	int rc;

	if (!PyArg_ParseTuple(row, "O&OO", parse_number, &index, &range_list, &to))
		return -1;
	rc = sluice_tensors_get(((Tensors *)self->tensors)->tensors, index, &tensor);
	if (rc) {
		raise_last(rc);
		return -1;
	}
	rc = parse_ranges(range_list, &tensor, &ranges);
	out->tensor = index;
	out->ranges = ranges;
	if (rc)
		return -1;
	if (!PyTuple_Check(to)) {
		if (held_take(to, true, held))
			return -1;
	} else if (PyArg_ParseTuple(to, "O&O&", parse_number, &address, parse_number, &length)) {
		*held = (struct held){.data = (void *)(uintptr_t)address, .length = length};
	} else {
		return -1;
	}
	self->count++;
	out->to = held->data;
	return 0;
}

/* Reads a digest, or None, for each file. */
static int parse_digests(Load *self, PyObject *list, struct sluice_digest **out)
{
	struct sluice_tensor_file file = {.size = sizeof(file)};
	sluice_tensors *tensors = ((Tensors *)self->tensors)->tensors;
	Py_ssize_t count = list == Py_None ? 0 : PyList_Size(list);

	if (list == Py_None || count < 0)
		return (int)count;
	if ((count && sluice_tensors_file(tensors, count - 1, &file)) ||
	    !sluice_tensors_file(tensors, count, &file)) {
		PyErr_Format(PyExc_ValueError, "%zd digests are not one for each file", count);
		return -1;
	}
	*out = calloc(count, sizeof(**out));
	if (!*out) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *bytes = PyList_GetItem(list, i);
		Py_ssize_t length = bytes == Py_None ? 0 : PyBytes_Size(bytes);

		if (length < 0)
			return -1;
		if (length != 0 && length != 16 && length != 32) {
			PyErr_Format(PyExc_ValueError, "a digest has 32 or 16 bytes, not %zd",
			             length);
			return -1;
		}
		(*out)[i].kind = length == 32 ? SLUICE_SHA256 : length ? SLUICE_XXH3_128 : 0;
		memcpy((*out)[i].bytes, length ? PyBytes_AsString(bytes) : "", length);
	}
	return 0;
}

/* A destination has to have as many bytes as its tensor, or the slice. */
static int load_check(Load *self, const struct sluice_tensor_want *wants)
{
	struct sluice_tensor_item item = {.size = sizeof(item)};

	for (size_t i = 0; i < self->count; i++) {
		sluice_tensor_plan_item(self->plan, i, &item);
		if (item.bytes == self->held[i].length)
			continue;
		PyErr_Format(PyExc_ValueError, "tensor %zu has %llu bytes, its destination %zu",
		             wants[i].tensor, (unsigned long long)item.bytes, self->held[i].length);
		return -1;
	}
	return 0;
}

/* Makes the plan of a list of wants. Returns 0, or -1 with an exception. */
static int load_plan(Load *self, PyObject *rows)
{
	Py_ssize_t count = PyList_Size(rows);
	struct sluice_tensor_want *wants = calloc(count + 1, sizeof(*wants));
	int rc = 0;

	self->held = calloc(count + 1, sizeof(*self->held));
	if (!wants || !self->held) {
		PyErr_NoMemory();
		rc = -1;
	}
	for (Py_ssize_t i = 0; !rc && i < count; i++)
		rc = parse_want(self, PyList_GetItem(rows, i), &wants[i]);
	if (!rc) {
		rc = sluice_tensor_plan_new(((Tensors *)self->tensors)->tensors, wants, count,
		                            &self->plan);
		if (rc)
			raise_of_slice(rc);
		else
			rc = load_check(self, wants);
	}
	for (Py_ssize_t i = 0; wants && i < count; i++)
		free((void *)wants[i].ranges);
	free(wants);
	return rc ? -1 : 0;
}

static int load_init(Load *self, PyObject *args, PyObject *kwargs)
{
	struct sluice_tensor_read_options o = SLUICE_TENSOR_READ_OPTIONS_INIT;
	PyObject *tensors, *rows, *keeper, *stream, *digest_list;
	struct sluice_digest *digests = NULL;
	uint64_t number = 0;
	int rc;

	if (!PyArg_ParseTuple(args, "O!O!OOO:Load", tensors_type, &tensors, &PyList_Type, &rows,
	                      &keeper, &stream, &digest_list))
		return -1;
	if (self->tensors || !((Tensors *)tensors)->tensors) {
		PyErr_SetString(PyExc_ValueError, "the load has begun, or the files are not open");
		return -1;
	}
	if (stream != Py_None && !parse_number(stream, &number))
		return -1;
	self->tensors = Py_NewRef(tensors);
	self->keeper = Py_NewRef(keeper);
	rc = load_plan(self, rows);
	if (!rc)
		rc = parse_digests(self, digest_list, &digests);
	if (!rc) {
		o.on = stream != Py_None;
		o.stream = (sluice_stream)(uintptr_t)number;
		o.digests = digests;
		Py_BEGIN_ALLOW_THREADS rc =
			sluice_tensor_plan_read(self->plan, NULL, &o, &self->load);
		Py_END_ALLOW_THREADS if (rc) raise_last(rc);
	}
	free(digests);
	return rc ? -1 : 0;
}

/* Ends a load that nothing waits for any more, and waits until it is over: no memory of it may go before. */
static void load_dealloc(Load *self)
{
	Py_BEGIN_ALLOW_THREADS sluice_tensor_load_cancel(self->load);
	sluice_tensor_load_free(self->load);
	sluice_tensor_plan_free(self->plan);
	Py_END_ALLOW_THREADS for (size_t i = 0; i < self->count; i++) held_give(&self->held[i]);
	free(self->held);
	Py_XDECREF(self->keeper);
	Py_XDECREF(self->tensors);
	object_free(self);
}

/* Waits in slices. An interrupt cancels the load, and is raised when it is over. */
static PyObject *load_wait(Load *self, PyObject *timeout)
{
	long left = PyLong_AsLong(timeout);
	bool raised = false;
	int64_t result;

	if (left == -1 && PyErr_Occurred())
		return NULL;
	do {
		int slice = left < 0 || left > SLICE_MS ? SLICE_MS : (int)left;

		Py_BEGIN_ALLOW_THREADS result = sluice_tensor_load_wait(self->load, slice);
		Py_END_ALLOW_THREADS left -= left < 0 ? 0 : slice;
		if (result == -EINPROGRESS && !raised && PyErr_CheckSignals()) {
			raised = true;
			left = -1;
			sluice_tensor_load_cancel(self->load);
		}
	} while (result == -EINPROGRESS && left != 0);
	if (raised)
		return NULL;
	if (result == -EINPROGRESS)
		Py_RETURN_NONE;
	return result < 0 ? raise_error((int)result, sluice_tensor_load_message(self->load))
	                  : PyLong_FromLongLong(result);
}

static PyObject *load_progress(Load *self, PyObject *none)
{
	uint64_t read, all;

	sluice_tensor_load_progress(self->load, &read, &all);
	return Py_BuildValue("(KK)", (unsigned long long)read, (unsigned long long)all);
}

static PyMethodDef tensors_methods[] = {
	{"entries", ANY(PyCFunction, tensors_entries), METH_NOARGS,
         "entries($self, /)\n--\n\nThe tensors by name: (index, type, shape, file, offset, bytes) "
         "each."},
	{"files", ANY(PyCFunction, tensors_files), METH_NOARGS,
         "files($self, /)\n--\n\nThe files: (name, format, bytes, metadata) each."},
	{"slice", ANY(PyCFunction, tensors_slice), METH_VARARGS,
         "slice($self, index, dimension, rank, ranks, even, /)\n--\n\nThe ranges (start, stop) of "
         "the slice of a rank."},
	{0},
};
static PyType_Slot tensors_slots[] = {
	{Py_tp_init, tensors_init},
	{Py_tp_methods, tensors_methods},
	{Py_tp_dealloc, tensors_dealloc},
	{0, NULL},
};
PyType_Spec tensors_spec = {"sluice._core.Tensors", sizeof(Tensors), 0, Py_TPFLAGS_DEFAULT,
                            tensors_slots};

static PyMethodDef load_methods[] = {
	{"wait", ANY(PyCFunction, load_wait), METH_O,
         "wait($self, ms, /)\n--\n\nThe bytes of the tensors; None: the load is running still."},
	{"progress", ANY(PyCFunction, load_progress), METH_NOARGS,
         "progress($self, /)\n--\n\nThe bytes that were read from files, and those that will be."},
	{0},
};
static PyType_Slot load_slots[] = {
	{Py_tp_init, load_init},
	{Py_tp_methods, load_methods},
	{Py_tp_dealloc, load_dealloc},
	{0, NULL},
};
PyType_Spec load_spec = {"sluice._core.Load", sizeof(Load), 0, Py_TPFLAGS_DEFAULT, load_slots};
