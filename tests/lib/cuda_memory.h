/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of each kind that a program may bring beside CUDA's driver. For one file per program, which defines
 * CUDA_CALL(function, ...) before: it calls the driver's function and ends the test if that fails.
 */
#ifndef TESTS_CUDA_MEMORY_H
#define TESTS_CUDA_MEMORY_H

#include <stdbool.h>
#include <stdlib.h>

#include "lib/cuda_functions.h"

struct cuda_memory {
	size_t length;
	sluice_stream stream; /* of cuMemAllocAsync */
	int ordinal;          /* of the device */
	char *at;
	/* Of mapped memory. */
	CUmemGenericAllocationHandle handle;
	size_t mapped;
};

/* Whole pages. */
static size_t cuda_host_bytes(const struct cuda_memory *m)
{
	return (m->length + 4095) / 4096 * 4096;
}

static void cuda_make_host(struct cuda_memory *m)
{
	m->at = aligned_alloc(4096, cuda_host_bytes(m));
}

static void cuda_free_host(struct cuda_memory *m)
{
	free(m->at);
}

static void cuda_make_registered(struct cuda_memory *m)
{
	cuda_make_host(m);
	CUDA_CALL(cuMemHostRegister_v2, m->at, cuda_host_bytes(m),
	          CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
}

static void cuda_free_registered(struct cuda_memory *m)
{
	CUDA_CALL(cuMemHostUnregister, m->at);
	cuda_free_host(m);
}

static void cuda_make_pinned(struct cuda_memory *m)
{
	CUDA_CALL(cuMemHostAlloc, (void **)&m->at, m->length, CU_MEMHOSTREGISTER_PORTABLE);
}

static void cuda_free_pinned(struct cuda_memory *m)
{
	CUDA_CALL(cuMemFreeHost, m->at);
}

static void cuda_make_allocated(struct cuda_memory *m)
{
	CUDA_CALL(cuMemAlloc_v2, (CUdeviceptr *)&m->at, m->length);
}

static void cuda_make_managed(struct cuda_memory *m)
{
	CUDA_CALL(cuMemAllocManaged, (CUdeviceptr *)&m->at, m->length, 1);
}

static void cuda_free_allocated(struct cuda_memory *m)
{
	CUDA_CALL(cuMemFree_v2, (uintptr_t)m->at);
}

static void cuda_make_async(struct cuda_memory *m)
{
	CUDA_CALL(cuMemAllocAsync, (CUdeviceptr *)&m->at, m->length, m->stream);
	CUDA_CALL(cuStreamSynchronize, m->stream);
}

static void cuda_free_async(struct cuda_memory *m)
{
	CUDA_CALL(cuMemFreeAsync, (uintptr_t)m->at, m->stream);
	CUDA_CALL(cuStreamSynchronize, m->stream);
}

static void cuda_map(struct cuda_memory *m)
{
	struct CUmemAccessDesc access = {{1, m->ordinal}, 3};

	CUDA_CALL(cuMemMap, (uintptr_t)m->at, m->mapped, 0, m->handle, 0);
	CUDA_CALL(cuMemSetAccess, (uintptr_t)m->at, m->mapped, &access, 1);
}

static void cuda_make_mapped(struct cuda_memory *m)
{
	struct CUmemAllocationProp prop = {.type = 1, .location = {1, m->ordinal}};
	size_t granularity;

	CUDA_CALL(cuMemGetAllocationGranularity, &granularity, &prop, 0);
	m->mapped = (m->length + granularity - 1) / granularity * granularity;
	CUDA_CALL(cuMemAddressReserve, (CUdeviceptr *)&m->at, m->mapped, 0, 0, 0);
	CUDA_CALL(cuMemCreate, &m->handle, m->mapped, &prop, 0);
	cuda_map(m);
}

static void cuda_free_mapped(struct cuda_memory *m)
{
	CUDA_CALL(cuStreamSynchronize, m->stream);
	CUDA_CALL(cuMemUnmap, (uintptr_t)m->at, m->mapped);
	CUDA_CALL(cuMemRelease, m->handle);
	CUDA_CALL(cuMemAddressFree, (uintptr_t)m->at, m->mapped);
}

enum cuda_kind { OF_HOST, REGISTERED, PINNED, ALLOCATED, MANAGED, ASYNC, MAPPED, CUDA_KINDS };

static const struct {
	const char *name;
	bool touchable; /* by the processor */
	bool pinned;    /* of the host, known to the driver */
	void (*make)(struct cuda_memory *m);
	void (*free)(struct cuda_memory *m);
} cuda_kinds[CUDA_KINDS] = {
	{"of the host", true, false, cuda_make_host, cuda_free_host},
	{"registered", true, true, cuda_make_registered, cuda_free_registered},
	{"pinned", true, true, cuda_make_pinned, cuda_free_pinned},
	{"of cuMemAlloc", false, false, cuda_make_allocated, cuda_free_allocated},
	{"managed", true, false, cuda_make_managed, cuda_free_allocated},
	{"of cuMemAllocAsync", false, false, cuda_make_async, cuda_free_async},
	{"mapped", false, false, cuda_make_mapped, cuda_free_mapped},
};

#endif
