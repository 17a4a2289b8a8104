/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice verify
 *
 * Prints digests of whole files, in the format of sha256sum, or checks files against such lines.
 *
 * Threads: the main thread.
 */
#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cp.h"
#include "sluice/tensors.h"

struct verify_options {
	struct cli_open open;
	const char *sums; /* --check, or NULL */
	int kind;         /* of enum sluice_digest_kind, or 0: not chosen */
};
/* Two digits of hex for each byte, two blanks, and a terminating zero. */
enum { DIGEST_TEXT = 2 * sizeof((struct sluice_digest *)NULL)->bytes + 3 };

static const struct argp_option option_list[] = {
	{"sha256", SLUICE_SHA256, NULL, 0, "SHA-256 (default)"},
	{"xxh3", SLUICE_XXH3_128, NULL, 0, "XXH3-128, as of xxhsum -H2; not cryptographic"},
	{"check", 'c', "SUMS", 0,
         "Check files against the lines of a file, or of '-', standard input"},
	{"quiet", 'q', NULL, 0, "No summary; with --check, only files that fail"},
	CLI_OPEN_OPTIONS,
	{0},
};

static error_t verify_parse(int key, char *arg, struct argp_state *state)
{
	struct verify_options *o = state->input;

	switch (key) {
	case SLUICE_SHA256:
	case SLUICE_XXH3_128:
		o->kind = key;
		return 0;
	case 'c':
		o->sums = arg;
		return 0;
	case ARGP_KEY_END:
		if (o->sums && (o->open.arguments.count || o->kind))
			argp_error(state, "--check: the lines of SUMS name files and kinds");
		o->open.arguments.least = !o->sums;
		/* fall through */
	default:
		return cli_open_option(&o->open, key, arg, state);
	}
}

/* Writes the digest of a file in hex. Returns 0, or a negative errno, printed on stderr. */
static int file_digest(sluice_context *ctx, const struct verify_options *o, const char *uri,
                       int kind, struct cli_moved *moved, char text[DIGEST_TEXT])
{
	struct sluice_open_options options = cli_open_options(&o->open);
	struct sluice_file_info info = {.size = sizeof(info)};
	struct sluice_digest digest;
	sluice_file *file;

	options.flags = SLUICE_OPEN_READ | o->open.flags;
	int rc = cli_said(sluice_open(ctx, uri, &options, &file));
	if (rc)
		return rc;
	rc = cli_said(sluice_file_digest(file, kind, &digest));
	for (size_t i = 0; rc == 0 && i < (kind == SLUICE_SHA256 ? 32 : 16); i++)
		sprintf(text + 2 * i, "%02x", digest.bytes[i]);
	if (rc == 0 && !sluice_stat(file, &info))
		moved->bytes += info.length;
	moved->files += rc == 0;
	sluice_discard(file);
	return rc;
}

static int verify_print(sluice_context *ctx, const struct verify_options *o,
                        struct cli_moved *moved)
{
	const struct cli_arguments *files = &o->open.arguments;
	char text[DIGEST_TEXT];
	int status = CLI_OK;

	for (size_t i = 0; i < files->count; i++) {
		int kind = o->kind ? o->kind : SLUICE_SHA256;

		if (file_digest(ctx, o, files->of[i], kind, moved, text)) {
			status = CLI_FAILED;
			continue;
		}
		CLI_OWNED char *name = cli_uri_name(files->of[i]);
		strcat(text, "  ");
		cli_print_escaped(stdout, text, name, "\n");
	}
	return status;
}

/* Returns false if there is an escape that is none. */
static bool unescape_name(char *name)
{
	char *to = name;

	for (; *name; name++, to++) {
		*to = *name;
		if (*name == '\\' && (!*++name || !strchr("nr\\", *name)))
			return false;
		if (*to == '\\')
			*to = *name == 'n' ? '\n' : *name == 'r' ? '\r' : '\\';
	}
	*to = '\0';
	return true;
}

/* Splits "SHA256 (NAME) = HEX", as sha256sum --tag prints it. */
static char *split_tagged(char *text, char **hex)
{
	static const char begin[] = "SHA256 (", end[] = ") = ";
	char *found = NULL, *name = text + strlen(begin);

	if (strncmp(text, begin, strlen(begin)) != 0)
		return NULL;
	for (char *at = name; (at = strstr(at, end)); at++)
		found = at;
	if (!found || found == name || strspn(found + strlen(end), "0123456789abcdefABCDEF") != 64)
		return NULL;
	*hex = found + strlen(end);
	*found = '\0';
	return name;
}

/* Splits "HEX  NAME" in place. Returns the name, or NULL if the line is no such line. */
static char *split_line(char *line, char **hex)
{
	bool escaped = line[0] == '\\';

	line[strcspn(line, "\n")] = '\0';
	char *name = split_tagged(line + escaped, hex);
	if (name)
		return escaped && !unescape_name(name) ? NULL : name;
	*hex = line + escaped;
	size_t n = strspn(*hex, "0123456789abcdefABCDEF");
	name = *hex + n;
	if ((n != 64 && n != 32) || name[0] != ' ' || (name[1] != ' ' && name[1] != '*') ||
	    !name[2] || (escaped && !unescape_name(name + 2)))
		return NULL;
	*name = '\0';
	return name + 2;
}

/* Returns whether the line, or its file, is not right. */
static bool check_line(sluice_context *ctx, const struct verify_options *o, char *line,
                       struct cli_moved *moved)
{
	char text[DIGEST_TEXT], *hex, *uri = split_line(line, &hex);

	if (!uri) {
		CLI_OWNED char *shown = cli_visible(line);
		return cli_fail(-EINVAL,
		                "'%s': '%s' is neither 'HEX  NAME' nor 'SHA256 (NAME) = HEX'",
		                o->sums, shown);
	}
	int kind = strlen(hex) == 64 ? SLUICE_SHA256 : SLUICE_XXH3_128;
	bool failed = file_digest(ctx, o, uri, kind, moved, text) || strcasecmp(text, hex);
	CLI_OWNED char *name = cli_uri_name(uri);
	if (failed || !o->open.quiet)
		cli_print_escaped(stdout, "", name, failed ? ": FAILED\n" : ": OK\n");
	return failed;
}

static int verify_check(sluice_context *ctx, const struct verify_options *o,
                        struct cli_moved *moved)
{
	FILE *sums = strcmp(o->sums, "-") ? fopen(o->sums, "r") : stdin;
	size_t size = 0, lines = 0;
	int status = CLI_OK;
	CLI_OWNED char *line = NULL;

	if (!sums) {
		/* A URI, perhaps, which is no file of sums. */
		int error = errno;
		CLI_OWNED char *shown = cli_uri_name(o->sums);

		return cli_fail(CLI_FAILED, "'%s': %s", shown, strerror(error));
	}
	while (getline(&line, &size, sums) > 0) {
		if (line[0] == '#' || line[0] == '\n')
			continue;
		lines++;
		if (check_line(ctx, o, line, moved))
			status = CLI_FAILED;
	}
	if (ferror(sums)) {
		warn("'%s'", o->sums);
		status = CLI_FAILED;
	} else if (!lines) {
		cli_warn("'%s' has no line", o->sums);
		status = CLI_FAILED;
	}
	if (sums != stdin)
		fclose(sums);
	return status;
}

int cli_verify(int argc, char **argv)
{
	static const struct argp argp = {
		option_list, verify_parse, "FILE...\n--check SUMS",
		"Prints the digests of whole files, or checks files against such lines.\v"
		"FILE is a path or a URI; './-' is a file named '-'."};
	uint64_t start = sl_now();
	struct verify_options o = {.open.arguments = {.most = SIZE_MAX, .noun = "FILE"}};
	struct cli_moved moved = {0};
	sluice_context *ctx;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (cli_context_new(o.open.backend, 0, &ctx))
		return CLI_FAILED;
	int status = (o.sums ? verify_check : verify_print)(ctx, &o, &moved);
	if (!o.open.quiet && moved.files)
		cli_moved_print(&moved, sl_now() - start);
	sluice_context_close(ctx);
	return status;
}
