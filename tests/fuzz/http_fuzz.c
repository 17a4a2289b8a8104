/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Throws mutated texts at what is parsed of a server's answers and of URIs, and checks what must hold
 * of anything that is accepted. Arguments: seconds, and a seed to repeat a run.
 */
#include "fuzz/fuzz.h"
#include "http/http_internal.h"

#include <ctype.h>
#include <string.h>

#define MOST 300

static const char *const corpus[] = {
	"bytes 0-99/100",
	"bytes 0-0/*",
	"bytes */1234",
	"bytes 9223372036854775806-9223372036854775807/9223372036854775808",
	"BYTES 5-4/10",
	"120",
	"limit=10, remaining=0, reset=30",
	"\"a\";r=0;t=30, \"b\";r=9;t=99999999999999",
	"Fri, 31 Dec 1999 23:59:59 GMT",
	"Friday, 31-Dec-99 23:59:59 GMT",
	"99999999999999999999",
	"\"abc\"",
	"W/\"abc\"",
	"\"\"",
	"Content-Length: 100\r\n",
	"ETag : \"x\"\r\n",
	":\r\n",
	"http://user:SECRET@host:80/path?query=SECRET#part",
	"https://[::1]:443/a%20b?x",
	"http://a@b@c/@?@",
	"file:///a%00b",
	"file://localhost/%zz",
	"HTTP://user@host",
	"/plain/path@x?y",
};
#define CORPUS (sizeof(corpus) / sizeof(corpus[0]))

static const char *subject;

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s, by '", what);
	for (const char *c = subject; *c; c++)
		fprintf(stderr, isprint((unsigned char)*c) ? "%c" : "\\x%02x", (unsigned char)*c);
	fprintf(stderr, "'\n");
	abort();
}

/* One to eight changes of a text of the corpus, or of two of them joined. */
static void mutate(char *text)
{
	size_t length;

	snprintf(text, MOST, "%s", corpus[draw(CORPUS)]);
	length = strlen(text);
	if (!draw(8))
		snprintf(text + draw(length + 1), MOST - length, "%s", corpus[draw(CORPUS)]);
	for (uint64_t i = draw(8); i > 0; i--) {
		size_t at;

		length = strlen(text);
		at = draw(length + 1);
		switch (draw(5)) {
		case 0: /* another character */
			if (at < length)
				text[at] = (char)(1 + draw(255));
			break;
		case 1: /* one more */
			if (length + 2 < MOST) {
				memmove(text + at + 1, text + at, length - at + 1);
				text[at] = "0123456789-/* \"%@:?#\t\r\n"[draw(22)];
			}
			break;
		case 2: /* one less */
			if (at < length)
				memmove(text + at, text + at + 1, length - at);
			break;
		case 3: /* the end is missing */
			text[at] = '\0';
			break;
		default: /* a digit more of a number */
			if (at < length && isdigit((unsigned char)text[at]))
				text[at] = (char)('0' + draw(10));
		}
	}
}

static void check_range(const char *text)
{
	struct sl_http_range range, again;
	char canonical[128];

	if (!sl_http_parse_range(text, &range))
		return;
	if (range.satisfied) {
		require(range.first <= range.last, "a range ends before it begins");
		require(range.last <= INT64_MAX, "a range ends beyond all files");
		require(range.total < 0 || range.last < (uint64_t)range.total,
		        "a range goes beyond its object");
	} else {
		require(range.total >= 0, "neither a range nor a length is accepted");
	}
	snprintf(canonical, sizeof(canonical), "bytes ");
	if (range.satisfied)
		sprintf(canonical + 6, "%" PRIu64 "-%" PRIu64, range.first, range.last);
	else
		strcpy(canonical + 6, "*");
	if (range.total >= 0)
		sprintf(canonical + strlen(canonical), "/%" PRId64, range.total);
	else
		strcat(canonical, "/*");
	require(sl_http_parse_range(canonical, &again),
	        "what was accepted is refused as it is printed");
	require(again.total == range.total && again.satisfied == range.satisfied &&
	                (!range.satisfied ||
	                 (again.first == range.first && again.last == range.last)),
	        "a range changes as it is printed");
}

static void check_field(const char *text)
{
	char *line = strdup(text), *name, *value;
	size_t length = strlen(text);

	if (line && sl_http_parse_field(line, &name, &value)) {
		require(name >= line && value > name && value <= line + length,
		        "a field lies outside of its line");
		require(strlen(name) > 0 && !strchr(name, ':'), "a name has a colon, or nothing");
		require(!*value || !strchr(" \t\r\n", value[strlen(value) - 1]),
		        "a value ends with white space");
	}
	free(line);
}

static void check_etag(const char *text)
{
	char kept[SL_HTTP_ETAG];

	memset(kept, 'x', sizeof(kept));
	sl_http_copy_etag(text, kept);
	require(memchr(kept, '\0', sizeof(kept)) && strlen(kept) < SL_HTTP_ETAG,
	        "a kept text has no end");
	for (const char *c = kept; *c; c++)
		require((unsigned char)*c >= ' ' && *c != 0x7f, "a control character is kept");
	if (sl_strong_etag(text))
		require(text[0] == '"' && !strpbrk(text, "\r\n \t"),
		        "a field could be smuggled in by an ETag");
}

static void check_uri(const char *text)
{
	char *name = sl_uri_name(text);
	struct sl_uri uri;

	require(name != NULL, "there is memory");
	require(strlen(name) <= strlen(text) + 4, "a name is longer than its URI");
	if (!strncasecmp(text, "http://", 7) || !strncasecmp(text, "https://", 8)) {
		const char *rest = strstr(name, "://") + 3;

		require(!memchr(rest, '@', strcspn(rest, "/?#")), "a name tells the user");
		require(!strchr(rest, '?') || !strcmp(strchr(rest, '?'), "?..."),
		        "a name tells the query");
	}
	free(name);
	if (!text[0] || sl_uri_parse(text, &uri))
		return;
	require(strlen(uri.scheme) < sizeof(uri.scheme), "a scheme has no end");
	require(strlen(uri.path) <= strlen(text), "a path is longer than its URI");
	sl_uri_clear(&uri);
}

static void check(const char *text)
{
	const int64_t waits[] = {sl_http_parse_retry_after(text, 1000000000),
	                         sl_http_parse_ratelimit(text),
	                         sl_http_parse_ratelimit_reset(text, 1000000000)};
	uint64_t length;

	subject = text;
	for (int i = 0; i < 3; i++)
		require(waits[i] >= -1 && waits[i] <= INT64_C(366) * 86400 * 1000,
		        "a pause beyond a year");
	if (sl_http_parse_length(text, &length))
		require(length <= INT64_MAX && isdigit((unsigned char)text[0]),
		        "a length beyond all");
	check_range(text);
	check_field(text);
	check_etag(text);
	check_uri(text);
}

static unsigned long runs;

static void check_some(void)
{
	char text[2 * MOST];

	for (int i = 0; i < 1000; i++, runs++) {
		char *exact;

		mutate(text);
		/* Of its very length, so that the sanitizer sees one byte too many. */
		exact = strdup(text);
		check(exact);
		free(exact);
	}
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < CORPUS; i++)
		check(corpus[i]);
	fuzz(argc, argv, check_some);
	printf("%lu texts\n", runs);
	return 0;
}
