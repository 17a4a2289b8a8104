/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file into memory, and could do something else in the meantime. */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/sluice.h>

int main(int argc, char **argv)
{
	struct sluice_file_info st = {.size = sizeof st};
	sluice_context *ctx;
	sluice_file *file;
	sluice_op *op;

	if (argc != 2 || sluice_context_new(NULL, &ctx) || sluice_open(ctx, argv[1], NULL, &file) ||
	    sluice_stat(file, &st)) {
		fprintf(stderr, "%s\n",
		        argc == 2 ? sluice_last_message() : "usage: read_file FILE");
		return 1;
	}
	/* How long a file in /proc is, is known when it has been read: here up to 1 MiB of it. */
	size_t length = st.flags & SLUICE_STAT_SIZE_UNKNOWN ? 1 << 20 : st.length;
	char *data = malloc(length + 1);
	if (!data || sluice_read(file, data, length, 0, &op)) {
		fprintf(stderr, "%s\n", data ? sluice_last_message() : "out of memory");
		return 1;
	}
	puts("reading ..."); /* the bytes arrive while this thread does what it likes */
	int64_t n = sluice_wait(op, -1);
	if (n >= 0)
		printf("%lld bytes of %s\n", (long long)n, argv[1]);
	else
		fprintf(stderr, "%s\n", sluice_op_message(op));

	sluice_op_free(op);
	sluice_close(file);
	sluice_context_close(ctx);
	free(data);
	return n < 0;
}
