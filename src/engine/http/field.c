/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields
 *
 * Parses the values in a header, which come from servers and are not trusted; forgets a response.
 *
 * Threads: any.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "http/http_internal.h"

#define LONGEST_WAIT_S UINT64_C(31536000)

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

static int64_t milliseconds_of(uint64_t seconds)
{
	return (int64_t)SL_MIN(seconds, LONGEST_WAIT_S) * 1000;
}

int64_t sl_http_parse_retry_after(const char *text, int64_t now)
{
	uint64_t seconds;
	time_t date;

	if (isdigit((unsigned char)text[0]))
		return sl_http_parse_length(text, &seconds) ? milliseconds_of(seconds) : -1;
	date = curl_getdate(text, NULL);
	if (date < 0)
		return -1;
	return date <= now ? 0 : milliseconds_of((uint64_t)(date - now));
}

int64_t sl_http_parse_ratelimit(const char *text)
{
	uint64_t value, left = 0;
	int64_t longest = -1;
	const char *equals;

	for (; (equals = strchr(text, '=')); text = equals) {
		const char *name = equals++;

		while (name > text && isalpha((unsigned char)name[-1]))
			name--;
		if (!parse_digits(&equals, &value))
			continue;
		if (!strncasecmp(name, "r=", 2) || !strncasecmp(name, "remaining=", 10))
			left = value;
		else if (!left && (!strncasecmp(name, "t=", 2) || !strncasecmp(name, "reset=", 6)))
			longest = SL_MAX(longest, milliseconds_of(value));
	}
	return longest;
}

int64_t sl_http_parse_ratelimit_reset(const char *text, int64_t now)
{
	uint64_t value;

	if (!sl_http_parse_length(text, &value))
		return -1;
	if (value > LONGEST_WAIT_S)
		value = value > (uint64_t)now ? value - (uint64_t)now : 0;
	return milliseconds_of(value);
}

void sl_http_copy_etag(const char *text, char *out)
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

void sl_http_texts_clear(struct sl_http_texts *texts)
{
	for (int i = 0; i < SL_HTTP_FIELDS; i++)
		free(texts->of[i]);
	memset(texts, 0, sizeof(*texts));
}

void sl_http_response_clear(struct sl_http_response *response)
{
	sl_http_texts_clear(&response->texts);
	free(response->xml);
	curl_slist_free_all(response->metadata);
	memset(response, 0, sizeof(*response));
	response->retry_after = -1;
}
