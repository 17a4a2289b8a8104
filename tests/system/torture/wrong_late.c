/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong: what an operation has to do begins only after the call that submits it has returned. So the
 * commands that it has enqueued wait for this thread, which the driver may be holding up.
 */
#include "system/torture/torture.h"

#include "io/staged/staged.h"

__typeof__(sl_op_start) __real_sl_op_start, __wrap_sl_op_start;
__typeof__(sl_stream_enter) __real_sl_stream_enter, __wrap_sl_stream_enter;

const char *const wrong = "fills that start after the submission";

static _Thread_local bool entering;
static _Thread_local struct sluice_op *put_off;

void __wrap_sl_op_start(struct sluice_op *op)
{
	if (entering)
		put_off = op;
	else
		__real_sl_op_start(op);
}

int __wrap_sl_stream_enter(struct sluice_op *op, sluice_op **out)
{
	int rc;

	entering = true;
	rc = __real_sl_stream_enter(op, out);
	entering = false;
	if (put_off)
		__real_sl_op_start(put_off);
	put_off = NULL;
	return rc;
}

void wrong_start(void)
{
}
