/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text
 *
 * JSON strings, local paths, URIs of blobs, the clock.
 *
 * Threads: any.
 */
#include <ctype.h>
#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

/* Returns the length of the UTF-8 sequence at s and its character, or 0 if it is malformed. */
static size_t utf8_length(const unsigned char *s, uint32_t *out)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = s[0] < 0x80             ? 1
	           : (s[0] & 0xe0) == 0xc0 ? 2
	           : (s[0] & 0xf0) == 0xe0 ? 3
	           : (s[0] & 0xf8) == 0xf0 ? 4
	                                   : 0;
	uint32_t code = n > 1 ? s[0] & (0x7fu >> n) : s[0];

	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if (n == 0 || code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	*out = code;
	return n;
}

/*
 * Returns true for characters that are invisible or change how others are shown: controls, direction marks,
 * joiners, line breaks.
 */
static bool is_invisible(uint32_t code)
{
	static const uint32_t ranges[][2] = {{0x1, 0x1f},      {0x7f, 0x9f},     {0xad, 0xad},
	                                     {0x61c, 0x61c},   {0x180e, 0x180e}, {0x200b, 0x200f},
	                                     {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff},
	                                     {0xfff9, 0xfffb}};

	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
		if (code >= ranges[i][0] && code <= ranges[i][1])
			return true;
	return false;
}

static void write_visible(const char *name, char *to)
{
	for (const unsigned char *s = (const unsigned char *)name; *s;) {
		uint32_t code = 0;
		size_t n = utf8_length(s, &code);

		n = n ? n : 1;
		to += is_invisible(code) ? sprintf(to, "\\u%04x", code)
		                         : sprintf(to, "%.*s", (int)n, (const char *)s);
		s += n;
	}
	*to = '\0';
}

const char *cli_blob_name(const char *name, char text[CLI_NAME])
{
	write_visible(name, text);
	return text;
}

char *cli_visible(const char *text)
{
	/* At most 6 characters for a byte. */
	char *visible = malloc(6 * strlen(text) + 1);

	if (!visible)
		err(CLI_FAILED, "text");
	write_visible(text, visible);
	return visible;
}

void cli_print_escaped(FILE *to, const char *before, const char *name, const char *after)
{
	flockfile(to);
	fprintf(to, "%s%s", strpbrk(name, "\\\n\r") ? "\\" : "", before);
	for (; *name; name++) {
		if (*name == '\\' || *name == '\n' || *name == '\r')
			fprintf(to, "\\%c", *name == '\n' ? 'n' : *name == '\r' ? 'r' : '\\');
		else
			putc(*name, to);
	}
	fputs(after, to);
	funlockfile(to);
}

void cli_json_text(FILE *to, const char *text)
{
	putc('"', to);
	for (const unsigned char *s = (const unsigned char *)text; *s;) {
		uint32_t code = 0;
		size_t n = utf8_length(s, &code);

		if (n == 0) {
			fputs("\\ufffd", to);
			n = 1;
		} else if (*s == '"' || *s == '\\') {
			fprintf(to, "\\%c", *s);
		} else if (is_invisible(code) && code < 0x10000) {
			fprintf(to, "\\u%04x", code);
		} else {
			fwrite(s, 1, n, to);
		}
		s += n;
	}
	putc('"', to);
}

void cli_json_string(const char *before, const char *text)
{
	fputs(before, stdout);
	if (text)
		cli_json_text(stdout, text);
	else
		fputs("null", stdout);
}

uint64_t cli_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns NULL unless text is a plain %-escaped path. */
static char *percent_decode(const char *text)
{
	char *path = malloc(strlen(text) + 1), *to = path;

	if (!path)
		return NULL;
	for (; *text; text++) {
		if (*text != '%') {
			*to++ = *text;
			continue;
		}
		int high = hex_digit(text[1]);
		int low = high < 0 ? -1 : hex_digit(text[2]);
		if (low < 0 || (high == 0 && low == 0)) {
			free(path);
			return NULL;
		}
		*to++ = (char)(high << 4 | low);
		text += 2;
	}
	*to = '\0';
	return path;
}

char *cli_local_path(const char *uri)
{
	static const char scheme[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "0123456789+-.";
	size_t n = isalpha((unsigned char)uri[0]) ? strspn(uri, scheme) : 0;

	if (n == 0 || strncmp(uri + n, "://", 3))
		return strdup(uri);
	const char *rest = uri + n + 3;
	if (!strncmp(rest, "localhost/", 10))
		rest += 9;
	if (strncasecmp(uri, "file://", 7) || rest[0] != '/')
		return NULL;
	return percent_decode(rest);
}

char *cli_uri_name(const char *uri)
{
	int length = sluice_uri_name(uri, NULL, 0);
	char *name = length < 0 ? NULL : malloc((size_t)length + 1);

	if (!name)
		err(CLI_FAILED, "URI");
	sluice_uri_name(uri, name, (size_t)length + 1);
	return name;
}

bool cli_is_blob(const char *uri)
{
	return !strncasecmp(uri, "store://", 8);
}

/* Leaves unreserved characters (RFC 3986, section 2.3) and the slash unescaped. */
static char *percent_encode(const char *text)
{
	char *escaped = malloc(3 * strlen(text) + 1), *to = escaped;

	if (!escaped)
		err(CLI_FAILED, "URI");
	for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
		bool itself = *s < 0x80 && (isalnum(*s) || strchr("-._~/", *s));
		to += sprintf(to, itself ? "%c" : "%%%02X", *s);
	}
	*to = '\0';
	return escaped;
}

char *cli_blob_option(char *uri, const char *key, const char *value)
{
	char *escaped = percent_encode(value ? value : "");
	char *longer = cli_format("%s%c%s%s%s", uri, strchr(uri, '?') ? '&' : '?', key,
	                          value ? "=" : "", escaped);

	free(escaped);
	free(uri);
	return longer;
}

char *cli_blob_uri(const char *name)
{
	char *escaped = percent_encode(name), *uri = cli_format("store://%s", escaped);

	free(escaped);
	return uri;
}
