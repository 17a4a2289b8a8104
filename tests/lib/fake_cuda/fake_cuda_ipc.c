/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations of one process in another, by the fake driver: the emulated device's. */
#include <errno.h>
#include <string.h>

#include "lib/fake_cuda/fake_cuda.h"

/* What a handle holds. */
struct content {
	unsigned char lent[48]; /* of struct sl_lent_memory */
	uint64_t length;
	int32_t ordinal, marked;
};
_Static_assert(sizeof(struct content) == sizeof(CUipcMemHandle), "");

#define MARK 0x19c0ffee

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr memory)
{
	CUresult rc = fake_enter(CALL_cuIpcGetMemHandle, NEEDS_CONTEXT, NULL);
	struct content content = {.marked = MARK};
	struct sl_lent_memory lent;
	struct sl_device *device;
	struct block block;

	if (rc)
		return rc;
	if (!fake_block((void *)(uintptr_t)memory, &block) || block.kind != BLOCK_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	device = &fake_device(block.ordinal)->base;
	rc = fake_error(device->sharing->lend(device, (void *)(uintptr_t)memory, &lent));
	if (rc)
		return rc;
	memcpy(content.lent, lent.handle, sizeof(content.lent));
	content.length = lent.length;
	content.ordinal = block.ordinal;
	memcpy(handle, &content, sizeof(*handle));
	return CUDA_SUCCESS;
}

static CUresult open_error(int rc)
{
	switch (rc) {
	case -EINVAL:
		return CUDA_ERROR_INVALID_CONTEXT;
	case -ENOENT:
	case -EBADMSG:
		return CUDA_ERROR_INVALID_VALUE;
	case -EACCES: /* of another user's process */
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return fake_error(rc);
	}
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
	struct sl_lent_memory lent = {0};
	struct content content;
	struct sl_device *device;
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuIpcOpenMemHandle_v2, NEEDS_CONTEXT, &ctx);
	void *memory;

	if (rc)
		return rc;
	memcpy(&content, &handle, sizeof(content));
	if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || content.marked != MARK ||
	    !fake_device(content.ordinal))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(lent.handle, content.lent, sizeof(content.lent));
	lent.length = content.length;
	device = &fake_device(content.ordinal)->base;
	rc = open_error(device->sharing->borrow(device, &lent, &memory));
	if (!rc)
		rc = fake_add_block(BLOCK_BORROWED, ctx, content.ordinal, memory, content.length);
	if (!rc)
		*out = (uintptr_t)memory;
	return rc;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr memory)
{
	CUresult rc = fake_enter(CALL_cuIpcCloseMemHandle, NEEDS_CONTEXT | UNSAFE, NULL);
	struct sl_device *device;
	struct block block;

	if (rc)
		return rc;
	if (!fake_take_block(1u << BLOCK_BORROWED, (void *)(uintptr_t)memory, &block))
		return CUDA_ERROR_INVALID_VALUE;
	device = &fake_device(block.ordinal)->base;
	return fake_error(device->sharing->give_back(device, (void *)(uintptr_t)memory));
}
