/* SPDX-License-Identifier: Apache-2.0 */
/* sluice cp: threads that copy the files of a tree. */
#ifndef SLUICE_CLI_JOBS_H
#define SLUICE_CLI_JOBS_H

#include "cp.h"

struct cli_jobs;
/*
 * Begins, with a progress bar. objects: the context for small objects, of all threads; or NULL. The
 * main thread calls this and the next two. Each thread is started when there is a job for it; the
 * program ends if none can be.
 */
struct cli_jobs *cli_jobs_start(const struct cli_cp_options *o, sluice_context *objects);
/*
 * Has a file copied; see cli_cp_options for exact. bytes: of an object that is read or written;
 * else UINT64_MAX. Waits while there is much to do.
 */
void cli_jobs_push(struct cli_jobs *jobs, const char *source, const char *target, uint64_t bytes,
                   bool exact);
/*
 * Waits for all copies, and frees the jobs; or returns earlier after an interrupt, with *left set,
 * while threads wait for servers. Returns 0, or the error of the first copy that failed, printed.
 */
int cli_jobs_finish(struct cli_jobs *jobs, struct cli_moved *moved, bool *left);

#endif
