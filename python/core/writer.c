/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer
 *
 * A flush or the end is waited for in slices, between which signals are seen. The memory of acquired frames is kept
 * until the writer has ended and no array lies in it.
 */
#include "writer.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

PyTypeObject *writer_type;

/* ----------------------------------------------------------------------------------------- jobs */

static void job_clean(struct call *call)
{
	sluice_writer_discard(((struct job *)call)->opened);
}

static int job_make(struct call *call)
{
	struct job *job = (struct job *)call;

	return job->run(job);
}

/* Returns a job whose call has the handle; NULL with an exception. */
static struct job *job_new(struct handle *handle, int (*run)(struct job *job))
{
	struct job *job = call_new(sizeof(*job), handle, job_make, job_clean);

	if (job)
		job->run = run;
	return job;
}

/* Returns pointers to texts that lie one behind the other. */
static const char **job_pointers(struct job *job, const char *texts, size_t count)
{
	const char **pointers = call_copy(&job->call, NULL, count * sizeof(*pointers));

	for (size_t i = 0; pointers && i < count; i++) {
		pointers[i] = texts;
		texts += strlen(texts) + 1;
	}
	return pointers;
}

int job_attributes(struct job *job, PyObject *rows, const struct sluice_attribute **out,
                   size_t *count)
{
	Py_ssize_t n = PyList_Size(rows), length, size;
	struct sluice_attribute *list =
		n > 0 ? call_copy(&job->call, NULL, n * sizeof(*list)) : NULL;
	const char *name, *kind, *bytes;

	for (Py_ssize_t i = 0; list && i < n; i++) {
		const void *copy;

		if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "ssy#n", &name, &kind, &bytes,
		                      &length, &size))
			return -1;
		list[i].name = call_copy(&job->call, name, strlen(name));
		copy = call_copy(&job->call, bytes, length);
		if (!list[i].name || !copy)
			return -1;
		list[i].text = *kind == 't' ? copy : NULL;
		list[i].integers = *kind == 'i' ? copy : NULL;
		list[i].numbers = *kind == 'n' ? copy : NULL;
		list[i].count = *kind == 't' ? 0 : length / sizeof(double);
		list[i].columns = size;
		if (*kind != 'l')
			continue;
		list[i].texts = job_pointers(job, copy, size);
		list[i].count = size;
		list[i].columns = 0;
		if (!list[i].texts)
			return -1;
	}
	*out = list;
	*count = n > 0 ? n : 0;
	return PyErr_Occurred() ? -1 : 0;
}

int job_refuse(struct job *job)
{
	if (job)
		call_free(&job->call);
	return -1;
}

/* -------------------------------------------------------------------------------- open and close */

static int open_run(struct job *job)
{
	return sluice_writer_open(job->call.handle->context, job->name, &job->open, &job->opened);
}

static int writer_init(Writer *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"context",       "path",         "flags",     "attributes",
	                        "permissions",   "memory_bytes", "threads",   "checkpoint_frames",
	                        "checkpoint_ms", "full_disk_ms", "upload_ms", NULL};
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	uint64_t threads = o.threads, permissions = o.mode;
	PyObject *context, *path, *attributes;
	struct job *job = NULL;

	if (self->context) {
		PyErr_SetString(PyExc_ValueError, "the writer is made");
		return -1;
	}
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O&IO!|O&O&O&O&iii:Writer", names,
	                                 context_type, &context, PyUnicode_FSConverter, &path,
	                                 &o.flags, &PyList_Type, &attributes, parse_number,
	                                 &permissions, parse_number, &o.memory_bytes, parse_number,
	                                 &threads, parse_number, &o.checkpoint_frames,
	                                 &o.checkpoint_ms, &o.full_disk_ms, &o.upload_ms))
		return -1;
	if (context_is_made((Context *)context))
		job = job_new(((Context *)context)->handle, open_run);
	if (job) {
		job->open = o;
		/* The library refuses the largest numbers. */
		job->open.mode = permissions < UINT_MAX ? (unsigned)permissions : UINT_MAX;
		job->open.threads = threads;
		job->name = call_copy(&job->call, PyBytes_AsString(path), PyBytes_Size(path));
	}
	Py_DECREF(path);
	if (!job || !job->name ||
	    job_attributes(job, attributes, &job->open.attributes, &job->open.attribute_count))
		return job_refuse(job);
	self->handle = handle_new();
	if (!self->handle)
		return job_refuse(job);
	if (call_run(&job->call)) {
		handle_give(self->handle);
		self->handle = NULL;
		return -1;
	}
	self->handle->writer = job->opened;
	job->opened = NULL;
	call_free(&job->call);
	self->process = getpid();
	self->context = Py_NewRef(context);
	return 0;
}

struct handle *writer_take(Writer *self)
{
	if (!self || !self->handle) {
		PyErr_SetString(PyExc_ValueError, "the writer is closed");
		return NULL;
	}
	handle_take(self->handle);
	return self->handle;
}

struct job *writer_job(Writer *self, int (*run)(struct job *job))
{
	struct handle *handle = writer_take(self);
	struct job *job = handle ? job_new(handle, run) : NULL;

	if (handle)
		handle_give(handle);
	return job;
}

void area_release(const Writer *writer, struct area *area)
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
	sluice_writer_discard(job->call.handle->writer);
	job->call.handle->writer = NULL;
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
	if (call_run(&job->call))
		return NULL;
	call_free(&job->call);
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
	                   : sluice_writer_attributes(job->call.handle->writer, job->attributes,
	                                              job->attribute_count);
}

PyObject *writer_add_attributes(Writer *writer, sluice_series *series, PyObject *rows)
{
	struct job *job = writer_job(writer, attributes_run);

	if (!job || job_attributes(job, rows, &job->attributes, &job->attribute_count)) {
		job_refuse(job);
		return NULL;
	}
	job->series = series;
	return call_finish(&job->call);
}

static PyObject *writer_attributes(Writer *self, PyObject *rows)
{
	return writer_add_attributes(self, NULL, rows);
}

static int coordinate_run(struct job *job)
{
	return sluice_writer_add_coordinate(job->call.handle->writer, job->name, job->type,
	                                    job->count, job->values, job->attributes,
	                                    job->attribute_count);
}

/* _coordinate(name, type, count, bytes, attributes) */
static PyObject *writer_coordinate(Writer *self, PyObject *args)
{
	/* Bytes of the types of numbers; the library refuses all others. */
	static const unsigned char sizes[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8};
	struct job *job = writer_job(self, coordinate_run);
	PyObject *name, *attributes;
	Py_ssize_t length, count;
	const char *bytes;

	if (!job || !PyArg_ParseTuple(args, "Oiny#O", &name, &job->type, &count, &bytes, &length,
	                              &attributes)) {
		job_refuse(job);
		return NULL;
	}
	if ((unsigned)job->type < sizeof(sizes) &&
	    (count > length || length != count * sizes[job->type])) {
		PyErr_Format(PyExc_ValueError, "%zd bytes are not %zd values", length, count);
		job_refuse(job);
		return NULL;
	}
	job->count = count;
	job->name = call_text(&job->call, "coordinate", name);
	job->values = job->name ? call_copy(&job->call, bytes, length) : NULL;
	if (!job->values ||
	    job_attributes(job, attributes, &job->attributes, &job->attribute_count)) {
		job_refuse(job);
		return NULL;
	}
	return call_finish(&job->call);
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

PyObject *writer_counts(Writer *writer, sluice_series *series)
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
	return writer_counts(self, NULL);
}

/* ----------------------------------------------------------------------------------------- type */

static PyMethodDef writer_methods[] = {
	{"flush", ANY(PyCFunction, writer_flush), METH_NOARGS,
         "flush($self, /)\n--\n\nWait until all frames so far are in the file, which any program "
         "with HDF5 "
         "can open "
         "then.\n\n>>> with sluice.Writer(path + '.h5', 'w') as w:\n...     w.flush()"},
	{"stats", ANY(PyCFunction, writer_stats), METH_NOARGS,
         "stats($self, /)\n--\n\nThe counts of all series by their names in struct "
         "sluice_writer_counts; "
         "after a "
         "flush() they are final.\n\n>>> with sluice.Writer(path + '.h5', 'w') as w:\n...     "
         "w.stats()['stored']\n0"},
	{"_attributes", ANY(PyCFunction, writer_attributes), METH_O, NULL},
	{"_coordinate", ANY(PyCFunction, writer_coordinate), METH_VARARGS, NULL},
	{"_close", ANY(PyCFunction, writer_close), METH_NOARGS, NULL},
	{"discard", ANY(PyCFunction, writer_discard), METH_NOARGS,
         "discard($self, /)\n--\n\nClose the file as its last flush left it; a new file that has "
         "not been "
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
