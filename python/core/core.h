/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extension of the Python package, as its files share it.
 *
 * Threads: everything is guarded by the interpreter's lock (GIL), unless a comment says otherwise.
 * The GIL is released around every call of sluice that may wait.
 */
#ifndef SLUICE_PYTHON_CORE_H
#define SLUICE_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <semaphore.h>
#include <sluice/arrays.h>
#include <sluice/sluice.h>
#include <sluice/store.h>
#include <sluice/tensors.h>
#include <sluice/writer.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* A method with arguments of its own types, in a table of Python's. */
#define ANY(type, function) ((type)(void *)(function))

/* An interrupt is seen after so many milliseconds at the latest. */
#define SLICE_MS 50

/* Functions and types of the package that the extension calls; set by _setup(). */
struct hooks {
	PyObject *memory;    /* (buffer, writable) -> (address, bytes, object that keeps them) */
	PyObject *queue;     /* () -> the Queue for an operation of this thread */
	PyObject *watch;     /* (Queue): operations of it need the daemon thread */
	PyObject *adopt;     /* (Operation): it is over some time, and no thread will ask */
	PyObject *tick;      /* (): reads wait, and reads() has to be called until none does */
	PyObject *operation; /* the type of operations */
};
extern struct hooks hooks;

/* Raise OSError, or its subclass for the errno, with a sentence; return NULL. */
PyObject *raise_text(int error, PyObject *text);
PyObject *raise_error(int error, const char *message);
PyObject *raise_last(int error);
/* A converter of PyArg_Parse: any integer from 0 to 2**64 - 1, into a uint64_t. */
int parse_number(PyObject *number, void *out);
/* The same for a tuple of lengths. */
struct lengths {
	unsigned rank; /* as that of the tuple, if that is more than there is room for */
	uint64_t of[SLUICE_ARRAY_RANK_MOST];
};
int parse_lengths(PyObject *tuple, void *out);
PyObject *lengths_tuple(const uint64_t *lengths, unsigned rank);
/* Returns the UTF-8 of a str, which owns it; NULL with an exception that has the name. */
const char *parse_text(const char *name, PyObject *text);

/* A context, a file, a writer, or a store and what it has; the last of its users frees it: any thread, without the GIL. */
struct handle {
	_Atomic unsigned users;
	pid_t process;           /* that made it */
	sluice_context *context; /* of a context: to be freed */
	sluice_file *file;       /* of a file: to be discarded */
	sluice_writer *writer;   /* of a writer: to be discarded */
	struct handle *of;       /* of a blob or a watch: its store, which it uses */
	sluice_store *store;
	sluice_blob *blob;
	sluice_watch *watch;
	sluice_collection *collection;
	_Atomic bool busy; /* a call is on its way that has no other beside it */
};
struct handle *handle_new(void);
void handle_take(struct handle *handle);
void handle_give(struct handle *handle);
/* Takes the handle of an object away from it, so that new calls are refused, when those in progress have come to their
 * end. Returns NULL with an exception if a handler of signals raises. */
struct handle *handle_withdraw(struct handle **at);

typedef struct {
	PyObject_HEAD struct handle *handle;
} Context;
typedef struct {
	PyObject_HEAD struct handle *handle; /* NULL: closed */
	PyObject *context;
	bool remote; /* stat() does not wait */
} File;
typedef struct {
	PyObject_HEAD sluice_queue *queue;
	unsigned wanted; /* operations that the daemon thread has to end */
} Queue;

/* Whether it has a handle; false with an exception. */
bool context_is_made(Context *self);
extern PyTypeObject *context_type, *file_type, *queue_type, *operation_type, *tensors_type,
	*load_type, *frame_type, *series_type, *writer_type, *store_type, *blob_type, *watch_type,
	*collection_type, *save_type;
extern PyType_Spec context_spec, file_spec, queue_spec, operation_spec, tensors_spec, load_spec,
	frame_spec, series_spec, writer_spec, store_spec, blob_spec, watch_spec, collection_spec,
	save_spec;
/* The end of a tp_dealloc. */
void object_free(void *object);

/* Memory that an operation uses, and the object that keeps it. */
struct held {
	Py_buffer view;
	bool exported; /* by view; otherwise `keeper` */
	PyObject *keeper;
	void *data;
	size_t length;
};
/* Returns 0, or -1 with an exception. */
int held_take(PyObject *buffer, bool writable, struct held *out);
void held_give(struct held *held);
/* The layout of https://dmlc.github.io/dlpack, version 0. */
struct dlpack_tensor {
	void *data;
	int32_t device_type, device_id;
	int32_t dimensions;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};
/* Returns the bytes of a tensor; -1 with an exception, also if there are gaps. */
int64_t dlpack_bytes(const struct dlpack_tensor *t);
PyObject *parse_dlpack(PyObject *module, PyObject *capsule);
PyObject *divide_dlpack(PyObject *module, PyObject *args);
/* Makes a capsule of a tensor of DLPack, in either version, which uses the handle until it is deleted. */
PyObject *wrap_dlpack(void *tensor, bool versioned, struct handle *handle);
PyObject *find_memory(PyObject *module, PyObject *buffer);
/* add_row(rows, name, word, shape, place, address) */
PyObject *add_row(PyObject *module, PyObject *args);
/* plain_rows(tensors, at, kinds, capsule, streams, place, rows, keep): (the next at, name, value) of a tensor that is not
 * plain, or None: behind the last. */
PyObject *plain_rows(PyObject *module, PyObject *args);
/* list_objects(context, uri, headers, s3, recursive): [(name, is_prefix, length, modified_ns, etag), ...] */
PyObject *list_objects(PyObject *module, PyObject *args);
/* remove_object(context, uri, headers, s3) */
PyObject *remove_object(PyObject *module, PyObject *args);
PyObject *remove_objects(PyObject *module, PyObject *args);
/* copy_object(context, from, to, headers, s3, exclusive=False) */
PyObject *copy_object(PyObject *module, PyObject *args);
/* presign(context, uri, method, headers, s3, seconds): (url, end_ns) */
PyObject *presign(PyObject *module, PyObject *args);
/* The files of a Tensors; they are open as long as it is there. */
sluice_tensors *tensors_of(PyObject *tensors);
/* The word of safetensors for a type, or one like it; NULL: there is no such type. */
const char *type_word(int type);
/* The type with that word, or a number that no type has. */
int type_of_word(const char *word);

/* In a list of reads; next is NULL: in none. */
struct link {
	struct link *next, *previous;
};
/* Of reads into bytes of their own: while one waits it has no bytes, and while it begins a thread submits it. */
enum read_state { READ_NONE, READ_NEW, READ_WAITS, READ_BEGINS, READ_RUNS };
#define READ_CANCELLED "the read was cancelled before it began"

/* An operation in flight; outlives the Operation that was made for it. */
struct pending {
	sluice_op *op;           /* NULL: not submitted */
	struct operation *owner; /* NULL: dropped */
	File *file;              /* with a reference */
	struct opening
		*open;   /* of the operation that opens `file`, with `handle` for it; or NULL */
	Queue *queue;    /* with a reference; NULL: that of the context, awaited by its call */
	bool wanted;     /* counted in queue->wanted */
	PyObject *bytes; /* that it reads into, or NULL */

	/* Of a read into bytes of its own. */
	enum read_state state;
	struct link link;
	size_t length;
	uint64_t offset;
	struct handle *handle; /* of the file, which cannot be closed while it waits */
	bool cancelled;        /* while it begins */

	unsigned
		rank; /* of a box, whose start and length in each dimension are the offsets; or 0 */
	size_t count;
	struct held held[];
};
struct pending *pending_new(File *file, size_t count);
void pending_free(struct pending *pending);
/* Submits extents over pending->held, at these offsets, of a file that is open. Returns 0, -EBUSY while max_operations are
 * in flight, or another error. */
int pending_try(struct pending *pending, int kind, const uint64_t *offsets, bool on,
                sluice_stream stream);
/* Makes a transfer: waits for it in slices, and returns the result of the call. On an interrupt it is cancelled and given to
 * the daemon's care. Frees pending, or gives it away. */
PyObject *pending_run(struct pending *pending, int kind, const uint64_t *offsets);
/* Starts a transfer, and returns its Operation, which owns pending. Frees pending if it fails. */
PyObject *pending_start(struct pending *pending, int kind, const uint64_t *offsets, bool on,
                        sluice_stream stream);
/* Starts to open a file, and returns the Operation, which owns pending. NULL with an exception. */
PyObject *pending_open(struct pending *pending);
/* Keep an operation, and give it back. */
void operation_use(struct operation *self);
void operation_give(struct operation *self);
/* Ends an operation with n bytes, or an error, and calls back. */
void operation_end(struct operation *self, int64_t n, const char *message);
/* Calls callback(operation); what it raises goes to sys.unraisablehook. */
void call_back(PyObject *callback, PyObject *operation);

/* Returns whether a new read has no room; -1 with an exception. */
int read_has_to_wait(const struct pending *pending);
/* Takes the bytes of a new read: 0; 1: it waits; -1 with an exception, and it may wait. All other operations: 0. */
int read_enter(struct pending *pending);
/* A read is not in flight any more, or does not wait. */
void read_leave(struct pending *pending);
/* Gives the handle of its file back, which may be closed then. */
void read_let_go(struct pending *pending);
/* Begins reads that wait, as far as there is room. Keeps an exception. Runs code of Python, as reads_look(). */
void reads_begin(void);
/* Looks for ends that no thread has seen, now and then, and begins reads. Keeps an exception. */
void reads_look(void);
/* In a child of fork(): all reads are the parent's. */
void reads_reset(void);
/* reads(): looks, and returns (reads that wait, bytes in flight, their most); reads(most) sets it. */
PyObject *reads(PyObject *module, PyObject *args);

/* A call that may wait and cannot be cancelled: the first member of a struct with its arguments and results, of which copies
 * are the call's, since a thread may have to end it alone. */
struct call {
	struct handle *handle; /* used until the call is over */
	/* Both without the GIL. */
	int (*make)(struct call *call);
	void (*clean)(struct call *call); /* frees the results that nobody has taken; or NULL */
	struct copy {
		struct copy *next;
		max_align_t data[];
	} * copies;
	/* Results, valid when it is over. */
	int rc;
	char message[512];

	sem_t over;
	_Atomic bool left; /* by the caller, or by the thread that made the call */
};
/* Returns a struct of that size, which begins with the call; NULL with an exception. */
void *call_new(size_t size, struct handle *handle, int (*make)(struct call *),
               void (*clean)(struct call *));
void call_free(struct call *call);
/* Return memory of the call with the bytes, of NULL with zeros; and with a text. NULL with an exception. */
void *call_copy(struct call *call, const void *bytes, size_t n);
const char *call_text(struct call *call, const char *name, PyObject *text);

/* A call with a URI and the options of an open. */
struct opening {
	struct call call;
	const char *uri;
	struct sluice_open_options options;
	struct sluice_s3_options s3;
	sluice_file *opened; /* of a file: the result */
};
/* Takes copies of lines and of a dict with fields of struct sluice_s3_options, or None each, into the options. Returns 0, or -1
 * with an exception. */
int opening_copy_options(struct opening *opening, PyObject *headers, PyObject *s3);

/* Finds a device by its name; "cpu": -1. Returns 0, or -1 with an exception. */
int parse_device(const char *name, int *device);
/* Reads a bytearray of rows, whose memory the caller keeps. NULL with an exception. */
struct sluice_collection_tensor *call_tensors(struct call *call, PyObject *rows, size_t *count);

/* Makes the call; on the main thread by a thread of its own, so that signals are seen. Returns 0, or
 * -1 with an exception: then the call is freed. */
int call_run(struct call *call);
/* Makes the call on this thread: signals are not seen meanwhile. Returns as call_run(). */
int call_make_here(struct call *call);
/* The same for a call without a result, which is freed; None, or NULL with an exception. */
PyObject *call_finish(struct call *call);
/* Has the interpreter raise the exception soon, if it is that of an interrupt and the caller can raise none; returns whether
 * it will. On the main thread, where handlers of signals run. */
bool call_put_off(void);
void call_set_main(unsigned long thread);

#endif
