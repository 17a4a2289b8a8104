/* SPDX-License-Identifier: Apache-2.0 */
#include "http/cases.h"

#include <signal.h>

int main(int argc, char **argv)
{
	row_start(argc, argv);
	row_start_devices();
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
	return RUN_FILES("answers", "refusals", "retry", "stall", "redirect", "whole", "tls", "uri",
	                 "cancel", "open", "bounds", "reactor", "put", "upload", "versions",
	                 "apart", "location", "limited", "identity", "hedge", "extents", "eager",
	                 "s3", "s3_keys", "s3_services", "s3_write", "s3_device");
}
