/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: calls that the writer cannot end early, which another thread makes (call.c). */
#include "writer.h"

#include <stdlib.h>
#include <string.h>

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

struct job *job_new(struct handle *handle, int (*run)(struct job *job))
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

void *job_copy(struct job *job, const void *bytes, size_t n)
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

const char *job_text(struct job *job, const char *what, PyObject *text)
{
	const char *utf8 = parse_text(what, text);

	return utf8 ? job_copy(job, utf8, strlen(utf8)) : NULL;
}

int job_texts(struct job *job, const char *what, PyObject *list, const char *const **out,
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

int job_attributes(struct job *job, PyObject *rows, const struct sluice_attribute **out,
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

int job_refuse(struct job *job)
{
	if (job)
		call_free(job->call);
	return -1;
}
