/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor table: the descriptors that outlive a server, and a ledger of their meaning.
 *
 * The supervisor and the server are two processes with the same descriptors. The server makes a
 * descriptor, sends it to the supervisor over a socket, and only then writes it into the ledger, a
 * memfd that both have mapped; the word `id` of a row is written last. So when the server is dead,
 * the supervisor has every descriptor that a whole row of the ledger names, and a server that the
 * supervisor starts inherits them; the same holds the other way around. A descriptor of the
 * supervisor that no row names was being made or given up, and is closed.
 */
#ifndef SL_SLUICED_DESCRIPTORS_H
#define SL_SLUICED_DESCRIPTORS_H

#include <limits.h>
#include <sys/types.h>

#include "catalogue/catalogue.h"
#include "core/core.h"
#include "protocol/protocol.h"
#include "sluice/store.h"

/*
 * A program may take over from another if both have the same SL_LAYOUT. It is made of the numbers
 * of the catalogue's segment, of the protocol, and of SL_STATE_LAYOUT, which is to be increased
 * when struct sl_ledger_row, struct sl_ledger or struct sl_server_settings change in their members
 * or in the meaning of these. The asserts in descriptors.c and in catalogue/layout.h fail when the
 * size of such a struct has changed.
 */
#define SL_STATE_LAYOUT 3
#define SL_LAYOUT       ((SL_STATE_LAYOUT * 1000 + SL_SEGMENT_VERSION) * 1000 + SL_PROTOCOL_VERSION)
#define SL_BUDGETS_MOST 16
#define SL_NO_GROUP     ((gid_t)-1)

/* Devices that can be known. */
#define SL_PLACES_MOST 64
/* Deletes that are remembered. */
#define SL_DELETES_MOST 4096u

/* The role in which the other process starts a process, or a program executes itself anew. */
enum sl_begin {
	SL_BEGIN_SERVER = 1,
	SL_BEGIN_SUPERVISOR,
	SL_BEGIN_UPGRADE /* a supervisor that replaces the server, too */
};

/* The limit for memory of a device. */
struct sl_budget {
	char place[SLUICE_BLOB_PLACE_BYTES];
	uint64_t bytes;
};

struct sl_server_settings {
	char path[108]; /* of the socket; "": it is systemd's */
	uint64_t memory_bytes;
	uint64_t keep_bytes; /* empty memory that is kept for the next blobs */
	int64_t keep_ns;     /* and for how long */
	uint32_t blobs;      /* a power of two */
	uint32_t clients;    /* connections */
	gid_t group;         /* its members may connect, too; SL_NO_GROUP */
	struct sl_budget budgets[SL_BUDGETS_MOST];
	unsigned budget_count;
	char program[PATH_MAX]; /* the daemon's file when it began, which an upgrade executes */
	char spill[PATH_MAX];   /* the folder for regions that leave memory; "": none leaves */
	uint64_t spill_bytes;   /* in it at most */
};

enum sl_row_kind {
	SL_KIND_CATALOGUE = 1,
	SL_KIND_REFERENCES,
	SL_KIND_REGION,
	SL_KIND_COPY,   /* a file with the used bytes of a region */
	SL_KIND_PROCESS /* the pidfd of a client that has references */
};

/* A row of the ledger. */
struct sl_ledger_row {
	_Atomic uint64_t id; /* 0: nothing; written last, and first when it is given up */
	uint32_t kind;       /* of enum sl_row_kind */
	uint32_t uid;        /* references: of the client */
	uint64_t bytes;
	uint64_t session;     /* references, process: of the client; region: of its writer */
	int32_t pid;          /* references: of the client; 0: it is in another PID namespace */
	uint32_t process;     /* references: the row of its pidfd */
	uint32_t range_bytes; /* region, copy: the size of its ranges; 0: not divided */
	int32_t device;       /* region: by its number; -1: the host */
	uint32_t memory;      /* region: of enum sluice_blob_kinds */
	/* References: the client may have memory of devices mapped; set later. */
	_Atomic uint32_t maps;
	_Atomic uint64_t region; /* copy: the region that it is a copy of, which may be gone */
	uint64_t origin; /* region, copy: the id of the region in which its blobs were made */
};
/* A device; its number is that of its row. */
struct sl_ledger_device {
	char place[SLUICE_BLOB_PLACE_BYTES];
};
/* A delete; of which client's request. */
struct sl_ledger_delete {
	uint64_t blob; /* its id */
	/* session << 32 | first serial number; 0: another blob has replaced it; unclaimed */
	uint64_t call;
};
/* In the place of a call: a seal that named the blob has replaced it. No session is 0. */
#define SL_CALL_EXCHANGE 1
/*
 * The descriptor that a process has for a row. Each process writes its column behind the rows;
 * before it begins, its parent does.
 */
struct sl_ledger_cell {
	int32_t fd; /* -1: none */
	uint32_t zero;
	uint64_t id;
};
struct sl_ledger {
	uint32_t layout; /* SL_LAYOUT */
	uint32_t most;   /* rows */
	/* With these numbers in both processes; lock: of the socket's path; -1. */
	int32_t listener, lock;
	struct sl_server_settings settings; /* constant */
	uint64_t store;                     /* a random number */
	_Atomic uint64_t epoch;             /* servers so far */
	_Atomic uint64_t upgrades;          /* of these, servers of a newer program */
	_Atomic uint64_t last_id;           /* of rows; each is taken before it is used */
	_Atomic uint64_t sessions;          /* the same */
	_Atomic uint32_t device_count;      /* counted when their rows are written */
	struct sl_ledger_device devices[SL_PLACES_MOST];
	/* The last deletes: n is at n % SL_DELETES_MOST. Each is counted before it is done. */
	_Atomic uint64_t deletes;
	struct sl_ledger_delete deleted[SL_DELETES_MOST];
	struct sl_ledger_row rows[];
};

/* The view of a single process, used by its main thread only. */
struct sl_descriptors {
	struct sl_ledger *ledger;
	struct sl_ledger_cell *held; /* by row */
	int ledger_fd;
	uint32_t used;  /* rows from here on are not in use, */
	uint32_t full;  /* and the rows before this are */
	uint32_t count; /* in use; in the server only */
	int peer;       /* the socket to the other process; -1: there is none */
	pid_t other;    /* the other process, */
	int other_fd;   /* and its pidfd; -1: this machine has none */
	/* In the server: the time by which a new supervisor has to receive. */
	int64_t patient_until;
	/* In the supervisor: the server has sent SL_SAY_READY, SL_SAY_BYE, SL_SAY_UPGRADE. */
	bool ready, over, upgrade;
	bool replaced; /* in the supervisor of an upgrade: it has ended the server of before */
};

/* Makes a ledger in the supervisor; raises the limit of open files. Returns 0 or an error. */
int sl_descriptors_new(int listener, int lock, const struct sl_server_settings *settings,
                       struct sl_descriptors *out);
/* Copies this process's column for the other process, before a fork. */
void sl_descriptors_copy(const struct sl_descriptors *descriptors, enum sl_begin begin);
/*
 * Executes a program, which inherits descriptors 0 to 2 and those of the table, as the end of
 * `peer`. Returns only if that fails.
 */
void sl_descriptors_exec(const struct sl_descriptors *descriptors, enum sl_begin begin,
                         const char *program, char **arguments);
/* Returns true if this process was started with a ledger. Called first in main(). */
bool sl_descriptors_are_given(void);
/* Opens the ledger in such a process. Returns 0 or an error with a sentence. */
int sl_descriptors_open(struct sl_descriptors *out, enum sl_begin *begin);
/* Returns a number that no row has had, for a row to be put later. */
uint64_t sl_descriptors_number(struct sl_descriptors *descriptors);
/*
 * Puts a descriptor into the descriptor table, which owns it from then on. In the server. saved:
 * its row, with id 0 for a new number, or a number from sl_descriptors_number(). Works without a
 * supervisor, too: the next inherits the descriptor.
 *
 * Returns 0, or with a sentence
 *   -ENFILE  no row is left
 *   -EAGAIN  too many descriptors are in flight
 */
int sl_descriptors_put(struct sl_descriptors *descriptors, const struct sl_ledger_row *saved,
                       int fd, uint32_t *row);
void sl_descriptors_drop(struct sl_descriptors *descriptors, uint32_t row);
/* Returns -EAGAIN with a sentence, after ETOOMANYREFS: the receiver is not at fault. */
int sl_descriptors_in_flight(void);
/* Gives up, in a new server, descriptors that only the ledger or only the process has. */
void sl_descriptors_reconcile(struct sl_descriptors *descriptors);

/* The server says instead of a row: stops without a successor; has taken over; upgrade. */
#define SL_SAY_BYE     UINT32_MAX
#define SL_SAY_READY   (UINT32_MAX - 1)
#define SL_SAY_UPGRADE (UINT32_MAX - 2)
void sl_descriptors_say(const struct sl_descriptors *descriptors, uint32_t what);
/* The supervisor's message to the server after a failed upgrade. */
struct sl_no_upgrade {
	int32_t error;
	char text[1020];
};

/*
 * Receives in the supervisor all that the server has sent. Returns false if the server has closed
 * its end. Exits if it has no room for a descriptor.
 */
bool sl_descriptors_take(struct sl_descriptors *descriptors);

/* Sends a signal to the other process. */
void sl_descriptors_signal(const struct sl_descriptors *descriptors, int number);

#endif
