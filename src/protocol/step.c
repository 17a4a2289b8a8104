/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/step.h"

void sl_store_step(const char *step)
{
	(void)step;
}
