/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: named blobs that processes of the same machine share without a copy.
 *
 * A blob is memory with a name. A process creates it, fills it and seals it; from then on it never
 * changes, and other processes map it read-only. The daemon `sluiced` keeps descriptors, names and
 * accounts. It never touches the bytes, and a sealed blob outlives the process that made it.
 *
 * Place. The bytes are in host memory (device -1) or in the memory of a device (see
 * <sluice/device.h>). An address in device memory is for streams, sluice_read() and the related
 * calls, not for the processor. Memory of a GPU is shared by descriptors of the driver, so a blob
 * there outlives its maker as well. The calls return -ENOTSUP if a device cannot share memory or if
 * there is no device of that number.
 *
 * Life of a blob.
 *   created   writable, visible to its own process only; sealed next
 *   sealed    read-only, available to every client of the store
 *   dying     deleted: the name is free at once, the bytes stay until the last holder releases them
 * If a process dies before it seals its blob, the blob disappears and nobody sees any of it. A
 * sealed blob lives until it is deleted; with SLUICE_BLOB_TRANSIENT it lives until nobody holds it.
 *
 * A blob is also a file: sluice_open() opens store://NAME, with the parameters that are listed
 * there.
 *
 * The server may be replaced at any time, after it was killed or for an upgrade. Sealed blobs keep
 * their names and bytes, holders keep the blobs that they hold, and calls reconnect by themselves.
 * A blob that was created and not sealed is lost: sealing it returns -ECONNRESET, and its memory
 * stays until it is released.
 *
 * Conventions, results and threads are those of <sluice/sluice.h>. No call needs a context. Any
 * number of threads may use a store or a blob, but none may use it while another thread closes or
 * releases it. Any call may wait for the server's reply; a call that also waits for other processes
 * says so.
 */
#ifndef SLUICE_STORE_H
#define SLUICE_STORE_H

#include <sluice/sluice.h>
#include <sluice/type.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_store sluice_store;
typedef struct sluice_blob sluice_blob;
typedef struct sluice_watch sluice_watch;

/*
 * The longest name in bytes, without the NUL. A name is UTF-8 without control characters; '/' has
 * no special meaning. Invisible characters, such as those that change the direction of text, are
 * accepted: a program that prints names made by others has to escape them.
 */
#define SLUICE_BLOB_NAME_MOST 255
/*
 * Bytes of a blob's metadata that are free for the program; the description of a tensor fills 4
 * KiB.
 */
#define SLUICE_BLOB_NOTE_MOST 3944
/* Bytes of the name of a place, with the NUL. */
#define SLUICE_BLOB_PLACE_BYTES 32
/* The largest number of blobs in a call that takes several. */
#define SLUICE_BLOB_BATCH 64
/* The largest number of parts of a blob. */
#define SLUICE_BLOB_PARTS_MOST 63
/* The largest number of handles of sealed blobs that a store has; a blob may have several. */
#define SLUICE_STORE_HOLDS_MOST 16384

/* ------------------------------------------------------------------------------------- store */

/* Options of sluice_store_open(). Start from SLUICE_STORE_OPTIONS_INIT. */
struct sluice_store_options {
	/* Required: sizeof(struct sluice_store_options). */
	size_t size;
	/* How long a call keeps trying to reach a missing server, milliseconds. The first
	 * connection is tried only once. Default (0): 5000. A server that is being replaced has 10
	 * seconds more from the moment at which a connection is made. */
	unsigned patience_ms;
	/* Host memory that stays mapped although none of its blobs is held, so that getting them
	 * again costs nothing; bytes. Default (0): 1 GiB. */
	size_t cache_bytes;
	/* The same for the memory of each device; bytes. Deleted memory is unmapped nevertheless.
	 * Default (0): 1 GiB. */
	size_t device_cache_bytes;
};
#define SLUICE_STORE_OPTIONS_INIT                             \
	{                                                     \
		sizeof(struct sluice_store_options), 0, 0, 0, \
	}

/*
 * Connects to the daemon. path is the path of its socket; if it is NULL, the environment variable
 * SLUICE_STORE applies, and without it $XDG_RUNTIME_DIR/sluice.sock. o may be NULL.
 *
 * Returns 0, or
 *   -ENOENT, -ECONNREFUSED   no daemon listens at this path
 *   -EACCES    the permissions of the socket exclude this process
 *   -EPERM     the server belongs neither to this user, nor to root, nor to the user that the
 *              environment variable SLUICE_STORE_OWNER names (a name or a number)
 *   -EPROTO    the server uses another version of the protocol
 *   -EAGAIN    the server has no place for another client
 *   -ETIMEDOUT   the daemon is stopped (SIGSTOP)
 *   -EINVAL    no path is known, or it is too long for a socket
 *   -ENOMEM, -EMFILE, -ENFILE
 */
SLUICE_API int sluice_store_open(const char *path, const struct sluice_store_options *o,
                                 sluice_store **out);

/*
 * Closes the store. Waits for the streams of seals and releases in stream order that are in
 * progress, and unmaps memory of devices, which may wait for work that those devices were given.
 *
 * Returns 0, or
 *   -EBUSY   blobs, tensors or watches of the store are held; nothing was done
 */
SLUICE_API int sluice_store_close(sluice_store *s);

/* ---------------------------------------------------------------------------------- metadata */

/* The largest number of dimensions of a tensor. */
#define SLUICE_BLOB_RANK_MOST 8

/*
 * Description of a blob's bytes, fixed by the seal. For a blob that is not a tensor, type, rank and
 * offset are 0. Element types that enum sluice_type lacks can be described in the note.
 */
struct sluice_blob_metadata {
	size_t size;   /* sizeof(struct sluice_blob_metadata) */
	int type;      /* element type, of enum sluice_type; 0: not a tensor */
	unsigned rank; /* number of dimensions; 0: a single element */
	int64_t shape[SLUICE_BLOB_RANK_MOST];
	/* Distance between neighbours in each dimension, in elements, not negative. All 0: compact,
	 * with the last dimension the fastest. */
	int64_t strides[SLUICE_BLOB_RANK_MOST];
	uint64_t offset;  /* bytes from the start of the blob to the first element */
	const void *note; /* free bytes of the program */
	size_t note_bytes;
};
#define SLUICE_BLOB_METADATA_INIT                                               \
	{                                                                       \
		sizeof(struct sluice_blob_metadata), 0, 0, {0}, {0}, 0, NULL, 0 \
	}

/* ------------------------------------------------------------------------------------ create */

enum sluice_blob_flags {
	/* Takes the name now: create returns -EEXIST if it is taken, and watchers see it. Without
	 * this flag the name becomes visible with the seal, which then returns -EEXIST. */
	SLUICE_BLOB_RESERVE = 1 << 0,
	/* The blob may be dropped when memory is short and nobody holds it. */
	SLUICE_BLOB_CACHE = 1 << 1,
	/* The memory of the blob holds no other blob, however small it is. */
	SLUICE_BLOB_ALONE = 1 << 3,
	/* The blob is never dropped or moved out of memory. */
	SLUICE_BLOB_PIN = 1 << 4,
	/* The seal takes the name from the sealed blob that has it and deletes that blob. A get of
	 * the name finds either the old or the new blob at any moment, even if processes die
	 * meanwhile. Not with RESERVE, and only with a seal of a single blob (-EINVAL, also in
	 * stream order). */
	SLUICE_BLOB_REPLACE = 1 << 5,
	/* The blob lives as long as it has a holder. Holders are its maker, from the seal until the
	 * release of the handle that was sealed, and every client that gets it meanwhile, including
	 * gets that wait for the seal. The last release, or the death of the last holder, deletes
	 * it, even after the server was replaced. The blob never leaves memory for a file. It stays
	 * while it is pinned. */
	SLUICE_BLOB_TRANSIENT = 1 << 6,
	/* For create only: new memory is not made ready for writing (see sluice_blob_create()). For
	 * programs that write less than a tenth of the blob, and for threads that each make their
	 * own part ready with sluice_blob_warm(). */
	SLUICE_BLOB_COLD = 1 << 16,
};

/* Options of sluice_blob_create(). Start from SLUICE_BLOB_OPTIONS_INIT. */
struct sluice_blob_options {
	size_t size;                                 /* sizeof(struct sluice_blob_options) */
	unsigned flags;                              /* of enum sluice_blob_flags */
	const struct sluice_blob_metadata *metadata; /* copied; NULL: none */
	/* Other than 0: as SLUICE_BLOB_REPLACE, which need not be set, but for the blob with this
	 * id alone: if another or none has the name at the seal, the seal returns -ESTALE. */
	uint64_t replaces;
};
#define SLUICE_BLOB_OPTIONS_INIT                                \
	{                                                       \
		sizeof(struct sluice_blob_options), 0, NULL, 0, \
	}

/*
 * Makes a blob of n bytes that this process can write until the seal. Its contents are undefined;
 * its memory is aligned to 4096 bytes. If name is NULL or "", the blob has no name and others get
 * it by its id. device is -1 for host memory, or the number of a device. o may be NULL.
 *
 * Waits: for a device, the driver may be called, and the first blob of a store on a device may wait
 * for all work that the device was given before. While deleted memory on a device is being unmapped
 * and would be enough, the call waits for that, at most 3 seconds. If memory is short and the
 * daemon spills, it waits until there is room, at most a minute.
 *
 * Memory: small blobs of a process share memory. On a device at least 2 MiB of it is allocated at
 * once, and a client that has one of these blobs mapped can read all of it; SLUICE_BLOB_ALONE keeps
 * a blob out of it. Memory of deleted blobs is reused first. New memory of blobs of 8 MiB and more
 * is made ready for writing, as far as the kernel provides pages of 2 MiB, with a few threads that
 * end before the call returns. This takes about as long as copying the same number of bytes, and
 * the first writes are ten times faster afterwards.
 *
 * Returns 0, or
 *   -EEXIST    with RESERVE: a blob that is sealed or being made has the name
 *   -ENOSPC    too little memory is left; the sentence names a holder and says why nothing could
 *              be spilled
 *   -EDQUOT    the limit of blobs, of blobs with much metadata (see sluice_blob_seal()), or of
 *              blobs that this client may make at a time is reached
 *   -ENFILE    the daemon has no descriptor left
 *   -EINVAL    n is 0, or the name, the metadata or the options are wrong
 *   -ENOTSUP   the place does not exist, or its memory cannot be shared
 *   -ECONNREFUSED   the server did not come back in time
 *   -EMFILE, -ENOMEM
 */
SLUICE_API int sluice_blob_create(sluice_store *s, const char *name, size_t n, int device,
                                  const struct sluice_blob_options *o, sluice_blob **out);

/* The arguments of sluice_blob_create() for a blob of sluice_blob_create_many(). */
struct sluice_blob_request {
	const char *name;
	size_t bytes;
	int device;
	const struct sluice_blob_options *options;
};
/*
 * Makes `count` blobs, at most SLUICE_BLOB_BATCH, or none. Writes `count` handles to out.
 * Everything else is as for sluice_blob_create().
 */
SLUICE_API int sluice_blob_create_many(sluice_store *s, const struct sluice_blob_request *v,
                                       size_t count, sluice_blob **out);

/* Returns the bytes while they may be written, or NULL after the seal. Valid until the release. */
SLUICE_API void *sluice_blob_mutable_data(sluice_blob *b);

/*
 * Makes n bytes at `offset` ready for writing, as sluice_blob_create() does for blobs of 8 MiB and
 * more without SLUICE_BLOB_COLD. Does nothing where that was done already or is not possible. Any
 * number of threads may call it for parts of their own. On an idle machine steps of 4 MiB, each
 * followed by its write, are fastest. On a busy machine a call may wait some milliseconds; the
 * first call that does so makes the rest of the blob ready as well.
 *
 * Returns 0, or
 *   -EINVAL   the range ends beyond the blob
 *   -EPERM    the blob is sealed
 */
SLUICE_API int sluice_blob_warm(sluice_blob *b, size_t offset, size_t n);

/*
 * Replaces the metadata of a blob that is not sealed.
 *
 * Returns 0, or
 *   -EINVAL   the metadata is wrong, or does not fit the blob
 *   -EPERM    the blob is sealed
 */
SLUICE_API int sluice_blob_set_metadata(sluice_blob *b, const struct sluice_blob_metadata *m);

/*
 * Publishes the blob: from now on its bytes do not change, and other processes can get it. The
 * caller must have stopped writing. The handle then holds the blob like a handle of
 * sluice_blob_get().
 *
 * Returns 0, or
 *   -EEXIST       the name was taken meanwhile; the blob is unchanged
 *   -ESTALE       the blob was created with `replaces`, and another blob or none has the name now:
 *                 see sluice_last_rival(). Both blobs are unchanged
 *   -ECONNRESET   the server was replaced, and nothing of the blob is there: it was not sealed; or
 *                 it was, but the answer was lost with the server, and the blob was deleted before
 *                 this call could ask the next one (a transient blob by its last holder). So
 *                 another process may have had it
 *   -EPERM        the blob is sealed already
 *   -ENOSPC       as for create
 *   -EDQUOT       as for create; also, the blob has more than 136 bytes of metadata (24, the note,
 *                 and 16 for each dimension) and so has an eighth of all blobs that there may be
 *                 (8192 of 65536); the blob is unchanged
 *   -ENOBUFS      the blob is sealed and available to others, but this store already holds
 *                 SLUICE_STORE_HOLDS_MOST blobs. The data of the handle is NULL and the handle can
 *                 only be released. A get finds the blob once others were released, unless it is
 *                 transient: then it is deleted if nobody else holds it
 */
SLUICE_API int sluice_blob_seal(sluice_blob *b);
/*
 * Returns the id of the blob behind the name, as the last -ESTALE of a seal by this thread found
 * it; 0: the name had no sealed blob. If several seals replace the blob with the same id at most
 * one succeeds, also if processes of the daemon die meanwhile.
 */
SLUICE_API uint64_t sluice_last_rival(void);
/*
 * Seals `count` blobs of one store, at most SLUICE_BLOB_BATCH: all become visible at once, or none
 * (-ECONNRESET only if none of them is there).
 * They may be in different places, so data on the host and on devices that belongs together can be
 * published as a unit.
 */
SLUICE_API int sluice_blob_seal_many(sluice_blob *const *v, size_t count);

/*
 * Seal blobs in stream order. The call returns at once, and a thread of the store seals the blobs
 * soon after the stream has done all work that it was given before. The stream must belong to a
 * device, not necessarily the device of the blobs. Until then only the stream may write to the
 * blobs. A handle may be released meanwhile; its blob is sealed nevertheless. If the process dies
 * before the stream has come that far, the blobs are gone. sluice_blob_wait_sealed() returns the
 * result.
 *
 * Waits: if the store has not yet made a blob on the stream's device, the call may wait for all
 * work that the device was given before.
 *
 * Return 0, or
 *   -EPERM     a blob is sealed, or a seal was already requested
 *   -EINVAL    the stream is being captured
 *   -ENOTSUP   the device has no stream order
 *   -ENOMEM
 */
SLUICE_API int sluice_blob_seal_on(sluice_blob *b, sluice_stream stream);
SLUICE_API int sluice_blob_seal_many_on(sluice_blob *const *v, size_t count, sluice_stream stream);
/*
 * Waits until a seal in stream order has happened; timeout_ms as for sluice_wait().
 *
 * Returns 0 if the blob is sealed, or
 *   -EINPROGRESS   the stream has not come that far yet
 *   -EINVAL        no seal was requested
 *   -EIO           the device has failed; the blob is unchanged
 *   the errors of sluice_blob_seal(); the blob is unchanged
 */
SLUICE_API int sluice_blob_wait_sealed(sluice_blob *b, int timeout_ms);

/*
 * Publishes, without a copy, n bytes of device memory from `memory` on that the program itself has
 * allocated with cudaMalloc() or sluice_device_alloc(). They are sealed at once: the program must
 * not write to them any more, and must not free them before the blob is deleted and has no holders
 * (sluice_blob_stat() gives their number). The blob lives at most as long as its process is
 * connected: see SLUICE_BLOB_OF_PROCESS. Clients that get the blob can read the whole allocation
 * that contains the bytes. SLUICE_BLOB_RESERVE and SLUICE_BLOB_ALONE have no effect in o->flags.
 *
 * Returns 0, the errors of create and seal, or
 *   -EINVAL    this is not memory of a device
 *   -ENOTSUP   the device cannot share this memory
 */
SLUICE_API int sluice_blob_publish(sluice_store *s, const char *name, const void *memory, size_t n,
                                   const struct sluice_blob_options *o, sluice_blob **out);

/* ------------------------------------------------------------------------------------- parts */

/*
 * Gives an unsealed blob on the host, the owner, parts: unsealed blobs without names, on the host
 * or on devices. Owner and parts are made with SLUICE_BLOB_ALONE. From then on the parts belong to
 * the owner: their handles are for their memory only, and are released with the owner's. The seal
 * of the owner, in stream order as well, seals the parts in the same step: a process finds all of
 * them or none, also after SLUICE_BLOB_REPLACE, and only by the owner's name or id. The flags of
 * the owner count; those of the parts do not. Parts live as long as the owner, are spilled after it
 * and brought back before it.
 *
 * Returns 0, or
 *   -EINVAL   a blob is none of these, or there are more than SLUICE_BLOB_PARTS_MOST parts
 *   -EPERM    a blob is sealed, or a part already
 *   -ENOMEM
 */
SLUICE_API int sluice_blob_adopt(sluice_blob *owner, sluice_blob *const *parts, size_t count);
/* Returns the number of parts of a blob. */
SLUICE_API unsigned sluice_blob_parts(const sluice_blob *b);
/*
 * Returns the handle of a part, counted from 0, which lives as long as that of its owner; maps the
 * part, as a get does, when it is first asked for.
 *
 * Returns 0, or
 *   -ENOENT   there is no such part
 *   -ESTALE   the daemon was stopped, or replaced by another
 *   -ENOTSUP  this process does not have the device of the part
 *   -EMFILE, -ENFILE, -ENOMEM   as for get
 */
SLUICE_API int sluice_blob_part(sluice_blob *owner, unsigned index, sluice_blob **out);

/* Addresses of a device where nothing is mapped; the program owns them. */
struct sluice_addresses {
	int device;
	void *start;
	size_t bytes;
};
/*
 * Unmaps a sealed part in memory of a device that is mapped by sluice_blob_part(), and keeps its
 * addresses: they hold no memory, and stay valid in commands that are prepared, such as captured
 * graphs, but nothing may use them until a part is mapped there. The caller ensures that nothing
 * uses the part now; the call may wait for all work of the device. The handle of the part is gone
 * then. The addresses end with the process, with sluice_addresses_free(), or with
 * sluice_blob_part_at(). No other call may use the owner meanwhile.
 *
 * Returns 0, or
 *   -EBUSY     another handle in this process has the same memory, at the same addresses
 *   -ENOTSUP   the part is in memory of the host, is published memory of a process, is mapped for
 *              another device, or was made by this process, which has not got it
 *   -EPERM     the part is not mapped, or not sealed
 *   -ENOENT    there is no such part
 *   others     the device does not work any more
 */
SLUICE_API int sluice_blob_part_vacate(sluice_blob *owner, unsigned index,
                                       struct sluice_addresses *out);
/*
 * Maps a part as sluice_blob_part() does, at these addresses, which belong to the part then: its
 * last release gives them back. They may be of a part of another owner, another store or daemon. If
 * the call fails, they stay the program's, with nothing there.
 *
 * Returns 0, the errors of sluice_blob_part(), or
 *   -EINVAL   the part has another size or device than the addresses, or is mapped already
 */
SLUICE_API int sluice_blob_part_at(sluice_blob *owner, unsigned index,
                                   const struct sluice_addresses *at, sluice_blob **out);
/* Gives addresses back to the driver. Returns 0, -EINVAL: there are no such, or its error. */
SLUICE_API int sluice_addresses_free(const struct sluice_addresses *at);

/* --------------------------------------------------------------------------------------- get */

/*
 * Gets a sealed blob and maps it read-only.
 *
 * Waits: if timeout_ms is not 0, until a client has created and sealed the blob; for ever if it is
 * negative. A blob that the daemon has spilled to a file is read back first, and the call waits for
 * that beyond the time-out.
 *
 * Returns 0, or
 *   -ENOENT      there is no such blob
 *   -ETIMEDOUT   the blob was not sealed in time, or the daemon is stopped (SIGSTOP). A call with a
 *                time-out that is not negative returns at most two seconds after it if a server is
 *                connected and silent, and the next call finds the connection unchanged. If the
 *                server has died and the supervisor is stopped, it returns after five seconds
 *   -EMFILE, -ENOMEM   the blob cannot be mapped
 *   -EIO         the blob was spilled and cannot be read; it stays, and the get may be repeated
 *   -ENOSPC      there is no memory for a spilled blob; it stays, and the get may be repeated
 *   -ENFILE      the daemon cannot send a descriptor
 *   -ENOBUFS     this store holds SLUICE_STORE_HOLDS_MOST blobs
 *   -ECONNREFUSED   the server did not come back in time. While it is being replaced, the call
 *                waits for its successor whatever the time-out, as long as any call does
 *                (patience_ms, and 10 seconds if the socket is there), and then has its time
 */
SLUICE_API int sluice_blob_get(sluice_store *s, const char *name, int timeout_ms,
                               sluice_blob **out);
/*
 * Gets a blob by its id; ids are never reused. A blob that has a name is found without a request to
 * the server only by that name.
 */
SLUICE_API int sluice_blob_get_id(sluice_store *s, uint64_t id, int timeout_ms, sluice_blob **out);
/*
 * Gets a blob for use by a device other than its own, which must be able to reach its memory (else
 * -ENOTSUP). Memory of a blob on the host is registered with the device (pinned) as long as it is
 * mapped.
 */
SLUICE_API int sluice_blob_get_on(sluice_store *s, const char *name, int device, int timeout_ms,
                                  sluice_blob **out);
/*
 * Gets all of `count` blobs, at most SLUICE_BLOB_BATCH, or none. The time-out is for all together.
 */
SLUICE_API int sluice_blob_get_many(sluice_store *s, const char *const *names, size_t count,
                                    int timeout_ms, sluice_blob **out);

/*
 * Returns the bytes, valid until the release. They are aligned to 4096 bytes and mapped read-only:
 * writing to them ends the program, and on a device fails or stops the device. Blobs of kind
 * SLUICE_BLOB_OF_PROCESS are neither aligned nor mapped read-only. Returns NULL if the seal of the
 * blob returned -ENOBUFS, or if the blob was deleted, or spilled while this process was stopped
 * with the answer read, before this process, which sealed it, could hold it.
 */
SLUICE_API const void *sluice_blob_data(const sluice_blob *b);
/*
 * Opens the memory of a sealed blob on the host for reading, such as for a private mapping that the
 * program may write to. *offset is the place of the blob in it, a multiple of 4096; other blobs may
 * lie beside it. The caller closes *fd, and has to hold the blob while it uses the memory.
 *
 * Returns 0, or
 *   -EPERM     the blob is not sealed
 *   -ENOTSUP   the blob is in the memory of a device
 *   -ESTALE    the daemon was stopped, or replaced by another
 *   -EMFILE, -ENFILE, -ECONNREFUSED   as for get
 */
SLUICE_API int sluice_blob_descriptor(sluice_blob *b, uint64_t *offset, int *fd);
/* Returns the size of the blob in bytes. */
SLUICE_API size_t sluice_blob_size(const sluice_blob *b);
/* Returns this process's number of the device that has the memory, or -1 for the host. */
SLUICE_API int sluice_blob_device(const sluice_blob *b);
/* Kinds of blobs, by the life of their bytes. */
enum sluice_blob_kinds {
	/* Host memory, until the blob is deleted and has no holders. */
	SLUICE_BLOB_ON_HOST = 1,
	/* Device memory, until the blob is deleted and has no holders. */
	SLUICE_BLOB_ON_DEVICE,
	/* Device memory, at most as long as the process that published it. If that process ends
	 * while others hold the blob, they must not use its bytes any more. */
	SLUICE_BLOB_OF_PROCESS,
};
/* Returns the kind of the blob, of enum sluice_blob_kinds. */
SLUICE_API int sluice_blob_kind(const sluice_blob *b);
/* Returns the id, which is the same in every process and is never reused; 0 before the seal. */
SLUICE_API uint64_t sluice_blob_id(const sluice_blob *b);
/* Returns the name, or "" for a blob without a name. */
SLUICE_API const char *sluice_blob_name(const sluice_blob *b);
/*
 * Returns the metadata. out->size must be set. out->note points to bytes that live as long as the
 * handle; strides are filled in.
 */
SLUICE_API int sluice_blob_get_metadata(const sluice_blob *b, struct sluice_blob_metadata *out);

/*
 * Releases the handle and the bytes. A blob that is not sealed is aborted: its name and its memory
 * are free. The caller must ensure that no stream uses the bytes any more, or use
 * sluice_blob_release_on(): a deleted blob is unmapped when it has no holders, and a driver does
 * not wait for a stream that still copies from it but makes the stream fail; host memory is given
 * to other blobs.
 *
 * Returns 0, or -ECHILD in a child of fork().
 */
SLUICE_API int sluice_blob_release(sluice_blob *b);
SLUICE_API int sluice_blob_release_many(sluice_blob *const *v, size_t count);
/*
 * Releases a blob in stream order. The call returns at once, the handle no longer belongs to the
 * caller, and the blob is held until the stream has done all work that it was given before. This
 * works for blobs on the host too. A blob that is not sealed by then is aborted then; a blob for
 * which sluice_blob_seal_on() was called is sealed nevertheless. If `stream` is a default stream
 * (0, 1 or 2), it is taken to be that of the device that was passed to sluice_blob_get_on(), or
 * else of the device that holds the blob. sluice_store_close() waits for the release. If the device
 * fails, the blob is released soon after.
 *
 * Waits: if the store has not yet made a blob on the stream's device, the call may wait for all
 * work that the device was given before.
 *
 * Returns 0, or one of these errors, after which the handle is unchanged
 *   -EINVAL    the stream is being captured, or does not belong to a device
 *   -ENOTSUP   the device has no stream order
 *   -EIO       the device has failed
 *   -ENOMEM
 */
SLUICE_API int sluice_blob_release_on(sluice_blob *b, sluice_stream stream);

/*
 * Makes a tensor that other libraries accept without a copy: with version 0 a DLManagedTensor, with
 * version 1 a DLManagedTensorVersioned with the flag of read-only memory, both as in dlpack.h. The
 * tensor holds the blob independently until its deleter is called, from any thread; the store
 * cannot be closed before.
 *
 * Returns 0, or
 *   -EINVAL   the metadata has no element type, or the version is another
 *   -EPERM    the blob is not sealed
 *   -ENOMEM
 */
SLUICE_API int sluice_blob_to_dlpack(sluice_blob *b, unsigned version, void **out);

/* ------------------------------------------------------------------------------------ origin */

/*
 * An origin is a folder of objects on S3 behind the stores of many nodes: uri, '/' and a name, as
 * it is, make the URI of an object. If this node lacks a blob or a collection (<sluice/tensors.h>),
 * it comes from there, once for each node, however many processes ask at a time. Only the calls in
 * this section, sluice_collection_fetch() and store:// files use an origin. A name with ".sluice/"
 * in front has no object.
 *
 * A fetched blob has SLUICE_BLOB_CACHE: it may be dropped when memory is short, and the next call
 * fetches it again. All bytes belong to a single version of the object.
 */
struct sluice_origin {
	size_t size;         /* sizeof(struct sluice_origin) */
	sluice_context *ctx; /* for the requests; may be NULL if there is no URI */
	/* "s3://BUCKET/PREFIX" or "s3://BUCKET". NULL: the value of the environment variable
	 * SLUICE_STORE_ORIGIN. "", or NULL without that variable: there is no origin. */
	const char *uri;
	const struct sluice_open_options *open; /* `headers` and `s3` are used; may be NULL */
	int device;                             /* to fetch to; -1: the host */
};
#define SLUICE_ORIGIN_INIT                                         \
	{                                                          \
		sizeof(struct sluice_origin), NULL, NULL, NULL, -1 \
	}

/*
 * Gets a blob as sluice_blob_get() does; if there is none, and timeout_ms is not 0, fetches the
 * object. The call alone decides whether an object becomes a blob or a collection. If a process
 * seals a blob by that name meanwhile, the call gets that blob. Without an origin the call is
 * sluice_blob_get().
 *
 * Waits: for the read; or, until the time-out, for another process that reads the object or has
 * reserved the name. A read that this call makes goes on beyond the time-out.
 *
 * Returns 0, the errors of sluice_blob_get(), sluice_open() and of reads, or
 *   -ENOENT      there is no such object; for a second this process does not ask again
 *   -EACCES      the server refuses it
 *   -ENOSPC      too little memory, found out before a byte is read; the sentence has the bytes
 *                that it takes
 *   -ESTALE      the object changed during each of four reads
 *   -ETIMEDOUT   another process has not ended in time
 *   -EEXIST      a sealed blob has the name that the process that reads would reserve,
 *                .sluice/fetch/ and the name
 *   -EPROTO      the object has no ETag, or no known length
 *   -EINVAL      the URI is no origin, or there is one and ctx is NULL
 * After an error nothing is left.
 */
SLUICE_API int sluice_blob_fetch(sluice_store *s, const struct sluice_origin *origin,
                                 const char *name, int timeout_ms, sluice_blob **out);
/*
 * Asks the origin once whether the object behind a fetched blob or collection is another by now,
 * by ETag and length. If so, reads it, for the same device, and takes the name from the blob. That
 * needs memory for both; if the name has changed hands meanwhile, nothing changes. A blob that was
 * published here, or fetched by another URI than the origin's, stays. If uri is NULL, the note of
 * the blob says the object, and SLUICE_STORE_ORIGIN does not matter.
 *
 * Waits: for the requests, or for another process that reads the object.
 *
 * Returns 0 and the id of the blob that has the name, or
 *   -ENOENT   there is no such blob or object; the blob stays
 *   the errors of sluice_blob_fetch()
 */
SLUICE_API int sluice_blob_refresh(sluice_store *s, const struct sluice_origin *origin,
                                   const char *name, uint64_t *id);
/*
 * Writes the object of a sealed blob or collection, by a single upload from the memory of the
 * store. A collection becomes a .safetensors file with the tensors, without small files and notes.
 * flags: 0, or SLUICE_OPEN_EXCLUSIVE: only if there is no such object. Waits for the server.
 *
 * Returns 0, the errors of sluice_blob_get(), sluice_open() and sluice_close(), or
 *   -EEXIST   with EXCLUSIVE, the object exists
 *   -EINVAL   there is no origin, the name has no object, or ends in ".index.json"
 */
SLUICE_API int sluice_blob_push(sluice_store *s, const struct sluice_origin *origin,
                                const char *name, unsigned flags);
/*
 * Removes the object of a name (an index of files without the files), then deletes the blob. Waits
 * for the server.
 *
 * Returns 0, also if either was not there, -EINVAL as above, or the errors of sluice_remove(),
 * after which the blob is there
 */
SLUICE_API int sluice_blob_delete_from(sluice_store *s, const struct sluice_origin *origin,
                                       const char *name);

/* The source of a blob's bytes. Texts live as long as the handle. */
struct sluice_blob_source {
	size_t size;         /* in: sizeof(struct sluice_blob_source) */
	const char *uri;     /* the object's */
	const char *etag;    /* then */
	uint64_t length;     /* bytes of the object, or of the index of files */
	const char *version; /* "sluice.version" of the metadata of tensors, or "" */
};
/* Describes the source. Returns 0, or -ENOENT if the blob was not fetched. */
SLUICE_API int sluice_blob_origin(const sluice_blob *b, struct sluice_blob_source *out);

/* ------------------------------------------------------------------------------- delete, stat */

/*
 * Delete a blob: its name is free at once, and its memory when the last holder has released it.
 *
 * A call deletes the blob that has the name when it begins, or when the server reads the request,
 * and no later blob. If the answer is lost with the server, the next one knows whether the blob was
 * deleted for this call, as long as the daemon remembers (the last 4095 deletes). So of several
 * calls that delete the same blob one returns 0. A seal that replaces the blob meanwhile counts as
 * coming after one delete by name, and before a delete by id. A seal with `replaces` proves that
 * the blob was still there: then a call by name begins anew, and may delete the blob of that seal.
 *
 * Return 0, or
 *   -ENOENT   there is no such blob
 */
SLUICE_API int sluice_blob_delete(sluice_store *s, const char *name);
SLUICE_API int sluice_blob_delete_id(sluice_store *s, uint64_t id);
/* Returns 1 if there is a sealed blob of that name, 0 if there is none, or an error. */
SLUICE_API int sluice_blob_exists(sluice_store *s, const char *name);
/*
 * Pins the blob, so that it always stays in memory, or unpins it. A spilled blob is brought back
 * first.
 *
 * Returns 0, or
 *   -ENOENT         there is no such blob
 *   -EIO, -ENOSPC   as for get; the blob is not pinned
 */
SLUICE_API int sluice_blob_pin(sluice_store *s, const char *name, int pinned);

enum sluice_blob_state {
	SLUICE_BLOB_IS_CREATED = 1,
	SLUICE_BLOB_IS_SEALED,
	SLUICE_BLOB_IS_DYING,
	SLUICE_BLOB_IS_SPILLED, /* sealed, and in a file; a get brings it back */
};
/* Description of a blob, available without getting it. */
struct sluice_blob_info {
	size_t size; /* in: sizeof(struct sluice_blob_info) */
	char name[SLUICE_BLOB_NAME_MOST + 1];
	uint64_t id;
	uint64_t bytes;
	uint64_t memory;  /* bytes that it occupies, rounded up to an allocation; 0: spilled */
	int device;       /* -1: the host; -2: a device that this process does not have */
	int state;        /* of enum sluice_blob_state */
	unsigned flags;   /* of enum sluice_blob_flags */
	unsigned holders; /* number of clients that hold it; 0 in a list */
	uint32_t user;    /* uid of its maker */
	int32_t process;  /* process id of its maker */
	int64_t made_ns;  /* time of the seal, or else of the creation; nanoseconds since 1970 */
	int kind;         /* of enum sluice_blob_kinds */
	/* The device as every process of the store knows it: its PCI address, "0000:65:00.0", or a
	 * name that sluice_device_find() accepts; "" for the host. */
	char place[SLUICE_BLOB_PLACE_BYTES];
	/* Parts of the blob; then bytes and memory are with those of the parts, and device and
	 * place those of the first. */
	unsigned parts;
};
/* Describes the blob of this name. out->size must be set. */
SLUICE_API int sluice_blob_stat(sluice_store *s, const char *name, struct sluice_blob_info *out);
/*
 * Lists the blobs with names that begin with prefix, in no particular order; with "" or NULL all
 * blobs, including those without a name. *cursor is 0 at first and is advanced. out[0].size must be
 * set and applies to all elements. Blobs that are made or deleted meanwhile may be listed or not.
 *
 * Returns the number of elements written to out, at most `most`; 0 at the end of the list; or an
 * error.
 */
SLUICE_API int sluice_blob_list(sluice_store *s, const char *prefix, uint64_t *cursor,
                                struct sluice_blob_info *out, size_t most);

/*
 * Counts of the server. Those marked "now" rise and fall; the others only grow until the server is
 * replaced.
 */
struct sluice_store_counts {
	size_t size;           /* in: sizeof(struct sluice_store_counts) */
	uint64_t memory_limit; /* bytes of host memory that the server may hand out */
	uint64_t memory_bytes; /* now: bytes that it has handed out or keeps warm */
	uint64_t blob_bytes;   /* now: bytes of blobs, rounded up to allocations */
	uint64_t leased_bytes; /* now: bytes leased to clients for future blobs */
	uint64_t warm_bytes;   /* now: bytes kept for future blobs */
	uint64_t sealed;       /* now: sealed blobs */
	uint64_t created;      /* now: blobs not sealed, without those of leases */
	uint64_t dying;        /* now: blobs deleted and held */
	uint64_t clients;      /* now: connections */
	uint64_t waiting;      /* now: gets that wait */
	uint64_t seals, gets, deletes, dropped; /* since the server began */
	uint64_t requests, refused;             /* messages, and those answered by an error */
	uint64_t replacements;                  /* number of earlier servers of this daemon */
	uint64_t up_ns;                         /* age of the server, nanoseconds */
	/* The next six are 0 if the daemon has no folder for spilling. */
	uint64_t spilled; /* now: blobs that are only in files */
	/* Now: bytes in files, of these blobs and of others that have or get a copy there, until
	 * the files are closed. */
	uint64_t spilled_bytes;
	/* Bytes that may be in files; UINT64_MAX: as many as the file system takes. */
	uint64_t spill_limit;
	uint64_t spills, returns; /* blobs that left memory, and that came back */
	uint64_t spill_failures;  /* files that could not be written or read */
	uint64_t upgrades;        /* upgrades of the daemon to another program */
	uint64_t supervisor;      /* now: process ids in the daemon's PID namespace */
	uint64_t server;
	char version[24]; /* version of the server's program, as of sluice_version() */
};
/* Returns the counts of the server. out->size must be set. */
SLUICE_API int sluice_store_stats(sluice_store *s, struct sluice_store_counts *out);

/*
 * Returns to the machine at once the host memory that the daemon keeps for future blobs and the
 * memory that this store has leased for them. The daemon itself returns kept memory a minute after
 * its last use (sluiced --keep-time). Leases of other processes, at most a sixteenth of all memory
 * each, stay. Memory of devices is never kept. Writes the number of bytes to *freed; freed may be
 * NULL.
 *
 * Returns 0, or the errors of sluice_blob_delete() except -ENOENT.
 */
SLUICE_API int sluice_store_trim(sluice_store *s, uint64_t *freed);

/*
 * Upgrades the daemon to the program that is now at the path from which its first process was
 * started. Sealed blobs stay, with their names and holders; a blob that is not sealed is lost, as
 * when the server dies. Returns when the new server replies. After an error the old server
 * continues and nothing is lost.
 *
 * Returns 0, or
 *   -ENOTSUP   the program has another layout of the data that outlives a server
 *   -ENOENT, -EACCES, -ENOEXEC   there is no such program, or it does not report its layout in 5 s
 *   -EBUSY     another upgrade is in progress
 *   -EPERM     this process belongs neither to the daemon's user nor to root
 */
SLUICE_API int sluice_store_upgrade(sluice_store *s);
/*
 * Stops the daemon and waits until it has ended. All its blobs are gone; processes that have a blob
 * mapped keep its bytes.
 *
 * Returns 0, or
 *   -EINPROGRESS   the daemon takes more than 30 s to end, and goes on
 *   -EPERM         this process belongs neither to the daemon's user nor to root
 */
SLUICE_API int sluice_store_stop(sluice_store *s);

/*
 * The store's account of the memory of a device. It is based on reports of the clients: the daemon
 * has no driver, so its limits bind only clients that report correctly. Memory counts until the
 * last process has unmapped it.
 */
struct sluice_store_device_info {
	size_t size;                         /* in: sizeof(struct sluice_store_device_info) */
	char place[SLUICE_BLOB_PLACE_BYTES]; /* as in struct sluice_blob_info */
	int device;             /* its number in this process; -2: this process does not have it */
	uint64_t memory_limit;  /* bytes; UINT64_MAX: none */
	uint64_t memory_bytes;  /* now: bytes of blobs and of leases */
	uint64_t leaving_bytes; /* now: the part of them that is deleted and still mapped */
};
/*
 * Describes the device with this index, counted from 0. A device is known after a process has made,
 * or asked for, a blob there, or if an option of the daemon names it.
 *
 * Returns 0, or
 *   -ENOENT   the index is past the last device
 */
SLUICE_API int sluice_store_device(sluice_store *s, unsigned index,
                                   struct sluice_store_device_info *out);

/* ------------------------------------------------------------------------------------- watch */

enum sluice_watch_kind {
	/* The name was taken; for a blob without RESERVE, just before its seal. */
	SLUICE_WATCH_CREATED = 1,
	SLUICE_WATCH_SEALED,
	/* Also: aborted, or its process died. */
	SLUICE_WATCH_DELETED,
	/* Events are missing here, and the program should list again. bytes and name are
	 * meaningless. */
	SLUICE_WATCH_LOST,
};
struct sluice_watch_event {
	size_t size; /* in: sizeof(struct sluice_watch_event) */
	int kind;    /* of enum sluice_watch_kind */
	uint64_t id;
	uint64_t bytes;
	char name[SLUICE_BLOB_NAME_MOST + 1];
};
/*
 * Watches blobs with names that begin with prefix, from now on; with NULL or "" all blobs that have
 * a name. A watch that is not read loses events and is told so; no other process waits for it.
 *
 * Returns 0, or the errors of sluice_store_open().
 */
SLUICE_API int sluice_watch_open(sluice_store *s, const char *prefix, sluice_watch **out);
/*
 * Returns a descriptor that is readable while sluice_watch_next() has an event; only for poll() and
 * epoll. It stays the same for the life of the watch.
 */
SLUICE_API int sluice_watch_fd(const sluice_watch *w);
/*
 * Takes the next event. Waits as sluice_blob_get() does. After the server was replaced the watch
 * reconnects and reports SLUICE_WATCH_LOST. To be called by one thread at a time.
 *
 * Returns 0, or
 *   -EAGAIN   no event came in time
 */
SLUICE_API int sluice_watch_next(sluice_watch *w, int timeout_ms, struct sluice_watch_event *out);
/* Closes the watch. */
SLUICE_API void sluice_watch_free(sluice_watch *w);

#ifdef __cplusplus
}
#endif
#endif
