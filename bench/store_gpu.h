/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that bench/store-gpu drives: two processes, a producer and a consumer, that hand memory of a device
 * over in several ways, so that these can be compared in turn.
 */
#ifndef BENCH_STORE_GPU_H
#define BENCH_STORE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/device.h>

/* Keys of what is there at the same time, and what a table of them holds. */
enum { KEYS = 16 };

/*
 * A way to hand over. Keys count up. The producer's functions come in this order, the consumer's between publish
 * and drop.
 */
struct way {
	const char *name;
	void (*open)(void);                          /* in both processes, once */
	void *(*make)(uint32_t key, uint64_t bytes); /* memory of the device, to be filled */
	/* From now on others can get it; expected: one is waiting for it. What the device was given is done. */
	void (*publish)(uint32_t key, bool expected);
	/* Nobody needs it any more: the consumer has let go, and has forgotten it if there is forget(). */
	void (*drop)(uint32_t key);
	void (*settle)(void); /* waits until its memory is free; NULL: it is already */
	/* Consumer's: bytes that the device can use; awaited: there is nothing yet. */
	const void *(*get)(uint32_t key, uint64_t bytes, bool awaited);
	void (*release)(uint32_t key);
	void (*forget)(uint32_t key); /* what it has kept for the next get; may be NULL */
};
extern const struct way way_sluice, way_alone, way_ipc, way_copy;

/* The machine, as both processes have it. */
extern int device;  /* sluice's number of it */
extern int ordinal; /* the driver's, or -1: there is no driver */
extern bool consumer;
extern uint64_t most_bytes;
/* Between a peer's processes: messages with their ends. */
extern int peer_socket;
/* The same in both: a page of words, then most_bytes. */
struct page {
	_Atomic uint64_t copied; /* bytes that are there */
	_Atomic uint32_t key;    /* of these */
};
extern struct page *shared;
enum { PAGE_BYTES = 4096 };

double now(void); /* seconds, the same in both processes */
/* Ends the program; the answer to the job is {"error": ...} or {"skipped": ...}. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void skip(const char *why);
/* Of a call of sluice. */
#define CHECK(call)                                                   \
	do {                                                          \
		if ((call) < 0)                                       \
			fail("%s: %s", #call, sluice_last_message()); \
	} while (0)

#endif
