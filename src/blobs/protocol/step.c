/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the protocol do nothing here; tests replace this file. */
#include "protocol/protocol.h"

void sl_store_step(const char *step)
{
	(void)step;
}
