/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes both ways, on each kind of stream, and streams that end or are captured. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpu/check.h"

struct way {
	bool on;
	sluice_stream stream;
};

/* A read, and a kernel or the host that looks at it. */
static bool read_right(const struct way *way, sluice_file *in, void *memory, size_t n,
                       uint64_t offset)
{
	sluice_stream look_at = way->on ? way->stream : new_stream(0);
	struct gpu_match match;
	sluice_op *op;
	bool good = true;

	MUST(way->on ? sluice_read_on(in, memory, n, offset, way->stream, &op)
	             : sluice_read(in, memory, n, offset, &op));
	if (!way->on)
		good = moved(op, n);
	look_on(0, look_at, &match, memory, n, offset);
	good &= right(0, look_at, &match, "read");
	if (!way->on)
		MUST(sluice_stream_free(look_at));
	if (way->on && sluice_poll(op) != 1) {
		printf("       the stream has passed, and sluice_poll() says 0\n");
		good = false;
	}
	return way->on ? moved(op, n) && good : good;
}

/* A write of it, whose source is written over as soon as that may be. */
static bool write_right(const struct way *way, sluice_file *out, void *memory, size_t n,
                        uint64_t offset)
{
	unsigned char *held;
	sluice_op *op;
	void *pinned = new_pinned(0, n);
	bool good;

	held = pinned;
	MUST(way->on ? sluice_write_on(out, memory, n, 77, way->stream, &op)
	             : sluice_write(out, memory, n, 77, &op));
	if (way->on)
		GPU(gpu_scribble(0, way->stream, memory, n, 0x55));
	good = moved(op, n);
	memset(held, 1, n);
	MUST(sluice_read(out, held, n, 77, &op));
	good &= moved(op, n);
	if (pattern_match(held, n, offset, seed) != n) {
		printf("       %zu of %zu written bytes are wrong\n",
		       pattern_differ(held, n, offset, seed), n);
		good = false;
	}
	if (way->on)
		MUST(sluice_stream_synchronize(gpu_device(0), way->stream));
	MUST(sluice_pinned_free(pinned));
	return good;
}

static bool both_ways(bool on, sluice_stream stream)
{
	static const struct {
		size_t n;
		uint64_t offset;
	} cases[] = {
		{1, 0},           {4096, 4096},          {4097, 3},
		{1 << 20, 12345}, {(5 << 20) + 7, 1},    {33 << 20, 4096},
		{64 << 20, 0},    {(90 << 20) + 5, 777},
	};
	struct way way = {on, stream};
	sluice_file *in = open_in();
	bool good = true;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t n = cases[i].n;
		sluice_file *out;
		void *memory;

		if (cases[i].offset + n > file_bytes)
			continue;
		out = open_out();
		memory = new_memory(0, n);
		good &= read_right(&way, in, memory, n, cases[i].offset);
		good &= write_right(&way, out, memory, n, cases[i].offset);
		MUST(sluice_close(out));
		MUST(sluice_device_free(memory));
	}
	MUST(sluice_close(in));
	return good;
}

static bool awaited_on_the_host(void)
{
	return both_ways(false, NULL);
}

static bool on_its_own_stream(void)
{
	sluice_stream stream = new_stream(0);
	bool good = both_ways(true, stream);

	MUST(sluice_stream_free(stream));
	return good;
}

static bool on_the_legacy_default_stream(void)
{
	return both_ways(true, SLUICE_STREAM_DEFAULT);
}

static bool on_the_threads_default_stream(void)
{
	return both_ways(true, (sluice_stream)2);
}

/* ------------------------------------------------------------------------------------- captures */

static bool capture(void)
{
	enum { N = 4096 };
	sluice_stream stream, other;
	sluice_file *in = open_in();
	CUgraph graph;
	sluice_op *op;
	void *memory;
	bool good;

	need_cuda();
	memory = new_memory(0, 2 * N);
	stream = new_stream(0);
	other = new_stream(0);
	/* What a context does once for a device the driver does not do during a capture of this kind. */
	MUST(sluice_context_staging(ctx, gpu_device(0), NULL, 0));
	/* 0: also what other threads do with the driver is looked at. */
	DRIVER(cuStreamBeginCapture_v2, stream, 0);
	good = sluice_read_on(in, memory, N, 0, stream, &op) == -EINVAL;
	good &= strstr(sluice_last_message(), "captured") != NULL;
	if (!good)
		printf("       \"%s\"\n", sluice_last_message());
	/* The rest goes on meanwhile. */
	MUST(sluice_read_on(in, memory, N, 0, other, &op));
	good &= moved(op, N);
	MUST(sluice_read(in, memory, 2 * N, 0, &op));
	good &= moved(op, 2 * N);
	DRIVER(cuStreamEndCapture, stream, &graph);
	DRIVER(cuGraphDestroy, graph);
	MUST(sluice_read_on(in, memory, N, 0, stream, &op));
	good &= moved(op, N);
	MUST(sluice_stream_free(stream));
	MUST(sluice_stream_free(other));
	MUST(sluice_device_free(memory));
	MUST(sluice_close(in));
	return good;
}

/* ---------------------------------------------------------------------------- streams that end */

/* A stream goes with what it holds, which is still done. */
static bool destroyed_stream(void)
{
	enum { OPERATIONS = 8 };
	size_t n = file_bytes / OPERATIONS;
	sluice_op *ops[OPERATIONS], *write;
	sluice_stream stream = new_stream(0);
	sluice_file *in = open_in(), *out = open_out();
	void *memory = new_memory(0, n);
	unsigned char *held = new_pinned(0, n);
	bool good = true;

	for (int i = 0; i < OPERATIONS; i++)
		MUST(sluice_read_on(in, memory, n, (uint64_t)i * n, stream, &ops[i]));
	MUST(sluice_write_on(out, memory, n, 0, stream, &write));
	MUST(sluice_stream_free(stream));
	for (int i = 0; i < OPERATIONS; i++)
		good &= moved(ops[i], n);
	good &= moved(write, n);
	MUST(sluice_copy(held, memory, n));
	good &= pattern_match(held, n, (OPERATIONS - 1) * n, seed) == n;
	MUST(sluice_read(out, held, n, 0, &write));
	good &= moved(write, n) && pattern_match(held, n, (OPERATIONS - 1) * n, seed) == n;
	MUST(sluice_close(in));
	MUST(sluice_close(out));
	MUST(sluice_pinned_free(held));
	MUST(sluice_device_free(memory));
	return good;
}

const struct check bytes_checks[] = {
	{"host", "bytes go both ways, awaited on the host", awaited_on_the_host, 30},
	{"stream", "bytes go both ways on a stream of its own", on_its_own_stream, 30},
	{"legacy", "bytes go both ways on the legacy default stream", on_the_legacy_default_stream,
         30},
	{"thread", "bytes go both ways on the thread's default stream",
         on_the_threads_default_stream, 30},
	{"capture", "a stream that is being captured is refused, and the others go on", capture,
         20},
	{"destroyed", "a stream may be destroyed with operations pending", destroyed_stream, 20},
	{NULL, NULL, NULL, 0},
};
