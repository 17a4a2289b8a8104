/* SPDX-License-Identifier: Apache-2.0 */
/* What tests use of CUDA's driver beyond what sluice does. */
#ifndef TESTS_GPU_CUDA_H
#define TESTS_GPU_CUDA_H

#include "device/cuda_api.h"

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;

struct CUmemLocation {
	int type; /* 1: a device */
	int id;
};
struct CUmemAllocationProp {
	int type; /* 1: pinned, on its device */
	int handle_types;
	struct CUmemLocation location;
	void *unused;
	unsigned char flags[8];
};
struct CUmemAccessDesc {
	struct CUmemLocation location;
	int flags; /* 3: read and write */
};

#define GPU_CUDA_FUNCTIONS(X)                                                                      \
	X(cuInit, (unsigned flags))                                                                \
	X(cuGetErrorName, (CUresult error, const char **name))                                     \
	X(cuDeviceGet, (CUdevice * device, int ordinal))                                           \
	X(cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice device))                            \
	X(cuCtxSetCurrent, (CUcontext ctx))                                                        \
	X(cuCtxPushCurrent_v2, (CUcontext ctx))                                                    \
	X(cuCtxPopCurrent_v2, (CUcontext * ctx))                                                   \
	X(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))                      \
	X(cuCtxDestroy_v2, (CUcontext ctx))                                                        \
	X(cuCtxSynchronize, (void))                                                                \
	X(cuModuleLoadData, (CUmodule * module, const void *image))                                \
	X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))         \
	X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
	                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,  \
	                   sluice_stream stream, void **parameters, void **extra))                 \
	X(cuLaunchHostFunc, (sluice_stream stream, void (*function)(void *), void *argument))      \
	X(cuStreamWaitValue32_v2,                                                                  \
	  (sluice_stream stream, CUdeviceptr address, uint32_t value, unsigned flags))             \
	X(cuStreamCreate, (sluice_stream * stream, unsigned flags))                                \
	X(cuStreamDestroy_v2, (sluice_stream stream))                                              \
	X(cuStreamBeginCapture_v2, (sluice_stream stream, int mode))                               \
	X(cuStreamEndCapture, (sluice_stream stream, CUgraph * graph))                             \
	X(cuGraphDestroy, (CUgraph graph))                                                         \
	X(cuPointerGetAttributes,                                                                  \
	  (unsigned count, int *attributes, void **values, CUdeviceptr pointer))                   \
	X(cuMemAlloc_v2, (CUdeviceptr * memory, size_t length))                                    \
	X(cuMemFree_v2, (CUdeviceptr memory))                                                      \
	X(cuMemAllocAsync, (CUdeviceptr * memory, size_t length, sluice_stream stream))            \
	X(cuMemFreeAsync, (CUdeviceptr memory, sluice_stream stream))                              \
	X(cuMemAllocManaged, (CUdeviceptr * memory, size_t length, unsigned flags))                \
	X(cuMemHostAlloc, (void **memory, size_t length, unsigned flags))                          \
	X(cuMemFreeHost, (void *memory))                                                           \
	X(cuMemHostRegister_v2, (void *memory, size_t length, unsigned flags))                     \
	X(cuMemHostUnregister, (void *memory))                                                     \
	X(cuMemGetAllocationGranularity,                                                           \
	  (size_t * bytes, const struct CUmemAllocationProp *prop, int option))                    \
	X(cuMemAddressReserve, (CUdeviceptr * memory, size_t length, size_t alignment,             \
	                        CUdeviceptr wish, unsigned long long flags))                       \
	X(cuMemAddressFree, (CUdeviceptr memory, size_t length))                                   \
	X(cuMemCreate, (uint64_t * handle, size_t length, const struct CUmemAllocationProp *prop,  \
	                unsigned long long flags))                                                 \
	X(cuMemRelease, (uint64_t handle))                                                         \
	X(cuMemMap, (CUdeviceptr memory, size_t length, size_t offset, uint64_t handle,            \
	             unsigned long long flags))                                                    \
	X(cuMemUnmap, (CUdeviceptr memory, size_t length))                                         \
	X(cuMemSetAccess,                                                                          \
	  (CUdeviceptr memory, size_t length, const struct CUmemAccessDesc *desc, size_t count))

/* NULL: this driver has no such function. */
struct gpu_driver {
#define GPU_CUDA_FIELD(name, arguments) CUresult(*name) arguments;
	GPU_CUDA_FUNCTIONS(GPU_CUDA_FIELD)
#undef GPU_CUDA_FIELD
};
/* Of the device "cuda", once gpu_open() has opened it. */
extern struct gpu_driver gpu_driver;
/* The name of an error, for people. */
const char *gpu_error_name(CUresult error);

/* PTX, with a zero behind it. */
extern const char gpu_kernels[];

#endif
