/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of several files at a time
 *
 * The main thread gives files to threads, each of which copies with a context of its own. A failure
 * is printed and ends no other copy. Many small objects are copied at once, up and down, since each
 * takes a round trip, and in one context, which has their connections; other files are four at a
 * time. Both together are bounded by their memory.
 *
 * Threads: the main thread and up to MOST_THREADS threads.
 */
#include <err.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "cp.h"

enum {
	MOST_FILES = 4,     /* at a time, of others than small objects */
	MOST_THREADS = 256, /* with small objects */
	LEAST_THREADS = 128,
	EACH_CORE = 16,
	SMALL = 8 << 20,    /* bytes: such an object comes with the opening, or is a single PUT */
	MEMORY = 128 << 20, /* bytes of all small objects in work, at most, */
	LEAST_MEMORY = 32 << 20, /* where a sixteenth of all memory is less */
	MOST_MMAP = 32 << 20, /* the largest that mallopt() takes: blocks of the heap are shorter */
	USUAL_PAD = 128 << 10,
	HUGE_PAGE = 2 << 20,
	QUEUE = 256,
	WAIT_MS = 100,
};

struct job {
	char *source, *target; /* freed by the thread that takes the job */
	uint64_t bytes;        /* up to SMALL: of a small object */
	bool exact;            /* see struct cli_cp_options */
};
struct cli_jobs {
	const struct cli_cp_options *o;
	sluice_context *objects;
	_Atomic uint64_t bytes; /* of all files, also of those that are being copied */
	_Atomic bool alone;     /* there is a single file; set when the last is known */
	struct sl_mutex mutex;
	pthread_cond_t changed;  /* a field of `locked` changed; awaited by the main thread */
	pthread_cond_t has_turn; /* jobs_has_turn_locked(), or the end; awaited by the others */
	struct {
		struct job queue[QUEUE]; /* from tail to head */
		uint64_t head, tail;
		bool ended; /* no more jobs will come */
		pthread_t threads[MOST_THREADS];
		unsigned count;   /* of threads; the main thread joins them */
		unsigned working; /* threads that have not ended */
		unsigned idle;    /* threads that wait for a job */
		uint64_t weight;  /* of the jobs in work */
		int rc;           /* error of the first failed copy, or 0 */
		struct cli_moved moved;
	} locked SL_GUARDED_BY(&mutex);
	struct cli_progress progress; /* the main thread's */
	unsigned most;                /* threads; constant */
	uint64_t memory;              /* bytes of all small objects in work; constant */
};

/*
 * After an interrupt the program does not wait for threads that wait for servers and have nothing
 * to clean up, or has uploads that the library drops at its end.
 */
static bool jobs_may_end(void)
{
	if (cli_interrupted() && cli_interrupt_commits()) {
		cli_warn("interrupted; the objects of which the answers are missing may not be "
		         "written");
		cli_interrupt_leave();
	}
	return cli_interrupted() && !cli_interrupt_held();
}

/*
 * Waits until a thread takes or finishes a job, or ends. After an interrupt signals the threads
 * repeatedly, because they may wait for the other end of a FIFO or for a terminal, and the signal
 * itself reached a single thread.
 */
static void jobs_await_change_locked(struct cli_jobs *jobs) SL_REQUIRES(&jobs->mutex)
{
	jobs->progress.files = jobs->locked.moved.files;
	cli_progress_update(&jobs->progress, jobs->bytes);
	if (cli_interrupted())
		cli_interrupt_tick();
	for (unsigned i = 0; cli_interrupted() && i < jobs->locked.count; i++)
		pthread_kill(jobs->locked.threads[i], SIGALRM);
	sl_cond_wait(&jobs->changed, &jobs->mutex, sl_deadline(WAIT_MS));
}

/* ------------------------------------------------------------------------------------- threads */

static uint64_t job_weight(const struct cli_jobs *jobs, const struct job *job)
{
	return job->bytes <= SMALL ? job->bytes : jobs->memory / MOST_FILES;
}

/* Tells whether a thread may take the oldest job. */
static bool jobs_has_turn_locked(const struct cli_jobs *jobs) SL_REQUIRES(&jobs->mutex)
{
	const struct job *job = &jobs->locked.queue[jobs->locked.tail % QUEUE];

	return jobs->locked.head != jobs->locked.tail &&
	       jobs->locked.weight + job_weight(jobs, job) <= jobs->memory;
}

static void jobs_add_locked(struct cli_jobs *jobs, const struct cli_moved *moved, int rc)
	SL_REQUIRES(&jobs->mutex)
{
	struct cli_moved *all = &jobs->locked.moved;

	jobs->locked.rc = jobs->locked.rc ? jobs->locked.rc : rc;
	all->files += moved->files;
	all->bytes += moved->bytes;
	all->holes += moved->holes;
	all->by_server += moved->by_server;
	pthread_cond_broadcast(&jobs->changed);
}

static void *jobs_run(void *argument);

/*
 * Has an idle thread, or a new one, take the oldest job if that has a turn; it does the same for
 * the next. Not by sl_thread_start(): signals end system calls of these threads.
 */
static void jobs_employ_locked(struct cli_jobs *jobs) SL_REQUIRES(&jobs->mutex)
{
	unsigned count = jobs->locked.count;

	if (!jobs_has_turn_locked(jobs))
		return;
	if (jobs->locked.idle)
		pthread_cond_signal(&jobs->has_turn);
	else if (count < jobs->most &&
	         !pthread_create(&jobs->locked.threads[count], NULL, jobs_run, jobs))
		jobs->locked.working = ++jobs->locked.count;
	else if (!count)
		errx(CLI_FAILED, "cannot start a thread");
}

/* Takes the oldest job; false: the end. A push, a job's end, or the end wakes it. */
static bool jobs_take_locked(struct cli_jobs *jobs, struct job *out) SL_REQUIRES(&jobs->mutex)
{
	while (!jobs_has_turn_locked(jobs) &&
	       !(jobs->locked.ended && jobs->locked.head == jobs->locked.tail)) {
		jobs->locked.idle++;
		sl_cond_wait(&jobs->has_turn, &jobs->mutex, SL_FOREVER);
		jobs->locked.idle--;
	}
	if (jobs->locked.head == jobs->locked.tail)
		return false;
	*out = jobs->locked.queue[jobs->locked.tail++ % QUEUE];
	jobs->locked.weight += job_weight(jobs, out);
	jobs_employ_locked(jobs);
	if (jobs->locked.ended && jobs->locked.head == jobs->locked.tail)
		pthread_cond_broadcast(&jobs->has_turn);
	return true;
}

static void *jobs_run(void *argument)
{
	struct cli_jobs *jobs = argument;
	struct cli_cp_options each = *jobs->o;
	sluice_context *own = NULL;
	struct job job;
	int rc = 0;

	each.open.quiet = true;
	each.sum = &jobs->bytes;
	each.alone = &jobs->alone;
	sl_mutex_lock(&jobs->mutex);
	while (jobs_take_locked(jobs, &job)) {
		struct cli_moved moved = {0};
		bool small = job.bytes <= SMALL;

		sl_mutex_unlock(&jobs->mutex);
		each.exact = job.exact;
		each.open.first_bytes = small && cli_is_object(job.source) ? job.bytes : 0;
		if (!small && !own)
			rc = cli_context_new(each.open.backend, 0, &own);
		sluice_context *ctx = small ? jobs->objects : own;
		if (ctx && !cli_interrupted())
			rc = cli_cp_one(ctx, &each, job.source, job.target, &moved);
		free(job.source);
		free(job.target);
		sl_mutex_lock(&jobs->mutex);
		jobs->locked.weight -= job_weight(jobs, &job);
		jobs_add_locked(jobs, &moved, rc);
	}
	sl_mutex_unlock(&jobs->mutex);
	sluice_context_close(own);
	sl_mutex_lock(&jobs->mutex);
	jobs->locked.working--;
	pthread_cond_broadcast(&jobs->changed);
	sl_mutex_unlock(&jobs->mutex);
	return NULL;
}

/* ------------------------------------------------------------------------------ start and end */

void cli_jobs_push(struct cli_jobs *jobs, const char *source, const char *target, uint64_t bytes,
                   bool exact)
{
	sl_mutex_lock(&jobs->mutex);
	while (jobs->locked.head - jobs->locked.tail == QUEUE && !jobs_may_end())
		jobs_await_change_locked(jobs);
	if (jobs->locked.head - jobs->locked.tail < QUEUE)
		jobs->locked.queue[jobs->locked.head++ % QUEUE] = (struct job){
			cli_format("%s", source), cli_format("%s", target), bytes, exact};
	jobs_employ_locked(jobs);
	sl_mutex_unlock(&jobs->mutex);
}

/*
 * Each small file has the memory of another again, whichever thread had it, and in huge pages: to
 * fault small ones in for each file is a quarter of the time. They follow the first block. With a
 * single arena threads of many cores would wait for each other. Each may keep a file's memory.
 */
static void jobs_keep_memory(const struct cli_jobs *jobs)
{
	char *memory;

	mallopt(M_ARENA_MAX, (int)SL_MAX(SL_MIN(sl_cores() / 2, jobs->memory / SMALL), 2));
	mallopt(M_MMAP_THRESHOLD, MOST_MMAP);
	mallopt(M_TRIM_THRESHOLD, (int)(2 * jobs->memory));
	mallopt(M_TOP_PAD, (int)jobs->memory);
	memory = malloc(MOST_MMAP - HUGE_PAGE);
	mallopt(M_TOP_PAD, USUAL_PAD);
	if (memory)
		madvise(memory + (-(uintptr_t)memory & (HUGE_PAGE - 1)), jobs->memory,
		        MADV_HUGEPAGE);
	free(memory);
}

struct cli_jobs *cli_jobs_start(const struct cli_cp_options *o, sluice_context *objects)
{
	struct cli_jobs *jobs = calloc(1, sizeof *jobs);
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

	if (!jobs)
		err(CLI_FAILED, "cp");
	jobs->o = o;
	jobs->objects = objects;
	jobs->memory = SL_MAX(SL_MIN(sl_machine_memory("") / 16, MEMORY), LEAST_MEMORY);
	/* Each has a file and a connection. More than cores keep up with are slower near by. */
	getrlimit(RLIMIT_NOFILE, &limit);
	jobs->most = MOST_FILES;
	if (objects)
		jobs->most = (unsigned)SL_MIN(SL_MAX(LEAST_THREADS, EACH_CORE * sl_cores()),
		                              SL_MIN(SL_MAX(limit.rlim_cur / 4, 1), MOST_THREADS));
	sl_mutex_init(&jobs->mutex);
	pthread_cond_init(&jobs->changed, NULL);
	pthread_cond_init(&jobs->has_turn, NULL);
	cli_progress_start(&jobs->progress, o->target, 0, !o->open.quiet && !o->no_progress);
	cli_interrupt_catch();
	jobs_keep_memory(jobs);
	return jobs;
}

/* All threads have ended. */
static void jobs_free(struct cli_jobs *jobs) SL_UNCHECKED
{
	while (jobs->locked.count)
		pthread_join(jobs->locked.threads[--jobs->locked.count], NULL);
	free(jobs);
}

int cli_jobs_finish(struct cli_jobs *jobs, struct cli_moved *moved, bool *left)
{
	int rc;

	sl_mutex_lock(&jobs->mutex);
	jobs->locked.ended = true;
	jobs->alone = jobs->locked.head == 1;
	pthread_cond_broadcast(&jobs->has_turn);
	while (jobs->locked.working && !jobs_may_end())
		jobs_await_change_locked(jobs);
	*left = jobs->locked.working;
	rc = jobs->locked.rc;
	*moved = jobs->locked.moved;
	sl_mutex_unlock(&jobs->mutex);
	cli_progress_end(&jobs->progress);
	if (*left)
		return rc;
	jobs_free(jobs);
	return rc;
}
