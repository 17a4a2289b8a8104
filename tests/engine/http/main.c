/* SPDX-License-Identifier: Apache-2.0 */
#include "http/cases.h"

#include <signal.h>

/* The cases wait more than they compute: parts of them run beside each other. */
static bool is_part(int argc, char **argv, const char *name)
{
	return argc > 2 && strcmp(argv[2], name) == 0;
}

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
	if (argc > 3)
		cmocka_set_test_filter(argv[3]);
	/* A program that does not ignore it must survive a server that goes away. */
	signal(SIGPIPE, SIG_DFL);
	if (is_part(argc, argv, "s3"))
		return RUN_FILES("identity", "s3", "s3_keys", "s3_services", "s3_write",
		                 "s3_copies", "s3_device");
	if (is_part(argc, argv, "times"))
		return RUN_FILES("retry", "cancel", "reactor", "versions", "apart", "location",
		                 "limited", "hedge", "extents", "eager");
	return RUN_FILES("answers", "refusals", "stall", "redirect", "whole", "tls", "uri", "open",
	                 "bounds", "put", "upload");
}
