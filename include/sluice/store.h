/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: named blobs that processes of one machine share without a copy.
 *
 * A blob is memory with a name. One process creates it, fills it and seals it; from then on it never
 * changes, and other processes map it read-only. The daemon `sluiced` keeps descriptors, names and
 * accounts; it never touches the bytes, and what is sealed outlives the process that made it.
 *
 * A blob has a size, a place and bytes. The place is the host's memory (device -1), or that of a device
 * (see <sluice/device.h>): then its address is the device's, for streams and for sluice_read() and its like,
 * not for the processor. A GPU's memory is shared by descriptors of the driver's, so a blob in it, too,
 * outlives the process that made it. Where a device cannot share memory, or there is none of that number,
 * the calls answer -ENOTSUP.
 *
 * Life. create -> created: writable, its own process only. seal -> sealed: read-only, for everyone who
 * may. delete -> dying: the name is free at once, the bytes stay until the last holder has released it.
 * The process that created a blob and dies before the seal takes it along; nothing of it is seen. What is sealed lives
 * until it is deleted, with SLUICE_BLOB_TRANSIENT until nobody holds it.
 *
 * A blob is a file as well: store://NAME for sluice_open(), which says what may follow the name.
 *
 * The server may be replaced at any time (it was killed, it was upgraded). Sealed blobs keep their names
 * and bytes and whoever holds one keeps it; calls connect again by themselves. A blob that was created
 * and not sealed is lost then: sealing it answers -ECONNRESET, and its memory stays until its release.
 *
 * Conventions, results and threads are those of <sluice/sluice.h>. No call needs a context. A store or a
 * blob may be used by any number of threads, but must not be used while it is closed or released. Any
 * call may wait for the server's answer; calls that say so wait for other processes, too.
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

/* The longest name, without the NUL. A name is UTF-8 without control characters; '/' is nothing special. Characters that
 * are not seen, as those that change the direction of text, are let be: who prints names of others has to escape them. */
#define SLUICE_BLOB_NAME_MOST 255
/* Free bytes of a blob's metadata; with what describes a tensor it is 4 KiB. */
#define SLUICE_BLOB_NOTE_MOST 3944
/* Of the name of a place, with the NUL. */
#define SLUICE_BLOB_PLACE_BYTES 32
/* Blobs in one call of those that take several. */
#define SLUICE_BLOB_BATCH 64
/* Holds that a store has at a time at most: handles of sealed blobs, one blob perhaps several times. */
#define SLUICE_STORE_HOLDS_MOST 16384

/* ------------------------------------------------------------------------------------- store */

/* How to connect. Start from SLUICE_STORE_OPTIONS_INIT. */
struct sluice_store_options {
	size_t size; /* sizeof(struct sluice_store_options) */
	/* How long a call goes on trying to reach a server that is not there, milliseconds; 0: 5000. The
	 * first connection is tried once only. */
	unsigned patience_ms;
	/* Memory that stays mapped though no blob in it is held, so that getting it again costs nothing;
	 * bytes; 0: 1 GiB. */
	size_t cache_bytes;
	/* The same of each device's memory; 0: 1 GiB. What is deleted is unmapped all the same. */
	size_t device_cache_bytes;
};
#define SLUICE_STORE_OPTIONS_INIT                             \
	{                                                     \
		sizeof(struct sluice_store_options), 0, 0, 0, \
	}

/*
 * Connects to the daemon. path names its socket; NULL: SLUICE_STORE in the environment, else
 * $XDG_RUNTIME_DIR/sluice.sock. o may be NULL. -ENOENT, -ECONNREFUSED: nobody listens there. -EACCES: its
 * permissions do not let us in. -EPERM: its server is neither our user's nor root's, nor the user's that
 * SLUICE_STORE_OWNER in the environment names, a name or a number. -EPROTO: it speaks another version. -EAGAIN: it has no place
 * for one more client. -EINVAL: no path is known, or it is too long for a socket. -ENOMEM, -EMFILE, -ENFILE.
 */
SLUICE_API int sluice_store_open(const char *path, const struct sluice_store_options *o,
                                 sluice_store **out);

/*
 * -EBUSY, and nothing happens, while blobs, tensors or watches of it are held. Waits for seals and releases in stream
 * order that are under way: for their streams; and unmaps memory of devices, which may wait for what those were given. NULL is
 * allowed.
 */
SLUICE_API int sluice_store_close(sluice_store *s);

/* ---------------------------------------------------------------------------------- metadata */

/* The most dimensions of a tensor. */
#define SLUICE_BLOB_RANK_MOST 8

/*
 * What is said of a blob's bytes, fixed by the seal. One that is no tensor has type 0, and with it rank and
 * offset are 0; elements of other types than these can be told in the note.
 */
struct sluice_blob_metadata {
	size_t size;   /* sizeof(struct sluice_blob_metadata) */
	int type;      /* of its elements, of enum sluice_type; 0: no tensor */
	unsigned rank; /* dimensions; 0: one element */
	int64_t shape[SLUICE_BLOB_RANK_MOST];
	/* Elements from one to the next in each dimension, not negative; all 0: compact, the last dimension
	 * the fastest. */
	int64_t strides[SLUICE_BLOB_RANK_MOST];
	uint64_t offset;  /* bytes from the start of the blob to the first element */
	const void *note; /* free bytes of the caller's */
	size_t note_bytes;
};
#define SLUICE_BLOB_METADATA_INIT                                               \
	{                                                                       \
		sizeof(struct sluice_blob_metadata), 0, 0, {0}, {0}, 0, NULL, 0 \
	}

/* ------------------------------------------------------------------------------------ create */

enum sluice_blob_flags {
	/* The name is taken now: create answers -EEXIST, and watchers see it. Without it nobody hears of
	 * the name before the seal, which then is what says -EEXIST. */
	SLUICE_BLOB_RESERVE = 1 << 0,
	/* It may be dropped when memory is short and nobody holds it. */
	SLUICE_BLOB_CACHE = 1 << 1,
	/* Its memory holds no other blob, however small it is. */
	SLUICE_BLOB_ALONE = 1 << 3,
	/* It is never dropped or moved out of memory. */
	SLUICE_BLOB_PIN = 1 << 4,
	/* Its seal takes the name from a sealed blob that has it, which is deleted: whoever gets
	 * the name finds the one or the other, at any moment and whatever dies meanwhile. Not with RESERVE, and
	 * by a seal of its own (-EINVAL, also in stream order). */
	SLUICE_BLOB_REPLACE = 1 << 5,
	/* It lives as long as somebody holds it: from the seal on its maker, until the release of the handle that it sealed,
	 * and whoever gets it meanwhile, a get that waits for the seal too. With the last release, or the death of the last
	 * holder, it is deleted, also after the server was replaced. It never leaves memory for a file. While it is pinned it stays. */
	SLUICE_BLOB_TRANSIENT = 1 << 6,
	/* Of create only: memory that nobody has used before is not made ready by it, see there. For who writes less
	 * than a tenth of the blob, and for threads that each make their part ready, with sluice_blob_warm(). */
	SLUICE_BLOB_COLD = 1 << 16,
};

/* Start from SLUICE_BLOB_OPTIONS_INIT. */
struct sluice_blob_options {
	size_t size;                                 /* sizeof(struct sluice_blob_options) */
	unsigned flags;                              /* of enum sluice_blob_flags */
	const struct sluice_blob_metadata *metadata; /* copied; NULL: none */
};
#define SLUICE_BLOB_OPTIONS_INIT                             \
	{                                                    \
		sizeof(struct sluice_blob_options), 0, NULL, \
	}

/*
 * Makes a blob of n bytes, writable by this process until its seal. Its contents are undefined; its
 * memory is aligned to 4096 bytes. name NULL or "": it has none, and others get it by its id. device -1:
 * the host; else the number of a device, whose driver may be called; a store's first blob on a device may
 * wait for all that the device was given before. o may be NULL.
 *
 * Small blobs of a process lie side by side in common memory of the device, at least 2 MiB of which is taken at
 * once; who has one of them mapped can read all of it. SLUICE_BLOB_ALONE keeps a blob out of it. While what was
 * deleted on a device is being unmapped, and would be enough, the call waits for that, for 3 seconds at most.
 *
 * Memory that nobody has used before is made ready to be written: that of blobs of 8 MiB and more, as far as the
 * kernel gives pages of 2 MiB, and with a few threads that are over when the call returns. That takes about as long
 * as to copy as many bytes, where writing to it as it was would take ten times that. Memory of blobs that were
 * deleted is ready as it is, and comes first.
 *
 * If memory is short and the daemon spills, the call waits until there is room, for a minute at most.
 *
 * -EEXIST: with RESERVE, and the name is taken, by a blob that is sealed or being made. -ENOSPC: there is not so much memory
 * left; the sentence says who holds what, and why nothing could be spilled. -EDQUOT: there are as many
 * blobs as there may be, or as many with much metadata (see sluice_blob_seal()), or this client makes as many as it may; -ENFILE: the daemon has no descriptor left. -EINVAL: n is 0, the name, the metadata or the options are wrong. -ENOTSUP: that place is
 * not there, or its memory cannot be shared.
 * -ECONNREFUSED: the server did not come back in time. -EMFILE, -ENOMEM.
 */
SLUICE_API int sluice_blob_create(sluice_store *s, const char *name, size_t n, int device,
                                  const struct sluice_blob_options *o, sluice_blob **out);

/* One of several blobs to make. */
struct sluice_blob_request {
	const char *name;
	size_t bytes;
	int device;
	const struct sluice_blob_options *options;
};
/* Makes count blobs, at most SLUICE_BLOB_BATCH, or none of them. out: count handles. */
SLUICE_API int sluice_blob_create_many(sluice_store *s, const struct sluice_blob_request *v,
                                       size_t count, sluice_blob **out);

/* The bytes, while they may be written: NULL after the seal. They are valid until the release. */
SLUICE_API void *sluice_blob_mutable_data(sluice_blob *b);

/*
 * Makes n bytes at offset, which are about to be written, ready for it, as create does of blobs of 8 MiB and more
 * without SLUICE_BLOB_COLD; does nothing where that was done or is not possible. By any number of threads for
 * parts of their own. On an idle machine 4 MiB at a time, each followed by its write, is fastest. On a busy one a call
 * may wait some milliseconds; the first that does so makes the rest of the blob ready, too. -EINVAL: beyond the
 * blob. -EPERM: sealed.
 */
SLUICE_API int sluice_blob_warm(sluice_blob *b, size_t offset, size_t n);

/* Replaces the metadata; before the seal. -EINVAL: it is wrong, or does not fit the blob. -EPERM: sealed. */
SLUICE_API int sluice_blob_set_metadata(sluice_blob *b, const struct sluice_blob_metadata *m);

/*
 * Publishes the blob: from here on nobody changes it, and others get it. The caller has stopped writing.
 * The handle now holds it like one that was got. -EEXIST: the name was taken meanwhile; the blob stays as
 * it was. -ECONNRESET: the server was replaced, the blob is lost. -EPERM: it is sealed already. -ENOSPC, -EDQUOT as for create;
 * -EDQUOT also if it has more than 136 bytes of metadata (24, a note, and 16 for each dimension) and so have an eighth of all
 * blobs that there may be (8192 of 65536): it stays as it was. -ENOBUFS: it is sealed, and others get it, but this store
 * holds SLUICE_STORE_HOLDS_MOST blobs: its data is NULL, the handle is good for a release only, and get finds the blob when others
 * were released; but for a transient one, which goes if nobody else holds it.
 */
SLUICE_API int sluice_blob_seal(sluice_blob *b);
/* Seals count blobs of one store, at most SLUICE_BLOB_BATCH: all become visible at once, or none does. They may be
 * in different places: what belongs together on the host and on devices is published as one. */
SLUICE_API int sluice_blob_seal_many(sluice_blob *const *v, size_t count);

/*
 * The same in stream order: the call returns at once, and the blobs are sealed when the stream has done all it was
 * given before, soon after and by a thread of the store's. The stream is a device's, and need not be that of the blobs.
 * Until then nobody but the stream writes to the blobs. A handle may be released meanwhile, and is sealed all the
 * same; if the process dies before the stream has come that far the blob is gone. sluice_blob_wait_sealed() says how it
 * ended. If the store has made no blob on the stream's device yet, the call may wait for all that the device
 * was given before. -EPERM: sealed, or to be sealed, already. -EINVAL: the stream is captured. -ENOTSUP: the
 * device has no stream order. -ENOMEM.
 */
SLUICE_API int sluice_blob_seal_on(sluice_blob *b, sluice_stream stream);
SLUICE_API int sluice_blob_seal_many_on(sluice_blob *const *v, size_t count, sluice_stream stream);
/*
 * Waits until a seal in stream order has happened: 0, or why it failed (as sluice_blob_seal(), or -EIO: the
 * device has failed); the blob then is as it was before. -ETIMEDOUT: not yet; timeout_ms as for sluice_wait(). 0 for
 * a blob that is sealed. -EINVAL: nothing was asked for.
 */
SLUICE_API int sluice_blob_wait_sealed(sluice_blob *b, int timeout_ms);

/*
 * Publishes n bytes of a device's memory that the program has allocated itself (with cudaMalloc, or sluice_device_alloc),
 * from memory on, without a copy. They are sealed at once: the program writes to them no more, and does not free
 * them before the blob is deleted and nobody holds it (sluice_blob_stat() says who does). The blob lives
 * as long as its process is connected, at most: see SLUICE_BLOB_OF_PROCESS. All of the allocation that the bytes are in can
 * be read by those who get it. o->flags: SLUICE_BLOB_RESERVE and SLUICE_BLOB_ALONE mean nothing.
 * -EINVAL: memory is not a device's. -ENOTSUP: the device cannot share that memory. Else as create and seal.
 */
SLUICE_API int sluice_blob_publish(sluice_store *s, const char *name, const void *memory, size_t n,
                                   const struct sluice_blob_options *o, sluice_blob **out);

/* --------------------------------------------------------------------------------------- get */

/*
 * Gets a sealed blob, mapped read-only. With a time-out other than 0 the call waits until a client has created and
 * sealed the blob: for ever if the time-out is negative. A blob that the daemon has spilled to a file is read first, and
 * the call waits for that beyond the time-out. -ENOENT: there is no such blob; -ETIMEDOUT: the blob was not sealed in time,
 * or the daemon is stopped: a call whose time-out is not negative returns two seconds after it at the latest if the
 * daemon says nothing, and the next call finds the connection as it was.
 * -EMFILE, -ENOMEM: it cannot be mapped. -EIO: it was spilled and cannot be read; -ENOSPC: there is no
 * memory for it. It stays, and may be tried again. -ENFILE: the daemon cannot send a descriptor. -ENOBUFS: this store holds SLUICE_STORE_HOLDS_MOST blobs.
 * -ECONNREFUSED as above.
 */
SLUICE_API int sluice_blob_get(sluice_store *s, const char *name, int timeout_ms,
                               sluice_blob **out);
/* By id; ids are never used again. One that has a name is found without the server by its name only. */
SLUICE_API int sluice_blob_get_id(sluice_store *s, uint64_t id, int timeout_ms, sluice_blob **out);
/*
 * The same, to be used by another device than the one it is on, which must be able to reach that. -ENOTSUP: it cannot. A
 * blob on the host, too: then its memory is registered with the device (pinned) for the life of its mapping.
 */
SLUICE_API int sluice_blob_get_on(sluice_store *s, const char *name, int device, int timeout_ms,
                                  sluice_blob **out);
/* All of count blobs, at most SLUICE_BLOB_BATCH, or none. The time-out is for all together. */
SLUICE_API int sluice_blob_get_many(sluice_store *s, const char *const *names, size_t count,
                                    int timeout_ms, sluice_blob **out);

/*
 * The bytes, aligned to 4096, but for those of SLUICE_BLOB_OF_PROCESS; valid until the release. What was got is
 * mapped read-only, but for those: to write to it ends the program, and on a device fails, or stops the device. NULL: its
 * seal has said -ENOBUFS, or somebody deleted the blob before this process, which sealed it, could hold it.
 */
SLUICE_API const void *sluice_blob_data(const sluice_blob *b);
SLUICE_API size_t sluice_blob_size(const sluice_blob *b);
/* The device whose memory it is in, by its number in this process; -1: the host. */
SLUICE_API int sluice_blob_device(const sluice_blob *b);
/* How long its bytes live. */
enum sluice_blob_kinds {
	SLUICE_BLOB_ON_HOST = 1, /* until it is deleted and nobody holds it */
	SLUICE_BLOB_ON_DEVICE,   /* the same */
	SLUICE_BLOB_OF_PROCESS, /* on a device, at most as long as the process that published it: if that ends while others
	                          * hold the blob, they must not use its bytes any more */
};
SLUICE_API int sluice_blob_kind(const sluice_blob *b);
/* Which names it for every process, and for ever; 0 before the seal. */
SLUICE_API uint64_t sluice_blob_id(const sluice_blob *b);
/* "" if it has none. */
SLUICE_API const char *sluice_blob_name(const sluice_blob *b);
/* out->size is set. What out->note points to lives as long as the handle; strides are filled in. */
SLUICE_API int sluice_blob_get_metadata(const sluice_blob *b, struct sluice_blob_metadata *out);

/*
 * Gives up the handle, with the bytes. A blob that is not sealed is aborted: its name is free, and its
 * memory. NULL is allowed. Always 0, but for -ECHILD. The caller sees to it that no stream has to do with the bytes
 * any more, or uses sluice_blob_release_on(): what nobody holds is unmapped once it is deleted, and a driver does
 * not wait for a stream that still copies from there, but fails it; and memory of the host is given to other blobs.
 */
SLUICE_API int sluice_blob_release(sluice_blob *b);
SLUICE_API int sluice_blob_release_many(sluice_blob *const *v, size_t count);
/*
 * The same in stream order: the call returns at once, the handle is the caller's no more, and the blob is held until
 * the stream has done all it was given before; one that is not sealed by then is aborted then. A blob on the host, too.
 * One that sluice_blob_seal_on() was called for is sealed all the same. The stream is a device's; where it is one that
 * every device has, the device is that which the blob was got for, or is on. sluice_store_close() waits for it. If the device
 * fails the blob is released soon after. If the store has made no blob on the stream's device yet, the call may wait for all that
 * the device was given before. After an error the handle is as it was. -EINVAL: the stream is captured, or no
 * device's. -ENOTSUP: the device has no stream order. -EIO: it has failed. -ENOMEM. NULL is allowed.
 */
SLUICE_API int sluice_blob_release_on(sluice_blob *b, sluice_stream stream);

/*
 * The blob as a tensor that other libraries take without a copy: of version 0 a DLManagedTensor, of
 * version 1 a DLManagedTensorVersioned with the flag of read-only memory, both as in dlpack.h. It holds the
 * blob on its own account until its deleter is called, from whatever thread; the store is not closed until
 * then. -EINVAL: the metadata names no element type, or another version. -EPERM: not sealed. -ENOMEM.
 */
SLUICE_API int sluice_blob_to_dlpack(sluice_blob *b, unsigned version, void **out);

/* ------------------------------------------------------------------------------- delete, tell */

/* Frees the name at once, and the memory when the last holder has released it. -ENOENT. */
SLUICE_API int sluice_blob_delete(sluice_store *s, const char *name);
SLUICE_API int sluice_blob_delete_id(sluice_store *s, uint64_t id);
/* 1: there is a sealed blob of that name; 0: there is none; or an error. */
SLUICE_API int sluice_blob_exists(sluice_store *s, const char *name);
/* Keeps it in memory whatever happens, or no longer. One that is spilled comes back first. -ENOENT;
 * -EIO, -ENOSPC as for get: then it is not pinned. */
SLUICE_API int sluice_blob_pin(sluice_store *s, const char *name, int pinned);

enum sluice_blob_state {
	SLUICE_BLOB_IS_CREATED = 1,
	SLUICE_BLOB_IS_SEALED,
	SLUICE_BLOB_IS_DYING,
	SLUICE_BLOB_IS_SPILLED, /* sealed, and in a file; get brings it back */
};
/* What is told of a blob without getting it. */
struct sluice_blob_info {
	size_t size; /* in: sizeof(struct sluice_blob_info) */
	char name[SLUICE_BLOB_NAME_MOST + 1];
	uint64_t id;
	uint64_t bytes;
	uint64_t
		memory; /* that it takes, rounded up as its memory is handed out; 0: it is spilled */
	int device;     /* -1: the host */
	int state;      /* of enum sluice_blob_state */
	unsigned flags;   /* of enum sluice_blob_flags */
	unsigned holders; /* clients that hold it; 0 in a list */
	uint32_t user;    /* who made it: uid */
	int32_t process;  /* that made it */
	int64_t made_ns;  /* since 1970: when it was sealed, or created if it is not */
	int kind;         /* of enum sluice_blob_kinds */
	/* The device as the store knows it, for every process: its PCI address, "0000:65:00.0", or what
	 * sluice_device_find() takes; "" for the host. device is -2 if this process does not have it. */
	char place[SLUICE_BLOB_PLACE_BYTES];
};
SLUICE_API int sluice_blob_stat(sluice_store *s, const char *name, struct sluice_blob_info *out);
/*
 * The blobs whose names begin with prefix ("" or NULL: all, those without a name too), in no order. *cursor
 * is 0 at first, and is moved on. Returns how many of at most `most` were written to out, 0: that was all.
 * out[0].size is set and goes for all. What is made or deleted meanwhile is in it or not.
 */
SLUICE_API int sluice_blob_list(sluice_store *s, const char *prefix, uint64_t *cursor,
                                struct sluice_blob_info *out, size_t most);

/* Counts of the server; those that say "now" go up and down, the others only grow until it is replaced. */
struct sluice_store_counts {
	size_t size;           /* in: sizeof(struct sluice_store_counts) */
	uint64_t memory_limit; /* bytes of host memory that it may hand out */
	uint64_t memory_bytes; /* now: that it has handed out or keeps warm */
	uint64_t blob_bytes;   /* now: of blobs, as memory is handed out */
	uint64_t leased_bytes; /* now: with clients, for blobs to come */
	uint64_t warm_bytes;   /* now: kept for the next ones */
	uint64_t sealed;       /* now: blobs */
	uint64_t created;      /* now: blobs not sealed, those of leases not counted */
	uint64_t dying;        /* now: deleted and held */
	uint64_t clients;      /* now: connections */
	uint64_t waiting;      /* now: gets that wait */
	uint64_t seals, gets, deletes, dropped; /* since the server began */
	uint64_t requests, refused;             /* messages; of those, answered by an error */
	uint64_t replacements;                  /* servers before this one */
	uint64_t up_ns;                         /* since the server began */
	/* 0, all of them, if the daemon has no place to spill to. */
	uint64_t spilled; /* now: blobs that are in files only */
	uint64_t
		spilled_bytes; /* now: in files, of these, and of others that have a copy there; until they are closed */
	uint64_t
		spill_limit; /* bytes that may be in files; UINT64_MAX: as much as there is place */
	uint64_t spills, returns; /* blobs that left memory; that came back */
	uint64_t spill_failures;  /* files that could not be written, or read */
	uint64_t upgrades;        /* of the daemon to another program, so far */
	uint64_t supervisor;      /* now: the daemon's processes, as itself numbers them */
	uint64_t server;
	char version[24]; /* of the program that the server runs, as of sluice_version() */
};
SLUICE_API int sluice_store_stats(sluice_store *s, struct sluice_store_counts *out);

/*
 * Gives back at once the host memory that the daemon keeps for the next blobs, which it does by itself a minute after
 * its last use (sluiced --keep-time), and what this store has been leased for blobs to come. *freed, which may be NULL:
 * bytes. What other processes have been leased, at most a sixteenth of all memory each, stays theirs. Memory of devices
 * is never kept. Errors as sluice_blob_delete(), but for -ENOENT.
 */
SLUICE_API int sluice_store_trim(sluice_store *s, uint64_t *freed);

/*
 * Has the daemon go on as the program that is now at the path where its first process began. Sealed blobs stay, with
 * their names and holders; a blob that is not sealed is lost, as when the server dies. Returns when the new server
 * answers. On an error the old one goes on and nothing is lost: -ENOTSUP: the program hands over another layout of
 * what outlives a server; -ENOENT, -EACCES, -ENOEXEC: there is none, or it does not say its layout in 5 s; -EBUSY: another
 * upgrade is under way.
 */
SLUICE_API int sluice_store_upgrade(sluice_store *s);
/* Stops the daemon, and waits until it has ended: all its blobs are gone, but for those that somebody has mapped. -ETIMEDOUT:
 * that takes more than 30 s. */
SLUICE_API int sluice_store_stop(sluice_store *s);

/*
 * What the store knows of the memory of devices. It is what clients say: the daemon has no driver, so its limits hold
 * for those who keep to them. Memory counts until the last process has unmapped it.
 */
struct sluice_store_device_info {
	size_t size;                         /* in: sizeof(struct sluice_store_device_info) */
	char place[SLUICE_BLOB_PLACE_BYTES]; /* as in struct sluice_blob_info */
	int device;             /* by its number in this process; -2: it does not have it */
	uint64_t memory_limit;  /* bytes; UINT64_MAX: none */
	uint64_t memory_bytes;  /* now: of blobs and of leases */
	uint64_t leaving_bytes; /* now, of these: deleted, and still mapped by somebody */
};
/* One by one, index from 0; -ENOENT past the last one. A device is known once a process has made a blob there, or
 * asked for one, and if the daemon's options name it. */
SLUICE_API int sluice_store_device(sluice_store *s, unsigned index,
                                   struct sluice_store_device_info *out);

/* ------------------------------------------------------------------------------------- watch */

enum sluice_watch_kind {
	SLUICE_WATCH_CREATED =
		1, /* the name was taken; of a blob without RESERVE just before its seal */
	SLUICE_WATCH_SEALED,
	SLUICE_WATCH_DELETED, /* also: aborted, or its process died */
	SLUICE_WATCH_LOST,    /* events are missing here: list again. bytes and name mean nothing */
};
struct sluice_watch_event {
	size_t size; /* in: sizeof(struct sluice_watch_event) */
	int kind;    /* of enum sluice_watch_kind */
	uint64_t id;
	uint64_t bytes;
	char name[SLUICE_BLOB_NAME_MOST + 1];
};
/*
 * Watches blobs whose names begin with prefix (NULL or "": all that have a name) from now on. A watcher that
 * does not read loses events, and is told so; nobody waits for it. Errors as sluice_store_open().
 */
SLUICE_API int sluice_watch_open(sluice_store *s, const char *prefix, sluice_watch **out);
/* A descriptor that is readable while sluice_watch_next() has something to say; for poll() and epoll only.
 * It is the same for the life of the watch. */
SLUICE_API int sluice_watch_fd(const sluice_watch *w);
/* The next event; waits as sluice_blob_get() does. -EAGAIN: none in time. After the server was replaced it
 * connects again, and says SLUICE_WATCH_LOST. One thread at a time. */
SLUICE_API int sluice_watch_next(sluice_watch *w, int timeout_ms, struct sluice_watch_event *out);
/* NULL is allowed. */
SLUICE_API void sluice_watch_close(sluice_watch *w);

#ifdef __cplusplus
}
#endif
#endif
