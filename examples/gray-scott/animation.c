/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An animated PNG is a PNG with three more kinds of chunks: acTL says how many pictures there are, and an
 * fcTL comes before the data of each, which are IDAT for the first and fdAT for the others. fcTL and fdAT
 * are numbered together. https://www.w3.org/TR/png-3/, section 11.3.6.
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include "animation.h"

enum { SIGNATURE = 8, LENGTH = 4, TYPE = 4, CRC = 4 };

static void put(unsigned char *to, uint32_t value)
{
	value = htonl(value);
	memcpy(to, &value, sizeof value);
}

static uint32_t get(const unsigned char *from)
{
	uint32_t value;

	memcpy(&value, from, sizeof value);
	return ntohl(value);
}

/* A chunk of what lies in two places. */
static void write_chunk(FILE *file, const char *type, const void *head, size_t head_size,
                        const void *tail, size_t tail_size)
{
	unsigned char begin[LENGTH + TYPE], end[CRC];
	uLong crc;

	put(begin, (uint32_t)(head_size + tail_size));
	memcpy(begin + LENGTH, type, TYPE);
	crc = crc32_z(0, begin + LENGTH, TYPE);
	crc = crc32_z(crc, head, head_size);
	crc = crc32_z(crc, tail, tail_size);
	put(end, (uint32_t)crc);
	fwrite(begin, 1, sizeof begin, file);
	fwrite(head, 1, head_size, file);
	fwrite(tail, 1, tail_size, file);
	fwrite(end, 1, sizeof end, file);
}

static void write_control(FILE *file, const struct png *picture, uint32_t number,
                          unsigned hundredths)
{
	unsigned char control[26] = {0};

	put(control, number);
	/* Width and height, with which the header begins. */
	memcpy(control + 4, picture->data + SIGNATURE + LENGTH + TYPE, 8);
	control[20] = (unsigned char)(hundredths >> 8);
	control[21] = (unsigned char)hundredths;
	control[23] = 100;
	write_chunk(file, "fcTL", control, sizeof control, "", 0);
}

/* Those of a picture that the animation needs; the first brings header and palette, too. */
static void write_picture(FILE *file, const struct png *picture, size_t count, bool first,
                          unsigned hundredths, uint32_t *number)
{
	const unsigned char *at = picture->data + SIGNATURE, *end = picture->data + picture->size;
	bool controlled = false;

	for (uint32_t size; at < end; at += LENGTH + TYPE + size + CRC) {
		const unsigned char *type = at + LENGTH, *data = type + TYPE;
		bool image = !memcmp(type, "IDAT", TYPE);
		unsigned char head[8];

		size = get(at);
		if (image && !controlled)
			write_control(file, picture, (*number)++, hundredths);
		controlled |= image;
		if (image && !first) {
			put(head, (*number)++);
			write_chunk(file, "fdAT", head, 4, data, size);
		} else if (first && memcmp(type, "IEND", TYPE)) {
			fwrite(at, 1, LENGTH + TYPE + size + CRC, file);
		}
		if (first && !memcmp(type, "IHDR", TYPE)) {
			put(head, (uint32_t)count);
			put(head + 4, 0); /* for ever */
			write_chunk(file, "acTL", head, 8, "", 0);
		}
	}
}

int animation_write(const struct png *pictures, size_t count, unsigned hundredths, FILE *file)
{
	uint32_t number = 0;

	fwrite(pictures[0].data, 1, SIGNATURE, file);
	for (size_t i = 0; i < count; i++)
		write_picture(file, &pictures[i], count, i == 0, hundredths, &number);
	write_chunk(file, "IEND", "", 0, "", 0);
	return ferror(file) ? -1 : 0;
}
