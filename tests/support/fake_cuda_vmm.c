/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management of the fake driver. A reservation is memory of the emulated device that no
 * command may use; what is mapped there takes the place of its bytes. Only a whole reservation can be
 * mapped, with memory of the device that was current when it was reserved (or else the first).
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "support/fake_cuda.h"

#define GRANULARITY ((size_t)2 << 20)

struct backing {
	struct sl_interval handle; /* in backings, until it is released */
	char *bytes;
	size_t length;
	CUdevice ordinal;
	unsigned users; /* the handle, and where it is mapped */
};

struct reservation {
	struct sl_interval at; /* in reservations */
	CUdevice ordinal;
	char *own; /* the bytes that were there before */
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

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t length,
                     const struct CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult rc = fake_enter(CALL_cuMemCreate, 0, NULL);
	struct backing *backing;

	if (rc)
		return rc;
	if (flags || !is_whole(length) || !prop || prop->type != 1 || prop->location.type != 1 ||
	    !fake_device(prop->location.id))
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->handle_types)
		return CUDA_ERROR_NOT_SUPPORTED;
	backing = calloc(1, sizeof(*backing));
	if (!backing)
		return CUDA_ERROR_OUT_OF_MEMORY;
	backing->bytes =
		mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (backing->bytes == MAP_FAILED) {
		free(backing);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	backing->length = length;
	backing->ordinal = prop->location.id;
	backing->users = 1;
	pthread_mutex_lock(&fake.mutex);
	fake_publish(&backings, &backing->handle, backing);
	pthread_mutex_unlock(&fake.mutex);
	*handle = (uintptr_t)backing;
	return CUDA_SUCCESS;
}

/* fake.mutex held. */
static void let_go(struct backing *backing)
{
	if (--backing->users)
		return;
	munmap(backing->bytes, backing->length);
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

/* ---------------------------------------------------------------------------------- addresses */

static struct range *range_of(const struct reservation *reservation)
{
	struct sl_interval *found =
		sl_emulated_lookup(&fake_device(reservation->ordinal)->allocations,
	                           (void *)(uintptr_t)reservation->at.start);

	return SL_CONTAINER(found, struct range, at);
}

/* What is there from now on (NULL: what was), and whether commands may use it. */
static char *set_range(const struct reservation *reservation, char *bytes, bool usable)
{
	struct emulated *device = fake_device(reservation->ordinal);
	struct range *range;

	pthread_mutex_lock(&device->mutex);
	range = range_of(reservation);
	range->bytes = bytes = bytes ? bytes : range->bytes;
	range->leaving = !usable;
	pthread_mutex_unlock(&device->mutex);
	return bytes;
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
	reservation->own = set_range(reservation, NULL, false);
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

	pthread_mutex_lock(&device->mutex);
	range = range_of(reservation);
	sl_intervals_remove(&device->allocations, &range->at);
	device->used -= range->taken;
	pthread_mutex_unlock(&device->mutex);
	munmap(range->bytes, range->taken);
	free(range);
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

CUresult cuMemMap(CUdeviceptr memory, size_t length, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct backing *backing = (struct backing *)(uintptr_t)handle;
	CUresult rc = fake_enter(CALL_cuMemMap, 0, NULL);
	struct reservation *reservation;

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	reservation = reservation_at(memory, length);
	if (!fake_known(&backings, backing) || !reservation || reservation->mapped || offset ||
	    flags || length > backing->length) {
		rc = CUDA_ERROR_INVALID_VALUE;
	} else if (backing->ordinal != reservation->ordinal) {
		rc = CUDA_ERROR_NOT_SUPPORTED;
	} else {
		reservation->mapped = backing;
		backing->users++;
		set_range(reservation, backing->bytes, false);
	}
	pthread_mutex_unlock(&fake.mutex);
	return rc ? rc
	          : fake_add_block(BLOCK_MAPPED, NULL, backing->ordinal, (void *)(uintptr_t)memory,
	                           length);
}

CUresult cuMemSetAccess(CUdeviceptr memory, size_t length, const struct CUmemAccessDesc *desc,
                        size_t count)
{
	CUresult rc = fake_enter(CALL_cuMemSetAccess, 0, NULL);
	struct reservation *reservation;

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	reservation = reservation_at(memory, length);
	if (reservation && reservation->mapped && count == 1 && desc->flags == 3 &&
	    desc->location.type == 1 && desc->location.id == reservation->ordinal)
		set_range(reservation, reservation->mapped->bytes, true);
	else
		rc = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

CUresult cuMemUnmap(CUdeviceptr memory, size_t length)
{
	CUresult rc = fake_enter(CALL_cuMemUnmap, 0, NULL);
	struct reservation *reservation;
	struct block block;

	if (rc)
		return rc;
	if (!fake_take_block(1u << BLOCK_MAPPED, (void *)(uintptr_t)memory, &block))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	reservation = reservation_at(memory, length);
	if (reservation && reservation->mapped) {
		set_range(reservation, reservation->own, false);
		let_go(reservation->mapped);
		reservation->mapped = NULL;
	} else {
		rc = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}
