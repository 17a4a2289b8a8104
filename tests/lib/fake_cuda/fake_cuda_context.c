/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts of the fake driver, and each thread's stack of them. */
#include <stdlib.h>

#include "lib/emulated_memory.h"
#include "lib/fake_cuda/fake_cuda.h"

#define DEPTH_MOST 64

static struct CUctx_st primaries[EMULATED_DEVICES];

static _Thread_local struct {
	CUcontext contexts[DEPTH_MOST];
	unsigned depth;
} stack;

CUcontext fake_current(void)
{
	return stack.depth ? stack.contexts[stack.depth - 1] : NULL;
}

static bool is_context(CUcontext ctx)
{
	bool known;

	pthread_mutex_lock(&fake.mutex);
	known = ctx && fake_known(&fake.contexts, ctx);
	pthread_mutex_unlock(&fake.mutex);
	return known;
}

static void make(CUcontext ctx, CUdevice device)
{
	ctx->device = fake_device(device);
	ctx->ordinal = device;
	fake_publish(&fake.contexts, &ctx->handle, ctx);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
	CUresult rc = fake_enter(CALL_cuDevicePrimaryCtxRetain, 0, NULL);

	if (rc)
		return rc;
	if (!fake_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*ctx = &primaries[device];
	pthread_mutex_lock(&fake.mutex);
	if (!(*ctx)->device)
		make(*ctx, device);
	(*ctx)->retained++;
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

/* The real one ends the context with its last release; here it stays. */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	CUresult rc = fake_enter(CALL_cuDevicePrimaryCtxRelease_v2, 0, NULL);

	if (rc)
		return rc;
	if (!fake_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake.mutex);
	if (primaries[device].retained)
		primaries[device].retained--;
	else
		rc = CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	CUresult rc = fake_enter(CALL_cuDevicePrimaryCtxGetState, 0, NULL);

	if (rc)
		return rc;
	if (!fake_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake.mutex);
	*flags = 0;
	*active = primaries[device].retained > 0;
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext ctx)
{
	if (!is_context(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack.depth == DEPTH_MOST)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.contexts[stack.depth++] = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device)
{
	CUresult rc = fake_enter(CALL_cuCtxCreate_v2, 0, NULL);
	CUcontext ctx;

	(void)flags;
	if (rc)
		return rc;
	if (!fake_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake.mutex);
	make(ctx, device);
	pthread_mutex_unlock(&fake.mutex);
	*out = ctx;
	return push(ctx);
}

/* What is the context's must be freed before; the real one frees it by itself. */
CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	CUresult rc = fake_enter(CALL_cuCtxDestroy_v2, 0, NULL);

	if (rc)
		return rc;
	if (!is_context(ctx) || ctx == &primaries[ctx->ordinal])
		return CUDA_ERROR_INVALID_CONTEXT;
	if (fake_current() == ctx)
		stack.depth--;
	pthread_mutex_lock(&fake.mutex);
	sl_intervals_remove(&fake.contexts, &ctx->handle);
	pthread_mutex_unlock(&fake.mutex);
	free(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	return fake_enter(CALL_cuCtxGetCurrent, 0, ctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	CUresult rc = fake_enter(CALL_cuCtxSetCurrent, 0, NULL);

	if (rc)
		return rc;
	if (ctx && !is_context(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack.depth)
		stack.depth--;
	return ctx ? push(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	CUresult rc = fake_enter(CALL_cuCtxPushCurrent_v2, 0, NULL);

	return rc ? rc : push(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	CUcontext current;
	CUresult rc = fake_enter(CALL_cuCtxPopCurrent_v2, NEEDS_CONTEXT, &current);

	if (rc)
		return rc;
	stack.depth--;
	if (ctx)
		*ctx = current;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuCtxGetDevice, NEEDS_CONTEXT, &ctx);

	if (!rc)
		*device = ctx->ordinal;
	return rc;
}

/* What is shared counts for every process, else only what this one has. */
CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
	struct sluice_device device = {0};
	uint64_t shared;
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuMemGetInfo_v2, NEEDS_CONTEXT, &ctx);

	if (rc)
		return rc;
	sl_emulated_ops.describe(&ctx->device->base, &device);
	shared = emulated_memory_in_use(ctx->device->base.name);
	*available = device.free_bytes - SL_MIN(shared, device.free_bytes);
	*total = device.memory_bytes;
	return CUDA_SUCCESS;
}
