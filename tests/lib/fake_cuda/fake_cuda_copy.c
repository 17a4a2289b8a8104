/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the fake driver, also between devices, and what else runs on a device's thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fake_cuda/fake_cuda.h"

CUresult fake_run(const struct on *on, void (*run)(void *), void *argument)
{
	CUresult rc =
		fake_error(sluice_emulated_launch(on->ctx->ordinal, on->stream, run, argument));

	if (rc)
		free(argument);
	return rc;
}

/* The device whose address it is, whether or not there is memory; NULL: the host's. */
static struct emulated *device_at(const void *memory)
{
	for (int i = 0; i < EMULATED_DEVICES; i++) {
		struct emulated *device = fake_device(i);

		if (sl_emulated_started(device) &&
		    (uintptr_t)memory - (uintptr_t)device->arena < EMULATED_ARENA_BYTES)
			return device;
	}
	return NULL;
}

void *fake_bytes(struct sl_device *device, const void *memory, size_t length, bool write)
{
	struct emulated *owner = device_at(memory), *self = sl_emulated_of(device);
	struct emulated *at = owner ? owner : self;
	enum memory_kind kind;
	char *bytes;

	sl_mutex_lock(&at->mutex);
	kind = sl_emulated_memory_kind(at, memory, length, &bytes);
	sl_mutex_unlock(&at->mutex);
	if (kind == MEMORY_DEVICE || kind == MEMORY_REGISTERED ||
	    (kind == MEMORY_READ_ONLY && !write))
		return bytes;
	sl_mutex_lock(&self->mutex);
	sl_emulated_fault(self, -EFAULT);
	sl_mutex_unlock(&self->mutex);
	return NULL;
}

/* -------------------------------------------------------------------------------------- copies */

/* A copy that the emulated device does not do: to another device, or within the host. */
struct far {
	struct sl_device *device;
	void *to;
	const void *from;
	size_t length;
	bool to_host, from_host; /* memory that is not registered */
};

static void run_far(void *argument)
{
	struct far *far = argument;
	void *to = far->to_host ? far->to : fake_bytes(far->device, far->to, far->length, true);
	const void *from =
		far->from_host ? far->from : fake_bytes(far->device, far->from, far->length, false);

	if (to && from)
		memmove(to, from, far->length);
	free(far);
}

static bool is_pageable(const void *memory)
{
	struct block block;

	return !device_at(memory) && !fake_block(memory, &block);
}

/* The real one looks at once, too. */
static bool is_read_only(const void *memory, size_t length)
{
	struct emulated *device = device_at(memory);
	enum memory_kind kind = MEMORY_HOST;
	char *bytes;

	if (!device)
		return false;
	sl_mutex_lock(&device->mutex);
	kind = sl_emulated_memory_kind(device, memory, length, &bytes);
	sl_mutex_unlock(&device->mutex);
	return kind == MEMORY_READ_ONLY;
}

static CUresult copy_far(const struct on *on, void *to, const void *from, size_t length, bool wait)
{
	struct far *far;
	CUresult rc;

	if (is_read_only(to, length))
		return CUDA_ERROR_INVALID_VALUE;
	far = calloc(1, sizeof(*far));
	if (!far)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*far = (struct far){on->device, to, from, length, is_pageable(to), is_pageable(from)};
	wait |= far->to_host || far->from_host;
	rc = fake_run(on, run_far, far);
	return rc || !wait ? rc
	                   : fake_error(sl_emulated_stream_synchronize(on->device, on->stream));
}

/* Between memory of the stream's device and the host, or within the device. */
static bool is_near(const struct on *on, const void *to, const void *from)
{
	struct emulated *self = on->ctx->device, *there = device_at(to), *here = device_at(from);

	return (there || here) && (!there || there == self) && (!here || here == self);
}

static CUresult copy(const struct on *on, void *to, const void *from, size_t length, bool wait)
{
	if (!length || on->captured)
		return CUDA_SUCCESS;
	if (is_near(on, to, from))
		return fake_error(sl_emulated_copy(on->device, on->stream, to, from, length, wait));
	return copy_far(on, to, from, length, wait);
}

static CUresult copy_async(enum fake_call call, CUdeviceptr to, CUdeviceptr from, size_t length,
                           CUstream stream)
{
	struct on on;
	CUresult rc = fake_on(call, stream, &on);

	return rc ? rc : copy(&on, (void *)(uintptr_t)to, (void *)(uintptr_t)from, length, false);
}

static CUresult copy_now(enum fake_call call, CUdeviceptr to, CUdeviceptr from, size_t length)
{
	struct on on;
	CUresult rc = fake_on(call, FAKE_LEGACY, &on);

	if (!rc)
		rc = fake_captures();
	return rc ? rc : copy(&on, (void *)(uintptr_t)to, (void *)(uintptr_t)from, length, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t length, CUstream stream)
{
	return copy_async(CALL_cuMemcpyAsync, to, from, length, stream);
}

/* As a batch of the emulated device, which has no order in it; far copies one by one. */
static CUresult copy_batch(const struct on *on, const CUdeviceptr *to, const CUdeviceptr *from,
                           const size_t *lengths, size_t count)
{
	struct sl_command *commands = calloc(count, sizeof(*commands));
	CUresult rc = commands ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	size_t near = 0, taken;

	for (size_t i = count; !rc && i--;) {
		void *there = (void *)(uintptr_t)to[i];
		const void *here = (const void *)(uintptr_t)from[i];

		if (!lengths[i])
			rc = CUDA_ERROR_INVALID_VALUE;
		else if (is_near(on, there, here))
			commands[near++] = (struct sl_command){.kind = SL_COPY,
			                                       .copy = {there, here, lengths[i]}};
		else
			rc = copy_far(on, there, here, lengths[i], false);
	}
	if (!rc)
		rc = fake_error(
			sl_emulated_enqueue(on->device, on->stream, commands, near, &taken));
	free(commands);
	return rc;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *lengths, size_t count,
                            struct CUmemcpyAttributes *attributes, size_t *starts, size_t kinds,
                            size_t *failed, CUstream stream)
{
	struct on on;
	CUresult rc = fake_on(CALL_cuMemcpyBatchAsync, stream, &on);

	*failed = SIZE_MAX;
	if (!rc && on.captured)
		rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!rc && (!count || kinds != 1 || starts[0] ||
	            attributes->source_order != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || !stream ||
	            stream == FAKE_LEGACY))
		rc = CUDA_ERROR_INVALID_VALUE;
	return rc ? rc : copy_batch(&on, to, from, lengths, count);
}

CUresult cuMemcpy2DAsync_v2(const struct CUmemcpy2D *copy, CUstream stream)
{
	CUdeviceptr *to = calloc(2 * copy->height + 1, sizeof(*to)), *from = to + copy->height;
	size_t *lengths = calloc(copy->height + 1, sizeof(*lengths));
	struct on on;
	CUresult rc = fake_on(CALL_cuMemcpy2DAsync_v2, stream, &on);

	if (!rc && on.captured)
		rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!rc && (!to || !lengths))
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	if (!rc &&
	    (copy->from_type != CU_MEMORYTYPE_UNIFIED || copy->to_type != CU_MEMORYTYPE_UNIFIED ||
	     copy->from_pitch < copy->width || copy->to_pitch < copy->width))
		rc = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; !rc && i < copy->height; i++) {
		to[i] = copy->to_device + i * copy->to_pitch;
		from[i] = copy->from_device + i * copy->from_pitch;
		lengths[i] = copy->width;
	}
	if (!rc)
		rc = copy_batch(&on, to, from, lengths, copy->height);
	free(to);
	free(lengths);
	return rc;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t length, CUstream stream)
{
	return copy_async(CALL_cuMemcpyHtoDAsync_v2, to, (uintptr_t)from, length, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t length, CUstream stream)
{
	return copy_async(CALL_cuMemcpyDtoHAsync_v2, (uintptr_t)to, from, length, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t length, CUstream stream)
{
	return copy_async(CALL_cuMemcpyDtoDAsync_v2, to, from, length, stream);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t length)
{
	return copy_now(CALL_cuMemcpy, to, from, length);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t length)
{
	return copy_now(CALL_cuMemcpyHtoD_v2, to, (uintptr_t)from, length);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t length)
{
	return copy_now(CALL_cuMemcpyDtoH_v2, (uintptr_t)to, from, length);
}

/* ------------------------------------------------------------------------------------- memset */

struct fill {
	struct sl_device *device;
	void *to;
	size_t length;
	unsigned char byte;
};

static void run_fill(void *argument)
{
	struct fill *fill = argument;
	void *to = fake_bytes(fill->device, fill->to, fill->length, true);

	if (to)
		memset(to, fill->byte, fill->length);
	free(fill);
}

static CUresult set(enum fake_call call, CUdeviceptr to, unsigned char byte, size_t length,
                    CUstream stream)
{
	struct fill *fill;
	struct on on;
	CUresult rc = fake_on(call, stream, &on);

	if (rc || on.captured || !length)
		return rc;
	if (is_pageable((void *)(uintptr_t)to) || is_read_only((void *)(uintptr_t)to, length))
		return CUDA_ERROR_INVALID_VALUE;
	fill = calloc(1, sizeof(*fill));
	if (!fill)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*fill = (struct fill){on.device, (void *)(uintptr_t)to, length, byte};
	return fake_run(&on, run_fill, fill);
}

/* It does not wait for its end, as the real one. */
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t length)
{
	return set(CALL_cuMemsetD8_v2, to, byte, length, FAKE_LEGACY);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t length, CUstream stream)
{
	return set(CALL_cuMemsetD8Async, to, byte, length, stream);
}
