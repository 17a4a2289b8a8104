/* SPDX-License-Identifier: Apache-2.0 */
/* sluice bench: its options, and one round of operations. */
#ifndef SLUICE_CLI_BENCH_H
#define SLUICE_CLI_BENCH_H

#include "cli.h"

struct cli_bench_options {
	struct cli_open open;
	const char *uri;
	const char *dataset; /* of the file that uri names, or NULL */
	char *name;          /* the URI for users */
	const char *memory;
	int device;     /* device of the memory, or -1 */
	bool on_stream; /* operations are stream-ordered */
	bool write, cold, json, full, random, sync, huge, unaligned;
	uint64_t chunk, size, op_size, seed;
	unsigned depth, repeat;
};
struct cli_bench_round {
	double seconds;
	double cpu_seconds;
	double resident; /* part of the file still cached when a cold round began */
};
/* State that lasts for all rounds. */
struct cli_bench_run {
	const struct cli_bench_options *options;
	sluice_context *ctx;
	sluice_file *file; /* NULL between rounds if `whole` */
	char *path;        /* path of a local file for --cold, or NULL */
	bool whole;        /* a remote file, which each round writes as a whole and closes */
	uint64_t range;    /* exclusive limit of random offsets */
	uint64_t bytes;    /* moved per round */
	uint64_t operations;
	unsigned in_flight; /* slots */
	struct cli_bench_slot *slots;
	struct cli_memory memory; /* buffers */
	uint64_t random;
	struct cli_bench_round *rounds;
	const char *backend; /* moves the bytes */
	uint64_t chunk;      /* the largest piece in use, or 0 if the context does not report it */
};
/* Return 0 or a negative errno, printed on stderr. */
int cli_bench_prepare(struct cli_bench_run *run);
int cli_bench_run_round(struct cli_bench_run *run, struct cli_bench_round *out);
/* Closes the file; returns rc, or the error of that if rc is 0. */
int cli_bench_close(struct cli_bench_run *run, int rc);

#endif
