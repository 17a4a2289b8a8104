/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests and benchmarks use of CUDA's driver beyond SL_CUDA_FUNCTIONS, and the ABI's declarations for
 * it. Each program has a table of those functions that it finds.
 */
#ifndef TESTS_CUDA_FUNCTIONS_H
#define TESTS_CUDA_FUNCTIONS_H

#include "device/cuda_api.h"

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgreenCtx_st *CUgreenCtx;

enum { CU_MEMHOSTALLOC_PORTABLE = 1, CU_MEMHOSTALLOC_DEVICEMAP = 2 };
enum { CU_STREAM_BLOCKING = 0 };
#define CU_STREAM_LEGACY     ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

/* What a part of a device is; its size is all that matters here. */
typedef union {
	int type; /* 1: multiprocessors */
	unsigned char pad[256];
} CUdevResource;

#define TEST_CUDA_FUNCTIONS(X)                                                                     \
	X(cuGetErrorString, (CUresult error, const char **text))                                   \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                         \
	X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))             \
	X(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))                      \
	X(cuCtxDestroy_v2, (CUcontext ctx))                                                        \
	X(cuCtxSetCurrent, (CUcontext ctx))                                                        \
	X(cuCtxSynchronize, (void))                                                                \
	X(cuMemAllocAsync, (CUdeviceptr * memory, size_t length, CUstream stream))                 \
	X(cuMemFreeAsync, (CUdeviceptr memory, CUstream stream))                                   \
	X(cuMemAllocManaged, (CUdeviceptr * memory, size_t length, unsigned flags))                \
	X(cuMemHostAlloc, (void **memory, size_t length, unsigned flags))                          \
	X(cuMemFreeHost, (void *memory))                                                           \
	X(cuMemHostGetDevicePointer_v2, (CUdeviceptr * there, void *memory, unsigned flags))       \
	X(cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr pointer))                \
	X(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t length))                             \
	X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t length))                      \
	X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t length))                            \
	X(cuMemcpyHtoDAsync_v2,                                                                    \
	  (CUdeviceptr to, const void *from, size_t length, CUstream stream))                      \
	X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t length, CUstream stream))      \
	X(cuMemcpyDtoDAsync_v2,                                                                    \
	  (CUdeviceptr to, CUdeviceptr from, size_t length, CUstream stream))                      \
	X(cuMemsetD8_v2, (CUdeviceptr to, unsigned char byte, size_t length))                      \
	X(cuMemsetD8Async, (CUdeviceptr to, unsigned char byte, size_t length, CUstream stream))   \
	X(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))           \
	X(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                    \
	X(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                  \
	X(cuGraphDestroy, (CUgraph graph))                                                         \
	X(cuLaunchHostFunc, (CUstream stream, void (*function)(void *), void *argument))           \
	X(cuEventElapsedTime, (float *milliseconds, CUevent from, CUevent to))                     \
	X(cuModuleLoadData, (CUmodule * module, const void *image))                                \
	X(cuModuleLoadDataEx,                                                                      \
	  (CUmodule * module, const void *image, unsigned count, int *options, void **values))     \
	X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))         \
	X(cuModuleUnload, (CUmodule module))                                                       \
	X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
	                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,  \
	                   CUstream stream, void **parameters, void **extra))

/* The fake driver has none of these, and a real one may be without. */
#define PROBE_CUDA_FUNCTIONS(X)                                                                  \
	X(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream))     \
	X(cuCtxGetStreamPriorityRange, (int *least, int *greatest))                              \
	X(cuDeviceGetDevResource, (CUdevice device, CUdevResource * resource, int type))         \
	X(cuDevResourceGenerateDesc, (void **description, CUdevResource *resources, unsigned n)) \
	X(cuGreenCtxCreate,                                                                      \
	  (CUgreenCtx * ctx, void *description, CUdevice device, unsigned flags))                \
	X(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx ctx, unsigned flags, int priority))

#endif
