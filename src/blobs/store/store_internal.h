/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of the store: a store and its blobs, for the files of this room.
 *
 *   conn.h             the connection to the server, calls over it, and the mapped catalogue
 *   mapping.h          regions of memory that are mapped in this process
 *   device/devices.h   devices: mappings that drivers make, seals in stream order, two threads
 *
 * Any thread may call any public function. A store has no thread of its own until it has to do with
 * a device.
 */
#ifndef SL_STORE_STORE_INTERNAL_H
#define SL_STORE_STORE_INTERNAL_H

#include "catalogue/catalogue.h"
#include "protocol/protocol.h"

#define SL_LEASE_CACHE_MOST 128
#define SL_MAPPING_BUCKETS  256

struct sl_device;

struct sluice_store {
	uint32_t process; /* see sl_process_is() */
	char path[108];
	unsigned patience_ms;
	size_t cache_bytes, device_cache_bytes;
	const struct sl_conn_events *events;
	_Atomic unsigned handles;             /* blobs, tensors and watches that the caller has */
	struct sl_mutex opening;              /* held while a device is opened */
	_Atomic(struct sl_devices *) devices; /* NULL: no device yet. Set once, under opening */
	struct sl_mutex mutex;
	pthread_cond_t connected; /* a thread has tried to connect */
	pthread_cond_t sent;      /* a thread has sent a request */
	pthread_cond_t mapped;    /* a mapping is ready or has failed; SL_MSG_DROP was sent */
	struct sl_conn *conn SL_GUARDED_BY(&mutex); /* NULL: not connected */
	struct sl_catalogue_view *view SL_GUARDED_BY(&mutex);
	bool connecting SL_GUARDED_BY(&mutex); /* a thread connects */
	int connect_rc SL_GUARDED_BY(&mutex);  /* of the last time */
	uint32_t serial SL_GUARDED_BY(&mutex); /* of the last request */
	/* Number of the server: lower half among those of a daemon, upper half the daemon. */
	uint64_t epoch SL_GUARDED_BY(&mutex);
	int64_t heard_at SL_GUARDED_BY(&mutex); /* kernel tick of the last reply */
	struct sl_list mappings[SL_MAPPING_BUCKETS] SL_GUARDED_BY(&mutex);
	struct sl_list idle SL_GUARDED_BY(&mutex); /* mappings, least recently used first */
	size_t idle_bytes SL_GUARDED_BY(&mutex);
	struct sl_lease lease_cache[SL_LEASE_CACHE_MOST] SL_GUARDED_BY(&mutex);
	unsigned lease_cache_count SL_GUARDED_BY(&mutex);
};

struct sluice_blob {
	sluice_store *store;
	_Atomic unsigned references; /* of the caller, of tensors, and of a seal in stream order */
	/* These three change in a seal in stream order, while the caller may read them. */
	_Atomic int state; /* enum sluice_blob_state */
	_Atomic(char *) data;
	_Atomic uint64_t id;
	/* Valid until the seal. */
	struct sl_lease lease;
	uint64_t epoch; /* of the server that gave the lease */
	bool entered;   /* the catalogue has an entry for its name already */
	uint64_t start; /* offset in the range; other than 0 only in a published allocation */
	/* A seal in stream order. Guarded by devices->mutex, except for `requested`. */
	struct {
		bool requested; /* ever; written and read by the caller's thread */
		bool pending;
		int rc;         /* the last seal's, */
		char *message;  /* and its error message, or NULL; */
		uint64_t rival; /* as of sluice_last_rival() */
	} stream_seal;
	/* Valid after the seal: the hold on the catalogue's entry. */
	struct sl_catalogue_view *view;
	struct sl_held_blob held;

	struct sl_mapping *mapping;
	size_t bytes;
	unsigned flags;
	uint64_t replaces;            /* until the seal; as in its options */
	int device;                   /* its public number; -1: the host */
	unsigned kind;                /* enum sluice_blob_kinds */
	struct sl_store_device *sdev; /* of its device; NULL: the host */
	char name[SL_NAME_BYTES];
	/* Of an owner its parts, NULL until they are mapped; of a part its owner. */
	_Atomic(sluice_blob *) *parts;
	unsigned part_count;
	sluice_blob *owner;
	const struct sl_metadata *metadata; /* in the catalogue, or own_metadata, or NULL */
	struct sl_metadata *own_metadata;
	/* Its memory is a whole region of which no page has been touched yet. */
	_Atomic bool cold;
	bool stays_cold; /* SLUICE_BLOB_COLD */
};

/* -------------------------------------------------------------------------------------- store */

/* Finds the path of the socket as sluice_store_open() does. Returns 0 or -EINVAL with a message. */
int sl_store_path(const char *path, char out[108]);
/* Checks the store as a public call begins: 0, -ECHILD or -EINVAL with a message. */
int sl_store_check(const sluice_store *store, const char *call);
/* Sets a key to a name or, if name is NULL, to an id. Returns 0 or -EINVAL with a message. */
int sl_key_set(struct sl_key *key, const char *name, uint64_t id);

/* --------------------------------------------------------------------------------------- blob */

/* Returns a handle with a reference and without memory; NULL: no memory. */
sluice_blob *sl_blob_new(sluice_store *store);
/* Gives a reference back. The last reference unmaps the blob and releases its lease or its hold. */
void sl_blob_unref(sluice_blob *blob);
/* The same for the reference of a handle or of a tensor, which a store waits for in its close. */
void sl_blob_release_handle(sluice_blob *blob);
/* Asks that daemon, if it is there, whether a deleted or transient blob is still held. */
void sl_blob_nudge(sluice_store *store, const struct sl_catalogue_view *view, uint64_t id);
/* The same for the blobs of a call that has failed with rc; keeps the error message. */
void sl_blobs_give_up(sluice_blob *const *blobs, size_t count, int rc);
/* Maps the blob of a record, at vacant addresses if `at` is not NULL, and fills in the handle;
 * -ESTALE: its region is gone. */
int sl_blob_map(sluice_blob *blob, const struct sl_blob_record *record, uint64_t epoch,
                const struct sl_device *for_device, const struct sluice_addresses *at,
                int64_t deadline);
/* Returns -EPERM with a message that names the call if the blob is a part of another. */
int sl_blob_check_no_part(const sluice_blob *blob, const char *call);
/* Checks a request and makes a handle of it, without memory. */
int sl_blob_prepare(sluice_store *store, const struct sluice_blob_request *r, sluice_blob **out);
/* Returns 0, or -EPERM with a message: a seal in stream order is under way. */
int sl_blob_check_no_seal_pending(sluice_blob *blob);
/* Touches the memory of a new large blob, unless it was created COLD. */
void sl_blob_warm(sluice_blob *blob);

/* Leases memory for all blobs that have no lease, by a single call. */
int sl_blobs_lease(sluice_store *store, sluice_blob *const *blobs, size_t count);
/* Gives the lease of an unsealed blob back; again: to the lease cache, if the lease is small. */
void sl_lease_end(sluice_blob *blob, bool again);
/* Keeps leases from a reply of that server for later blobs. */
void sl_lease_cache_add(sluice_store *store, uint64_t epoch, const struct sl_lease *v, unsigned n);
/* Takes a fitting lease from the cache, if there is any. */
void sl_lease_cache_take(sluice_store *store, sluice_blob *blob);
/* Gives the cached leases of host memory back to the server. */
void sl_lease_cache_return(sluice_store *store);
/* Checks whether blobs may be sealed together. Errors have a message that names the call. */
int sl_blobs_check(const char *call, sluice_blob *const *v, size_t count);
/* Seals blobs of a store. After -ESTALE sl_set_last_rival() was called. */
int sl_blobs_seal(sluice_store *store, sluice_blob *const *v, size_t count);
/* Sets the result of sluice_last_rival() in this thread. */
void sl_set_last_rival(uint64_t id);

#endif
