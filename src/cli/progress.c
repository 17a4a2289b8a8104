/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress bar
 *
 * A line on the terminal: name, bar, percentage, rate, time left.
 *
 * Threads: the main thread; a copy among others that of its own.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "cli.h"

enum { LINE_COLUMNS = 512, BAR_LEAST = 10 };
static const uint64_t FIRST_NS = 300000000, INTERVAL_NS = 100000000;

/* Copies as much of name as fits into columns; control characters become '?'. */
static size_t fit_name(const char *name, size_t columns, char *out, size_t size)
{
	mbstate_t state = {0};
	size_t left = strlen(name), used = 0, bytes = 0;

	while (left > 0) {
		wchar_t c;
		size_t n = mbrtowc(&c, name, left, &state);
		int width = n == 0 || n > left ? -1 : wcwidth(c);

		if (n == 0 || n > left) {
			memset(&state, 0, sizeof(state));
			n = 1;
		}
		size_t takes = width < 0 ? 1 : (size_t)width;
		if (used + takes > columns || bytes + n + 1 > size)
			break;
		if (width < 0)
			out[bytes++] = '?';
		else
			memcpy(out + bytes, name, n), bytes += n;
		used += takes;
		name += n;
		left -= n;
	}
	out[bytes] = '\0';
	return used;
}

/* Returns the part of name that fits: all of it, or the part behind the last slash. */
static const char *short_name(const char *name, size_t columns)
{
	char text[256];
	const char *slash = strrchr(name, '/');
	bool fits = fit_name(name, sizeof(text), text, sizeof(text)) <= columns;

	return fits || !slash || !slash[1] ? name : slash + 1;
}

static void format_left(double seconds, char text[CLI_TEXT])
{
	uint64_t s = seconds < 360000 ? (uint64_t)(seconds + 0.5) : 360000;

	if (s >= 360000)
		snprintf(text, CLI_TEXT, "> 100 h left");
	else if (s >= 3600)
		snprintf(text, CLI_TEXT, "%u:%02u:%02u left", (unsigned)(s / 3600),
		         (unsigned)(s / 60 % 60), (unsigned)(s % 60));
	else
		snprintf(text, CLI_TEXT, "%u:%02u left", (unsigned)(s / 60), (unsigned)(s % 60));
}

/* Formats the text behind the name, as far as known. */
static int format_tail(const struct cli_progress *p, uint64_t moved, char *out, size_t size)
{
	char amount[CLI_TEXT], rate[CLI_TEXT], left[CLI_TEXT] = "";

	if (p->limited_ms)
		return snprintf(out, size, "%s  waiting %u s: the server limits requests (429)",
		                cli_size_format(moved, amount),
		                (unsigned)((p->limited_ms + 999) / 1000));
	cli_rate_format(p->rate, rate);
	if (p->total == 0 && p->files)
		snprintf(left, sizeof(left), "%" PRIu64 " file%s, ", p->files,
		         p->files == 1 ? "" : "s");
	if (p->total == 0)
		return snprintf(out, size, "%s%s  %s", left, cli_size_format(moved, amount), rate);
	if (p->rate >= 1 && moved < p->total)
		format_left((double)(p->total - moved) / p->rate, left);
	/* Rounded down: only the summary says 100%. */
	return snprintf(out, size, "%3u%%  %9s  %s",
	                (unsigned)((double)moved * 100 / (double)p->total), rate, left);
}

static void draw_line(struct cli_progress *p, uint64_t moved)
{
	struct winsize window = {0};
	char name[256], tail[3 * CLI_TEXT], bar[LINE_COLUMNS];
	size_t columns = 80;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
		columns = window.ws_col;
	if (columns > LINE_COLUMNS)
		columns = LINE_COLUMNS;
	/* The last column stays free: some terminals wrap when it is written. */
	columns--;

	size_t tail_columns = (size_t)format_tail(p, moved, tail, sizeof(tail));
	/* Reserves space for the longest time left, so that the bar has a constant width. */
	size_t reserved = p->total && tail_columns < 30 ? 30 : tail_columns;
	size_t room = columns > reserved + 2 ? columns - reserved - 2 : 0;
	size_t most = p->total ? room / 2 : room;
	size_t name_columns = fit_name(short_name(p->name, most), most, name, sizeof(name));
	size_t bar_columns = room > name_columns + 4 ? room - name_columns - 4 : 0;

	p->drawn = true;
	if (p->total == 0 || bar_columns < BAR_LEAST) {
		fprintf(stderr, "\r\033[K%s%s%.*s", name, name_columns ? "  " : "", (int)columns,
		        tail);
		return;
	}
	size_t full = (size_t)((double)moved / (double)p->total * (double)bar_columns);
	if (full > bar_columns)
		full = bar_columns;
	memset(bar, '#', full);
	memset(bar + full, '.', bar_columns - full);
	fprintf(stderr, "\r\033[K%s  [%.*s]  %s", name, (int)bar_columns, bar, tail);
}

void cli_progress_start(struct cli_progress *p, const char *name, uint64_t total, bool wanted)
{
	const char *terminal = getenv("TERM");
	bool dumb = !terminal || !terminal[0] || !strcmp(terminal, "dumb");

	*p = (struct cli_progress){.name = name, .total = total};
	p->shown = wanted && !dumb && isatty(STDERR_FILENO);
	p->start_ns = p->last_ns = sl_now();
}

void cli_progress_update(struct cli_progress *p, uint64_t moved)
{
	if (p->sum) {
		atomic_fetch_add(p->sum, moved - p->last_moved);
		p->last_moved = moved;
	}
	if (!p->shown)
		return;
	uint64_t now = sl_now();
	if (now - p->last_ns < INTERVAL_NS)
		return;

	double seconds = (double)(now - p->last_ns) / 1e9;
	double rate = (double)(moved - p->last_moved) / seconds;
	/* A mean over about two seconds, or less at the start. */
	double age = (double)(now - p->start_ns) / 1e9;
	double weight = seconds / (age < 2 ? age : 2);
	p->rate += (weight < 1 ? weight : 1) * (rate - p->rate);
	p->last_ns = now;
	p->last_moved = moved;

	if (now - p->start_ns < FIRST_NS)
		return;
	/* A background job does not draw over the job in front. */
	pid_t front = tcgetpgrp(STDERR_FILENO);
	if (front >= 0 && front != getpgrp())
		return;
	draw_line(p, moved);
	fflush(stderr);
}

void cli_progress_end(struct cli_progress *p)
{
	if (p->drawn)
		fputs("\r\033[K", stderr);
	fflush(stderr);
	p->drawn = p->shown = false;
}
