/* SPDX-License-Identifier: Apache-2.0 */
/* What holds up what on a device, as measured on a GPU, and what only the emulated one can do. */
#include <sys/mman.h>

#include "unit/device.h"

int main(void)
{
	return 0;
}
