/* SPDX-License-Identifier: Apache-2.0 */
/* What is parsed here and not by libcurl. Texts come from servers: nothing about them is believed. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "http/http_internal.h"

/* Digits from *text on, which is moved behind them. */
static bool parse_digits(const char **text, uint64_t *out)
{
	const char *c = *text;
	uint64_t value = 0;

	if (!isdigit((unsigned char)*c))
		return false;
	for (; isdigit((unsigned char)*c); c++) {
		unsigned digit = *c - '0';

		if (value > ((uint64_t)INT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*text = c;
	*out = value;
	return true;
}

bool sl_http_parse_length(const char *text, uint64_t *out)
{
	uint64_t value;

	if (!parse_digits(&text, &value) || *text)
		return false;
	*out = value;
	return true;
}

bool sl_http_parse_range(const char *text, struct sl_http_range *out)
{
	struct sl_http_range range = {.total = -1};
	uint64_t total;

	if (strncasecmp(text, "bytes", 5) || text[5] != ' ')
		return false;
	text += 6;
	range.satisfied = *text != '*';
	if (!range.satisfied)
		text++;
	else if (!parse_digits(&text, &range.first) || *text++ != '-' ||
	         !parse_digits(&text, &range.last) || range.last < range.first)
		return false;
	if (*text++ != '/')
		return false;
	if (!strcmp(text, "*")) {
		if (!range.satisfied)
			return false;
	} else {
		if (!sl_http_parse_length(text, &total) || (range.satisfied && range.last >= total))
			return false;
		range.total = (int64_t)total;
	}
	*out = range;
	return true;
}

int64_t sl_http_parse_retry_after(const char *text, int64_t now)
{
	const uint64_t most = 365 * 86400;
	uint64_t seconds;
	time_t date;

	if (isdigit((unsigned char)text[0]))
		return sl_http_parse_length(text, &seconds) ? (int64_t)SL_MIN(seconds, most) * 1000
		                                            : -1;
	date = curl_getdate(text, NULL);
	if (date < 0)
		return -1;
	return date <= now ? 0 : (int64_t)SL_MIN((uint64_t)(date - now), most) * 1000;
}

bool sl_http_strong_etag(const char *text)
{
	size_t length = strlen(text);

	if (length < 2 || text[0] != '"' || text[length - 1] != '"')
		return false;
	for (size_t i = 1; i < length - 1; i++)
		if ((unsigned char)text[i] <= ' ' || text[i] == '"' || text[i] == 0x7f)
			return false;
	return true;
}

void sl_http_keep(const char *text, char *out)
{
	size_t length = strlen(text);

	out[0] = '\0';
	if (length >= SL_HTTP_ETAG)
		return;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			return;
	memcpy(out, text, length + 1);
}

bool sl_http_parse_field(char *line, char **name, char **value)
{
	char *colon = strchr(line, ':'), *end;

	if (!colon || colon == line)
		return false;
	end = line + strlen(line);
	*colon++ = '\0';
	while (*colon == ' ' || *colon == '\t')
		colon++;
	while (end > colon && strchr(" \t\r\n", end[-1]))
		end--;
	*end = '\0';
	*name = line;
	*value = colon;
	return true;
}
