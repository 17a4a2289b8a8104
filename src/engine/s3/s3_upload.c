/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads in parts
 *
 * Makes queries for calls and the XML for the last, and parses answers to calls.
 *
 * Threads: any.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/s3_internal.h"

/* Answers with a body: the root, another from servers unlike S3, and the element to take. */
static const struct {
	const char *root, *root_too, *element;
} upload_answers[SL_CALLS] = {
	[SL_CALL_BEGIN] = {"InitiateMultipartUploadResult", "InitiateMultipartUpload" /* rclone */,
                           "UploadId"},
	[SL_CALL_COMPLETE] = {"CompleteMultipartUploadResult", NULL, "ETag"},
	[SL_CALL_COPY] = {"CopyObjectResult", NULL, "ETag"},
	[SL_CALL_COPY_PART] = {"CopyPartResult", NULL, "ETag"},
	[SL_CALL_REMOVE_MANY] = {"DeleteResult", NULL, "Key"},
};

static enum sl_service_answer upload_judge_answer(enum sl_service_call call, const char *xml,
                                                  char *out, size_t size)
{
	const char *root = upload_answers[call].root, *other = upload_answers[call].root_too;

	if (!root)
		return call == SL_CALL_PUT || call == SL_CALL_PART ? SL_ANSWER_ETAG : SL_ANSWER_ANY;
	sl_xml_element(xml, upload_answers[call].element, out, size);
	return out[0] && (sl_xml_is_whole(xml, root) || (other && sl_xml_is_whole(xml, other)))
	               ? SL_ANSWER_WHOLE
	               : SL_ANSWER_CUT;
}

static int upload_query(struct sl_signer *signer, enum sl_service_call call, const char *upload,
                        unsigned part, char **out)
{
	const char *constant = call == SL_CALL_BEGIN         ? "uploads="
	                       : call == SL_CALL_REMOVE_MANY ? "delete="
	                                                     : NULL;
	char *id, number[32] = "";

	(void)signer;
	*out = NULL;
	if (!upload && !constant)
		return 0;
	id = upload ? sl_uri_escape(upload, false) : NULL;
	if (part)
		snprintf(number, sizeof(number), "partNumber=%u&", part);
	if (constant)
		*out = strdup(constant);
	else if (id)
		*out = sl_format("%suploadId=%s", number, id);
	free(id);
	return *out ? 0 : sl_fail(-ENOMEM, "no memory");
}

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

void sl_s3_upload_etag(const struct sl_service_part *parts, unsigned count,
                       char out[SL_SERVICE_TEXT])
{
	unsigned char *sums = malloc(16 * (size_t)count), *at = sums;

	out[0] = '\0';
	for (unsigned i = 0; sums && i < count; i++) {
		const char *hex = parts[i].etag + (parts[i].etag[0] == '"');

		if (hex == parts[i].etag || strspn(hex, "0123456789abcdef") != 32 ||
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

static int upload_complete(const char *upload, const struct sl_service_part *parts, unsigned count,
                           char **out, char etag[SL_SERVICE_TEXT])
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	(void)upload;
	if (!to)
		return sl_fail(-ENOMEM, "no memory");
	fputs("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", to);
	for (unsigned i = 0; i < count; i++) {
		fprintf(to, "<Part><PartNumber>%u</PartNumber><ETag>", i + 1);
		xml_put(to, parts[i].etag);
		fputs("</ETag>", to);
		if (parts[i].sum[0])
			fprintf(to, "<ChecksumCRC32C>%s</ChecksumCRC32C>", parts[i].sum);
		fputs("</Part>", to);
	}
	fputs("</CompleteMultipartUpload>", to);
	if (fclose(to)) {
		free(text);
		return sl_fail(-ENOMEM, "no memory");
	}
	sl_s3_upload_etag(parts, count, etag);
	*out = text;
	return 0;
}

const struct sl_service_texts sl_s3_texts = {
	.query = upload_query,
	.error = sl_s3_error_parse,
	.answers = upload_judge_answer,
	.complete = upload_complete,
	.etag = sl_s3_etag,
	.line = sl_s3_line,
};
