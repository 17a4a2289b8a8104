/* SPDX-License-Identifier: Apache-2.0 */
/* Where the frames come from: a file, or a simulation that goes on. */
#include "writer_bench.h"

#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../examples/gray-scott/reaction.h"

static struct {
	float *frames;
	size_t count;              /* in frames */
	struct parallel *parallel; /* of the simulation */
	struct reaction *reaction;
} source;

size_t frame_cells(void)
{
	return options.sink.rows * options.sink.columns;
}

void *touched(size_t bytes)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 1 << 21, bytes) != 0)
		errx(1, "%zu bytes of memory", bytes);
	madvise(memory, bytes, MADV_HUGEPAGE);
	memset(memory, 0, bytes);
	return memory;
}

/* The block of each frame in a file. */
static float *load(const char *path, size_t *count)
{
	const struct sink_options *o = &options.sink;
	size_t line = o->columns * sizeof(float), whole = o->whole * line, block = o->rows * line;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat s;
	char *all;

	if (fd < 0 || fstat(fd, &s) < 0)
		err(1, "%s", path);
	*count = (size_t)s.st_size / whole;
	if ((size_t)s.st_size % whole)
		errx(1, "%lld bytes are no frames of %zu", (long long)s.st_size, whole);
	all = touched(*count * block);
	for (size_t at = 0; at < *count * block;) {
		size_t frame = at / block, begun = at % block;
		ssize_t n = pread(fd, all + at, block - begun,
		                  (off_t)(frame * whole + o->first * line + begun));

		if (n <= 0)
			err(1, "%s", path);
		at += (size_t)n;
	}
	close(fd);
	return (float *)(void *)all;
}

void source_open(void)
{
	struct reaction_options r = REACTION_OPTIONS_INIT;

	source.frames = load(options.state ? options.state : options.from, &source.count);
	if (source.count < (options.state ? 2 : 1))
		errx(1, "there are no frames");
	if (!options.state)
		return;
	r.rows = options.sink.rows;
	r.columns = options.sink.columns;
	if (parallel_new(0, &source.parallel) != 0 ||
	    reaction_new(&r, source.parallel, &source.reaction) != 0)
		errx(1, "no memory for the simulation");
	for (size_t i = 0; i < frame_cells(); i++)
		reaction_set(source.reaction, i / r.columns, i % r.columns, source.frames[i],
		             source.frames[i + frame_cells()]);
}

const float *source_at(uint64_t i)
{
	uint64_t wanted = options.sink.frames;

	i = wanted < source.count ? i * source.count / wanted : i % source.count;
	return source.frames + i * frame_cells();
}

void source_fill(float *frame, uint64_t i)
{
	double start = options.compute ? seconds_of(CLOCK_THREAD_CPUTIME_ID) : 0;

	if (source.reaction) {
		reaction_step(source.reaction, options.steps);
		reaction_copy_v(source.reaction, frame);
		return;
	}
	memcpy(frame, source_at(i), frame_cells() * sizeof(float));
	while (options.compute && seconds_of(CLOCK_THREAD_CPUTIME_ID) - start < options.compute)
		;
}

size_t source_count(void)
{
	return source.count;
}
