/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <sys/mount.h>

#include "local/fault.h"

int fault_setup(void **state)
{
	gate_reset();
	return fixture_setup(state);
}

int fault_teardown(void **state)
{
	gate_reset();
	fail_fsync(0);
	fail_allocation(0);
	fail_thread(0);
	return fixture_teardown(state);
}

void one_thread(struct fixture *f)
{
	struct sluice_config c = row_config();

	c.workers = 1;
	config_tune(&c, "reactors", 1);
	config_tune(&c, "reactor_depth", 1);
	config_tune(&c, "operation_depth", 1);
	config_tune(&c, "piece_bytes", 64 * KIB);
	config_tune(&c, "inline_bytes", 1);
	fixture_config(f, &c);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	printf("row %s\n", row->name);
	/* What is mounted here is nobody else's; without the right to, those tests are skipped. */
	if (unshare(CLONE_NEWNS) == 0)
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	return RUN_FILES("fault_phases", "fault_bounds", "fault_results", "fault_buffer",
	                 "fault_storage", "fault_limits", "fault_memory", "fault_sync",
	                 "fault_refused", "fault_ring");
}
