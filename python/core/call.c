/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that wait and cannot be cancelled
 *
 * open, close, stat, sync and truncate, some calls of writers, and those of a store may wait for storage inside the kernel,
 * or for a server. Python runs handlers of signals on its main thread alone, so that thread has a worker make such a call, and
 * looks for signals between slices of its wait. If a handler raises, the call is left to the worker, which frees
 * all that the call has made, and ends. Other threads make the call themselves.
 */
#include "core.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define S3_TEXTS 8 /* the fields of the options from access_key to version, one behind the other */
_Static_assert(offsetof(struct sluice_s3_options, version) ==
                       offsetof(struct sluice_s3_options, access_key) +
                               (S3_TEXTS - 1) * sizeof(char *),
               "a field has come between");

/* A thread that makes calls of the main thread, one after another. */
struct worker {
	struct worker *next;
	struct call *call;
	sem_t work; /* posted when there is a call */
};

static unsigned long main_thread;
static struct worker *parked; /* without a call; only the main thread uses this list */

void call_set_main(unsigned long thread)
{
	main_thread = thread;
	parked = NULL; /* in a child of fork(): they are the parent's */
}

static int put_off_raise(void *value)
{
	PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)value), value);
	Py_DECREF((PyObject *)value);
	return -1;
}

bool call_put_off(void)
{
	PyObject *type, *value, *traceback;

	if (PyThread_get_thread_ident() != main_thread ||
	    !(PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) ||
	      PyErr_ExceptionMatches(PyExc_SystemExit)))
		return false;
	PyErr_Fetch(&type, &value, &traceback);
	PyErr_NormalizeException(&type, &value, &traceback);
	if (value && !Py_AddPendingCall(put_off_raise, value)) {
		Py_DECREF(type);
		Py_XDECREF(traceback);
		return true;
	}
	PyErr_Restore(type, value, traceback);
	return false;
}

void *call_new(size_t size, struct handle *handle, int (*make)(struct call *),
               void (*clean)(struct call *))
{
	struct call *call = calloc(1, size);

	if (!call)
		return PyErr_NoMemory();
	call->make = make;
	call->clean = clean;
	call->handle = handle;
	handle_take(handle);
	sem_init(&call->over, 0, 0);
	return call;
}

void *call_copy(struct call *call, const void *bytes, size_t n)
{
	struct copy *copy = calloc(1, sizeof(*copy) + n + 1);

	if (!copy)
		return PyErr_NoMemory();
	if (bytes)
		memcpy(copy->data, bytes, n);
	copy->next = call->copies;
	call->copies = copy;
	return copy->data;
}

const char *call_text(struct call *call, const char *name, PyObject *text)
{
	const char *utf8 = parse_text(name, text);

	return utf8 ? call_copy(call, utf8, strlen(utf8)) : NULL;
}

static int opening_copy_headers(struct opening *opening, PyObject *headers)
{
	Py_ssize_t count = headers == Py_None ? 0 : PySequence_Size(headers);
	const char **lines;

	if (count <= 0)
		return (int)count;
	lines = call_copy(&opening->call, NULL, (count + 1) * sizeof(*lines));
	for (Py_ssize_t i = 0; lines && i < count; i++) {
		PyObject *line = PySequence_GetItem(headers, i);

		lines[i] = line ? call_text(&opening->call, "headers", line) : NULL;
		Py_XDECREF(line);
		if (!lines[i])
			return -1;
	}
	opening->options.headers = lines;
	return lines ? 0 : -1;
}

int opening_copy_options(struct opening *opening, PyObject *headers, PyObject *s3)
{
	static char *names[] = {"access_key", "secret_key",     "session_token", "profile",
	                        "region",     "endpoint",       "addressing",    "version",
	                        "anonymous",  "requester_pays", "sign_payload",  NULL};
	const char *of[S3_TEXTS] = {NULL};
	struct sluice_s3_options *o = &opening->s3;
	PyObject *none = PyTuple_New(0);

	*o = (struct sluice_s3_options)SLUICE_S3_OPTIONS_INIT;
	if (s3 != Py_None && !PyDict_Check(s3))
		PyErr_Format(PyExc_TypeError, "s3: a dict is needed, not %R", Py_TYPE(s3));
	else if (none && !opening_copy_headers(opening, headers) && s3 != Py_None &&
	         PyArg_ParseTupleAndKeywords(none, s3, "|zzzzzzzzppp:s3", names, &of[0], &of[1],
	                                     &of[2], &of[3], &of[4], &of[5], &of[6], &of[7],
	                                     &o->anonymous, &o->requester_pays, &o->sign_payload))
		opening->options.s3 = o;
	Py_XDECREF(none);
	for (int i = 0; opening->options.s3 && i < S3_TEXTS; i++)
		if (of[i])
			(&o->access_key)[i] = call_copy(&opening->call, of[i], strlen(of[i]));
	return PyErr_Occurred() ? -1 : 0;
}

/* Without the GIL, too. */
void call_free(struct call *call)
{
	if (call->clean)
		call->clean(call);
	handle_give(call->handle);
	for (struct copy *copy = call->copies, *next; copy; copy = next) {
		next = copy->next;
		free(copy);
	}
	sem_destroy(&call->over);
	free(call);
}

/* Without the GIL. */
static void call_make(struct call *call)
{
	call->rc = call->make(call);
	if (call->rc && !call->message[0])
		strncpy(call->message, sluice_last_message(), sizeof(call->message) - 1);
}

/* Ends with a call that the main thread has left. */
static void *worker_run(void *argument)
{
	struct worker *worker = argument;
	struct call *call;

	pthread_detach(pthread_self());
	for (;;) {
		while (sem_wait(&worker->work))
			continue;
		call = worker->call;
		call_make(call);
		if (atomic_exchange(&call->left, true))
			break;
		sem_post(&call->over);
	}
	call_free(call);
	sem_destroy(&worker->work);
	free(worker);
	return NULL;
}

/* Has a worker make the call, and returns it; NULL if there can be none. */
static struct worker *worker_start(struct call *call)
{
	struct worker *worker = parked;
	pthread_t id;

	if (worker) {
		parked = worker->next;
	} else {
		worker = calloc(1, sizeof(*worker));
		if (!worker || sem_init(&worker->work, 0, 0) ||
		    pthread_create(&id, NULL, worker_run, worker)) {
			free(worker);
			return NULL;
		}
	}
	worker->call = call;
	sem_post(&worker->work);
	return worker;
}

/* Waits for a slice, or a signal; returns whether the call is over. Without the GIL. */
static bool call_wait_slice(struct call *call)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += SLICE_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	return !sem_clockwait(&call->over, CLOCK_MONOTONIC, &until);
}

/* Returns 0, or -1 with an exception if a signal's handler raised before the call was over: then the
 * last of both threads frees the call. *over: the worker has no call any more. */
static int call_wait(struct call *call, bool *over)
{
	bool raised = false;

	for (*over = false; !*over && !raised;) {
		Py_BEGIN_ALLOW_THREADS *over = call_wait_slice(call);
		Py_END_ALLOW_THREADS raised = !*over && PyErr_CheckSignals();
	}
	if (raised && (*over = atomic_exchange(&call->left, true))) {
		Py_BEGIN_ALLOW_THREADS while (sem_wait(&call->over)) continue;
		call_free(call);
		Py_END_ALLOW_THREADS
	}
	return raised ? -1 : 0;
}

/* Takes the result. */
static int call_end(struct call *call)
{
	if (!call->rc)
		return 0;
	raise_error(call->rc, call->message);
	call_free(call);
	return -1;
}

int call_make_here(struct call *call)
{
	Py_BEGIN_ALLOW_THREADS call_make(call);
	Py_END_ALLOW_THREADS return call_end(call);
}

int call_run(struct call *call)
{
	bool on_main = PyThread_get_thread_ident() == main_thread;
	struct worker *worker = on_main ? worker_start(call) : NULL;
	bool over;
	int rc;

	if (!worker)
		return call_make_here(call);
	rc = call_wait(call, &over);
	if (over) {
		worker->next = parked;
		parked = worker;
	}
	return rc ? rc : call_end(call);
}

PyObject *call_finish(struct call *call)
{
	if (!call || call_run(call))
		return NULL;
	call_free(call);
	Py_RETURN_NONE;
}
