/* SPDX-License-Identifier: Apache-2.0 */
/* What memory is to CUDA's driver, and what sluice makes of it: over the fake driver. */
#include <sys/mman.h>

#include "device/cuda_common.h"

#define MIB    ((size_t)1 << 20)
#define LENGTH (2 * MIB)

/* ------------------------------------------------------------------------------ kinds of memory */

struct memory {
	const char *name;
	bool touchable; /* by the processor */
	bool pinned;    /* of the host, known to the driver */
	CUmemGenericAllocationHandle handle;
	char *at;
};

static void make_host(struct memory *m)
{
	m->at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(m->at != MAP_FAILED);
}

static void free_host(struct memory *m)
{
	munmap(m->at, LENGTH);
}

static void make_registered(struct memory *m)
{
	make_host(m);
	assert_int_equal(cu.cuMemHostRegister_v2(m->at, LENGTH, 0), 0);
}

static void free_registered(struct memory *m)
{
	assert_int_equal(cu.cuMemHostUnregister(m->at), 0);
	free_host(m);
}

static void make_pinned(struct memory *m)
{
	assert_int_equal(cu.cuMemHostAlloc((void **)&m->at, LENGTH, 0), 0);
}

static void free_pinned(struct memory *m)
{
	assert_int_equal(cu.cuMemFreeHost(m->at), 0);
}

static void make_plain(struct memory *m)
{
	CUdeviceptr p;

	assert_int_equal(cu.cuMemAlloc_v2(&p, LENGTH), 0);
	m->at = (char *)(uintptr_t)p;
}

static void make_managed(struct memory *m)
{
	CUdeviceptr p;

	assert_int_equal(cu.cuMemAllocManaged(&p, LENGTH, 1), 0);
	m->at = (char *)(uintptr_t)p;
}

static void free_plain(struct memory *m)
{
	assert_int_equal(cu.cuMemFree_v2((uintptr_t)m->at), 0);
}

static void make_async(struct memory *m)
{
	CUdeviceptr p;

	assert_int_equal(cu.cuMemAllocAsync(&p, LENGTH, NULL), 0);
	m->at = (char *)(uintptr_t)p;
}

static void free_async(struct memory *m)
{
	assert_int_equal(cu.cuMemFreeAsync((uintptr_t)m->at, NULL), 0);
}

static void make_mapped(struct memory *m)
{
	struct CUmemAllocationProp prop = {.type = 1, .location = {1, 0}};
	struct CUmemAccessDesc access = {{1, 0}, 3};
	CUdeviceptr p;

	assert_int_equal(cu.cuMemAddressReserve(&p, LENGTH, 0, 0, 0), 0);
	assert_int_equal(cu.cuMemCreate(&m->handle, LENGTH, &prop, 0), 0);
	assert_int_equal(cu.cuMemMap(p, LENGTH, 0, m->handle, 0), 0);
	assert_int_equal(cu.cuMemSetAccess(p, LENGTH, &access, 1), 0);
	m->at = (char *)(uintptr_t)p;
}

static void free_mapped(struct memory *m)
{
	assert_int_equal(cu.cuMemUnmap((uintptr_t)m->at, LENGTH), 0);
	assert_int_equal(cu.cuMemRelease(m->handle), 0);
	assert_int_equal(cu.cuMemAddressFree((uintptr_t)m->at, LENGTH), 0);
}

static const struct {
	struct memory memory;
	void (*make)(struct memory *m);
	void (*free)(struct memory *m);
} kinds[] = {
	{{"of the host", true, false}, make_host, free_host},
	{{"registered", true, true}, make_registered, free_registered},
	{{"pinned", true, true}, make_pinned, free_pinned},
	{{"of cuMemAlloc", false, false}, make_plain, free_plain},
	{{"managed", true, false}, make_managed, free_plain},
	{{"of cuMemAllocAsync", false, false}, make_async, free_async},
	{{"mapped", false, false}, make_mapped, free_mapped},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static bool is_managed(size_t kind)
{
	return kinds[kind].make == make_managed;
}

/* Of the host or of the device, as sluice has it. */
static int number_of(size_t kind)
{
	bool host = kinds[kind].memory.touchable && !is_managed(kind);

	return host ? -1 : cuda_number;
}

static struct memory make(size_t kind)
{
	struct memory memory = kinds[kind].memory;

	kinds[kind].make(&memory);
	return memory;
}

/* ----------------------------------------------------------------------------------- the tests */

static void a_pointer_leads_to_the_device_that_holds_its_byte(void **state)
{
	(void)state;
	for (size_t i = 0; i < KINDS; i++) {
		struct memory m = make(i);

		print_message("memory %s\n", m.name);
		assert_int_equal(sluice_device_of(m.at), number_of(i));
		assert_int_equal(sluice_device_of(m.at + 1), number_of(i));
		assert_int_equal(sluice_device_of(m.at + LENGTH - 1), number_of(i));
		kinds[i].free(&m);
		assert_int_equal(sluice_device_of(m.at), -1);
	}
}

static void memory_of_the_second_device_leads_to_that(void **state)
{
	struct memory m = {0};

	(void)state;
	assert_int_equal(cu.cuCtxPushCurrent_v2(cuda_primaries[1]), 0);
	make_plain(&m);
	assert_int_equal(sluice_device_of(m.at), cuda_number + 1);
	free_plain(&m);
	make_async(&m);
	assert_int_equal(sluice_device_of(m.at), cuda_number + 1);
	free_async(&m);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
}

static void host_memory_is_registered_if_the_driver_knows_all_of_it(void **state)
{
	const struct sl_device_ops *ops = cuda_device->ops;

	(void)state;
	for (size_t i = 0; i < KINDS; i++) {
		struct memory m = make(i);
		bool pinned = m.pinned;

		print_message("memory %s\n", m.name);
		assert_int_equal(ops->registered(cuda_device, m.at, LENGTH), pinned);
		assert_int_equal(ops->registered(cuda_device, m.at + 5, 10), pinned);
		assert_false(ops->registered(cuda_device, m.at, LENGTH + 1));
		assert_false(ops->registered(cuda_device, m.at - 1, 2));
		kinds[i].free(&m);
		assert_false(ops->registered(cuda_device, m.at, 1));
	}
}

static void fetch(const struct memory *m, unsigned char *to, size_t n)
{
	if (m->touchable)
		memcpy(to, m->at, n);
	else
		assert_int_equal(cu.cuMemcpyDtoH_v2(to, (uintptr_t)m->at, n), 0);
}

static void bytes_are_read_into_memory_of_every_kind(void **state)
{
	unsigned char *back = malloc(CUDA_FILE_BYTES);
	struct cuda_file f;
	sluice_op *op;

	(void)state;
	cuda_file_open(&f);
	for (size_t i = 0; i < 2 * KINDS; i++) {
		struct memory m = make(i / 2);
		size_t n = CUDA_FILE_BYTES;

		print_message("memory %s, %s order\n", m.name, i % 2 ? "stream" : "host");
		if (i % 2)
			assert_int_equal(sluice_read_on(f.file, m.at, n, 0, NULL, &op), 0);
		else
			assert_int_equal(sluice_read(f.file, m.at, n, 0, &op), 0);
		assert_int_equal(cu.cuStreamSynchronize(NULL), 0);
		cuda_moved(op, n);
		memset(back, 0, n);
		fetch(&m, back, n);
		assert_memory_equal(back, f.bytes, n);
		kinds[i / 2].free(&m);
	}
	cuda_file_close(&f);
	free(back);
}

static void memory_mapped_twice_keeps_its_bytes(void **state)
{
	struct CUmemAccessDesc access = {{1, 0}, 3};
	struct memory m = {0};
	char byte = 1;

	(void)state;
	make_mapped(&m);
	assert_int_equal(cu.cuMemsetD8_v2((uintptr_t)m.at, 77, LENGTH), 0);
	assert_int_equal(cu.cuCtxSynchronize(), 0);
	assert_int_equal(cu.cuMemUnmap((uintptr_t)m.at, LENGTH), 0);
	assert_int_equal(sluice_device_of(m.at), -1);
	assert_int_equal(cu.cuMemMap((uintptr_t)m.at, LENGTH, 0, m.handle, 0), 0);
	assert_int_equal(cu.cuMemSetAccess((uintptr_t)m.at, LENGTH, &access, 1), 0);
	assert_int_equal(sluice_copy(&byte, m.at + LENGTH - 1, 1), 0);
	assert_int_equal(byte, 77);
	free_mapped(&m);
}

/* In a context of the first device, as programs have one. */
static int setup(void **state)
{
	cuda_setup(state);
	return cu.cuCtxSetCurrent(cuda_primaries[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pointer_leads_to_the_device_that_holds_its_byte),
		cmocka_unit_test(memory_of_the_second_device_leads_to_that),
		cmocka_unit_test(host_memory_is_registered_if_the_driver_knows_all_of_it),
		cmocka_unit_test(bytes_are_read_into_memory_of_every_kind),
		cmocka_unit_test(memory_mapped_twice_keeps_its_bytes),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
