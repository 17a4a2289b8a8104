/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a wait on one kind of stream does to the others: the default stream, that of a thread, a stream of
 * its own that waits for the default stream, and one that does not. A line for each pair.
 */
#include "probe.h"

enum kind { LEGACY, THREAD, BLOCKING, APART, KINDS };
static const char *const names[] = {"default", "per-thread default", "blocking", "non-blocking"};

static sluice_stream streams[KINDS], others[KINDS];

static const char *state(sluice_stream s)
{
	return stream_is_done(s, 0.1) ? "runs" : "held up";
}

static void probe(enum kind waits, enum kind other)
{
	const char *kernel, *copy;

	gate_close();
	driver_must(gate_wait(streams[waits]), "cuStreamWaitValue32");
	driver_must(driver_launch(KERNEL_SPIN, 0, others[other]), "cuLaunchKernel");
	kernel = state(others[other]);
	MUST(cuMemcpyHtoDAsync_v2(memory, host, 4096, others[other]));
	copy = state(others[other]);
	say("| %s | %s | %s | %s |", names[waits], names[other], kernel, copy);
	gate_open();
	MUST(cuStreamSynchronize(streams[waits]));
	MUST(cuStreamSynchronize(others[other]));
}

int main(void)
{
	probe_start();
	for (int i = 0; i < 2; i++) {
		sluice_stream *to = i ? others : streams;

		to[LEGACY] = CU_STREAM_LEGACY;
		to[THREAD] = CU_STREAM_PER_THREAD;
		MUST(cuStreamCreate(&to[BLOCKING], CU_STREAM_BLOCKING));
		to[APART] = driver_stream();
	}
	for (int i = 0; i < KINDS; i++)
		for (int j = 0; j < KINDS; j++)
			if (i != j || i >= BLOCKING)
				probe(i, j);
	return 0;
}
