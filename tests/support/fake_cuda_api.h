/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests use of CUDA's driver beyond SL_CUDA_FUNCTIONS, with the ABI's declarations, and what only
 * the fake driver has.
 */
#ifndef TESTS_FAKE_CUDA_API_H
#define TESTS_FAKE_CUDA_API_H

#include "device/cuda_api.h"

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef uint64_t CUmemGenericAllocationHandle;

enum {
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_IMAGE = 200,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

struct CUmemLocation {
	int type; /* 1: device */
	int id;
};
struct CUmemAllocationProp {
	int type;         /* 1: pinned */
	int handle_types; /* 0: none; 1: file descriptor */
	struct CUmemLocation location;
	void *win32;
	unsigned char flags[8];
};
struct CUmemAccessDesc {
	struct CUmemLocation location;
	int flags; /* 1: read, 3: read and write */
};

#define FAKE_CUDA_FUNCTIONS(X)                                                                     \
	X(cuGetErrorString, (CUresult error, const char **text))                                   \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                         \
	X(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))                      \
	X(cuCtxDestroy_v2, (CUcontext ctx))                                                        \
	X(cuCtxSetCurrent, (CUcontext ctx))                                                        \
	X(cuCtxSynchronize, (void))                                                                \
	X(cuMemAllocAsync, (CUdeviceptr * memory, size_t length, sluice_stream stream))            \
	X(cuMemFreeAsync, (CUdeviceptr memory, sluice_stream stream))                              \
	X(cuMemAllocManaged, (CUdeviceptr * memory, size_t length, unsigned flags))                \
	X(cuMemHostAlloc, (void **memory, size_t length, unsigned flags))                          \
	X(cuMemFreeHost, (void *memory))                                                           \
	X(cuMemHostGetDevicePointer_v2, (CUdeviceptr * there, void *memory, unsigned flags))       \
	X(cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr pointer))                \
	X(cuMemGetAddressRange_v2, (CUdeviceptr * start, size_t * length, CUdeviceptr memory))     \
	X(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t length))                             \
	X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t length))                      \
	X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t length))                            \
	X(cuMemcpyHtoDAsync_v2,                                                                    \
	  (CUdeviceptr to, const void *from, size_t length, sluice_stream stream))                 \
	X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t length, sluice_stream stream)) \
	X(cuMemcpyDtoDAsync_v2,                                                                    \
	  (CUdeviceptr to, CUdeviceptr from, size_t length, sluice_stream stream))                 \
	X(cuMemsetD8_v2, (CUdeviceptr to, unsigned char byte, size_t length))                      \
	X(cuMemsetD8Async,                                                                         \
	  (CUdeviceptr to, unsigned char byte, size_t length, sluice_stream stream))               \
	X(cuStreamCreateWithPriority, (sluice_stream * stream, unsigned flags, int priority))      \
	X(cuStreamBeginCapture_v2, (sluice_stream stream, int mode))                               \
	X(cuStreamEndCapture, (sluice_stream stream, CUgraph * graph))                             \
	X(cuGraphDestroy, (CUgraph graph))                                                         \
	X(cuLaunchHostFunc, (sluice_stream stream, void (*function)(void *), void *argument))      \
	X(cuEventElapsedTime, (float *milliseconds, sluice_event from, sluice_event to))           \
	X(cuModuleLoadData, (CUmodule * module, const void *image))                                \
	X(cuModuleLoadDataEx,                                                                      \
	  (CUmodule * module, const void *image, unsigned count, int *options, void **values))     \
	X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))         \
	X(cuModuleUnload, (CUmodule module))                                                       \
	X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
	                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,  \
	                   sluice_stream stream, void **parameters, void **extra))                 \
	X(cuMemGetAllocationGranularity,                                                           \
	  (size_t * bytes, const struct CUmemAllocationProp *prop, int option))                    \
	X(cuMemAddressReserve, (CUdeviceptr * memory, size_t length, size_t alignment,             \
	                        CUdeviceptr wish, unsigned long long flags))                       \
	X(cuMemAddressFree, (CUdeviceptr memory, size_t length))                                   \
	X(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t length,                      \
	                const struct CUmemAllocationProp *prop, unsigned long long flags))         \
	X(cuMemRelease, (CUmemGenericAllocationHandle handle))                                     \
	X(cuMemMap, (CUdeviceptr memory, size_t length, size_t offset,                             \
	             CUmemGenericAllocationHandle handle, unsigned long long flags))               \
	X(cuMemUnmap, (CUdeviceptr memory, size_t length))                                         \
	X(cuMemSetAccess,                                                                          \
	  (CUdeviceptr memory, size_t length, const struct CUmemAccessDesc *desc, size_t count))

/*
 * Of the fake only. The nth call from now on of that function fails with that error, 1 for the next;
 * calls of that function so far by threads whose name begins with prefix, or by all if it is NULL; the
 * context that was current in its last call; the device is gone, or back.
 */
#define FAKE_CUDA_CONTROLS(X)                                                       \
	X(cuFakeFail, (const char *function, uint64_t n, CUresult error))           \
	X(cuFakeCalls, (const char *function, const char *prefix, uint64_t *calls)) \
	X(cuFakeContext, (const char *function, CUcontext *ctx))                    \
	X(cuFakeLose, (CUdevice device, int lost))

#define FAKE_CUDA_DECLARE(name, arguments) \
	__attribute__((visibility("default"))) CUresult name arguments;
SL_CUDA_FUNCTIONS(FAKE_CUDA_DECLARE)
FAKE_CUDA_FUNCTIONS(FAKE_CUDA_DECLARE)
FAKE_CUDA_CONTROLS(FAKE_CUDA_DECLARE)

#endif
