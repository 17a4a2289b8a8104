/* SPDX-License-Identifier: Apache-2.0 */
/* No CRC-32C: objects are written without checksums. */
#include "s3/s3.h"

bool sl_s3_crc32c(const void *data, size_t bytes, char out[SL_S3_CRC32C])
{
	(void)data, (void)bytes, (void)out;
	return false;
}
