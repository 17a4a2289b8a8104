/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What outlives a server: descriptors, and a ledger of what each of them is.
 *
 * The keeper and the server are two processes with the same descriptors. The server makes one, sends it to
 * the keeper over a socket, and only then writes it into the ledger, which both have mapped; the word `id` of
 * a row is written last. So when the server is dead, the keeper has every descriptor that a whole row of the
 * ledger names, and a server that the keeper forks has them by inheritance; and the other way around. What
 * the keeper has and no row names was being made or given up, and is closed.
 */
#ifndef SL_SLUICED_VAULT_H
#define SL_SLUICED_VAULT_H

#include <sys/types.h>

#include "core/core.h"
#include "sluice/store.h"

/* Places of devices that are known. */
#define SL_PLACES_MOST 64

enum sl_kind {
	SL_KIND_CATALOGUE = 1,
	SL_KIND_REFERENCES,
	SL_KIND_REGION,
	SL_KIND_COPY /* a file with all the bytes of a region that were of use */
};

/* A row of the ledger. */
struct sl_kept {
	_Atomic uint64_t id; /* 0: nothing; written last, and first when it is given up */
	uint32_t kind;       /* of enum sl_kind */
	uint32_t uid;        /* references: of the client */
	uint64_t bytes;
	uint64_t session; /* references: of the client; region: of the one that may write to it */
	uint64_t started; /* references: when that process did, in the clock ticks of /proc */
	int32_t pid;      /* references */
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
	_Atomic uint64_t last_id;      /* of rows; each is taken before it is used */
	_Atomic uint64_t sessions;     /* the same */
	_Atomic uint32_t device_count; /* counted when their rows are written */
	struct sl_kept_device devices[SL_PLACES_MOST];
	struct sl_kept rows[];
};

/* One process's side. Only its main thread uses it. */
struct sl_vault {
	struct sl_ledger *ledger;
	uint32_t most;  /* rows */
	uint32_t used;  /* rows behind this one are not used, */
	uint32_t full;  /* and those before this one are */
	uint32_t count; /* in use; in the server only */
	int listener;
	int lock;     /* of the socket's path, as long as one of the two processes lives; -1 */
	int peer;     /* the socket to the other process; -1: there is none */
	pid_t other;  /* that process, */
	int other_fd; /* and its pidfd */
	/* In the keeper: the server has taken over what there was; it has stopped, and wants no other one. */
	bool ready, over;
	struct {
		int fd; /* -1: none */
		uint64_t id;
	} * held; /* by row */
};

/* For descriptors up to the limit of the process, which is raised as far as it goes. listener and
 * lock are the vault's. 0, or a negative errno with a sentence. */
int sl_vault_new(int listener, int lock, struct sl_vault *out);
/* At the end of the process, which closes them. */
void sl_vault_free(struct sl_vault *vault);
/* A number that no row has had, for one to come. */
uint64_t sl_vault_number(struct sl_vault *vault);
/*
 * In the server. Puts a descriptor into the vault, which has it from then on; kept says all of it, with id 0 for a new
 * number, or one that was taken before. -ENFILE: there is no row left. If the keeper is gone it is put there all the same.
 */
int sl_vault_put(struct sl_vault *vault, const struct sl_kept *kept, int fd, uint32_t *row);
void sl_vault_drop(struct sl_vault *vault, uint32_t row);
/* A copy is that of another region from here on. */
void sl_vault_retarget(struct sl_vault *vault, uint32_t row, uint64_t region);
int sl_vault_fd(const struct sl_vault *vault, uint32_t row);
/* In a server that comes into the place of another: gives up what only one of ledger and process has. */
void sl_vault_reconcile(struct sl_vault *vault);

/* In a server that has taken over; that stops, and does not want another one to come. */
void sl_vault_ready(struct sl_vault *vault);
void sl_vault_bye(struct sl_vault *vault);

/* In the keeper: takes what the server has sent. False: the server has closed its end. */
bool sl_vault_take(struct sl_vault *vault);

/* A pair of connected sockets for the two processes. */
int sl_vault_pair(int pair[2]);
/* In a child: closes all descriptors but the vault's and 0 to 2. */
void sl_vault_only(const struct sl_vault *vault);

#endif
