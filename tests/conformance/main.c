/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance/conformance.h"

int main(int argc, char **argv)
{
	static int (*const groups[])(void) = {
		group_read,    group_write,    group_vector, group_order,   group_model,
		group_special, group_uri,      group_open,   group_replace, group_done,
		group_cancel,  group_lifetime, group_errors, group_fork,
	};
	int failed = 0;
	size_t i;

	row_start(argc, argv);
	printf("row %s\n", row->name);
	for (i = 0; i < COUNT_OF(groups); i++)
		failed += groups[i]();
	return failed != 0;
}
