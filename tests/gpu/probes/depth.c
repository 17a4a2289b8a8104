/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many commands can be given to a stream that waits before the call that gives one more does not
 * return. A line for each kind of command.
 */
#include <pthread.h>
#include <string.h>

#include "probe.h"

enum { MOST = 40000, BATCH = 32 };

struct attempt {
	const char *what;
	CUstream stream;
	CUevent event;
	_Atomic unsigned given;
	_Atomic bool over;
};

static void nothing(void *unused)
{
	(void)unused;
}

static CUresult batch(CUstream s, unsigned count)
{
	CUstreamBatchMemOpParams operations[BATCH];

	memset(operations, 0, sizeof(operations));
	for (unsigned i = 0; i < count; i++) {
		operations[i].word.operation =
			i % 2 ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
		operations[i].word.address = i % 2 ? gate_word() : (uintptr_t)host;
		operations[i].word.value = 1;
	}
	return cu.cuStreamBatchMemOp_v2(s, count, operations, 0);
}

static CUresult give(struct attempt *a)
{
	CUstream s = a->stream;

	if (!strcmp(a->what, "wait"))
		return gate_wait(s);
	if (!strcmp(a->what, "write"))
		return cu.cuStreamWriteValue32_v2(s, (uintptr_t)host, 1, 0);
	if (!strcmp(a->what, "batch of 2"))
		return batch(s, 2);
	if (!strcmp(a->what, "batch of 32"))
		return batch(s, BATCH);
	if (!strcmp(a->what, "copy in"))
		return cu.cuMemcpyHtoDAsync_v2(memory, host, 4096, s);
	if (!strcmp(a->what, "copy out"))
		return cu.cuMemcpyDtoHAsync_v2(host, memory, 4096, s);
	if (!strcmp(a->what, "kernel"))
		return driver_launch(KERNEL_SPIN, 0, s);
	if (!strcmp(a->what, "event record"))
		return cu.cuEventRecord(a->event, s);
	if (!strcmp(a->what, "host function"))
		return cu.cuLaunchHostFunc(s, nothing, NULL);
	/* What sluice gives for a chunk: wait, copy, write. */
	if (atomic_load(&a->given) % 3 == 0)
		return gate_wait(s);
	return atomic_load(&a->given) % 3 == 1
	               ? cu.cuMemcpyAsync(memory, (uintptr_t)host, 4096, s)
	               : cu.cuStreamWriteValue32_v2(s, (uintptr_t)host, 1, 0);
}

static void *give_all(void *argument)
{
	struct attempt *a = argument;

	driver_enter();
	while (!gate_is_open() && atomic_load(&a->given) < MOST) {
		driver_must(give(a), a->what);
		atomic_fetch_add(&a->given, 1);
	}
	atomic_store(&a->over, true);
	return NULL;
}

static void measure(const char *what)
{
	struct attempt a = {.what = what, .stream = driver_stream()};
	unsigned before, stuck = 0;
	double start = driver_now();
	pthread_t thread;

	MUST(cuEventCreate(&a.event, CU_EVENT_DISABLE_TIMING));
	gate_close();
	driver_must(gate_wait(a.stream), "cuStreamWaitValue32");
	pthread_create(&thread, NULL, give_all, &a);
	do {
		before = atomic_load(&a.given);
		sleep_ms(20);
		stuck = before == atomic_load(&a.given) ? stuck + 1 : 0;
	} while (stuck < 4 && !atomic_load(&a.over) && driver_now() < start + 1.5);
	if (stuck >= 4)
		say("| %s | %s | blocks after %u |", probe_connections(), what, before);
	else
		say("| %s | %s | takes %u in %.2f s |", probe_connections(), what,
		    atomic_load(&a.given), driver_now() - start);
	gate_open();
	pthread_join(thread, NULL);
	stream_finish(a.stream);
	MUST(cuEventDestroy_v2(a.event));
}

int main(void)
{
	static const char *const kinds[] = {
		"wait",     "write",  "batch of 2",   "batch of 32",   "copy in",
		"copy out", "kernel", "event record", "host function", "wait, copy, write"};

	probe_start();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		measure(kinds[i]);
	return 0;
}
