/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What outlives a server: descriptors, and a ledger of what each of them is.
 *
 * The supervisor and the server are two processes with the same descriptors. The server makes one, sends it to
 * the supervisor over a socket, and only then writes it into the ledger, a memfd that both have mapped; the word `id` of
 * a row is written last. So when the server is dead, the supervisor has every descriptor that a whole row of the
 * ledger names, and a server that the supervisor starts inherits them; and the other way around. A descriptor that
 * the supervisor has and no row names was being made or given up, and is closed.
 */
#ifndef SL_SLUICED_DESCRIPTORS_H
#define SL_SLUICED_DESCRIPTORS_H

#include <sys/types.h>

#include "core/core.h"
#include "sluice/store.h"

/* Places of devices that are known. */
#define SL_PLACES_MOST 64

enum sl_kind {
	SL_KIND_CATALOGUE = 1,
	SL_KIND_REFERENCES,
	SL_KIND_REGION,
	SL_KIND_COPY,   /* a file with all the bytes of a region that were of use */
	SL_KIND_PROCESS /* the pidfd of a client that has references */
};

/* A row of the ledger. */
struct sl_kept {
	_Atomic uint64_t id; /* 0: nothing; written last, and first when it is given up */
	uint32_t kind;       /* of enum sl_kind */
	uint32_t uid;        /* references: of the client */
	uint64_t bytes;
	uint64_t
		session; /* references, process: of the client; region: of the one that may write to it */
	int32_t pid;          /* references: of the client; 0: it is in another PID namespace */
	uint32_t process;     /* references: the row of its pidfd */
	uint32_t range_bytes; /* region, copy: what it is divided into; 0: not at all */
	int32_t device;       /* region: by its number; -1: the host */
	uint32_t memory;      /* region: of enum sluice_blob_kinds */
	_Atomic uint32_t
		maps; /* references: its process may have memory of devices mapped; set later */
	_Atomic uint64_t
		region;  /* copy: the region whose bytes it has, which need not be there any more */
	uint64_t origin; /* region, copy: the number of the region that its blobs were made in */
};
/* A device; its number is that of its row. */
struct sl_kept_device {
	char place[SLUICE_BLOB_PLACE_BYTES];
};
struct sl_ledger {
	uint64_t store;                /* a random number */
	_Atomic uint64_t turns;        /* servers so far */
	_Atomic uint64_t upgrades;     /* of these, those that a newer program began with */
	_Atomic uint64_t last_id;      /* of rows; each is taken before it is used */
	_Atomic uint64_t sessions;     /* the same */
	_Atomic uint32_t device_count; /* counted when their rows are written */
	struct sl_kept_device devices[SL_PLACES_MOST];
	struct sl_kept rows[];
};

/* One process's side. Only its main thread uses it. */
struct sl_descriptors {
	struct sl_ledger *ledger;
	int ledger_fd;
	uint32_t most;  /* rows */
	uint32_t used;  /* rows behind this one are not used, */
	uint32_t full;  /* and those before this one are */
	uint32_t count; /* in use; in the server only */
	int listener;
	int lock;     /* of the socket's path, as long as one of the two processes lives; -1 */
	int peer;     /* the socket to the other process; -1: there is none */
	pid_t other;  /* that process, */
	int other_fd; /* and its pidfd; -1: this machine has none */
	/* In the server: how long the supervisor has to begin to receive. */
	int64_t patient_until;
	/* In the supervisor: the server has taken over what there was; it has stopped, and wants no other one; it wants the
	 * program that is at its path now. */
	bool ready, over, upgrade;
	struct {
		int fd; /* -1: none */
		uint64_t id;
	} * held; /* by row */
};

/* For descriptors up to the limit of the process, which is raised as far as it goes. listener and
 * lock are the descriptor table's. 0, or a negative errno with a sentence. */
int sl_descriptors_new(int listener, int lock, struct sl_descriptors *out);
/* The same for a ledger that there is. */
int sl_descriptors_open(int ledger, uint32_t most, struct sl_descriptors *out);
/* At the end of the process, which closes them. */
void sl_descriptors_free(struct sl_descriptors *descriptors);
/* A number that no row has had, for one to come. */
uint64_t sl_descriptors_number(struct sl_descriptors *descriptors);
/*
 * In the server. Puts a descriptor into the descriptor table, which has it from then on; kept says all of it, with id 0 for a new
 * number, or one that was taken before. -ENFILE: there is no row left. -EAGAIN: too many descriptors are in flight. If the
 * supervisor is gone it is put there all the same, as the next one inherits it.
 */
int sl_descriptors_put(struct sl_descriptors *descriptors, const struct sl_kept *kept, int fd,
                       uint32_t *row);
void sl_descriptors_drop(struct sl_descriptors *descriptors, uint32_t row);
/* Says why a descriptor was not sent when that gave ETOOMANYREFS: no fault of whoever was to have it. -EAGAIN. */
int sl_descriptors_in_flight(void);
/* A copy is that of another region from here on. */
void sl_descriptors_retarget(struct sl_descriptors *descriptors, uint32_t row, uint64_t region);
int sl_descriptors_fd(const struct sl_descriptors *descriptors, uint32_t row);
/* In a server that comes into the place of another: gives up what only one of ledger and process has. */
void sl_descriptors_reconcile(struct sl_descriptors *descriptors);

/* In a server that has taken over; that stops, and does not want another one to come; that is asked for an upgrade. */
void sl_descriptors_ready(struct sl_descriptors *descriptors);
void sl_descriptors_bye(struct sl_descriptors *descriptors);
void sl_descriptors_upgrade(struct sl_descriptors *descriptors);
/* In the server: why there was no upgrade, which the supervisor says in one message. */
struct sl_no_upgrade {
	int32_t error;
	char text[1020];
};

/* In the supervisor: takes what the server has sent. False: the server has closed its end. Ends the process if there was
 * no room for a descriptor: a supervisor that the server makes inherits it. */
bool sl_descriptors_take(struct sl_descriptors *descriptors);

/* A pair of connected sockets for the two processes. */
int sl_descriptors_pair(int pair[2]);
/* To the other process. */
void sl_descriptors_signal(const struct sl_descriptors *descriptors, int number);

#endif
