/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that bench/device drives: it measures one thing for each line that it reads, in one
 * process with one CUDA context, so that what is compared can be run in turn.
 */
#ifndef BENCH_DEVICE_BENCH_H
#define BENCH_DEVICE_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <sluice/device.h>

/* One line: "VERB name=value ...". What is not said is 0 or NULL. */
struct job {
	char verb[32];
	bool write;        /* write=1 */
	bool stream;       /* stream=1: in stream order */
	bool direct;       /* direct=1: a peer goes around the page cache */
	char *path;        /* of the file, or a URI */
	char *backend;     /* of sluice */
	char *kind;        /* of what holds streams up; of a marker */
	char *settings;    /* of the context: "default", "paged", "waiting", "slots" */
	uint64_t bytes;    /* in one operation, task or copy */
	unsigned count;    /* of operations or tasks in a pass; of samples */
	unsigned passes;   /* at least 1 */
	unsigned threads;  /* of a peer */
	unsigned streams;  /* that operations take in turn; that wait */
	unsigned limit_ms; /* after which something counts as held up */
	/* Of a ring of pinned memory that an operation of a context of its own goes through. */
	unsigned slots;
	uint64_t slot_bytes;
};

/* The machine: set up once, before the first job. */
extern int device;          /* sluice's number of it */
extern int ordinal;         /* the driver's, or -1: there is no driver, as with the emulated one */
extern char *device_memory; /* device_bytes of it */
extern uint64_t device_bytes;

/* Bytes that moved, how long it took, and the processor time of the whole process meanwhile. */
struct clock {
	double seconds, cpu_seconds;
};
void clock_start(struct clock *clock);
void clock_stop(struct clock *clock); /* adds to what it has */

double now(void); /* seconds */

/* Ends the program; the answer to the job is {"error": ...}. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Of a call of sluice. */
#define CHECK(call)                                                   \
	do {                                                          \
		if ((call) < 0)                                       \
			fail("%s: %s", #call, sluice_last_message()); \
	} while (0)
/* The same with {"skipped": why}. */
_Noreturn void skip(const char *why);
/* For jobs that cannot be done without the driver. */
void need_driver(void);

/* The context that a job asks for; kept for the next job, but that with a ring only until the next ring. */
sluice_context *context_of(const struct job *job);
sluice_file *open_for(const struct job *job);

/* Of n samples, in microseconds; sorts them. */
struct spread {
	double p50, p99, most;
};
struct spread spread_of(double *seconds, unsigned n);

/* What the jobs are; each prints one JSON object. */
void job_move(const struct job *job);     /* operations of sluice, all submitted at once */
void job_extents(const struct job *job);  /* an operation of many extents */
void job_fan(const struct job *job);      /* the same bytes into several devices */
void job_submit(const struct job *job);   /* how long submission takes */
void job_latency(const struct job *job);  /* of one operation */
void job_release(const struct job *job);  /* from the last byte to the stream's next command */
void job_held(const struct job *job);     /* what waiting streams do to others */
void job_ceiling(const struct job *job);  /* copies from and to pinned memory */
void job_storage(const struct job *job);  /* threads that only read or write */
void job_pipeline(const struct job *job); /* and copy meanwhile, with two buffers each */
void job_single(const struct job *job);   /* and copy, and wait, with one buffer each */
void job_small(const struct job *job);    /* and copy from ordinary memory */
void job_small_latency(const struct job *job);

/*
 * Where the results of the kernel arrive at sluice (device_arrival.c). Closed: they wait there. Opens by
 * itself after ten seconds, so that nothing hangs.
 */
void arrival_close(void);
void arrival_open(void);
/* When the last result passed, in seconds of now(). */
double arrival_time(void);

#endif
