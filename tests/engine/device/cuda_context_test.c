/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, devices and errors of CUDA's driver, and what sluice makes of them: over the fake driver. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "device/cuda_common.h"

#define LENGTH ((size_t)1 << 20)

/* ------------------------------------------------------------------------- every driver call */

/* What the functions of the device work on. */
struct things {
	void *memory, *pages;
	sluice_stream stream;
	sluice_event event;
	char here[64];
};

static const struct sl_device_ops *ops(void)
{
	return cuda_device->ops;
}

static void things_make(struct things *t)
{
	assert_int_equal(ops()->alloc(cuda_device, LENGTH, &t->memory), 0);
	t->pages = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(ops()->register_memory(cuda_device, t->pages, LENGTH), 0);
	assert_int_equal(ops()->stream_new(cuda_device, &t->stream), 0);
	assert_int_equal(ops()->event_new(cuda_device, &t->event), 0);
}

static void things_free(struct things *t)
{
	assert_int_equal(ops()->event_free(cuda_device, t->event), 0);
	assert_int_equal(ops()->stream_free(cuda_device, t->stream), 0);
	assert_int_equal(ops()->unregister_memory(cuda_device, t->pages), 0);
	assert_int_equal(ops()->free(cuda_device, t->memory), 0);
	munmap(t->pages, LENGTH);
}

static int call_all(struct things *t, sluice_stream stream)
{
	struct sl_command commands[] = {
		{SL_AWAIT_WORD, .word = {t->pages, 0}},
		{SL_COPY, .copy = {t->memory, t->pages, 64}},
		{SL_WRITE_WORD, .word = {t->pages, 1}},
		{SL_WRITE_WORD, .word = {t->pages, 2}},
	};
	struct sluice_device description;
	size_t taken;

	assert_int_equal(ops()->describe(cuda_device, &description), 0);
	assert_true(ops()->registered(cuda_device, t->pages, LENGTH));
	assert_int_equal(ops()->stream_check(cuda_device, stream), 0);
	assert_int_equal(ops()->enqueue(cuda_device, stream, commands, 4, &taken), 0);
	assert_int_equal(ops()->copy(cuda_device, stream, t->here, t->memory, 64, true), 0);
	assert_int_equal(ops()->event_record(cuda_device, t->event, stream), 0);
	assert_int_equal(ops()->event_await(cuda_device, t->event, stream), 0);
	assert_int_equal(ops()->event_synchronize(cuda_device, t->event), 0);
	assert_int_equal(ops()->event_query(cuda_device, t->event), 1);
	assert_int_equal(ops()->stream_synchronize(cuda_device, stream), 0);
	assert_int_equal(ops()->stream_query(cuda_device, stream), 1);
	assert_int_equal(ops()->status(cuda_device), 0);
	return sluice_device_of(t->memory);
}

/* A stack of that many contexts: none, of the device, of the other one and a second one of this. */
static void with_contexts(unsigned depth, CUcontext second, void (*run)(void))
{
	CUcontext stack[] = {cuda_primaries[1], second, cuda_primaries[1]}, before[8], after[8];

	for (unsigned i = 0; i < depth; i++)
		assert_int_equal(cu.cuCtxPushCurrent_v2(stack[i]), 0);
	assert_int_equal(cuda_contexts(before), depth);
	run();
	assert_int_equal(cuda_contexts(after), depth);
	assert_memory_equal(before, after, depth * sizeof(before[0]));
	for (unsigned i = 0; i < depth; i++)
		assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
}

static void use_everything(void)
{
	struct things t;

	things_make(&t);
	for (uintptr_t common = 0; common <= 2; common++)
		assert_int_equal(call_all(&t, (sluice_stream)common), cuda_number);
	assert_int_equal(call_all(&t, t.stream), cuda_number);
	things_free(&t);
}

static void fail_everything(void)
{
	sluice_stream wrong = (sluice_stream)(void *)&cuda_number;
	struct things t;

	things_make(&t);
	assert_int_equal(ops()->stream_query(cuda_device, wrong), -EINVAL);
	assert_int_equal(ops()->stream_synchronize(cuda_device, wrong), -EINVAL);
	assert_int_equal(ops()->stream_check(cuda_device, wrong), -EINVAL);
	assert_int_equal(ops()->copy(cuda_device, wrong, t.memory, t.here, 4, true), -EINVAL);
	assert_int_equal(ops()->free(cuda_device, (char *)t.memory + 1), -EINVAL);
	assert_int_equal(ops()->unregister_memory(cuda_device, t.here), -EINVAL);
	assert_int_equal(ops()->register_memory(cuda_device, t.pages, LENGTH), -EEXIST);
	assert_int_equal(ops()->alloc(cuda_device, SIZE_MAX / 2, &t.memory), -ENOMEM);
	assert_int_equal(sluice_stream_query(cuda_number, wrong), -EINVAL);
	things_free(&t);
}

TEST(no_call_changes_the_contexts_of_its_thread)
{
	CUcontext second, popped;

	assert_int_equal(cu.cuCtxCreate_v2(&second, 0, 0), 0);
	assert_int_equal(cu.cuCtxPopCurrent_v2(&popped), 0);
	for (unsigned depth = 0; depth <= 3; depth++) {
		with_contexts(depth, second, use_everything);
		with_contexts(depth, second, fail_everything);
	}
	assert_int_equal(cu.cuCtxDestroy_v2(second), 0);
}

/* -------------------------------------------------------------------------- whose context it is */

static CUcontext context_of(const char *function)
{
	CUcontext ctx;

	assert_int_equal(cu.cuFakeContext(function, &ctx), 0);
	return ctx;
}

/* A second context of a device, not current, with a stream of it. */
static CUcontext second_context(CUdevice device, sluice_stream *stream)
{
	CUcontext ctx;

	assert_int_equal(cu.cuCtxCreate_v2(&ctx, 0, device), 0);
	assert_int_equal(cu.cuStreamCreate((CUstream *)stream, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	return ctx;
}

static void end_context(CUcontext ctx, sluice_stream stream)
{
	assert_int_equal(sluice_stream_free(stream), 0);
	assert_int_equal(cu.cuCtxDestroy_v2(ctx), 0);
}

TEST(an_operation_is_done_in_the_context_of_its_stream)
{
	struct cuda_file f;
	sluice_stream stream;
	CUcontext second;
	sluice_op *op;
	void *memory;
	char *back;

	cuda_file_open(&f);
	back = malloc(CUDA_FILE_BYTES);
	second = second_context(0, &stream);
	assert_int_equal(sluice_device_alloc(cuda_number, CUDA_FILE_BYTES, &memory), 0);
	assert_ptr_equal(context_of("cuMemAlloc_v2"), cuda_primaries[0]);
	/* The copier looks at a stream of its own when it begins. */
	assert_int_equal(sluice_context_staging(f.ctx, cuda_number, NULL, 0), 0);
	assert_int_equal(sluice_read_on(f.file, memory, CUDA_FILE_BYTES, 0, stream, &op), 0);
	assert_ptr_equal(context_of("cuStreamIsCapturing"), second);
	assert_ptr_equal(context_of("cuMemcpyAsync"), second);
	assert_int_equal(sluice_stream_synchronize(cuda_number, stream), 0);
	assert_ptr_equal(context_of("cuStreamSynchronize"), second);
	cuda_moved(op, CUDA_FILE_BYTES);
	assert_int_equal(sluice_copy(back, memory, CUDA_FILE_BYTES), 0);
	assert_memory_equal(back, f.bytes, CUDA_FILE_BYTES);
	assert_int_equal(sluice_device_free(memory), 0);
	end_context(second, stream);
	cuda_file_close(&f);
	free(back);
}

/* A default stream is of every context: the caller's, if it is of the device of the memory. */
TEST(a_default_stream_is_that_of_the_current_context)
{
	char here[16] = "";
	sluice_stream stream;
	CUcontext second;
	void *memory;

	second = second_context(0, &stream);
	assert_int_equal(sluice_device_alloc(cuda_number, LENGTH, &memory), 0);
	for (uintptr_t common = 0; common <= 2; common++) {
		assert_int_equal(sluice_copy_on(memory, here, 16, (sluice_stream)common), 0);
		assert_ptr_equal(context_of("cuMemcpyAsync"), cuda_primaries[0]);
		cu.cuCtxPushCurrent_v2(second);
		assert_int_equal(sluice_copy_on(memory, here, 16, (sluice_stream)common), 0);
		assert_ptr_equal(context_of("cuMemcpyAsync"), second);
		/* What is current is of the other device. */
		cu.cuCtxPushCurrent_v2(cuda_primaries[1]);
		assert_int_equal(sluice_copy_on(memory, here, 16, (sluice_stream)common), 0);
		assert_ptr_equal(context_of("cuMemcpyAsync"), cuda_primaries[0]);
		cu.cuCtxPopCurrent_v2(NULL);
		cu.cuCtxPopCurrent_v2(NULL);
	}
	assert_int_equal(sluice_device_free(memory), 0);
	end_context(second, stream);
}

/* ------------------------------------------------------------------------------------- devices */

TEST(each_device_has_its_number_and_says_what_it_is)
{
	struct sluice_device d = {.size = sizeof(d)};
	int number;

	assert_int_equal(sluice_device_find("cuda:1", &number), 0);
	assert_int_equal(number, cuda_number + 1);
	assert_int_equal(sluice_device_find("cuda:2", &number), -ENODEV);
	assert_int_equal(sluice_device_describe(number, &d), 0);
	assert_string_equal(d.name, "cuda:1");
	assert_string_equal(d.detail, "Fake GPU, compute capability 9.0");
	assert_int_equal(strncmp(d.driver, "CUDA 13.0", 9), 0);
	assert_string_equal(d.pci, "0000:fb:00.0");
	assert_int_equal(d.real, 1);
	assert_int_equal(d.memory_bytes, UINT64_C(16) << 30);
	assert_int_equal(d.stream_order, 1);
}

TEST(a_stream_leads_to_its_device)
{
	sluice_stream stream;
	void *memory;
	char here[4];

	assert_int_equal(sluice_stream_new(cuda_number + 1, &stream), 0);
	assert_int_equal(sluice_stream_query(cuda_number + 1, stream), 1);
	assert_int_equal(sluice_stream_query(cuda_number, stream), -EINVAL);
	assert_int_equal(sluice_device_alloc(cuda_number + 1, 4, &memory), 0);
	assert_int_equal(sluice_copy_on(memory, here, 4, stream), 0);
	assert_ptr_equal(context_of("cuMemcpyAsync"), cuda_primaries[1]);
	assert_int_equal(sluice_stream_synchronize(cuda_number + 1, stream), 0);
	assert_int_equal(sluice_device_free(memory), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
}

TEST(memory_and_stream_of_two_devices_are_refused)
{
	struct cuda_file f;
	sluice_stream stream;
	sluice_op *op;
	void *memory;

	cuda_file_open(&f);
	assert_int_equal(sluice_stream_new(cuda_number + 1, &stream), 0);
	assert_int_equal(sluice_device_alloc(cuda_number, 4096, &memory), 0);
	assert_int_equal(sluice_read_on(f.file, memory, 4096, 0, stream, &op), -EINVAL);
	assert_non_null(strstr(sluice_last_message(), "cuda:0"));
	assert_non_null(strstr(sluice_last_message(), "cuda:1"));
	assert_int_equal(sluice_device_free(memory), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
	cuda_file_close(&f);
}

/* The driver copies between devices, whatever the stream. */
TEST(bytes_go_from_device_to_device)
{
	void *first, *second;
	char to[64] = "", from[64];

	memset(from, 5, sizeof(from));
	assert_int_equal(sluice_device_alloc(cuda_number, 64, &first), 0);
	assert_int_equal(sluice_device_alloc(cuda_number + 1, 64, &second), 0);
	assert_int_equal(sluice_copy(first, from, 64), 0);
	assert_int_equal(sluice_copy(second, first, 64), 0);
	assert_int_equal(sluice_copy(to, second, 64), 0);
	assert_memory_equal(to, from, 64);
	assert_int_equal(sluice_device_free(first), 0);
	assert_int_equal(sluice_device_free(second), 0);
}

/* -------------------------------------------------------------------------------------- errors */

TEST(an_error_of_the_driver_becomes_an_errno)
{
	static const struct {
		CUresult error;
		int rc;
	} errors[] = {
		{CUDA_ERROR_INVALID_VALUE, -EINVAL},
		{CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
		{CUDA_ERROR_NOT_SUPPORTED, -ENOTSUP},
		{CUDA_ERROR_INVALID_HANDLE, -EINVAL},
		{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, -EEXIST},
		{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, -EINVAL},
		{CUDA_ERROR_ILLEGAL_ADDRESS, -EFAULT},
		{CUDA_ERROR_LAUNCH_FAILED, -EIO},
		{999, -EIO},
	};
	void *memory;

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		assert_int_equal(cu.cuFakeFail("cuMemAlloc_v2", 1, errors[i].error), 0);
		assert_int_equal(ops()->alloc(cuda_device, 64, &memory), errors[i].rc);
		assert_int_equal(cu.cuFakeFail("cuStreamQuery", 1, errors[i].error), 0);
		assert_int_equal(ops()->status(cuda_device), errors[i].rc);
	}
	assert_int_equal(ops()->status(cuda_device), 0);
}

/* The driver refuses a command in the middle: those before it are taken. */
TEST(it_is_told_how_many_commands_a_stream_took)
{
	uint64_t before, after;
	struct things t;
	size_t taken;

	things_make(&t);
	struct sl_command commands[] = {
		{SL_WRITE_WORD, .word = {t.pages, 1}},
		{SL_COPY, .copy = {t.memory, t.pages, 64}},
		{SL_WRITE_WORD, .word = {t.pages, 2}},
		{SL_WRITE_WORD, .word = {t.pages, 3}},
		{SL_COPY, .copy = {t.memory, t.pages, 64}},
	};
	static const struct {
		const char *function;
		uint64_t n;
		size_t taken;
	} cases[] = {{"cuStreamWriteValue32_v2", 1, 0},
	             {"cuMemcpyAsync", 1, 1},
	             {"cuStreamBatchMemOp_v2", 1, 2},
	             {"cuMemcpyAsync", 2, 4},
	             {"cuMemcpyAsync", 3, 5}};
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(cu.cuFakeFail(cases[i].function, cases[i].n, 999), 0);
		assert_int_equal(ops()->enqueue(cuda_device, t.stream, commands, 5, &taken),
		                 cases[i].taken == 5 ? 0 : -EIO);
		assert_int_equal(taken, cases[i].taken);
		assert_int_equal(ops()->stream_synchronize(cuda_device, t.stream), 0);
	}
	cu.cuFakeFail("cuMemcpyAsync", 0, 0);
	/* None is given twice. */
	assert_int_equal(cu.cuFakeCalls("cuStreamWriteValue32_v2", NULL, &before), 0);
	assert_int_equal(ops()->enqueue(cuda_device, t.stream, commands, 5, &taken), 0);
	assert_int_equal(cu.cuFakeCalls("cuStreamWriteValue32_v2", NULL, &after), 0);
	assert_int_equal(after - before, 1);
	things_free(&t);
}

TEST(a_lost_device_fails_what_is_in_flight)
{
	struct cuda_file f;
	sluice_stream stream;
	sluice_op *op;
	void *memory, *word;

	cuda_file_open(&f);
	assert_int_equal(sluice_device_alloc(cuda_number, CUDA_FILE_BYTES, &memory), 0);
	assert_int_equal(sluice_pinned_alloc(cuda_number, 4096, &word), 0);
	assert_int_equal(sluice_stream_new(cuda_number, &stream), 0);
	assert_int_equal(sluice_read(f.file, memory, CUDA_FILE_BYTES, 0, &op), 0);
	cuda_moved(op, CUDA_FILE_BYTES);
	/* The stream does not come to it. */
	assert_int_equal(cu.cuCtxPushCurrent_v2(cuda_primaries[0]), 0);
	assert_int_equal(cu.cuStreamWaitValue32_v2(stream, (uintptr_t)word, 1, 0), 0);
	assert_int_equal(sluice_read_on(f.file, memory, CUDA_FILE_BYTES, 0, stream, &op), 0);
	assert_int_equal(sluice_wait(op, 20), -EINPROGRESS);
	assert_int_equal(cu.cuFakeLose(0, 1), 0);
	assert_int_equal(sluice_wait(op, 60000), -EIO);
	sluice_op_free(op);
	assert_int_equal(sluice_read(f.file, memory, CUDA_FILE_BYTES, 0, &op), 0);
	assert_int_equal(sluice_wait(op, 60000), -EIO);
	sluice_op_free(op);
	cuda_file_close(&f);
	assert_int_equal(cu.cuFakeLose(0, 0), 0);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	assert_int_equal(sluice_device_free(memory), 0);
	assert_int_equal(sluice_pinned_free(word), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
}

/*
 * A driver that refuses words behind copies, and in which each thread has a per-thread stream of its own, as
 * in a real one: nothing is ever on the copier's.
 */
static struct {
	const struct sl_device_ops *real;
	pthread_t thread; /* the test's */
	_Atomic bool refuses;
} bent;

static int bent_enqueue(struct sl_device *device, sluice_stream stream,
                        const struct sl_command *commands, size_t count, size_t *taken)
{
	size_t n = 0;

	if (!atomic_load(&bent.refuses))
		return bent.real->enqueue(device, stream, commands, count, taken);
	while (n < count && commands[n].kind != SL_WRITE_WORD)
		n++;
	*taken = 0;
	if (n)
		assert_int_equal(bent.real->enqueue(device, stream, commands, n, taken), 0);
	return n < count ? -EIO : 0;
}

static int bent_query(struct sl_device *device, sluice_stream stream)
{
	if ((uintptr_t)stream == 2 && !pthread_equal(pthread_self(), bent.thread))
		return 1;
	return bent.real->stream_query(device, stream);
}

TEST(refused_word_is_awaited_on_the_callers_own_stream)
{
	const sluice_stream own = (sluice_stream)2;
	struct sl_device_ops ops = *cuda_device->ops;
	unsigned char *back = malloc(CUDA_FILE_BYTES);
	struct cuda_file f;
	sluice_op *op;
	void *memory, *word;

	cuda_file_open(&f);
	assert_int_equal(sluice_device_alloc(cuda_number, CUDA_FILE_BYTES, &memory), 0);
	assert_int_equal(sluice_pinned_alloc(cuda_number, 4096, &word), 0);
	assert_int_equal(sluice_read(f.file, memory, CUDA_FILE_BYTES, 0, &op), 0);
	cuda_moved(op, CUDA_FILE_BYTES);
	bent.real = cuda_device->ops;
	bent.thread = pthread_self();
	ops.enqueue = bent_enqueue;
	ops.stream_query = bent_query;
	cuda_device->ops = &ops;
	/* The stream does not come to the copy. */
	assert_int_equal(cu.cuCtxPushCurrent_v2(cuda_primaries[0]), 0);
	assert_int_equal(cu.cuStreamWaitValue32_v2(own, (uintptr_t)word, 1, 0), 0);
	atomic_store(&bent.refuses, true);
	assert_int_equal(sluice_read_on(f.file, memory, CUDA_FILE_BYTES, 0, own, &op), 0);
	atomic_store(&bent.refuses, false);
	assert_int_equal(sluice_wait(op, 100), -EINPROGRESS);
	atomic_store((_Atomic uint32_t *)word, 1);
	assert_int_equal(sluice_wait(op, 60000), -EIO);
	sluice_op_free(op);
	/* The slots are back, and the next one is right. */
	assert_int_equal(sluice_read_on(f.file, memory, CUDA_FILE_BYTES, 0, own, &op), 0);
	cuda_moved(op, CUDA_FILE_BYTES);
	assert_int_equal(sluice_copy(back, memory, CUDA_FILE_BYTES), 0);
	assert_memory_equal(back, f.bytes, CUDA_FILE_BYTES);
	cuda_file_close(&f);
	cuda_device->ops = bent.real;
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	assert_int_equal(sluice_device_free(memory), 0);
	assert_int_equal(sluice_pinned_free(word), 0);
	free(back);
}

/* ----------------------------------------------------------------------------- copies together */

TEST(copies_are_given_together_where_their_order_makes_no_difference)
{
	uint64_t batches = cuda_calls("cuMemcpyBatchAsync");
	sluice_stream stream;

	assert_int_equal(sluice_stream_new(cuda_number, &stream), 0);
	assert_true(cuda_device->ops->joins(cuda_device, stream));
	cuda_copy_apart(stream, false);
	/* 64 and 35; the last one overlaps. */
	assert_int_equal(cuda_calls("cuMemcpyBatchAsync"), batches + 2);
	assert_int_equal(sluice_stream_free(stream), 0);
}

TEST(rows_of_a_table_are_one_command_on_each_stream)
{
	uint64_t batches = cuda_calls("cuMemcpyBatchAsync");
	uint64_t rows = cuda_calls("cuMemcpy2DAsync_v2");
	sluice_stream stream;

	assert_int_equal(sluice_stream_new(cuda_number, &stream), 0);
	cuda_copy_apart(stream, true);
	cuda_copy_apart(NULL, true);
	assert_int_equal(cuda_calls("cuMemcpy2DAsync_v2"), rows + 2);
	assert_int_equal(cuda_calls("cuMemcpyBatchAsync"), batches);
	assert_int_equal(cu.cuFakeFail("cuMemcpy2DAsync_v2", 1, CUDA_ERROR_NOT_SUPPORTED), 0);
	cuda_copy_apart(stream, true);
	/* The first 64 as a batch, since the driver refuses rows once, and the rest as rows. */
	assert_int_equal(cuda_calls("cuMemcpyBatchAsync"), batches + 1);
	assert_int_equal(sluice_stream_free(stream), 0);
}

TEST(the_legacy_default_stream_is_given_one_copy_at_a_time)
{
	uint64_t batches = cuda_calls("cuMemcpyBatchAsync");

	for (uintptr_t legacy = 0; legacy < 2; legacy++) {
		assert_false(cuda_device->ops->joins(cuda_device, (sluice_stream)legacy));
		cuda_copy_apart((sluice_stream)legacy, false);
	}
	assert_int_equal(cuda_calls("cuMemcpyBatchAsync"), batches);
	cuda_copy_apart((sluice_stream)2, false);
	assert_int_equal(cuda_calls("cuMemcpyBatchAsync"), batches + 2);
}

TEST(copies_that_the_driver_refuses_together_are_given_one_by_one)
{
	sluice_stream stream;

	assert_int_equal(sluice_stream_new(cuda_number, &stream), 0);
	assert_int_equal(cu.cuFakeFail("cuMemcpyBatchAsync", 1, CUDA_ERROR_NOT_SUPPORTED), 0);
	cuda_copy_apart(stream, false);
	assert_int_equal(sluice_stream_free(stream), 0);
}

int main(void)
{
	return RUN_TESTS(cuda_setup, NULL);
}
