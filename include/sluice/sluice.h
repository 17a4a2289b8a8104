/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice: asynchronous reads and writes between storage and memory.
 *
 * A context holds the settings and the threads, a file is bytes at offsets behind a URI, an
 * operation is one read or write in flight. A call that submits an operation never waits for
 * storage. When an operation is over, failed and cancelled ones included, nothing touches the
 * caller's buffer again, and either all the bytes were moved or it says what went wrong.
 *
 * Conventions. A call returns 0 (or a count, where it says so) or a negative errno; the sentence
 * behind an error is sluice_op_message() for an operation and sluice_last_message() for everything
 * else. Results come last and are written only on success. Sizes and offsets are bytes, times are
 * milliseconds unless a name says otherwise. NULL is a valid argument to every destructor. In a
 * child of fork() every call answers -ECHILD and a destructor does nothing.
 *
 * Threads. Every call may be made from any thread at any time, except that a handle must not be
 * used while another thread destroys it. sluice never runs the caller's code on its own threads,
 * never prints, and never exits. Its threads block all signals.
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
/*
 * A stream of a device; a cudaStream_t passes as it is. 0 is the default stream of the device that the
 * memory beside it belongs to, (sluice_stream)2 in CUDA the calling thread's. See <sluice/device.h>.
 */
typedef struct CUstream_st *sluice_stream;

/* The version of these headers. Until 1.0 a program is compiled anew for each minor version. */
#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0

/* The version of the library that is running, as in "0.1.0". */
SLUICE_API const char *sluice_version(void);

/* ------------------------------------------------------------------------------------ context */

/*
 * The settings of a context. Start from SLUICE_CONFIG_INIT and set what you want. A field that is
 * 0 or NULL is taken from its environment variable, and without one from its default. All of them
 * are fixed, and checked against each other, when the context is made.
 * sluice_context_setting() lists them with their values.
 */
struct sluice_config {
	size_t size; /* sizeof(struct sluice_config) */
	/* SLUICE_BACKEND: "auto" (default), "posix", "uring" or "cufile", for local files. With "cufile"
	 * NVIDIA's library of that name moves the bytes between files and the memory of its GPUs where
	 * that is awaited on the host, and all else is moved as with "auto". */
	const char *backend;
	/* SLUICE_DISABLE: kernel features not to use, comma-separated, of uring, cachestat, nowait,
	 * dontcache, dioalign. Default: none. */
	const char *disable;
	/* SLUICE_WORKERS: threads that copy what is in memory, and blocking calls that one file has at
	 * a time, for which there are threads of their own; 1 to 256. Default: one for each core, and 16
	 * calls. */
	size_t workers;
	/* SLUICE_REACTORS: threads that drive io_uring; 1 to 64. Default: 2, with less than
	 * 4 cores 1. */
	size_t reactors;
	/* SLUICE_REACTOR_DEPTH: requests that one file has in flight, for each reactor; 1 to 4096.
	 * Default: 128. */
	size_t reactor_depth;
	/* SLUICE_PIECE_BYTES: what one request moves at most; 4 KiB to 1 GiB, a multiple of 4 KiB.
	 * Default: 1 MiB. */
	size_t piece_bytes;
	/* SLUICE_OPERATION_DEPTH: pieces that one operation has in flight; 1 to 4096.
	 * Default: 128. */
	size_t operation_depth;
	/* SLUICE_DIRECT_BYTES: extents of at least this length bypass the page cache where they
	 * can; 4 KiB to 1 TiB. Default: 256 KiB. */
	size_t direct_bytes;
	/* SLUICE_INLINE_BYTES: resident reads of at most this length are done by the submitting
	 * call; 1 to 16 MiB, at most piece_bytes. Default: 64 KiB, or piece_bytes if that is less. */
	size_t inline_bytes;
	/* SLUICE_BOUNCE_BYTES: memory for direct I/O of data that is not aligned, taken when it is
	 * needed; 4 KiB to 1 TiB, at least piece_bytes. Default: 64 MiB, or piece_bytes if that is
	 * more. */
	size_t bounce_bytes;
	/* SLUICE_MAX_OPERATIONS: operations in flight, after which submission waits for the end of any of
	 * them, or, with OPEN_NONBLOCK, answers -EAGAIN; 1 to 16777216. Default: 262144. */
	size_t max_operations;

	/* SLUICE_STAGING_BYTES: pinned memory for each device whose memory is used; 64 KiB to 1 TiB,
	 * enough for a ring of slots. Half of it is for operations that are awaited on the host.
	 * Default: 256 MiB. */
	size_t staging_bytes;
	/* SLUICE_SLOT_BYTES: what one slot of it holds; 4 KiB to 1 GiB, a multiple of 4 KiB, at least
	 * piece_bytes. Default: by operation. */
	size_t slot_bytes;
	/* SLUICE_SLOTS: slots that one operation cycles through; 1 to 64. Default: by operation. */
	size_t slots;
	/* SLUICE_CUFILE_THREADS: threads that call cuFile for operations that are awaited on the host; 1 to
	 * 64. Default: 8. */
	size_t cufile_threads;
	/* SLUICE_CUFILE_STREAMS: "0" (default), or "1": cuFile does what comes in stream order, too. Not to be
	 * relied on: see docs/asynchrony.md. */
	const char *cufile_streams;

	/* SLUICE_REMOTE_BACKEND: "multi" (default), a few threads that drive many transfers, or
	 * "easy", a thread for each connection, up to 64, for http:// and https://. */
	const char *remote_backend;
	/* SLUICE_MAX_CONNECTIONS: connections to servers at a time, all origins (scheme, host, port) together;
	 * but an origin may have a quarter of them, rounded up, even while others have all, and each upload has
	 * one besides; 1 to 1024. Default: 16. */
	size_t max_connections;
	/* SLUICE_HTTP_REACTORS: threads of "multi"; 1 to 64. Default: one for
	 * each core, at most 4. */
	size_t http_reactors;
	/* SLUICE_HTTP_ATTEMPTS: requests in a row that fail before the first byte of a file's data has
	 * come, after which opening or reading it fails; 1 to 1000. Default: 6. */
	size_t http_attempts;
	/* SLUICE_HTTP_BACKOFF_MS: the first pause between attempts is random from half of this to this, and the limit
	 * doubles with each further one; 1 to 3600000. Default: 200. */
	size_t http_backoff_ms;
	/* SLUICE_HTTP_BACKOFF_MAX_MS: the limit grows no further than this; 1 to 3600000.
	 * Default: 20000. */
	size_t http_backoff_max_ms;
	/* SLUICE_HTTP_CONNECT_MS: how long connecting may take; 1 to 3600000. Default: 10000. */
	size_t http_connect_ms;
	/* SLUICE_HTTP_STALL_MS: how long no byte may come; 1 to 3600000. Default: 30000. */
	size_t http_stall_ms;
	/* SLUICE_CA_BUNDLE: a file of certificates that servers are trusted by, instead of the
	 * system's. */
	const char *ca_bundle;
	/* SLUICE_TLS_INSECURE: "1" trusts every server. Default: "0". */
	const char *tls_insecure;
	/* SLUICE_LOG: what to write to standard error: "off" (default), "error", "info" (files),
	 * "debug" (requests). */
	const char *log;
	/* SLUICE_HTTP_RETRY_MS: once data of a remote file has come, a request is tried again until it has
	 * brought no byte more for this long; and a longer Retry-After of a server is not waited for; 1 to
	 * 86400000. Default: 60000. */
	size_t http_retry_ms;
};
#define SLUICE_CONFIG_INIT                                                                       \
	{                                                                                        \
		sizeof(struct sluice_config), NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
			NULL, NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, 0                     \
	}

/*
 * Makes a context and starts its threads. config may be NULL: the environment and the defaults.
 * -EINVAL: a setting is wrong; sluice_last_message() names it. -ENOSYS: backend "uring" or "cufile" was
 * asked for and io_uring, or cuFile, is not there. -ENOMEM, -EAGAIN: no memory, no threads.
 */
SLUICE_API int sluice_context_new(const struct sluice_config *config, sluice_context **out);

/*
 * Stops the threads and frees the context. -EBUSY, and nothing happens, while files are open.
 * Handles of operations that are over stay valid until sluice_op_free().
 */
SLUICE_API int sluice_context_free(sluice_context *ctx);

/*
 * Lets the context stage transfers of a device (see <sluice/device.h>) through n bytes at memory,
 * instead of SLUICE_STAGING_BYTES of its own: memory that the device copies from and to directly, as
 * sluice_pinned_alloc() and cudaHostAlloc() give it. It is the context's until sluice_context_free().
 *
 * With NULL and 0 the context pins memory of its own now, and not at the first operation on the device's
 * memory, and has cuFile do the same if its settings lead there. A driver holds that up while the device
 * has something pending that waits: what then waits for the calling thread waits for ever.
 *
 * -EINVAL: it is not registered with the device, not on a multiple of 4096, or too little for a slot.
 * -EBUSY: the context has used the device already. -ENODEV.
 */
SLUICE_API int sluice_context_staging(sluice_context *ctx, int device, void *memory, size_t n);

/*
 * Has cuFile make memory of a GPU known to the disk's driver, as cuFileBufRegister() does, so that its
 * transfers to and from there need no memory of cuFile's own. It costs as much as many transfers do: for
 * memory that is used again and again. Until sluice_unregister_buffer() with the same memory, or
 * sluice_context_free(); neither while operations use it, and before the memory is freed. The driver may hold
 * these two calls up while anything that it has been given waits.
 *
 * -EINVAL: it is not memory of a device, or not registered. -ENOTSUP: cuFile is not there, or does not know
 * the device. -EEXIST: it is registered already. -EIO: cuFile says no.
 */
SLUICE_API int sluice_register_buffer(sluice_context *ctx, void *memory, size_t length);
SLUICE_API int sluice_unregister_buffer(sluice_context *ctx, void *memory);

/* One setting of a context, as it is in force. The strings live as long as the context. */
struct sluice_setting {
	size_t size;          /* in: sizeof(struct sluice_setting) */
	const char *variable; /* "SLUICE_WORKERS" */
	const char *value;    /* "4" */
	const char *source;   /* "default", "environment" or "config" */
	const char *fallback; /* what the default is, in words */
	const char *range;    /* what is allowed, in words */
	const char *meaning;  /* what it sets, in words */
};
/*
 * The settings one by one, index from 0; -ENOENT past the last one. ctx may be NULL: then value
 * and source are NULL.
 */
SLUICE_API int sluice_context_setting(const sluice_context *ctx, size_t index,
                                      struct sluice_setting *out);

/* What this machine offers and what the context makes of it, for people. */
struct sluice_feature {
	size_t size;        /* in: sizeof(struct sluice_feature) */
	const char *name;   /* "io_uring" */
	int usable;         /* 1: there and used; 0: missing or switched off */
	const char *detail; /* what was found */
	const char *effect; /* what sluice therefore does */
	const char *remedy; /* what would help, or NULL */
};
/* The features one by one, index from 0; -ENOENT past the last one. Strings: as long as ctx. */
SLUICE_API int sluice_context_feature(const sluice_context *ctx, size_t index,
                                      struct sluice_feature *out);

/*
 * The sentence behind the last call of this thread that failed without an operation to carry it.
 * Never NULL; valid until the thread's next call.
 */
SLUICE_API const char *sluice_last_message(void);

/* --------------------------------------------------------------------------------------- file */

/*
 * The URI for people and logs: without user, password and query, which may be secrets; of a blob all of it,
 * which has none. Writes at most size bytes with a terminating zero; returns the length of the whole, as snprintf() does, or -EINVAL,
 * -ENOMEM.
 */
SLUICE_API int sluice_uri_name(const char *uri, char *text, size_t size);

/*
 * Bytes as people write them: a number, then nothing, B, or K, M, G, T of either case for powers of 1024, which may be
 * followed by B or iB. There may be a fraction before K and so on, and a blank: "4096", "4k", "1.5 GiB" and "1TB"
 * are sizes. This is how the settings, the command and the daemon read them. -EINVAL: text is no size; -ERANGE: it is
 * more than UINT64_MAX. Any thread.
 */
SLUICE_API int sluice_size_parse(const char *text, uint64_t *out);

enum sluice_open_flags {
	SLUICE_OPEN_READ = 1 << 0,
	SLUICE_OPEN_WRITE = 1 << 1,
	SLUICE_OPEN_CREATE = 1 << 2,    /* make the file if there is none */
	SLUICE_OPEN_EXCLUSIVE = 1 << 3, /* with CREATE or REPLACE: -EEXIST if there is one */
	SLUICE_OPEN_TRUNCATE = 1 << 4,  /* with WRITE: drop what the file holds */
	SLUICE_OPEN_REPLACE = 1 << 5,  /* write a new file, which takes the name when sluice_close()
	                                 * succeeds, at once and whole; until then the name shows
	                                 * what it showed before. It keeps the owner and group of
	                                 * the old file as far as the process may give it to them.
	                                 * After a write, truncate or sync that failed or was
	                                 * cancelled it never takes the name: sluice_close() fails.
	                                 * Implies WRITE and CREATE */
	SLUICE_OPEN_DURABLE = 1 << 6,  /* sluice_close() does what fsync() does, name included */
	SLUICE_OPEN_NONBLOCK = 1 << 7, /* submission returns -EAGAIN where it would wait for a
	                                 * bounded resource */
	SLUICE_OPEN_HTTP2 = 1 << 8,    /* https: HTTP/2 where the server has it, which shares a
	                                 * connection; HTTP/1.1 is faster for bulk data */
	SLUICE_OPEN_AS_STORED = 1 << 9, /* http, https: read an object that is stored with a
	                                 * Content-Encoding as it is stored, not decoded; without
	                                 * this -EPROTO. Local files have none */
};

/* How to open a file. Start from SLUICE_OPEN_OPTIONS_INIT. */
struct sluice_open_options {
	size_t size;            /* sizeof(struct sluice_open_options) */
	unsigned flags;         /* of enum sluice_open_flags; 0: SLUICE_OPEN_READ */
	unsigned mode;          /* permissions of a file that is made, less the umask; 0: 0666 */
	uint64_t expected_size; /* for a file to be written: how long it will get, so that its
	                            * space is reserved now, or refused with -ENOSPC; 0: unknown.
	                            * Of store:// the size, which has to be said */
	const char *backend;    /* as in struct sluice_config (of remote files: "easy", "multi");
	                         * NULL: the context's */
	/* REPLACE of a local file: the name, in its folder, of what is written until sluice_close() succeeds. It
	 * is opened as it is found, with what an earlier attempt has left, and stays when it is not
	 * committed, unless it is empty. -EBUSY: somebody else has it open so; -EPERM: it is no regular
	 * file, or not this user's alone. NULL: a new file, of which nothing stays. */
	const char *part;
};
#define SLUICE_OPEN_OPTIONS_INIT                                        \
	{                                                               \
		sizeof(struct sluice_open_options), 0, 0, 0, NULL, NULL \
	}

/*
 * Opens what uri names: a path, file:///path with percent-escapes, an object on a web server,
 * http://host/path or https://host/path, or a blob of the store, store://name. o may be NULL: for
 * reading. This call may wait for storage.
 *
 * A remote object is read as it was when it was opened: if it changes, reads fail with -ESTALE. It
 * can be written as a whole, front to back, with REPLACE or with WRITE and CREATE; the server has it
 * when sluice_close() succeeds. docs/remote.md says what is retried and what each error means.
 *
 * store://NAME is the blob of that name (see <sluice/store.h>), with percent-escapes for '%', '?' and '#'.
 * It is read as sluice_blob_get() gets it. To write one is to make one: with CREATE, which takes the name
 * now, or REPLACE, and with expected_size, its size; sluice_close() seals it, sluice_discard() leaves nothing
 * of it. What was not written is undefined, as after sluice_blob_create(). It may be followed by '?' and,
 * separated by '&': socket=PATH of the daemon (else as sluice_store_open() with NULL); to read: wait_ms=N,
 * id=N instead of a name; to write: device=N or the name of a device, cache, pin, alone, as enum
 * sluice_blob_flags. All files of a process that show one daemon share a connection. The bytes are memory,
 * which sluice_stat() tells the place of. Memory of a device is read and written from any memory, awaited on the
 * host; in stream order by streams of that device, from its memory or pinned memory (else -ENOTSUP), in 64 extents
 * at most (else -E2BIG). Errors are those of the store; -ENOTSUP: DURABLE; -EPERM: WRITE
 * alone, as a blob does not change; -EFBIG: a write behind its end.
 *
 * Regular files and block devices can be opened, and /dev/null to be written. -EISDIR: a directory.
 * -ESPIPE: a FIFO, a socket or another character device, which have no offsets. -EPROTONOSUPPORT: a
 * scheme that this build does not know. -EINVAL: contradicting flags, a malformed URI. Otherwise as
 * open(2).
 */
SLUICE_API int sluice_open(sluice_context *ctx, const char *uri,
                           const struct sluice_open_options *o, sluice_file **out);

/*
 * Waits for the file's operations, commits what REPLACE held back, and closes. Whatever it
 * returns, the handle is gone. It returns the first error that an operation without a handle met and
 * nobody was told of, or what committing met. sluice_last_message() has the sentence.
 *
 * With REPLACE, and of a blob that is being made, nothing is committed on an error, and the name shows what it
 * showed before. There the error of the first write, sluice_truncate() or sluice_sync() that failed or was
 * cancelled counts whether or not its handle or sluice_sync() has told it, and even if the same bytes were
 * written again since. Not so what was refused before it began: a request that sluice_submit() did not take,
 * or -ENOTSUP and -EPERM of sluice_truncate(). Whoever wants such a file all the same opens it without REPLACE.
 */
SLUICE_API int sluice_close(sluice_file *file);

/*
 * Waits for the file's operations and closes without committing: with REPLACE nothing is left of
 * what was written, without it the same as sluice_close() that nobody asks for its result.
 */
SLUICE_API void sluice_discard(sluice_file *file);

enum sluice_stat_flags {
	SLUICE_STAT_SIZE_UNKNOWN = 1 << 0, /* as in /proc: read on until a read gives 0 */
	SLUICE_STAT_WHOLE_ONLY = 1 << 1,   /* a server without ranges: is read from front to back */
};
struct sluice_file_info {
	size_t size;            /* in: sizeof(struct sluice_file_info) */
	unsigned flags;         /* of enum sluice_stat_flags */
	unsigned mode;          /* as st_mode, 0 where there is none */
	uint64_t length;        /* bytes in the file; 0 if unknown */
	uint64_t allocated;     /* bytes of storage it takes; less than length if it is sparse */
	int64_t modified_ns;    /* last change, nanoseconds since 1970, 0 if unknown */
	uint32_t direct_offset; /* alignment of offset and length for direct I/O, 0: none */
	uint32_t direct_memory; /* alignment of the buffer for direct I/O, 0: none */
	const char *
		backend; /* "auto", "posix", "uring", "cufile", "easy", "multi", "store"; a constant */
	char etag
		[128]; /* of a remote object, which says what version it is; of a blob its id; or "" */
	/* The bytes themselves, if the file is memory, as those of store:// are: length bytes until the file
	 * is closed, to be read, and before sluice_close() to be written by who opened it for that. NULL: it is
	 * not. Whoever writes there has to have finished before sluice_close(). */
	void *memory;
	int device; /* whose memory that is, by its number in <sluice/device.h>; -1: the host's */
	/* The ETag of a remote object, however long it is; the file's, until it is closed. NULL: none. */
	const char *full_etag;
};
/* What is known about the file now. May wait for storage. */
SLUICE_API int sluice_stat(sluice_file *file, struct sluice_file_info *out);

/*
 * Waits until everything that was submitted on this file before is done, then for stable storage,
 * as fsync() does. Returns the first error that an operation without a handle met, once. What that means for a file
 * that was opened with REPLACE is said at sluice_close().
 */
SLUICE_API int sluice_sync(sluice_file *file);

/*
 * Sets the length of the file, after all operations submitted before and before those submitted after. Waits.
 */
SLUICE_API int sluice_truncate(sluice_file *file, uint64_t length);

/* ---------------------------------------------------------------------------------- operation */

/* Bytes of a file and their place in memory. */
struct sluice_extent {
	void *data;      /* not written to by a write */
	size_t length;   /* bytes; 0 is allowed */
	uint64_t offset; /* bytes from the start of the file; offset + length <= INT64_MAX */
};

/*
 * Starts reading n bytes at offset into dst, which is sluice's to write until the operation is
 * over. The result is the number of bytes read: n, or less if the file ends before offset + n.
 * Bytes that were there when the operation began and are missing when they are read make it fail
 * with -EIO. An operation begins when those before it on the same bytes are over and sluice knows
 * how long the file is: for a file system that may have to ask a server, as NFS or FUSE, a thread
 * of sluice asks after the submission. What a failed read leaves in dst is undefined.
 *
 * out may be NULL: then the operation has no handle, and an error stays on the file, where
 * sluice_sync() or sluice_close() returns it.
 *
 * Operations on one file, through any handle of one context, keep their order of submission where
 * their bytes overlap and one of them is a write; all else runs freely.
 *
 * -EBADF: not opened for reading. -EINVAL: a range beyond INT64_MAX, NULL data. -EAGAIN: the
 * file was opened NONBLOCK and submission would wait. -ENOMEM.
 */
SLUICE_API int sluice_read(sluice_file *file, void *dst, size_t n, uint64_t offset,
                           sluice_op **out);

/*
 * Starts writing n bytes of src at offset; src must not change until the operation is over. The
 * result is n. It means written, not stable: see sluice_sync(). Otherwise as sluice_read().
 *
 * A write of SLUICE_DIRECT_BYTES or more that makes a local file longer sets the new length first,
 * because direct writes behind the end of a file are slow. If it fails, is cancelled, or the process
 * is killed, the file keeps that length, with zeros where nothing was written: its length does not
 * tell how much was written. SLUICE_OPEN_REPLACE shows the file only when it is whole.
 */
SLUICE_API int sluice_write(sluice_file *file, const void *src, size_t n, uint64_t offset,
                            sluice_op **out);

/*
 * The same for many extents as one operation; the array is copied. The result is the sum over the
 * extents; each is read up to the end of the file. The extents of one write must not overlap in
 * the file (-EINVAL).
 */
SLUICE_API int sluice_readv(sluice_file *file, const struct sluice_extent *v, size_t count,
                            sluice_op **out);
SLUICE_API int sluice_writev(sluice_file *file, const struct sluice_extent *v, size_t count,
                             sluice_op **out);

/*
 * Memory of a device. Every data pointer above and below may be memory of a device; within one
 * operation all of it is of one device, or all of it is the host's. -EINVAL: it is mixed.
 *
 * In stream order: the transfer comes after what the stream was given before, and what the stream is
 * given next comes after the transfer. So a kernel behind sluice_read_on() sees the data, and one
 * behind sluice_write_on() may write over the source. Nobody waits on the host, and nothing has to be
 * synchronised; that a write arrived, and that nothing failed, the operation says, whose end may be
 * awaited as any other. A file that ends before offset + n makes the read fail with -EIO. An operation
 * that fails or is cancelled never holds its stream up: the stream goes on, with undefined contents in
 * the memory of a read.
 *
 * The call does not wait for storage. It may wait for a place among SLUICE_MAX_OPERATIONS, as every
 * submission; for earlier operations in stream order to let go of
 * pinned memory (SLUICE_STAGING_BYTES) or of places in the device's queue, and for earlier overlapping
 * operations on memory of a device that are awaited on the host, or, if cuFile moves the one or the
 * other, for earlier overlapping operations on other streams; with OPEN_NONBLOCK it answers -EAGAIN
 * instead, and -E2BIG to what could never be enqueued at once. The stream, and whatever the driver
 * needs for it, must outlive the operation. With host memory, n bytes of it are the operation's from
 * when the stream reaches it until the stream has passed it. -EINVAL: the stream is being captured or
 * is of another device than the memory. -ENOTSUP: the device has no stream order.
 */
SLUICE_API int sluice_read_on(sluice_file *file, void *dst, size_t n, uint64_t offset,
                              sluice_stream stream, sluice_op **out);
SLUICE_API int sluice_write_on(sluice_file *file, const void *src, size_t n, uint64_t offset,
                               sluice_stream stream, sluice_op **out);
SLUICE_API int sluice_readv_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                               sluice_stream stream, sluice_op **out);
SLUICE_API int sluice_writev_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                                sluice_stream stream, sluice_op **out);

/* The general form of the calls above. Start from SLUICE_REQUEST_INIT. */
enum sluice_request_kind { SLUICE_READ = 1, SLUICE_WRITE = 2 };
struct sluice_request {
	size_t size; /* sizeof(struct sluice_request) */
	int kind;    /* SLUICE_READ or SLUICE_WRITE */
	const struct sluice_extent *extents;
	size_t count; /* of extents */
	void *user;   /* handed back by sluice_op_user() */
	int on;       /* 1: in stream order, on the next field; 0: awaited on the host */
	sluice_stream stream;
};
#define SLUICE_REQUEST_INIT                                              \
	{                                                                \
		sizeof(struct sluice_request), 0, NULL, 0, NULL, 0, NULL \
	}
SLUICE_API int sluice_submit(sluice_file *file, const struct sluice_request *r, sluice_op **out);

/*
 * Waits until the operation is over: for ever with a negative timeout_ms, not at all with 0.
 * Returns the bytes moved, or a negative errno: -EINPROGRESS if it is still running,
 * -ECANCELED if it was cancelled, otherwise what went wrong. May be called again.
 * An operation whose end was returned here is no longer reported by sluice_next_done().
 */
SLUICE_API int64_t sluice_wait(sluice_op *op, int timeout_ms);

/* 1 if the operation is over, 0 if it is running. Once a stream has passed a read, this says so, without
 * a call of the driver, and of the system only to wake who waits for what the operation had. */
SLUICE_API int sluice_poll(const sluice_op *op);

/*
 * Asks for the operation to end early. 0: it was asked; what could not be stopped in time is
 * finished first, and sluice_wait() says which it was. -EALREADY: it was over. Of a cancelled write
 * some bytes may have been written, and the file may be longer: see sluice_write().
 */
SLUICE_API int sluice_cancel(sluice_op *op);

/*
 * An eventfd that becomes readable when the operation is over. Made at the first call, owned by
 * the operation, closed by sluice_op_free(). Returns the descriptor, or -EMFILE, -ENOMEM.
 */
SLUICE_API int sluice_op_fd(sluice_op *op);

/* What the caller attached with sluice_submit(), or NULL. */
SLUICE_API void *sluice_op_user(const sluice_op *op);

/* The sentence behind a failed operation; "" while it runs or if it succeeded. Lives as the op. */
SLUICE_API const char *sluice_op_message(const sluice_op *op);

/* Gives up the handle. The operation and its use of the buffer go on. */
SLUICE_API void sluice_op_free(sluice_op *op);

/*
 * Takes the next finished operation, in the order in which they finished, of those that have a
 * handle and were not seen to end by sluice_wait(). Waits for one as sluice_wait() does. The
 * handle is the one that the submitting call returned and is still to be freed, once.
 * -EAGAIN: none finished in time.
 */
SLUICE_API int sluice_next_done(sluice_context *ctx, int timeout_ms, sluice_op **out);

/*
 * An eventfd that is readable while sluice_next_done() has something to give. Owned by the
 * context; only to be polled. Returns the descriptor, or -EMFILE, -ENOMEM.
 */
SLUICE_API int sluice_done_fd(sluice_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
