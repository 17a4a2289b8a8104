/* SPDX-License-Identifier: Apache-2.0 */
#include "http/cases.h"

#include <signal.h>

int main(int argc, char **argv)
{
	static int (*const groups[])(void) = {
		group_answers, group_refusals, group_retry,  group_stall,    group_redirect,
		group_whole,   group_tls,      group_uri,    group_cancel,   group_bounds,
		group_reactor, group_put,      group_upload, group_versions, group_apart,
	};
	int failed = 0;
	size_t i;

	row_start(argc, argv);
	if (!row->remote) {
		fprintf(stderr, "%s: the row must be one of remote files\n", argv[0]);
		return 2;
	}
	printf("row %s\n", row->name);
	/* By hand: the cases whose names match. */
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	/* A program that does not ignore it must survive a server that goes away. */
	signal(SIGPIPE, SIG_DFL);
	for (i = 0; i < COUNT_OF(groups); i++)
		failed += groups[i]();
	return failed != 0;
}
