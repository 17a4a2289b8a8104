/* SPDX-License-Identifier: Apache-2.0 */
/* No CRC-32C: checksums of objects are not compared. */
#include "cp.h"

bool cli_crc32c_add(uint32_t *crc, const void *data, size_t n)
{
	(void)crc, (void)data, (void)n;
	return false;
}
