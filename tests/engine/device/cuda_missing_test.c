/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left where CUDA's driver is not there, too old, broken, not used by the program, or without what
 * stream order needs. usage: unit_cuda_missing WHAT, with a library path and an environment to match.
 */
#include <dlfcn.h>

#include "device/cuda_api.h"
#include "device/cuda_common.h"

static bool is_loaded(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	return library;
}

/* No device, the reason, and everything else goes on. */
static void assert_missing(const char *why)
{
	struct cuda_file f;
	sluice_op *op;
	void *memory;
	int number;

	assert_int_equal(sluice_device_find("cuda", &number), -ENODEV);
	assert_null(sl_cuda_driver());
	assert_null(sl_cuda_api_in_use());
	assert_string_equal(sl_cuda_api_missing(), why);
	cuda_file_open(&f);
	assert_int_equal(sluice_device_find("emulated", &number), 0);
	assert_int_equal(sluice_device_alloc(number, CUDA_FILE_BYTES, &memory), 0);
	assert_int_equal(sluice_read_on(f.file, memory, CUDA_FILE_BYTES, 0, NULL, &op), 0);
	cuda_moved(op, CUDA_FILE_BYTES);
	assert_int_equal(sluice_device_free(memory), 0);
	cuda_file_close(&f);
}

static void without_a_driver_there_is_no_device(void **state)
{
	(void)state;
	assert_missing("libcuda.so.1 cannot be loaded");
}

static void a_driver_without_a_function_is_not_used(void **state)
{
	(void)state;
	assert_missing("libcuda.so.1 has no cuStreamWaitValue32_v2: it is older than CUDA 12.0");
	assert_true(is_loaded());
}

static void a_driver_that_does_not_start_is_not_used(void **state)
{
	(void)state;
	assert_missing("cuInit() says 100");
}

static bool is_retained(CUdevice ordinal)
{
	CUresult (*state_of)(CUdevice, unsigned *, int *);
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	unsigned flags;
	int active = -1;

	*(void **)(void *)&state_of = dlsym(library, "cuDevicePrimaryCtxGetState");
	assert_int_equal(state_of(ordinal, &flags, &active), 0);
	dlclose(library);
	return active;
}

static void only_the_gpu_that_is_asked_for_gets_a_context(void **state)
{
	struct sluice_device d = {.size = sizeof(d)};
	int first, second, number;
	void *memory;

	(void)state;
	assert_int_equal(sluice_device_find("cuda:9", &number), -ENODEV);
	assert_false(is_retained(0) || is_retained(1));
	assert_int_equal(sluice_device_find("cuda:1", &second), 0);
	assert_int_equal(sluice_device_alloc(second, CUDA_FILE_BYTES, &memory), 0);
	assert_int_equal(sluice_device_of(memory), second);
	assert_int_equal(sluice_device_free(memory), 0);
	assert_true(is_retained(1));
	/* Nor does it need one to say which it is. */
	assert_string_equal(sl_device_place(sl_device_find((unsigned)second - 1)), "0000:fa:00.0");
	assert_false(is_retained(0));
	assert_int_equal(sluice_device_find("device", &first), 0);
	assert_true(is_retained(0));
	assert_int_equal(sluice_device_describe(first, &d), 0);
	assert_string_equal(d.name, "cuda:0");
}

/* It keeps its number, it is said, and the others go on. It may work later. */
static void a_gpu_that_cannot_be_used_is_refused(void **state)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	struct sluice_device d = {.size = sizeof(d)};
	CUresult (*refuse)(const char *, uint64_t, CUresult);
	int number;

	(void)state;
	assert_non_null(library);
	*(void **)(void *)&refuse = dlsym(library, "cuFakeFail");
	assert_int_equal(refuse("cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
	assert_int_equal(sluice_device_find("cuda:0", &number), -ENODEV);
	assert_string_equal(sluice_last_message(),
	                    "cuda:0 cannot be used: cuDevicePrimaryCtxRetain() says 2");
	assert_int_equal(sluice_device_find("cuda:1", &number), 0);
	assert_int_equal(refuse("cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
	assert_int_equal(sluice_device_describe(number - 1, &d), -ENOMEM);
	assert_string_equal(sluice_last_message(),
	                    "cuda:0 cannot be used: cuDevicePrimaryCtxRetain() says 2");
	assert_int_equal(sluice_device_describe(number, &d), 0);
	assert_string_equal(d.name, "cuda:1");
	assert_int_equal(sluice_device_find("cuda:0", &number), 0);
	dlclose(library);
}

static void driver_is_not_loaded_for_host_memory(void **state)
{
	struct cuda_file f;
	unsigned char *here = malloc(CUDA_FILE_BYTES);
	CUdeviceptr memory;
	sluice_op *op;

	cuda_file_open(&f);
	assert_int_equal(sluice_read(f.file, here, CUDA_FILE_BYTES, 0, &op), 0);
	cuda_moved(op, CUDA_FILE_BYTES);
	assert_int_equal(sluice_device_of(here), -1);
	assert_int_equal(sluice_device_free(here), -EINVAL);
	assert_int_equal(sluice_copy(here, f.bytes, CUDA_FILE_BYTES), 0);
	assert_false(is_loaded());
	/* Once the program itself has one, it is asked. */
	cuda_setup(state);
	assert_int_equal(cu.cuCtxPushCurrent_v2(cuda_primaries[0]), 0);
	assert_int_equal(cu.cuMemAlloc_v2(&memory, CUDA_FILE_BYTES), 0);
	assert_int_equal(sluice_device_of((void *)(uintptr_t)memory), cuda_number);
	assert_int_equal(sluice_device_of(here), -1);
	assert_int_equal(sluice_read(f.file, (void *)(uintptr_t)memory, CUDA_FILE_BYTES, 0, &op),
	                 0);
	cuda_moved(op, CUDA_FILE_BYTES);
	assert_int_equal(cu.cuMemFree_v2(memory), 0);
	cuda_file_close(&f);
	free(here);
}

static void without_words_there_is_host_order_only(void **state)
{
	struct sluice_device d = {.size = sizeof(d)};
	unsigned char *back = malloc(CUDA_FILE_BYTES);
	sluice_stream stream;
	struct cuda_file f;
	sluice_op *op;
	void *memory;

	cuda_setup(state);
	cuda_file_open(&f);
	assert_int_equal(sluice_device_describe(cuda_number, &d), 0);
	assert_int_equal(d.stream_order, 0);
	assert_int_equal(sluice_device_alloc(cuda_number, CUDA_FILE_BYTES, &memory), 0);
	assert_int_equal(sluice_stream_new(cuda_number, &stream), 0);
	assert_int_equal(sluice_read_on(f.file, memory, 64, 0, stream, &op), -ENOTSUP);
	assert_string_equal(sluice_last_message(),
	                    "cuda:0 has no stream order: its memory operations are missing");
	assert_int_equal(sluice_read(f.file, memory, CUDA_FILE_BYTES, 0, &op), 0);
	cuda_moved(op, CUDA_FILE_BYTES);
	assert_int_equal(sluice_copy(back, memory, CUDA_FILE_BYTES), 0);
	assert_memory_equal(back, f.bytes, CUDA_FILE_BYTES);
	assert_int_equal(sluice_stream_free(stream), 0);
	assert_int_equal(sluice_device_free(memory), 0);
	cuda_file_close(&f);
	free(back);
}

static void where_no_descriptors_are_memory_is_not_shared(void **state)
{
	void *memory;

	cuda_setup(state);
	assert_null(cuda_device->sharing);
	assert_int_equal(sluice_device_alloc(cuda_number, 64, &memory), 0);
	assert_int_equal(sluice_device_free(memory), 0);
}

static void without_batches_each_copy_is_a_call(void **state)
{
	sluice_stream stream;

	cuda_setup(state);
	assert_null(sl_cuda_driver()->cuMemcpyBatchAsync);
	assert_int_equal(sluice_stream_new(cuda_number, &stream), 0);
	assert_false(cuda_device->ops->joins(cuda_device, stream));
	cuda_copy_apart(stream, false);
	assert_true(cuda_calls("cuMemcpyAsync") >= 100);
	assert_int_equal(cuda_calls("cuMemcpyBatchAsync"), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
}

static const struct {
	const char *what;
	struct CMUnitTest test;
} cases[] = {
	{"none", cmocka_unit_test(without_a_driver_there_is_no_device)},
	{"old", cmocka_unit_test(a_driver_without_a_function_is_not_used)},
	{"broken", cmocka_unit_test(a_driver_that_does_not_start_is_not_used)},
	{"one", cmocka_unit_test(a_gpu_that_cannot_be_used_is_refused)},
	{"asked", cmocka_unit_test(only_the_gpu_that_is_asked_for_gets_a_context)},
	{"unused", cmocka_unit_test(driver_is_not_loaded_for_host_memory)},
	{"wordless", cmocka_unit_test(without_words_there_is_host_order_only)},
	{"batchless", cmocka_unit_test(without_batches_each_copy_is_a_call)},
	{"unshared", cmocka_unit_test(where_no_descriptors_are_memory_is_not_shared)},
};

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "none") && dlopen("libcuda.so.1", RTLD_NOW)) {
		printf("skipped: this machine has a driver of CUDA\n");
		return 77;
	}
	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct CMUnitTest tests[] = {cases[i].test};

		if (!strcmp(cases[i].what, argv[1]))
			return cmocka_run_group_tests(tests, NULL, NULL);
	}
	fprintf(stderr,
	        "usage: unit_cuda_missing none|old|broken|one|asked|unused|wordless|unshared\n");
	return 2;
}
