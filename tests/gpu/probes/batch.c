/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cuMemcpyBatchAsync() does, or, with "rows" behind it, cuMemcpy2DAsync() for segments that are rows of a table.
 * usage: batch takes|depth|word|kernel|rates|small|streams|much [rows]: which streams take
 * a batch; how many fit behind a wait; whether a word that is written behind a batch comes after all its
 * segments; whether batches run beside a kernel that fills the device; their rates; what 4 KiB cost; how many
 * streams may wait with a batch behind; how many segments a call takes. A line for each result. What does not
 * return within its time ends the program with a line, so that each experiment is a program of its own.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

enum { SEGMENTS = 20000, SPACE = 256 << 20, SLOT = 8 << 20, GAP = 256 };

/* CUDA Driver API reference, CUDA 13.0: without `failed`. */
static CUresult (*batch_of_13)(CUdeviceptr *to, CUdeviceptr *from, size_t *lengths, size_t count,
                               struct CUmemcpyAttributes *attributes, size_t *starts, size_t kinds,
                               CUstream stream);

static CUdeviceptr to[SEGMENTS], from[SEGMENTS];
static size_t lengths[SEGMENTS];
static char *pinned;
static CUdeviceptr there, scratch;
static bool rows;
static _Atomic uint32_t *done_word;

static CUresult give_batch(size_t first, size_t count, CUstream stream)
{
	struct CUmemcpyAttributes attributes = {.source_order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t start = 0, failed = SIZE_MAX;

	if (rows) {
		struct CUmemcpy2D copy = {
			.from_type = CU_MEMORYTYPE_UNIFIED,
			.from_device = from[first],
			.from_pitch = lengths[first] + GAP,
			.to_type = CU_MEMORYTYPE_UNIFIED,
			.to_device = to[first],
			.to_pitch = lengths[first] + GAP,
			.width = lengths[first],
			.height = count,
		};
		return cu.cuMemcpy2DAsync_v2(&copy, stream);
	}
	if (cu.cuMemcpyBatchAsync)
		return cu.cuMemcpyBatchAsync(to + first, from + first, lengths + first, count,
		                             &attributes, &start, 1, &failed, stream);
	return batch_of_13(to + first, from + first, lengths + first, count, &attributes, &start, 1,
	                   stream);
}

/* One by one if `at_once` is 1. */
static void give_all(size_t first, size_t count, size_t at_once, CUstream stream)
{
	for (size_t i = first; i < first + count; i += at_once) {
		size_t n = at_once < first + count - i ? at_once : first + count - i;

		if (at_once == 1)
			MUST(cuMemcpyAsync(to[i], from[i], lengths[i], stream));
		else
			driver_must(give_batch(i, n, stream), "a batch");
	}
}

/* Segments that follow each other in the source, and lie apart, backwards, at the destination. Rows lie apart in both. */
static size_t lay_out(CUdeviceptr target, CUdeviceptr source, size_t length, size_t count)
{
	size_t at = 0, apart = length + GAP;

	for (size_t i = 0; i < count; i++) {
		from[i] = source + (rows ? i * apart : at);
		to[i] = target + (rows ? i : count - 1 - i) * apart;
		lengths[i] = length;
		at += length;
	}
	return at;
}

/* The same, lengths from 256 B to 1 MiB, as many of each power of two. Returns the bytes. */
static size_t lay_out_mixed(CUdeviceptr target, CUdeviceptr source, size_t most, size_t *count)
{
	size_t at = 0, end = SPACE;
	uint32_t random = 1;

	for (*count = 0; *count < SEGMENTS; ++*count) {
		size_t length;

		random = random * 1664525 + 1013904223;
		length = (size_t)256 << (random >> 16) % 12;
		length += (random >> 8) % length;
		if (at + length > most || end < length + GAP)
			break;
		end -= length + GAP;
		from[*count] = source + at;
		to[*count] = target + end;
		lengths[*count] = length;
		at += length;
	}
	return at;
}

static double processor_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --------------------------------------------------------------------------------------- takes */

static void try_stream(const char *name, CUstream stream)
{
	CUresult rc = give_batch(0, 4, stream);

	say("| takes | %s | %s |", name, rc ? driver_error(rc) : "yes");
	if (stream != CU_STREAM_LEGACY && stream)
		MUST(cuStreamSynchronize(stream));
	else
		MUST(cuCtxSynchronize());
}

static void takes(void)
{
	CUresult (*find)(const char *, void **, int, uint64_t, int *) = NULL;
	CUstream stream = driver_stream();
	int version = 0, status;
	CUgraph graph;
	CUresult rc;
	void *found;

	*(void **)&find = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
	MUST(cuDriverGetVersion(&version));
	say("| takes | driver | %d; by name: 12.8 %s, 13.0 %s |", version,
	    cu.cuMemcpyBatchAsync ? "yes" : "no", batch_of_13 ? "yes" : "no");
	for (int asked = 12080; find && asked <= 13000; asked += 920) {
		found = NULL;
		rc = find("cuMemcpyBatchAsync", &found, asked, 0, &status);
		say("| takes | cuGetProcAddress %d | %s%s |", asked,
		    rc ? driver_error(rc) : "found",
		    found == (void *)cu.cuMemcpyBatchAsync ? ", as by name 12.8"
		    : found == (void *)batch_of_13         ? ", as by name 13.0"
		                                           : "");
	}
	lay_out(there, (uintptr_t)pinned, 4096, 4);
	try_stream("non-blocking stream", stream);
	try_stream("per-thread default stream", CU_STREAM_PER_THREAD);
	try_stream("legacy default stream, 1", CU_STREAM_LEGACY);
	try_stream("legacy default stream, 0", NULL);
	lay_out((uintptr_t)pinned, there, 4096, 4);
	try_stream("from the device", stream);
	lay_out(there, (uintptr_t)malloc(16384), 4096, 4);
	try_stream("from memory that is not pinned", stream);
	lay_out(there, (uintptr_t)pinned, 4096, 4);
	lengths[2] = 0;
	try_stream("an empty segment", stream);
	lay_out(there, (uintptr_t)pinned, 4096, 4);
	try_stream("the same stream afterwards", stream);
	MUST(cuStreamBeginCapture_v2(stream, 2));
	rc = give_batch(0, 4, stream);
	say("| takes | a stream in capture | %s |", rc ? driver_error(rc) : "yes");
	rc = cu.cuStreamEndCapture(stream, &graph);
	say("| takes | the capture afterwards | %s |", rc ? driver_error(rc) : "valid");
}

/* --------------------------------------------------------------------------------------- depth */

enum { CALLS_MOST = 3000 };

struct attempt {
	size_t at_once; /* 1: single copies */
	bool between;   /* a wait before and a write behind each call */
	CUstream stream;
	_Atomic unsigned given;
	_Atomic bool over;
};

static void *give_until_full(void *argument)
{
	struct attempt *a = argument;

	driver_enter();
	while (!gate_is_open() && atomic_load(&a->given) < CALLS_MOST) {
		if (a->between)
			driver_must(gate_wait(a->stream), "cuStreamWaitValue32");
		give_all(0, a->at_once, a->at_once, a->stream);
		if (a->between)
			MUST(cuStreamWriteValue32_v2(a->stream, (uintptr_t)(done_word + 16), 1, 0));
		atomic_fetch_add(&a->given, 1);
	}
	atomic_store(&a->over, true);
	return NULL;
}

static void await_end(const char *what, _Atomic bool *over)
{
	double start = driver_now();

	while (!atomic_load(over)) {
		if (driver_now() > start + 3) {
			say("| %s | **never came back** |", what);
			_exit(3);
		}
		sleep_ms(5);
	}
}

static void measure_depth(const char *way, size_t at_once, size_t length, bool between)
{
	struct attempt a = {.at_once = at_once, .between = between, .stream = driver_stream()};
	unsigned before, stuck = 0;
	char what[120];
	pthread_t thread;

	if (way[0] == 'i')
		lay_out(there, (uintptr_t)pinned, length, at_once);
	else if (way[0] == 'o')
		lay_out((uintptr_t)pinned, there, length, at_once);
	else
		lay_out(there, there + SPACE / 2, length, at_once);
	snprintf(what, sizeof(what), "depth | %s%s | %zu a call, of %zu B", way,
	         between ? ", wait and write around" : "", at_once, length);
	gate_close();
	driver_must(gate_wait(a.stream), "cuStreamWaitValue32");
	pthread_create(&thread, NULL, give_until_full, &a);
	do {
		before = atomic_load(&a.given);
		sleep_ms(20);
		stuck = before == atomic_load(&a.given) ? stuck + 1 : 0;
	} while (stuck < 4 && !atomic_load(&a.over));
	say("| %s | %s %u calls |", what, stuck >= 4 ? "blocks after" : "takes", before);
	gate_open();
	await_end(what, &a.over);
	pthread_join(thread, NULL);
	if (!stream_is_done(a.stream, 5)) {
		say("| %s | **the stream is not done** |", what);
		_exit(3);
	}
	stream_finish(a.stream);
}

static void depth(void)
{
	static const size_t numbers[] = {1, 4, 16, 64, 256};

	measure_depth("in", 64, 4096, true);
	measure_depth("in", 64, 65536, true);
	for (size_t i = 0; i < 4; i++)
		measure_depth("in", numbers[i], 4096, false);
	measure_depth("in", 16, 262144, false);
	measure_depth("in", 64, 262144, false);
	measure_depth("out", 64, 4096, false);
	measure_depth("on the device", 64, 4096, false);
	measure_depth("out", 64, 262144, false);
	measure_depth("in", 256, 4096, false);
	measure_depth("in", 1024, 4096, false);
}

/* ---------------------------------------------------------------------------------------- word */

static bool await_word(uint32_t value)
{
	double end = driver_now() + 3;

	while (atomic_load(done_word) != value)
		if (driver_now() > end)
			return false;
	return true;
}

/* A batch with a word behind; its bytes are looked at as soon as the word is there. */
static void word_way(const char *way, size_t length, size_t count)
{
	enum { ROUNDS = 300 };
	bool in = way[0] == 'i', device = way[0] == 's';
	CUstream stream = driver_stream(), other = driver_stream();
	size_t apart = (length + GAP) * count, wrong = 0;
	char *seen = pinned + SPACE / 2;

	for (uint32_t round = 1; round <= ROUNDS; round++) {
		if (in)
			lay_out(there, (uintptr_t)pinned, length, count);
		else if (device)
			lay_out(there, scratch, length, count);
		else
			lay_out((uintptr_t)seen, there, length, count);
		memset(seen, 0, apart);
		memset(pinned, (int)(round % 251 + 1), apart);
		if (!in)
			MUST(cuMemcpyHtoD_v2(device ? scratch : there, pinned, apart));
		atomic_store(done_word, 0);
		gate_close();
		driver_must(gate_wait(stream), "cuStreamWaitValue32");
		driver_must(give_batch(0, count, stream), "cuMemcpyBatchAsync");
		MUST(cuStreamWriteValue32_v2(stream, (uintptr_t)done_word, round, 0));
		gate_open();
		if (!await_word(round)) {
			say("| word | %s, %zu of %zu B | **the word never came**, round %u |", way,
			    count, length, round);
			_exit(3);
		}
		if (in || device) {
			MUST(cuMemcpyDtoHAsync_v2(seen, there, apart, other));
			MUST(cuStreamSynchronize(other));
		}
		for (size_t i = 0; i < count; i++)
			for (size_t j = 0; j < length; j += 64)
				wrong += seen[(length + GAP) * i + j] != (char)(round % 251 + 1);
	}
	say("| word | %s, %zu of %zu B | %d rounds, %zu wrong |", way, count, length, ROUNDS,
	    wrong);
	stream_finish(stream);
	stream_finish(other);
}

static void word(void)
{
	static const char *const ways[] = {"in", "out", "scratch"};

	for (int i = 0; i < 3; i++) {
		word_way(ways[i], 256, 64);
		word_way(ways[i], 4096, 64);
		word_way(ways[i], 65536, 16);
	}
	word_way("in", 262144, 16);
	word_way("out", 262144, 16);
}

/* -------------------------------------------------------------------------------------- kernel */

static void kernel_way(const char *way, size_t length, size_t at_once)
{
	CUstream busy = driver_stream(), stream = driver_stream();
	double start;
	bool beside;

	if (way[0] == 'i')
		lay_out(there, (uintptr_t)pinned, length, 64);
	else if (way[0] == 'o')
		lay_out((uintptr_t)pinned, there, length, 64);
	else
		lay_out(there, there + SPACE / 2, length, 64);
	driver_must(driver_launch_wide(KERNEL_SPIN, 300 * 1000 * 1000, busy), "cuLaunchKernel");
	sleep_ms(20);
	start = driver_now();
	give_all(0, 64, at_once, stream);
	beside = stream_is_done(stream, 0.2);
	say("| kernel | %s, 64 of %zu B, %zu a call | %s, %.0f us |", way, length, at_once,
	    beside ? "runs beside it" : "**waits for it**", (driver_now() - start) * 1e6);
	stream_finish(stream);
	stream_finish(busy);
}

static void kernel(void)
{
	static const char *const ways[] = {"in", "out", "on the device"};

	for (int i = 0; i < 3; i++)
		for (size_t length = 1024; length <= 262144; length *= 16)
			kernel_way(ways[i], length, 64);
	kernel_way("on the device", 4096, 1);
	kernel_way("in", 4096, 1);
}

/* --------------------------------------------------------------------------------------- rates */

struct cost {
	double seconds, submitted, processor;
};

static struct cost measure(size_t count, size_t at_once, CUstream stream)
{
	struct cost cost;
	double start, before;

	give_all(0, count < 64 ? count : 64, at_once, stream);
	MUST(cuStreamSynchronize(stream));
	start = driver_now();
	before = processor_seconds();
	give_all(0, count, at_once, stream);
	cost.processor = processor_seconds() - before;
	cost.submitted = driver_now() - start;
	MUST(cuStreamSynchronize(stream));
	cost.seconds = driver_now() - start;
	return cost;
}

static void say_rate(const char *way, const char *length, size_t count, size_t bytes,
                     size_t at_once, struct cost cost)
{
	say("| rates | %s, %s, %zu a call | %.2f GB/s, %.2f us and %.2f us of processor each, %.1f "
	    "ms |",
	    way, length, at_once, (double)bytes / cost.seconds / 1e9,
	    cost.submitted / (double)count * 1e6, cost.processor / (double)count * 1e6,
	    cost.seconds * 1e3);
}

/* A slot in one copy to scratch memory, its segments from there; mixed in slots of SLOT bytes. */
static struct cost measure_scratch(size_t count, size_t at_once, CUstream stream)
{
	double start = driver_now(), before = processor_seconds();
	struct cost cost;

	for (size_t i = 0; i < count;) {
		size_t n = 0, bytes = 0;
		CUdeviceptr slot = from[i];

		while (i + n < count && bytes + lengths[i + n] <= SLOT) {
			from[i + n] = scratch + bytes;
			bytes += lengths[i + n++];
		}
		MUST(cuMemcpyAsync(scratch, slot, bytes, stream));
		give_all(i, n, at_once, stream);
		i += n;
	}
	cost.processor = processor_seconds() - before;
	cost.submitted = driver_now() - start;
	MUST(cuStreamSynchronize(stream));
	cost.seconds = driver_now() - start;
	return cost;
}

static void rates(void)
{
	static const size_t at_once[] = {1, 16, 64, 256};
	CUstream stream = driver_stream();
	size_t bytes, count;
	char text[40];

	for (size_t length = 256; length <= 1 << 20; length *= 4) {
		snprintf(text, sizeof(text), "%zu B", length);
		count = (SPACE / 2) / (length + GAP) < 4096 ? (SPACE / 2) / (length + GAP) : 4096;
		for (size_t i = 0; i < 4; i++) {
			bytes = lay_out(there, (uintptr_t)pinned, length, count);
			say_rate("in", text, count, bytes, at_once[i],
			         measure(count, at_once[i], stream));
		}
		for (size_t i = 0; i < 3; i++) {
			bytes = lay_out((uintptr_t)pinned, there, length, count);
			say_rate("out", text, count, bytes, at_once[i],
			         measure(count, at_once[i], stream));
		}
		for (size_t i = 0; i < 3 && length <= 65536; i++) {
			bytes = lay_out(there, there + SPACE / 2, length, count);
			say_rate("on the device", text, count, bytes, at_once[i],
			         measure(count, at_once[i], stream));
		}
		for (size_t i = 1; i < 3 && length <= 65536 && !rows; i++) {
			bytes = lay_out(there, (uintptr_t)pinned, length, count);
			say_rate("by scratch", text, count, bytes, at_once[i],
			         measure_scratch(count, at_once[i], stream));
		}
	}
	for (size_t i = 0; i < 4 && !rows; i++) {
		bytes = lay_out_mixed(there, (uintptr_t)pinned, SPACE / 2, &count);
		say_rate("in", "256 B to 1 MiB", count, bytes, at_once[i],
		         measure(count, at_once[i], stream));
		bytes = lay_out_mixed((uintptr_t)pinned, there, SPACE / 2, &count);
		say_rate("out", "256 B to 1 MiB", count, bytes, at_once[i],
		         measure(count, at_once[i], stream));
		bytes = lay_out_mixed(there, (uintptr_t)pinned, SPACE / 2, &count);
		say_rate("by scratch", "256 B to 1 MiB", count, bytes, at_once[i],
		         measure_scratch(count, at_once[i], stream));
	}
	bytes = lay_out(there, (uintptr_t)pinned, SLOT, 15);
	say_rate("in", "8 MiB", 15, bytes, 1, measure(15, 1, stream));
	bytes = lay_out((uintptr_t)pinned, there, SLOT, 15);
	say_rate("out", "8 MiB", 15, bytes, 1, measure(15, 1, stream));
}

/* --------------------------------------------------------------------------------------- small */

enum { SMALL_ROUNDS = 300 };

/* 64 copies of 4 KiB and what says that they are done, until that has said so. */
static void small_way(const char *name, const char *way, size_t at_once, size_t each)
{
	CUstream stream = driver_stream();
	CUevent events[64];
	double start, before, submitted = 0;
	uint32_t value = 0;
	bool words = name[0] == 'w';

	lay_out(way[0] == 'i' ? there : (uintptr_t)pinned,
	        way[0] == 'i' ? (uintptr_t)pinned : there, 4096, 64);
	for (int i = 0; i < 64; i++)
		MUST(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	atomic_store(done_word, 0);
	start = driver_now();
	before = processor_seconds();
	for (int round = 0; round < SMALL_ROUNDS; round++) {
		double began = processor_seconds();

		for (size_t i = 0; i < 64; i += each) {
			give_all(i, each, at_once, stream);
			if (words)
				MUST(cuStreamWriteValue32_v2(stream, (uintptr_t)done_word, ++value,
				                             0));
			else
				MUST(cuEventRecord(events[i / each], stream));
		}
		submitted += processor_seconds() - began;
		for (size_t i = 0; i < 64; i += each) {
			if (words && !await_word(value))
				_exit(3);
			while (!words && cu.cuEventQuery(events[i / each]) == CUDA_ERROR_NOT_READY)
				;
		}
	}
	say("| small | %s, 4 KiB, %zu a call, a %s for each %zu | %.2f us each, %.2f us of "
	    "processor, "
	    "%.2f to submit |",
	    way, at_once, name, each, (driver_now() - start) * 1e6 / 64 / SMALL_ROUNDS,
	    (processor_seconds() - before) * 1e6 / 64 / SMALL_ROUNDS,
	    submitted * 1e6 / 64 / SMALL_ROUNDS);
	for (int i = 0; i < 64; i++)
		MUST(cuEventDestroy_v2(events[i]));
	stream_finish(stream);
}

static void small(void)
{
	static const char *const ways[] = {"in", "out"};

	for (int i = 0; i < 2; i++) {
		small_way("event", ways[i], 1, 1);
		small_way("event", ways[i], 1, 64);
		small_way("event", ways[i], 8, 8);
		small_way("event", ways[i], 16, 16);
		small_way("event", ways[i], 64, 64);
		small_way("word", ways[i], 1, 1);
		small_way("word", ways[i], 1, 64);
		small_way("word", ways[i], 64, 64);
	}
}

/* ------------------------------------------------------------------------------------- streams */

static void streams_way(const char *way, size_t length, size_t at_once)
{
	unsigned runs[2] = {0, 0};

	for (int unrelated = 0; unrelated < 2; unrelated++) {
		for (unsigned n = 1; n <= 8; n++) {
			CUstream waiting[8], other = driver_stream();
			bool done;

			gate_close();
			for (unsigned i = 0; i < n; i++) {
				waiting[i] = driver_stream();
				driver_must(gate_wait(waiting[i]), "cuStreamWaitValue32");
				if (way[0] == 'i')
					lay_out(there, (uintptr_t)pinned, length, 64);
				else if (way[0] == 'o')
					lay_out((uintptr_t)pinned, there, length, 64);
				else
					lay_out(there, there + SPACE / 2, length, 64);
				give_all(0, at_once == 1 ? 1 : 64, at_once, waiting[i]);
			}
			if (unrelated == 0)
				MUST(cuMemcpyHtoDAsync_v2(scratch, pinned, 262144, other));
			else
				driver_must(driver_launch(KERNEL_SPIN, 0, other), "cuLaunchKernel");
			done = stream_is_done(other, 0.05);
			gate_open();
			for (unsigned i = 0; i < n; i++)
				stream_finish(waiting[i]);
			stream_finish(other);
			if (!done)
				break;
			runs[unrelated] = n;
		}
	}
	say("| streams | %s, 64 of %zu B, %zu a call, %s connections | copies in run to %u, "
	    "kernels to "
	    "%u |",
	    way, length, at_once, probe_connections(), runs[0], runs[1]);
}

static void streams(void)
{
	static const char *const ways[] = {"in", "out", "on the device"};

	for (int i = 0; i < 3; i++) {
		streams_way(ways[i], 4096, 1);
		streams_way(ways[i], 262144, 1);
		streams_way(ways[i], 4096, 64);
		streams_way(ways[i], 262144, 64);
	}
}

/* ---------------------------------------------------------------------------------------- much */

static _Atomic bool much_over;
static CUstream much_stream;

static void *give_much(void *argument)
{
	driver_enter();
	driver_must(give_batch(0, *(size_t *)argument, much_stream), "cuMemcpyBatchAsync");
	atomic_store(&much_over, true);
	return NULL;
}

static void much(void)
{
	static size_t numbers[] = {512, 1000, 1024, 2048, 4383, 20000};
	char what[80];
	pthread_t thread;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		double start = driver_now();

		lay_out(there, (uintptr_t)pinned, 4096, numbers[i]);
		much_stream = driver_stream();
		atomic_store(&much_over, false);
		snprintf(what, sizeof(what), "much | %zu of 4096 B in a call", numbers[i]);
		pthread_create(&thread, NULL, give_much, &numbers[i]);
		await_end(what, &much_over);
		pthread_join(thread, NULL);
		if (!stream_is_done(much_stream, 3)) {
			say("| %s | **the stream is not done** |", what);
			_exit(3);
		}
		say("| %s | %.2f ms |", what, (driver_now() - start) * 1e3);
		stream_finish(much_stream);
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} experiments[] = {{"takes", takes}, {"depth", depth}, {"word", word},       {"kernel", kernel},
                   {"rates", rates}, {"small", small}, {"streams", streams}, {"much", much}};

int main(int argc, char **argv)
{
	void *library;

	probe_start();
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	*(void **)&batch_of_13 = dlsym(library, "cuMemcpyBatchAsync_v2");
	if (!cu.cuMemcpyBatchAsync && !batch_of_13) {
		say("skipped: the driver has no cuMemcpyBatchAsync, which came with CUDA 12.8");
		return 77;
	}
	rows = argc == 3 && !strcmp(argv[2], "rows");
	pinned = driver_pinned(SPACE);
	there = driver_memory(SPACE);
	scratch = driver_memory(SLOT);
	done_word = driver_pinned(PROBE_PAGE);
	for (size_t i = 0; (argc == 2 || rows) && i < sizeof(experiments) / sizeof(experiments[0]);
	     i++) {
		if (!strcmp(argv[1], experiments[i].name)) {
			experiments[i].run();
			fflush(stdout);
			_exit(0);
		}
	}
	say("usage: batch takes|depth|word|kernel|rates|small|streams|much [rows]");
	return 2;
}
