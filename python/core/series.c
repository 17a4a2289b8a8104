/* SPDX-License-Identifier: Apache-2.0 */
/* Series, and frames of them: a free frame is waited for in slices, between which signals are seen. */
#include "writer.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *frame_type, *series_type;

static int add_run(struct job *job)
{
	return sluice_series_add(job->call.handle->writer, job->name, &job->add, &job->series);
}

/* Copies a list of texts. Returns 0, or -1 with an exception. */
static int job_texts(struct job *job, const char *what, PyObject *list, const char *const **out,
                     size_t *count)
{
	Py_ssize_t n = PyList_Size(list);
	const char **texts = n > 0 ? call_copy(&job->call, NULL, n * sizeof(*texts)) : NULL;

	for (Py_ssize_t i = 0; texts && i < n; i++)
		if (!(texts[i] = call_text(&job->call, what, PyList_GetItem(list, i))))
			return -1;
	*out = texts;
	*count = n > 0 ? n : 0;
	return PyErr_Occurred() ? -1 : 0;
}

/* Reads the options of a series into its job. Returns 0, or -1 with an exception. */
static int parse_series(Series *self, struct job *job, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"writer",       "name",         "type",      "shape",
	                        "scalars",      "attributes",   "flags",     "dimensions",
	                        "chunk",        "frames",       "depth",     "codec",
	                        "level",        "shuffle",      "precision", "continue_at",
	                        "chunk_frames", "string_bytes", NULL};
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	PyObject *writer, *name, *scalars, *attributes, *dimensions = Py_None, *codec = Py_None;
	struct lengths shape = {0}, chunk = {0};
	uint64_t depth = 0, precision = 0;
	size_t ignored;

	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "OOiO&O!O!I|OO&O&O&OiiO&O&O&O&:Series", names, &writer, &name,
		    &o.type, parse_lengths, &shape, &PyList_Type, &scalars, &PyList_Type,
		    &attributes, &o.flags, &dimensions, parse_lengths, &chunk, parse_number,
		    &o.frames, parse_number, &depth, &codec, &o.level, &o.shuffle, parse_number,
		    &precision, parse_number, &o.continue_at, parse_number, &o.chunk_frames,
		    parse_number, &o.string_bytes))
		return -1;
	o.rank = shape.rank;
	memcpy(o.shape, shape.of, sizeof(o.shape));
	memcpy(o.chunk, chunk.of, sizeof(o.chunk));
	o.depth = depth < UINT_MAX ? (unsigned)depth : UINT_MAX;
	o.precision = precision < UINT_MAX ? (unsigned)precision : UINT_MAX;
	job->add = o;
	job->name = call_text(&job->call, "name", name);
	if (codec != Py_None)
		job->add.codec = call_text(&job->call, "codec", codec);
	if (PyErr_Occurred() ||
	    job_texts(job, "scalars", scalars, &job->add.scalars, &job->add.scalar_count) ||
	    job_attributes(job, attributes, &job->add.attributes, &job->add.attribute_count))
		return -1;
	if (dimensions != Py_None &&
	    job_texts(job, "dimensions", dimensions, &job->add.dimensions, &ignored))
		return -1;
	self->name = Py_NewRef(name);
	self->scalars = job->add.scalar_count;
	self->depth = o.depth;
	return 0;
}

static int series_init(Series *self, PyObject *args, PyObject *kwargs)
{
	PyObject *writer = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
	struct area *area = NULL;
	struct job *job;

	if (self->writer || !writer || !PyObject_TypeCheck(writer, writer_type)) {
		PyErr_SetString(PyExc_TypeError, "a series is made by Writer.series()");
		return -1;
	}
	job = writer_job((Writer *)writer, add_run);
	if (!job || parse_series(self, job, args, kwargs))
		return job_refuse(job);
	area = calloc(1, sizeof(*area));
	if (!area) {
		PyErr_NoMemory();
		return job_refuse(job);
	}
	if (call_run(&job->call)) {
		free(area);
		return -1;
	}
	self->series = job->series;
	self->frame_bytes = sluice_series_frame_bytes(self->series);
	self->writer = (Writer *)Py_NewRef(writer);
	/* The job's use of the handle keeps the writer open. */
	sluice_series_keep_memory(self->series, &area->memory, &area->bytes);
	call_free(&job->call);
	area->next = self->writer->areas;
	self->writer->areas = self->area = area;
	return 0;
}

static void series_dealloc(Series *self)
{
	Py_XDECREF(self->name);
	Py_XDECREF((PyObject *)self->writer);
	object_free(self);
}

/* A frame that is asked for: to copy data into, or to be acquired. */
struct wish {
	const void *data; /* NULL: acquire */
	const double *scalars;
	bool on; /* data is of a device, in the order of the stream */
	sluice_stream stream;
	void *frame;
};

static int wish_try(sluice_series *series, struct wish *wish, int ms)
{
	if (wish->on)
		return sluice_series_submit_on(series, wish->data, wish->scalars, wish->stream, ms);
	return wish->data ? sluice_series_push(series, wish->data, wish->scalars, ms)
	                  : sluice_series_acquire(series, ms, &wish->frame);
}

/* Tries for so long. *waits: none is free, or the disk has no room, yet. That the writer has failed for lack of room,
 * and a series that has all its frames, have the same errno, and have it again. Without the GIL. */
static int wish_wait(sluice_writer *writer, sluice_series *series, struct wish *wish, int ms,
                     bool *waits)
{
	struct sluice_writer_counts c = {.size = sizeof(c)};
	int rc = wish_try(series, wish, ms);
	bool no_room = rc == -ENOSPC || rc == -EDQUOT;

	*waits = rc == -EAGAIN || (no_room && !sluice_writer_stats(writer, &c) && c.full_now);
	if (!no_room || *waits)
		return rc;
	rc = wish_try(series, wish, ms);
	*waits = rc == -EAGAIN;
	return rc;
}

/* Whether the program has all frames itself: then nothing may end its wait. */
static bool series_is_held(Series *self)
{
	struct sluice_writer_counts c = {.size = sizeof(c)};

	return !sluice_series_stats(self->series, &c) && c.held == self->depth;
}

/* Waits for a frame, for `left` seconds. Returns 0, or -1 with an exception. */
static int series_wait(Series *self, struct wish *wish, double left)
{
	bool waits = true, forever = isinf(left), held = false;

	while (!PyErr_CheckSignals()) {
		double slice = left < SLICE_MS / 1000. ? left : SLICE_MS / 1000.;
		struct handle *handle = writer_take(self->writer);
		int rc;

		if (!handle)
			return -1;
		Py_BEGIN_ALLOW_THREADS rc = wish_wait(handle->writer, self->series, wish,
		                                      (int)(slice * 1000 + 0.999), &waits);
		held = rc == -EAGAIN && forever && series_is_held(self);
		handle_give(handle);
		Py_END_ALLOW_THREADS if (!rc) return 0;
		left -= slice;
		if (waits && left > 0 && !held)
			continue;
		if (rc == -EAGAIN && !held)
			PyErr_SetString(PyExc_TimeoutError, sluice_last_message());
		else
			raise_last(held ? -EDEADLK : rc);
		return -1;
	}
	return -1;
}

/* Checks the scalars of a frame, which are doubles in bytes. */
static int series_check(Series *self, Py_ssize_t length)
{
	if (self->series && (size_t)length == self->scalars * sizeof(double))
		return 0;
	PyErr_Format(PyExc_ValueError, "series %R: a frame has %zu scalars", self->name,
	             self->scalars);
	return -1;
}

/* A converter of PyArg_Parse: seconds, or None. */
static int parse_timeout(PyObject *timeout, void *out)
{
	double seconds = timeout == Py_None ? HUGE_VAL : PyFloat_AsDouble(timeout);

	*(double *)out = seconds > 0 ? seconds : 0;
	return !PyErr_Occurred();
}

/* _append(buffer, scalars, timeout, on, stream) */
static PyObject *series_attributes(Series *self, PyObject *rows)
{
	return writer_add_attributes(self->writer, self->series, rows);
}

static PyObject *series_stats(Series *self, PyObject *none)
{
	return writer_counts(self->writer, self->series);
}

static PyObject *series_append(Series *self, PyObject *args)
{
	unsigned long long stream;
	struct wish wish = {0};
	Py_ssize_t length;
	struct held held;
	PyObject *buffer;
	double timeout;
	int on, rc = -1;

	if (!PyArg_ParseTuple(args, "Oy#O&pK:_append", &buffer, &wish.scalars, &length,
	                      parse_timeout, &timeout, &on, &stream) ||
	    series_check(self, length) || held_take(buffer, false, &held))
		return NULL;
	wish.data = held.data;
	wish.on = on;
	wish.stream = (sluice_stream)(uintptr_t)stream;
	if (held.length == self->frame_bytes)
		rc = series_wait(self, &wish, timeout);
	else
		PyErr_Format(PyExc_ValueError, "series %R: %zu bytes are no frame", self->name,
		             held.length);
	held_give(&held);
	return rc ? NULL : Py_NewRef(Py_None);
}

static PyObject *series_acquire(Series *self, PyObject *args)
{
	struct wish wish = {0};
	double timeout;
	Frame *frame;

	if (!PyArg_ParseTuple(args, "O&:_acquire", parse_timeout, &timeout) ||
	    series_check(self, self->scalars * sizeof(double)))
		return NULL;
	frame = (Frame *)PyType_GenericAlloc(frame_type, 0);
	if (!frame)
		return NULL;
	/* Known before the wait: another thread may close the writer at its end. */
	frame->writer = (Writer *)Py_NewRef((PyObject *)self->writer);
	frame->area = self->area;
	frame->area->frames++;
	if (series_wait(self, &wish, timeout)) {
		Py_DECREF((PyObject *)frame);
		return NULL;
	}
	frame->data = wish.frame;
	frame->bytes = self->frame_bytes;
	return (PyObject *)frame;
}

/* Hands an acquired frame over, or gives it back. */
static PyObject *series_end(Series *self, Frame *frame, const double *scalars, bool submit)
{
	struct handle *handle = writer_take(self->writer);
	int rc;

	if (!handle)
		return NULL;
	Py_BEGIN_ALLOW_THREADS rc =
		submit ? sluice_series_submit(self->series, frame->data, scalars)
		       : sluice_series_discard(self->series, frame->data);
	handle_give(handle);
	Py_END_ALLOW_THREADS return rc ? raise_last(rc) : Py_NewRef(Py_None);
}

static PyObject *series_submit(Series *self, PyObject *args)
{
	const double *scalars;
	Py_ssize_t length;
	PyObject *frame;

	if (!PyArg_ParseTuple(args, "O!y#:_submit", frame_type, &frame, &scalars, &length) ||
	    series_check(self, length))
		return NULL;
	return series_end(self, (Frame *)frame, scalars, true);
}

static PyObject *series_discard(Series *self, PyObject *args)
{
	PyObject *frame;

	if (!PyArg_ParseTuple(args, "O!:_discard", frame_type, &frame))
		return NULL;
	return series_end(self, (Frame *)frame, NULL, false);
}

static int frame_export(Frame *self, Py_buffer *view, int flags)
{
	return PyBuffer_FillInfo(view, (PyObject *)self, self->data, self->bytes, 0, flags);
}

static void frame_dealloc(Frame *self)
{
	if (self->writer) {
		self->area->frames--;
		area_release(self->writer, self->area);
	}
	Py_XDECREF((PyObject *)self->writer);
	object_free(self);
}

static PyMethodDef series_methods[] = {
	{"stats", ANY(PyCFunction, series_stats), METH_NOARGS,
         "stats($self, /)\n--\n\nThe counts of this series, as those of Writer.stats()."},
	{"_attributes", ANY(PyCFunction, series_attributes), METH_O, NULL},
	{"_append", ANY(PyCFunction, series_append), METH_VARARGS, NULL},
	{"_acquire", ANY(PyCFunction, series_acquire), METH_VARARGS, NULL},
	{"_submit", ANY(PyCFunction, series_submit), METH_VARARGS, NULL},
	{"_discard", ANY(PyCFunction, series_discard), METH_VARARGS, NULL},
	{0},
};
static PyType_Slot series_slots[] = {
	{Py_tp_init, series_init},
	{Py_tp_methods, series_methods},
	{Py_tp_dealloc, series_dealloc},
	{0, NULL},
};
PyType_Spec series_spec = {"sluice._core.Series", sizeof(Series), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, series_slots};

static PyType_Slot frame_slots[] = {
	{Py_bf_getbuffer, frame_export},
	{Py_tp_dealloc, frame_dealloc},
	{0, NULL},
};
PyType_Spec frame_spec = {"sluice._core.Frame", sizeof(Frame), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, frame_slots};
