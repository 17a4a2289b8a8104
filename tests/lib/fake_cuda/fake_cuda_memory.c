/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the fake driver: made, registered, freed, and what a pointer is. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "lib/fake_cuda/fake_cuda.h"

#define PAGE    UINT64_C(4096)
#define BIT(of) (1u << (of))

/* ------------------------------------------------------------------------------------- blocks */

static struct block *find_block(const void *memory)
{
	struct sl_interval *found = sl_emulated_lookup(&fake.blocks, memory);

	return found ? SL_CONTAINER(found, struct block, at) : NULL;
}

bool fake_block(const void *memory, struct block *out)
{
	struct block *block;

	pthread_mutex_lock(&fake.mutex);
	block = find_block(memory);
	if (block)
		*out = *block;
	pthread_mutex_unlock(&fake.mutex);
	return block;
}

CUresult fake_add_block(enum block_kind kind, CUcontext ctx, CUdevice ordinal, void *memory,
                        size_t length)
{
	struct block *block = calloc(1, sizeof(*block));

	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	block->at.start = (uintptr_t)memory;
	block->at.end = block->at.start + length;
	block->kind = kind;
	block->ctx = ctx;
	block->ordinal = ordinal;
	pthread_mutex_lock(&fake.mutex);
	block->id = ++fake.ids;
	sl_intervals_insert(&fake.blocks, &block->at);
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

bool fake_take_block(unsigned kinds, const void *memory, struct block *out)
{
	struct block *block;

	pthread_mutex_lock(&fake.mutex);
	block = find_block(memory);
	if (block && (block->at.start != (uintptr_t)memory || !(kinds & BIT(block->kind))))
		block = NULL;
	if (block)
		sl_intervals_remove(&fake.blocks, &block->at);
	pthread_mutex_unlock(&fake.mutex);
	if (!block)
		return false;
	*out = *block;
	free(block);
	return true;
}

/* ----------------------------------------------------------------------------- of the device */

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t length)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuMemAlloc_v2, NEEDS_CONTEXT | UNSAFE, &ctx);
	void *memory;

	if (!rc && !length)
		rc = CUDA_ERROR_INVALID_VALUE;
	if (!rc)
		rc = fake_error(sl_emulated_alloc(&ctx->device->base, length, &memory));
	if (!rc)
		rc = fake_add_block(BLOCK_DEVICE, ctx, ctx->ordinal, memory, length);
	if (!rc)
		*out = (uintptr_t)memory;
	return rc;
}

static CUresult free_block(const struct block *block)
{
	struct sl_device *device = &fake_device(block->ordinal)->base;
	void *memory = (void *)(uintptr_t)block->at.start;
	struct on on;
	size_t length = block->at.end - block->at.start;
	int rc;

	switch (block->kind) {
	case BLOCK_DEVICE:
		return fake_error(sl_emulated_free(device, memory));
	case BLOCK_POOL:
		on = (struct on){block->ctx, device, FAKE_LEGACY, false};
		rc = sl_emulated_stream_synchronize(device, FAKE_LEGACY);
		return rc ? fake_error(rc) : fake_pool_free(&on, block);
	default:
		rc = fake_unpin(memory, length);
		munmap(memory, length);
		return fake_error(rc);
	}
}

CUresult cuMemFree_v2(CUdeviceptr memory)
{
	CUresult rc = fake_enter(CALL_cuMemFree_v2, NEEDS_CONTEXT | UNSAFE, NULL);
	struct block block;

	if (rc || !memory)
		return rc;
	if (!fake_take_block(BIT(BLOCK_DEVICE) | BIT(BLOCK_POOL) | BIT(BLOCK_MANAGED),
	                     (void *)(uintptr_t)memory, &block))
		return CUDA_ERROR_INVALID_VALUE;
	return free_block(&block);
}

/* ------------------------------------------------------------------------------- of the host */

/* What an unaligned range touches; two that share a page are refused, as if they overlapped. */
static void whole_pages(void **memory, size_t *length)
{
	uint64_t start = (uintptr_t)*memory / PAGE * PAGE;

	*length = ((uintptr_t)*memory + *length - start + PAGE - 1) / PAGE * PAGE;
	*memory = (void *)(uintptr_t)start;
}

int fake_pin(void *memory, size_t length)
{
	int rc = 0;

	whole_pages(&memory, &length);
	for (int i = 0; !rc && i < EMULATED_DEVICES; i++) {
		rc = sl_emulated_register(&fake_device(i)->base, memory, length);
		if (rc && i)
			sl_emulated_unregister(&fake_device(0)->base, memory);
	}
	return rc;
}

int fake_unpin(void *memory, size_t length)
{
	int rc = 0;

	whole_pages(&memory, &length);
	for (int i = 0; i < EMULATED_DEVICES; i++) {
		int one = sl_emulated_unregister(&fake_device(i)->base, memory);

		rc = rc ? rc : one;
	}
	return rc;
}

/* Of memory that is mapped at all. */
static bool is_read_only(const void *memory)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], may_write = 'w';
	uintptr_t start, end;

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " r%c", &start, &end, &may_write) == 3 &&
		    start <= (uintptr_t)memory && (uintptr_t)memory < end)
			break;
		else
			may_write = 'w';
	if (maps)
		fclose(maps);
	return may_write == '-';
}

CUresult cuMemHostRegister_v2(void *memory, size_t length, unsigned flags)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuMemHostRegister_v2, NEEDS_CONTEXT | UNSAFE, &ctx);

	if (!rc && (!memory || !length || flags & ~15u))
		rc = CUDA_ERROR_INVALID_VALUE;
	if (!rc && !(flags & CU_MEMHOSTREGISTER_READ_ONLY) && is_read_only(memory))
		rc = CUDA_ERROR_INVALID_VALUE;
	if (!rc)
		rc = fake_error(fake_pin(memory, length));
	if (!rc)
		rc = fake_add_block(BLOCK_HOST, ctx, ctx->ordinal, memory, length);
	return rc;
}

CUresult cuMemHostUnregister(void *memory)
{
	CUresult rc = fake_enter(CALL_cuMemHostUnregister, NEEDS_CONTEXT | UNSAFE, NULL);
	struct block block;

	if (rc)
		return rc;
	if (!fake_take_block(BIT(BLOCK_HOST), memory, &block))
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	return fake_error(fake_unpin(memory, block.at.end - block.at.start));
}

static CUresult alloc_host(enum block_kind kind, CUcontext ctx, size_t length, void **out)
{
	void *memory =
		mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUresult rc;

	if (memory == MAP_FAILED)
		return length ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	rc = fake_error(fake_pin(memory, length));
	if (!rc)
		rc = fake_add_block(kind, ctx, ctx->ordinal, memory, length);
	if (rc)
		munmap(memory, length);
	else
		*out = memory;
	return rc;
}

CUresult cuMemHostAlloc(void **memory, size_t length, unsigned flags)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuMemHostAlloc, NEEDS_CONTEXT | UNSAFE, &ctx);

	(void)flags;
	return rc ? rc : alloc_host(BLOCK_PINNED, ctx, length, memory);
}

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t length, unsigned flags)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuMemAllocManaged, NEEDS_CONTEXT | UNSAFE, &ctx);
	void *memory;

	(void)flags;
	if (!rc)
		rc = alloc_host(BLOCK_MANAGED, ctx, length, &memory);
	if (!rc)
		*out = (uintptr_t)memory;
	return rc;
}

CUresult cuMemFreeHost(void *memory)
{
	CUresult rc = fake_enter(CALL_cuMemFreeHost, NEEDS_CONTEXT | UNSAFE, NULL);
	struct block block;

	if (rc || !memory)
		return rc;
	if (!fake_take_block(BIT(BLOCK_PINNED), memory, &block))
		return CUDA_ERROR_INVALID_VALUE;
	return free_block(&block);
}

/* The addresses are the same there. */
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *there, void *memory, unsigned flags)
{
	CUresult rc = fake_enter(CALL_cuMemHostGetDevicePointer_v2, NEEDS_CONTEXT, NULL);
	struct block block;

	if (!rc && (flags || !fake_block(memory, &block) || block.kind < BLOCK_PINNED))
		rc = CUDA_ERROR_INVALID_VALUE;
	if (!rc)
		*there = (uintptr_t)memory;
	return rc;
}

/* ----------------------------------------------------------------------- what a pointer is */

/* Of memory that the driver does not know everything is zero. */
static CUresult tell(const struct block *block, int attribute, CUdeviceptr pointer, void *value)
{
	bool host = block->kind >= BLOCK_PINNED;

	switch (attribute) {
	case 1: /* the context */
		*(CUcontext *)value = block->ctx;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)value = !block->id ? 0
		                     : host     ? CU_MEMORYTYPE_HOST
		                                : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case 3: /* the address on the device */
		*(CUdeviceptr *)value = block->id ? pointer : 0;
		return CUDA_SUCCESS;
	case 4: /* the address on the host */
		*(CUdeviceptr *)value = host || block->kind == BLOCK_MANAGED ? pointer : 0;
		return CUDA_SUCCESS;
	case 7: /* the allocation's number */
		*(uint64_t *)value = block->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)value = block->kind == BLOCK_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)value = block->ordinal;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned *)value = block->id && block->kind == BLOCK_DEVICE;
		return CUDA_SUCCESS;
	case 11: /* where it begins */
		*(CUdeviceptr *)value = block->at.start;
		return CUDA_SUCCESS;
	case 12: /* its length */
		*(size_t *)value = block->at.end - block->at.start;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr pointer)
{
	CUresult rc = fake_enter(CALL_cuPointerGetAttributes, 0, NULL);
	struct block block = {0};

	(void)fake_block((void *)(uintptr_t)pointer, &block);
	for (unsigned i = 0; !rc && i < count; i++)
		rc = tell(&block, attributes[i], pointer, values[i]);
	return rc;
}

/* Unlike the one above it knows no memory but the driver's. */
CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer)
{
	CUresult rc = fake_enter(CALL_cuPointerGetAttribute, 0, NULL);
	struct block block;

	if (rc)
		return rc;
	if (!fake_block((void *)(uintptr_t)pointer, &block))
		return CUDA_ERROR_INVALID_VALUE;
	return tell(&block, attribute, pointer, value);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *length, CUdeviceptr memory)
{
	CUresult rc = fake_enter(CALL_cuMemGetAddressRange_v2, 0, NULL);
	struct block block;

	if (rc)
		return rc;
	if (!fake_block((void *)(uintptr_t)memory, &block) || block.kind >= BLOCK_PINNED)
		return CUDA_ERROR_NOT_FOUND;
	if (start)
		*start = block.at.start;
	if (length)
		*length = block.at.end - block.at.start;
	return CUDA_SUCCESS;
}
