/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of objects
 *
 * Collects the entries of a list (sluice_list_open()) for the file system of fsspec, removes objects, has their server
 * copy them, and makes URLs of them. The thread of the call waits for the server, and makes the objects of Python when
 * all entries are there.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct listing {
	struct call *call;
	char *uri, *target; /* target: of a copy; the method of a URL; or NULL */
	size_t bytes;  /* of uri, which is several with a NUL between them if objects are removed */
	int recursive; /* of a copy: exclusive; of a URL: its seconds */
	char *url;     /* that was made */
	int64_t end_ns; /* of the URL */
	size_t count;
	struct sluice_entry *entries; /* with names and ETags of their own */
};

static void listing_clean(void *argument)
{
	struct listing *listing = argument;

	for (size_t i = 0; i < listing->count; i++) {
		free((char *)listing->entries[i].name);
		free((char *)listing->entries[i].etag);
	}
	free(listing->entries);
	free(listing->uri);
	free(listing->target);
	free(listing->url);
	free(listing);
}

/* Returns 0, or -ENOMEM. */
static int listing_add(struct listing *listing, const struct sluice_entry *entry)
{
	size_t n = listing->count;
	struct sluice_entry *entries = listing->entries, *last;

	if (!(n & (n - 1)))
		entries = reallocarray(entries, n ? 2 * n : 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	listing->entries = entries;
	last = &entries[n];
	*last = *entry;
	last->name = strdup(entry->name);
	last->etag = strdup(entry->etag);
	listing->count++;
	return last->name && last->etag ? 0 : -ENOMEM;
}

static int listing_make(void *argument)
{
	struct listing *listing = argument;
	struct sluice_entry entry = {.size = sizeof(entry)};
	sluice_list *list;
	int rc = sluice_list_open(listing->call->handle->context, listing->uri,
	                          &listing->call->options, listing->recursive, &list);

	if (rc)
		return rc;
	while ((rc = sluice_list_next(list, &entry)) > 0 && !atomic_load(&listing->call->left)) {
		rc = listing_add(listing, &entry);
		if (rc) {
			strcpy(listing->call->message, "no memory for a list");
			break;
		}
	}
	sluice_list_close(list);
	return rc < 0 ? rc : 0;
}

static int copying_make(void *argument)
{
	struct listing *listing = argument;

	listing->call->options.flags = listing->recursive ? SLUICE_OPEN_EXCLUSIVE : 0;
	return sluice_copy_object(listing->call->handle->context, listing->uri, listing->target,
	                          &listing->call->options);
}

static int presign_make(void *argument)
{
	struct listing *listing = argument;

	return sluice_presign(listing->call->handle->context, listing->target, listing->uri,
	                      &listing->call->options, (unsigned)listing->recursive, &listing->url,
	                      &listing->end_ns);
}

static int removals_make(void *argument)
{
	struct listing *listing = argument;
	const char *end = listing->uri + listing->bytes, **uris;
	size_t count = 1;

	for (const char *at = listing->uri; at < end; at++)
		count += !*at;
	uris = calloc(count, sizeof(*uris));
	if (!uris) {
		strcpy(listing->call->message, "no memory for the names");
		return -ENOMEM;
	}
	count = 0;
	for (const char *at = listing->uri; at <= end; at += strlen(at) + 1)
		uris[count++] = at;
	int rc = sluice_remove_many(listing->call->handle->context, uris, count,
	                            &listing->call->options, NULL, NULL);
	free(uris);
	return rc;
}

static PyObject *listing_rows(const struct listing *listing)
{
	PyObject *rows = PyList_New((Py_ssize_t)listing->count);

	for (size_t i = 0; rows && i < listing->count; i++) {
		const struct sluice_entry *e = &listing->entries[i];
		PyObject *row = Py_BuildValue("(NiKLs)", PyUnicode_DecodeFSDefault(e->name),
		                              e->is_prefix, (unsigned long long)e->length,
		                              (long long)e->modified_ns, e->etag);

		if (!row || PyList_SetItem(rows, (Py_ssize_t)i, row))
			Py_CLEAR(rows);
	}
	return rows;
}

/* Runs the function with a context, a URI, of a copy a second one, of a URL its method, the options, and a number. Returns
 * the call, for call_free(), or NULL. */
static struct call *listing_run(PyObject *args, const char *format, int (*make)(void *))
{
	struct listing *listing = calloc(1, sizeof(*listing));
	struct call *call = NULL;
	PyObject *context, *headers, *s3, *uri = NULL, *to = NULL;
	bool copies = make == copying_make || make == presign_make, removes = make == removals_make;

	if (!listing) {
		PyErr_NoMemory();
		return NULL;
	}
	if ((removes ? PyArg_ParseTuple(args, format, context_type, &context, &uri, &headers, &s3)
	     : copies
	             ? PyArg_ParseTuple(args, format, context_type, &context, PyUnicode_FSConverter,
	                                &uri, PyUnicode_FSConverter, &to, &headers, &s3,
	                                &listing->recursive)
	             : PyArg_ParseTuple(args, format, context_type, &context, PyUnicode_FSConverter,
	                                &uri, &headers, &s3, &listing->recursive)) &&
	    context_is_made((Context *)context))
		call = call_new(CALL_OTHER, ((Context *)context)->handle);
	if (removes)
		Py_XINCREF(uri);
	if (call && (listing->uri = malloc((size_t)PyBytes_Size(uri) + 1))) {
		listing->bytes = (size_t)PyBytes_Size(uri);
		memcpy(listing->uri, PyBytes_AsString(uri), listing->bytes + 1);
	}
	if (call && copies)
		listing->target = strdup(PyBytes_AsString(to));
	Py_XDECREF(uri);
	Py_XDECREF(to);
	if (!call) {
		listing_clean(listing);
		return NULL;
	}
	listing->call = call;
	call->make = make;
	call->clean = listing_clean;
	call->argument = listing;
	if (!listing->uri || (copies && !listing->target))
		PyErr_NoMemory();
	if (PyErr_Occurred() || call_copy_options(call, headers, s3)) {
		call_free(call);
		return NULL;
	}
	return call_run(call) ? NULL : call;
}

PyObject *list_objects(PyObject *module, PyObject *args)
{
	struct call *call = listing_run(args, "O!O&OOp:list_objects", listing_make);
	PyObject *rows;

	if (!call)
		return NULL;
	rows = listing_rows(call->argument);
	call_free(call);
	return rows;
}

static int removal_make(void *argument)
{
	struct listing *listing = argument;

	return sluice_remove(listing->call->handle->context, listing->uri, &listing->call->options,
	                     NULL);
}

/* Ends a call that has no result. */
static PyObject *listing_done(struct call *call)
{
	if (!call)
		return NULL;
	call_free(call);
	Py_RETURN_NONE;
}

PyObject *remove_object(PyObject *module, PyObject *args)
{
	return listing_done(listing_run(args, "O!O&OO:remove_object", removal_make));
}

PyObject *remove_objects(PyObject *module, PyObject *args)
{
	return listing_done(listing_run(args, "O!SOO:remove_objects", removals_make));
}

PyObject *copy_object(PyObject *module, PyObject *args)
{
	return listing_done(listing_run(args, "O!O&O&OO|p:copy_object", copying_make));
}

PyObject *presign(PyObject *module, PyObject *args)
{
	struct call *call = listing_run(args, "O!O&O&OOi:presign", presign_make);
	const struct listing *listing = call ? call->argument : NULL;
	PyObject *made =
		call ? Py_BuildValue("sL", listing->url, (long long)listing->end_ns) : NULL;

	if (call)
		call_free(call);
	return made;
}
