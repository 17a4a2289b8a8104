/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice bench: a round
 *
 * Runs a number of operations and keeps several in flight.
 *
 * Threads: the main thread.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

enum { PAGE = 4096, WAIT_MS = 100 };

struct cli_bench_slot {
	char *buffer; /* a buffer per operation in flight */
	size_t expected;
	struct cli_bench_slot *next_free;
};

int cli_bench_prepare(struct cli_bench_run *run)
{
	const struct cli_bench_options *o = run->options;
	uint64_t stride = o->full ? o->op_size : (o->op_size + PAGE - 1) / PAGE * PAGE;

	run->in_flight = o->depth < run->operations ? o->depth : (unsigned)run->operations;
	uint64_t count = o->full ? run->operations : run->in_flight;
	run->random = o->seed;
	run->slots = calloc(run->in_flight, sizeof(*run->slots));
	if (!run->slots || count > (SIZE_MAX / 2 - PAGE) / stride)
		return cli_fail(-ENOMEM, "no memory for %u operations in flight", run->in_flight);
	int rc = cli_memory_new(&run->memory, o->device, (count * stride + PAGE - 1) / PAGE * PAGE,
	                        o->huge);
	if (rc)
		return rc;
	/* Like a large block of malloc(): 16 bytes after the start of a page. */
	run->memory.data += o->unaligned ? 16 : 0;
	/* Write noise, so that a file system cannot compress or drop it. */
	rc = cli_memory_fill(&run->memory, o->seed);
	if (rc)
		return rc;
	for (uint64_t i = 0; i < run->in_flight; i++)
		run->slots[i].buffer = run->memory.data + i * stride;
	return 0;
}

/* ---------------------------------------------------------------------------------- page cache */

/* Returns the part of the file that is in the page cache, or 0 if the kernel does not report it. */
static double resident_part(int fd)
{
	struct stat st;
	double part = 0;

	/* The kernel reports all pages as cached to processes that may not write the file. */
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size == 0 ||
	    (st.st_uid != geteuid() && geteuid() != 0))
		return 0;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), there = 0;
	size_t pages = ((size_t)st.st_size + page - 1) / page;
	unsigned char *map = malloc(pages);
	void *view = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);

	if (map && view != MAP_FAILED && mincore(view, (size_t)st.st_size, map) == 0) {
		for (size_t i = 0; i < pages; i++)
			there += map[i] & 1;
		part = (double)there / (double)pages;
	}
	if (view != MAP_FAILED)
		munmap(view, (size_t)st.st_size);
	free(map);
	return part;
}

static int drop_pages(struct cli_bench_run *run, struct cli_bench_round *out)
{
	int rc;

	if (!run->path)
		return cli_fail(-EINVAL, "--cold: '%s' is not a local file", run->options->name);
	int fd = open(run->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fsync(fd)) {
		rc = -errno;
		warn("--cold: '%s'", run->path);
	} else {
		rc = -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (rc)
			cli_warn("--cold: '%s': %s", run->path, strerror(-rc));
		out->resident = resident_part(fd);
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

/* ---------------------------------------------------------------------------------- operations */

struct traffic {
	struct cli_bench_run *run;
	struct cli_bench_slot *free;
	uint64_t started, finished;
};

static int start_next(struct traffic *t)
{
	struct cli_bench_run *run = t->run;
	const struct cli_bench_options *o = run->options;
	struct sluice_request request = SLUICE_REQUEST_INIT;
	struct cli_bench_slot *slot = t->free;
	uint64_t i = t->started++, offset = i * o->op_size, length = o->op_size;
	sluice_op *op;

	if (o->random) {
		unsigned __int128 blocks = run->range / o->op_size;
		offset = (uint64_t)(blocks * sl_random(&run->random) >> 64) * o->op_size;
	} else if (length > run->bytes - offset) {
		length = run->bytes - offset;
	}
	struct sluice_extent extent = {slot->buffer, length, offset};
	if (o->full)
		extent.data = run->memory.data + i * o->op_size;
	t->free = slot->next_free;
	slot->expected = length;
	request.kind = o->write ? SLUICE_WRITE : SLUICE_READ;
	request.extents = &extent;
	request.count = 1;
	request.user = slot;
	request.on = o->on_stream;
	request.stream = run->memory.streams[i % CLI_STREAMS];
	int rc = cli_said(sluice_submit(run->file, &request, &op));
	if (rc)
		t->started--;
	return rc;
}

/* Ends an operation. Only the first failure is reported; later ones have the same reason. */
static int finish_operation(struct traffic *t, sluice_op *op, bool failed)
{
	struct cli_bench_slot *slot = sluice_op_user(op);
	int64_t n = sluice_wait(op, 0);
	int rc = 0;

	if (n < 0) {
		if (!failed)
			cli_warn("%s", sluice_op_message(op));
		rc = (int)n;
	} else if ((uint64_t)n != slot->expected) {
		if (!failed)
			cli_warn("'%s' became shorter while it was read", t->run->options->name);
		rc = -EIO;
	}
	sluice_op_free(op);
	slot->next_free = t->free;
	t->free = slot;
	t->finished++;
	return rc;
}

/* Keeps depth operations in flight; after a failure only waits for those in flight. */
static int move_round(struct cli_bench_run *run)
{
	struct traffic t = {.run = run};
	sluice_op *op;
	int rc = 0;

	for (unsigned i = 0; i < run->in_flight; i++) {
		run->slots[i].next_free = t.free;
		t.free = &run->slots[i];
	}
	while (rc == 0 ? t.finished < run->operations : t.finished < t.started) {
		while (rc == 0 && t.free && t.started < run->operations)
			rc = start_next(&t);
		if (t.finished == t.started)
			break;
		/* Caught where an upload is to be dropped. */
		if (cli_interrupted())
			cli_interrupt_leave();
		int taken = sluice_queue_next(sluice_context_queue(run->ctx),
		                              run->whole ? WAIT_MS : -1, &op);
		if (taken == -EAGAIN)
			continue;
		if (taken)
			return cli_said(taken);
		taken = finish_operation(&t, op, rc != 0);
		rc = rc ? rc : taken;
	}
	return rc;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int cli_bench_close(struct cli_bench_run *run, int rc)
{
	sluice_file *file = run->file;

	run->file = NULL;
	int closed = sluice_close(file);
	return rc ? rc : cli_said(closed);
}

int cli_bench_run_round(struct cli_bench_run *run, struct cli_bench_round *out)
{
	const struct cli_bench_options *o = run->options;
	int rc = 0;

	*out = (struct cli_bench_round){0};
	if (o->cold)
		rc = drop_pages(run, out);
	if (rc)
		return rc;
	double cpu = cpu_seconds();
	uint64_t start = sl_now();
	rc = move_round(run);
	if (rc == 0 && o->sync)
		rc = cli_said(sluice_sync(run->file));
	if (rc == 0 && run->whole)
		rc = cli_bench_close(run, 0);
	out->seconds = (double)(sl_now() - start) / 1e9;
	out->cpu_seconds = cpu_seconds() - cpu;
	return rc;
}
