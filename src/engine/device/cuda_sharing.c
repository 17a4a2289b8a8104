/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA memory shared between processes
 *
 * Implements struct sl_device_sharing in two ways: memory made and mapped by the driver's virtual
 * memory management, passed as descriptors; and memory that the program allocated, lent through
 * CUDA IPC.
 *
 * Threads: no thread of its own; any thread may call.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda.h"

static struct CUmemLocation location(const struct cuda *cuda)
{
	return (struct CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, cuda->ordinal};
}

static struct CUmemAllocationProp memory_properties(const struct cuda *cuda)
{
	return (struct CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = location(cuda),
	};
}

static bool cuda_is_whole(const struct cuda *cuda, size_t length)
{
	return length && length % cuda->sharing.granularity == 0;
}

/* ----------------------------------------------------------------------------------- mapping */

/*
 * Maps memory at these addresses, or at new ones (0), for these devices; cuMemMap() fails if it is
 * too short.
 */
static CUresult cuda_map_handle(const struct sl_cuda_api *api, CUmemGenericAllocationHandle handle,
                                size_t length, const struct CUmemAccessDesc *access, size_t count,
                                CUdeviceptr at, void **out)
{
	CUdeviceptr memory = at;
	CUresult rc = at ? CUDA_SUCCESS : api->cuMemAddressReserve(&memory, length, 0, 0, 0);

	if (rc)
		return rc;
	rc = api->cuMemMap(memory, length, 0, handle, 0);
	if (rc)
		goto reserved;
	rc = api->cuMemSetAccess(memory, length, access, count);
	if (rc)
		goto mapped;
	*out = (void *)(uintptr_t)memory;
	return CUDA_SUCCESS;
mapped:
	api->cuMemUnmap(memory, length);
reserved:
	if (!at)
		api->cuMemAddressFree(memory, length);
	return rc;
}

static int cuda_vacate(struct sl_device *device, void *memory, size_t length)
{
	IN_CONTEXT(device, NULL, sl_cuda_driver()->cuMemUnmap((uintptr_t)memory, length));
}

static int cuda_abandon(struct sl_device *device, void *at, size_t length)
{
	IN_CONTEXT(device, NULL, sl_cuda_driver()->cuMemAddressFree((uintptr_t)at, length));
}

static int cuda_unmap(struct sl_device *device, void *memory, size_t length)
{
	int rc = cuda_vacate(device, memory, length);

	return rc ? rc : cuda_abandon(device, memory, length);
}

/* -------------------------------------------------------------------------------------- make */

/* Creates memory that other devices on the bus can access, if possible, else plain memory. */
static CUresult create_memory(const struct sl_cuda_api *api, const struct cuda *cuda, size_t length,
                              CUmemGenericAllocationHandle *out)
{
	struct CUmemAllocationProp prop = memory_properties(cuda);
	CUresult rc = CUDA_ERROR_NOT_SUPPORTED;

	prop.gpu_direct_rdma = cuda->direct;
	if (cuda->direct)
		rc = api->cuMemCreate(out, length, &prop, 0);
	if (!rc || rc == CUDA_ERROR_OUT_OF_MEMORY)
		return rc;
	prop.gpu_direct_rdma = 0;
	return api->cuMemCreate(out, length, &prop, 0);
}

static int cuda_make_entered(struct cuda *cuda, size_t length, void **out, int *out_fd)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
	struct CUmemAccessDesc access = {location(cuda), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	int fd = -1;
	CUresult rc = create_memory(api, cuda, length, &handle);

	if (rc)
		return sl_cuda_error(rc);
	rc = api->cuMemExportToShareableHandle(&fd, handle,
	                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (!rc) {
		rc = cuda_map_handle(api, handle, length, &access, 1, 0, out);
		if (rc)
			close(fd);
	}
	/* The mapping and the descriptor keep the memory alive. */
	api->cuMemRelease(handle);
	if (rc)
		return sl_cuda_error(rc);
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	*out_fd = fd;
	return 0;
}

static int cuda_make(struct sl_device *device, size_t length, void **out, int *fd)
{
	struct cuda *cuda = sl_cuda_of(device);

	if (!cuda_is_whole(cuda, length))
		return -EINVAL;
	if (length > cuda->memory_bytes)
		return -ENOMEM;
	ENTERED(device, NULL, cuda_make_entered(cuda, length, out, fd));
}

/* --------------------------------------------------------------------------------------- map */

/* The driver reports an unusable descriptor in several ways; all of them become -EBADMSG. */
static int cuda_import_error(CUresult rc)
{
	switch (rc) {
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_OPERATING_SYSTEM:
	case CUDA_ERROR_NOT_SUPPORTED:
	case CUDA_ERROR_UNKNOWN:
		return -EBADMSG;
	default:
		return sl_cuda_error(rc);
	}
}

/* Checks that the handle is memory of the device: the sender is not trusted. */
static CUresult cuda_check_handle(const struct sl_cuda_api *api, const struct cuda *cuda,
                                  CUmemGenericAllocationHandle handle)
{
	struct CUmemAllocationProp prop = {0};
	CUresult rc = api->cuMemGetAllocationPropertiesFromHandle(&prop, handle);

	if (!rc && (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	            prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	            prop.location.id != cuda->ordinal))
		rc = CUDA_ERROR_INVALID_VALUE;
	return rc;
}

static int cuda_map_entered(struct cuda *cuda, int fd, size_t length, const struct cuda *by,
                            CUdeviceptr at, void **out)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
	const struct CUmemAccessDesc access[] = {
		{location(cuda), CU_MEM_ACCESS_FLAGS_PROT_READ},
		{location(by), CU_MEM_ACCESS_FLAGS_PROT_READ},
	};
	CUmemGenericAllocationHandle handle;
	CUresult rc = api->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
	                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (rc)
		return cuda_import_error(rc);
	rc = cuda_check_handle(api, cuda, handle);
	if (!rc)
		rc = cuda_map_handle(api, handle, length, access, by == cuda ? 1 : 2, at, out);
	api->cuMemRelease(handle);
	return cuda_import_error(rc);
}

static int cuda_map(struct sl_device *device, int fd, size_t length, struct sl_device *by, void *at,
                    void **out)
{
	struct cuda *cuda = sl_cuda_of(device);
	int can = by == device;

	if (by->ops != device->ops)
		return -ENOTSUP;
	if (!can &&
	    sl_cuda_driver()->cuDeviceCanAccessPeer(&can, sl_cuda_of(by)->ordinal, cuda->ordinal))
		can = 0;
	if (!can)
		return -ENOTSUP;
	if (!cuda_is_whole(cuda, length))
		return -EINVAL;
	if (fd < 0 || length > cuda->memory_bytes)
		return -EBADMSG;
	ENTERED(device, NULL,
	        cuda_map_entered(cuda, fd, length, sl_cuda_of(by), (uintptr_t)at, out));
}

/* ----------------------------------------------------------------------------- lend and borrow */

/* Memory made with handles, from a pool, or managed cannot be lent. */
static bool cuda_can_be_lent(const struct sl_cuda_api *api, const struct cuda *cuda,
                             CUdeviceptr memory)
{
	int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
	                    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
	                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	unsigned type = 0, capable = 0;
	int ordinal = -1;
	void *values[] = {&type, &capable, &ordinal};

	return !api->cuPointerGetAttributes(3, attributes, values, memory) &&
	       type == CU_MEMORYTYPE_DEVICE && (capable & 0xff) && ordinal == cuda->ordinal;
}

static int cuda_lend_entered(struct cuda *cuda, CUdeviceptr memory, struct sl_lent_memory *out)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
	CUipcMemHandle handle;
	CUdeviceptr start;
	size_t length;

	if (!cuda_can_be_lent(api, cuda, memory))
		return -ENOTSUP;
	CUresult rc = api->cuMemGetAddressRange_v2(&start, &length, memory);
	if (!rc)
		rc = api->cuIpcGetMemHandle(&handle, start);
	if (rc)
		return rc == CUDA_ERROR_INVALID_VALUE ? -ENOTSUP : sl_cuda_error(rc);
	_Static_assert(sizeof(handle) == sizeof(out->handle), "the driver's fits");
	*out = (struct sl_lent_memory){.start = (void *)(uintptr_t)start, .length = length};
	memcpy(out->handle, &handle, sizeof(handle));
	return 0;
}

static int cuda_lend(struct sl_device *device, const void *memory, struct sl_lent_memory *out)
{
	ENTERED(device, NULL, cuda_lend_entered(sl_cuda_of(device), (uintptr_t)memory, out));
}

static int cuda_borrow_error(CUresult rc)
{
	switch (rc) {
	case CUDA_ERROR_INVALID_CONTEXT: /* the handle belongs to this process */
		return -EINVAL;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_MAP_FAILED:
	case CUDA_ERROR_OPERATING_SYSTEM:
		return -ENOENT;
	case CUDA_ERROR_TOO_MANY_PEERS:
		return -ENOTSUP;
	default:
		return sl_cuda_error(rc);
	}
}

static int cuda_borrow_entered(const struct sl_lent_memory *lent, void **out)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
	CUipcMemHandle handle;
	CUdeviceptr memory;
	size_t length;
	CUresult rc;

	if (!lent->length)
		return -EBADMSG;
	memcpy(&handle, lent->handle, sizeof(handle));
	rc = api->cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	if (rc)
		return cuda_borrow_error(rc);
	/* The length is a claim of the other process: check it. */
	if (api->cuMemGetAddressRange_v2(NULL, &length, memory) || length < lent->length) {
		api->cuIpcCloseMemHandle(memory);
		return -EBADMSG;
	}
	*out = (void *)(uintptr_t)memory;
	return 0;
}

static int cuda_borrow(struct sl_device *device, const struct sl_lent_memory *lent, void **out)
{
	ENTERED(device, NULL, cuda_borrow_entered(lent, out));
}

static int cuda_give_back(struct sl_device *device, void *start)
{
	IN_CONTEXT(device, NULL, sl_cuda_driver()->cuIpcCloseMemHandle((uintptr_t)start));
}

/* ---------------------------------------------------------------------------- whether it can */

static bool cuda_has(const struct sl_cuda_api *api, const struct cuda *cuda, int attribute)
{
	int value = 0;

	return !api->cuDeviceGetAttribute(&value, attribute, cuda->ordinal) && value;
}

/*
 * Contexts reach each other's memory when one of them asks for that, once. It is no error if the
 * program has asked before. Two threads that ask at a time may both ask the driver.
 */
bool sl_cuda_reach(struct sl_device *device, struct sl_device *other)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
	struct cuda *cuda = sl_cuda_of(device), *peer = sl_cuda_of(other);
	uint32_t bit = UINT32_C(1) << peer->ordinal % 32;
	CUresult error;
	int can = 0;

	if (atomic_load(&cuda->asked) & bit)
		return atomic_load(&cuda->reached) & bit;
	if (sl_cuda_enter(peer, NULL))
		return false;
	sl_cuda_leave();
	if (api->cuDeviceCanAccessPeer(&can, cuda->ordinal, peer->ordinal))
		can = 0;
	if (can && !sl_cuda_enter(cuda, NULL)) {
		error = api->cuCtxEnablePeerAccess(peer->primary, 0);
		sl_cuda_leave();
		if (!error || error == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
			atomic_fetch_or(&cuda->reached, bit);
	}
	atomic_fetch_or(&cuda->asked, bit);
	return atomic_load(&cuda->reached) & bit;
}

const struct sl_device_sharing *sl_cuda_sharing(const struct sl_cuda_api *api, struct cuda *cuda)
{
	struct CUmemAllocationProp prop = memory_properties(cuda);
	size_t granularity = 0;

	if (!cuda_has(api, cuda, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT) ||
	    !cuda_has(api, cuda, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
	    api->cuDeviceTotalMem_v2(&cuda->memory_bytes, cuda->ordinal) ||
	    api->cuMemGetAllocationGranularity(&granularity, &prop,
	                                       CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
	    !granularity)
		return NULL;
	cuda->direct = cuda_has(api, cuda, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM);
	cuda->sharing = (struct sl_device_sharing){
		.granularity = granularity,
		.make = cuda_make,
		.map = cuda_map,
		.unmap = cuda_unmap,
		.vacate = cuda_vacate,
		.abandon = cuda_abandon,
		.lend = cuda_lend,
		.borrow = cuda_borrow,
		.give_back = cuda_give_back,
	};
	return &cuda->sharing;
}
