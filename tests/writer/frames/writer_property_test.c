/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are drawn from a seed, by the public calls, and read back by HDF5. With numbers "FIRST COUNT"
 * these plans and no others; with a folder behind them the files stay there, and what is in them is printed
 * for property_test.py.
 */
#include <sluice/device.h>
#include <unistd.h>

#include "frames/plan.h"

static uint64_t first = 1, count;
static const char *folder;

static void run_plan(sluice_context *ctx, uint64_t number, const char *path)
{
	int device = -1;
	struct plan plan;

	sluice_device_find("emulated:0", &device);
	plan_draw(&plan, number);
	plan_write(&plan, ctx, path, device);
	if (folder)
		plan_print(&plan, path, stdout);
	else
		unlink(path);
}

FIXTURE_TEST(frames_come_back_equal_for_every_type_and_way)
{
	for (uint64_t number = first; number < first + count; number++) {
		char path[512];

		snprintf(path, sizeof(path), "%s/%d.h5", folder ? folder : f->dir, (int)number);
		if (!folder)
			print_message("plan %d\n", (int)number);
		run_plan(f->ctx, number, path);
	}
}

int main(int argc, char **argv)
{
	count = getenv("STRESS") ? 3000 : under_sanitizer() ? 20 : 80;
	if (argc > 2) {
		first = strtoull(argv[1], NULL, 0);
		count = strtoull(argv[2], NULL, 0);
		folder = argv[3];
	}
	row_start(1, argv);
	row_start_devices();
	return RUN_TESTS(NULL, NULL);
}
