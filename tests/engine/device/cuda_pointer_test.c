/* SPDX-License-Identifier: Apache-2.0 */
/* What memory is to CUDA's driver, and what sluice makes of it: over the fake driver. */
#include "device/cuda_common.h"

#define MIB    ((size_t)1 << 20)
#define LENGTH (2 * MIB)

#define CUDA_CALL(function, ...) assert_int_equal(cu.function(__VA_ARGS__), 0)
#include "lib/cuda_memory.h"

/* Of the host or of the device, as sluice has it. */
static int number_of(size_t kind)
{
	return cuda_kinds[kind].touchable && kind != MANAGED ? -1 : cuda_number;
}

static struct cuda_memory make(size_t kind)
{
	struct cuda_memory memory = {.length = LENGTH};

	cuda_kinds[kind].make(&memory);
	return memory;
}

/* ----------------------------------------------------------------------------------- the tests */

TEST(a_pointer_leads_to_the_device_that_holds_its_byte)
{
	for (size_t i = 0; i < CUDA_KINDS; i++) {
		struct cuda_memory m = make(i);

		print_message("memory %s\n", cuda_kinds[i].name);
		assert_int_equal(sluice_device_of(m.at), number_of(i));
		assert_int_equal(sluice_device_of(m.at + 1), number_of(i));
		assert_int_equal(sluice_device_of(m.at + LENGTH - 1), number_of(i));
		cuda_kinds[i].free(&m);
		assert_int_equal(sluice_device_of(m.at), -1);
	}
}

TEST(memory_of_the_second_device_leads_to_that)
{
	struct cuda_memory m = {.length = LENGTH};

	assert_int_equal(cu.cuCtxPushCurrent_v2(cuda_primaries[1]), 0);
	cuda_make_allocated(&m);
	assert_int_equal(sluice_device_of(m.at), cuda_number + 1);
	cuda_free_allocated(&m);
	cuda_make_async(&m);
	assert_int_equal(sluice_device_of(m.at), cuda_number + 1);
	cuda_free_async(&m);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
}

TEST(host_memory_is_registered_if_the_driver_knows_all_of_it)
{
	const struct sl_device_ops *ops = cuda_device->ops;

	for (size_t i = 0; i < CUDA_KINDS; i++) {
		struct cuda_memory m = make(i);
		bool pinned = cuda_kinds[i].pinned;

		print_message("memory %s\n", cuda_kinds[i].name);
		assert_int_equal(ops->registered(cuda_device, m.at, LENGTH), pinned);
		assert_int_equal(ops->registered(cuda_device, m.at + 5, 10), pinned);
		assert_false(ops->registered(cuda_device, m.at, LENGTH + 1));
		assert_false(ops->registered(cuda_device, m.at - 1, 2));
		cuda_kinds[i].free(&m);
		assert_false(ops->registered(cuda_device, m.at, 1));
	}
}

static void fetch(size_t kind, const struct cuda_memory *m, unsigned char *to, size_t n)
{
	if (cuda_kinds[kind].touchable)
		memcpy(to, m->at, n);
	else
		assert_int_equal(cu.cuMemcpyDtoH_v2(to, (uintptr_t)m->at, n), 0);
}

TEST(bytes_are_read_into_memory_of_every_kind)
{
	unsigned char *back = malloc(CUDA_FILE_BYTES);
	struct cuda_file f;
	sluice_op *op;

	cuda_file_open(&f);
	for (size_t i = 0; i < 2 * CUDA_KINDS; i++) {
		struct cuda_memory m = make(i / 2);
		size_t n = CUDA_FILE_BYTES;

		print_message("memory %s, %s order\n", cuda_kinds[i / 2].name,
		              i % 2 ? "stream" : "host");
		if (i % 2)
			assert_int_equal(sluice_read_on(f.file, m.at, n, 0, NULL, &op), 0);
		else
			assert_int_equal(sluice_read(f.file, m.at, n, 0, &op), 0);
		assert_int_equal(cu.cuStreamSynchronize(NULL), 0);
		cuda_moved(op, n);
		memset(back, 0, n);
		fetch(i / 2, &m, back, n);
		assert_memory_equal(back, f.bytes, n);
		cuda_kinds[i / 2].free(&m);
	}
	cuda_file_close(&f);
	free(back);
}

TEST(memory_mapped_twice_keeps_its_bytes)
{
	struct cuda_memory m = {.length = LENGTH};
	char byte = 1;

	cuda_make_mapped(&m);
	assert_int_equal(cu.cuMemsetD8_v2((uintptr_t)m.at, 77, LENGTH), 0);
	assert_int_equal(cu.cuCtxSynchronize(), 0);
	assert_int_equal(cu.cuMemUnmap((uintptr_t)m.at, LENGTH), 0);
	assert_int_equal(sluice_device_of(m.at), -1);
	cuda_map(&m);
	assert_int_equal(sluice_copy(&byte, m.at + LENGTH - 1, 1), 0);
	assert_int_equal(byte, 77);
	cuda_free_mapped(&m);
}

/* In a context of the first device, as programs have one. */
static int setup(void **state)
{
	cuda_setup(state);
	return cu.cuCtxSetCurrent(cuda_primaries[0]);
}

int main(void)
{
	return RUN_TESTS(setup, NULL);
}
