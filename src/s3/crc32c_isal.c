/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C by ISA-L. Any thread. */
#include <isa-l/crc.h>
#include <string.h>

#include "s3/s3.h"

enum { STEP = 1 << 30 };

bool sl_s3_crc32c(const void *data, size_t bytes, char out[SL_S3_CRC32C])
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned crc = UINT32_MAX;
	uint64_t bits;

	/* ISA-L neither writes there nor takes a longer length. */
	for (unsigned char *at = (unsigned char *)(uintptr_t)data; bytes;) {
		size_t step = SL_MIN(bytes, (size_t)STEP);

		crc = crc32_iscsi(at, (int)step, crc);
		at += step;
		bytes -= step;
	}
	bits = (uint64_t)~crc << 4;
	strcpy(out, "......==");
	for (int i = 0; i < 6; i++)
		out[i] = digits[bits >> (30 - 6 * i) & 63];
	return true;
}
