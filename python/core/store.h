/* SPDX-License-Identifier: Apache-2.0 */
/* The store (<sluice/store.h>): stores, blobs and watches, to which the package adds the rest (_store.py). */
#ifndef SLUICE_PYTHON_STORE_H
#define SLUICE_PYTHON_STORE_H

#include "core.h"

/* Alike, so that they share what closes them. */
typedef struct {
	PyObject_HEAD struct handle *handle; /* NULL: closed */
} Store, Watch, Collection;
typedef struct {
	PyObject_HEAD struct handle *handle; /* NULL: released */
	PyObject *name;
	Py_ssize_t exports;
	bool released; /* once there are no exports */
} Blob;

/* A call with its arguments and results. */
struct request {
	struct call call;
	int (*run)(struct request *request);
	struct handle *made;    /* of a seal: the blob, mapped for reading only */
	struct handle *context; /* of an origin */
	struct sluice_origin origin;
	const char *name, *device; /* NULL: none */
	int timeout_ms;
	uint64_t bytes, cursor;
	struct sluice_blob_options options;
	struct sluice_blob_metadata metadata;
	struct sluice_watch_event event;
	bool listing;
	bool here; /* its arguments are the caller's, who does not leave it */
	/* Of a collection. */
	bool attaches, copies; /* the data of the tensors */
	struct sluice_collection_options set;
	struct sluice_collection_tensor *tensors;
	size_t tensor_count;
	sluice_tensors *files; /* NULL: it is made of tensors */
	int place; /* of the files, or of the device that is to read a collection; -1: the host */
	struct handle *store; /* of an attach at kept addresses; NULL */
	/* Of a copy. */
	struct sluice_collection_target *targets;
	size_t target_count;
	int count;
	struct sluice_blob_info rows[];
};

/* Returns a request with a copy of the name, which may be NULL; NULL with an exception. */
struct request *request_new(struct handle *handle, int (*run)(struct request *request),
                            const char *name, size_t rows);
/* Makes the request. Returns 0, or -1 with an exception: then the request is freed. */
int request_run(struct request *request);
/* Waits, without the GIL, until no other call of this handle is on its way, also one that was interrupted; storing false
 * in `busy` ends that. */
void handle_lock(struct handle *handle);
/* Frees a handle without the GIL. */
void handle_drop(struct handle *handle);
/* Makes a request that opens an object, and gives the object its handle, of a store or NULL. Consumes the request.
 * Returns 0, or -1 with an exception. */
int request_open(struct request *request, struct handle **out);
/* Returns a request that makes an object, of a store or NULL, whose handle is its own; NULL with an exception. */
struct request *request_new_object(Store *store, bool made, int (*run)(struct request *request),
                                   const char *name);
PyObject *device_name(int device);
/* Reads an origin, (context, URI, device), for the request. Returns 0, or -1 with an exception. */
int request_origin(struct request *request, PyObject *origin);
/* Gets the blob, or attaches to the collection, of that name. */
int run_get(struct request *request);
PyObject *store_close(Store *self, PyObject *none);
void store_dealloc(Store *self);

#endif
