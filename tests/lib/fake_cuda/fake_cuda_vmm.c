/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management of the fake driver. A reservation is memory of the emulated device that no
 * command may use; what is mapped there takes the place of its bytes. Only a whole reservation can be
 * mapped, with memory of the device that was current when it was reserved (or else the first). Memory is the
 * emulated device's for several processes, whether or not a descriptor of it is asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/fake_cuda/fake_cuda.h"

#define GRANULARITY ((size_t)2 << 20)

struct backing {
	struct sl_interval handle; /* in backings, until it is released */
	int fd;
	size_t length;
	struct CUmemAllocationProp prop;
	unsigned users; /* the handle, and where it is mapped */
};

struct reservation {
	struct sl_interval at; /* in reservations */
	CUdevice ordinal;
	char *own;   /* the bytes that were there before */
	char *bytes; /* of what is mapped */
	struct backing *mapped;
};

/* Guarded by fake.mutex, which is taken before a device's. */
static struct sl_intervals backings, reservations;

static bool is_whole(size_t length)
{
	return length && length % GRANULARITY == 0;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const struct CUmemAllocationProp *prop,
                                       int option)
{
	CUresult rc = fake_enter(CALL_cuMemGetAllocationGranularity, 0, NULL);

	(void)option;
	if (!rc && (!prop || !fake_device(prop->location.id)))
		rc = CUDA_ERROR_INVALID_VALUE;
	if (!rc)
		*bytes = GRANULARITY;
	return rc;
}

/* ------------------------------------------------------------------------------------- memory */

/* Takes the descriptor, if it succeeds. */
static CUresult publish(int fd, size_t length, const struct CUmemAllocationProp *prop,
                        CUmemGenericAllocationHandle *out)
{
	struct backing *backing = calloc(1, sizeof(*backing));

	if (!backing)
		return CUDA_ERROR_OUT_OF_MEMORY;
	backing->fd = fd;
	backing->length = length;
	backing->prop = *prop;
	backing->users = 1;
	pthread_mutex_lock(&fake.mutex);
	fake_publish(&backings, &backing->handle, backing);
	pthread_mutex_unlock(&fake.mutex);
	*out = (uintptr_t)backing;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t length,
                     const struct CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult rc = fake_enter(CALL_cuMemCreate, 0, NULL);
	int fd;

	if (rc)
		return rc;
	if (flags || !is_whole(length) || !prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !fake_device(prop->location.id))
		return CUDA_ERROR_INVALID_VALUE;
	/* As where the devices could do it, and the kernel's module for it is missing. */
	if ((prop->handle_types & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
	    prop->gpu_direct_rdma)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (length > EMULATED_MEMORY_BYTES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = fake_error(sl_emulated_memory_new(fake_device(prop->location.id), length, &fd));
	if (rc)
		return rc;
	rc = publish(fd, length, prop, handle);
	if (rc)
		close(fd);
	return rc;
}

/* fake.mutex held. */
static void let_go(struct backing *backing)
{
	if (--backing->users)
		return;
	close(backing->fd);
	free(backing);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct backing *backing = (struct backing *)(uintptr_t)handle;
	CUresult rc = fake_enter(CALL_cuMemRelease, 0, NULL);

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	if (fake_known(&backings, backing)) {
		sl_intervals_remove(&backings, &backing->handle);
		let_go(backing);
	} else {
		rc = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

CUresult cuMemGetAllocationPropertiesFromHandle(struct CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
	struct backing *backing = (struct backing *)(uintptr_t)handle;
	CUresult rc = fake_enter(CALL_cuMemGetAllocationPropertiesFromHandle, 0, NULL);

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	if (fake_known(&backings, backing))
		*prop = backing->prop;
	else
		rc = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      int type, unsigned long long flags)
{
	struct backing *backing = (struct backing *)(uintptr_t)handle;
	CUresult rc = fake_enter(CALL_cuMemExportToShareableHandle, 0, NULL);
	int fd = -1;

	if (rc)
		return rc;
	if (flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	if (fake_known(&backings, backing) && (backing->prop.handle_types & type))
		fd = dup(backing->fd);
	else
		rc = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&fake.mutex);
	if (!rc && fd < 0)
		rc = CUDA_ERROR_OPERATING_SYSTEM;
	if (!rc)
		*(int *)shareable = fd;
	return rc;
}

/* The device whose memory the descriptor is; -1: none. */
static CUdevice device_of(int fd)
{
	for (CUdevice i = 0; fake_device(i); i++)
		if (!sl_emulated_memory_check(fake_device(i), fd, GRANULARITY))
			return i;
	return -1;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        int type)
{
	CUresult rc = fake_enter(CALL_cuMemImportFromShareableHandle, 0, NULL);
	struct CUmemAllocationProp prop = {
		CU_MEM_ALLOCATION_TYPE_PINNED, type, {CU_MEM_LOCATION_TYPE_DEVICE, -1}};
	struct stat st;
	int fd = -1;

	if (rc)
		return rc;
	prop.location.id = device_of((int)(intptr_t)shareable);
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || prop.location.id < 0)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || fstat(fd, &st))
		rc = CUDA_ERROR_OPERATING_SYSTEM;
	if (!rc)
		rc = publish(fd, (size_t)st.st_size, &prop, handle);
	if (rc && fd >= 0)
		close(fd);
	return rc;
}

/* ---------------------------------------------------------------------------------- addresses */

static struct range *range_of(const struct reservation *reservation)
{
	struct sl_interval *found =
		sl_emulated_lookup(&fake_device(reservation->ordinal)->allocations,
	                           (void *)(uintptr_t)reservation->at.start);

	return SL_CONTAINER(found, struct range, at);
}

/* What is there from now on, and who may use it: 0, nobody, or as cuMemSetAccess() has it. */
static void set_range(const struct reservation *reservation, char *bytes, int access)
{
	struct emulated *device = fake_device(reservation->ordinal);
	struct range *range;

	sl_mutex_lock(&device->mutex);
	range = range_of(reservation);
	range->bytes = bytes;
	range->leaving = !access;
	range->read_only = access == CU_MEM_ACCESS_FLAGS_PROT_READ;
	sl_mutex_unlock(&device->mutex);
}

/* Addresses take nothing of the device's memory, and what is mapped there counts otherwise. */
static char *make_hollow(const struct reservation *reservation)
{
	struct emulated *device = fake_device(reservation->ordinal);
	struct range *range;

	sl_mutex_lock(&device->mutex);
	range = range_of(reservation);
	device->used -= range->taken;
	range->taken = 0;
	range->leaving = true;
	sl_mutex_unlock(&device->mutex);
	return range->bytes;
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t length, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags)
{
	struct reservation *reservation;
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuMemAddressReserve, 0, &ctx);
	void *memory;

	(void)wish;
	(void)alignment;
	if (rc)
		return rc;
	if (flags || !is_whole(length))
		return CUDA_ERROR_INVALID_VALUE;
	reservation = calloc(1, sizeof(*reservation));
	if (!reservation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	reservation->ordinal = ctx ? ctx->ordinal : 0;
	rc = fake_error(
		sl_emulated_alloc(&fake_device(reservation->ordinal)->base, length, &memory));
	if (rc) {
		free(reservation);
		return rc;
	}
	reservation->at.start = (uintptr_t)memory;
	reservation->at.end = reservation->at.start + length;
	pthread_mutex_lock(&fake.mutex);
	reservation->own = make_hollow(reservation);
	sl_intervals_insert(&reservations, &reservation->at);
	pthread_mutex_unlock(&fake.mutex);
	*out = (uintptr_t)memory;
	return CUDA_SUCCESS;
}

/* The reservation that is just that range; NULL. fake.mutex held. */
static struct reservation *reservation_at(CUdeviceptr memory, size_t length)
{
	struct sl_interval *found = sl_emulated_lookup(&reservations, (void *)(uintptr_t)memory);

	if (!found || found->start != memory || found->end - found->start != length)
		return NULL;
	return SL_CONTAINER(found, struct reservation, at);
}

/* The real one does not wait for anything here either. */
static void free_range(const struct reservation *reservation)
{
	struct emulated *device = fake_device(reservation->ordinal);
	struct range *range;

	sl_mutex_lock(&device->mutex);
	range = range_of(reservation);
	sl_intervals_remove(&device->allocations, &range->at);
	sl_mutex_unlock(&device->mutex);
	sl_emulated_range_free(range);
}

CUresult cuMemAddressFree(CUdeviceptr memory, size_t length)
{
	CUresult rc = fake_enter(CALL_cuMemAddressFree, 0, NULL);
	struct reservation *reservation;

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	reservation = reservation_at(memory, length);
	if (reservation && !reservation->mapped) {
		sl_intervals_remove(&reservations, &reservation->at);
		free_range(reservation);
		free(reservation);
	} else {
		rc = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

/* ------------------------------------------------------------------------------------ mapping */

/* fake.mutex held. */
static CUresult map_there(struct reservation *reservation, struct backing *backing, size_t length)
{
	char *bytes;

	if (backing->prop.location.id != reservation->ordinal)
		return CUDA_ERROR_NOT_SUPPORTED;
	bytes = mmap(NULL, length, PROT_NONE, MAP_SHARED, backing->fd, 0);
	if (bytes == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	reservation->mapped = backing;
	reservation->bytes = bytes;
	backing->users++;
	set_range(reservation, bytes, 0);
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr memory, size_t length, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct backing *backing = (struct backing *)(uintptr_t)handle;
	CUresult rc = fake_enter(CALL_cuMemMap, 0, NULL);
	struct reservation *reservation;
	CUdevice ordinal = 0;

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	reservation = reservation_at(memory, length);
	if (!fake_known(&backings, backing) || !reservation || reservation->mapped || offset ||
	    flags || length != backing->length) {
		rc = CUDA_ERROR_INVALID_VALUE;
	} else {
		rc = map_there(reservation, backing, length);
		ordinal = reservation->ordinal;
	}
	pthread_mutex_unlock(&fake.mutex);
	return rc ? rc
	          : fake_add_block(BLOCK_MAPPED, NULL, ordinal, (void *)(uintptr_t)memory, length);
}

/* The same for all devices; the memory's own is one of them. */
static bool is_access(const struct CUmemAccessDesc *desc, size_t count, CUdevice ordinal)
{
	bool own = false;

	for (size_t i = 0; i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    !fake_device(desc[i].location.id) || desc[i].flags != desc[0].flags)
			return false;
		own |= desc[i].location.id == ordinal;
	}
	return own && (desc[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
	               desc[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

CUresult cuMemSetAccess(CUdeviceptr memory, size_t length, const struct CUmemAccessDesc *desc,
                        size_t count)
{
	CUresult rc = fake_enter(CALL_cuMemSetAccess, 0, NULL);
	struct reservation *reservation;
	int protection;

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	reservation = reservation_at(memory, length);
	if (reservation && reservation->mapped && is_access(desc, count, reservation->ordinal)) {
		protection = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ
		                                                          : PROT_READ | PROT_WRITE;
		if (mprotect(reservation->bytes, length, protection))
			rc = CUDA_ERROR_NOT_SUPPORTED;
		else
			set_range(reservation, reservation->bytes, desc->flags);
	} else {
		rc = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

/* Nobody gets it any more, and those that have it are waited for, as in cuMemFree(). */
static void wait_for_users(const struct reservation *reservation)
{
	struct emulated *device = fake_device(reservation->ordinal);

	set_range(reservation, reservation->bytes, 0);
	sl_mutex_lock(&device->mutex);
	(void)sl_emulated_drain(device, "cuMemUnmap", true);
	sl_mutex_unlock(&device->mutex);
}

CUresult cuMemUnmap(CUdeviceptr memory, size_t length)
{
	CUresult rc = fake_enter(CALL_cuMemUnmap, 0, NULL);
	struct reservation *reservation;
	struct block block;

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	reservation = reservation_at(memory, length);
	pthread_mutex_unlock(&fake.mutex);
	/* Whoever takes the block unmaps it. */
	if (!reservation || !fake_take_block(1u << BLOCK_MAPPED, (void *)(uintptr_t)memory, &block))
		return CUDA_ERROR_INVALID_VALUE;
	wait_for_users(reservation);
	pthread_mutex_lock(&fake.mutex);
	set_range(reservation, reservation->own, 0);
	munmap(reservation->bytes, length);
	let_go(reservation->mapped);
	reservation->mapped = NULL;
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}
