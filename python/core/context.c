/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, with their settings by the names of struct sluice_config; and handles, which contexts and
 * files share with the threads of calls. */
#include "core.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct handle *handle_new(void)
{
	struct handle *handle = calloc(1, sizeof(*handle));

	if (!handle) {
		PyErr_NoMemory();
		return NULL;
	}
	atomic_init(&handle->users, 1);
	handle->process = getpid();
	return handle;
}

void handle_take(struct handle *handle)
{
	atomic_fetch_add(&handle->users, 1);
}

void handle_give(struct handle *handle)
{
	if (atomic_fetch_sub(&handle->users, 1) != 1)
		return;
	sluice_discard(handle->file);
	sluice_writer_discard(handle->writer);
	sluice_watch_free(handle->watch);
	sluice_blob_release(handle->blob);
	sluice_collection_release(handle->collection);
	sluice_store_close(handle->store);
	if (handle->of)
		handle_give(handle->of);
	sluice_context_close(handle->context);
	free(handle);
}

struct handle *handle_withdraw(struct handle **at)
{
	struct handle *handle = *at;

	*at = NULL;
	/* In a child of fork() they are the parent's, which do not come to an end. */
	while (atomic_load(&handle->users) > 1 && handle->process == getpid()) {
		Py_BEGIN_ALLOW_THREADS struct timespec slice = {.tv_nsec = 1000000};
		nanosleep(&slice, NULL);
		Py_END_ALLOW_THREADS reads_look(); /* some may be of a file */
		if (PyErr_CheckSignals()) {
			*at = handle;
			return NULL;
		}
	}
	return handle;
}

/* clang-format off */
#define NUMBER(name) {#name, false, offsetof(struct sluice_config, name)}
#define TEXT(name)   {#name, true, offsetof(struct sluice_config, name)}
static const struct setting {
	const char *name;
	bool is_text;
	size_t at;
} settings[] = {
	TEXT(backend), TEXT(disable), NUMBER(workers), NUMBER(direct_bytes), NUMBER(max_operations),
	NUMBER(staging_bytes), TEXT(remote_backend), NUMBER(max_connections), NUMBER(http_attempts),
	NUMBER(http_backoff_ms), NUMBER(http_connect_ms), NUMBER(http_stall_ms), TEXT(ca_bundle),
	TEXT(tls_insecure), TEXT(log), NUMBER(http_retry_ms), NUMBER(http_ratelimit_ms),
	TEXT(http_headers_file), TEXT(http_bearer), TEXT(http_bearer_file), TEXT(http_netrc),
	TEXT(http_client_cert), TEXT(http_client_key), TEXT(http_hedge), NUMBER(s3_part_bytes),
	NUMBER(s3_upload_bytes), TEXT(http_etag), TEXT(tune)
};
/* clang-format on */
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static const struct setting *setting_find(PyObject *name)
{
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);

	for (size_t i = 0; text && i < SETTINGS; i++)
		if (!strcmp(settings[i].name, text))
			return &settings[i];
	if (text)
		PyErr_Format(PyExc_TypeError, "there is no setting %R", name);
	return NULL;
}

/* A number may be a text with a unit. The texts belong to the values. */
static int setting_put(const struct setting *setting, PyObject *value, struct sluice_config *config)
{
	void *at = (char *)config + setting->at;
	bool is_text = setting->is_text ? !PyBool_Check(value) : PyUnicode_Check(value);
	const char *text = is_text ? parse_text(setting->name, value) : NULL;
	PyObject *sentence;
	uint64_t number;

	if (PyErr_Occurred())
		return -1;
	if (setting->is_text) {
		*(const char **)at = text ? text : value == Py_True ? "1" : "0";
		return 0;
	}
	if (text ? !sluice_size_parse(text, &number) : parse_number(value, &number)) {
		*(size_t *)at = number;
		return 0;
	}
	if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
		return -1;
	PyErr_Clear();
	sentence = PyUnicode_FromFormat("%s: %R is no number or size", setting->name, value);
	raise_text(-EINVAL, sentence);
	Py_XDECREF(sentence);
	return -1;
}

static int context_init(Context *self, PyObject *args, PyObject *kwargs)
{
	struct sluice_config config = SLUICE_CONFIG_INIT;
	PyObject *name, *value;
	struct handle *handle;
	Py_ssize_t at = 0;
	int rc;

	if (!PyArg_ParseTuple(args, ":Context"))
		return -1;
	while (kwargs && PyDict_Next(kwargs, &at, &name, &value)) {
		const struct setting *setting = setting_find(name);

		if (!setting || (value != Py_None && setting_put(setting, value, &config)))
			return -1;
	}
	handle = self->handle ? NULL : handle_new();
	if (!handle) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError, "the context is made");
		return -1;
	}
	Py_BEGIN_ALLOW_THREADS rc = sluice_context_new(&config, &handle->context);
	Py_END_ALLOW_THREADS if (rc)
	{
		raise_last(rc);
		handle_give(handle);
		return -1;
	}
	self->handle = handle;
	return 0;
}

bool context_is_made(Context *self)
{
	if (!self->handle)
		PyErr_SetString(PyExc_ValueError, "Context.__init__() was not called");
	return self->handle;
}

static void context_dealloc(Context *self)
{
	if (self->handle) {
		Py_BEGIN_ALLOW_THREADS handle_give(self->handle);
		Py_END_ALLOW_THREADS
	}
	object_free(self);
}

static PyObject *context_settings(Context *self, PyObject *none)
{
	struct sluice_setting s = {.size = sizeof(s)};
	PyObject *all = context_is_made(self) ? PyList_New(0) : NULL;

	for (size_t i = 0; all && !sluice_context_setting(self->handle->context, i, &s); i++) {
		PyObject *row =
			Py_BuildValue("(sssss)", s.variable, s.value, s.source, s.range, s.meaning);

		if (!row || PyList_Append(all, row))
			Py_CLEAR(all);
		Py_XDECREF(row);
	}
	return all;
}

static PyObject *context_features(Context *self, PyObject *none)
{
	struct sluice_feature f = {.size = sizeof(f)};
	PyObject *all = context_is_made(self) ? PyList_New(0) : NULL;

	for (size_t i = 0; all && !sluice_context_feature(self->handle->context, i, &f); i++) {
		PyObject *row = Py_BuildValue("(sOssz)", f.name, f.usable ? Py_True : Py_False,
		                              f.detail, f.effect, f.remedy);

		if (!row || PyList_Append(all, row))
			Py_CLEAR(all);
		Py_XDECREF(row);
	}
	return all;
}

static PyMethodDef context_methods[] = {
	{"settings", ANY(PyCFunction, context_settings), METH_NOARGS,
         "settings($self, /)\n--\n\nThe settings in force: (variable, value, source, range, "
         "meaning) "
         "each."},
	{"features", ANY(PyCFunction, context_features), METH_NOARGS,
         "features($self, /)\n--\n\nFeatures of this machine: (name, usable, finding, effect, "
         "remedy) "
         "each."},
	{0},
};
static PyType_Slot context_slots[] = {
	{Py_tp_init, context_init},
	{Py_tp_methods, context_methods},
	{Py_tp_dealloc, context_dealloc},
	{0, NULL},
};
PyType_Spec context_spec = {"sluice._core.Context", sizeof(Context), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, context_slots};
