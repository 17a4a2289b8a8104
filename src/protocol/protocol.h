/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients and the server exchange messages over a Unix socket that keeps their ends (SOCK_SEQPACKET), each a header, a body of
 * fixed size and so many items of fixed size. Numbers are little-endian, strings end with NUL and are zero behind it. A message
 * whose length is not exactly what its header and count make it, or with a value that cannot be, breaks the connection. A field
 * named zero only fills a struct up.
 *
 * A client's request has a serial number, and its reply the same; replies may come in another order. Requests without a reply,
 * and what the server sends to watchers, have the serial number 0. A reply with an error is a struct sl_msg_refusal. Descriptors go
 * from the server to clients; to the server one with SL_MSG_OFFER, and with SL_MSG_HELLO the client's pidfd if it can open it.
 *
 * The client makes memory of a device: the server leases a range of a region that does not exist yet (lease.make), the client
 * makes it, and offers its descriptor before it seals anything in it. Readers ask for its descriptor as for any other. When it
 * is to go, all who had it are told (SL_MSG_FORGET), and its bytes count until each has answered (SL_MSG_DROP), or is dead.
 */
#ifndef SL_PROTOCOL_H
#define SL_PROTOCOL_H

#include <sluice/store.h>

#include "catalogue/catalogue.h"
#include "core/core.h"
#include "protocol/step.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "messages are structs as they lie in memory");

#define SL_PROTOCOL_MAGIC   UINT32_C(0x53554c53) /* "SLUS" */
#define SL_PROTOCOL_VERSION 5
/* No message is longer. */
#define SL_MESSAGE_MOST 32768
#define SL_NAME_BYTES   (SLUICE_BLOB_NAME_MOST + 1)
/* Of a refusal that is about the connection, which then ends. */
#define SL_SERIAL_ANY UINT32_MAX
/* Items of one message. */
#define SL_ITEMS_MOST SLUICE_BLOB_BATCH
#define SL_TEXT_BYTES 512
/* Of enum sluice_blob_flags, those that the server is told of. */
#define SL_BLOB_FLAGS ((SLUICE_BLOB_TRANSIENT << 1) - 1)

enum sl_message_type {
	SL_MSG_HELLO = 1, /* the first one of a connection; answered by SL_MSG_WELCOME */
	SL_MSG_CREATE, /* answered by SL_MSG_LEASES: as many as items, then perhaps some in advance */
	SL_MSG_SEAL,   /* answered by SL_MSG_FOUND */
	SL_MSG_ANNOTATE, /* metadata of a lease, before its seal; no reply */
	SL_MSG_ABORT,    /* gives leases back; no reply */
	SL_MSG_GET,      /* answered by SL_MSG_FOUND */
	SL_MSG_REGION,   /* answered by SL_MSG_MEMORY, with a descriptor */
	SL_MSG_LOCATE,   /* what became of a seal whose answer was lost; answered by SL_MSG_FOUND */
	SL_MSG_DROP,     /* regions not mapped any more, those of the host: for writing; no reply */
	SL_MSG_NUDGE,    /* these, deleted or transient, were released here; no reply */
	SL_MSG_DELETE,   /* answered by SL_MSG_DONE */
	SL_MSG_PIN,      /* answered by SL_MSG_DONE */
	SL_MSG_STAT,     /* answered by SL_MSG_INFO, one item */
	SL_MSG_LIST,     /* answered by SL_MSG_INFO */
	SL_MSG_STATS,    /* answered by SL_MSG_COUNTS */
	SL_MSG_TRIM,     /* gives back what is kept for the next blobs; answered by SL_MSG_COUNTS */
	SL_MSG_DEVICE,   /* answered by SL_MSG_DEVICE_IS */
	SL_MSG_OFFER,    /* the descriptor of a region that was to be made; no reply */
	SL_MSG_HAVE, /* regions of devices that are mapped here, to a server that cannot know; no reply */
	SL_MSG_DAEMON, /* to go on as another program, or to stop; answered by SL_MSG_DONE, or by the end of the server */
	SL_MSG_BYE, /* everything is unmapped; no reply */
	SL_MSG_WELCOME,
	SL_MSG_LEASES,
	SL_MSG_FOUND,
	SL_MSG_MEMORY,
	SL_MSG_DONE,
	SL_MSG_INFO,
	SL_MSG_COUNTS,
	SL_MSG_REFUSAL,
	SL_MSG_DEVICE_IS,
	SL_MSG_FORGET, /* to clients: regions of devices that are to be unmapped once nothing in them is held */
	SL_MSG_EVENT, /* to watchers */
	SL_MSG_TYPES
};

struct sl_head {
	uint32_t magic;
	uint16_t version;
	uint16_t type;   /* of enum sl_message_type */
	uint32_t serial; /* of the request */
	uint32_t bytes;  /* of the whole message */
	uint32_t count;  /* of items */
	int32_t error;   /* of a refusal: negative errno; else 0 */
	/* Of a request: the client has taken what all replies up to this serial number named, so that the
	 * server need not hold it for him any more. */
	uint32_t settled;
	uint32_t zero;
};

enum sl_role { SL_ROLE_CLIENT = 1, SL_ROLE_WATCH };
struct sl_msg_hello {
	struct sl_head head;
	uint32_t role; /* of enum sl_role */
	uint32_t zero;
	uint64_t session;           /* 0, or what the last welcome of this process said */
	char prefix[SL_NAME_BYTES]; /* of a watch */
};
struct sl_msg_welcome {
	struct sl_head head;
	uint64_t store;       /* the same for all servers of one daemon */
	uint64_t epoch;       /* of this server; each new one has a larger number */
	uint64_t session;     /* of this client */
	uint32_t descriptors; /* with it: the catalogue's, and of this client's references; or 0 */
	uint32_t zero;
};

/* A device is the same for all processes of a machine by its place, see struct sluice_blob_info; here it has a number,
 * which the server has given it, and which never changes. */
struct sl_msg_device {
	struct sl_head head;
	int32_t number; /* -1: that of the place, which is known from then on */
	uint32_t zero;
	char place[SLUICE_BLOB_PLACE_BYTES]; /* "" if number is not -1 */
};
struct sl_msg_device_is {
	struct sl_head head;
	struct sluice_store_device_info item; /* with the server's number, and without a size */
};

struct sl_create_item {
	uint64_t bytes;
	int32_t device; /* -1: the host; else by the server's number */
	uint32_t flags; /* of enum sluice_blob_flags */
	/* Of enum sluice_blob_kinds. OF_PROCESS: bytes is the size of the allocation, from its start, and what
	 * is offered for it is a memfd that holds what the driver of the device needs to open it. */
	uint32_t kind;
	uint32_t zero;
	char name[SL_NAME_BYTES];
};
struct sl_msg_create {
	struct sl_head head;
	struct sl_create_item items[];
};

/* Where bytes are: a range of a region, which is what one descriptor stands for. */
struct sl_place {
	uint64_t region; /* its number, never used again */
	uint64_t region_bytes;
	uint64_t offset;
	uint64_t capacity; /* of the range */
	int32_t device;
	uint32_t kind; /* of enum sluice_blob_kinds */
};
/* Memory that a client may make a blob in. */
struct sl_lease {
	uint64_t id;   /* 0: no lease */
	uint32_t make; /* 1: the region is to be made and offered by who gets this; else 0 */
	uint32_t zero;
	struct sl_place place;
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

/* Metadata, in messages and in the catalogue. Behind it come rank lengths and rank strides of 8 bytes, then the note. */
struct sl_metadata {
	uint32_t type; /* of enum sluice_type; 0: no tensor */
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
	uint64_t start; /* of the blob in its range; not 0 only in a region of a process */
	uint32_t flags; /* of enum sluice_blob_flags */
	uint32_t zero;
	char name[SL_NAME_BYTES]; /* "" if it has none, or the one it was created with */
};
/* Behind its one item a seal may have a record. */
struct sl_msg_seal {
	struct sl_head head;
	struct sl_seal_item items[];
};
struct sl_msg_annotate {
	struct sl_head head;
	uint64_t lease; /* its id */
			/* a record follows */
};

struct sl_id_item {
	uint64_t id; /* SL_MSG_ABORT: of a lease; SL_MSG_NUDGE: of a blob; else: of a region */
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
	int32_t timeout_ms; /* negative: for ever */
	uint32_t zero;
	struct sl_key items[];
};
/* A blob that is sealed. The slot and its generation are for the client's own catalogue. */
struct sl_found_item {
	uint64_t id;
	uint64_t generation;
	uint32_t slot;
	uint32_t zero;
	struct sl_lease lease; /* after a seal: one for the next, or none */
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
	uint32_t on; /* SL_MSG_PIN: 1 or 0 */
	uint32_t zero;
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
	uint64_t next; /* SL_MSG_LIST: the cursor to go on with; 0: that was all */
	struct sluice_blob_info items[]; /* with the server's numbers of devices, without sizes */
};
struct sl_msg_counts {
	struct sl_head head;
	uint64_t trimmed; /* bytes, by this request */
	struct sluice_store_counts stats;
};
/* The answer to SL_DAEMON_STOP has the supervisor's pidfd with it, if the daemon has one. */
enum sl_daemon_act { SL_DAEMON_UPGRADE = 1, SL_DAEMON_STOP };
struct sl_msg_daemon {
	struct sl_head head;
	uint32_t act; /* of enum sl_daemon_act */
	uint32_t zero;
};
struct sl_msg_refusal {
	struct sl_head head; /* error is set */
	char text[SL_TEXT_BYTES];
};
struct sl_msg_event {
	struct sl_head head;
	struct sluice_watch_event item; /* without a size */
};

/* Memory for any message, aligned for its structs. */
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

/* Lease i of SL_MSG_LEASES or SL_MSG_FOUND. */
static inline const struct sl_lease *sl_message_lease(const union sl_message *m, unsigned i)
{
	return m->head.type == SL_MSG_FOUND ? &m->found.items[i].lease : &m->leases.items[i];
}

/* Sets the header of a message of count items, and zeros its body and items; the length. */
size_t sl_message_begin(union sl_message *m, enum sl_message_type type, uint32_t serial,
                        unsigned count);
/* Bytes of a record with what is behind it. */
static inline size_t sl_metadata_bytes(const struct sl_metadata *record)
{
	return sizeof(*record) + (size_t)record->rank * 16 + record->note_bytes;
}
/* Appends a record with what is behind it, and fills up to a multiple of 8. */
void sl_message_add_metadata(union sl_message *m, const struct sl_metadata *record);
void sl_message_refuse(union sl_message *m, uint32_t serial, int error, const char *text);

/* Whether n received bytes are a message that a client, or the server, may send: 0, or -EPROTO with a sentence. Reads nothing
 * beyond n. */
int sl_message_check(const union sl_message *m, size_t n, bool from_client);
/* The record at the end of a message that was checked; NULL: it has none. */
const struct sl_metadata *sl_message_metadata(const union sl_message *m);

/* A name: 0, or -EINVAL with a sentence. "" is one if empty is allowed. Looks at size bytes at most. */
int sl_name_check(const char *name, size_t size, bool empty);
/* A record of so many bytes, by itself, and against the size of its blob: 0, or -EINVAL with a sentence. */
int sl_metadata_check(const struct sl_metadata *record, size_t n, uint64_t blob_bytes);
/* Makes one of what the caller says, in SL_METADATA_MOST bytes; 0, or -EINVAL with a sentence. */
int sl_metadata_make(const struct sluice_blob_metadata *from, struct sl_metadata *to);
/* The other way; the note is pointed to. */
void sl_metadata_read(const struct sl_metadata *record, struct sluice_blob_metadata *to);

#endif
