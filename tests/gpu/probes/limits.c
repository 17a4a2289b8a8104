/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many streams may wait before others do not get on. usage: limits WAIT BEHIND [UNRELATED]: N streams
 * wait (by value, event, function, batch), each with something behind it (nothing, kernel, htod, dtoh,
 * memset); then copies and kernels on six streams that have nothing to do with them (plain, or of high
 * priority, or in a second context, or in a green one). A line for each of these: up to which N all of the
 * six get on, and from which N none does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

enum {
	UNRELATED = 6,
	BYTES = 256 << 10
};                    /* smaller ones go with the commands, through no channel for copies */
#define PATIENCE 0.05 /* seconds, after which a stream is held up */

/* Ends the program where the driver has no such function. */
#define NEED(name)                                       \
	do {                                             \
		if (!cu.name) {                          \
			say("the driver has no " #name); \
			exit(77);                        \
		}                                        \
	} while (0)

static const unsigned numbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 24, 31, 32, 33, 64, 128};

/* ------------------------------------------------------------------------------- what waits */

static CUstream waiting[STREAMS_MOST], behind;
static CUevent event;

static void give_wait(const char *how, CUstream s)
{
	CUstreamBatchMemOpParams two[2] = {0};

	if (!strcmp(how, "value")) {
		driver_must(gate_wait(s), "cuStreamWaitValue32");
	} else if (!strcmp(how, "event")) {
		MUST(cuStreamWaitEvent(s, event, 0));
	} else if (!strcmp(how, "function")) {
		NEED(cuLaunchHostFunc);
		MUST(cuLaunchHostFunc(s, gate_stand, NULL));
	} else { /* as sluice joins the write of one chunk and the wait of the next */
		two[0].word.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		two[0].word.address = (uintptr_t)(host + BYTES);
		two[0].word.value = 1;
		two[1].word.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
		two[1].word.address = gate_word();
		two[1].word.value = 1;
		two[1].word.flags = CU_STREAM_WAIT_VALUE_GEQ;
		MUST(cuStreamBatchMemOp_v2(s, 2, two, 0));
	}
}

static CUresult give(const char *what, CUstream s)
{
	if (!strcmp(what, "kernel"))
		return driver_launch(KERNEL_SPIN, 0, s);
	if (!strcmp(what, "htod"))
		return cu.cuMemcpyHtoDAsync_v2(memory, host, BYTES, s);
	if (!strcmp(what, "dtoh"))
		return cu.cuMemcpyDtoHAsync_v2(host + 2 * BYTES, memory, BYTES, s);
	if (!strcmp(what, "dtod"))
		return cu.cuMemcpyDtoDAsync_v2(memory + BYTES, memory, BYTES, s);
	if (!strcmp(what, "memset"))
		NEED(cuMemsetD32Async);
	if (!strcmp(what, "memset"))
		return cu.cuMemsetD32Async(memory, 0, BYTES / 4, s);
	return CUDA_SUCCESS;
}

static void hold(const char *how, const char *what, unsigned n)
{
	gate_close();
	for (unsigned i = 0; i < n; i++)
		waiting[i] = driver_stream();
	/* An event of a stream that waits by value, with nothing behind. */
	if (!strcmp(how, "event")) {
		behind = driver_stream();
		driver_must(gate_wait(behind), "cuStreamWaitValue32");
		MUST(cuEventRecord(event, behind));
	}
	for (unsigned i = 0; i < n; i++) {
		give_wait(how, waiting[i]);
		driver_must(give(what, waiting[i]), what);
	}
}

static void let_go(const char *how, unsigned n)
{
	gate_open();
	for (unsigned i = 0; i < n; i++)
		stream_finish(waiting[i]);
	if (!strcmp(how, "event"))
		stream_finish(behind);
}

/* --------------------------------------------------------------------------------- unrelated */

static CUcontext second;

static CUstream in_second_context(void)
{
	CUstream s;
	CUcontext ctx;
	CUdevice device;

	NEED(cuCtxCreate_v2);
	if (!second) {
		MUST(cuCtxGetDevice(&device));
		MUST(cuCtxCreate_v2(&second, 0, device));
	} else {
		MUST(cuCtxPushCurrent_v2(second));
	}
	s = driver_stream();
	MUST(cuCtxPopCurrent_v2(&ctx));
	return s;
}

static CUstream in_green_context(void)
{
	static CUgreenCtx green;
	CUdevResource whole;
	void *description;
	CUstream s;
	CUdevice device;

	NEED(cuGreenCtxCreate);
	NEED(cuGreenCtxStreamCreate);
	if (!green) {
		MUST(cuCtxGetDevice(&device));
		MUST(cuDeviceGetDevResource(device, &whole, 1));
		MUST(cuDevResourceGenerateDesc(&description, &whole, 1));
		MUST(cuGreenCtxCreate(&green, description, device, 1));
	}
	MUST(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
	return s;
}

static CUstream new_unrelated(const char *kind)
{
	int least, greatest;
	CUstream s;

	if (!strcmp(kind, "priority")) {
		NEED(cuCtxGetStreamPriorityRange);
		MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
		MUST(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, greatest));
		return s;
	}
	if (!strcmp(kind, "context"))
		return in_second_context();
	if (!strcmp(kind, "green"))
		return in_green_context();
	return driver_stream();
}

static void give_unrelated(const char *probe, CUstream s)
{
	CUcontext ctx;

	if (second)
		MUST(cuCtxPushCurrent_v2(second));
	driver_must(give(probe, s), probe);
	if (second)
		MUST(cuCtxPopCurrent_v2(&ctx));
}

/* On how many of the unrelated streams it is done in time. Half of them are older than those that wait. */
static unsigned count_running(const char *how, const char *what, const char *kind, unsigned n,
                              const char *probe)
{
	CUstream unrelated[UNRELATED];
	unsigned done = 0;

	for (unsigned i = 0; i < UNRELATED / 2; i++)
		unrelated[i] = new_unrelated(kind);
	hold(how, what, n);
	for (unsigned i = UNRELATED / 2; i < UNRELATED; i++)
		unrelated[i] = new_unrelated(kind);
	/* One after the other, so that they are not in each other's way. */
	for (unsigned i = 0; i < UNRELATED; i++) {
		give_unrelated(probe, unrelated[i]);
		done += stream_is_done(unrelated[i], PATIENCE);
	}
	let_go(how, n);
	for (unsigned i = 0; i < UNRELATED; i++)
		stream_finish(unrelated[i]);
	return done;
}

/* Up to none of them is done, or two numbers behind that some are not. */
static void find_limit(const char *how, const char *what, const char *kind, const char *probe)
{
	unsigned all = 0, none = 0, some = 0, last = 0;
	char text[80];

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && !none && some < 3; i++) {
		unsigned done = count_running(how, what, kind, numbers[i], probe);

		last = numbers[i];
		if (!done)
			none = last;
		else if (done == UNRELATED && !some)
			all = last;
		else
			some++;
	}
	if (none)
		snprintf(text, sizeof(text), "none from %u", none);
	else
		snprintf(text, sizeof(text), some ? "some at %u" : "no limit to %u", last);
	say("| %s | %s | %s | %s | %s | all to %u | %s |", probe_connections(), how, what, kind,
	    probe, all, text);
}

int main(int argc, char **argv)
{
	static const char *const probes[] = {"htod", "kernel", "dtoh", "dtod"};
	const char *kind = argc > 3 ? argv[3] : "plain";

	if (argc < 3)
		return 2;
	probe_start();
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++)
		/* A kernel belongs to the context that it was loaded in. */
		if (strcmp(kind, "context") || strcmp(probes[i], "kernel"))
			find_limit(argv[1], argv[2], kind, probes[i]);
	return 0;
}
