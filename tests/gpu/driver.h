/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of CUDA for programs that look at what it does, beside and below sluice: what sluice uses
 * of it (device/cuda_api.h), and what only they do. Found at run time as there.
 */
#ifndef TESTS_GPU_DRIVER_H
#define TESTS_GPU_DRIVER_H

#include "device/cuda_api.h"

typedef struct CUfunc_st *CUfunction;
typedef struct CUmod_st *CUmodule;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef void (*CUhostFn)(void *argument);

enum { CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT = 102 };
enum { CU_MEMHOSTALLOC_PORTABLE = 1, CU_MEMHOSTALLOC_DEVICEMAP = 2 };
enum { CU_STREAM_BLOCKING = 0 };
#define CU_STREAM_LEGACY     ((sluice_stream)1)
#define CU_STREAM_PER_THREAD ((sluice_stream)2)

/* Where memory of cuMemCreate() lies and who may touch it. */
typedef struct {
	int type; /* 1: pinned */
	int handle_types;
	struct {
		int type; /* 1: a device */
		int id;
	} location;
	void *security;
	struct {
		unsigned char compression, direct, usage, reserved[5];
	} flags;
} CUmemAllocationProp;
typedef struct {
	struct {
		int type, id;
	} location;
	int flags; /* 3: read and write */
} CUmemAccessDesc;

/* What a part of a device is; its size is all that matters here. */
typedef union {
	int type; /* 1: multiprocessors */
	unsigned char pad[256];
} CUdevResource;

/* A driver may be without any of these. */
#define DRIVER_FUNCTIONS(X)                                                                        \
	X(cuMemHostAlloc, (void **memory, size_t length, unsigned flags))                          \
	X(cuMemFreeHost, (void *memory))                                                           \
	X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t length))                      \
	X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t length))                            \
	X(cuMemcpyHtoDAsync_v2,                                                                    \
	  (CUdeviceptr to, const void *from, size_t length, sluice_stream stream))                 \
	X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t length, sluice_stream stream)) \
	X(cuMemcpyDtoDAsync_v2,                                                                    \
	  (CUdeviceptr to, CUdeviceptr from, size_t length, sluice_stream stream))                 \
	X(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, sluice_stream stream))  \
	X(cuLaunchHostFunc, (sluice_stream stream, CUhostFn function, void *argument))             \
	X(cuModuleLoadData, (CUmodule * module, const void *image))                                \
	X(cuModuleUnload, (CUmodule module))                                                       \
	X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))         \
	X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
	                   unsigned x, unsigned y, unsigned z, unsigned shared,                    \
	                   sluice_stream stream, void **parameters, void **extra))                 \
	X(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))                      \
	X(cuCtxDestroy_v2, (CUcontext ctx))                                                        \
	X(cuCtxSetCurrent, (CUcontext ctx))                                                        \
	X(cuCtxGetStreamPriorityRange, (int *least, int *greatest))                                \
	X(cuStreamCreateWithPriority, (sluice_stream * stream, unsigned flags, int priority))      \
	X(cuMemAllocAsync, (CUdeviceptr * memory, size_t length, sluice_stream stream))            \
	X(cuMemFreeAsync, (CUdeviceptr memory, sluice_stream stream))                              \
	X(cuMemCreate,                                                                             \
	  (uint64_t * handle, size_t length, const CUmemAllocationProp *prop, uint64_t flags))     \
	X(cuMemRelease, (uint64_t handle))                                                         \
	X(cuMemAddressReserve, (CUdeviceptr * address, size_t length, size_t alignment,            \
	                        CUdeviceptr at, uint64_t flags))                                   \
	X(cuMemAddressFree, (CUdeviceptr address, size_t length))                                  \
	X(cuMemMap,                                                                                \
	  (CUdeviceptr address, size_t length, size_t offset, uint64_t handle, uint64_t flags))    \
	X(cuMemUnmap, (CUdeviceptr address, size_t length))                                        \
	X(cuMemSetAccess,                                                                          \
	  (CUdeviceptr address, size_t length, const CUmemAccessDesc *access, size_t count))       \
	X(cuDeviceGetDevResource, (CUdevice device, CUdevResource * resource, int type))           \
	X(cuDevResourceGenerateDesc, (void **description, CUdevResource *resources, unsigned n))   \
	X(cuGreenCtxCreate,                                                                        \
	  (CUgreenCtx * ctx, void *description, CUdevice device, unsigned flags))                  \
	X(cuGreenCtxStreamCreate,                                                                  \
	  (sluice_stream * stream, CUgreenCtx ctx, unsigned flags, int priority))

/* All of them; NULL: the driver has it not. */
struct driver {
#define FIELD(name, arguments) CUresult(*name) arguments;
	SL_CUDA_FUNCTIONS(FIELD)
	DRIVER_FUNCTIONS(FIELD)
#undef FIELD
};
extern struct driver cu;

/*
 * Loads the driver and makes the primary context of a device current on the calling thread. NULL, or
 * why there is none. Each further thread calls driver_enter().
 */
const char *driver_open(int ordinal);
void driver_enter(void);

/* As in "719 CUDA_ERROR_LAUNCH_FAILED"; the text lives as long as the thread asks for no other. */
const char *driver_error(CUresult rc);
/* Ends the program, with a line that names the call, if it failed. */
void driver_must(CUresult rc, const char *call);
#define MUST(call) driver_must(cu.call, #call)

/* Host memory that the device can use at the same address, zeroed. */
void *driver_pinned(size_t length);
CUdeviceptr driver_memory(size_t length);
sluice_stream driver_stream(void);

enum driver_kernel { KERNEL_SPIN, KERNEL_STAMP, KERNELS };
/* Loads them; a text that says why they cannot be, or NULL. */
const char *driver_kernels(void);
/*
 * KERNEL_SPIN runs for `argument` nanoseconds; KERNEL_STAMP writes the device's clock, which is not 0, to
 * the 64-bit word whose address is `argument`.
 */
CUresult driver_launch(enum driver_kernel kernel, uint64_t argument, sluice_stream stream);

/* Seconds of CLOCK_MONOTONIC. */
double driver_now(void);

#endif
