/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/contract.h"

int main(int argc, char **argv)
{
	/* What is about writing in place, or about local names and their errors, is for local rows;
	 * of remote files there are cases for that in tests/http. */
	static const struct {
		int (*run)(void);
		bool remote;
	} groups[] = {
		{group_read, true},    {group_write, false}, {group_vector, true},
		{group_order, false},  {group_model, false}, {group_special, false},
		{group_uri, false},    {group_open, false},  {group_replace, false},
		{group_done, true},    {group_cancel, true}, {group_lifetime, true},
		{group_errors, false}, {group_fork, true},
	};
	int failed = 0;
	size_t i;

	row_start(argc, argv);
	printf("row %s\n", row->name);
	for (i = 0; i < COUNT_OF(groups); i++)
		if (groups[i].remote || !row->remote)
			failed += groups[i].run();
	return failed != 0;
}
