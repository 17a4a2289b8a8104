/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of frames (<sluice/writer.h>), to which the package's Writer and Series add the rest. */
#ifndef SLUICE_PYTHON_WRITER_H
#define SLUICE_PYTHON_WRITER_H

#include "core.h"

#include <stddef.h>

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

/* A call of the writer. */
struct job {
	struct call call;
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

/* Copies a list of (name, kind, bytes, size): kind is "text"; "list" of `size` texts, each with a null byte; or "integers"
 * or "numbers" of `size` columns, 0: of one dimension. */
int job_attributes(struct job *job, PyObject *rows, const struct sluice_attribute **out,
                   size_t *count);
/* Frees a job that has not run, with an exception. */
int job_refuse(struct job *job);

/* Returns the handle of a writer for a call, to be given back; NULL with an exception. */
struct handle *writer_take(Writer *self);
/* Returns a job for a writer that is open; NULL with an exception. */
struct job *writer_job(Writer *self, int (*run)(struct job *job));
/* series NULL: of the whole writer. */
PyObject *writer_add_attributes(Writer *writer, sluice_series *series, PyObject *rows);
PyObject *writer_counts(Writer *writer, sluice_series *series);
/* Gives an area back as soon as nothing uses it. A child of fork() does not have it. */
void area_release(const Writer *writer, struct area *area);

#endif
