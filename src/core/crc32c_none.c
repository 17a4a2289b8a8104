/* SPDX-License-Identifier: Apache-2.0 */
/* No CRC-32C: objects are written without checksums, which are not compared either. */
#include "core/core.h"

bool sl_crc32c_add(uint32_t *crc, const void *data, size_t n)
{
	(void)crc, (void)data, (void)n;
	return false;
}
