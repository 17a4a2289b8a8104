/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"

enum { COLUMNS_MOST = 512, BAR_LEAST = 10, TAIL = 40 };
static const double FIRST = 0.3, INTERVAL = 0.1;

double progress_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void draw(struct progress *p, uint64_t done)
{
	struct winsize window = {0};
	size_t columns = 79, name = strlen(p->name), width, full;
	char bar[COLUMNS_MOST], left[24] = "";

	/* The last column stays free: some terminals wrap when it is written. */
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
		columns = window.ws_col - 1U;
	if (columns > COLUMNS_MOST)
		columns = COLUMNS_MOST;
	if (p->rate > 0) {
		double s = (double)(p->total - done) / p->rate + 0.5;
		unsigned whole = s < 360000 ? (unsigned)s : 360000;

		snprintf(left, sizeof left, "%u:%02u:%02u left", whole / 3600, whole / 60 % 60,
		         whole % 60);
	}
	p->drawn = true;
	width = columns > name + 4 + TAIL ? columns - name - 4 - TAIL : 0;
	if (width < BAR_LEAST) {
		fprintf(stderr, "\r\033[K%3u%%", (unsigned)(done * 100 / p->total));
		return;
	}
	full = (size_t)((double)done / (double)p->total * (double)width);
	memset(bar, '#', full);
	memset(bar + full, '.', width - full);
	fprintf(stderr, "\r\033[K%s  [%.*s]  %3u%%  %5.1f images/s  %s", p->name, (int)width, bar,
	        (unsigned)(done * 100 / p->total), p->rate, left);
}

void progress_start(struct progress *p, const char *name, uint64_t total)
{
	const char *terminal = getenv("TERM");
	bool dumb = !terminal || !terminal[0] || !strcmp(terminal, "dumb");

	*p = (struct progress){.name = name, .total = total};
	p->shown = !dumb && isatty(STDERR_FILENO);
	p->start = p->last = progress_now();
}

void progress_update(struct progress *p, uint64_t done)
{
	double now, seconds, age, weight;
	pid_t front;

	if (!p->shown)
		return;
	now = progress_now();
	seconds = now - p->last;
	if (seconds < INTERVAL)
		return;
	/* A mean over about two seconds; until then over all of the time. */
	age = now - p->start;
	weight = seconds / (age < 2 ? age : 2);
	p->rate += (weight < 1 ? weight : 1) * ((double)(done - p->last_done) / seconds - p->rate);
	p->last = now;
	p->last_done = done;
	/* A job in the background does not draw over the one in front. */
	front = tcgetpgrp(STDERR_FILENO);
	if (age < FIRST || (front >= 0 && front != getpgrp()))
		return;
	draw(p, done);
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (p->drawn)
		fputs("\r\033[K", stderr);
	fflush(stderr);
	p->drawn = p->shown = false;
}
