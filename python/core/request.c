/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: calls of the store that may wait, which another thread makes (call.c). */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void request_clean(void *argument)
{
	struct request *request = argument;

	if (request->made)
		handle_give(request->made);
	free(request->name);
	free(request->device);
	free(request);
}

static int request_make(void *argument)
{
	struct request *request = argument;
	struct call *call = request->call;
	int rc = request->run(request);

	if (rc && request->name && !strstr(sluice_last_message(), request->name))
		snprintf(call->message, sizeof(call->message), "'%s': %s", request->name,
		         sluice_last_message());
	return rc;
}

struct request *request_new(struct handle *handle, int (*run)(struct request *request),
                            const char *name, size_t rows)
{
	struct request *request;

	if (!handle) {
		PyErr_SetString(PyExc_ValueError, "the store is closed");
		return NULL;
	}
	request = calloc(1, sizeof(*request) + rows * sizeof(request->rows[0]));
	if (request && name)
		request->name = strdup(name);
	if (request && (request->name || !name))
		request->call = call_new(CALL_OTHER, handle);
	else
		PyErr_NoMemory();
	if (!request || !request->call) {
		if (request)
			request_clean(request);
		return NULL;
	}
	request->run = run;
	request->handle = handle;
	request->call->make = request_make;
	request->call->clean = request_clean;
	request->call->argument = request;
	return request;
}

int request_run(struct request *request)
{
	return request ? call_run(request->call) : -1;
}

void request_free(struct request *request)
{
	call_free(request->call);
}

void handle_drop(struct handle *handle)
{
	if (handle) {
		Py_BEGIN_ALLOW_THREADS handle_give(handle);
		Py_END_ALLOW_THREADS
	}
}

int request_open(struct request *request, struct handle **out)
{
	struct handle *handle = request ? request->handle : NULL;

	if (!handle)
		return -1;
	handle_take(handle);
	if (request_run(request)) {
		handle_drop(handle);
		return -1;
	}
	request_free(request);
	*out = handle;
	return 0;
}

struct request *request_new_object(Store *store, bool made, int (*run)(struct request *request),
                                   const char *name)
{
	struct request *request;
	struct handle *handle;

	if (made || (store && !store->handle)) {
		PyErr_SetString(PyExc_ValueError,
		                made ? "the object is made" : "the store is closed");
		return NULL;
	}
	handle = handle_new();
	if (handle && store) {
		handle->of = store->handle;
		handle_take(handle->of);
	}
	request = handle ? request_new(handle, run, name, 0) : NULL;
	if (handle)
		handle_give(handle); /* the request has it */
	return request;
}
