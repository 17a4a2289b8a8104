/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow columns of many rows, which are gathered from whole rows: for the host and devices, from files of every kind. */
#include "io/device_suite.h"
#include "lib/servers.h"
#include "tensors/table.h"

enum { LONG = 30000, PLANES = 3, ROWS = 5000, SHORT = 4000 };

/* Tensors of bytes in two files: 30000 x 40, 3 x 5000 x 24, and 4000 x 9, at odd places. */
static struct sluice_tensors *gather_table(struct fixture *f)
{
	struct sluice_tensors *table = table_new(f->ctx);
	uint64_t end = 77, other = 5;

	end += table_add(table, 0, end, SLUICE_UINT8, 2, (uint64_t[]){LONG, 40});
	end += table_add(table, 0, end, SLUICE_UINT8, 3, (uint64_t[]){PLANES, ROWS, 24});
	other += table_add(table, 1, other, SLUICE_UINT8, 2, (uint64_t[]){SHORT, 9});
	file_make(scratch(f, "long"), end, 1);
	file_make(scratch(f, "short"), other, 2);
	table->files[0].file = open_read(f->ctx, address(f, "long"));
	table->files[1].file = open_read(f->ctx, address(f, "short"));
	return table;
}

/* Adds tensor 3 at an offset in the first file, which grows to its end. */
static void gather_add(struct fixture *f, struct sluice_tensors *table, uint64_t offset,
                       uint64_t lines, uint64_t width)
{
	file_make(scratch(f, "longer"), offset + lines * width, 1);
	assert_ok(sluice_close(table->files[0].file));
	table->files[0].file = open_read(f->ctx, address(f, "longer"));
	table_add(table, 0, offset, SLUICE_UINT8, 2, (uint64_t[]){lines, width});
}

/* The columns [from, to) of rows are at a place of the host or a device. */
static void assert_columns(const struct sl_tensor *tensor, const void *at, size_t rows,
                           uint64_t from, uint64_t to)
{
	uint64_t width = tensor->shape[tensor->rank - 1];
	size_t n = to - from;
	unsigned char *held = malloc(rows * n);

	assert_ok(sluice_copy(held, at, rows * n));
	for (size_t i = 0; i < rows; i++)
		assert_pattern(held + i * n, n, tensor->offset + i * width + from,
		               tensor->file + 1);
	free(held);
}

static sluice_tensor_load *gather_begin(struct sluice_tensors *table,
                                        const struct sluice_tensor_want *wants, size_t count,
                                        sluice_tensor_plan **plan)
{
	sluice_tensor_load *load = NULL;

	assert_ok(sluice_tensor_plan_new(table, wants, count, plan));
	assert_ok(sluice_tensor_plan_read(*plan, NULL, NULL, &load));
	return load;
}

FIXTURE_TEST(columns_for_several_ranks_are_gathered_from_one_read)
{
	struct sluice_tensors *table = gather_table(f);
	struct sluice_tensor_range first[] = {{0, LONG}, {5, 17}}, second[] = {{0, LONG}, {17, 29}};
	struct sluice_tensor_range deep[] = {{0, PLANES}, {0, ROWS}, {7, 11}};
	struct sluice_tensor_range little[] = {{0, SHORT}, {2, 5}};
	char *here = malloc(LONG * 12);
	struct sluice_tensor_want wants[] = {
		{0, first, device_new(0, LONG * 12)},
		{0, second, device_new(1, LONG * 12)},
		{0, first, here},
		{1, deep, device_new(1, PLANES * ROWS * 4)},
		{2, little, device_new(0, SHORT * 3)},
		{2, NULL, device_new(0, SHORT * 9)},
	};
	uint64_t read = 0, all = 0;
	sluice_tensor_plan *plan;
	sluice_tensor_load *load = gather_begin(table, wants, 6, &plan);
	int64_t bytes = LONG * 36 + PLANES * ROWS * 4 + SHORT * 12, rc;

	rc = sluice_tensor_load_wait(load, PATIENCE_MS);
	if (rc < 0)
		fail_msg("%s", sluice_tensor_load_message(load));
	assert_int_equal(rc, bytes);
	sluice_tensor_load_progress(load, &read, &all);
	/* The columns that two have are read once. */
	assert_int_equal(all, bytes - LONG * 12);
	assert_int_equal(read, all);
	sluice_tensor_load_free(load);
	assert_columns(&table->tensors[0], wants[0].to, LONG, 5, 17);
	assert_columns(&table->tensors[0], wants[1].to, LONG, 17, 29);
	assert_columns(&table->tensors[0], here, LONG, 5, 17);
	assert_columns(&table->tensors[1], wants[3].to, PLANES * ROWS, 7, 11);
	assert_columns(&table->tensors[2], wants[4].to, SHORT, 2, 5);
	assert_columns(&table->tensors[2], wants[5].to, SHORT, 0, 9);
	for (size_t i = 0; i < 6; i++)
		if (wants[i].to != here)
			device_free(wants[i].to);
	free(here);
	sluice_tensor_plan_free(plan);
	table_free(table);
}

FIXTURE_TEST(wide_columns_are_gathered_if_they_are_for_several_ranks)
{
	enum { RANKS = 3, LINES = 90, WIDTH = 180001 };
	struct sluice_tensors *table = gather_table(f);
	struct sluice_tensor_range ranges[RANKS][2];
	struct sluice_tensor_want wants[RANKS];
	uint64_t all = 0;
	sluice_tensor_plan *plan;
	sluice_tensor_load *load;

	gather_add(f, table, 1000, LINES, WIDTH);
	for (uint32_t i = 0; i < RANKS; i++) {
		assert_ok(sluice_tensors_slice(table, 3, -1, i, RANKS, 0, ranges[i]));
		wants[i] = (struct sluice_tensor_want){
			3, ranges[i], device_new(i % 2, (size_t)LINES * (WIDTH / RANKS + 1))};
	}
	load = gather_begin(table, wants, RANKS, &plan);
	sluice_tensor_load_progress(load, NULL, &all);
	assert_int_equal(all, (uint64_t)LINES * WIDTH);
	assert_int_equal(sluice_tensor_load_wait(load, PATIENCE_MS), all);
	sluice_tensor_load_free(load);
	for (uint32_t i = 0; i < RANKS; i++) {
		assert_columns(&table->tensors[3], wants[i].to, LINES, ranges[i][1].start,
		               ranges[i][1].stop);
		device_free(wants[i].to);
	}
	sluice_tensor_plan_free(plan);
	table_free(table);
}

/* In a device they are gathered from a local file; the host has them by extents, or from the device. */
FIXTURE_TEST(columns_of_long_rows_come_into_a_device_and_the_host)
{
	enum { LINES = 60, WIDTH = 17000 };
	struct sluice_tensors *table = gather_table(f);
	struct sluice_tensor_range narrow[] = {{0, LONG}, {5, 17}},
				   ranges[] = {{0, LINES}, {17, 36}};
	char *here = malloc(LINES * 19);
	uint64_t read, all;
	sluice_tensor_plan *plan;
	sluice_tensor_load *load;

	gather_add(f, table, 2000000, LINES, WIDTH);
	for (int first = 0; first < 2; first++) {
		char *there[] = {device_new(0, LINES * 19), device_new(1, LINES * 19)};
		char *many[] = {device_new(0, LONG * 12), device_new(1, LONG * 12)};
		struct sluice_tensor_want wants[] = {{3, ranges, first ? here : there[0]},
		                                     {3, ranges, first ? there[0] : here},
		                                     {3, ranges, there[1]},
		                                     {0, narrow, many[0]},
		                                     {0, narrow, many[1]}};

		load = gather_begin(table, wants, 5, &plan);
		assert_int_equal(sluice_tensor_load_wait(load, PATIENCE_MS),
		                 LINES * 19 * 3 + LONG * 24);
		sluice_tensor_load_progress(load, &read, &all);
		assert_int_equal(read, all);
		sluice_tensor_load_free(load);
		for (size_t i = 0; i < 3; i++)
			assert_columns(&table->tensors[3], wants[i].to, LINES, 17, 36);
		assert_columns(&table->tensors[0], many[1], LONG, 5, 17);
		sluice_tensor_plan_free(plan);
		for (size_t i = 0; i < 2; i++) {
			device_free(there[i]);
			device_free(many[i]);
		}
		memset(here, 0, LINES * 19);
	}
	free(here);
	table_free(table);
}

FIXTURE_TEST(columns_for_the_host_alone_are_gathered)
{
	struct sluice_tensors *table = gather_table(f);
	struct sluice_tensor_range some[] = {{100, LONG}, {39, 40}},
				   deep[] = {{1, 2}, {0, ROWS}, {0, 1}};
	char *here = malloc(LONG), *other = malloc(ROWS);
	struct sluice_tensor_want wants[] = {{0, some, here}, {1, deep, other}};
	struct sl_tensor shifted = table->tensors[0];
	sluice_tensor_plan *plan;
	sluice_tensor_load *load = gather_begin(table, wants, 2, &plan);

	assert_int_equal(sluice_tensor_load_wait(load, PATIENCE_MS), LONG - 100 + ROWS);
	sluice_tensor_load_free(load);
	shifted.offset += 100 * 40;
	assert_columns(&shifted, here, LONG - 100, 39, 40);
	shifted = table->tensors[1];
	shifted.offset += ROWS * 24;
	assert_columns(&shifted, other, ROWS, 0, 1);
	free(here);
	free(other);
	sluice_tensor_plan_free(plan);
	table_free(table);
}

FIXTURE_TEST(a_file_that_ends_among_the_rows_is_named)
{
	struct sluice_tensors *table = gather_table(f);
	struct sluice_tensor_range ranges[] = {{0, 40000}, {1, 3}};
	struct sluice_tensor_want want = {3, ranges, device_new(0, 80000)};
	sluice_tensor_plan *plan;
	sluice_tensor_load *load;

	table_add(table, 0, 1000, SLUICE_UINT8, 2, (uint64_t[]){40000, 50});
	load = gather_begin(table, &want, 1, &plan);
	assert_int_equal(sluice_tensor_load_wait(load, PATIENCE_MS), -EIO);
	assert_non_null(strstr(sluice_tensor_load_message(load), "shorter than"));
	sluice_tensor_load_free(load);
	sluice_tensor_plan_free(plan);
	device_free(want.to);
	table_free(table);
}

/* Without its cancel the read that stands still would end after many seconds. */
FIXTURE_TEST(a_gathering_load_is_cancelled)
{
	bool holds = row->remote && !row_is_store();
	struct sluice_tensors *table = gather_table(f);
	struct sluice_tensor_range ranges[] = {{0, LONG}, {5, 17}};
	struct sluice_tensor_want want = {0, ranges, device_new(0, LONG * 12)};
	double begun = seconds_now();
	sluice_tensor_plan *plan;
	sluice_tensor_load *load;
	int64_t rc;

	if (holds) {
		assert_ok(sluice_close(table->files[0].file));
		table->files[0].file =
			open_read(f->ctx, fault_uri("size=%zu&fault=hold:1000", 4 * MIB));
	}
	load = gather_begin(table, &want, 1, &plan);
	if (holds)
		assert_int_equal(sluice_tensor_load_wait(load, 50), -EINPROGRESS);
	sluice_tensor_load_cancel(load);
	rc = sluice_tensor_load_wait(load, PATIENCE_MS);
	assert_true(rc == -ECANCELED || (!holds && rc == LONG * 12));
	assert_true(!holds || seconds_now() - begun < 10);
	sluice_tensor_load_free(load);
	sluice_tensor_plan_free(plan);
	device_free(want.to);
	table_free(table);
}
