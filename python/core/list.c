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
	struct opening
		opening;    /* its uri is several with a NUL between them if objects are removed */
	const char *target; /* of a copy; the method of a URL; or NULL */
	size_t bytes;       /* of uri */
	int recursive;      /* of a copy: exclusive; of a URL: its seconds */
	char *url;          /* that was made */
	int64_t end_ns;     /* of the URL */
	size_t count;
	struct sluice_entry *entries; /* with names and ETags of their own */
};

static void listing_clean(struct call *call)
{
	struct listing *listing = (struct listing *)call;

	for (size_t i = 0; i < listing->count; i++) {
		free((char *)listing->entries[i].name);
		free((char *)listing->entries[i].etag);
	}
	free(listing->entries);
	free(listing->url);
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

static int listing_make(struct call *call)
{
	struct listing *listing = (struct listing *)call;
	struct sluice_entry entry = {.size = sizeof(entry)};
	sluice_list *list;
	int rc = sluice_list_open(call->handle->context, listing->opening.uri,
	                          &listing->opening.options, listing->recursive, &list);

	if (rc)
		return rc;
	while ((rc = sluice_list_next(list, &entry)) > 0 && !atomic_load(&call->left)) {
		rc = listing_add(listing, &entry);
		if (rc) {
			strcpy(call->message, "no memory for a list");
			break;
		}
	}
	sluice_list_free(list);
	return rc < 0 ? rc : 0;
}

static int copying_make(struct call *call)
{
	struct listing *listing = (struct listing *)call;

	listing->opening.options.flags = listing->recursive ? SLUICE_OPEN_EXCLUSIVE : 0;
	return sluice_copy_object(call->handle->context, listing->opening.uri, listing->target,
	                          &listing->opening.options);
}

static int presign_make(struct call *call)
{
	struct listing *listing = (struct listing *)call;

	return sluice_presign(call->handle->context, listing->target, listing->opening.uri,
	                      &listing->opening.options, (unsigned)listing->recursive,
	                      &listing->url, &listing->end_ns);
}

static int removals_make(struct call *call)
{
	struct listing *listing = (struct listing *)call;
	const char *end = listing->opening.uri + listing->bytes, **uris;
	size_t count = 1;

	for (const char *at = listing->opening.uri; at < end; at++)
		count += !*at;
	uris = calloc(count, sizeof(*uris));
	if (!uris) {
		strcpy(call->message, "no memory for the names");
		return -ENOMEM;
	}
	count = 0;
	for (const char *at = listing->opening.uri; at <= end; at += strlen(at) + 1)
		uris[count++] = at;
	int rc = sluice_remove_many(call->handle->context, uris, count, &listing->opening.options,
	                            NULL, NULL);
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

/* Returns a call of the function with a context, a URI, of a copy a second one, of a URL its method, the options, and a
 * number; NULL with an exception. */
static struct listing *listing_new(PyObject *args, const char *format, int (*make)(struct call *))
{
	PyObject *context, *headers, *s3, *uri = NULL, *to = NULL;
	bool copies = make == copying_make || make == presign_make, removes = make == removals_make;
	struct listing *listing = NULL;
	int number = 0;

	if ((removes ? PyArg_ParseTuple(args, format, context_type, &context, &uri, &headers, &s3)
	     : copies
	             ? PyArg_ParseTuple(args, format, context_type, &context, PyUnicode_FSConverter,
	                                &uri, PyUnicode_FSConverter, &to, &headers, &s3, &number)
	             : PyArg_ParseTuple(args, format, context_type, &context, PyUnicode_FSConverter,
	                                &uri, &headers, &s3, &number)) &&
	    context_is_made((Context *)context))
		listing = call_new(sizeof(*listing), ((Context *)context)->handle, make,
		                   listing_clean);
	if (removes)
		Py_XINCREF(uri);
	if (listing) {
		struct call *call = &listing->opening.call;

		listing->recursive = number;
		listing->bytes = (size_t)PyBytes_Size(uri);
		listing->opening.options = (struct sluice_open_options)SLUICE_OPEN_OPTIONS_INIT;
		listing->opening.uri = call_copy(call, PyBytes_AsString(uri), listing->bytes);
		if (copies)
			listing->target = call_copy(call, PyBytes_AsString(to), PyBytes_Size(to));
		if (opening_copy_options(&listing->opening, headers, s3)) {
			call_free(call);
			listing = NULL;
		}
	}
	Py_XDECREF(uri);
	Py_XDECREF(to);
	return listing;
}

PyObject *list_objects(PyObject *module, PyObject *args)
{
	struct listing *listing = listing_new(args, "O!O&OOp:list_objects", listing_make);
	PyObject *rows;

	if (!listing || call_run(&listing->opening.call))
		return NULL;
	rows = listing_rows(listing);
	call_free(&listing->opening.call);
	return rows;
}

static int removal_make(struct call *call)
{
	struct listing *listing = (struct listing *)call;

	return sluice_remove(call->handle->context, listing->opening.uri, &listing->opening.options,
	                     NULL);
}

PyObject *remove_object(PyObject *module, PyObject *args)
{
	return call_finish((struct call *)listing_new(args, "O!O&OO:remove_object", removal_make));
}

PyObject *remove_objects(PyObject *module, PyObject *args)
{
	return call_finish((struct call *)listing_new(args, "O!SOO:remove_objects", removals_make));
}

PyObject *copy_object(PyObject *module, PyObject *args)
{
	return call_finish(
		(struct call *)listing_new(args, "O!O&O&OO|p:copy_object", copying_make));
}

PyObject *presign(PyObject *module, PyObject *args)
{
	struct listing *listing = listing_new(args, "O!O&O&OOi:presign", presign_make);
	PyObject *made;

	if (!listing || call_run(&listing->opening.call))
		return NULL;
	made = Py_BuildValue("sL", listing->url, (long long)listing->end_ns);
	call_free(&listing->opening.call);
	return made;
}
