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
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

struct call *call_new(enum call_kind kind, struct handle *handle)
{
	struct call *call = calloc(1, sizeof(*call));

	if (!call) {
		PyErr_NoMemory();
		return NULL;
	}
	call->kind = kind;
	call->handle = handle;
	handle_take(handle);
	call->options = (struct sluice_open_options)SLUICE_OPEN_OPTIONS_INIT;
	call->info.size = sizeof(call->info);
	sem_init(&call->over, 0, 0);
	return call;
}

/* Without the GIL, too. */
void call_free(struct call *call)
{
	if (call->opened)
		sluice_discard(call->opened);
	if (call->clean)
		call->clean(call->argument);
	handle_give(call->handle);
	for (char **line = call->headers; line && *line; line++)
		free(*line);
	free(call->headers);
	free((char *)call->options.backend);
	free((char *)call->options.part);
	free(call->uri);
	sem_destroy(&call->over);
	free(call);
}

/* Without the GIL. */
static void call_make(struct call *call)
{
	sluice_file *file = call->handle->file;

	switch (call->kind) {
	case CALL_OPEN:
		call->options.headers = (const char *const *)call->headers;
		call->rc = sluice_open(call->handle->context, call->uri, &call->options,
		                       &call->opened);
		break;
	case CALL_CLOSE:
		call->handle->file = NULL;
		call->rc = sluice_close(file);
		break;
	case CALL_DISCARD:
		call->handle->file = NULL;
		sluice_discard(file);
		break;
	case CALL_SYNC:
		call->rc = sluice_sync(file);
		break;
	case CALL_STAT:
		call->rc = sluice_stat(file, &call->info);
		break;
	case CALL_TRUNCATE:
		call->rc = sluice_truncate(file, call->length);
		break;
	case CALL_OTHER:
		call->rc = call->make(call->argument);
		break;
	}
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
 * last of both threads frees the call. */
static int call_wait(struct call *call)
{
	bool over = false, raised = false;

	while (!over && !raised) {
		Py_BEGIN_ALLOW_THREADS over = call_wait_slice(call);
		Py_END_ALLOW_THREADS raised = !over && PyErr_CheckSignals();
	}
	if (raised && atomic_exchange(&call->left, true)) {
		Py_BEGIN_ALLOW_THREADS while (sem_wait(&call->over)) continue;
		call_free(call);
		Py_END_ALLOW_THREADS
	}
	return raised ? -1 : 0;
}

int call_run(struct call *call)
{
	bool on_main = PyThread_get_thread_ident() == main_thread;
	struct worker *worker = on_main ? worker_start(call) : NULL;

	if (!worker) {
		Py_BEGIN_ALLOW_THREADS call_make(call);
		Py_END_ALLOW_THREADS
	} else if (call_wait(call)) {
		return -1;
	} else {
		worker->next = parked;
		parked = worker;
	}
	if (!call->rc)
		return 0;
	raise_error(call->rc, call->message);
	call_free(call);
	return -1;
}
