/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "core/core.h"

int64_t sl_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t sl_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? SL_FOREVER : sl_now() + timeout_ms * INT64_C(1000000);
}
