/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong: a host function on the caller's stream waits until the operation is over, whose copies other
 * threads enqueue meanwhile.
 */
#include "system/torture/apart.h"

#include <time.h>

const char *const wrong = "a blocking host function";

static void wait_in_stream(void *argument)
{
	struct apart *apart = argument;
	struct timespec pause = {0, 20000};

	apart_begin(apart);
	while (!apart_is_over(apart))
		nanosleep(&pause, NULL);
	sl_op_unref(apart->op);
}

int apart_enqueue(struct apart *apart, struct sl_device *device, sluice_stream stream)
{
	return gpu_host(gpu_which(device->index), stream, wait_in_stream, apart);
}

void wrong_start(void)
{
}
