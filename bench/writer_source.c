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

static float *load(const char *path, size_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat s;
	float *all;

	if (fd < 0 || fstat(fd, &s) < 0)
		err(1, "%s", path);
	*bytes = (size_t)s.st_size;
	all = touched(*bytes);
	for (size_t at = 0; at < *bytes;) {
		ssize_t n = read(fd, (char *)all + at, *bytes - at);

		if (n <= 0)
			err(1, "%s", path);
		at += (size_t)n;
	}
	close(fd);
	return all;
}

void source_open(void)
{
	struct reaction_options r = REACTION_OPTIONS_INIT;
	size_t bytes, frame = frame_cells() * sizeof(float);

	source.frames = load(options.state ? options.state : options.from, &bytes);
	source.count = bytes / frame;
	if (bytes % frame || source.count < (options.state ? 2 : 1))
		errx(1, "%zu bytes are no frames of %zu", bytes, frame);
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
