/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of every kind that a program may bring, contexts of its own, and two devices. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/check.h"

#define CUDA_CALL DRIVER
#include "lib/cuda_memory.h"

#define LENGTH (3 * MIB + 5)

/* Reads and writes with that memory, in both forms of waiting. */
static bool both_forms(void *memory, sluice_stream stream)
{
	struct gpu_match host, on;
	sluice_file *in = open_in(), *out = open_out();
	unsigned char *held = malloc(LENGTH);
	sluice_op *read, *write;
	bool good;

	MUST(sluice_read(in, memory, LENGTH, 11, &read));
	good = moved(read, LENGTH);
	look_on(0, stream, &host, memory, LENGTH, 11);
	GPU(gpu_scribble(0, stream, memory, LENGTH, 3));
	MUST(sluice_read_on(in, memory, LENGTH, 4099, stream, &read));
	look_on(0, stream, &on, memory, LENGTH, 4099);
	GPU(gpu_fill(0, stream, memory, LENGTH, 0, seed + 2));
	MUST(sluice_write_on(out, memory, LENGTH, 0, stream, &write));
	GPU(gpu_fill(0, stream, memory, LENGTH, LENGTH, seed + 2));
	good &= right(0, stream, &host, "read awaited on the host");
	good &= right(0, stream, &on, "read in stream order");
	good &= moved(read, LENGTH);
	good &= moved(write, LENGTH);
	MUST(sluice_write(out, memory, LENGTH, LENGTH, &write));
	good &= moved(write, LENGTH);
	for (int i = 0; i < 2; i++) {
		MUST(sluice_read(out, held, LENGTH, (uint64_t)i * LENGTH, &read));
		good &= moved(read, LENGTH);
		if (pattern_match(held, LENGTH, (uint64_t)i * LENGTH, seed + 2) == LENGTH)
			continue;
		printf("       bytes written %s are wrong\n",
		       i ? "awaited on the host" : "in stream order");
		good = false;
	}
	free(held);
	MUST(sluice_close(in));
	MUST(sluice_close(out));
	return good;
}

/* The number behind the colon. */
static int ordinal_of(int which)
{
	return atoi(strchr(gpu_name(which), ':') + 1);
}

static bool memory_is_moved(enum cuda_kind kind)
{
	struct cuda_memory m = {.length = LENGTH + 7, .stream = new_stream(0)};
	int found, expected = cuda_kinds[kind].touchable ? -1 : gpu_device(0);
	bool good;

	if (kind != OF_HOST) {
		need_cuda();
		m.ordinal = ordinal_of(0);
	}
	cuda_kinds[kind].make(&m);
	good = both_forms(m.at + (kind == ALLOCATED ? 7 : 0), m.stream);
	found = sluice_device_of(m.at);
	if (kind != MANAGED && found != expected) {
		printf("       sluice_device_of() says %d\n", found);
		good = false;
	}
	cuda_kinds[kind].free(&m);
	MUST(sluice_stream_free(m.stream));
	return good;
}

#define KIND_CHECK(name, kind)                \
	static bool name(void)                \
	{                                     \
		return memory_is_moved(kind); \
	}
KIND_CHECK(allocated, ALLOCATED)
KIND_CHECK(allocated_on_a_stream, ASYNC)
KIND_CHECK(mapped, MAPPED)
KIND_CHECK(managed, MANAGED)
KIND_CHECK(pinned_by_the_driver, PINNED)
KIND_CHECK(registered, REGISTERED)
KIND_CHECK(plain, OF_HOST)

/* ----------------------------------------------------------------------------- other contexts */

/* Kernels are of the primary one, so the bytes are looked at on the host. */
static bool context_of_its_own(void)
{
	unsigned char *held = malloc(LENGTH);
	sluice_file *in = open_in();
	CUcontext own, gone;
	CUdevice device;
	CUdeviceptr memory;
	sluice_stream stream;
	sluice_op *op;
	bool good;

	need_cuda();
	DRIVER(cuDeviceGet, &device, ordinal_of(0));
	DRIVER(cuCtxCreate_v2, &own, 0, device);
	DRIVER(cuStreamCreate, (CUstream *)&stream, CU_STREAM_NON_BLOCKING);
	DRIVER(cuMemAlloc_v2, &memory, LENGTH);
	DRIVER(cuCtxPopCurrent_v2, &gone);
	MUST(sluice_read_on(in, (void *)(uintptr_t)memory, LENGTH, 5, stream, &op));
	good = moved(op, LENGTH);
	DRIVER(cuCtxPushCurrent_v2, own);
	DRIVER(cuCtxSynchronize);
	DRIVER(cuCtxPopCurrent_v2, &gone);
	MUST(sluice_copy(held, (void *)(uintptr_t)memory, LENGTH));
	good &= pattern_match(held, LENGTH, 5, seed) == LENGTH;
	MUST(sluice_read(in, (void *)(uintptr_t)memory, LENGTH, 6, &op));
	good &= moved(op, LENGTH);
	MUST(sluice_copy(held, (void *)(uintptr_t)memory, LENGTH));
	good &= pattern_match(held, LENGTH, 6, seed) == LENGTH;
	DRIVER(cuCtxPushCurrent_v2, own);
	DRIVER(cuMemFree_v2, memory);
	DRIVER(cuStreamDestroy_v2, stream);
	DRIVER(cuCtxDestroy_v2, own);
	MUST(sluice_close(in));
	free(held);
	return good;
}

/* -------------------------------------------------------------------------------- two devices */

static void need_two(void)
{
	if (!gpu_has_two())
		skip("there is one device of this kind");
}

/* The thread works on the first device, and everything is of the second. */
static bool second_device(void)
{
	struct gpu_match own, other;
	sluice_file *in = open_in();
	sluice_stream stream;
	sluice_op *a, *b, *c;
	void *memory, *more;
	bool good;

	need_two();
	stream = new_stream(1);
	memory = new_memory(1, LENGTH);
	more = new_memory(1, LENGTH);
	gpu_use(0);
	MUST(sluice_read_on(in, memory, LENGTH, 1, stream, &a));
	look_on(1, stream, &own, memory, LENGTH, 1);
	MUST(sluice_read(in, more, LENGTH, 3, &b));
	good = moved(b, LENGTH);
	look_on(1, stream, &other, more, LENGTH, 3);
	good &= right(1, stream, &own, "read on the second device");
	good &= right(1, stream, &other, "read awaited on the host");
	good &= moved(a, LENGTH);
	/* The default stream is that of the memory's device. */
	MUST(sluice_read_on(in, memory, LENGTH, 2, SLUICE_STREAM_DEFAULT, &c));
	good &= moved(c, LENGTH);
	look_on(1, stream, &own, memory, LENGTH, 2);
	good &= right(1, stream, &own, "read on the default stream of the second device");
	MUST(sluice_device_free(memory));
	MUST(sluice_device_free(more));
	MUST(sluice_stream_free(stream));
	MUST(sluice_close(in));
	return good;
}

static bool event_of_the_second_device(void)
{
	struct gpu_match match;
	sluice_event event;
	sluice_stream one, two;
	sluice_file *in = open_in();
	sluice_op *op;
	void *memory;
	bool good;

	need_cuda();
	need_two();
	one = new_stream(0);
	two = new_stream(1);
	memory = new_pinned(0, LENGTH);
	gpu_use(0);
	MUST(sluice_event_new(gpu_device(1), &event));
	MUST(sluice_read_on(in, memory, LENGTH, 1, two, &op));
	MUST(sluice_event_record(event, two));
	MUST(sluice_event_await(event, one));
	look_on(0, one, &match, memory, LENGTH, 1);
	good = right(0, one, &match, "read that another device's stream awaits");
	MUST(sluice_event_synchronize(event));
	good &= sluice_event_query(event) == 1;
	good &= moved(op, LENGTH);
	MUST(sluice_event_free(event));
	MUST(sluice_stream_free(one));
	MUST(sluice_stream_free(two));
	MUST(sluice_pinned_free(memory));
	MUST(sluice_close(in));
	return good;
}

static bool stream_of_the_other_device(void)
{
	sluice_file *in = open_in();
	void *memory = new_memory(0, LENGTH);
	sluice_stream other = NULL;
	sluice_op *op = NULL;
	int rc;

	MUST(sluice_stream_new(gpu_other(), &other));
	rc = sluice_read_on(in, memory, LENGTH, 0, other, &op);
	if (rc != -EINVAL)
		broken("%d: %s", rc, sluice_last_message());
	MUST(sluice_stream_free(other));
	MUST(sluice_device_free(memory));
	MUST(sluice_close(in));
	return true;
}

const struct check pointer_checks[] = {
	{"allocated", "memory of cuMemAlloc", allocated, 20},
	{"pool", "memory of cuMemAllocAsync", allocated_on_a_stream, 20},
	{"mapped", "memory mapped with cuMemMap", mapped, 20},
	{"managed", "managed memory", managed, 20},
	{"host_alloc", "host memory of cuMemHostAlloc", pinned_by_the_driver, 20},
	{"registered", "host memory of cuMemHostRegister", registered, 20},
	{"plain", "host memory that the driver does not know", plain, 20},
	{"context", "streams and memory of a context of the program's own", context_of_its_own, 20},
	{"second", "memory and streams of a second device", second_device, 20},
	{"event", "an event of a second device", event_of_the_second_device, 20},
	{"other", "a stream of another device than the memory is refused",
         stream_of_the_other_device, 20},
	{NULL, NULL, NULL, 0},
};
