/* SPDX-License-Identifier: Apache-2.0 */
/* How long it takes from one side to the other. A line for each way: the middle and the 99th of a hundred. */
#include <stdlib.h>
#include <string.h>

#include "probe.h"

enum { SAMPLES = 500, WARM = 50 };

static _Atomic uint64_t *seen; /* what the device writes last */
static CUstream stream;
static CUevent event;
static double called; /* when the host function ran */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void await_seen(void)
{
	double end = driver_now() + 2;

	while (!atomic_load(seen) && driver_now() < end)
		;
}

static void write_seen(void)
{
	MUST(cuStreamWriteValue32_v2(stream, (uintptr_t)seen, 1, 0));
}

/* Waiting for the gate, which then opens; the stream has had time to come there. */
static double open_then_see(void (*between)(void))
{
	double start;

	gate_close();
	driver_must(gate_wait(stream), "cuStreamWaitValue32");
	between();
	start = driver_now();
	while (driver_now() < start + 50e-6)
		;
	start = driver_now();
	gate_open();
	await_seen();
	return driver_now() - start;
}

static void copy_then_write(void)
{
	MUST(cuMemcpyHtoDAsync_v2(memory, host, 4096, stream));
	write_seen();
}

static void large_copy_then_write(void)
{
	MUST(cuMemcpyHtoDAsync_v2(memory, host, 1 << 20, stream));
	write_seen();
}

static void stamp(void)
{
	driver_must(driver_launch(KERNEL_STAMP, (uintptr_t)seen, stream), "cuLaunchKernel");
}

static double store_to_write(void)
{
	return open_then_see(write_seen);
}

static double store_to_copy(void)
{
	return open_then_see(copy_then_write);
}

static double store_to_large_copy(void)
{
	return open_then_see(large_copy_then_write);
}

static double store_to_kernel(void)
{
	return open_then_see(stamp);
}

static double call_to_write(void)
{
	double start = driver_now();

	write_seen();
	await_seen();
	return driver_now() - start;
}

static double call_to_kernel(void)
{
	double start = driver_now();

	stamp();
	await_seen();
	return driver_now() - start;
}

static double call_to_copy(void)
{
	double start = driver_now();

	copy_then_write();
	await_seen();
	return driver_now() - start;
}

static void note_time(void *unused)
{
	(void)unused;
	called = driver_now();
	atomic_store(seen, 1);
}

static double call_to_function(void)
{
	double start = driver_now();

	MUST(cuLaunchHostFunc(stream, note_time, NULL));
	await_seen();
	return called - start;
}

static double record_to_query(void)
{
	double start = driver_now();

	MUST(cuEventRecord(event, stream));
	while (cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY)
		;
	return driver_now() - start;
}

static double call_of_write(void)
{
	double start = driver_now(), end;

	write_seen();
	end = driver_now();
	await_seen();
	return end - start;
}

static double call_of_copy(void)
{
	double start = driver_now(), end;

	MUST(cuMemcpyHtoDAsync_v2(memory, host, 4096, stream));
	end = driver_now();
	MUST(cuStreamSynchronize(stream));
	return end - start;
}

static const struct {
	const char *name;
	double (*measure)(void);
} ways[] = {
	{"store to an awaited word, until the next write is seen", store_to_write},
	{"store to an awaited word, copy in of 4 KiB, until the next write is seen", store_to_copy},
	{"store to an awaited word, copy in of 1 MiB, until the next write is seen",
         store_to_large_copy},
	{"store to an awaited word, until the next kernel's write is seen", store_to_kernel},
	{"write of a word given, until it is seen", call_to_write},
	{"copy in of 4 KiB and a write given, until it is seen", call_to_copy},
	{"kernel given, until its write is seen", call_to_kernel},
	{"host function given, until it runs", call_to_function},
	{"event recorded, until a query says so", record_to_query},
	{"the call that gives a write", call_of_write},
	{"the call that gives a copy", call_of_copy},
};

static void measure(size_t way)
{
	static double times[SAMPLES];

	for (int i = -WARM; i < SAMPLES; i++) {
		double time;

		atomic_store(seen, 0);
		time = ways[way].measure();
		if (i >= 0)
			times[i] = time * 1e6;
	}
	qsort(times, SAMPLES, sizeof(times[0]), compare);
	say("| %s | %s | %.1f us | %.1f us |", probe_connections(), ways[way].name,
	    times[SAMPLES / 2], times[SAMPLES * 99 / 100]);
}

int main(void)
{
	probe_start();
	seen = driver_pinned(PROBE_PAGE);
	stream = driver_stream();
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		measure(i);
	return 0;
}
