/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which calls are held up. usage: calls pending|free|unmap|full: while a wait is pending; while another thread is
 * in cuMemFree(), or cuMemUnmap(), as well; while another thread stands in a full channel. Each call is made by a
 * thread of its own; what has not returned in time is let go. A line for each call.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "probe.h"

enum { COPY = 4096, LARGE = 1 << 20, MAPPED = 2 << 20 };
#define PATIENCE 0.2 /* seconds */

/* What the calls use, made beforehand; for those that use something up, one for each try. */
static CUstream stream, doomed_stream;
static CUevent event, recorded, doomed_event;
static CUdeviceptr doomed_memory, asynchronous;
static void *pages, *registered, *allocated;
static char *ordinary;
static CUdevice device;

static void prepare(void)
{
	MUST(cuStreamCreate(&doomed_stream, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&doomed_event, CU_EVENT_DISABLE_TIMING));
	doomed_memory = driver_memory(LARGE);
	pages = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
	             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	registered = driver_pinned(LARGE);
	if (cu.cuMemHostAlloc)
		MUST(cuMemHostAlloc(&allocated, LARGE, CU_MEMHOSTALLOC_PORTABLE));
}

/* ---------------------------------------------------------------------------------- the calls */

#define CALL(name, ...)                                     \
	static CUresult name##_(void)                       \
	{                                                   \
		return cu.name ? cu.name(__VA_ARGS__) : -1; \
	}

static int attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE, number;
static unsigned type;
static void *values = &type;
static size_t available, total;
static CUcontext ctx;
static void *made_host;
static CUstream made_stream;
static CUevent made_event;
static CUdeviceptr made_memory;

CALL(cuStreamQuery, stream)
CALL(cuStreamSynchronize, stream)
CALL(cuStreamGetCtx, stream, &ctx)
CALL(cuStreamIsCapturing, stream, &number)
CALL(cuStreamCreate, &made_stream, CU_STREAM_NON_BLOCKING)
CALL(cuStreamDestroy_v2, doomed_stream)
CALL(cuEventQuery, recorded)
CALL(cuEventSynchronize, recorded)
CALL(cuEventRecord, event, stream)
CALL(cuStreamWaitEvent, stream, recorded, 0)
CALL(cuEventCreate, &made_event, CU_EVENT_DISABLE_TIMING)
CALL(cuEventDestroy_v2, doomed_event)
CALL(cuPointerGetAttributes, 1, &attribute, &values, memory)
CALL(cuCtxGetDevice, &device)
CALL(cuCtxGetCurrent, &ctx)
CALL(cuMemGetInfo_v2, &available, &total)
CALL(cuMemAlloc_v2, &made_memory, LARGE)
CALL(cuMemFree_v2, doomed_memory)
CALL(cuMemAllocAsync, &asynchronous, LARGE, stream)
CALL(cuMemFreeAsync, asynchronous, stream)
CALL(cuMemHostRegister_v2, pages, LARGE, CU_MEMHOSTREGISTER_PORTABLE)
CALL(cuMemHostUnregister, registered)
CALL(cuMemHostAlloc, &made_host, LARGE, CU_MEMHOSTALLOC_PORTABLE)
CALL(cuMemFreeHost, allocated)
CALL(cuMemcpyHtoD_v2, memory, host, COPY)
CALL(cuMemcpyDtoH_v2, host, memory, COPY)
CALL(cuMemcpyHtoDAsync_v2, memory, host, COPY, stream)
CALL(cuMemcpyDtoHAsync_v2, host, memory, COPY, stream)
CALL(cuMemcpyDtoDAsync_v2, memory + LARGE / 2, memory, COPY, stream)
CALL(cuMemcpyAsync, memory, (uintptr_t)host, COPY, stream)
CALL(cuMemsetD32Async, memory, 0, COPY / 4, stream)
CALL(cuStreamWriteValue32_v2, stream, (uintptr_t)host, 1, 0)
CALL(cuLaunchHostFunc, stream, gate_stand, NULL)

static CUresult cuMemcpyHtoDAsync_pageable_(void)
{
	return cu.cuMemcpyHtoDAsync_v2(memory, ordinary, LARGE, stream);
}

/* For a word that has come already. */
static CUresult cuStreamWaitValue32_v2_(void)
{
	*(_Atomic uint32_t *)host = 1;
	return cu.cuStreamWaitValue32_v2(stream, (uintptr_t)host, 1, CU_STREAM_WAIT_VALUE_GEQ);
}

static CUresult cuStreamBatchMemOp_v2_(void)
{
	CUstreamBatchMemOpParams write[2] = {0};

	for (int i = 0; i < 2; i++) {
		write[i].word.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		write[i].word.address = (uintptr_t)(host + 64 * i);
		write[i].word.value = 1;
	}
	return cu.cuStreamBatchMemOp_v2(stream, 2, write, 0);
}

static CUresult cuLaunchKernel_(void)
{
	return driver_launch(KERNEL_SPIN, 0, stream);
}

static CUresult cuModuleLoadData_(void)
{
	return driver_kernels() ? -1 : CUDA_SUCCESS;
}

static CUresult cuCtxPushCurrent_v2_cuCtxPopCurrent_v2_(void)
{
	driver_enter();
	return cu.cuCtxPopCurrent_v2(&ctx);
}

/* Memory of the driver's virtual memory management. */
static CUresult map(CUdeviceptr *out)
{
	struct CUmemAllocationProp prop = {.type = 1, .location = {1, device}};
	struct CUmemAccessDesc access = {{1, device}, 3};
	const size_t length = MAPPED;
	CUdeviceptr address;
	uint64_t handle;
	CUresult rc;

	if (!cu.cuMemCreate || !cu.cuMemAddressReserve || !cu.cuMemMap || !cu.cuMemSetAccess)
		return -1;
	rc = cu.cuMemCreate(&handle, length, &prop, 0);
	rc = rc ? rc : cu.cuMemAddressReserve(&address, length, 0, 0, 0);
	rc = rc ? rc : cu.cuMemMap(address, length, 0, handle, 0);
	rc = rc ? rc : cu.cuMemSetAccess(address, length, &access, 1);
	if (!rc)
		*out = address;
	return rc;
}

static CUresult cuMemCreate_cuMemMap_(void)
{
	CUdeviceptr mapped;

	return map(&mapped);
}

/* ---------------------------------------------------------------------------------------- cuFile */

/* As its API has them; 0 in both is success. */
struct cufile_error {
	int error, driver;
};
struct cufile_file {
	int type; /* 1: a descriptor */
	union {
		int fd;
		void *handle;
	};
	const void *operations;
};

static ssize_t (*cufile_read)(void *file, void *base, size_t length, off_t offset, off_t at);
static void *cufile;

/* Opens a file with it; cufile stays NULL, and a line says why, where that cannot be. */
static void open_cufile(void)
{
	static const char path[] = "probe_calls.bin";
	struct cufile_error (*open_driver)(void), (*add)(void **file, struct cufile_file *what);
	struct cufile_file what = {.type = 1};
	struct cufile_error rc;
	void *library = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return;
	*(void **)&open_driver = dlsym(library, "cuFileDriverOpen");
	*(void **)&add = dlsym(library, "cuFileHandleRegister");
	*(void **)&cufile_read = dlsym(library, "cuFileRead");
	what.fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
	unlink(path);
	if (!open_driver || !add || !cufile_read || what.fd < 0 ||
	    pwrite(what.fd, host, LARGE, 0) != LARGE)
		return;
	rc = open_driver();
	if (!rc.error)
		rc = add(&cufile, &what);
	if (rc.error)
		say("cuFile: %d, %d", rc.error, rc.driver);
	/* Once before anything is in its way: it makes buffers of its own at its first use. */
	if (cufile)
		cufile_read(cufile, (void *)(uintptr_t)memory, COPY, 0, 0);
}

static CUresult cuFileRead_(void)
{
	if (!cufile)
		return -1;
	return cufile_read(cufile, (void *)(uintptr_t)memory, COPY, 0, 0) == COPY ? 0 : 1;
}

static const struct call {
	const char *name;
	CUresult (*run)(void);
} calls[] = {
	{"cuStreamQuery", cuStreamQuery_},
	{"cuEventQuery", cuEventQuery_},
	{"cuStreamGetCtx", cuStreamGetCtx_},
	{"cuStreamIsCapturing", cuStreamIsCapturing_},
	{"cuCtxGetCurrent", cuCtxGetCurrent_},
	{"cuCtxGetDevice", cuCtxGetDevice_},
	{"cuCtxPushCurrent, cuCtxPopCurrent", cuCtxPushCurrent_v2_cuCtxPopCurrent_v2_},
	{"cuPointerGetAttributes", cuPointerGetAttributes_},
	{"cuMemGetInfo", cuMemGetInfo_v2_},
	{"cuStreamWriteValue32", cuStreamWriteValue32_v2_},
	{"cuStreamWaitValue32", cuStreamWaitValue32_v2_},
	{"cuStreamBatchMemOp", cuStreamBatchMemOp_v2_},
	{"cuMemcpyAsync", cuMemcpyAsync_},
	{"cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2_},
	{"cuMemcpyHtoDAsync, pageable", cuMemcpyHtoDAsync_pageable_},
	{"cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2_},
	{"cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2_},
	{"cuMemsetD32Async", cuMemsetD32Async_},
	{"cuMemcpyHtoD", cuMemcpyHtoD_v2_},
	{"cuMemcpyDtoH", cuMemcpyDtoH_v2_},
	{"cuLaunchKernel", cuLaunchKernel_},
	{"cuEventRecord", cuEventRecord_},
	{"cuStreamWaitEvent", cuStreamWaitEvent_},
	{"cuEventSynchronize", cuEventSynchronize_},
	{"cuStreamSynchronize", cuStreamSynchronize_},
	{"cuEventCreate", cuEventCreate_},
	{"cuEventDestroy", cuEventDestroy_v2_},
	{"cuStreamCreate", cuStreamCreate_},
	{"cuStreamDestroy", cuStreamDestroy_v2_},
	{"cuModuleLoadData", cuModuleLoadData_},
	{"cuMemAlloc", cuMemAlloc_v2_},
	{"cuMemAllocAsync", cuMemAllocAsync_},
	{"cuMemFreeAsync", cuMemFreeAsync_},
	{"cuMemCreate, cuMemMap", cuMemCreate_cuMemMap_},
	{"cuMemHostRegister", cuMemHostRegister_v2_},
	{"cuMemHostUnregister", cuMemHostUnregister_},
	{"cuMemHostAlloc", cuMemHostAlloc_},
	{"cuMemFreeHost", cuMemFreeHost_},
	{"cuMemFree", cuMemFree_v2_},
	{"cuLaunchHostFunc", cuLaunchHostFunc_},
	{"cuFileRead", cuFileRead_},
};

/* ------------------------------------------------------------------------------ what stands in the way */

static CUstream waiting;
static pthread_t other;
static bool other_runs;
static _Atomic unsigned given;

static void *free_memory(void *argument)
{
	driver_enter();
	MUST(cuMemFree_v2(*(CUdeviceptr *)argument));
	return NULL;
}

static void *unmap_memory(void *argument)
{
	driver_enter();
	MUST(cuMemUnmap(*(CUdeviceptr *)argument, MAPPED));
	return NULL;
}

static void *fill_channel(void *unused)
{
	driver_enter();
	while (!gate_is_open() && atomic_load(&given) < 100000) {
		driver_must(gate_wait(waiting), "cuStreamWaitValue32");
		atomic_fetch_add(&given, 1);
	}
	return unused;
}

static void start_other(void *(*run)(void *), void *argument)
{
	if (pthread_create(&other, NULL, run, argument))
		exit(1);
	other_runs = true;
}

static void obstruct(const char *state)
{
	static CUdeviceptr freed;
	unsigned before;

	prepare();
	if (strcmp(state, "unmap"))
		freed = driver_memory(LARGE);
	else
		driver_must(map(&freed), "cuMemMap");
	gate_close();
	driver_must(gate_wait(waiting), "cuStreamWaitValue32");
	if (!strcmp(state, "free") || !strcmp(state, "unmap")) {
		start_other(*state == 'f' ? free_memory : unmap_memory, &freed);
		sleep_ms(30);
	} else if (!strcmp(state, "full")) {
		atomic_store(&given, 0);
		start_other(fill_channel, NULL);
		do {
			before = atomic_load(&given);
			sleep_ms(30);
		} while (before != atomic_load(&given));
	}
}

static void clear(void)
{
	gate_open();
	if (other_runs)
		pthread_join(other, NULL);
	other_runs = false;
	MUST(cuStreamSynchronize(waiting));
	MUST(cuStreamSynchronize(stream));
}

/* ---------------------------------------------------------------------------------------- a try */

struct attempt {
	const struct call *call;
	_Atomic bool begun, over;
	CUresult rc;
	double seconds;
};

static void *run_attempt(void *argument)
{
	struct attempt *a = argument;
	double start;

	driver_enter();
	atomic_store(&a->begun, true);
	start = driver_now();
	a->rc = a->call->run();
	a->seconds = driver_now() - start;
	atomic_store(&a->over, true);
	return NULL;
}

/* Each call meets what stands in its way anew, so that none suffers from the one before. */
static void try_call(const struct call *call, const char *state)
{
	struct attempt a = {.call = call};
	const char *found = "runs";
	char detail[80] = "";
	pthread_t thread;
	double end;

	obstruct(state);
	if (pthread_create(&thread, NULL, run_attempt, &a))
		exit(1);
	end = driver_now() + PATIENCE;
	while (!atomic_load(&a.over) && driver_now() < end)
		sleep_ms(1);
	if (!atomic_load(&a.over))
		found = atomic_load(&a.begun) ? "held up" : "held up (by cuCtxPushCurrent)";
	clear();
	pthread_join(thread, NULL);
	if (a.rc == -1)
		found = "is not there";
	else if (a.rc)
		snprintf(detail, sizeof(detail), "answers %s", driver_error(a.rc));
	else if (!strcmp(found, "runs"))
		snprintf(detail, sizeof(detail), "%.0f us", a.seconds * 1e6);
	say("| %s | %s | %s | %s |", state, call->name, found, detail);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	probe_start();
	MUST(cuCtxGetDevice(&device));
	stream = driver_stream();
	waiting = driver_stream();
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventCreate(&recorded, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventRecord(recorded, stream));
	ordinary = malloc(LARGE);
	memset(ordinary, 1, LARGE);
	if (cu.cuMemAllocAsync)
		MUST(cuMemAllocAsync(&asynchronous, LARGE, stream));
	MUST(cuStreamSynchronize(stream));
	open_cufile();
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		try_call(&calls[i], argv[1]);
	return 0;
}
