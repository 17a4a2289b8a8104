/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <unistd.h>

#include "io/device_suite.h"

/* Seats of this process alone, in a folder of its own. */
static char seats[64] = "/tmp/sluice-seats-XXXXXX";

static void remove_seats(void)
{
	char file[80];

	snprintf(file, sizeof(file), "%s/sluice-seats", seats);
	unlink(file);
	rmdir(seats);
}

int main(int argc, char **argv)
{
	if (!mkdtemp(seats) || setenv("XDG_RUNTIME_DIR", seats, 1) || atexit(remove_seats))
		return 1;
	row_start(argc, argv);
	row_start_devices();
	printf("row %s\n", row->name);
	/* By hand: the cases whose names match. */
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return RUN_FILES("device_stream", "device_failure", "device_fan", "device_refusal",
	                 "device_staging", "device_shape", "device_extents", "device_driver",
	                 "device_load", "device_slow", "device_alone");
}
