/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between clients and the server
 *
 * Messages travel over a Unix socket that preserves boundaries (SOCK_SEQPACKET). Each has a header,
 * a body of fixed size and a number of items of fixed size. Numbers are little-endian; strings end
 * with NUL and are zero behind it. A message with a length other than its header and count require,
 * or with an impossible value, ends the connection. A field named zero is padding.
 *
 * A request has a serial number, and its reply has the same; replies may come in any order.
 * Requests without a reply, and messages that the server sends unasked, have the serial number 0.
 * The reply to a request that fails is a struct sl_msg_refusal. The server sends descriptors with
 * its replies; a client sends a descriptor with SL_MSG_OFFER, and with SL_MSG_HELLO its own pidfd,
 * if it can open that.
 *
 * Memory of devices is made by clients: the server leases a range of a region that does not exist
 * yet (lease.make); the client makes the region and offers its descriptor before it seals a blob
 * there. Readers ask for the descriptor as for that of any region. When the region is to go, all
 * clients that have mapped it are told (SL_MSG_FORGET), and its bytes are counted until each has
 * answered (SL_MSG_DROP) or has died.
 */
#ifndef SL_PROTOCOL_H
#define SL_PROTOCOL_H

#include <sluice/store.h>

#include "catalogue/catalogue.h"
#include "core/core.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "messages are structs as they lie in memory");

#define SL_PROTOCOL_MAGIC   UINT32_C(0x53554c53) /* "SLUS" */
#define SL_PROTOCOL_VERSION 7
/* Length of the longest message. */
#define SL_MESSAGE_MOST 32768
#define SL_NAME_BYTES   (SLUICE_BLOB_NAME_MOST + 1)
/* Serial number of a refusal that is about the connection, which then ends. */
#define SL_SERIAL_ANY UINT32_MAX
/* Most items of a message. */
#define SL_ITEMS_MOST SLUICE_BLOB_BATCH
#define SL_TEXT_BYTES 512
/* The values of enum sluice_blob_flags that the server is told of. */
#define SL_BLOB_FLAGS ((SLUICE_BLOB_TRANSIENT << 1) - 1)

enum sl_message_type {
	SL_MSG_HELLO = 1, /* the first message of a connection; answered by SL_MSG_WELCOME */
	SL_MSG_CREATE,    /* answered by SL_MSG_LEASES, at times with more leases than items */
	SL_MSG_SEAL,      /* answered by SL_MSG_FOUND */
	SL_MSG_ANNOTATE,  /* metadata of a leased blob, before its seal; no reply */
	SL_MSG_ABORT,     /* gives leases back; no reply */
	SL_MSG_GET,       /* answered by SL_MSG_FOUND */
	SL_MSG_REGION,    /* answered by SL_MSG_MEMORY, with a descriptor */
	SL_MSG_LOCATE,    /* finds a blob if its seal's reply was lost; answered by SL_MSG_FOUND */
	SL_MSG_DROP,      /* regions not mapped any more (of the host: for writing); no reply */
	SL_MSG_NUDGE,     /* deleted or transient blobs that were released here; no reply */
	SL_MSG_DELETE,    /* answered by SL_MSG_DONE */
	SL_MSG_PIN,       /* answered by SL_MSG_DONE */
	SL_MSG_STAT,      /* answered by SL_MSG_INFO with a single item */
	SL_MSG_LIST,      /* answered by SL_MSG_INFO */
	SL_MSG_STATS,     /* answered by SL_MSG_COUNTS */
	SL_MSG_TRIM,      /* frees memory kept for new blobs; answered by SL_MSG_COUNTS */
	SL_MSG_DEVICE,    /* answered by SL_MSG_DEVICE_IS */
	SL_MSG_OFFER,     /* the descriptor of a region that was to be made; no reply */
	SL_MSG_HAVE,      /* regions of devices that are mapped here, for a new server; no reply */
	SL_MSG_DAEMON, /* upgrade or stop; answered by SL_MSG_DONE, or by the end of the server */
	SL_MSG_BYE,    /* nothing is mapped here any more; no reply */
	SL_MSG_WELCOME,
	SL_MSG_LEASES,
	SL_MSG_FOUND,
	SL_MSG_MEMORY,
	SL_MSG_DONE,
	SL_MSG_INFO,
	SL_MSG_COUNTS,
	SL_MSG_REFUSAL,
	SL_MSG_DEVICE_IS,
	SL_MSG_FORGET, /* to clients: regions of devices to unmap when no blob there is held */
	SL_MSG_EVENT,  /* to watchers */
	SL_MSG_TYPES
};

struct sl_head {
	uint32_t magic;
	uint16_t version;
	uint16_t type;   /* enum sl_message_type */
	uint32_t serial; /* of the request */
	uint32_t bytes;  /* of the whole message */
	uint32_t count;  /* of items */
	int32_t error;   /* of a refusal: negative errno; otherwise 0 */
	/*
	 * Of a request: the client has used all replies up to this serial number, so the server
	 * need not hold the blobs in them any more.
	 */
	uint32_t settled;
	uint32_t zero;
};

enum sl_role { SL_ROLE_CLIENT = 1, SL_ROLE_WATCH };
struct sl_msg_hello {
	struct sl_head head;
	uint32_t role; /* enum sl_role */
	uint32_t zero;
	uint64_t session;           /* 0, or the session in this process's last welcome */
	char prefix[SL_NAME_BYTES]; /* of a watch */
};
struct sl_msg_welcome {
	struct sl_head head;
	uint64_t store;   /* the same for all servers of one daemon */
	uint64_t epoch;   /* of this server; every new server of a daemon has a larger number */
	uint64_t session; /* of this client */
	/* that came with it: of the catalogue and of this client's references; or 0 */
	uint32_t descriptors;
	uint32_t zero;
};

/*
 * A device is known to all processes of a machine by its place (struct sluice_blob_info). The
 * server gives it a number, which never changes, when a client first asks by place.
 */
struct sl_msg_device {
	struct sl_head head;
	int32_t number; /* -1: asks for the number of the place */
	uint32_t zero;
	char place[SLUICE_BLOB_PLACE_BYTES]; /* "" if number is not -1 */
};
struct sl_msg_device_is {
	struct sl_head head;
	struct sluice_store_device_info item; /* with the server's number; its size is not set */
};

struct sl_create_item {
	uint64_t bytes;
	int32_t device; /* -1: the host; otherwise the server's number of the device */
	uint32_t flags; /* enum sluice_blob_flags */
	/*
	 * enum sluice_blob_kinds. OF_PROCESS: `bytes` is the size of the whole allocation, and the
	 * descriptor offered for it is a memfd with the driver's description of it.
	 */
	uint32_t kind;
	uint32_t zero;
	char name[SL_NAME_BYTES];
};
struct sl_msg_create {
	struct sl_head head;
	struct sl_create_item items[];
};

/* A range of a region; a region is the memory of one descriptor. */
struct sl_region_range {
	uint64_t region; /* its number, which is never used again */
	uint64_t region_bytes;
	uint64_t offset;
	uint64_t capacity; /* of the range */
	int32_t device;
	uint32_t kind; /* enum sluice_blob_kinds */
};
/* The right to make a blob in a range. */
struct sl_lease {
	uint64_t id; /* 0: no lease */
	/* 1: the client that gets the lease is to make and offer the region; otherwise 0 */
	uint32_t make;
	uint32_t zero;
	struct sl_region_range range;
};
struct sl_msg_leases {
	struct sl_head head;
	struct sl_lease items[];
};
struct sl_msg_memory {
	struct sl_head head;
	uint64_t region;
	uint64_t bytes;
	int32_t device;
	uint32_t kind;
};
struct sl_msg_offer {
	struct sl_head head;
	uint64_t region;
};

/*
 * Metadata, in messages and in the catalogue. It is followed by `rank` lengths and `rank` strides
 * of 8 bytes each, and then by the note.
 */
struct sl_metadata {
	uint32_t type; /* enum sluice_type; 0: not a tensor */
	uint32_t rank;
	uint64_t offset;
	uint32_t note_bytes;
	uint32_t zero;
};
_Static_assert(sizeof(struct sl_metadata) + 16 * SLUICE_BLOB_RANK_MOST + SLUICE_BLOB_NOTE_MOST ==
                       SL_METADATA_MOST,
               "a whole record fits into the catalogue");

struct sl_seal_item {
	uint64_t lease; /* its id */
	uint64_t bytes; /* at most the capacity of the lease */
	/* offset of the blob in its range; other than 0 only in a region of a process */
	uint64_t start;
	uint32_t flags; /* enum sluice_blob_flags */
	uint32_t zero;
	/* With SLUICE_BLOB_REPLACE: the id to replace; 0: any, or none. */
	uint64_t replaces;
	char name[SL_NAME_BYTES]; /* "" if it has no name, or the name that it was created with */
};
/*
 * A seal of one blob may be followed by its metadata. Items with the flag SL_FLAG_PART and no other
 * are parts of the last item, without names, the last part first; the answer has an item for the
 * owner alone.
 */
struct sl_msg_seal {
	struct sl_head head;
	struct sl_seal_item items[];
};
struct sl_msg_annotate {
	struct sl_head head;
	uint64_t lease; /* its id */
			/* followed by the metadata */
};

struct sl_id_item {
	uint64_t id; /* SL_MSG_ABORT: of a lease; SL_MSG_NUDGE: of a blob; otherwise of a region */
};
struct sl_msg_ids {
	struct sl_head head;
	struct sl_id_item items[];
};

struct sl_key {
	uint64_t id; /* 0: by name */
	char name[SL_NAME_BYTES];
};
struct sl_msg_get {
	struct sl_head head;
	int32_t timeout_ms; /* negative: no limit */
	uint32_t zero;
	struct sl_key items[];
};
/* A sealed blob. Slot and generation refer to the catalogue that the client has mapped. */
struct sl_found_item {
	uint64_t id;
	uint64_t generation;
	uint32_t slot;
	uint32_t zero;
	struct sl_lease lease; /* after a seal: for the next blob, or none */
};
struct sl_msg_found {
	struct sl_head head;
	struct sl_found_item items[];
};
struct sl_msg_region {
	struct sl_head head;
	uint64_t region;
	uint32_t writable; /* 1 or 0 */
	uint32_t zero;
};
struct sl_msg_locate {
	struct sl_head head;
	uint64_t region, offset;
};

struct sl_msg_one_blob { /* SL_MSG_DELETE, SL_MSG_PIN, SL_MSG_STAT */
	struct sl_head head;
	uint32_t on; /* SL_MSG_PIN: 1 or 0; SL_MSG_DELETE: 1 if the caller knew the id alone */
	/*
	 * 0; or, of a request that is sent again because a server has died, its first serial
	 * number. Then the key is the id that the name had, or a name without a sealed blob.
	 */
	uint32_t first;
	struct sl_key key;
};
struct sl_msg_list {
	struct sl_head head;
	uint64_t cursor;
	uint32_t most;
	uint32_t zero;
	char prefix[SL_NAME_BYTES];
};
struct sl_msg_info {
	struct sl_head head;
	uint64_t next;                   /* SL_MSG_LIST: the next cursor; 0: the end */
	struct sluice_blob_info items[]; /* with the server's device numbers; sizes are not set */
};
struct sl_msg_counts {
	struct sl_head head;
	uint64_t trimmed; /* bytes, by this request */
	struct sluice_store_counts stats;
};
/* The reply to SL_DAEMON_STOP carries the supervisor's pidfd, if the daemon has a supervisor. */
enum sl_daemon_act { SL_DAEMON_UPGRADE = 1, SL_DAEMON_STOP };
struct sl_msg_daemon {
	struct sl_head head;
	uint32_t act; /* enum sl_daemon_act */
	uint32_t zero;
};
struct sl_msg_refusal {
	struct sl_head head; /* error is set */
	uint64_t rival;      /* SL_MSG_SEAL, -ESTALE: the id behind the name; 0: none */
	char text[SL_TEXT_BYTES];
};
struct sl_msg_event {
	struct sl_head head;
	struct sluice_watch_event item; /* its size is not set */
};

/* Memory for any message, with the alignment of its structs. */
union sl_message {
	struct sl_head head;
	unsigned char bytes[SL_MESSAGE_MOST];
	struct sl_msg_hello hello;
	struct sl_msg_welcome welcome;
	struct sl_msg_create create;
	struct sl_msg_leases leases;
	struct sl_msg_seal seal;
	struct sl_msg_annotate annotate;
	struct sl_msg_ids ids;
	struct sl_msg_get get;
	struct sl_msg_found found;
	struct sl_msg_region region;
	struct sl_msg_memory memory;
	struct sl_msg_device device;
	struct sl_msg_device_is device_is;
	struct sl_msg_offer offer;
	struct sl_msg_locate locate;
	struct sl_msg_one_blob one;
	struct sl_msg_list list;
	struct sl_msg_info info;
	struct sl_msg_counts counts;
	struct sl_msg_daemon daemon;
	struct sl_msg_refusal refusal;
	struct sl_msg_event event;
};

/* Returns lease i of SL_MSG_LEASES or SL_MSG_FOUND. */
static inline const struct sl_lease *sl_message_lease(const union sl_message *m, unsigned i)
{
	return m->head.type == SL_MSG_FOUND ? &m->found.items[i].lease : &m->leases.items[i];
}

/* Returns the number of parts in SL_MSG_SEAL, which are its first items; 0: it seals blobs. */
static inline unsigned sl_message_parts(const union sl_message *m)
{
	return m->seal.items[0].flags & SL_FLAG_PART ? m->head.count - 1 : 0;
}

/* Sets the header of a message with count items and zeros the rest. Returns its length. */
size_t sl_message_begin(union sl_message *m, enum sl_message_type type, uint32_t serial,
                        unsigned count);
/* Returns the size of metadata, including the numbers and the note behind it. */
static inline size_t sl_metadata_bytes(const struct sl_metadata *metadata)
{
	return sizeof(*metadata) + (size_t)metadata->rank * 16 + metadata->note_bytes;
}
/* Appends metadata, padded to a multiple of 8 bytes. */
void sl_message_add_metadata(union sl_message *m, const struct sl_metadata *metadata);
void sl_message_refuse(union sl_message *m, uint32_t serial, int error, const char *text);

/*
 * Checks whether n received bytes are a message that a client, or otherwise the server, may send;
 * reads no byte beyond n. Returns 0, or -EPROTO with a message.
 */
int sl_message_check(const union sl_message *m, size_t n, bool from_client);
/* Returns the metadata at the end of a message that was checked; NULL: none. */
const struct sl_metadata *sl_message_metadata(const union sl_message *m);

/* Checks a name of at most size bytes; empty: "" is allowed. 0, or -EINVAL with a message. */
int sl_name_check(const char *name, size_t size, bool empty);
/* Checks n bytes of metadata against the size of the blob. 0, or -EINVAL with a message. */
int sl_metadata_check(const struct sl_metadata *metadata, size_t n, uint64_t blob_bytes);
/* Makes metadata of at most SL_METADATA_MOST bytes. Returns 0, or -EINVAL with a message. */
int sl_metadata_make(const struct sluice_blob_metadata *from, struct sl_metadata *to);
/* Fills the public struct; to->note points into the metadata. */
void sl_metadata_read(const struct sl_metadata *metadata, struct sluice_blob_metadata *to);

/*
 * Names a step of the protocol, in a client or in the server. It does nothing; tests link a
 * function in its place that ends the process there.
 */
void sl_store_step(const char *step);

#endif
