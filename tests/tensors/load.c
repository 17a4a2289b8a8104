/* SPDX-License-Identifier: Apache-2.0 */
#include "tensors/load.h"

#include "io/device_suite.h"

struct sluice_tensors *tensors_make(struct fixture *f)
{
	struct sluice_tensors *table = table_new(f->ctx);
	struct rng r = rng_new(900);

	for (uint32_t file = 0; file < FILES; file++) {
		char name[16];
		uint64_t end = 77 + file;

		for (unsigned i = 0; i < EACH; i++)
			end += table_add(table, file, end, SLUICE_UINT8, 2,
			                 (uint64_t[]){1 + rng_below(&r, 700),
			                              1 + rng_below(&r, row_bytes(2000))});
		snprintf(name, sizeof(name), "tensors%u", file);
		file_make(scratch(f, name), end, file + 1);
		table->files[file].file = open_read(f->ctx, address(f, name));
		table->files[file].length = end;
	}
	return table;
}

void assert_tensor(const struct sluice_tensors *table, const struct sluice_tensor_want *want,
                   const void *at)
{
	const struct sl_tensor *tensor = &table->tensors[want->tensor];
	struct sluice_tensor_range whole[] = {{0, tensor->shape[0]}, {0, tensor->shape[1]}};
	const struct sluice_tensor_range *ranges = want->ranges ? want->ranges : whole;
	size_t rows = ranges[0].stop - ranges[0].start, width = ranges[1].stop - ranges[1].start;
	unsigned char *held = malloc(rows * width + 1);

	assert_ok(sluice_copy(held, at, rows * width));
	for (size_t i = 0; i < rows; i++)
		assert_pattern(held + i * width, width,
		               tensor->offset + (ranges[0].start + i) * tensor->shape[1] +
		                       ranges[1].start,
		               tensor->file + 1);
	free(held);
}

void assert_plan(const struct sluice_tensors *table, const sluice_tensor_plan *plan,
                 const struct sluice_tensor_want *wants, const sluice_tensor_memory *memory)
{
	struct sluice_tensor_item item = {sizeof(item)};

	for (size_t i = 0; !sluice_tensor_plan_item(plan, i, &item); i++) {
		struct sluice_tensor_want whole = {item.tensor, NULL, NULL};
		const struct sluice_tensor_want *want = wants ? &wants[i] : &whole;

		assert_tensor(table, want,
		              want->to ? want->to
		                       : (char *)sluice_tensor_memory_data(memory) +
		                                 item.memory_offset);
	}
}

sluice_tensor_plan *plan_make(struct sluice_tensors *table, const struct sluice_tensor_want *wants,
                              size_t count)
{
	sluice_tensor_plan *plan = NULL;

	assert_ok(sluice_tensor_plan_new(table, wants, count, &plan));
	return plan;
}

int device_of(int where)
{
	return where < 0 ? -1 : gpu_device(where);
}

sluice_tensor_memory *memory_make(int where, const sluice_tensor_plan *plan)
{
	sluice_tensor_memory *memory = NULL;

	assert_ok(sluice_tensor_memory_new(device_of(where), sluice_tensor_plan_bytes(plan),
	                                   &memory));
	return memory;
}

sluice_tensor_load *load_begin(sluice_tensor_plan *plan, sluice_tensor_memory *memory,
                               sluice_stream stream)
{
	struct sluice_tensor_read_options o = SLUICE_TENSOR_READ_OPTIONS_INIT;
	sluice_tensor_load *load = NULL;

	o.on = stream != NULL;
	o.stream = stream;
	assert_ok(sluice_tensor_plan_read(plan, memory, &o, &load));
	return load;
}

uint64_t bytes_of(const sluice_tensor_plan *plan)
{
	struct sluice_tensor_item item = {sizeof(item)};
	uint64_t sum = 0;

	for (size_t i = 0; !sluice_tensor_plan_item(plan, i, &item); i++)
		sum += item.bytes;
	return sum;
}

void load_finish(sluice_tensor_load *load, const sluice_tensor_plan *plan)
{
	int64_t rc = sluice_tensor_load_wait(load, PATIENCE_MS);

	if (rc < 0)
		fail_msg("%s: \"%s\"", strerror((int)-rc), sluice_tensor_load_message(load));
	assert_int_equal(rc, bytes_of(plan));
	assert_string_equal(sluice_tensor_load_message(load), "");
	sluice_tensor_load_free(load);
}

void load_fail(sluice_tensor_load *load, int error, const char *says)
{
	const char *message;

	assert_int_equal(sluice_tensor_load_wait(load, PATIENCE_MS), -error);
	message = sluice_tensor_load_message(load);
	assert_true(*message && strstr(message, says));
	/* It stays. */
	assert_int_equal(sluice_tensor_load_wait(load, 0), -error);
	sluice_tensor_load_free(load);
}

void tensors_free(struct sluice_tensors *table, sluice_tensor_plan *plan,
                  sluice_tensor_memory *memory)
{
	sluice_tensor_memory_free(memory);
	sluice_tensor_plan_free(plan);
	table_free(table);
}
