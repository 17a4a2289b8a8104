/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 of zip archives (ISO 3309), sixteen bytes at a time. Any thread. */
#include <endian.h>
#include <pthread.h>
#include <string.h>

#include "tensors/header.h"

#define STEP 16

/* [n][byte]: of a byte with n zeros behind it. Fixed by crc32_init(). */
static uint32_t crc32_tables[STEP][256];

static void crc32_init(void)
{
	for (uint32_t i = 0; i < STEP * 256; i++) {
		uint32_t crc = i < 256 ? i : crc32_tables[i / 256 - 1][i % 256];

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
		crc32_tables[i / 256][i % 256] = crc;
	}
}

uint32_t sl_crc32(uint32_t crc, const void *data, size_t n)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const unsigned char *at = data;

	pthread_once(&once, crc32_init);
	crc = ~crc;
	for (uint64_t words[2]; n >= STEP; n -= STEP, at += STEP) {
		memcpy(words, at, STEP);
		words[0] ^= htole64(crc);
		crc = 0;
		for (int i = 0; i < STEP; i++)
			crc ^= crc32_tables[STEP - 1 - i][le64toh(words[i / 8]) >> i % 8 * 8 & 255];
	}
	for (; n; n--)
		crc = crc >> 8 ^ crc32_tables[0][(crc ^ *at++) & 255];
	return ~crc;
}
