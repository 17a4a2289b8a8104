/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_common.h"

struct driver cu;
int cuda_number;
struct sl_device *cuda_device;
CUcontext cuda_primaries[2];

int cuda_setup(void **state)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	(void)state;
	assert_non_null(library);
#define FIND(name, arguments)                               \
	*(void **)(void *)&cu.name = dlsym(library, #name); \
	if (!cu.name)                                       \
		fail_msg("the driver has no %s", #name);
	SL_CUDA_FUNCTIONS(FIND)
	TEST_CUDA_FUNCTIONS(FIND)
	FAKE_CUDA_CONTROLS(FIND)
#undef FIND
	assert_int_equal(cu.cuInit(0), 0);
	assert_int_equal(sluice_device_find("cuda", &cuda_number), 0);
	cuda_device = sl_device_find(cuda_number);
	for (int i = 0; i < 2; i++)
		assert_int_equal(cu.cuDevicePrimaryCtxRetain(&cuda_primaries[i], i), 0);
	return 0;
}

unsigned cuda_contexts(CUcontext out[8])
{
	unsigned count = 0;

	while (count < 8 && !cu.cuCtxPopCurrent_v2(&out[count]))
		count++;
	for (unsigned i = count; i-- > 0;)
		assert_int_equal(cu.cuCtxPushCurrent_v2(out[i]), 0);
	return count;
}

void cuda_file_open(struct cuda_file *f)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	char path[] = "cuda_test.XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	f->bytes = malloc(CUDA_FILE_BYTES);
	assert_non_null(f->bytes);
	for (size_t i = 0; i < CUDA_FILE_BYTES; i++)
		f->bytes[i] = (unsigned char)(i * 7 + i / 256);
	assert_int_equal(write(fd, f->bytes, CUDA_FILE_BYTES), CUDA_FILE_BYTES);
	close(fd);
	assert_int_equal(sluice_context_new(NULL, &f->ctx), 0);
	o.flags = SLUICE_OPEN_READ | SLUICE_OPEN_WRITE;
	assert_int_equal(sluice_open(f->ctx, path, &o, &f->file), 0);
	unlink(path);
}

void cuda_file_close(struct cuda_file *f)
{
	assert_int_equal(sluice_close(f->file), 0);
	assert_int_equal(sluice_context_close(f->ctx), 0);
	free(f->bytes);
}

void cuda_moved(sluice_op *op, size_t n)
{
	int64_t got = sluice_wait(op, 60000);

	if (got != (int64_t)n)
		fail_msg("%lld of %zu: %s", (long long)got, n, sluice_op_message(op));
	sluice_op_free(op);
}

uint64_t cuda_calls(const char *function)
{
	uint64_t calls;

	assert_int_equal(cu.cuFakeCalls(function, NULL, &calls), 0);
	return calls;
}

void cuda_copy_apart(sluice_stream stream, bool rows)
{
	enum { COPIES = 100, PART = 48, APART = 64 };
	const int shift = rows ? 0 : APART - PART; /* of every other copy */
	const struct sl_device_ops *ops = cuda_device->ops;
	struct sl_command commands[COPIES];
	unsigned char seen[COPIES * APART], *from;
	void *to, *pinned;
	size_t taken;

	assert_int_equal(sluice_device_alloc(cuda_number, sizeof(seen), &to), 0);
	assert_int_equal(sluice_pinned_alloc(cuda_number, COPIES * PART, &pinned), 0);
	memset(seen, 0, sizeof(seen));
	assert_int_equal(sluice_copy(to, seen, sizeof(seen)), 0);
	from = pinned;
	for (int i = 0; i < COPIES; i++) {
		int place = i == COPIES - 1 ? i - 1 : i;

		memset(from + i * PART, i + 1, PART);
		commands[i] = (struct sl_command){
			SL_COPY, .copy = {(char *)to + place * APART + place % 2 * shift,
		                          from + i * PART, PART}};
	}
	assert_int_equal(ops->enqueue(cuda_device, stream, commands, COPIES, &taken), 0);
	assert_int_equal(taken, COPIES);
	assert_int_equal(ops->stream_synchronize(cuda_device, stream), 0);
	assert_int_equal(sluice_copy(seen, to, sizeof(seen)), 0);
	for (int i = 0; i < COPIES - 1; i++)
		for (int j = 0; j < APART; j++)
			assert_int_equal(seen[i * APART + j],
			                 j < i % 2 * shift || j >= PART + i % 2 * shift ? 0
			                 : i == COPIES - 2                              ? COPIES
			                                                                : i + 1);
	assert_int_equal(sluice_pinned_free(pinned), 0);
	assert_int_equal(sluice_device_free(to), 0);
}
