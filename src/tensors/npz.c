/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .npz
 *
 * A zip archive (PKWARE's APPNOTE.TXT, sections 4.3 and 4.5) of .npy files, which are stored and
 * not compressed. Its directory lies at the end; behind that the record of its end, and before
 * this, in large archives, those of zip64. On the thread that reads the header.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/header.h"

/* Bytes of the records, without the texts in them. */
enum { MEMBER = 30, ENTRY = 46, LAST = 22, LOCATOR_64 = 20, LAST_64 = 56 };
#define COMMENT_MOST 65535 /* behind the last record */
#define FETCHED      8192  /* of a member: more than its record and the header of an array */

#define AT_ONCE 32 /* members, which cost a round trip to a server */

struct npz_member {
	const char *name;      /* of the array */
	uint64_t size, offset; /* of the file, and of the record before it */
	size_t length;         /* of the name in the archive */
	uint32_t crc;          /* of the file */
};

struct npz {
	struct sl_tensor_header *header;
	char *directory;
	uint64_t offset, bytes; /* of the directory */
	/* Whose records and headers are to be read. */
	struct npz_member members[AT_ONCE];
	struct sluice_extent extents[AT_ONCE];
	size_t count;
	char heads[AT_ONCE][FETCHED];
};

static uint64_t npz_number(const char *at, unsigned n)
{
	uint64_t number = 0;

	while (n--)
		number = number << 8 | (unsigned char)at[n];
	return number;
}

static int npz_damaged(const struct npz *npz, const char *name, const char *why)
{
	return sl_tensor_refuse(npz->header->file, -EBADMSG, name, "the zip archive is damaged: %s",
	                        why);
}

/* Sets the offset of the directory by the last record, `at` bytes behind the start of the tail. */
static int npz_locate(struct npz *npz, const char *tail, uint64_t start, size_t at)
{
	uint64_t limit = start + at;
	char last[LAST_64];
	int rc;

	npz->bytes = npz_number(tail + at + 12, 4);
	npz->offset = npz_number(tail + at + 16, 4);
	if (at >= LOCATOR_64 && !memcmp(tail + at - LOCATOR_64, "PK\6\7", 4)) {
		limit = npz_number(tail + at - LOCATOR_64 + 8, 8);
		if (limit > start + at || start + at - limit < LOCATOR_64 + LAST_64)
			return npz_damaged(npz, NULL, "its end lies elsewhere");
		rc = sl_tensor_file_read(npz->header->file, last, LAST_64, limit);
		if (rc)
			return rc;
		npz->bytes = npz_number(last + 40, 8);
		npz->offset = npz_number(last + 48, 8);
	}
	if (npz->offset > limit || npz->bytes > limit - npz->offset)
		return npz_damaged(npz, NULL, "its directory lies elsewhere");
	return 0;
}

/* Reads the directory. */
static int npz_open(struct npz *npz)
{
	const struct sl_tensor_file *file = npz->header->file;
	size_t n = SL_MIN(file->length, (uint64_t)LAST + COMMENT_MOST),
	       at = n < LAST ? 0 : n - LAST + 1;
	char *tail = malloc(n);
	int rc = tail ? sl_tensor_file_read(file, tail, n, file->length - n)
	              : sl_fail(-ENOMEM, "no memory");

	while (!rc && at-- &&
	       (memcmp(tail + at, "PK\5\6", 4) || npz_number(tail + at + 20, 2) != n - at - LAST))
		;
	if (!rc)
		rc = at > n ? npz_damaged(npz, NULL, "it has no end")
		            : npz_locate(npz, tail, file->length - n, at);
	free(tail);
	if (rc)
		return rc;
	if (npz->bytes > SL_TENSOR_HEADER_MOST)
		return sl_tensor_refuse(file, -EFBIG, NULL, "its directory has more than 100 MB");
	npz->directory = malloc(npz->bytes + 1);
	if (!npz->directory)
		return sl_fail(-ENOMEM, "no memory for the directory of '%s'", file->name);
	return sl_tensor_file_read(file, npz->directory, npz->bytes, npz->offset);
}

/*
 * Sets length and offset of a member by its entry, or by zip64's field, which has those that do not
 * fit into 4 bytes. Returns false if it has another length when it is unpacked.
 */
static bool npz_extent(const char *entry, uint64_t *length, uint64_t *offset)
{
	uint64_t stored = npz_number(entry + 20, 4), *const numbers[] = {length, &stored, offset};
	const char *at = entry + ENTRY + npz_number(entry + 28, 2);
	size_t left = npz_number(entry + 30, 2), size;

	*length = npz_number(entry + 24, 4);
	*offset = npz_number(entry + 42, 4);
	for (; left >= 4; left -= 4 + size, at += 4 + size) {
		const char *number = at + 4;

		size = SL_MIN(npz_number(at + 2, 2), left - 4);
		for (unsigned i = 0; npz_number(at, 2) == 1 && i < 3; i++)
			if (*numbers[i] == UINT32_MAX && at + 4 + size >= number + 8) {
				*numbers[i] = npz_number(number, 8);
				number += 8;
			}
	}
	return stored == *length;
}

/* Finds the member of an entry, the texts of which are in the directory. */
static int npz_find(struct npz *npz, const char *entry)
{
	struct sl_tensor_file *file = npz->header->file;
	struct npz_member *member = &npz->members[npz->count];
	size_t length = npz_number(entry + 28, 2);
	const char *suffix = length > 4 ? entry + ENTRY + length - 4 : "    ";
	int rc = sl_tensor_text(&file->arena, file, entry + ENTRY,
	                        length - (memcmp(suffix, ".npy", 4) ? 0 : 4), &member->name);

	if (rc)
		return rc;
	if (npz_number(entry + 10, 2) || entry[8] & 1)
		return sl_tensor_refuse(file, -ENOTSUP, member->name,
		                        "it is compressed or encrypted");
	if (!npz_extent(entry, &member->size, &member->offset) || member->offset > npz->offset ||
	    npz->offset - member->offset < MEMBER)
		return npz_damaged(npz, member->name, "it ends behind the directory");
	member->length = length;
	member->crc = (uint32_t)npz_number(entry + 16, 4);
	npz->extents[npz->count] = (struct sluice_extent){
		npz->heads[npz->count], SL_MIN(FETCHED, npz->offset - member->offset),
		member->offset};
	npz->count++;
	return 0;
}

/* Adds the array of a member by its first n bytes. */
static int npz_add(const struct npz *npz, const struct npz_member *member, const char *bytes,
                   size_t n)
{
	uint64_t room = npz->offset - member->offset, before;
	int rc;

	if (memcmp(bytes, "PK\3\4", 4) || npz_number(bytes + 26, 2) != member->length)
		return npz_damaged(npz, member->name, "it is not where the directory says");
	before = MEMBER + member->length + npz_number(bytes + 28, 2);
	if (before > room || member->size > room - before)
		return npz_damaged(npz, member->name, "it ends behind the directory");
	if (before > n)
		return sl_tensor_refuse(npz->header->file, -EFBIG, member->name,
		                        "its name is too long");
	rc = sl_npy_add(npz->header, member->name, bytes + before, SL_MIN(n - before, member->size),
	                member->offset + before, member->size);
	if (rc)
		return rc;
	struct sl_tensor *tensor = &npz->header->tensors[npz->header->count - 1];
	tensor->crc_before = sl_crc32(0, bytes + before, member->size - tensor->bytes);
	tensor->crc = member->crc;
	return 0;
}

/* Adds the arrays of the members that were found. */
static int npz_add_all(struct npz *npz)
{
	int rc = sl_tensor_file_read_all(npz->header->file, npz->extents, npz->count);

	for (size_t i = 0; !rc && i < npz->count; i++)
		rc = npz_add(npz, &npz->members[i], npz->heads[i], npz->extents[i].length);
	npz->count = 0;
	return rc;
}

static int npz_read(struct npz *npz)
{
	int rc = npz_open(npz);
	const char *at = npz->directory, *end = rc ? at : at + npz->bytes;

	while (!rc && at < end) {
		size_t left = (size_t)(end - at), texts;

		if (left < ENTRY || memcmp(at, "PK\1\2", 4))
			return npz_damaged(npz, NULL, "its directory has something else in it");
		texts = npz_number(at + 28, 2) + npz_number(at + 30, 2) + npz_number(at + 32, 2);
		if (left - ENTRY < texts)
			return npz_damaged(npz, NULL, "its directory ends in an entry");
		rc = npz_find(npz, at);
		at += ENTRY + texts;
		if (!rc && (npz->count == AT_ONCE || at == end))
			rc = npz_add_all(npz);
	}
	return rc;
}

int sl_npz_read(struct sl_tensor_header *header)
{
	struct npz *npz = calloc(1, sizeof(*npz));

	header->file->format = "npz";
	header->file->summed = true;
	if (!npz)
		return sl_fail(-ENOMEM, "no memory to read '%s'", header->file->name);
	npz->header = header;
	int rc = npz_read(npz);
	free(npz->directory);
	free(npz);
	return rc ? rc : sl_tensor_header_sort(header, 0);
}
