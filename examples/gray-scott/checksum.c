/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdbool.h>
#include <zlib.h>

#include "checksum.h"

enum { PARTS = 64 };

struct parts {
	const unsigned char *data;
	size_t size;
	uint32_t crc[PARTS];
};

static size_t part_begin(const struct parts *p, unsigned index)
{
	return p->size / PARTS * index + p->size % PARTS * index / PARTS;
}

static size_t part_size(const struct parts *p, unsigned index)
{
	return part_begin(p, index + 1) - part_begin(p, index);
}

static void add_part(unsigned index, unsigned worker, void *argument)
{
	struct parts *p = argument;

	(void)worker;
	p->crc[index] = (uint32_t)crc32_z(0, p->data + part_begin(p, index), part_size(p, index));
}

int checksum_open(struct checksum *checksum, const char *path)
{
	*checksum = (struct checksum){.path = path};
	if (path)
		checksum->file = fopen(path, "we");
	return path && !checksum->file ? -1 : 0;
}

void checksum_add(struct checksum *checksum, struct parallel *parallel, uint64_t image,
                  const void *data, size_t size)
{
	struct parts parts = {.data = data, .size = size};
	uLong crc = 0;

	if (!checksum->file)
		return;
	parallel_run(parallel, PARTS, add_part, &parts);
	for (unsigned i = 0; i < PARTS; i++)
		crc = crc32_combine(crc, parts.crc[i], (z_off_t)part_size(&parts, i));
	fprintf(checksum->file, "%" PRIu64 " %08lx\n", image, crc);
}

int checksum_close(struct checksum *checksum)
{
	bool good;

	if (!checksum->file)
		return 0;
	good = !ferror(checksum->file);
	return fclose(checksum->file) || !good ? -1 : 0;
}
