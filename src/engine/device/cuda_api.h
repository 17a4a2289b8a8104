/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of CUDA's driver API that sluice uses. The functions are looked up by their versioned
 * names at run time, and this header declares their ABI (CUDA Driver API reference, CUDA 12.0,
 * which has all of them). Neither building nor running needs a toolkit.
 */
#ifndef SL_CUDA_API_H
#define SL_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/device.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_MAP_FAILED = 205,
	CUDA_ERROR_OPERATING_SYSTEM = 304,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
	CUDA_ERROR_TOO_MANY_PEERS = 711,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_UNKNOWN = 999,
};
enum {
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
	CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
	CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
};
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
enum {
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
	CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
	CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT = 102,
	CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 103,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM = 110,
};
enum {
	CU_MEMHOSTREGISTER_PORTABLE = 1,
	CU_MEMHOSTREGISTER_DEVICEMAP = 2,
	CU_MEMHOSTREGISTER_READ_ONLY = 8 /* required for memory that is mapped read-only */
};
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_STREAM_LEGACY_NUMBER = 1 }; /* the default stream, as 0 */
enum { CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1, CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2 };
enum { CU_STREAM_WAIT_VALUE_GEQ = 0 };
enum { CU_STREAM_WRITE_VALUE_DEFAULT = 0 }; /* ordered after all earlier work of the stream */

/* An operation of cuStreamBatchMemOp(). */
typedef union {
	int operation;
	struct {
		int operation;
		CUdeviceptr address;
		uint64_t value; /* the first half holds 32-bit values */
		unsigned flags;
		CUdeviceptr alias; /* reserved for the driver */
	} word;
	uint64_t pad[6];
} CUstreamBatchMemOpParams;

/* Memory that is created separately from its addresses (virtual memory management). */
typedef uint64_t CUmemGenericAllocationHandle;
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1, CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1 };
enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 };
enum { CU_MEM_ACCESS_FLAGS_PROT_READ = 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
struct CUmemLocation {
	int type;
	int id; /* the ordinal of a device */
};
struct CUmemAllocationProp {
	int type;
	int handle_types; /* 0: none */
	struct CUmemLocation location;
	void *win32;
	unsigned char compression, gpu_direct_rdma;
	unsigned short usage;
	unsigned char reserved[4];
};
struct CUmemAccessDesc {
	struct CUmemLocation location;
	int flags;
};

/* An allocation of another process (CUDA IPC). */
enum { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };
typedef struct {
	unsigned char bytes[64];
} CUipcMemHandle;

/* Copies that are given to a stream together (CUDA 12.8). */
enum { CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1 };
struct CUmemcpyAttributes {
	int source_order;
	struct CUmemLocation source, target; /* of managed memory alone */
	unsigned flags;
};

/* Rows of a table, with the distances between their starts. */
enum { CU_MEMORYTYPE_UNIFIED = 4 };
struct CUmemcpy2D {
	size_t from_x, from_y;
	int from_type;
	const void *from_host;
	CUdeviceptr from_device;
	void *from_array;
	size_t from_pitch;
	size_t to_x, to_y;
	int to_type;
	void *to_host;
	CUdeviceptr to_device;
	void *to_array;
	size_t to_pitch;
	size_t width, height;
};

#define SL_CUDA_FUNCTIONS(X)                                                                       \
	X(cuInit, (unsigned flags))                                                                \
	X(cuDriverGetVersion, (int *version))                                                      \
	X(cuDeviceGetCount, (int *count))                                                          \
	X(cuDeviceGet, (CUdevice * device, int ordinal))                                           \
	X(cuDeviceGetName, (char *name, int size, CUdevice device))                                \
	X(cuDeviceGetPCIBusId, (char *address, int size, CUdevice device))                         \
	X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                  \
	X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                      \
	X(cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice device))                            \
	X(cuCtxGetCurrent, (CUcontext * ctx))                                                      \
	X(cuCtxPushCurrent_v2, (CUcontext ctx))                                                    \
	X(cuCtxPopCurrent_v2, (CUcontext * ctx))                                                   \
	X(cuCtxGetDevice, (CUdevice * device))                                                     \
	X(cuMemGetInfo_v2, (size_t * available, size_t * total))                                   \
	X(cuMemAlloc_v2, (CUdeviceptr * memory, size_t length))                                    \
	X(cuMemFree_v2, (CUdeviceptr memory))                                                      \
	X(cuMemHostRegister_v2, (void *memory, size_t length, unsigned flags))                     \
	X(cuMemHostUnregister, (void *memory))                                                     \
	X(cuPointerGetAttributes,                                                                  \
	  (unsigned count, int *attributes, void **values, CUdeviceptr pointer))                   \
	X(cuStreamCreate, (CUstream * stream, unsigned flags))                                     \
	X(cuStreamDestroy_v2, (CUstream stream))                                                   \
	X(cuStreamQuery, (CUstream stream))                                                        \
	X(cuStreamSynchronize, (CUstream stream))                                                  \
	X(cuStreamIsCapturing, (CUstream stream, int *status))                                     \
	X(cuThreadExchangeStreamCaptureMode, (int *mode))                                          \
	X(cuStreamGetCtx, (CUstream stream, CUcontext * ctx))                                      \
	X(cuStreamBatchMemOp_v2,                                                                   \
	  (CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations, unsigned flags)) \
	X(cuStreamWaitValue32_v2,                                                                  \
	  (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags))                  \
	X(cuStreamWriteValue32_v2,                                                                 \
	  (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags))                  \
	X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                     \
	X(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t length, CUstream stream))       \
	X(cuMemcpy2DAsync_v2, (const struct CUmemcpy2D *copy, CUstream stream))                    \
	X(cuEventCreate, (CUevent * event, unsigned flags))                                        \
	X(cuEventDestroy_v2, (CUevent event))                                                      \
	X(cuEventRecord, (CUevent event, CUstream stream))                                         \
	X(cuEventQuery, (CUevent event))                                                           \
	X(cuEventSynchronize, (CUevent event))                                                     \
	X(cuGetErrorName, (CUresult error, const char **name))                                     \
	X(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer))                       \
	X(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))                                 \
	X(cuMemGetAddressRange_v2, (CUdeviceptr * start, size_t * length, CUdeviceptr memory))     \
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
	  (CUdeviceptr memory, size_t length, const struct CUmemAccessDesc *desc, size_t count))   \
	X(cuMemExportToShareableHandle, (void *shareable, CUmemGenericAllocationHandle handle,     \
	                                 int type, unsigned long long flags))                      \
	X(cuMemImportFromShareableHandle,                                                          \
	  (CUmemGenericAllocationHandle * handle, void *shareable, int type))                      \
	X(cuMemGetAllocationPropertiesFromHandle,                                                  \
	  (struct CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle))                \
	X(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr memory))                        \
	X(cuIpcOpenMemHandle_v2, (CUdeviceptr * memory, CUipcMemHandle handle, unsigned flags))    \
	X(cuIpcCloseMemHandle, (CUdeviceptr memory))

/* Functions that a driver may be without; NULL then. */
#define SL_CUDA_OPTIONAL(X)                                                            \
	/* Of CUDA 12.8, which all later drivers have beside that of CUDA 13. */       \
	X(cuMemcpyBatchAsync, (CUdeviceptr * to, CUdeviceptr * from, size_t * lengths, \
	                       size_t count, struct CUmemcpyAttributes * attributes,   \
	                       size_t * starts, size_t kinds, size_t * failed, CUstream stream))

struct sl_cuda_api {
#define FIELD(name, arguments) CUresult(*name) arguments;
	SL_CUDA_FUNCTIONS(FIELD)
	SL_CUDA_OPTIONAL(FIELD)
#undef FIELD
};

/*
 * Returns the driver's functions; the first call loads and initialises the driver. Returns NULL if
 * there is no driver or it is older than CUDA 12.0. Any thread.
 */
const struct sl_cuda_api *sl_cuda_driver(void);
/*
 * Returns the driver's functions if the program itself has loaded the driver, else NULL. Never
 * loads a library, so that classifying a pointer stays cheap.
 */
const struct sl_cuda_api *sl_cuda_api_in_use(void);
/* Returns the reason why there is no driver, as text for users. */
const char *sl_cuda_api_missing(void);
/* Returns true if the driver's library exists, usable or not. */
bool sl_cuda_api_found(void);

#endif
