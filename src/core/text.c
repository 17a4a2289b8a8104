/* SPDX-License-Identifier: Apache-2.0 */
/* Formatted text, UTF-8 (RFC 3629), ETags (RFC 9110), sums in base64 (RFC 4648), and texts in JSON
 * (RFC 8259). Any thread. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"

char *sl_format(const char *format, ...)
{
	va_list arguments;
	char *text;

	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	return text;
}

size_t sl_utf8_sequence(const char *text, size_t n, uint32_t *character)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)text;
	size_t length = s[0] < 0x80             ? 1
	                : (s[0] & 0xe0) == 0xc0 ? 2
	                : (s[0] & 0xf0) == 0xe0 ? 3
	                : (s[0] & 0xf8) == 0xf0 ? 4
	                                        : 0;
	uint32_t code = length > 1 ? s[0] & (0x7fu >> length) : s[0];

	if (!length || length > n)
		return 0;
	for (size_t i = 1; i < length; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	*character = code;
	return length;
}

bool sl_utf8_valid(const char *text, size_t n)
{
	const uint64_t high = 0x8080808080808080;
	uint32_t character;
	uint64_t eight;

	for (size_t at = 0, length; at < n; at += length) {
		length = sizeof(eight);
		memcpy(&eight, text + at, SL_MIN(n - at, length));
		if (n - at >= length && !(eight & high))
			continue;
		length = (signed char)text[at] >= 0
		                 ? 1
		                 : sl_utf8_sequence(text + at, n - at, &character);
		if (!length)
			return false;
	}
	return true;
}

/* Multiplies polynomials modulo that of CRC-32C; the highest bit is 1, the next x. */
static uint32_t crc32c_multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1, b = b >> 1 ^ (b & 1 ? 0x82f63b78 : 0))
		product ^= a >> 31 ? b : 0;
	return product;
}

uint32_t sl_crc32c_move(uint32_t crc, int64_t n)
{
	/* x^8, x^16, x^32..., or their inverses. */
	uint32_t power = n < 0 ? 0xfde39562 : 1u << 23;

	for (n = n < 0 ? -n : n; n; n >>= 1, power = crc32c_multiply(power, power))
		crc = n & 1 ? crc32c_multiply(crc, power) : crc;
	return crc;
}

const char *sl_crc32c_text(uint32_t crc, char text[SL_CRC32C_TEXT])
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	uint64_t bits = (uint64_t)~crc << 4;

	strcpy(text, "......==");
	for (int i = 0; i < 6; i++)
		text[i] = digits[bits >> (30 - 6 * i) & 63];
	return text;
}

bool sl_strong_etag(const char *text)
{
	size_t length = strlen(text);

	if (length < 2 || text[0] != '"' || text[length - 1] != '"')
		return false;
	for (size_t i = 1; i < length - 1; i++)
		if ((unsigned char)text[i] <= ' ' || text[i] == '"' || text[i] == 0x7f)
			return false;
	return true;
}

void sl_json_put(FILE *to, const char *text)
{
	fputc('"', to);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putc_unlocked('\\', to);
		if ((unsigned char)*text < 0x20)
			fprintf(to, "\\u%04x", *text);
		else
			putc_unlocked(*text, to);
	}
	fputc('"', to);
}

void sl_json_put_pair(FILE *to, const char *before, const char *key, const char *value)
{
	fputs(before, to);
	sl_json_put(to, key);
	fputc(':', to);
	sl_json_put(to, value);
}
