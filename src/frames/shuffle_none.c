/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of shuffle_x86.c on other processors. */
#include "frames/shuffle.h"

const struct sl_shuffle_kernel *sl_shuffle_kernel(enum sl_shuffle_way way)
{
	(void)way;
	return NULL;
}
