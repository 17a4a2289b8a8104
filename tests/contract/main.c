/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/contract.h"

int main(int argc, char **argv)
{
	/* What is about writing in place, or about local names and their errors, is for local rows;
	 * of remote files there are cases for that in tests/engine/http. */
	row_start(argc, argv);
	printf("row %s\n", row->name);
	if (row->remote)
		return RUN_FILES("read", "vector", "done", "cancel", "lifetime", "fork");
	return RUN_FILES("read", "write", "vector", "order", "model", "special", "uri", "open",
	                 "replace", "done", "cancel", "lifetime", "errors", "fork");
}
