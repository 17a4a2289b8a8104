/* SPDX-License-Identifier: Apache-2.0 */
#include "io/device_suite.h"

int main(int argc, char **argv)
{
	row_start(argc, argv);
	row_start_devices();
	printf("row %s\n", row->name);
	/* By hand: the cases whose names match. */
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return RUN_FILES("device_stream", "device_failure", "device_fan", "device_refusal",
	                 "device_staging", "device_shape", "device_extents", "device_driver",
	                 "device_load", "device_slow");
}
