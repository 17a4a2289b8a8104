/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads in parts
 *
 * Makes the queries of requests for an upload in parts, and the XML that completes it.
 *
 * Threads: any.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/place.h"
#include "s3/s3.h"

char *sl_s3_upload_query(const char *upload, unsigned part)
{
	char *id = sl_s3_encode(upload, false), *query = NULL, number[32] = "";

	if (part)
		snprintf(number, sizeof(number), "partNumber=%u&", part);
	if (id)
		query = sl_format("%suploadId=%s", number, id);
	free(id);
	return query;
}

char *sl_s3_copy_source(const char *uri, const char *query)
{
	struct sl_s3_name name;
	char *key, *place = NULL;

	if (sl_s3_name_parse(uri, &name))
		return NULL;
	key = sl_s3_encode(name.key, true);
	if (key)
		place = sl_format("%s/%s%s", name.bucket, key, query);
	free(key);
	sl_s3_name_clear(&name);
	return place;
}

/* Writes text as the content of an element. */
static void xml_put(FILE *to, const char *text)
{
	static const char special[] = "&<>\"";
	static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;"};

	for (; *text; text++) {
		const char *found = strchr(special, *text);

		if (found)
			fputs(names[found - special], to);
		else
			putc(*text, to);
	}
}

char *sl_s3_upload_complete(const struct sl_s3_known *known, unsigned count)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (!to)
		return NULL;
	fputs("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", to);
	for (unsigned i = 0; i < count; i++) {
		fprintf(to, "<Part><PartNumber>%u</PartNumber><ETag>", i + 1);
		xml_put(to, known[i].etag);
		fputs("</ETag>", to);
		if (known[i].crc32c[0])
			fprintf(to, "<ChecksumCRC32C>%s</ChecksumCRC32C>", known[i].crc32c);
		fputs("</Part>", to);
	}
	fputs("</CompleteMultipartUpload>", to);
	if (!fclose(to))
		return text;
	free(text);
	return NULL;
}

void sl_s3_upload_etag(const struct sl_s3_known *known, unsigned count, char out[SL_S3_TEXT])
{
	unsigned char *sums = malloc(16 * (size_t)count), *at = sums;

	out[0] = '\0';
	for (unsigned i = 0; sums && i < count; i++) {
		const char *hex = known[i].etag + (known[i].etag[0] == '"');

		if (hex == known[i].etag || strspn(hex, "0123456789abcdef") != 32 ||
		    strcmp(hex + 32, "\""))
			break;
		for (int j = 0; j < 16; j++)
			sscanf(hex + 2 * j, "%2hhx", at++);
	}
	if (sums && at == sums + 16 * (size_t)count)
		sl_s3_etag(sums, 16 * (size_t)count, out);
	if (out[0])
		sprintf(strrchr(out, '"'), "-%u\"", count);
	free(sums);
}

void sl_s3_plan_find(const struct sl_s3_plan *plan, uint64_t offset, struct sl_s3_part *out)
{
	uint64_t start = 0, bytes = plan->bytes;
	unsigned number = 1;

	/* A thousand parts of each length; those after the first thousand are long enough for 5 TiB in any case. */
	while (!plan->total && number + SL_S3_GROUP <= SL_S3_PARTS &&
	       (offset - start) / bytes >= SL_S3_GROUP) {
		start += SL_S3_GROUP * bytes;
		number += SL_S3_GROUP;
		bytes = SL_MIN(2 * SL_MAX(bytes, SL_S3_GROWN), SL_S3_PART_MOST);
	}
	out->number = number + (offset - start) / bytes;
	out->start = offset - (offset - start) % bytes;
	out->length = plan->total ? SL_MIN(bytes, plan->total - out->start) : bytes;
}

void sl_s3_plan_make(uint64_t total, uint64_t part_bytes, struct sl_s3_plan *out)
{
	uint64_t least = (total + SL_S3_PARTS - 1) / SL_S3_PARTS, unit = 1 << 20;

	out->total = total;
	out->bytes = least <= part_bytes ? part_bytes : (least + unit - 1) / unit * unit;
}
