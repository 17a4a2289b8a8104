/* SPDX-License-Identifier: Apache-2.0 */
/* The library as it is. */
#include "system/torture/torture.h"

const char *const wrong;

void wrong_start(void)
{
}
