/* SPDX-License-Identifier: Apache-2.0 */
/* What bench/store runs: one measurement at a time, whose result is a line of JSON. */
#ifndef BENCH_STORE_BENCH_H
#define BENCH_STORE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/store.h>

struct options {
	const char *socket;  /* of the daemon */
	const char *daemons; /* processes whose time counts: "123,124" */
	const char *way;
	size_t bytes;
	unsigned count;   /* of what is repeated */
	unsigned before;  /* cycles before the clock starts */
	unsigned pairs;   /* of a producer and a consumer */
	unsigned threads; /* that fill */
	unsigned blobs;
	int here, there; /* processors; -1: any */
};
extern struct options options;

/* How a producer hands memory to a consumer. Each side is a process of its own, which calls open first. */
struct way {
	const char *name;
	void (*prepare)(unsigned pair); /* in the process that makes both; may be NULL */
	void (*produce_open)(unsigned pair);
	void *(*begin)(unsigned number); /* memory to be filled */
	void (*publish)(unsigned number);
	void (*end)(unsigned number); /* the consumer has let go of it */
	void (*produce_close)(void);
	void (*consume_open)(unsigned pair);
	const void *(*take)(unsigned number); /* waits for it */
	void (*release)(unsigned number);
	void (*consume_close)(void);
	bool (*there)(void); /* the producer's: the consumer is connected; NULL: it always is */
};
extern const struct way way_sluice, way_socket, way_memfd;
/* One whose name is NULL: built without iceoryx. */
extern const struct way way_iceoryx, way_iceoryx_polled;

int64_t now_ns(void);
int64_t cpu_ns(void);                /* of this process */
int64_t others_ns(const char *pids); /* of those processes */
/* Ends the program. */
void must(int rc, const char *what);
/* Touched already, of huge pages if the kernel has them. */
char *warm_memory(size_t bytes);
/* blob: whose memory each thread makes ready before it writes to it; NULL. */
void copy_by(unsigned threads, char *to, const char *from, size_t bytes, sluice_blob *blob);
/* The middle one; sorts them. */
double median(double *values, unsigned count);
sluice_store *store_open(void);

void run_publish(void);
void run_cycle(void);
void run_put(void);
void run_copy(void);
void run_get(void);

#endif
