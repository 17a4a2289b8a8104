/* SPDX-License-Identifier: Apache-2.0 */
/* A second process for tests of sharing: the same program, which does as it is told. */
#ifndef TESTS_DEVICE_SHARING_H
#define TESTS_DEVICE_SHARING_H

#include "device/device.h"
#include "lib/gpu.h"
#include "lib/support.h"

/* What the other process does; the memory it has last made, allocated or borrowed is `its`. */
enum peer_order {
	PEER_MAKE, /* length, seed: makes it, with that pattern in it; answers with the descriptor */
	PEER_READ,   /* descriptor, length, seed: maps it, compares and unmaps */
	PEER_ALLOC,  /* length, seed: allocates it, with that pattern */
	PEER_LEND,   /* offset: of its */
	PEER_BORROW, /* lent, seed: maps it, compares; it stays */
	PEER_CHECK,  /* length, seed: compares its */
	PEER_WRITE,  /* length, seed: into its */
	PEER_FREE,   /* its */
};
struct peer_message {
	enum peer_order order;
	int rc;        /* the answer: 0, or a negative errno; -EIO: the bytes are others */
	size_t length; /* bytes */
	size_t offset;
	uint64_t seed;
	struct sl_lent_memory lent;
};

struct peer {
	pid_t pid;
	int socket;
};
/* In main(), before anything else: does not return in the other process. */
void peer_main(int argc, char **argv);
void peer_start(struct peer *peer);
/* Tells it what to do and waits for the answer, which is in *message; fd: NULL, or a descriptor to send (it
 * stays the caller's; -1: none), and the one that came. */
int peer_do(struct peer *peer, struct peer_message *message, int *fd);
/* It ends, having let nothing go. */
void peer_end(struct peer *peer);
void peer_kill(struct peer *peer);

/* Writes the pattern, or compares with it (-EIO). */
int put_pattern(void *memory, size_t length, uint64_t seed);
int check_pattern(const void *memory, size_t length, uint64_t seed);
struct sl_device *device_of(int which);

#endif
