/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words and options common to the subcommands
 *
 * Finds words, and parses sizes, numbers, choices and the options of struct cli_open.
 *
 * Threads: the main thread.
 */
#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Returns name, arguments and meaning. */
static const char *const *word_at(const struct cli_words *words, size_t i)
{
	return (const char *const *)((const char *)words->of + i * words->bytes);
}

static void words_print(const struct cli_words *words, FILE *to)
{
	fprintf(to, "Usage: %s COMMAND [OPTION...] [ARGUMENT...]\n%s\n\n", words->command,
	        words->before);
	for (size_t i = 0; i < words->count; i++) {
		const char *const *word = word_at(words, i);

		fprintf(to, "  %-8s %-*s%s\n", word[0], words->width, words->width ? word[1] : "",
		        word[2]);
	}
	fprintf(to, "\n  %s COMMAND --help   what a command takes\n%s", words->command,
	        words->after ? words->after : "");
}

const void *cli_word_find(const struct cli_words *words, int argc, char **argv, int *status)
{
	const char *wanted = argc > 1 ? argv[1] : "";
	static char name[48]; /* argp and warn() print it before their messages */

	*status = CLI_OK;
	/* argp calls it -?. */
	if (argc > 2 && !strcmp(argv[argc - 1], "-h"))
		argv[argc - 1] = "--help";
	for (size_t i = 0; i < words->count; i++)
		if (!strcmp(wanted, word_at(words, i)[0])) {
			snprintf(name, sizeof(name), "%s %s", words->command, wanted);
			argv[1] = program_invocation_name = program_invocation_short_name = name;
			return word_at(words, i);
		}
	if (!strcmp(wanted, "--help") || !strcmp(wanted, "-h") || !strcmp(wanted, "help")) {
		words_print(words, stdout);
		return NULL;
	}
	if (!strcmp(wanted, "--version") || !strcmp(wanted, "-V")) {
		printf("sluice %s\n", sluice_version());
		return NULL;
	}
	*status = CLI_USAGE;
	if (!*wanted) {
		words_print(words, stderr);
		return NULL;
	}
	cli_warn("unknown %s '%s'", wanted[0] == '-' ? "option" : "command", wanted);
	fprintf(stderr, "Try '%s --help'.\n", words->command);
	return NULL;
}

uint64_t cli_option_size(struct argp_state *state, const char *option, const char *text)
{
	uint64_t size = 0;
	int rc = sluice_size_parse(text, &size);

	if (rc == -ERANGE)
		argp_error(state, "--%s: '%s' is too large", option, text);
	else if (rc)
		argp_error(state,
		           "--%s: '%s' is not a size; give bytes, or as in 4K, 1.5GiB, with K, M, "
		           "G, T for powers of 1024",
		           option, text);
	else if (size == 0)
		argp_error(state, "--%s: must be more than 0", option);
	return size;
}

uint64_t cli_option_number(struct argp_state *state, const char *option, const char *text,
                           uint64_t least, uint64_t most)
{
	char *end;

	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end || errno || n < least || n > most)
		argp_error(state, "--%s: '%s' is not a number from %llu to %llu", option, text,
		           (unsigned long long)least, (unsigned long long)most);
	return n;
}

const char *cli_option_choice(struct argp_state *state, const char *option, const char *text,
                              const char *const *choices)
{
	char list[128] = "";

	for (size_t i = 0; choices[i]; i++) {
		if (!strcmp(text, choices[i]))
			return choices[i];
		size_t used = strlen(list);
		snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", choices[i]);
	}
	argp_error(state, "--%s: unknown '%s'; there is: %s", option, text, list);
	return NULL;
}

int cli_said(int rc)
{
	return rc < 0 ? cli_fail(rc, "%s", sluice_last_message()) : rc;
}

int cli_fail(int rc, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	/* vwarnx() writes a line in several steps. */
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, text ? text : format);
	free(text);
	va_end(args);
	return rc;
}

void cli_owned_free(void *pointer)
{
	free(*(void **)pointer);
}

void *cli_grow(void *array, size_t count, size_t bytes)
{
	array = reallocarray(array, count, bytes);
	if (!array)
		err(CLI_FAILED, "%zu elements", count);
	return array;
}

static error_t option_member(int key, char *arg, struct argp_state *state)
{
	int at = key - CLI_FIRST_MEMBER;
	char *member = (char *)state->input + at / CLI_KINDS;

	if (key < CLI_FIRST_MEMBER || key > CLI_LAST_MEMBER)
		return ARGP_ERR_UNKNOWN;
	if (at % CLI_KINDS == CLI_WORD)
		*(const char **)member = arg;
	else if (at % CLI_KINDS == CLI_INT)
		*(int *)member = 1;
	else
		*(bool *)member = true;
	return 0;
}

error_t cli_arguments_option(struct cli_arguments *a, int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_ARGS:
		a->of = state->argv + state->next;
		a->count = (size_t)(state->argc - state->next);
		return 0;
	case ARGP_KEY_END:
		if (a->count < a->least)
			argp_error(state, "%s is missing", a->noun);
		if (a->count > a->most)
			argp_error(state, "too many arguments: '%s'", a->of[a->most]);
		return 0;
	default:
		return option_member(key, arg, state);
	}
}

error_t cli_open_option(struct cli_open *o, int key, char *arg, struct argp_state *state)
{
	static const char *const backends[] = {"auto",  "posix", "uring", "cufile",
	                                       "multi", "easy",  NULL};
	static const char **headers; /* of the process, which has one command */
	static size_t header_count;

	o->s3.size = sizeof(o->s3);
	o->remote |=
		key == CLI_KEY_HEADER || key == CLI_OPEN_FLAG + SLUICE_OPEN_HTTP2 ||
		key == CLI_OPEN_FLAG + SLUICE_OPEN_AS_STORED ||
		(key >= CLI_MEMBER(0, cli_open, s3) && key < CLI_MEMBER(0, cli_open, first_bytes));
	switch (key) {
	case 'r':
		o->recursive = true;
		return 0;
	case 'q':
		o->quiet = true;
		return 0;
	case 'f':
		o->force = true;
		return 0;
	case CLI_OPEN_FLAG + SLUICE_OPEN_HTTP2:
	case CLI_OPEN_FLAG + SLUICE_OPEN_AS_STORED:
	case CLI_OPEN_FLAG + SLUICE_OPEN_UNCACHED:
		o->flags |= (unsigned)(key - CLI_OPEN_FLAG);
		return 0;
	case CLI_KEY_BACKEND:
		o->backend = cli_option_choice(state, "backend", arg, backends);
		return 0;
	case CLI_KEY_HEADER:
		o->headers = headers = cli_grow(headers, header_count + 2, sizeof(*headers));
		headers[header_count++] = arg;
		headers[header_count] = NULL;
		return 0;
	default:
		return cli_arguments_option(&o->arguments, key, arg, state);
	}
}

error_t cli_open_parse(int key, char *arg, struct argp_state *state)
{
	return cli_open_option(state->input, key, arg, state);
}

struct sluice_open_options cli_open_options(const struct cli_open *o)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;

	options.headers = o->headers;
	options.s3 = o->s3.size ? &o->s3 : NULL;
	return options;
}

int cli_context_new(const char *backend, size_t piece_bytes, sluice_context **out)
{
	struct sluice_config config = SLUICE_CONFIG_INIT;
	char tune[64];

	if (backend && (!strcmp(backend, "multi") || !strcmp(backend, "easy")))
		config.remote_backend = backend;
	else
		config.backend = backend;
	if (piece_bytes) {
		snprintf(tune, sizeof(tune), "piece_bytes=%zu", piece_bytes);
		config.tune = tune;
	}
	/* `cp -r` has five contexts, each with memory for parts. */
	if (!getenv("SLUICE_S3_UPLOAD_BYTES"))
		config.s3_upload_bytes =
			SL_MIN(SL_MAX(sl_machine_memory("") / 16, 16 << 20), 256 << 20);
	/* A server that refuses or limits requests while a call waits, without a bar yet. */
	if (!getenv("SLUICE_LOG"))
		config.log = "error";
	return cli_said(sluice_context_new(&config, out));
}
