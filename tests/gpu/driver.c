/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct driver cu;

enum { CU_DEVICE_ATTRIBUTE_MULTIPROCESSORS = 16 };

static CUcontext context;
static CUfunction kernels[KERNELS];

static const char ptx[] = ".version 7.0\n"
			  ".target sm_80\n"
			  ".address_size 64\n"
			  ".visible .entry sluice_spin(.param .u64 time)\n"
			  "{\n"
			  "	.reg .u64 %start, %now, %time;\n"
			  "	.reg .pred %more;\n"
			  "	ld.param.u64 %time, [time];\n"
			  "	mov.u64 %start, %globaltimer;\n"
			  "again:\n"
			  "	mov.u64 %now, %globaltimer;\n"
			  "	sub.u64 %now, %now, %start;\n"
			  "	setp.lt.u64 %more, %now, %time;\n"
			  "	@%more bra again;\n"
			  "	ret;\n"
			  "}\n"
			  ".visible .entry sluice_stamp(.param .u64 at)\n"
			  "{\n"
			  "	.reg .u64 %now, %at;\n"
			  "	ld.param.u64 %at, [at];\n"
			  "	mov.u64 %now, %globaltimer;\n"
			  "	st.volatile.u64 [%at], %now;\n"
			  "	membar.sys;\n"
			  "	ret;\n"
			  "}\n";

static const char *const kernel_names[] = {"sluice_spin", "sluice_stamp"};

const char *driver_open(int ordinal)
{
	static char text[160];
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CUdevice device;
	CUresult rc;

	if (!library)
		return "libcuda.so.1 cannot be loaded";
#define FIND(name, arguments) *(void **)&cu.name = dlsym(library, #name);
	SL_CUDA_FUNCTIONS(FIND)
	SL_CUDA_OPTIONAL(FIND)
	TEST_CUDA_FUNCTIONS(FIND)
	PROBE_CUDA_FUNCTIONS(FIND)
#undef FIND
	if (!cu.cuInit || !cu.cuStreamBatchMemOp_v2 || !cu.cuDevicePrimaryCtxRetain)
		return "libcuda.so.1 is older than CUDA 12.0";
	rc = cu.cuInit(0);
	if (!rc)
		rc = cu.cuDeviceGet(&device, ordinal);
	if (!rc)
		rc = cu.cuDevicePrimaryCtxRetain(&context, device);
	if (!rc)
		rc = cu.cuCtxPushCurrent_v2(context);
	if (!rc)
		return NULL;
	snprintf(text, sizeof(text), "no device %d: %s", ordinal, driver_error(rc));
	return text;
}

void driver_enter(void)
{
	MUST(cuCtxPushCurrent_v2(context));
}

const char *driver_error(CUresult rc)
{
	static _Thread_local char text[80];
	const char *name = NULL;

	if (!cu.cuGetErrorName || cu.cuGetErrorName(rc, &name) || !name)
		name = "of no name";
	snprintf(text, sizeof(text), "%d %s", rc, name);
	return text;
}

void driver_must(CUresult rc, const char *call)
{
	if (!rc)
		return;
	printf("FAILED %s: %s\n", call, driver_error(rc));
	fflush(stdout);
	_exit(1);
}

void *driver_pinned(size_t length)
{
	void *memory =
		mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		printf("FAILED no %zu bytes of memory\n", length);
		exit(1);
	}
	madvise(memory, length, MADV_HUGEPAGE);
	memset(memory, 0, length);
	MUST(cuMemHostRegister_v2(memory, length,
	                          CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	return memory;
}

CUdeviceptr driver_memory(size_t length)
{
	CUdeviceptr memory;

	MUST(cuMemAlloc_v2(&memory, length));
	return memory;
}

CUstream driver_stream(void)
{
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

const char *driver_kernels(void)
{
	static char text[160];
	CUmodule module;
	CUresult rc;

	if (!cu.cuModuleLoadData || !cu.cuModuleGetFunction || !cu.cuLaunchKernel)
		return "the driver has no kernels";
	rc = cu.cuModuleLoadData(&module, ptx);
	for (int i = 0; i < KERNELS && !rc; i++)
		rc = cu.cuModuleGetFunction(&kernels[i], module, kernel_names[i]);
	if (!rc)
		return NULL;
	snprintf(text, sizeof(text), "the kernels cannot be loaded: %s", driver_error(rc));
	memset(kernels, 0, sizeof(kernels));
	return text;
}

static CUresult launch(enum driver_kernel kernel, uint64_t argument, unsigned blocks,
                       unsigned threads, CUstream stream)
{
	void *parameters[] = {&argument};

	if (!kernels[kernel])
		return CUDA_ERROR_NOT_SUPPORTED;
	return cu.cuLaunchKernel(kernels[kernel], blocks, 1, 1, threads, 1, 1, 0, stream,
	                         parameters, NULL);
}

CUresult driver_launch(enum driver_kernel kernel, uint64_t argument, CUstream stream)
{
	return launch(kernel, argument, 1, 1, stream);
}

CUresult driver_launch_wide(enum driver_kernel kernel, uint64_t argument, CUstream stream)
{
	int processors = 0;
	CUdevice device;
	CUresult rc = cu.cuCtxGetDevice(&device);

	if (!rc)
		rc = cu.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSORS,
		                             device);
	/* A multiprocessor has room for 2,048 threads. */
	return rc ? rc : launch(kernel, argument, 2 * (unsigned)processors, 1024, stream);
}

double driver_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
