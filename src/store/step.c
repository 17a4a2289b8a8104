/* SPDX-License-Identifier: Apache-2.0 */
#include "store/step.h"

void sl_store_step(const char *step)
{
	(void)step;
}
