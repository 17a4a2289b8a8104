/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of tensors, and its export by DLPack. */
#include "io/device_suite.h"
#include "tensors/load.h"

FIXTURE_TEST(memory_that_is_not_there_is_refused_with_the_numbers)
{
	sluice_tensor_memory *memory = NULL;
	struct sluice_device about = {sizeof(about)};
	char numbers[100];

	assert_ok(sluice_device_describe(gpu_device(0), &about));
	snprintf(numbers, sizeof(numbers), "need %llu bytes of memory, and ",
	         (unsigned long long)about.memory_bytes * 2);
	sluice_emulated_reset_calls();
	assert_refused(sluice_tensor_memory_new(gpu_device(0), about.memory_bytes * 2, &memory),
	               ENOMEM, numbers);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_ALLOC, NULL), 0);
	assert_refused(sluice_tensor_memory_new(-1, (uint64_t)1 << 60, &memory), ENOMEM,
	               "the host: the tensors need 1152921504606846976 bytes");
	assert_refused(sluice_tensor_memory_new(1000, 1, &memory), ENODEV, "no device 1000");
	assert_refused(sluice_tensor_memory_new(-2, 1, &memory), ENODEV, "no device -2");
	assert_null(memory);
}

static void assert_export(const struct sl_dlpack_tensor *t, const struct sl_tensor *tensor,
                          int device)
{
	unsigned char *held = malloc(tensor->bytes);

	assert_int_equal(t->device.type, device < 0      ? SL_DLPACK_CPU
	                                 : gpu_is_real() ? SL_DLPACK_CUDA
	                                                 : SL_DLPACK_OTHER);
	assert_int_equal(t->device.id, device == gpu_device(1) && gpu_has_two());
	assert_int_equal(t->ndim, 2);
	assert_int_equal(t->dtype.code, 1);
	assert_int_equal(t->dtype.bits, 8);
	assert_int_equal(t->dtype.lanes, 1);
	assert_int_equal(t->shape[0], tensor->shape[0]);
	assert_int_equal(t->shape[1], tensor->shape[1]);
	assert_int_equal(t->strides[0], tensor->shape[1]);
	assert_int_equal(t->strides[1], 1);
	assert_int_equal(t->byte_offset, 0);
	assert_ok(sluice_copy(held, t->data, tensor->bytes));
	assert_pattern(held, tensor->bytes, tensor->offset, tensor->file + 1);
	free(held);
}

FIXTURE_TEST(an_exported_tensor_outlives_the_memory_and_the_plan)
{
	struct sluice_tensors *table = tensors_make(f);

	for (int where = -1; where < GPU_DEVICES; where++) {
		sluice_tensor_plan *plan = plan_make(table, NULL, 0);
		sluice_tensor_memory *memory = memory_make(where, plan);
		struct sl_dlpack_managed *plain = NULL;
		struct sl_dlpack_managed_versioned *versioned = NULL;

		load_finish(load_begin(plan, memory, NULL), plan);
		assert_ok(sluice_tensor_to_dlpack(plan, 3, memory, 0, (void **)&plain));
		assert_ok(sluice_tensor_to_dlpack(plan, 9, memory, 1, (void **)&versioned));
		assert_refused(sluice_tensor_to_dlpack(plan, 9, memory, 2, (void **)&plain), EINVAL,
		               "version 2");
		assert_refused(sluice_tensor_to_dlpack(plan, 99, memory, 1, (void **)&plain),
		               ENOENT, "no number 99");
		sluice_tensor_memory_free(memory);
		sluice_tensor_plan_free(plan);
		assert_export(&plain->tensor, &table->tensors[3], device_of(where));
		plain->deleter(plain);
		assert_int_equal(versioned->version.major, 1);
		assert_int_equal(versioned->flags, 0);
		assert_export(&versioned->tensor, &table->tensors[9], device_of(where));
		versioned->deleter(versioned);
	}
	table_free(table);
}

EMULATED_TEST(memory_is_freed_with_its_last_user, "a driver keeps memory")
{
	struct sluice_tensors *table = tensors_make(f);
	struct sluice_device before = {sizeof(before)}, now = {sizeof(now)};
	sluice_tensor_plan *plan = plan_make(table, NULL, 0);
	struct sl_dlpack_managed *plain = NULL;
	sluice_tensor_memory *memory;

	assert_ok(sluice_device_describe(gpu_device(0), &before));
	memory = memory_make(0, plan);
	assert_ok(sluice_tensor_to_dlpack(plan, 3, memory, 0, (void **)&plain));
	sluice_tensor_memory_free(memory);
	assert_ok(sluice_device_describe(gpu_device(0), &now));
	assert_true(now.free_bytes < before.free_bytes);
	plain->deleter(plain);
	assert_ok(sluice_device_describe(gpu_device(0), &now));
	assert_int_equal(now.free_bytes, before.free_bytes);
	tensors_free(table, plan, NULL);
}
