/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice: asynchronous reads and writes between storage and memory.
 *
 * A context holds the settings and the threads. A file is bytes at offsets behind a URI. An
 * operation is one read or write in flight. A call that submits an operation never waits for
 * storage. When an operation is over, whether it succeeded, failed or was cancelled, nothing
 * touches the caller's buffer again, and either all bytes were moved or the operation says what
 * went wrong.
 *
 * Conventions. A call returns 0 (or a count, where its comment says so) or a negative errno. The
 * sentence that explains an error is sluice_op_message() for an operation and sluice_last_message()
 * for every other call. Results are the last arguments and are written only on success. Sizes and
 * offsets are in bytes; times are in milliseconds unless a name says otherwise. -EINPROGRESS: it
 * goes on, and the program calls again. -ETIMEDOUT: it was given up, and nothing is running.
 * -EAGAIN: there is nothing, or no room, thread or place, now, and nothing was begun; of
 * <sluice/frames.h>: read again. NULL where an argument has to be there is -EINVAL. Every
 * destructor accepts NULL. In a child of fork() every call with a handle of its parent returns
 * -ECHILD, and a destructor does nothing; the child may make contexts of its own. It must not use
 * devices if its parent has used them (-ECHILD). It may wait for ever over https if a thread of its
 * parent was in OpenSSL at the fork, because locks of OpenSSL stay locked in the child.
 *
 * Threads. Every call may be made from any thread at any time, but a handle must not be used while
 * another thread destroys it. sluice never runs the caller's code on its own threads, never prints,
 * and never exits. Its threads block all signals.
 *
 * Descriptors. Contexts and files have descriptors of their own, all of them close-on-exec. The
 * program must not close them, as closefrom() would: operations would wait for ever, or would move
 * bytes of another file that has got the number.
 */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_context sluice_context;
typedef struct sluice_file sluice_file;
typedef struct sluice_op sluice_op;
typedef struct sluice_queue sluice_queue;
/*
 * A stream of a device; a cudaStream_t or hipStream_t can be passed as it is. 0 is the default
 * stream of the device that holds the memory of the same call; (sluice_stream)2 in CUDA is the
 * calling thread's default stream. See <sluice/device.h>.
 */
typedef void *sluice_stream;

/*
 * The version of these headers. Until 1.0 a program must be compiled again for each minor version.
 */
#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 2
#define SLUICE_VERSION_PATCH 0

/* Returns the version of the library that is running, such as "0.2.0". */
SLUICE_API const char *sluice_version(void);

/* Settings of a context, and options of an opening: below. NULL takes the defaults. */
struct sluice_config;
struct sluice_open_options;

/* ------------------------------------------------------------------------------------ a program */

/* These carry a program, in the order of use; all else is choice. README.md has one. */

/*
 * Makes a context and starts its threads. If config is NULL, the environment and the defaults
 * apply.
 *
 * Returns 0, or
 *   -EINVAL   a setting is wrong; sluice_last_message() names it
 *   -ENOSYS   the backend "uring" or "cufile" was requested and io_uring or cuFile is missing
 *   -ENOMEM, -EAGAIN   no memory, or no thread could be started
 */
SLUICE_API int sluice_context_new(const struct sluice_config *config, sluice_context **out);

/*
 * Opens the object that uri names: a path, file:///path with percent-escapes, an object on a web
 * server (http://host/path or https://host/path), an object of S3 (s3://bucket/key), or a blob of
 * the store (store://name). If o is
 * NULL, the file is opened for reading. This call may wait for storage.
 *
 * Local files: regular files and block devices can be opened, and /dev/null for writing.
 *
 * Remote objects: an object is read as it was when it was opened; if it changes, reads fail with
 * -ESTALE. It can be written as a whole, front to back, with REPLACE or with WRITE and CREATE; the
 * server has it when sluice_close() succeeds. By http and https a write is -ENOTSUP from memory of
 * a device, in stream order, or without expected_size. docs/remote.md lists the errors that are
 * retried and the meaning of each error.
 *
 * Objects of S3: the key is the bytes behind "bucket/", as they are: nothing in them is an escape,
 * and '?' and '#' belong to it. Such a file is a remote object in every respect.
 *
 * Blobs: store://NAME is the blob of that name (see <sluice/store.h>), with percent-escapes for
 * '%', '?' and '#'. It is read as sluice_blob_get() gets it. Writing a blob means making it: with
 * CREATE, which takes the name now, or with REPLACE, and with expected_size, its size; 0 is a file
 * without bytes, to which nothing is written (-EFBIG).
 * sluice_close() seals it; sluice_discard() leaves nothing of it. Bytes that were not written are
 * undefined, as after sluice_blob_create(). The name may be followed by '?' and parameters that are
 * separated by '&':
 *   socket=PATH             the daemon's socket; default: as sluice_store_open() with NULL
 *   wait_ms=N               to read: wait for the seal
 *   origin=URI              to read, with wait_ms: as struct sluice_origin
 *   id=N                    to read: instead of a name
 *   device=N                to write: the number or the name of a device
 *   cache, pin, alone       to write: as enum sluice_blob_flags
 * All files of a process that belong to the same daemon share a connection. The bytes are memory,
 * and sluice_stat() says where it is. If that is memory of a device, operations that are awaited on
 * the host read and write it from any memory. Operations in stream order need a stream of that
 * device and its own or pinned memory (else -ENOTSUP), and at most 64 extents (else -E2BIG).
 *
 * Returns 0, or
 *   -EISDIR            a directory
 *   -ESPIPE            a FIFO, a socket or another character device, which have no offsets
 *   -EPROTONOSUPPORT   a scheme that sluice does not know
 *   -EINVAL            contradictory flags, or a malformed URI
 *   the errors of open(2)
 *   for store://, the errors of the store, and
 *   -ENOTSUP           DURABLE
 *   -EPERM             WRITE alone, because a sealed blob does not change
 *   -EFBIG             (of a write) the write goes beyond the end of the blob
 */
SLUICE_API int sluice_open(sluice_context *ctx, const char *uri,
                           const struct sluice_open_options *o, sluice_file **out);

/*
 * Starts reading n bytes at `offset` into dst and returns at once.
 *
 * The result of the operation is the number of bytes read: n, or less if the file ends before
 * offset + n. If bytes that existed when the operation began are missing when they are read, the
 * operation fails with -EIO. Until the operation is over dst belongs to sluice; after a failure its
 * contents are undefined.
 *
 * An operation begins when all earlier operations on the same bytes are over and the length of the
 * file is known. On a file system that may have to ask a server, such as NFS or FUSE, a thread of
 * sluice asks for the length after the submission.
 *
 * Operations on the same file, through any handle of the same context, keep their order of
 * submission where their bytes overlap and at least one operation is a write. All others run in any
 * order.
 *
 * If out is NULL, the operation has no handle, and its error is kept on the file and returned by
 * sluice_sync() or sluice_close().
 *
 * Returns 0, or
 *   -EBADF    the file was not opened for reading
 *   -EINVAL   the range ends beyond INT64_MAX, or dst is NULL
 *   -EAGAIN   the file was opened NONBLOCK and the submission would have to wait
 *   -ENOMEM
 */
SLUICE_API int sluice_read(sluice_file *file, void *dst, size_t n, uint64_t offset,
                           sluice_op **out);

/*
 * Starts writing n bytes of src at `offset` and returns at once. src must not change until the
 * operation is over. The result of the operation is n. The bytes are then written, but not yet on
 * stable storage: see sluice_sync(). Everything else is as for sluice_read().
 *
 * A write of SLUICE_DIRECT_BYTES or more that extends a local file sets the new length first,
 * because direct writes beyond the end of a file are slow, together with that of submitted writes
 * that follow it, each where the one before ends; so does a request of extents that follow each
 * other, one of them as long. If one fails or is cancelled, or the process is killed, the file
 * keeps that length, with zeros where nothing was written, so its length does not tell how much was
 * written. With SLUICE_OPEN_REPLACE a file becomes visible only when it is complete.
 */
SLUICE_API int sluice_write(sluice_file *file, const void *src, size_t n, uint64_t offset,
                            sluice_op **out);

/*
 * Waits until the operation is over: for ever if timeout_ms is negative, not at all if it is 0. May
 * be called again. No queue reports an operation after its end was returned here.
 *
 * Returns the number of bytes moved, or
 *   -EINPROGRESS   the operation is still running
 *   -ECANCELED     it was cancelled
 *   the error of the operation
 */
SLUICE_API int64_t sluice_wait(sluice_op *op, int timeout_ms);

/*
 * Returns the sentence that explains the failure of the operation, or "" while it runs or if it
 * succeeded. Valid until sluice_op_free().
 */
SLUICE_API const char *sluice_op_message(const sluice_op *op);

/*
 * Returns the sentence that explains the last call of this thread that failed without an operation
 * to carry the error. Never NULL; valid until the thread's next call.
 */
SLUICE_API const char *sluice_last_message(void);

/* Frees the handle. The operation continues, and so does its use of the buffer. */
SLUICE_API void sluice_op_free(sluice_op *op);

/*
 * Waits for the file's operations, commits the data that REPLACE held back, and closes the file.
 * The handle is gone in any case.
 *
 * With REPLACE, and for a blob that is being made, nothing is committed after an error, and the
 * name shows its old contents. In these cases the first write, sluice_truncate() or sluice_sync()
 * that failed or was cancelled counts even if its handle or sluice_sync() has already reported the
 * error, and even if the same bytes were written again since. Requests that were refused before
 * they began do not count: those that sluice_submit() did not accept, and -ENOTSUP and -EPERM of
 * sluice_truncate(). A program that wants such a file in spite of an error opens it without
 * REPLACE.
 *
 * Returns 0, the first error of an operation without a handle that no other call has reported, or
 * the error of the commit. sluice_last_message() has the sentence.
 */
SLUICE_API int sluice_close(sluice_file *file);

/*
 * Stops the threads and frees the context; NULL is allowed. Handles of operations that are over
 * stay valid until sluice_op_free().
 *
 * Returns 0, or
 *   -EBUSY   files are open; nothing was done
 */
SLUICE_API int sluice_context_close(sluice_context *ctx);

/* -------------------------------------------------------------------------------------- opening */

enum sluice_open_flags {
	SLUICE_OPEN_READ = 1 << 0,
	SLUICE_OPEN_WRITE = 1 << 1,
	/* Creates the file if it does not exist. */
	SLUICE_OPEN_CREATE = 1 << 2,
	/* With CREATE or REPLACE: fails with -EEXIST if the file exists. On a file system with
	 * neither renameat2() nor hard links the name of a REPLACE shows an empty file for a moment
	 * before the new file takes it; a crash in that moment leaves it. */
	SLUICE_OPEN_EXCLUSIVE = 1 << 3,
	/* With WRITE: drops the contents of the file. */
	SLUICE_OPEN_TRUNCATE = 1 << 4,
	/* Writes a new file that takes the name, atomically and complete, when sluice_close()
	 * succeeds; until then the name shows the old contents. The new file keeps the owner and
	 * group of the old file as far as the process is allowed to set them. After a write,
	 * truncate or sync that failed or was cancelled the new file never takes the name:
	 * sluice_close() fails. Implies WRITE and CREATE. */
	SLUICE_OPEN_REPLACE = 1 << 5,
	/* Makes sluice_close() do the work of fsync(), for the name as well. */
	SLUICE_OPEN_DURABLE = 1 << 6,
	/* Submission returns -EAGAIN where it would wait for a bounded resource. */
	SLUICE_OPEN_NONBLOCK = 1 << 7,
	/* https: uses HTTP/2, which shares a connection, if the server has it. HTTP/1.1 is faster
	 * for bulk data. */
	SLUICE_OPEN_HTTP2 = 1 << 8,
	/* http, https: reads an object that is stored with a Content-Encoding as it is stored,
	 * without decoding. Without this flag such an object fails with -EPROTO. No effect on local
	 * files. */
	SLUICE_OPEN_AS_STORED = 1 << 9,
	/* Local files: reads leave no pages in the page cache that were not there before, for files
	 * that are read once, and for machines whose GPU shares the host's memory. Extents of
	 * SLUICE_DIRECT_BYTES or more bypass the page cache where they are aligned, as always;
	 * bytes around and below them pass through it, and their pages are dropped. Pages that are
	 * there are read from there and stay, unless they lie among others that are dropped. Small
	 * reads of bytes that are not there become slower, because nothing is read ahead. No effect
	 * on writes, on files in memory, as of tmpfs, and on transfers by cuFile. */
	SLUICE_OPEN_UNCACHED = 1 << 10,
	/* Objects of S3, with EXCLUSIVE: the object is one of many that the program writes. That it
	 * exists may be the -EEXIST of sluice_close() then, and not of sluice_open(): an object
	 * with an expected_size that is not longer than a part takes a single request, once the
	 * server has shown to this context that it keeps objects from a PUT with If-None-Match. To
	 * find that out, the first object, and a few later ones, are sent twice. docs/s3.md says
	 * more. */
	SLUICE_OPEN_MANY = 1 << 11,
};

/*
 * Options of s3 files. Start from SLUICE_S3_OPTIONS_INIT. A field that is NULL is taken from the
 * environment, then from the user's profile in ~/.aws, as other programs of S3 do; docs/s3.md
 * lists the sources. sluice_open() copies the texts. Keys are in no message and no log.
 */
struct sluice_s3_options {
	/* Required: sizeof(struct sluice_s3_options). SLUICE_S3_OPTIONS_INIT sets it. */
	size_t size;
	/* AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY: an access key. The token of its session, if it
	 * has one, is taken with it. */
	const char *access_key, *secret_key, *session_token;
	/* AWS_PROFILE: a profile. If it is given here, keys in the environment are not used.
	 * Default: "default". */
	const char *profile;
	/* AWS_REGION, AWS_DEFAULT_REGION: the region of the bucket. If the bucket is in another,
	 * sluice_open() asks there. Default: "us-east-1". */
	const char *region;
	/* AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL: "http://host:port" or "https://host" of a server
	 * that speaks S3. Default: AWS in the region. */
	const char *endpoint;
	/* Whether the bucket is part of the host ("virtual") or of the path ("path"). Default:
	 * virtual for AWS where the bucket's name allows it, path for an endpoint. */
	const char *addressing;
	/* The id of a version of the object. Default: the latest. */
	const char *version;
	int anonymous;      /* 1: requests are not signed, as public objects can be read */
	int requester_pays; /* 1: the sender of the requests pays for them */
	/* 1: the digest (SHA-256) of each body that is sent is part of the signature, so that no
	 * other body is accepted, also over http. Default: UNSIGNED-PAYLOAD, as TLS protects
	 * bodies. */
	int sign_payload;
};
#define SLUICE_S3_OPTIONS_INIT                                                                    \
	{                                                                                         \
		sizeof(struct sluice_s3_options), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
			0, 0, 0                                                                   \
	}

/* Options of sluice_open(). Start from SLUICE_OPEN_OPTIONS_INIT. */
struct sluice_open_options {
	/* Required: sizeof(struct sluice_open_options). SLUICE_OPEN_OPTIONS_INIT sets it. */
	size_t size;
	/* Of enum sluice_open_flags. Default (0): SLUICE_OPEN_READ. */
	unsigned flags;
	/* Permissions of a file that is created, less the umask. Default (0): 0666. */
	unsigned mode;
	/* For a file to be written: its final length in bytes, so that its space is reserved now or
	 * refused with -ENOSPC. Required for store://, where it is the size of the blob, and for
	 * http and https, unless the object is empty. For a remote file to be read, only with
	 * first_bytes: the length that a list said, so that the opening asks for the object and not
	 * for a range of it, which some servers answer sooner. Default (0): unknown. */
	uint64_t expected_size;
	/* The backend of this file, as in struct sluice_config; "easy" or "multi" for remote files.
	 * Default (NULL): the backend of the context. */
	const char *backend;
	/* With REPLACE, for a local file: the name, in the folder of the file, under which the
	 * bytes are written until sluice_close() succeeds. A file of that name is opened with the
	 * bytes that an earlier attempt left, and it stays if it is not committed, unless it is
	 * empty. sluice_open() then fails with -EBUSY if another process has it open in this way,
	 * and with -EPERM if it is not a regular file or does not belong to this user alone.
	 * Default (NULL): a new file, of which nothing stays. */
	const char *part;
	/* For remote files: header lines "Name: value", then NULL, that each request carries to the
	 * origin (scheme, host, port) of the URI, and to no other server. They are in no message
	 * and no log. A line that is malformed, or that sluice sets itself (Host, Range, If-Match,
	 * Accept-Encoding, Content-Length, ...), is -EINVAL. sluice_open() copies them. Default
	 * (NULL): those of SLUICE_HTTP_HEADERS_FILE alone, which are sent in any case. */
	const char *const *headers;
	/* For s3 files. Default (NULL): all of it from the environment and the user's profile. */
	const struct sluice_s3_options *s3;
	/* For remote files that are read: the opening asks for so many bytes from the begin of the
	 * object, at most SLUICE_FIRST_BYTES, and the file keeps them: reads within them cost no
	 * request, and others ask for the rest. Many small objects, read as a whole, then take one
	 * request each and not two. Default (0): none. */
	uint64_t first_bytes;
	/* For an HDF5 file that is read, local or on a server: the path of a dataset in it. The
	 * elements are the bytes of this file (see <sluice/arrays.h>). sluice_open() copies it.
	 * Default (NULL): the bytes are those of the file. */
	const char *dataset;
};
#define SLUICE_FIRST_BYTES (64 << 20)
#define SLUICE_OPEN_OPTIONS_INIT                                                             \
	{                                                                                    \
		sizeof(struct sluice_open_options), 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL \
	}

/*
 * Asks the source of credentials for keys, as opening an object does: a service, a command, or
 * nothing if the keys are in the options, the environment or a file. options may be NULL. May wait
 * some seconds. Any thread.
 *
 * Returns 0 if there are keys, which no server has judged yet; or with a sentence
 *   -EACCES   no source has any
 *   -ENOTSUP  only a source has keys that sluice cannot ask
 *   another -errno of the source
 */
SLUICE_API int sluice_s3_check(const sluice_context *ctx, const struct sluice_s3_options *options);

/*
 * Begins to open a file as sluice_open() does, and returns at once; its operation ends with the
 * file. An object of http, https or s3 that is read takes no thread until then, unless credentials
 * have to be asked for; other files are opened by threads of the context, 64 at most, and so are
 * datasets, when their file is open. uri, o and all that they point to have to stay as they are
 * until the operation is over. queue reports the operation, as that of struct sluice_request, or
 * NULL; sluice_op_user() returns user. Any thread.
 *
 * sluice_wait() returns 0 when the file is open, or the errors of sluice_open(). sluice_cancel()
 * ends an open early where it waits for a server of http, https or s3, or for a thread.
 * sluice_op_file() then gives the file, which is the caller's, once; sluice_op_free() discards a
 * file that was not taken. While it runs, an open keeps its context as an open file does.
 *
 * Returns 0, or a negative errno if no operation was begun: *out is NULL then. sluice_op_file()
 * returns 0, or
 *   -EINPROGRESS   the operation is still running
 *   -EINVAL        it opens no file, or the file has been taken
 *   the error of the operation
 */
SLUICE_API int sluice_open_start(sluice_context *ctx, const char *uri,
                                 const struct sluice_open_options *o, sluice_queue *queue,
                                 void *user, sluice_op **out);
SLUICE_API int sluice_op_file(sluice_op *op, sluice_file **out);

/*
 * Writes a form of the URI that is safe to display: user, password and query, which may be secrets,
 * are removed. A store:// URI contains no secrets and is left unchanged. Writes at most `size`
 * bytes, including a terminating zero.
 *
 * Returns the length of the whole text, as snprintf() does, or
 *   -EINVAL, -ENOMEM
 */
SLUICE_API int sluice_uri_name(const char *uri, char *text, size_t size);

/*
 * Reads a size in bytes from text: a number, optionally followed by B or by a power of 1024 (K, M,
 * G or T of either case, alone or with B or iB behind it). A fraction is allowed before K, M, G and
 * T, and so is a blank before the unit: "4096", "4k", "1.5 GiB" and "1TB" are sizes. The settings,
 * the command and the daemon use this form.
 *
 * Returns 0, or
 *   -EINVAL   text is not a size
 *   -ERANGE   the size is more than UINT64_MAX
 */
SLUICE_API int sluice_size_parse(const char *text, uint64_t *out);

/* ----------------------------------------------------------------------------------------- file */

enum sluice_stat_flags {
	SLUICE_STAT_SIZE_UNKNOWN = 1 << 0, /* as in /proc: read on until a read returns 0 */
	SLUICE_STAT_WHOLE_ONLY = 1 << 1,   /* a server without ranges: read from front to back */
};
struct sluice_file_info {
	size_t size;            /* in: sizeof(struct sluice_file_info) */
	unsigned flags;         /* of enum sluice_stat_flags */
	unsigned mode;          /* as st_mode; 0 if there is none */
	uint64_t length;        /* bytes in the file; 0 if unknown */
	uint64_t allocated;     /* bytes of storage; less than length for a sparse file */
	int64_t modified_ns;    /* last change, nanoseconds since 1970; 0 if unknown */
	uint32_t direct_offset; /* for direct I/O: alignment of offset and length; 0: none */
	uint32_t direct_memory; /* for direct I/O: alignment of the buffer; 0: none */
	/* "auto", "posix", "uring", "cufile", "easy", "multi" or "store"; a constant. */
	const char *backend;
	/* The version of a remote object, the id of a blob, or "". */
	char etag[128];
	/* The bytes themselves, if the file is memory, as for store://: `length` bytes, readable
	 * until the file is closed. If the file was opened for writing they may be written before
	 * sluice_close(); all writers must have finished when it is called. Otherwise NULL. */
	void *memory;
	int device; /* with this memory, a number of <sluice/device.h>; -1: the host */
	/* The complete ETag of a remote object. Owned by the file, valid until it is closed. NULL:
	 * none. */
	const char *full_etag;
	/* Where a remote object was found, if its server redirected: the URL as sluice_uri_name()
	 * prints it, without its query. Owned as full_etag. NULL: at its own URI. */
	const char *final_uri;
	/* For so many milliseconds from now the server of a remote file wants no requests (status
	 * 429), and operations wait; 0: it takes requests. */
	uint64_t limited_ms;
	/* The CRC-32C of all bytes of an object of S3, in base64, as its server says. Owned as
	 * full_etag. NULL: it says none. */
	const char *crc32c;
};
/* Describes the file as it is now. May wait for storage. */
SLUICE_API int sluice_stat(sluice_file *file, struct sluice_file_info *out);

/*
 * Waits until all operations that were submitted on this file before are over, then for stable
 * storage, as fsync() does. sluice_close() describes the effect of an error on a file that was
 * opened with REPLACE.
 *
 * Returns 0, or the first error of an operation without a handle; each such error is returned once.
 */
SLUICE_API int sluice_sync(sluice_file *file);

/*
 * Sets the length of the file in bytes. Takes effect after all operations that were submitted
 * before it and before those submitted after it. Waits until it is done.
 */
SLUICE_API int sluice_truncate(sluice_file *file, uint64_t length);

/*
 * Waits for the file's operations and closes the file without a commit. With REPLACE nothing
 * remains of the data written; without it the call is sluice_close() with the result ignored.
 */
SLUICE_API void sluice_discard(sluice_file *file);

/* ------------------------------------------------------------------------------------ operation */

/* A range of a file and its address in memory. */
struct sluice_extent {
	void *data;      /* a write does not modify it */
	size_t length;   /* bytes; 0 is allowed */
	uint64_t offset; /* bytes from the start of the file; offset + length <= INT64_MAX */
};

/*
 * Start a read or a write in stream order and return at once.
 *
 * Memory of devices: every data pointer in this header may point to memory of a device. Within an
 * operation all memory belongs to the same device, or all of it to the host (else -EINVAL).
 *
 * Stream order: the transfer comes after all work that the stream was given before, and before all
 * work that it is given later. A kernel behind sluice_read_on() therefore sees the data, and a
 * kernel behind sluice_write_on() may overwrite the source. No thread of the host waits and nothing
 * has to be synchronised. The operation tells whether a write has arrived and whether anything
 * failed; its end may be awaited like that of any other operation. A read beyond the end of the
 * file fails with -EIO. An operation that fails or is cancelled never blocks its stream: the stream
 * goes on, and the destination of the read has undefined contents.
 *
 * Waits: the call does not wait for storage. It may wait
 *   - for a place among SLUICE_MAX_OPERATIONS, as every submission;
 *   - for earlier operations in stream order to release pinned memory (SLUICE_STAGING_BYTES) or
 *     places in the queue of the device;
 *   - for earlier overlapping operations on memory of a device that are awaited on the host;
 *   - if cuFile moves either operation, for earlier overlapping operations on other streams.
 * A file that was opened with NONBLOCK returns -EAGAIN instead, and -E2BIG for an operation that
 * could never be enqueued at once.
 *
 * Lifetime: the stream, and everything that the driver needs for it, must outlive the operation.
 * Host memory belongs to the operation from the moment at which the stream reaches it until the
 * stream has passed it.
 *
 * Return 0, the errors of sluice_read() and sluice_write(), or
 *   -EINVAL    the stream is being captured, or belongs to another device than the memory
 *   -ENOTSUP   the device has no stream order, or cuFile has no nvidia-fs (cufile_streams)
 */
SLUICE_API int sluice_read_on(sluice_file *file, void *dst, size_t n, uint64_t offset,
                              sluice_stream stream, sluice_op **out);
SLUICE_API int sluice_write_on(sluice_file *file, const void *src, size_t n, uint64_t offset,
                               sluice_stream stream, sluice_op **out);

/*
 * The general form of the calls above: a read or a write of many extents as a single operation.
 * Start from SLUICE_REQUEST_INIT. The result of the operation is the sum over the extents. A read
 * takes each extent up to the end of the file. The extents of a write must not overlap in the file
 * (-EINVAL). Where extents of a read overlap in memory it is undefined whose bytes stay; in stream
 * order, those of the last extent. Bytes between extents that follow each other closely may be read
 * from the file and dropped.
 */
enum sluice_request_kind { SLUICE_READ = 1, SLUICE_WRITE = 2 };
struct sluice_request {
	size_t size;                         /* required: sizeof(struct sluice_request) */
	int kind;                            /* required: SLUICE_READ or SLUICE_WRITE */
	const struct sluice_extent *extents; /* required; copied */
	size_t count;                        /* number of extents */
	void *user;                          /* returned by sluice_op_user() */
	int on; /* 1: in the order of the stream below; 0: awaited on the host */
	sluice_stream stream;
	/* Reports the operation: of sluice_queue_new(), or NULL, that of the context. */
	sluice_queue *queue;
	/* 1: sluice_submit() returns -EBUSY where it would wait for a place among
	 * SLUICE_MAX_OPERATIONS */
	int unless_full;
	/* A read of a box of a dataset (<sluice/arrays.h>): its first element and its length in
	 * each of `rank` dimensions, which are those of the dataset; copied. The only extent says
	 * where its elements go, packed in C order: `data`, and `length`, the bytes of the box. Its
	 * offset is 0. A box beyond the dataset, or of a file that is no dataset, is -EINVAL. */
	const uint64_t *box_start, *box_count;
	unsigned rank; /* 0: the extents are bytes of the file */
	/* Fan-out, of a read into memory of a device that is awaited on the host: the same bytes
	 * come into memory of other devices, too. They are read once, and copied from device to
	 * device while the next are read, where the driver lets devices reach each other. `also`
	 * has also_count times `count` addresses, which are copied: also[i * count + k] is the
	 * further memory i of extent k, as long as the extent, or NULL: none. All addresses of an i
	 * are of one device, else the request is refused (-EINVAL). All of the memory belongs to
	 * the operation until it is over. A copy that fails ends it, with a sentence that names
	 * the device. -ENOTSUP: in stream order, and of a blob in memory of a device. */
	void *const *also;
	unsigned also_count; /* at most 31 */
};
#define SLUICE_REQUEST_INIT                                                                       \
	{                                                                                         \
		sizeof(struct sluice_request), 0, NULL, 0, NULL, 0, NULL, NULL, 0, NULL, NULL, 0, \
			NULL, 0                                                                   \
	}
/* Starts the operation that r describes. Everything else is as for the calls above. */
SLUICE_API int sluice_submit(sluice_file *file, const struct sluice_request *r, sluice_op **out);

/*
 * Returns 1 if the operation is over, 0 if it is running. Returns 1 as soon as the stream has
 * passed a read. Never calls the driver; makes a system call only if it must wake a thread that was
 * waiting for the operation's resources.
 */
SLUICE_API int sluice_poll(const sluice_op *op);

/*
 * Returns how many bytes the operation has read from the file, or written to it, so far, about: its
 * result once it has succeeded. Bytes on their way to a device count when they have been read. Does
 * not wait.
 */
SLUICE_API uint64_t sluice_op_moved(const sluice_op *op);

/*
 * Requests that the operation end early. Parts that could not be stopped in time are finished
 * first, and sluice_wait() tells whether the operation was cancelled or completed. After a
 * cancelled write some of the bytes may have been written, and the file may be longer: see
 * sluice_write().
 *
 * Returns 0, or
 *   -EALREADY   the operation was over
 */
SLUICE_API int sluice_cancel(sluice_op *op);

/*
 * Returns an eventfd that becomes readable when the operation is over. It is made at the first
 * call, owned by the operation, and closed by sluice_op_free().
 *
 * Errors: -EMFILE, -ENOMEM.
 */
SLUICE_API int sluice_op_fd(sluice_op *op);

/* Returns `user` as it was passed to sluice_submit() or sluice_open_start(), or NULL. */
SLUICE_API void *sluice_op_user(const sluice_op *op);

/* ---------------------------------------------------------------------------------------- queue */

/*
 * Returns the queue of the context, which reports its operations whose request names no other. It
 * is a part of the context: sluice_queue_free() leaves it alone, and requests of other contexts
 * must not name it (-EINVAL). NULL: ctx is NULL.
 */
SLUICE_API sluice_queue *sluice_context_queue(sluice_context *ctx);

/*
 * Makes a queue of the program's own, for the operations of any contexts whose request names it
 * (struct sluice_request, `queue`): so that each event loop of a program takes its own operations
 * and no others. The queue is independent of contexts.
 *
 * Returns 0, or -ENOMEM.
 */
SLUICE_API int sluice_queue_new(sluice_queue **out);

/*
 * Takes the next finished operation of the queue, in the order in which operations finished.
 * Operations without a handle, and those whose end sluice_wait() has returned, are left out. Waits
 * as sluice_wait() does; for remote reads that end one after the other it is woken once, about 1 ms
 * after the first at most. The handle is the same that the submitting call returned, and still has
 * to be freed, once.
 *
 * Returns 0, or
 *   -EAGAIN   no operation finished in time
 */
SLUICE_API int sluice_queue_next(sluice_queue *queue, int timeout_ms, sluice_op **out);

/*
 * Returns an eventfd that is readable while sluice_queue_next() has an operation to return. It is
 * owned by the queue and must only be polled.
 *
 * Errors: -EMFILE, -ENOMEM.
 */
SLUICE_API int sluice_queue_fd(sluice_queue *queue);

/*
 * Frees a queue of sluice_queue_new() and closes its eventfd. Operations that named it go on, and
 * sluice_wait() tells their ends.
 */
SLUICE_API void sluice_queue_free(sluice_queue *queue);

/* ------------------------------------------------------------------------------- names of files */

typedef struct sluice_list sluice_list;
struct sluice_entry {
	size_t size; /* in: sizeof(struct sluice_entry) */
	/* Behind "s3://BUCKET/", or that of a bucket; for a folder, the path of the entry, which
	 * begins as that of uri. Valid, as etag, until the next call for the list. */
	const char *name;
	int is_prefix;       /* 1: the common begin of several names, up to a '/'; a folder */
	uint64_t length;     /* bytes of the object or file */
	int64_t modified_ns; /* last change, nanoseconds since 1970; 0 if unknown */
	const char *etag;    /* or "" */
	const char *upload;  /* the id of an upload that was not completed, or "" */
};
enum sluice_list_flags {
	SLUICE_LIST_RECURSIVE = 1, /* names with a '/' behind the prefix, too */
	SLUICE_LIST_UPLOADS =
		2 /* uploads in parts that were begun, and neither completed nor dropped */
};
/*
 * Begins a list of the objects of S3 with names that begin as that of uri, s3://BUCKET or
 * s3://BUCKET/PREFIX, in the order of the server. flags: 0, or of enum sluice_list_flags. With 0,
 * names are listed up to the next '/' behind the prefix. With 0 and "s3://" the buckets are listed
 * that belong to the user: each is a prefix, and modified_ns is when it was made. `headers` and
 * `s3` of the options are used, and must stay valid until sluice_list_free(). Waits for the server.
 * A list is used by one thread at a time, and freed before its context is closed.
 *
 * Or of the entries of a folder, a path or file:///path, in the order of the bytes of their names,
 * in which that of a folder ends with '/'. With 0, folders in it are prefixes; with
 * SLUICE_LIST_RECURSIVE all below it is listed that is no folder. Names that begin with '.' are
 * listed, except "." and "..". A symbolic link is an entry with the length of its text and is not
 * followed, unless uri names it. What goes meanwhile may be left out. Waits for storage.
 *
 * Returns 0, or
 *   -EINVAL    unknown flags
 *   -ENOTSUP   a URI without lists, or without uploads
 *   -ENOENT    a bucket or folder that is not there
 *   -ENOTDIR   a path that is no folder
 *   -EPROTO    a list that is cut, cannot be read or does not say how it goes on
 *   the errors of sluice_open()
 */
SLUICE_API int sluice_list_open(sluice_context *ctx, const char *uri,
                                const struct sluice_open_options *o, unsigned flags,
                                sluice_list **out);
/*
 * Takes the next entry, and may wait as sluice_list_open(). Returns 1, 0 behind the last, or an
 * error of sluice_list_open(); behind a folder that cannot be read (-EACCES) the list goes on.
 */
SLUICE_API int sluice_list_next(sluice_list *list, struct sluice_entry *out);
SLUICE_API void sluice_list_free(sluice_list *list);
/*
 * Removes a local file, or a link itself, as unlink(2) does; or an object of S3; or, if upload is
 * not NULL, what the server has of an upload of that object: its parts, which nobody will complete.
 * `headers` and `s3` of the options are used; o may be NULL. Waits for the server or for storage.
 * Any thread.
 *
 * Returns 0, also if there was no such object, or
 *   -ENOTSUP   a URI of another scheme, or an upload that is not of S3
 *   -ENOENT    there is no such file, upload or bucket
 *   -EISDIR    a folder, also if it is empty, or a bucket
 *   the errors of sluice_open()
 */
SLUICE_API int sluice_remove(sluice_context *ctx, const char *uri,
                             const struct sluice_open_options *o, const char *upload);

/*
 * Removes files and objects, each as sluice_remove() does. Objects of S3: up to a thousand by a
 * request (DeleteObjects) where their server knows that, and else, or where a name would be
 * ambiguous there, by a request for each, several at a time. URIs that follow each other and are of
 * a bucket share requests. An object is removed if the server says so and names it. `headers` and
 * `s3` of the options are used; o may be NULL. Waits for servers and storage. Any thread, also
 * several at a time.
 *
 * errors: NULL, or room for `count` numbers, of which each becomes 0 or the -errno of its URI.
 * messages: NULL, or room for `count` texts, of which each becomes the sentence of that error, for
 * the caller to free with free(), or NULL. Neither is written if the call cannot begin: -EINVAL,
 * -ENOTSUP, -ENOMEM. The URIs have to stay until it returns.
 *
 * Returns 0 if none is there any more, also if an object of S3 was not there, or
 *   -ENOENT    a local file that was not there
 *   -EINVAL    a URI is NULL
 *   -ENOTSUP   a URI of another scheme
 *   the error of the first that was not removed; the others were, or have an error of their own
 */
SLUICE_API int sluice_remove_many(sluice_context *ctx, const char *const *uris, size_t count,
                                  const struct sluice_open_options *o, int *errors,
                                  char **messages);

/*
 * Has the server of S3 copy an object, s3://BUCKET/KEY, to another name, s3://BUCKET/KEY: no byte
 * of it comes to this machine. Both are of the service, and used with the credentials, that the
 * options name. Of these are used: `headers` and `s3`, where `version` is that of the source; and
 * of the flags SLUICE_OPEN_EXCLUSIVE. o may be NULL. The object of the name is replaced at once
 * when the copy is complete. Waits for the server. Its silence may be longer than
 * SLUICE_HTTP_STALL_MS by a second for each 8 MiB. Any thread.
 *
 * The copy has the metadata of the source, unless `headers` have other: Content-Type,
 * Content-Encoding, Content-Language, Content-Disposition, Cache-Control, Expires or
 * x-amz-meta-..., or instead of those x-amz-metadata-directive may be given. ACL, storage class and
 * encryption are those of `headers`, or the bucket's. Where `headers` have a key
 * (x-amz-server-side-encryption-customer-...), the source has the same, unless
 * x-amz-copy-source-server-side-encryption-customer-... say another. An object above
 * SLUICE_S3_COPY_BYTES is copied in parts: its tags are not copied, and its ETag is another.
 *
 * Returns 0, or
 *   -ENOTSUP   an end is not of S3, or the server cannot copy: the object has to be read and
 *              written. A server that knows no copies may have stored an object without bytes
 *   -EPROTO    it has, with EXCLUSIVE, and the object stays
 *   -EINVAL    both ends are the same, and there are no headers
 *   -EEXIST    with EXCLUSIVE: the target exists
 *   -ESTALE    the source was changed meanwhile
 *   -ENOENT    there is no such source, or no such bucket
 *   the errors of sluice_open() and sluice_close()
 */
SLUICE_API int sluice_copy_object(sluice_context *ctx, const char *from, const char *to,
                                  const struct sluice_open_options *o);

/*
 * Makes a URL by which any program may do one thing with an object of S3, without keys, until the
 * URL ends: method is "GET", "HEAD", "PUT" or "DELETE". The caller frees *url with free(). The URL
 * is a secret: its signature (SigV4, in the query) stands for the keys. seconds: 1 to
 * SLUICE_PRESIGN_MOST, from now on by the clock of this machine. end_ns, or NULL: when the URL
 * ends, in nanoseconds since 1970: after these seconds, or before, with temporary keys of which the
 * end is known. Keys with a session token in the options, the environment or a profile have an end
 * that is not known.
 *
 * Of the options are used: `s3`, where a version and requester_pays become part of the URL; and
 * `headers`, which are signed: a request by the URL has to have them, and no line more that begins
 * with x-amz-. o may be NULL. Does not ask S3: the object need not be there, and the region has to
 * be the bucket's. May wait for the source of the keys, some seconds. Any thread.
 *
 * Returns 0, or
 *   -EINVAL    another method, or seconds; a malformed header; `anonymous`; a name that no bucket
 *              has
 *   -EISDIR    a bucket without a key
 *   -ENOTSUP   a URI that is not of S3
 *   -EACCES    there are no keys
 */
SLUICE_API int sluice_presign(sluice_context *ctx, const char *method, const char *uri,
                              const struct sluice_open_options *o, unsigned seconds, char **url,
                              int64_t *end_ns);
#define SLUICE_PRESIGN_MOST (7 * 24 * 3600) /* seconds */

/* ---------------------------------------------------------------------------- memory of devices */

/*
 * Gives the context n bytes at `memory` for staging transfers of a device (see <sluice/device.h>),
 * in place of SLUICE_STAGING_BYTES of its own. The device must be able to copy from and to the
 * memory directly, as with memory of sluice_pinned_alloc() or cudaHostAlloc(). The context owns it
 * until sluice_context_close().
 *
 * With NULL and 0 the context pins all of its own memory now, instead of at the first operation on
 * the device's memory, and makes cuFile do the same if the settings use cuFile. A
 * driver blocks this call while the device has a pending command that waits; a command that waits
 * for the calling thread would then wait for ever.
 *
 * Returns 0, or
 *   -EINVAL   the memory is not registered with the device, not aligned to 4096 bytes, or smaller
 *             than a slot
 *   -EBUSY    the context has already used the device
 *   -ENODEV   there is no such device
 */
SLUICE_API int sluice_context_staging(sluice_context *ctx, int device, void *memory, size_t n);

/*
 * Registers memory of a GPU with cuFile, as cuFileBufRegister() does, so that transfers from and to
 * it need no memory of cuFile's own. A registration costs as much as many transfers: use it for
 * memory that is used again and again. It lasts until sluice_unregister_buffer() with the same
 * address or sluice_context_close(). Both calls must not be made while operations use the memory,
 * and unregistering must come before the memory is freed. The driver may block both calls while any
 * command that it was given is waiting.
 *
 * Returns 0, or
 *   -EINVAL    this is not memory of a device, or it is not registered
 *   -ENOTSUP   cuFile is missing, or does not support the device
 *   -EEXIST    the memory is already registered
 *   -EIO       cuFile refused
 */
SLUICE_API int sluice_register_buffer(sluice_context *ctx, void *memory, size_t length);
SLUICE_API int sluice_unregister_buffer(sluice_context *ctx, void *memory);

/* ------------------------------------------------------------------------------------- settings */

/*
 * The settings of a context. Start from SLUICE_CONFIG_INIT and set the fields you want to change. A
 * field that is 0 or NULL is taken from its environment variable; without the variable the default
 * applies. All settings are fixed, and checked against each other, when the context is made.
 * sluice_context_setting() lists them with their values.
 */
struct sluice_config {
	/* Required: sizeof(struct sluice_config). SLUICE_CONFIG_INIT sets it. */
	size_t size;
	/* SLUICE_BACKEND: "auto" (default), "posix", "uring" or "cufile", for local files. With
	 * "cufile" NVIDIA's cuFile library moves the bytes of operations that are awaited on the
	 * host between files and the memory of NVIDIA GPUs; everything else is moved as with
	 * "auto". */
	const char *backend;
	/* SLUICE_DISABLE: kernel features that must not be used, comma-separated: uring, cachestat,
	 * nowait, dontcache, dioalign. Default: none. */
	const char *disable;
	/* SLUICE_WORKERS: number of threads that copy data which is in memory, and also the number
	 * of blocking calls that a file may have in progress (separate threads make those); 1 to
	 * 256. Default: as many threads as cores, fewer beside other processes of the user that
	 * read into GPUs, and 16 calls. */
	size_t workers;
	/* SLUICE_DIRECT_BYTES: extents of at least this length bypass the page cache where they
	 * can, as do shorter ones that are read into memory of a device and have such a length
	 * together; 4 KiB to 1 TiB. Default: 256 KiB. */
	size_t direct_bytes;
	/* SLUICE_MAX_OPERATIONS: operations in flight. When the limit is reached, submission waits
	 * until any of them ends, or returns -EAGAIN with SLUICE_OPEN_NONBLOCK; 1 to 16777216.
	 * Default: 262144. */
	size_t max_operations;

	/* SLUICE_STAGING_BYTES: pinned memory for each device that is used; 64 KiB to 1 TiB, and
	 * enough for a ring of slots. Half of it is for operations that are awaited on the host,
	 * half for those in stream order; up to 512 KiB come on top. All is pinned by the call that
	 * submits the first operation on the device's memory. Default: 256 MiB. */
	size_t staging_bytes;

	/* SLUICE_REMOTE_BACKEND: for http:// and https://, either "multi" (default), a few threads
	 * that each drive many transfers, or "easy", a thread for each connection, up to 64. */
	const char *remote_backend;
	/* SLUICE_MAX_CONNECTIONS: connections to servers at the same time, summed over all origins
	 * (scheme, host, port); 1 to 4096, and at most a quarter of RLIMIT_NOFILE. How many of them
	 * an origin uses follows the rate at which its bytes come. Two kinds of connection are not
	 * limited by it: an origin may always have a quarter of this number, rounded up, and each
	 * upload has its own connection. Default: 256. */
	size_t max_connections;
	/* SLUICE_HTTP_ATTEMPTS: requests in a row that may fail before the first byte of a file's
	 * data has arrived; then opening or reading the file fails; 1 to 1000. Default: 6. */
	size_t http_attempts;
	/* SLUICE_HTTP_BACKOFF_MS: limit of the first pause between attempts. A pause is random,
	 * between half the limit and the limit, and the limit doubles with each further attempt; 1
	 * to 3600000. Default: 200. */
	size_t http_backoff_ms;
	/* SLUICE_HTTP_CONNECT_MS: time-out for connecting; 1 to 3600000. Default: 10000. */
	size_t http_connect_ms;
	/* SLUICE_HTTP_STALL_MS: time-out for a connection on which no byte arrives; 1 to 3600000.
	 * Default: 30000. */
	size_t http_stall_ms;
	/* SLUICE_CA_BUNDLE: a file of trusted certificates, used instead of the system's. */
	const char *ca_bundle;
	/* SLUICE_TLS_INSECURE: "1" trusts every server. Default: "0". */
	const char *tls_insecure;
	/* SLUICE_LOG: messages to write to standard error: "off", "waits" (default: a
	 * writer waits for room on a full disk), and also "error", "info" (files), "debug"
	 * (requests). */
	const char *log;
	/* SLUICE_HTTP_RETRY_MS: once data of a remote file has arrived, a request is repeated until
	 * it has brought no further byte for this long. A server's Retry-After that is longer is
	 * not waited for; 1 to 86400000. Default: 60000. */
	size_t http_retry_ms;
	/* SLUICE_HTTP_RATELIMIT_MS: the longest time for which a server that limits requests
	 * (status 429 with Retry-After or RateLimit) is waited for; a longer wait fails at once; 1
	 * to 86400000. Default: 600000. */
	size_t http_ratelimit_ms;
	/* SLUICE_HTTP_HEADERS_FILE: a file of headers, as `headers` of struct
	 * sluice_open_options, for all remote files. It is read by sluice_open(). Empty lines, and
	 * lines that begin with '#', are skipped. Default: none. */
	const char *http_headers_file;
	/* SLUICE_HTTP_BEARER: a token that is sent as "Authorization: Bearer" to the origin
	 * (scheme, host, port) of each remote file's URI, and to no other, unless the URI has a
	 * user or `headers` an Authorization. Default: none. */
	const char *http_bearer;
	/* SLUICE_HTTP_BEARER_FILE: a file with that token, read again when it changes. Default:
	 * none. */
	const char *http_bearer_file;
	/* SLUICE_HTTP_NETRC: "1": users and passwords are taken from the .netrc of the user, or
	 * from the file that is named instead, for the origin of a file's URI that has no other
	 * authorization. Default: "0". */
	const char *http_netrc;
	/* SLUICE_HTTP_CLIENT_CERT, SLUICE_HTTP_CLIENT_KEY: files (PEM) with the certificate that is
	 * shown to the origin of a file's URI, and its key. Default: none; the key is in the
	 * certificate's file. */
	const char *http_client_cert;
	const char *http_client_key;
	/* SLUICE_HTTP_HEDGE: "1" (default): a part that takes much longer than the parts of its
	 * origin usually do is asked for once more, on another connection; at most 5 % of the
	 * requests more, and 128 MiB of memory. "0": never. */
	const char *http_hedge;
	/* SLUICE_S3_PART_BYTES: an object of S3 that is longer is written in parts of this length,
	 * 64 KiB to 5 GiB; AWS takes no parts below 5 MiB. Parts of an object that would have more
	 * than 10,000 are longer. Default: 8 MiB. */
	size_t s3_part_bytes;
	/* SLUICE_S3_UPLOAD_BYTES: memory for the parts of all files that are written to S3 at a
	 * time, of which a file gets half at most. Each file has memory for a part in any case. 64
	 * KiB to 1 TiB. Default: 256 MiB. */
	size_t s3_upload_bytes;
	/* SLUICE_HTTP_ETAG: "1" (default): an object of another ETag is another object. "0": of an
	 * answer with Last-Modified, length and that date are compared instead, for servers of one
	 * name that have ETags of their own. Objects of S3 are always compared by their ETags. */
	const char *http_etag;

	/* Settings that programs seldom need, as "piece_bytes=64K,slots=2": the name is that of the
	 * variable without SLUICE_, in lower case, and the value is as in the variable. The last
	 * value of a name counts. Sizes are in bytes, or have a unit (K, M, G, T).
	 *
	 *   reactors             1 to 64, 1 or 2 by cores  threads that drive io_uring
	 *   reactor_depth        1 to 4096, 128            requests of a file in each reactor
	 *   piece_bytes          4K to 1G by 4K, 1M        the largest request to a backend
	 *   operation_depth      1 to 4096, 128            pieces of an operation in flight
	 *   inline_bytes         1 to 16M, 64K             cached reads by the submitting call
	 *   bounce_bytes         4K to 1T, 64M             memory for unaligned direct I/O
	 *   slot_bytes           4K to 1G, by operation    a slot of the pinned memory
	 *   slots                1 to 64, by operation     slots that an operation cycles through
	 *   cufile_threads       1 to 64, 8                threads that call cuFile for the host
	 *   cufile_streams       0 or 1, 0                 cuFile in stream order (asynchrony.md)
	 *   http_reactors        1 to 64, one a core       threads of "multi" that work at once
	 *   http_gap_bytes       1 to 1G, 256K             a gap of extents that is read, at most
	 *   http_backoff_max_ms  1 to 3600000, 20000       the largest limit of a pause
	 *   s3_copy_bytes        64K to 5G, 5G             longer objects are copied in parts
	 *
	 * inline_bytes <= piece_bytes; bounce_bytes and slot_bytes >= piece_bytes. */
	const char *tune;
};
#define SLUICE_CONFIG_INIT                                                                       \
	{                                                                                        \
		sizeof(struct sluice_config), NULL, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, NULL, \
			NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL,  \
			NULL                                                                     \
	}

/* A setting of a context with its value in force. The strings live as long as the context. */
struct sluice_setting {
	size_t size;          /* in: sizeof(struct sluice_setting) */
	const char *variable; /* "SLUICE_WORKERS" */
	const char *value;    /* "4" */
	const char *source;   /* "default", "environment" or "config" */
	const char *fallback; /* the default, in words */
	const char *range;    /* the allowed values, in words */
	const char *meaning;  /* the meaning, in words */
};
/*
 * Describes the setting with this index, counted from 0. ctx may be NULL: then value and source are
 * NULL.
 *
 * Returns 0, or
 *   -ENOENT   the index is past the last setting
 */
SLUICE_API int sluice_context_setting(const sluice_context *ctx, size_t index,
                                      struct sluice_setting *out);

/* A feature of this machine and its effect on the context, in words for users. */
struct sluice_feature {
	size_t size;        /* in: sizeof(struct sluice_feature) */
	const char *name;   /* "io_uring" */
	int usable;         /* 1: present and used; 0: missing or switched off */
	const char *detail; /* the finding */
	const char *effect; /* the consequence for sluice */
	const char *remedy; /* a way to make it usable, or NULL */
};
/*
 * Describes the feature with this index, counted from 0. The strings live as long as the context.
 * May wait for storage, and never for the network: the row "s3" names the source of credentials,
 * and sluice_s3_check() asks it.
 *
 * Returns 0, or
 *   -ENOENT   the index is past the last feature
 */
SLUICE_API int sluice_context_feature(const sluice_context *ctx, size_t index,
                                      struct sluice_feature *out);

#ifdef __cplusplus
}
#endif
#endif
