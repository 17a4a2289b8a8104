/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of cuFile, NVIDIA's library for I/O of GPU memory, that sluice finds at run time,
 * and the parts of its ABI that they need (cuFile API reference of CUDA 12.2).
 */
#ifndef SL_CUFILE_API_H
#define SL_CUFILE_API_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <sluice/sluice.h>

typedef void *CUfileHandle_t;

typedef struct {
	int err;    /* CUfileOpError */
	int cu_err; /* CUresult */
} CUfileError_t;

/* Values of enum CUfileOpError. A transfer returns -1 and errno, or such a value negated. */
enum {
	CU_FILE_SUCCESS = 0,
	CU_FILE_DRIVER_NOT_INITIALIZED = 5001,
	CU_FILE_PLATFORM_NOT_SUPPORTED = 5007,
	CU_FILE_IO_NOT_SUPPORTED = 5008,
	CU_FILE_DEVICE_NOT_SUPPORTED = 5009,
	CU_FILE_CUDA_DRIVER_ERROR = 5011,
	CU_FILE_CUDA_POINTER_INVALID = 5012,
	CU_FILE_CUDA_MEMORY_TYPE_INVALID = 5013,
	CU_FILE_CUDA_POINTER_RANGE_ERROR = 5014,
	CU_FILE_CUDA_CONTEXT_MISMATCH = 5015,
	CU_FILE_INVALID_FILE_TYPE = 5018,
	CU_FILE_INVALID_FILE_OPEN_FLAG = 5019,
	CU_FILE_DIO_NOT_SET = 5020,
	CU_FILE_INVALID_VALUE = 5022,
	CU_FILE_MEMORY_ALREADY_REGISTERED = 5023,
	CU_FILE_MEMORY_NOT_REGISTERED = 5024,
	CU_FILE_PERMISSION_DENIED = 5025,
	CU_FILE_DRIVER_ALREADY_OPEN = 5026,
	CU_FILE_HANDLE_NOT_REGISTERED = 5027,
	CU_FILE_INTERNAL_ERROR = 5030,
	CU_FILE_IO_DISABLED = 5034,
	CU_FILE_ASYNC_NOT_SUPPORTED = 5038,
};

enum { CU_FILE_HANDLE_TYPE_OPAQUE_FD = 1 };
typedef struct {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops; /* of file systems in user space; NULL */
} CUfileDescr_t;

typedef struct {
	struct {
		unsigned major_version; /* of the module nvidia-fs; 0 with the next: none */
		unsigned minor_version;
		size_t poll_thresh_size;
		size_t max_direct_io_size;
		unsigned dstatusflags;
		unsigned dcontrolflags;
	} nvfs;
	unsigned fflags;
	unsigned max_device_cache_size;
	unsigned per_buffer_cache_size;
	unsigned max_device_pinned_mem_size;
	unsigned max_batch_io_size;
	unsigned max_batch_io_timeout_msecs;
} CUfileDrvProps_t;

#define SL_CUFILE_FUNCTIONS(X)                                                                   \
	X(CUfileError_t, cuFileDriverOpen, (void))                                               \
	X(CUfileError_t, cuFileDriverGetProperties, (CUfileDrvProps_t * properties))             \
	X(CUfileError_t, cuFileHandleRegister, (CUfileHandle_t * handle, CUfileDescr_t * what))  \
	X(void, cuFileHandleDeregister, (CUfileHandle_t handle))                                 \
	X(CUfileError_t, cuFileBufRegister, (const void *memory, size_t length, int flags))      \
	X(CUfileError_t, cuFileBufDeregister, (const void *memory))                              \
	X(ssize_t, cuFileRead,                                                                   \
	  (CUfileHandle_t handle, void *base, size_t length, off_t offset, off_t base_offset))   \
	X(ssize_t, cuFileWrite,                                                                  \
	  (CUfileHandle_t handle, const void *base, size_t length, off_t offset,                 \
	   off_t base_offset))                                                                   \
	X(CUfileError_t, cuFileReadAsync,                                                        \
	  (CUfileHandle_t handle, void *base, size_t *length, off_t *offset, off_t *base_offset, \
	   ssize_t *moved, sluice_stream stream))                                                \
	X(CUfileError_t, cuFileWriteAsync,                                                       \
	  (CUfileHandle_t handle, void *base, size_t *length, off_t *offset, off_t *base_offset, \
	   ssize_t *moved, sluice_stream stream))

struct sl_cufile_api {
#define FIELD(type, name, arguments) type(*name) arguments;
	SL_CUFILE_FUNCTIONS(FIELD)
#undef FIELD
	/* Once the driver is open: cuFile moves bytes by GPUDirect, not by read() and a copy. */
	bool gpudirect;
};

/* Loads the library at the first call. NULL: there is none, or before CUDA 12.2. Any thread. */
const struct sl_cufile_api *sl_cufile_load(void);
/* Also opens its driver, which may take seconds and calls CUDA's driver. */
const struct sl_cufile_api *sl_cufile_open(void);
/* Return a sentence: why one of these returned NULL; the state of cuFile after the last call. */
const char *sl_cufile_missing(void);
const char *sl_cufile_status(void);
/* Return whether the kernel has GPUDirect's module, and the process has loaded CUDA's driver. */
bool sl_cufile_has_module(void);
bool sl_cufile_has_cuda(void);
/* Returns the text of a CUfileOpError. */
const char *sl_cufile_error(int error);

#endif
