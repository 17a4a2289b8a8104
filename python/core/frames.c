/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames
 *
 * The writer of frames (<sluice/writer.h>), which the package's Writer and Series add the rest to. A call that waits
 * for a free frame, a flush or the end is made in slices, between which signals are seen; a call that the writer
 * cannot end early is a job, which another thread makes (call.c). The memory of acquired frames is kept until the
 * writer has ended and no array lies in it.
 */
#include "core.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory of the frames of a series. */
struct area {
	struct area *next;
	void *memory;
	size_t bytes;
	size_t frames; /* objects that export a part of it */
};
typedef struct {
	PyObject_HEAD struct handle *handle; /* NULL: closed */
	PyObject *context;                   /* NULL: not made */
	struct area *areas;
	pid_t process; /* that made it */
	bool ended;    /* the areas are this object's alone */
} Writer;
typedef struct {
	PyObject_HEAD Writer *writer; /* NULL: not made */
	sluice_series *series;
	struct area *area;
	PyObject *name;
	size_t scalars; /* numbers that come with a frame */
	size_t frame_bytes;
	unsigned depth;
} Series;
/* Exports an acquired frame. */
typedef struct {
	PyObject_HEAD Writer *writer;
	struct area *area;
	void *data;
	size_t bytes;
} Frame;

PyTypeObject *frame_type, *series_type, *writer_type;

/* ----------------------------------------------------------------------------------------- jobs */

/* A call of the writer with all that it needs, in memory of its own: a thread may have to end it alone. */
struct job {
	struct call *call;
	struct copy {
		struct copy *next;
		max_align_t data[];
	} * copies;
	int (*run)(struct job *job);
	const char *name;
	struct sluice_writer_options open;
	struct sluice_series_options add;
	const struct sluice_attribute *attributes;
	size_t attribute_count;
	const void *values;
	size_t count;
	int type;
	sluice_series *series;
	sluice_writer *opened;
};

static void job_clean(void *argument)
{
	struct job *job = argument;

	sluice_writer_discard(job->opened);
	for (struct copy *copy = job->copies, *next; copy; copy = next) {
		next = copy->next;
		free(copy);
	}
	free(job);
}

static int job_make(void *argument)
{
	struct job *job = argument;

	return job->run(job);
}

/* Returns a job whose call has the handle; NULL with an exception. */
static struct job *job_new(struct handle *handle, int (*run)(struct job *job))
{
	struct job *job = calloc(1, sizeof(*job));
	struct call *call = job ? call_new(CALL_OTHER, handle) : NULL;

	if (!call) {
		free(job);
		return (struct job *)PyErr_NoMemory();
	}
	job->run = run;
	job->call = call;
	call->make = job_make;
	call->clean = job_clean;
	call->argument = job;
	return job;
}

/* Returns memory with the bytes; of NULL, with zeros. NULL with an exception. */
static void *job_copy(struct job *job, const void *bytes, size_t n)
{
	struct copy *copy = calloc(1, sizeof(*copy) + n + 1);

	if (!copy)
		return PyErr_NoMemory();
	if (bytes)
		memcpy(copy->data, bytes, n);
	copy->next = job->copies;
	job->copies = copy;
	return copy->data;
}

static const char *job_text(struct job *job, const char *what, PyObject *text)
{
	const char *utf8 = parse_text(what, text);

	return utf8 ? job_copy(job, utf8, strlen(utf8)) : NULL;
}

/* Copies a list of texts. Returns 0, or -1 with an exception. */
static int job_texts(struct job *job, const char *what, PyObject *list, const char *const **out,
                     size_t *count)
{
	Py_ssize_t n = PyList_Size(list);
	const char **texts = n > 0 ? job_copy(job, NULL, n * sizeof(*texts)) : NULL;

	for (Py_ssize_t i = 0; texts && i < n; i++)
		if (!(texts[i] = job_text(job, what, PyList_GetItem(list, i))))
			return -1;
	*out = texts;
	*count = n > 0 ? n : 0;
	return PyErr_Occurred() ? -1 : 0;
}

/* Copies a list of (name, kind, bytes): kind is "text", "integers" or "numbers". */
static int job_attributes(struct job *job, PyObject *rows, const struct sluice_attribute **out,
                          size_t *count)
{
	Py_ssize_t n = PyList_Size(rows), length;
	struct sluice_attribute *list = n > 0 ? job_copy(job, NULL, n * sizeof(*list)) : NULL;
	const char *name, *kind, *bytes;

	for (Py_ssize_t i = 0; list && i < n; i++) {
		const void *copy;

		if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "ssy#", &name, &kind, &bytes,
		                      &length))
			return -1;
		list[i].name = job_copy(job, name, strlen(name));
		copy = job_copy(job, bytes, length);
		if (!list[i].name || !copy)
			return -1;
		list[i].text = *kind == 't' ? copy : NULL;
		list[i].integers = *kind == 'i' ? copy : NULL;
		list[i].numbers = *kind == 'n' ? copy : NULL;
		list[i].count = *kind == 't' ? 0 : length / sizeof(double);
	}
	*out = list;
	*count = n > 0 ? n : 0;
	return PyErr_Occurred() ? -1 : 0;
}

/* Frees a job that has not run, with an exception. */
static int job_refuse(struct job *job)
{
	if (job)
		call_free(job->call);
	return -1;
}

/* --------------------------------------------------------------------------------------- writer */

static int open_run(struct job *job)
{
	return sluice_writer_open(job->call->handle->context, job->name, &job->open, &job->opened);
}

static int writer_init(Writer *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"context",       "path",         "flags",   "attributes",
	                        "permissions",   "memory_bytes", "threads", "checkpoint_frames",
	                        "checkpoint_ms", "full_disk_ms", NULL};
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	uint64_t threads = o.threads, permissions = o.mode;
	PyObject *context, *path, *attributes;
	struct job *job = NULL;

	if (self->context) {
		PyErr_SetString(PyExc_ValueError, "the writer is made");
		return -1;
	}
	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "O!O&IO!|O&O&O&O&ii:Writer", names, context_type, &context,
		    PyUnicode_FSConverter, &path, &o.flags, &PyList_Type, &attributes, parse_number,
		    &permissions, parse_number, &o.memory_bytes, parse_number, &threads,
		    parse_number, &o.checkpoint_frames, &o.checkpoint_ms, &o.full_disk_ms))
		return -1;
	if (context_is_made((Context *)context))
		job = job_new(((Context *)context)->handle, open_run);
	if (job) {
		job->open = o;
		/* The library refuses the largest numbers. */
		job->open.mode = permissions < UINT_MAX ? (unsigned)permissions : UINT_MAX;
		job->open.threads = threads;
		job->name = job_copy(job, PyBytes_AsString(path), PyBytes_Size(path));
	}
	Py_DECREF(path);
	if (!job || !job->name ||
	    job_attributes(job, attributes, &job->open.attributes, &job->open.attribute_count))
		return job_refuse(job);
	self->handle = handle_new();
	if (!self->handle)
		return job_refuse(job);
	if (call_run(job->call)) {
		handle_give(self->handle);
		self->handle = NULL;
		return -1;
	}
	self->handle->writer = job->opened;
	job->opened = NULL;
	call_free(job->call);
	self->process = getpid();
	self->context = Py_NewRef(context);
	return 0;
}

/* Returns the handle for a call, to be given back; NULL with an exception. */
static struct handle *writer_take(Writer *self)
{
	if (!self || !self->handle) {
		PyErr_SetString(PyExc_ValueError, "the writer is closed");
		return NULL;
	}
	handle_take(self->handle);
	return self->handle;
}

/* Runs a job that has no result. */
static PyObject *writer_run(struct job *job)
{
	if (call_run(job->call))
		return NULL;
	call_free(job->call);
	Py_RETURN_NONE;
}

/* Returns a job for a writer that is open; NULL with an exception. */
static struct job *writer_job(Writer *self, int (*run)(struct job *job))
{
	struct handle *handle = writer_take(self);
	struct job *job = handle ? job_new(handle, run) : NULL;

	if (handle)
		handle_give(handle);
	return job;
}

/* Gives an area back as soon as nothing uses it. A child of fork() does not have it. */
static void area_release(const Writer *writer, struct area *area)
{
	if (!writer->ended || area->frames || !area->memory || writer->process != getpid())
		return;
	munmap(area->memory, area->bytes);
	area->memory = NULL;
}

static void writer_ended(Writer *self)
{
	self->ended = true;
	for (struct area *area = self->areas; area; area = area->next)
		area_release(self, area);
}

static PyObject *writer_flush(Writer *self, PyObject *none)
{
	struct handle *handle = writer_take(self);
	int rc;

	if (!handle)
		return NULL;
	do {
		Py_BEGIN_ALLOW_THREADS rc = sluice_writer_flush(handle->writer, SLICE_MS);
		Py_END_ALLOW_THREADS
	} while (rc == -EINPROGRESS && !PyErr_CheckSignals());
	if (rc && !PyErr_Occurred())
		raise_last(rc);
	handle_give(handle);
	return rc ? NULL : Py_NewRef(Py_None);
}

/* An interrupt leaves the writer to a further close() or discard(). */
static PyObject *writer_close(Writer *self, PyObject *none)
{
	struct handle *handle;
	int rc;

	if (!self->handle)
		Py_RETURN_NONE;
	handle = handle_withdraw(&self->handle);
	if (!handle)
		return NULL;
	do {
		Py_BEGIN_ALLOW_THREADS rc = sluice_writer_close(handle->writer, SLICE_MS);
		Py_END_ALLOW_THREADS if (rc == -EINPROGRESS && PyErr_CheckSignals())
		{
			self->handle = handle;
			return NULL;
		}
	} while (rc == -EINPROGRESS);
	if (rc)
		raise_last(rc);
	handle->writer = NULL;
	handle_give(handle);
	writer_ended(self);
	return rc ? NULL : Py_NewRef(Py_None);
}

static int discard_run(struct job *job)
{
	sluice_writer_discard(job->call->handle->writer);
	job->call->handle->writer = NULL;
	return 0;
}

static PyObject *writer_discard(Writer *self, PyObject *none)
{
	struct handle *handle;
	struct job *job;

	if (!self->handle)
		Py_RETURN_NONE;
	handle = handle_withdraw(&self->handle);
	job = handle ? job_new(handle, discard_run) : NULL;
	if (!job)
		return NULL;
	handle_give(handle);
	if (call_run(job->call))
		return NULL;
	call_free(job->call);
	writer_ended(self);
	Py_RETURN_NONE;
}

static void writer_dealloc(Writer *self)
{
	if (self->handle) {
		Py_BEGIN_ALLOW_THREADS handle_give(self->handle);
		Py_END_ALLOW_THREADS self->ended = true;
	}
	for (struct area *area = self->areas, *next; area; area = next) {
		next = area->next;
		area_release(self, area);
		free(area);
	}
	Py_XDECREF(self->context);
	object_free(self);
}

static PyObject *writer_closed(Writer *self, void *none)
{
	return PyBool_FromLong(!self->handle);
}

/* ----------------------------------------------------------------- attributes, coordinates, counts */

static int attributes_run(struct job *job)
{
	return job->series ? sluice_series_attributes(job->series, job->attributes,
	                                              job->attribute_count)
	                   : sluice_writer_attributes(job->call->handle->writer, job->attributes,
	                                              job->attribute_count);
}

static PyObject *add_attributes(Writer *writer, sluice_series *series, PyObject *rows)
{
	struct job *job = writer_job(writer, attributes_run);

	if (!job || job_attributes(job, rows, &job->attributes, &job->attribute_count)) {
		job_refuse(job);
		return NULL;
	}
	job->series = series;
	return writer_run(job);
}

static PyObject *writer_attributes(Writer *self, PyObject *rows)
{
	return add_attributes(self, NULL, rows);
}

static PyObject *series_attributes(Series *self, PyObject *rows)
{
	return add_attributes(self->writer, self->series, rows);
}

static int coordinate_run(struct job *job)
{
	return sluice_writer_add_coordinate(job->call->handle->writer, job->name, job->type,
	                                    job->count, job->values, job->attributes,
	                                    job->attribute_count);
}

/* _coordinate(name, type, count, bytes, attributes) */
static PyObject *writer_coordinate(Writer *self, PyObject *args)
{
	struct job *job = writer_job(self, coordinate_run);
	PyObject *name, *attributes;
	Py_ssize_t length, count;
	const char *bytes;

	if (!job || !PyArg_ParseTuple(args, "Oiny#O", &name, &job->type, &count, &bytes, &length,
	                              &attributes)) {
		job_refuse(job);
		return NULL;
	}
	job->count = count;
	job->name = job_text(job, "coordinate", name);
	job->values = job->name ? job_copy(job, bytes, length) : NULL;
	if (!job->values ||
	    job_attributes(job, attributes, &job->attributes, &job->attribute_count)) {
		job_refuse(job);
		return NULL;
	}
	return writer_run(job);
}

/* clang-format off */
#define COUNT(name) {#name, offsetof(struct sluice_writer_counts, name)}
#define STAGE(name)                                                              \
	{#name "_bytes", offsetof(struct sluice_writer_counts, name.bytes)},     \
	{#name "_busy_ns", offsetof(struct sluice_writer_counts, name.busy_ns)}
static const struct {
	const char *name;
	size_t at;
} counts[] = {
	COUNT(submitted), COUNT(stored), COUNT(visible), COUNT(durable), COUNT(dropped),
	COUNT(held), COUNT(queued), COUNT(in_flight), COUNT(queued_most), COUNT(raw_bytes),
	COUNT(stored_bytes), COUNT(chunks), COUNT(raw_chunks), COUNT(waited_ns),
	COUNT(waited_most_ns), STAGE(copy), STAGE(compress), STAGE(store), STAGE(flush),
	COUNT(flushes), COUNT(memory_bytes), COUNT(frames_before), COUNT(full_ns),
	COUNT(full_waits)
};
/* clang-format on */

static PyObject *counts_dict(Writer *writer, sluice_series *series)
{
	struct sluice_writer_counts c = {.size = sizeof(c)};
	struct handle *handle = writer_take(writer);
	PyObject *found;
	int rc;

	if (!handle)
		return NULL;
	rc = series ? sluice_series_stats(series, &c) : sluice_writer_stats(handle->writer, &c);
	handle_give(handle);
	if (rc)
		return raise_last(rc);
	found = Py_BuildValue("{s:d,s:i}", "max_error", c.max_error, "full_now", -c.full_now);
	for (size_t i = 0; found && i < sizeof(counts) / sizeof(counts[0]); i++) {
		PyObject *value =
			PyLong_FromUnsignedLongLong(*(uint64_t *)((char *)&c + counts[i].at));

		if (!value || PyDict_SetItemString(found, counts[i].name, value))
			Py_CLEAR(found);
		Py_XDECREF(value);
	}
	return found;
}

static PyObject *writer_stats(Writer *self, PyObject *none)
{
	return counts_dict(self, NULL);
}

static PyObject *series_stats(Series *self, PyObject *none)
{
	return counts_dict(self->writer, self->series);
}

/* --------------------------------------------------------------------------------------- series */

/* A converter of PyArg_Parse: a tuple of lengths. */
struct lengths {
	unsigned rank;
	uint64_t of[SLUICE_RANK_MOST];
};

static int parse_lengths(PyObject *tuple, void *out)
{
	struct lengths *lengths = out;
	Py_ssize_t rank = PyTuple_Size(tuple);

	for (Py_ssize_t i = 0; i < rank && i < SLUICE_RANK_MOST; i++)
		if (!parse_number(PyTuple_GetItem(tuple, i), &lengths->of[i]))
			return 0;
	/* The library refuses ranks that it does not have. */
	lengths->rank = (unsigned)rank;
	return rank >= 0;
}

static int add_run(struct job *job)
{
	return sluice_series_add(job->call->handle->writer, job->name, &job->add, &job->series);
}

/* Reads the options of a series into its job. Returns 0, or -1 with an exception. */
static int parse_series(Series *self, struct job *job, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"writer",      "name",         "type",       "shape",   "scalars",
	                        "attributes",  "flags",        "dimensions", "chunk",   "frames",
	                        "depth",       "codec",        "level",      "shuffle", "precision",
	                        "continue_at", "chunk_frames", NULL};
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	PyObject *writer, *name, *scalars, *attributes, *dimensions = Py_None, *codec = Py_None;
	struct lengths shape = {0}, chunk = {0};
	uint64_t depth = 0, precision = 0;
	size_t ignored;

	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "OOiO&O!O!I|OO&O&O&OiiO&O&O&:Series", names, &writer, &name,
		    &o.type, parse_lengths, &shape, &PyList_Type, &scalars, &PyList_Type,
		    &attributes, &o.flags, &dimensions, parse_lengths, &chunk, parse_number,
		    &o.frames, parse_number, &depth, &codec, &o.level, &o.shuffle, parse_number,
		    &precision, parse_number, &o.continue_at, parse_number, &o.chunk_frames))
		return -1;
	o.rank = shape.rank;
	memcpy(o.shape, shape.of, sizeof(o.shape));
	memcpy(o.chunk, chunk.of, sizeof(o.chunk));
	o.depth = depth < UINT_MAX ? (unsigned)depth : UINT_MAX;
	o.precision = precision < UINT_MAX ? (unsigned)precision : UINT_MAX;
	job->add = o;
	job->name = job_text(job, "name", name);
	if (codec != Py_None)
		job->add.codec = job_text(job, "codec", codec);
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
	if (call_run(job->call)) {
		free(area);
		return -1;
	}
	self->series = job->series;
	self->frame_bytes = sluice_series_frame_bytes(self->series);
	self->writer = (Writer *)Py_NewRef(writer);
	/* The job's use of the handle keeps the writer open. */
	sluice_series_keep_memory(self->series, &area->memory, &area->bytes);
	call_free(job->call);
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

static PyMethodDef writer_methods[] = {
	{"flush", ANY(PyCFunction, writer_flush), METH_NOARGS,
         "flush()\n--\n\nWait until all frames so far are in the file, which any program with HDF5 "
         "can open "
         "then.\n\n>>> with sluice.Writer(path + '.h5', 'w') as w:\n...     w.flush()"},
	{"stats", ANY(PyCFunction, writer_stats), METH_NOARGS,
         "stats()\n--\n\nThe counts of all series by their names in struct sluice_writer_counts; "
         "after a "
         "flush() they are final.\n\n>>> with sluice.Writer(path + '.h5', 'w') as w:\n...     "
         "w.stats()['stored']\n0"},
	{"_attributes", ANY(PyCFunction, writer_attributes), METH_O, NULL},
	{"_coordinate", ANY(PyCFunction, writer_coordinate), METH_VARARGS, NULL},
	{"_close", ANY(PyCFunction, writer_close), METH_NOARGS, NULL},
	{"discard", ANY(PyCFunction, writer_discard), METH_NOARGS,
         "discard()\n--\n\nClose the file as its last flush left it; a new file that has not been "
         "flushed does "
         "not appear.\n\n>>> w = sluice.Writer(path + '.h5', 'w')\n>>> w.discard()"},
	{0},
};
static PyGetSetDef writer_members[] = {
	{"closed", ANY(getter, writer_closed), NULL, "Whether the writer is closed.", NULL},
	{0},
};
static PyType_Slot writer_slots[] = {
	{Py_tp_init, writer_init},
	{Py_tp_methods, writer_methods},
	{Py_tp_getset, writer_members},
	{Py_tp_dealloc, writer_dealloc},
	{0, NULL},
};
PyType_Spec writer_spec = {"sluice._core.Writer", sizeof(Writer), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, writer_slots};

static PyMethodDef series_methods[] = {
	{"stats", ANY(PyCFunction, series_stats), METH_NOARGS,
         "stats()\n--\n\nThe counts of this series, as those of Writer.stats()."},
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
