/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of S3
 *
 * Takes code and message from an error's XML, and says what the code means.
 *
 * Threads: any. The text comes from servers and is not trusted.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "s3/s3_internal.h"

static const struct {
	const char *codes;
	unsigned means; /* enum sl_service_meaning */
} error_codes[] = {
	{" InternalError SlowDown ServiceUnavailable RequestTimeout OperationAborted "
         "ConditionalRequestConflict ",
         SL_MEANS_PASSING},
	{" NotImplemented InvalidArgument InvalidRequest ", SL_MEANS_UNKNOWN},
	{" NotImplemented ", SL_MEANS_LACKING},
};

bool sl_s3_error_is(const struct sl_service_error *error, const char *codes)
{
	char word[SL_SERVICE_TEXT + 2];

	snprintf(word, sizeof(word), " %s ", error->code);
	return error->code[0] && strstr(codes, word);
}

void sl_s3_error_parse(const char *xml, struct sl_service_error *out)
{
	sl_xml_element(xml, "Code", out->code, sizeof(out->code));
	sl_xml_element(xml, "Message", out->message, sizeof(out->message));
	sl_xml_element(xml, "Region", out->region, sizeof(out->region));
	sl_xml_element(xml, "RequestId", out->request_id, sizeof(out->request_id));
	out->whole = out->code[0] && sl_xml_is_whole(xml, "Error");
	out->error = sl_s3_error_is(out, " ExpiredToken InvalidToken AuthorizationHeaderMalformed ")
	                     ? -EACCES
	                     : 0;
	/* Only behind the server's own failure something may have been done. */
	out->means = out->whole && strcmp(out->code, "InternalError") ? SL_MEANS_UNDONE : 0;
	for (size_t i = 0; i < sizeof(error_codes) / sizeof(error_codes[0]); i++)
		if (sl_s3_error_is(out, error_codes[i].codes))
			out->means |= error_codes[i].means;
}
