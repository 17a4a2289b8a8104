/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text
 *
 * JSON strings, local paths, URIs of blobs, sizes, rates, times and tensors.
 *
 * Threads: any.
 */
#include <err.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "sluice/tensors.h"

/* The most bytes of a sequence; none has the zero at the end of its text in it. */
enum { SEQUENCE = 4 };

/*
 * Returns true for characters that are invisible or change how others are shown: controls,
 * direction marks, joiners, line breaks.
 */
static bool is_invisible(uint32_t code)
{
	static const uint32_t ranges[][2] = {{0x1, 0x1f},      {0x7f, 0x9f},     {0xad, 0xad},
	                                     {0x61c, 0x61c},   {0x180e, 0x180e}, {0x200b, 0x200f},
	                                     {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff},
	                                     {0xfff9, 0xfffb}};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		if (code >= ranges[i][0] && code <= ranges[i][1])
			return true;
	return false;
}

static void write_visible(const char *name, char *to)
{
	for (const char *s = name; *s;) {
		uint32_t code = 0;
		size_t n = sl_utf8_sequence(s, SEQUENCE, &code);

		n = n ? n : 1;
		to += is_invisible(code) ? sprintf(to, "\\u%04x", code)
		                         : sprintf(to, "%.*s", (int)n, s);
		s += n;
	}
	*to = '\0';
}

char *cli_checked(char *text)
{
	if (!text)
		err(CLI_FAILED, "text");
	return text;
}

char *cli_visible(const char *text)
{
	/* At most 6 characters for a byte. */
	char *visible = cli_checked(malloc(6 * strlen(text) + 1));

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
	if (!text) {
		fputs("null", to);
		return;
	}
	putc('"', to);
	for (const char *s = text; *s;) {
		uint32_t code = 0;
		size_t n = sl_utf8_sequence(s, SEQUENCE, &code);

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
	cli_json_text(stdout, text);
}

char *cli_local_path(const char *uri)
{
	struct sl_uri parsed;

	if (sl_uri_parse(uri, &parsed))
		return NULL;
	if (!strcmp(parsed.scheme, "file"))
		return parsed.path;
	sl_uri_clear(&parsed);
	return NULL;
}

char *cli_uri_name(const char *uri)
{
	return cli_checked(sl_uri_name(uri));
}

bool cli_is_blob(const char *uri)
{
	return !strncasecmp(uri, "store://", 8);
}

char *cli_blob_option(char *uri, const char *key, const char *value)
{
	CLI_OWNED char *shorter = uri;
	CLI_OWNED char *escaped = cli_checked(sl_uri_escape(value ? value : "", true));

	return cli_format("%s%c%s%s%s", uri, strchr(uri, '?') ? '&' : '?', key, value ? "=" : "",
	                  escaped);
}

char *cli_blob_uri(const char *name)
{
	CLI_OWNED char *escaped = cli_checked(sl_uri_escape(name, true));

	return cli_format("store://%s", escaped);
}

const char *cli_size_format(uint64_t bytes, char text[CLI_TEXT])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	size_t i = 0;

	if (bytes < 1024) {
		snprintf(text, CLI_TEXT, "%u B", (unsigned)bytes);
		return text;
	}
	/* 1024.0 would belong to the next unit. */
	for (; value >= 1023.95; i++)
		value /= 1024;
	snprintf(text, CLI_TEXT, "%.1f %s", value, units[i]);
	return text;
}

const char *cli_rate_format(double bytes_per_second, char text[CLI_TEXT])
{
	if (bytes_per_second >= 999.5e6)
		snprintf(text, CLI_TEXT, "%.2f GB/s", bytes_per_second / 1e9);
	else if (bytes_per_second >= 999.5e3)
		snprintf(text, CLI_TEXT, "%.0f MB/s", bytes_per_second / 1e6);
	else
		snprintf(text, CLI_TEXT, "%.0f kB/s", bytes_per_second / 1e3);
	return text;
}

const char *cli_date_format(int64_t ns, char text[CLI_TEXT])
{
	time_t seconds = ns / 1000000000;
	struct tm utc;

	gmtime_r(&seconds, &utc);
	strftime(text, CLI_TEXT, "%F %T", &utc);
	return text;
}

void cli_print_tensor(const char *name, int type, unsigned rank, const uint64_t *lengths,
                      uint64_t bytes, const char *file)
{
	char size[CLI_TEXT], shape[3 + 22 * SLUICE_TENSOR_RANK_MOST] = "[", *end = shape + 1;
	CLI_OWNED char *visible = cli_visible(name);

	for (unsigned i = 0; i < rank; i++)
		end += sprintf(end, "%s%" PRIu64, i ? ", " : "", lengths[i]);
	printf("%10s  %-11s  %s%-*s  %s%s%s\n", cli_size_format(bytes, size),
	       sluice_type_name(type), shape, (int)(shape + 16 - end), "]", visible,
	       file ? "  in " : "", file ? file : "");
}
