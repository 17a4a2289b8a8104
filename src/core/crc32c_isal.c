/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C by ISA-L. Any thread. */
#include <isa-l/crc.h>

#include "core/core.h"

enum { STEP = 1 << 30 };

bool sl_crc32c_add(uint32_t *crc, const void *data, size_t n)
{
	/* ISA-L neither writes there nor takes a longer length. */
	for (unsigned char *at = (unsigned char *)(uintptr_t)data; n;) {
		size_t step = SL_MIN(n, (size_t)STEP);

		*crc = crc32_iscsi(at, (int)step, *crc);
		at += step;
		n -= step;
	}
	return true;
}
