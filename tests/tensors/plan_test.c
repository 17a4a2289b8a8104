/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: where the bytes of slices lie, against a model that looks at each bit, and how they are joined. */
#include <errno.h>

#include "lib/unit.h"
#include "sluice/device.h"
#include "tensors/table.h"

#define ROUNDS    4000
#define FILE_SIZE 65536

static sluice_context *ctx;
static unsigned char content[TABLE_FILES][FILE_SIZE];

static int plan_setup(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (size_t i = 0; i < sizeof(content); i++)
		content[i / FILE_SIZE][i % FILE_SIZE] = (unsigned char)unit_random(&seed);
	return sluice_context_new(NULL, &ctx);
}

static int plan_teardown(void **state)
{
	(void)state;
	return sluice_context_close(ctx);
}

static uint64_t below(uint64_t *seed, uint64_t bound)
{
	return unit_random(seed) % bound;
}

/* --------------------------------------------------------------------------------------- model */

/* The bit of the file from which each bit of a slice comes, in order. Returns their number. */
static size_t model_bits(const struct sl_tensor *tensor, const struct sluice_tensor_range *ranges,
                         size_t *out)
{
	uint64_t at[SLUICE_TENSOR_RANK_MOST] = {0}, bits = sl_type_find(tensor->type)->bits;
	size_t count = 0;
	unsigned i;

	for (i = 0; i < tensor->rank; i++) {
		at[i] = ranges[i].start;
		if (ranges[i].start == ranges[i].stop)
			return 0;
	}
	for (;;) {
		uint64_t element = 0;

		for (i = 0; i < tensor->rank; i++)
			element = element * tensor->shape[i] + at[i];
		for (uint64_t bit = 0; bit < bits; bit++)
			out[count++] = tensor->offset * 8 + element * bits + bit;
		for (i = tensor->rank; i > 0 && ++at[i - 1] == ranges[i - 1].stop; i--)
			at[i - 1] = ranges[i - 1].start;
		if (!i)
			return count;
	}
}

/* Copies the bytes of a slice. Returns their number, or -1 if some byte of it is not a byte of the file. */
static int64_t model_slice(const struct sl_tensor *tensor, const struct sluice_tensor_range *ranges,
                           unsigned char *out)
{
	static size_t bits[FILE_SIZE * 8];
	size_t count = model_bits(tensor, ranges, bits);

	for (size_t i = 0; i < count; i++)
		if (bits[i] % 8 != i % 8 || bits[i] - bits[i / 8 * 8] != i % 8)
			return -1;
	if (count % 8)
		return -1;
	for (size_t i = 0; i < count / 8; i++)
		out[i] = content[tensor->file][bits[8 * i] / 8];
	return (int64_t)count / 8;
}

/* Copies what the extents say, and what is gathered; everything is host memory. */
static void model_read(const sluice_tensor_plan *plan, const struct sl_tensor_stretches *stretches)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct sl_tensor_item *item = plan->order[i];
		struct sluice_extent *runs = calloc(item->runs + 1, sizeof(*runs));

		if (stretches->targets[i].gathered)
			sl_tensor_item_extents(item, stretches->targets[i].to, runs);
		for (size_t k = 0; k < item->runs && runs[k].data; k++)
			memcpy(runs[k].data, content[item->tensor->file] + runs[k].offset,
			       runs[k].length);
		free(runs);
	}
	for (size_t p = 0; p < stretches->count; p++) {
		const struct sl_tensor_stretch *stretch = &stretches->stretches[p];
		uint64_t bytes = 0;

		for (size_t i = 0; i < stretch->count; i++) {
			const struct sluice_extent *e = &stretch->extents[i];

			assert_true(e->offset + e->length <= FILE_SIZE);
			assert_true(!i || e[-1].offset <= e->offset);
			memcpy(e->data, content[stretch->file] + e->offset, e->length);
			bytes += e->length;
		}
		assert_int_equal(bytes, stretch->bytes);
	}
}

/* -------------------------------------------------------------------------------------- chance */

static const int types[] = {SLUICE_UINT8,       SLUICE_FLOAT16,     SLUICE_FLOAT32,
                            SLUICE_COMPLEX128,  SLUICE_FLOAT6_E2M3, SLUICE_FLOAT4_E2M1,
                            SLUICE_FLOAT4_E2M1, SLUICE_FLOAT8_E8M0};

/* A tensor whose bits are whole bytes. Returns the end of its bytes. */
static uint64_t add_by_chance(struct sluice_tensors *table, uint32_t file, uint64_t offset,
                              uint64_t *seed)
{
	int type = types[below(seed, sizeof(types) / sizeof(types[0]))];
	unsigned rank = (unsigned)below(seed, 6);
	uint64_t shape[SLUICE_TENSOR_RANK_MOST], bits = sl_type_find(type)->bits;

	for (unsigned i = 0; i < rank; i++)
		bits *= shape[i] = below(seed, 20) ? 1 + below(seed, 5) : 0;
	if (bits % 8)
		shape[rank++] = 4;
	return offset + table_add(table, file, offset, type, rank, shape);
}

static void range_by_chance(const struct sl_tensor *tensor, struct sluice_tensor_range *ranges,
                            uint64_t *seed)
{
	for (unsigned i = 0; i < tensor->rank; i++) {
		uint64_t n = tensor->shape[i];

		ranges[i] = (struct sluice_tensor_range){0, n};
		if (below(seed, 2)) {
			ranges[i].start = below(seed, n + 1);
			ranges[i].stop = ranges[i].start + below(seed, n - ranges[i].start + 1);
		}
	}
}

/* --------------------------------------------------------------------------------------- tests */

TEST(a_slice_is_the_elements_that_its_ranges_name)
{
	uint64_t seed = unit_seed(), refused = 0, sliced = 0;

	for (int round = 0; round < ROUNDS; round++) {
		static unsigned char expected[FILE_SIZE], got[FILE_SIZE];
		struct sluice_tensors *table = table_new(ctx);
		struct sluice_tensor_range ranges[SLUICE_TENSOR_RANK_MOST];
		struct sluice_tensor_want want = {0, ranges, got};
		struct sluice_tensor_item item = {sizeof(item)};
		sluice_tensor_plan *plan = NULL;
		struct sl_tensor_stretches stretches;
		int64_t bytes;

		add_by_chance(table, 0, below(&seed, 1000), &seed);
		range_by_chance(&table->tensors[0], ranges, &seed);
		bytes = model_slice(&table->tensors[0], ranges, expected);
		memset(got, 0x55, sizeof(got));
		assert_int_equal(sluice_tensor_plan_new(table, &want, 1, &plan),
		                 bytes < 0 ? -EINVAL : 0);
		refused += bytes < 0;
		sliced += bytes > 0;
		if (bytes >= 0) {
			assert_int_equal(sluice_tensor_plan_item(plan, 0, &item), 0);
			assert_int_equal(item.bytes, bytes);
			assert_int_equal(sluice_tensor_plan_bytes(plan), 0);
			assert_int_equal(
				sl_tensor_stretches_make(plan, NULL, SL_PARTS_COPIED, &stretches),
				0);
			model_read(plan, &stretches);
			assert_memory_equal(got, expected, bytes);
			assert_int_equal(got[bytes], 0x55);
			sl_tensor_stretches_clear(&stretches);
		}
		sluice_tensor_plan_free(plan);
		table_free(table);
	}
	assert_true(refused > ROUNDS / 50 && sliced > ROUNDS / 4);
}

TEST(slices_of_ranks_are_as_even_as_can_be_and_leave_nothing)
{
	struct sluice_tensors *table = table_new(ctx);
	struct sluice_tensor_range r[3];
	uint64_t end = table_add(table, 0, 0, SLUICE_UINT8, 3, (uint64_t[]){2, 7, 3});

	table_add(table, 0, end, SLUICE_UINT8, 0, NULL);
	for (uint32_t ranks = 1; ranks < 10; ranks++) {
		uint64_t next = 0;

		for (uint32_t rank = 0; rank < ranks; rank++, next = r[1].stop) {
			assert_int_equal(sluice_tensors_slice(table, 0, rank % 2 ? 1 : -2, rank,
			                                      ranks, ranks == 7, r),
			                 0);
			assert_int_equal(r[1].start, next);
			assert_int_equal(r[1].stop, 7 * (rank + 1) / ranks);
			assert_true(r[0].stop == 2 && r[2].stop == 3 && !r[0].start && !r[2].start);
		}
		assert_int_equal(next, 7);
	}
	((uint64_t *)table->tensors[0].shape)[0] = UINT64_MAX;
	assert_int_equal(sluice_tensors_slice(table, 0, 0, UINT32_MAX - 1, UINT32_MAX, 0, r), 0);
	/* 2**64 - 1 is a multiple of 2**32 - 1. */
	assert_true(r[0].stop == UINT64_MAX && r[0].start == UINT64_MAX - UINT64_MAX / UINT32_MAX);
	assert_int_equal(sluice_tensors_slice(table, 0, 1, 0, 2, 1, r), -EINVAL);
	assert_non_null(strstr(sluice_last_message(), "dimension 1 has 7 elements, which 2 ranks"));
	assert_int_equal(sluice_tensors_slice(table, 0, 3, 0, 2, 0, r), -EINVAL);
	assert_int_equal(sluice_tensors_slice(table, 0, -4, 0, 2, 0, r), -EINVAL);
	assert_int_equal(sluice_tensors_slice(table, 1, 0, 0, 2, 0, r), -EINVAL);
	assert_int_equal(sluice_tensors_slice(table, 1, -1, 0, 2, 0, r), -EINVAL);
	assert_int_equal(sluice_tensors_slice(table, 0, 0, 2, 2, 0, r), -EINVAL);
	assert_int_equal(sluice_tensors_slice(table, 0, 0, 0, 0, 0, r), -EINVAL);
	assert_int_equal(sluice_tensors_slice(table, 2, 0, 0, 1, 0, r), -EINVAL);
	table_free(table);
}

/* Slices of columns [from, to) of 10 rows for several ranks. Returns how many of them are gathered. */
static size_t gathered_of(uint64_t columns, size_t count, const uint64_t (*of)[2])
{
	struct sluice_tensors *table = table_new(ctx);
	struct sluice_tensor_range ranges[4][2];
	struct sluice_tensor_want wants[4];
	struct sl_tensor_stretches stretches;
	sluice_tensor_plan *plan;
	size_t found = 0;

	table_add(table, 0, 0, SLUICE_UINT8, 2, (uint64_t[]){10, columns});
	for (size_t i = 0; i < count; i++) {
		ranges[i][0] = (struct sluice_tensor_range){0, 10};
		ranges[i][1] = (struct sluice_tensor_range){of[i][0], of[i][1]};
		wants[i] = (struct sluice_tensor_want){0, ranges[i], content};
	}
	assert_int_equal(sluice_tensor_plan_new(table, wants, count, &plan), 0);
	assert_int_equal(sl_tensor_stretches_make(plan, NULL, SL_PARTS_COPIED, &stretches), 0);
	for (size_t i = 0; i < count; i++)
		found += stretches.targets[i].gathered;
	sl_tensor_stretches_clear(&stretches);
	assert_int_equal(sl_tensor_stretches_make(plan, NULL, SL_PARTS_ON_STREAM, &stretches), 0);
	assert_int_equal(stretches.gathered, 0);
	sl_tensor_stretches_clear(&stretches);
	sluice_tensor_plan_free(plan);
	table_free(table);
	return found;
}

TEST(several_slices_of_the_same_rows_are_gathered)
{
	assert_int_equal(gathered_of(100, 2, (uint64_t[][2]){{0, 50}, {50, 100}}), 2);
	assert_int_equal(gathered_of(100, 3, (uint64_t[][2]){{60, 80}, {0, 50}, {80, 100}}), 3);
	assert_int_equal(gathered_of(100, 1, (uint64_t[][2]){{0, 50}}), 0);
	assert_int_equal(gathered_of(100, 2, (uint64_t[][2]){{0, 50}, {0, 50}}), 0);
	assert_int_equal(gathered_of(100, 2, (uint64_t[][2]){{0, 20}, {80, 100}}), 0);
	assert_int_equal(gathered_of(1 << 18, 2, (uint64_t[][2]){{0, 1 << 17}, {1 << 17, 1 << 18}}),
	                 0);
}

/* A plan of many slices, some of them in a memory, some twice. */
static void check_wants(uint64_t *seed, enum sl_tensor_stretches_kind kind)
{
	enum { WANTS = 40 };
	static unsigned char expected[FILE_SIZE], places[WANTS][4096];
	struct sluice_tensor_range ranges[WANTS][SLUICE_TENSOR_RANK_MOST];
	struct sluice_tensor_want wants[WANTS];
	struct sluice_tensors *table = table_new(ctx);
	sluice_tensor_memory *memory;
	sluice_tensor_plan *plan;
	struct sl_tensor_stretches stretches;
	uint64_t end = 0;
	size_t count = 0;

	for (size_t i = 0; i < 30; i++) {
		end = i == 15 ? 0 : end;
		end = add_by_chance(table, i >= 15, end, seed);
	}
	for (size_t i = 0; i < WANTS; i++) {
		const struct sl_tensor *tensor;
		size_t which = below(seed, 30);

		tensor = &table->tensors[which];
		range_by_chance(tensor, ranges[count], seed);
		if (tensor->bytes > sizeof(places[0]) ||
		    model_slice(tensor, ranges[count], expected) < 0)
			continue;
		wants[count] = (struct sluice_tensor_want){which, ranges[count],
		                                           below(seed, 2) ? places[count] : NULL};
		if (count && !below(seed, 3)) {
			wants[count].tensor = wants[count - 1].tensor;
			wants[count].ranges = wants[count - 1].ranges;
		}
		count++;
	}
	assert_int_equal(sluice_tensor_plan_new(table, wants, count, &plan), 0);
	assert_int_equal(sluice_tensor_memory_new(-1, sluice_tensor_plan_bytes(plan), &memory), 0);
	assert_int_equal(sl_tensor_stretches_make(plan, memory, kind, &stretches), 0);
	assert_true(stretches.count <= 2);
	model_read(plan, &stretches);
	for (size_t i = 0; i < count; i++) {
		struct sluice_tensor_item item = {sizeof(item)};
		const unsigned char *got = wants[i].to;
		int64_t bytes =
			model_slice(&table->tensors[wants[i].tensor], wants[i].ranges, expected);

		assert_int_equal(sluice_tensor_plan_item(plan, i, &item), 0);
		assert_int_equal(item.bytes, bytes);
		assert_int_equal(item.tensor, wants[i].tensor);
		if (!got) {
			assert_int_equal(item.memory_offset % 256, 0);
			assert_true(item.memory_offset + item.bytes <=
			            sluice_tensor_plan_bytes(plan));
			got = (unsigned char *)sluice_tensor_memory_data(memory) +
			      item.memory_offset;
		}
		if (bytes)
			assert_memory_equal(got, expected, bytes);
	}
	sl_tensor_stretches_clear(&stretches);
	sluice_tensor_plan_free(plan);
	sluice_tensor_memory_free(memory);
	table_free(table);
}

TEST(many_slices_are_each_in_their_place)
{
	uint64_t seed = unit_seed();

	for (int round = 0; round < 200; round++)
		check_wants(&seed, round % 2 ? SL_PARTS_COPIED : SL_PARTS_BY_FILE);
}

/* The extents of a plan of all tensors: `each` of `bytes` bytes in each of two files. */
static size_t extents_of(uint64_t bytes, unsigned each, uint64_t *needed)
{
	struct sluice_tensors *table = table_new(ctx);
	sluice_tensor_memory *memory;
	sluice_tensor_plan *plan;
	struct sl_tensor_stretches stretches;
	size_t count = 0;

	for (uint32_t file = 0; file < 2; file++)
		for (unsigned i = 0; i < each; i++)
			table_add(table, file, 8 + bytes * i, SLUICE_UINT8, 1, &bytes);
	assert_int_equal(sluice_tensor_plan_new(table, NULL, 0, &plan), 0);
	*needed = sluice_tensor_plan_bytes(plan);
	assert_int_equal(sluice_tensor_memory_new(-1, *needed, &memory), 0);
	assert_int_equal(sl_tensor_stretches_make(plan, memory, SL_PARTS_COPIED, &stretches), 0);
	for (size_t i = 0; i < stretches.count; i++)
		count += stretches.stretches[i].count;
	sl_tensor_stretches_clear(&stretches);
	sluice_tensor_plan_free(plan);
	sluice_tensor_memory_free(memory);
	table_free(table);
	return count;
}

TEST(tensors_that_follow_each_other_are_one_extent)
{
	uint64_t needed;

	assert_int_equal(extents_of(512, 20, &needed), 2);
	assert_int_equal(needed, 2 * 20 * 512);
	/* A place is a multiple of 256. */
	assert_int_equal(extents_of(500, 20, &needed), 40);
	assert_int_equal(needed, 39 * 512 + 500);
}

TEST(destinations_of_a_device_are_joined_within_an_allocation)
{
	struct sluice_tensors *table = table_new(ctx);
	uint64_t bytes = 1024;
	sluice_tensor_memory *memory, *other;
	sluice_tensor_plan *plan;
	struct sl_tensor_stretches stretches;
	int device;

	assert_int_equal(sluice_device_find("emulated", &device), 0);
	assert_int_equal(sluice_tensor_memory_new(device, 2 * bytes, &memory), 0);
	assert_int_equal(sluice_tensor_memory_new(device, bytes, &other), 0);
	for (unsigned i = 0; i < 2; i++)
		table_add(table, 0, i * bytes, SLUICE_UINT8, 1, &bytes);
	/* Memory of the plan, an allocation of the caller's, and two of them. */
	for (int own = 0; own < 3; own++) {
		char *to = sluice_tensor_memory_data(memory);
		char *then = own < 2 ? to + bytes : sluice_tensor_memory_data(other);
		struct sluice_tensor_want wants[] = {{0, NULL, own ? to : NULL},
		                                     {1, NULL, own ? then : NULL}};

		assert_int_equal(sluice_tensor_plan_new(table, wants, 2, &plan), 0);
		assert_int_equal(sl_tensor_stretches_make(plan, own ? NULL : memory,
		                                          SL_PARTS_COPIED, &stretches),
		                 0);
		assert_int_equal(stretches.count, 1);
		assert_int_equal(stretches.stretches[0].device, device);
		assert_int_equal(stretches.stretches[0].count, own == 2 ? 2 : 1);
		sl_tensor_stretches_clear(&stretches);
		sluice_tensor_plan_free(plan);
	}
	sluice_tensor_memory_free(memory);
	sluice_tensor_memory_free(other);
	table_free(table);
}

TEST(a_slice_that_two_devices_want_is_read_once)
{
	struct sluice_tensors *table = table_new(ctx);
	struct sluice_tensor_range rows[] = {{1, 3}, {0, 8}}, others[] = {{1, 4}, {0, 8}};
	uint64_t shape[] = {4, 8};
	void *to[2];
	char host[2][32];
	int device;

	assert_int_equal(sluice_device_find("emulated:1", &device), 0);
	table_add(table, 0, 0, SLUICE_UINT8, 2, shape);
	for (int i = 0; i < 2; i++)
		assert_int_equal(sluice_device_alloc(device, 32, &to[i]), 0);
	struct sluice_tensor_want wants[] = {
		{0, rows, host[0]}, {0, rows, to[0]}, {0, rows, host[1]}, {0, others, to[1]}};
	sluice_tensor_plan *plan;
	struct sl_tensor_stretches stretches;

	assert_int_equal(sluice_tensor_plan_new(table, wants, 4, &plan), 0);
	assert_int_equal(sl_tensor_stretches_make(plan, NULL, SL_PARTS_COPIED, &stretches), 0);
	assert_int_equal(stretches.count, 2);
	assert_int_equal(stretches.stretches[0].count, 2);
	assert_int_equal(stretches.stretches[1].count, 1);
	assert_int_equal(stretches.stretches[1].bytes, 24);
	assert_true(stretches.copied);
	/* The slices are the first three of the plan. */
	assert_ptr_equal(stretches.targets[1].to, to[0]);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(stretches.targets[i].source, i == 1 ? 0 : i);
		assert_int_equal(stretches.targets[i].device, i % 2 ? device : -1);
	}
	assert_int_equal(stretches.targets[0].stretch, 0);
	sl_tensor_stretches_clear(&stretches);
	assert_int_equal(sl_tensor_stretches_make(plan, NULL, SL_PARTS_BY_FILE, &stretches), 0);
	assert_int_equal(stretches.count, 1);
	assert_int_equal(stretches.stretches[0].count, 4);
	assert_false(stretches.copied);
	sl_tensor_stretches_clear(&stretches);
	sluice_tensor_plan_free(plan);
	for (int i = 0; i < 2; i++)
		assert_int_equal(sluice_device_free(to[i]), 0);
	table_free(table);
}

#define assert_plan_refused(table, want, error, says)                                       \
	do {                                                                                \
		sluice_tensor_plan *plan_ = NULL;                                           \
		assert_int_equal(sluice_tensor_plan_new(table, want, 1, &plan_), -(error)); \
		assert_non_null(strstr(sluice_last_message(), says));                       \
		assert_null(plan_);                                                         \
	} while (0)

TEST(a_plan_of_what_is_not_there_is_refused)
{
	struct sluice_tensors *table = table_new(ctx);
	struct sluice_tensor_range ranges[] = {{0, 2}, {3, 9}};
	struct sluice_tensor_want want = {1, NULL, NULL};

	table_add(table, 0, 0, SLUICE_FLOAT32, 2, (uint64_t[]){2, 8});
	assert_plan_refused(table, &want, EINVAL, "no tensor 1");
	want = (struct sluice_tensor_want){0, ranges, NULL};
	assert_plan_refused(table, &want, EINVAL, "dimension 1 is not in its shape");
	ranges[1] = (struct sluice_tensor_range){5, 4};
	assert_plan_refused(table, &want, EINVAL, "dimension 1 is not in its shape");
	assert_int_equal(sluice_tensor_plan_new(NULL, NULL, 0, NULL), -EINVAL);
	table_free(table);
}

TEST(a_plan_of_more_runs_than_fit_is_refused)
{
	struct sluice_tensors *table = table_new(ctx);
	struct sluice_tensor_range ranges[] = {{0, 16000000}, {0, 3}};
	struct sluice_tensor_want want = {0, ranges, NULL};
	struct sl_tensor_stretches stretches;
	sluice_tensor_plan *plan;
	char here;

	table_add(table, 0, 0, SLUICE_FLOAT32, 2, (uint64_t[]){16000001, 8193});
	assert_int_equal(sluice_tensor_plan_new(table, &want, 1, &plan), 0);
	sluice_tensor_plan_free(plan);
	ranges[0].stop++;
	assert_plan_refused(table, &want, E2BIG, "16000001, each of 12 bytes");
	/* Narrow columns are gathered in any number, but not in stream order. */
	table_add(table, 1, 0, SLUICE_FLOAT32, 2, (uint64_t[]){16000001, 4});
	want = (struct sluice_tensor_want){1, ranges, &here};
	assert_int_equal(sluice_tensor_plan_new(table, &want, 1, &plan), 0);
	assert_int_equal(sl_tensor_stretches_make(plan, NULL, SL_PARTS_COPIED, &stretches), 0);
	assert_int_equal(stretches.count, 0);
	assert_int_equal(stretches.gathered, 16000001 * 12);
	sl_tensor_stretches_clear(&stretches);
	assert_int_equal(sl_tensor_stretches_make(plan, NULL, SL_PARTS_ON_STREAM, &stretches),
	                 -E2BIG);
	assert_non_null(strstr(sluice_last_message(), "not 16000001"));
	sluice_tensor_plan_free(plan);
	table_free(table);
}

TEST(a_plan_of_nothing_is_a_plan)
{
	struct sluice_tensors *table = table_new(ctx);
	struct sluice_tensor_item item = {sizeof(item)};
	struct sl_tensor_stretches stretches;
	sluice_tensor_plan *plan;

	assert_int_equal(sluice_tensor_plan_new(table, NULL, 0, &plan), 0);
	assert_int_equal(sluice_tensor_plan_bytes(plan), 0);
	assert_int_equal(sluice_tensor_plan_item(plan, 0, &item), -ENOENT);
	assert_int_equal(sl_tensor_stretches_make(plan, NULL, SL_PARTS_COPIED, &stretches), 0);
	assert_int_equal(stretches.count, 0);
	sl_tensor_stretches_clear(&stretches);
	sluice_tensor_plan_free(plan);
	table_free(table);
}

int main(void)
{
	return RUN_TESTS(plan_setup, plan_teardown);
}
