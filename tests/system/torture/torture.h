/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torture: what a seed says is drawn, made, done by several threads, and judged. schedule.c draws,
 * lanes.c makes, actors.c and steps.c do, kernels.c looks at memory in stream order, verify.c judges,
 * watchdog.c ends what hangs.
 */
#ifndef TESTS_TORTURE_H
#define TESTS_TORTURE_H

#include <pthread.h>
#include <stdatomic.h>

#include "lib/gate.h"
#include "lib/gpu.h"
#include "lib/servers.h"
#include "lib/support.h"
#include "sluice/emulated.h"

enum {
	DEVICES = GPU_DEVICES,
	LANES_MOST = 256,
	THREADS_MOST = 8,
	OPS_MOST = 2048,
	EXTENTS_MOST = 12,
	HANDLES = 3, /* through which the same file is used; the last does not block */
	GRAIN = 64, /* what is known of the contents of files and memory, is known of so many bytes */
	GUARD = 256, /* bytes between two parts of memory, which nobody writes */
	GUARD_BYTE = 0xa5,
};
#define READ_BYTES  (8 * MIB) /* of the file that is only read */
#define READ_SEED   3
#define PINNED_SEED 5

/* --------------------------------------------------------------------------------- schedule.c */

/* Calls of the device that fail: the nth of that kind; of all in which sluice gives it commands, or in
 * which it asks an event, also some behind it, and these again and again. */
enum { FAIL_ENQUEUE = SLUICE_EMULATED_KINDS, FAIL_EVENT };
struct driver_failure {
	unsigned kind; /* of enum sluice_emulated_kind, or FAIL_ENQUEUE */
	unsigned nth;
	unsigned row;    /* so many in a row */
	unsigned period; /* and then again after so many calls */
};

/* What a seed means. */
struct schedule {
	uint64_t seed;
	bool http; /* what is only read is on a server */
	struct sluice_config config;
	unsigned devices;
	struct sluice_emulated_options device[DEVICES];
	unsigned threads, lanes, steps;
	size_t region;    /* bytes of the file that are a lane's, whole grains */
	size_t part;      /* bytes of each part of a lane's memory */
	bool sparse;      /* the file is empty first, not full of what is known */
	bool own_staging; /* pinned memory of the test's */
	unsigned freers;
	bool pins;         /* they also make and free pinned memory */
	unsigned cancels;  /* operations of a hundred that are cancelled */
	unsigned errors;   /* results of storage of a thousand that are made errors */
	unsigned shorts;   /* the same, made short */
	unsigned slow_us;  /* and some of them come so much later; on a real device only */
	unsigned failures; /* of calls of the device */
	struct driver_failure failure[2];
	bool lose; /* a device, in the middle: it does nothing any more */
	unsigned lose_us;
	bool carefree; /* nothing fails: operations without a handle, too */
	bool nonblock;
	bool pauses;     /* between the steps of a thread */
	char remote[80]; /* options of the fault server's object */
	size_t remote_bytes;
	uint64_t forbidden; /* byte of that object that cannot be read; UINT64_MAX: none */
};
void schedule_draw(uint64_t seed, bool http, struct schedule *out);
void schedule_print(const struct schedule *s);
/* From seed, and what it is for: the same in each run. */
struct rng seeded(uint64_t seed, uint64_t stream);

/* ------------------------------------------------------------------------------------ the run */

struct part {
	unsigned char *memory;
	size_t length;
};

struct action;

/* A stream, its memory, and its range of the file. Everything in it is one thread's. */
struct lane {
	unsigned index;
	int device;
	sluice_stream stream;
	bool own; /* the stream is to be freed */
	sluice_event event;
	struct part stream_part; /* of the device, used in stream order */
	struct part
		awaited_part;   /* of the device, used by operations that are awaited on the host */
	struct part also_part;  /* of the next device: further memory of reads of the last */
	struct part scratch;    /* of the device, for copies of the caller's own */
	struct part plain;      /* of the host, used in stream order */
	struct part host;       /* of the host, awaited on the host */
	struct part pinned;     /* of the host, for copies of the caller's own */
	uint64_t base;          /* where its range begins in the file */
	uint32_t *writers;      /* of each grain: 1 + the number of its last write; 0: the first */
	struct action *awaited; /* in flight on awaited_part or host, or NULL */
	struct check *last;     /* what stream_part holds, or NULL */
};

enum effect { EFFECT_READ, EFFECT_WRITE };
enum origin { ORIGIN_PATTERN, ORIGIN_SERVED, ORIGIN_NONE };

/* One operation. */
struct action {
	_Atomic uint32_t state; /* enum action_state; the rest is valid from SUBMITTED on */
	const char *what;
	const struct lane *lane;
	bool write, on, device_memory;
	bool fanned; /* a read into awaited_part that brings the bytes to also_part, too */
	unsigned handle;
	unsigned count;
	struct sluice_extent extents[EXTENTS_MOST];
	size_t length;    /* of all */
	int64_t expected; /* the result, or an error that it is to have */
	uint64_t seed;    /* of what it writes */
	sluice_op *op;    /* NULL: it has no handle */
	int rc;           /* of the submitting call */
	_Atomic bool cancelled;
	int64_t result;
};
enum action_state { ACTION_NONE, ACTION_SUBMITTING, ACTION_SUBMITTED, ACTION_REFUSED };

/* Bytes that are to be there in stream order. */
struct stretch {
	const unsigned char *bytes;
	size_t length;
	uint64_t offset, seed;
	enum origin origin;
	uint32_t writer; /* as struct lane's: they are there only if this succeeded */
};
struct check {
	struct check *next; /* of the thread's */
	const struct lane *lane;
	const struct action
		*reader; /* the bytes are there only if this succeeded; NULL: in any case */
	const char *what;
	bool launched;
	_Atomic bool ran;
	int polled;              /* what sluice_poll() said of the reader */
	struct gpu_match *found; /* of each stretch */
	unsigned count;
	struct stretch stretches[];
};

struct actor {
	struct run *run;
	unsigned index;
	pthread_t thread;
	struct rng rng;
	struct check *checks;
	unsigned steps;
};

struct run {
	const struct schedule *schedule;
	sluice_context *ctx;
	char path[300];
	sluice_file *shared[HANDLES];  /* read and written */
	sluice_file *reading[HANDLES]; /* only read */
	void *memory[DEVICES];         /* one allocation on each device */
	unsigned char *host;
	size_t host_bytes;
	struct lane lanes[LANES_MOST];
	struct action *actions; /* OPS_MOST */
	_Atomic unsigned action_count;
	struct actor actors[THREADS_MOST];
	struct actor freers[2], canceller, loser;
	_Atomic bool stop;    /* freers and canceller end */
	uint64_t first_bytes; /* before the file's first range */
	uint64_t stride;
};

/* Pinned on each device, made once; the same again and again. */
extern unsigned char *pinned_memory[DEVICES];
#define PINNED_BYTES (16 * MIB)
/* The first half is the pattern PINNED_SEED and is never written. */
#define PINNED_PATTERN (8 * MIB)
extern char read_path[300];

/* -------------------------------------------------------------------------------------- lanes.c */

/* Makes what the schedule needs; the devices are configured. */
void run_open(const struct schedule *s, struct run *run);
/* Frees it, and says what was left behind. */
void run_close(struct run *run);
/* The seed of what a write left, and of what the file held first. */
uint64_t writer_seed(const struct run *run, uint32_t writer);
/* Where the bytes of that range of the file come from, one stretch for each writer; how many. */
unsigned lane_stretches(const struct run *run, const struct lane *lane, uint64_t offset,
                        size_t length, const unsigned char *bytes, struct stretch *out,
                        unsigned most);
void lane_written(const struct run *run, struct lane *lane, uint64_t offset, size_t length,
                  uint32_t writer);
bool lane_known(const struct run *run, const struct lane *lane, uint64_t offset, size_t length);

/* ------------------------------------------------------------------------------------- steps.c */

/* One step of a thread: an operation or two, and what the caller queues around them. */
void step(struct actor *actor);
/* Waits for what is awaited on the host in that lane, and looks at it. */
void finish_awaited(struct actor *actor, struct lane *lane);

/* ------------------------------------------------------------------------------------ action.c */

/* A new operation on extents of that memory; NULL: there were enough. */
struct action *action_new(struct actor *actor, struct lane *lane, const char *what, bool write);
void action_extent(struct action *action, void *data, size_t length, uint64_t offset);
/* 0: it was submitted. */
int action_submit(struct actor *actor, struct action *action, sluice_file *file);
uint32_t action_number(const struct run *run, const struct action *action);

/* ----------------------------------------------------------------------------------- kernels.c */

/* In stream order; false: the device refused it. */
bool launch_fill(struct lane *lane, void *memory, size_t length, uint64_t offset, uint64_t seed);
bool launch_scribble(struct actor *actor, struct lane *lane, const struct part *part);
struct check *check_new(struct actor *actor, struct lane *lane, const char *what,
                        const struct action *reader, unsigned stretches);
bool launch_check(struct check *check);
/* Where the last check of the lane found its bytes moved to. */
struct check *check_copy(struct actor *actor, const struct check *from, struct lane *lane,
                         const char *what, const unsigned char *old_bytes,
                         const unsigned char *new_bytes);
/* Looks at the bytes here and now. */
void look(struct check *check);
void set_now(void *memory, unsigned byte, size_t length);
void fill_now(void *memory, size_t length, uint64_t offset, uint64_t seed);
void kernels_free(struct actor *actor);

/* ------------------------------------------------------------------------------------ actors.c */

void actors_run(struct run *run);

/* -------------------------------------------------------------------------------------- bend.c */

/* Results of storage of this run fail, and come short, and calls of the device fail, as the schedule
 * says. */
void bend_start(const struct schedule *s);
/* Calls of the device do not fail any more. */
void bend_calm(void);
/* Nothing does; when no operation is left. */
void bend_stop(void);
#define STORAGE_ERROR (-EUCLEAN)
/* What a lost device answers. */
#define LOST_ERROR   (-EIO)
#define DRIVER_ERROR (-EBADE)

/* ------------------------------------------------------------------------------------ verify.c */

/* Operations of all schedules. */
struct totals {
	uint64_t operations, failed, cancelled, refused;
};
extern struct totals totals;
/* All streams, all operations, all bytes in memory. */
void verify(struct run *run);
/* All bytes of the file, when it is closed: then operations without a handle are over, too. */
void verify_file(const struct run *run);

/* ---------------------------------------------------------------------------------- watchdog.c */

/* From now on something has to move. */
void watchdog_start(double patience, bool talkative);
void watchdog_watch(struct run *run); /* NULL: nothing to watch */
/* Something moved. */
void moved(void);
/* What the main thread is doing. */
void doing(const char *what);

/* ----------------------------------------------------------------------------------- torture.c */

/* The schedule that runs shows that something is wrong: says so and ends the process. */
__attribute__((format(printf, 2, 3))) _Noreturn void caught(const char *kind, const char *format,
                                                            ...);

/* ------------------------------------------------------------------------ right.c, wrong_*.c */

/* What is wrong with the library that the program was linked with; NULL: nothing. */
extern const char *const wrong;
/* Before the first schedule. */
void wrong_start(void);

#endif
