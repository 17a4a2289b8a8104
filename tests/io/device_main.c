/* SPDX-License-Identifier: Apache-2.0 */
#include "io/device_suite.h"

int main(int argc, char **argv)
{
	static int (*const groups[])(void) = {
		group_stream, group_failure, group_refusal, group_staging,
		group_shape,  group_driver,  group_load,    group_slow,
	};
	int failed = 0;
	size_t i;

	row_start(argc, argv);
	row_start_devices();
	printf("row %s\n", row->name);
	/* By hand: the cases whose names match. */
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	for (i = 0; i < COUNT_OF(groups); i++)
		failed += groups[i]();
	return failed != 0;
}
