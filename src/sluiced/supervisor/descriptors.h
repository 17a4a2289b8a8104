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

#include <limits.h>
#include <sys/types.h>

#include "catalogue/catalogue.h"
#include "core/core.h"
#include "protocol/protocol.h"
#include "sluice/store.h"

/*
 * A program may take over from another one if both have the same number. It is made of that of the catalogue's segment, that
 * of the protocol, and this one, which is to be increased when struct sl_kept, struct sl_ledger or struct
 * sl_server_settings change, in their members or in what these mean. The asserts in descriptors.c and in
 * catalogue/layout.h fail when the size of one of the structs has changed.
 */
#define SL_STATE_LAYOUT 2
#define SL_LAYOUT       (SL_STATE_LAYOUT * 1000000 + SL_SEGMENT_VERSION * 1000 + SL_PROTOCOL_VERSION)
#define SL_BUDGETS_MOST 16
#define SL_NO_GROUP     ((gid_t)-1)

/* Places of devices that are known. */
#define SL_PLACES_MOST 64

/* As what a process is begun by the other one, or anew by itself. */
enum sl_begin {
	SL_BEGIN_SERVER = 1,
	SL_BEGIN_SUPERVISOR,
	SL_BEGIN_UPGRADE /* a supervisor that is to replace the server, too */
};

/* What the memory of a device is limited to. */
struct sl_budget {
	char place[SLUICE_BLOB_PLACE_BYTES];
	uint64_t bytes;
};

struct sl_server_settings {
	char path[108]; /* of the socket; "": it is systemd's */
	uint64_t memory_bytes;
	uint64_t keep_bytes; /* of memory with nothing in it that is kept for the next blobs */
	int64_t keep_ns;     /* for so long */
	uint32_t blobs;      /* a power of two */
	uint32_t clients;    /* connections */
	gid_t group;         /* whose members may connect, too; SL_NO_GROUP */
	struct sl_budget budgets[SL_BUDGETS_MOST];
	unsigned budget_count;
	char program[PATH_MAX]; /* of the daemon, as it was begun: what an upgrade goes on with */
	char spill[PATH_MAX];   /* the folder for what leaves memory; "": nothing does */
	uint64_t spill_bytes;   /* in it at most */
};

enum sl_row_kind {
	SL_KIND_CATALOGUE = 1,
	SL_KIND_REFERENCES,
	SL_KIND_REGION,
	SL_KIND_COPY,   /* a file with all the bytes of a region that were of use */
	SL_KIND_PROCESS /* the pidfd of a client that has references */
};

/* A row of the ledger. */
struct sl_ledger_row {
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
struct sl_ledger_device {
	char place[SLUICE_BLOB_PLACE_BYTES];
};
/* What a process has for a row. Each process writes its column behind the rows; before it begins, its parent does. */
struct sl_ledger_cell {
	int32_t fd; /* -1: none */
	uint32_t zero;
	uint64_t id;
};
struct sl_ledger {
	uint32_t layout; /* SL_LAYOUT */
	uint32_t most;   /* rows */
	int32_t listener,
		lock; /* with these numbers in both processes; lock: of the socket's path; -1 */
	struct sl_server_settings settings; /* do not change */
	uint64_t store;                     /* a random number */
	_Atomic uint64_t epoch;             /* servers so far */
	_Atomic uint64_t upgrades;          /* of these, those that a newer program began with */
	_Atomic uint64_t last_id;           /* of rows; each is taken before it is used */
	_Atomic uint64_t sessions;          /* the same */
	_Atomic uint32_t device_count;      /* counted when their rows are written */
	struct sl_ledger_device devices[SL_PLACES_MOST];
	struct sl_ledger_row rows[];
};

/* One process's side. Only its main thread uses it. */
struct sl_descriptors {
	struct sl_ledger *ledger;
	struct sl_ledger_cell *held; /* by row */
	int ledger_fd;
	uint32_t used;  /* rows behind this one are not used, */
	uint32_t full;  /* and those before this one are */
	uint32_t count; /* in use; in the server only */
	int peer;       /* the socket to the other process; -1: there is none */
	pid_t other;    /* that process, */
	int other_fd;   /* and its pidfd; -1: this machine has none */
	/* In the server: how long the supervisor has to begin to receive. */
	int64_t patient_until;
	/* In the supervisor, which the server has said: SL_SAY_READY, SL_SAY_BYE, SL_SAY_UPGRADE. */
	bool ready, over, upgrade;
};

/* The supervisor's side of a new ledger; raises the limit of open files. 0, or a negative errno with a sentence. */
int sl_descriptors_new(int listener, int lock, const struct sl_server_settings *settings,
                       struct sl_descriptors *out);
/* Before a fork: the other process is to begin with what this one has. */
void sl_descriptors_copy(const struct sl_descriptors *descriptors, enum sl_begin begin);
/* Executes a program, which inherits what the descriptors say and 0 to 2, as the end of peer. Returns if it cannot. */
void sl_descriptors_exec(const struct sl_descriptors *descriptors, enum sl_begin begin,
                         const char *program, char **arguments);
/* Whether this process was begun so. Comes first in main(). */
bool sl_descriptors_are_given(void);
/* In such a process. 0, or a negative errno with a sentence. */
int sl_descriptors_open(struct sl_descriptors *out, enum sl_begin *begin);
/* A number that no row has had, for one to come. */
uint64_t sl_descriptors_number(struct sl_descriptors *descriptors);
/*
 * In the server. Puts a descriptor into the descriptor table, which has it from then on; kept says all of it, with id 0 for a new
 * number, or one that was taken before. -ENFILE: there is no row left. -EAGAIN: too many descriptors are in flight. If the
 * supervisor is gone it is put there all the same, as the next one inherits it.
 */
int sl_descriptors_put(struct sl_descriptors *descriptors, const struct sl_ledger_row *saved,
                       int fd, uint32_t *row);
void sl_descriptors_drop(struct sl_descriptors *descriptors, uint32_t row);
/* Says why a descriptor was not sent when that gave ETOOMANYREFS: no fault of whoever was to have it. -EAGAIN. */
int sl_descriptors_in_flight(void);
int sl_descriptors_fd(const struct sl_descriptors *descriptors, uint32_t row);
/* In a server that comes into the place of another: gives up what only one of ledger and process has. */
void sl_descriptors_reconcile(struct sl_descriptors *descriptors);

/* What the server says instead of a row: it stops, and wants no successor; it has taken over; it is to be upgraded. */
#define SL_SAY_BYE     UINT32_MAX
#define SL_SAY_READY   (UINT32_MAX - 1)
#define SL_SAY_UPGRADE (UINT32_MAX - 2)
void sl_descriptors_say(const struct sl_descriptors *descriptors, uint32_t what);
/* In the server: why there was no upgrade, which the supervisor says in one message. */
struct sl_no_upgrade {
	int32_t error;
	char text[1020];
};

/* In the supervisor: takes what the server has sent; false: it has closed its end. No room for a descriptor: exits. */
bool sl_descriptors_take(struct sl_descriptors *descriptors);

/* One message, with so many descriptors, 2 at most; does not wait: 0 or -errno. */
int sl_send(int socket, const void *data, size_t bytes, const int *fds, unsigned count);
/* To the other process. */
void sl_descriptors_signal(const struct sl_descriptors *descriptors, int number);

#endif
