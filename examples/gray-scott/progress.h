/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_PROGRESS_H
#define GRAY_SCOTT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* A line on the terminal: name, bar, percent, images per second, time left. */
struct progress {
	const char *name;
	uint64_t total;
	double start, last, rate; /* seconds, images per second */
	uint64_t last_done;
	bool shown, drawn;
};

/* Seconds of a clock that only goes forward. */
double progress_now(void);

void progress_start(struct progress *progress, const char *name, uint64_t total);
void progress_update(struct progress *progress, uint64_t done);
void progress_end(struct progress *progress);

#endif
