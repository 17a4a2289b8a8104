/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of the store that speak by raw messages: for what the library does not do, or not yet. */
#ifndef TESTS_STORE_RAW_H
#define TESTS_STORE_RAW_H

#include "lib/daemon.h"
#include "protocol/protocol.h"

int raw_connect(const struct daemon *d);
bool raw_send(int fd, const void *data, size_t n);
/* With count descriptors. */
bool raw_send_with(int fd, const void *data, size_t n, const int *fds, unsigned count);
/* One answer, and the descriptor that came with it; its length. */
ssize_t raw_receive(int fd, union sl_message *m, int *with);
/* A client, or a watch of all names, that has said hello; -1. */
int raw_client(const struct daemon *d);
int raw_watch(const struct daemon *d);
/* The server is to hang up, after it has perhaps said why. */
bool is_hung_up(int fd);

/* -------------------------------------------------------------------------- memory of devices */

#define RAW_FORGOTTEN 256

/* A client with what the library has, but for its mappings. */
struct raw {
	int fd;
	uint32_t serial;
	uint64_t session, epoch;
	struct sl_reader reader;
	union sl_message m;                /* the last answer */
	int with;                          /* the descriptor that came with it; -1 */
	uint64_t forgotten[RAW_FORGOTTEN]; /* what the server wants to be unmapped */
	unsigned forgotten_count;
};

/* session: 0, or that of a client before. Fails the test if it cannot. */
void raw_open(struct raw *c, const struct daemon *d, uint64_t session);
struct raw *raw_new(const struct daemon *d);
/* As often as that takes. */
void raw_open_again(struct raw *c, const struct daemon *d, uint64_t session);
/* With the say that nothing is mapped any more, or without. */
void raw_bye(struct raw *c);
void raw_hang_up(struct raw *c);
/* Says bye and frees what raw_new() has made. */
void raw_end(struct raw *c);
/* Sends a request; and waits for its answer: 0, what it refuses, or -ECONNRESET. */
void raw_begin(struct raw *c, enum sl_message_type type, unsigned count);
int raw_ask(struct raw *c);
/* Reads what is there until that region is to be forgotten. */
bool raw_is_told(struct raw *c, uint64_t region);

struct sluice_store_device_info raw_device(struct raw *c, const char *place);
/* What was asked for; with what comes in advance in leases[1] and on. How many; or an error. */
int raw_create(struct raw *c, int32_t device, uint32_t kind, uint64_t bytes, uint32_t flags,
               const char *name, struct sl_lease leases[2 * SL_ITEMS_MOST]);
void raw_offer(struct raw *c, uint64_t region, int fd);
/* A memfd of so many bytes; sealed: against other sizes. */
int raw_memory(uint64_t bytes, bool sealed);
/* Fills the first bytes with the region's number and offers a memfd of the lease's region. */
void raw_make(struct raw *c, const struct sl_lease *lease);
int raw_seal(struct raw *c, const struct sl_lease *lease, const char *name, uint64_t bytes,
             uint64_t start, uint32_t flags, struct sl_found_item *out);
/* All of that, and gives back what comes in advance. */
int raw_put(struct raw *c, int32_t device, const char *name, uint64_t bytes, uint32_t flags,
            struct sl_lease *lease, struct sl_found_item *out);
/* And fails the test if it cannot. */
void raw_put_ok(struct raw *c, int32_t device, const char *name, uint64_t bytes, uint32_t flags,
                struct sl_lease *lease);
int raw_get(struct raw *c, const char *name, struct sl_found_item *out);
/* Takes a reference; and gives it back. */
void raw_hold(struct raw *c, const struct sl_found_item *found, struct sl_held_blob *out);
void raw_release(struct raw *c, const struct sl_held_blob *held);
/* A descriptor, or an error. */
int raw_region(struct raw *c, uint64_t region);
int raw_delete(struct raw *c, const char *name);
/* Without an answer: SL_MSG_DROP, SL_MSG_HAVE, SL_MSG_ABORT. */
void raw_tell(struct raw *c, enum sl_message_type type, uint64_t id);
/* Whether the first bytes of such memory are as raw_make() makes them. */
bool raw_memory_is(int fd, uint64_t region);
/* Waits until so many bytes are in use on a device, and so many of these leave. */
void raw_await(struct raw *c, const char *place, uint64_t bytes, uint64_t leaving);

/* ----------------------------------------------------------------------------- other processes */

/* One with raw clients only, as a child of fork() may have; it ends when it is killed. */
struct raw_other {
	pid_t pid;
	int said;
};
/* Waits until it says that it has got so far. */
struct raw_other raw_other_start(const struct daemon *d,
                                 void (*run)(const struct daemon *d, int say));
/* There: says so, and sleeps. */
void raw_other_says(int say);
void raw_other_kill(struct raw_other *other);

#endif
