/* SPDX-License-Identifier: Apache-2.0 */
/* That the fake driver behaves as a real one where tests rely on it. No call of sluice is in here. */
#include <pthread.h>
#include <time.h>

#include "device/cuda_common.h"

#define FAKE_TEST(name) TEST_OF(struct fake_test *t, name, setup, teardown, NULL)

#define LENGTH  ((size_t)4096)
#define LOOK_MS 50

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
			  ".visible .entry sluice_scribble(.param .u64 a)\n{\n}\n"
			  ".visible .entry sluice_match_all(.param .u64 a)\n{\n}\n"
			  ".visible .entry sluice_spin(.param .u64 a)\n{\n}\n";

struct fake_test {
	CUstream stream, other;
	CUdeviceptr memory;
	unsigned char *pinned; /* the first bytes are a word */
	_Atomic uint32_t *word;
};

static int setup(void **state)
{
	struct fake_test *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	assert_int_equal(cu.cuCtxSetCurrent(cuda_primaries[0]), 0);
	assert_int_equal(cu.cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(cu.cuStreamCreate(&t->other, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(cu.cuMemAlloc_v2(&t->memory, LENGTH), 0);
	assert_int_equal(cu.cuMemHostAlloc((void **)&t->pinned, LENGTH, 0), 0);
	t->word = (_Atomic uint32_t *)(void *)t->pinned;
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct fake_test *t = *state;

	assert_int_equal(cu.cuCtxSynchronize(), 0);
	assert_int_equal(cu.cuMemFreeHost(t->pinned), 0);
	assert_int_equal(cu.cuMemFree_v2(t->memory), 0);
	assert_int_equal(cu.cuStreamDestroy_v2(t->other), 0);
	assert_int_equal(cu.cuStreamDestroy_v2(t->stream), 0);
	free(t);
	return 0;
}

static void hold(struct fake_test *t, CUstream stream)
{
	assert_int_equal(cu.cuStreamWaitValue32_v2(stream, (uintptr_t)t->word, 1, 0), 0);
}

static void let_go(struct fake_test *t)
{
	atomic_store(t->word, 1);
}

static void look(void)
{
	struct timespec pause = {0, LOOK_MS * 1000000};

	nanosleep(&pause, NULL);
}

/* ------------------------------------------------------------------------------------- kernels */

FAKE_TEST(kernels_are_those_that_the_ptx_names)
{
	CUfunction function;
	CUmodule module;
	uint64_t n = 16;
	uint32_t byte = 9;
	void *parameters[] = {&t->memory, &n, &byte};

	assert_int_equal(cu.cuModuleLoadData(&module, "nothing"), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(cu.cuModuleLoadData(&module, ptx), 0);
	assert_int_equal(cu.cuModuleGetFunction(&function, module, "sluice_fill"),
	                 CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cu.cuModuleGetFunction(&function, module, "sluice_match"),
	                 CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cu.cuModuleGetFunction(&function, module, "sluice_scribble"), 0);
	/* The parameters are those of the launch. */
	assert_int_equal(cu.cuMemsetD8Async(t->memory, 1, LENGTH, t->stream), 0);
	hold(t, t->stream);
	assert_int_equal(
		cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, t->stream, parameters, NULL), 0);
	n = byte = 0;
	let_go(t);
	assert_int_equal(cu.cuMemcpyDtoHAsync_v2(t->pinned + 64, t->memory, 17, t->stream), 0);
	assert_int_equal(cu.cuStreamSynchronize(t->stream), 0);
	assert_int_equal(t->pinned[64 + 15], 9);
	assert_int_equal(t->pinned[64 + 16], 1);
	assert_int_equal(
		cu.cuLaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, t->stream, parameters, NULL),
		CUDA_ERROR_INVALID_VALUE);
	/* In a context that is not the stream's. */
	assert_int_equal(cu.cuCtxSetCurrent(cuda_primaries[1]), 0);
	assert_int_equal(
		cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, t->stream, parameters, NULL),
		CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cu.cuCtxSetCurrent(cuda_primaries[0]), 0);
	assert_int_equal(cu.cuModuleUnload(module), 0);
}

FAKE_TEST(a_kernel_at_a_wrong_address_ends_the_device)
{
	uint64_t n = LENGTH + 1;
	uint32_t byte = 9;
	void *parameters[] = {&t->memory, &n, &byte};
	CUfunction function;
	CUmodule module;

	assert_int_equal(cu.cuModuleLoadData(&module, ptx), 0);
	assert_int_equal(cu.cuModuleGetFunction(&function, module, "sluice_scribble"), 0);
	assert_int_equal(
		cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, t->stream, parameters, NULL), 0);
	assert_int_equal(cu.cuStreamSynchronize(t->stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(cu.cuStreamQuery(t->other), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(cu.cuFakeLose(0, 0), 0);
	assert_int_equal(cu.cuModuleUnload(module), 0);
}

/* -------------------------------------------------------------------------------------- events */

FAKE_TEST(an_event_of_one_device_is_awaited_on_the_other)
{
	CUstream there;
	CUevent event;

	assert_int_equal(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
	hold(t, t->stream);
	assert_int_equal(cu.cuEventRecord(event, t->stream), 0);
	assert_int_equal(cu.cuCtxSetCurrent(cuda_primaries[1]), 0);
	assert_int_equal(cu.cuStreamCreate(&there, 0), 0);
	assert_int_equal(cu.cuEventRecord(event, there), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cu.cuStreamWaitEvent(there, event, 0), 0);
	look();
	assert_int_equal(cu.cuStreamQuery(there), CUDA_ERROR_NOT_READY);
	assert_int_equal(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
	let_go(t);
	assert_int_equal(cu.cuStreamSynchronize(there), 0);
	assert_int_equal(cu.cuEventQuery(event), 0);
	assert_int_equal(cu.cuStreamDestroy_v2(there), 0);
	assert_int_equal(cu.cuCtxSetCurrent(cuda_primaries[0]), 0);
	assert_int_equal(cu.cuEventDestroy_v2(event), 0);
}

FAKE_TEST(events_tell_the_time_between_them)
{
	uint64_t nanoseconds = 3000000;
	void *parameters[] = {&nanoseconds};
	CUevent from, to, timeless;
	CUfunction function;
	CUmodule module;
	float ms = 0;

	assert_int_equal(cu.cuModuleLoadData(&module, ptx), 0);
	assert_int_equal(cu.cuModuleGetFunction(&function, module, "sluice_spin"), 0);
	assert_int_equal(cu.cuEventCreate(&from, 0), 0);
	assert_int_equal(cu.cuEventCreate(&to, 0), 0);
	assert_int_equal(cu.cuEventCreate(&timeless, CU_EVENT_DISABLE_TIMING), 0);
	assert_int_equal(cu.cuEventRecord(from, t->stream), 0);
	assert_int_equal(
		cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, t->stream, parameters, NULL), 0);
	assert_int_equal(cu.cuEventElapsedTime(&ms, from, to), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cu.cuEventRecord(to, t->stream), 0);
	assert_int_equal(cu.cuEventRecord(timeless, t->stream), 0);
	assert_int_equal(cu.cuEventSynchronize(to), 0);
	assert_int_equal(cu.cuEventElapsedTime(&ms, from, to), 0);
	assert_true(ms >= 3);
	assert_int_equal(cu.cuEventElapsedTime(&ms, from, timeless), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cu.cuEventDestroy_v2(from), 0);
	assert_int_equal(cu.cuEventDestroy_v2(to), 0);
	assert_int_equal(cu.cuEventDestroy_v2(timeless), 0);
	assert_int_equal(cu.cuModuleUnload(module), 0);
}

/* ------------------------------------------------------------------------------------- streams */

FAKE_TEST(the_default_stream_comes_after_blocking_streams)
{
	CUstream blocking;

	assert_int_equal(cu.cuStreamCreate(&blocking, 0), 0);
	hold(t, blocking);
	assert_int_equal(cu.cuMemsetD8_v2(t->memory, 1, LENGTH), 0);
	assert_int_equal(cu.cuMemsetD8Async(t->memory, 2, LENGTH, t->stream), 0);
	assert_int_equal(cu.cuStreamSynchronize(t->stream), 0);
	look();
	assert_int_equal(cu.cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	let_go(t);
	assert_int_equal(cu.cuMemcpyDtoH_v2(t->pinned + 64, t->memory, 1), 0);
	assert_int_equal(t->pinned[64], 1);
	/* And what such a stream is given later comes after it. */
	atomic_store(t->word, 0);
	hold(t, NULL);
	assert_int_equal(cu.cuMemsetD8Async(t->memory, 3, LENGTH, blocking), 0);
	look();
	assert_int_equal(cu.cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
	let_go(t);
	assert_int_equal(cu.cuStreamSynchronize(blocking), 0);
	assert_int_equal(cu.cuStreamDestroy_v2(blocking), 0);
}

FAKE_TEST(call_without_its_context_is_refused)
{
	CUstream stream;
	CUevent event;
	CUdeviceptr memory;
	CUcontext ctx;
	int n;

	assert_int_equal(cu.cuCtxSetCurrent(NULL), 0);
	assert_int_equal(cu.cuCtxGetCurrent(&ctx), 0);
	assert_null(ctx);
	assert_int_equal(cu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuMemFree_v2(t->memory), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuStreamQuery(t->stream), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuCtxGetDevice(&n), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuCtxPopCurrent_v2(&ctx), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuStreamGetCtx(NULL, &ctx), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuStreamGetCtx(t->stream, &ctx), 0);
	assert_ptr_equal(ctx, cuda_primaries[0]);
	assert_int_equal(cu.cuCtxPushCurrent_v2((CUcontext)(void *)t), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu.cuCtxSetCurrent(cuda_primaries[0]), 0);
}

/* -------------------------------------------------------------------------------------- memory */

/* A call on a thread of its own, in the context of the first device. */
struct call {
	CUresult (*run)(struct fake_test *t);
	struct fake_test *t;
	pthread_t thread;
	_Atomic bool over;
	CUresult result;
};

static void *call_run(void *argument)
{
	struct call *call = argument;

	call->result = cu.cuCtxSetCurrent(cuda_primaries[0]);
	if (!call->result)
		call->result = call->run(call->t);
	atomic_store(&call->over, true);
	return NULL;
}

static void call_start(struct call *call, struct fake_test *t, CUresult (*run)(struct fake_test *))
{
	*call = (struct call){.run = run, .t = t};
	assert_int_equal(pthread_create(&call->thread, NULL, call_run, call), 0);
	look();
}

static void call_end(struct call *call)
{
	assert_int_equal(pthread_join(call->thread, NULL), 0);
	assert_int_equal(call->result, 0);
}

static CUresult call_free(struct fake_test *t)
{
	CUdeviceptr memory = t->memory;

	return cu.cuMemFree_v2(memory);
}

static CUresult call_alloc(struct fake_test *t)
{
	return cu.cuMemAlloc_v2(&t->memory, LENGTH);
}

static CUresult call_alloc_async(struct fake_test *t)
{
	CUdeviceptr memory;
	CUresult rc = cu.cuMemAllocAsync(&memory, LENGTH, t->other);

	return rc ? rc : cu.cuMemFreeAsync(memory, t->other);
}

FAKE_TEST(calls_are_held_up_by_one_that_frees_as_by_a_real_driver)
{
	struct call freeing, allocating, asking;

	assert_int_equal(call_alloc_async(t), 0);
	hold(t, t->stream);
	call_start(&freeing, t, call_free);
	assert_false(atomic_load(&freeing.over));
	call_start(&allocating, t, call_alloc);
	assert_false(atomic_load(&allocating.over));
	call_start(&asking, t, call_alloc_async);
	call_end(&asking);
	assert_int_equal(cu.cuStreamQuery(t->stream), CUDA_ERROR_NOT_READY);
	let_go(t);
	call_end(&freeing);
	call_end(&allocating);
}

FAKE_TEST(freed_memory_of_a_stream_is_used_again_when_the_stream_has_come_to_it)
{
	CUdeviceptr first, second, third;

	assert_int_equal(cu.cuMemAllocAsync(&first, LENGTH, t->stream), 0);
	hold(t, t->stream);
	assert_int_equal(cu.cuMemFreeAsync(first, t->stream), 0);
	assert_int_equal(cu.cuMemAllocAsync(&second, LENGTH, t->other), 0);
	assert_true(second != first);
	let_go(t);
	assert_int_equal(cu.cuStreamSynchronize(t->stream), 0);
	assert_int_equal(cu.cuMemAllocAsync(&third, LENGTH, t->other), 0);
	assert_true(third == first);
	assert_int_equal(cu.cuMemFreeAsync(first, t->other), 0);
	assert_int_equal(cu.cuMemFreeAsync(first, t->other), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemFree_v2(second), 0);
}

FAKE_TEST(unknown_attribute_of_the_driver_is_no_error)
{
	int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
	unsigned type = 77, managed = 77;
	void *values[] = {&type, &managed};
	uintptr_t here = (uintptr_t)&type;

	assert_int_equal(cu.cuPointerGetAttributes(2, attributes, values, here), 0);
	assert_int_equal(type, 0);
	assert_int_equal(managed, 0);
	assert_int_equal(cu.cuPointerGetAttribute(&type, attributes[0], here),
	                 CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
	return RUN_TESTS(cuda_setup, NULL);
}
