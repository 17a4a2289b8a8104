/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_uring, in a build without liburing
 *
 * Replaces uring.c: there are no reactors, and the workers make all calls.
 */
#include <errno.h>
#include <stdlib.h>

#include "local/local_internal.h"

int sl_uring_start(struct sl_core *core, struct sl_uring **out)
{
	(void)core;
	(void)out;
	return sl_fail(-EOPNOTSUPP, "this library was built without liburing");
}

void sl_uring_stop(struct sl_uring *uring)
{
	(void)uring;
}

void sl_uring_free(struct sl_uring *uring)
{
	(void)uring;
}

/* Never called, as the next function: without a struct sl_uring no piece is submitted to it. */
void sl_uring_submit(struct sl_piece *piece)
{
	(void)piece;
	abort();
}

void sl_uring_start_piece(struct sl_piece *piece)
{
	(void)piece;
	abort();
}
