/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop on several threads. Not by OpenMP: its threads spin while they wait for each other, on the cores
 * that storage compresses on meanwhile, and only the environment of the process can tell them not to.
 */
#ifndef GRAY_SCOTT_PARALLEL_H
#define GRAY_SCOTT_PARALLEL_H

struct parallel;

/* The number of cores that this process may use. */
unsigned parallel_cores(void);

/* threads: the caller's included; 0: one for each core. 0 or a negative errno. */
int parallel_new(unsigned threads, struct parallel **out);
void parallel_free(struct parallel *parallel);
unsigned parallel_threads(const struct parallel *parallel);

/* What is to be done once for each index below the count; worker, below the number of threads, says by
 * which of them. No call may wait for another. */
typedef void parallel_work(unsigned index, unsigned worker, void *argument);

/* Returns when all is done. Each thread takes the next index when it is free: one that shares its core
 * with something else does less. One run at a time. */
void parallel_run(struct parallel *parallel, unsigned count, parallel_work *work, void *argument);

#endif
