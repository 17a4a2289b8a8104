/* SPDX-License-Identifier: Apache-2.0 */
/* What the subcommands' command lines have in common. */
#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

const char *const cli_backends[] = {"auto", "posix", "uring", "cufile", "multi", "easy", NULL};

uint64_t cli_option_size(struct argp_state *state, const char *option, const char *text)
{
	uint64_t size = 0;

	switch (cli_size_parse(text, &size)) {
	case 0:
		if (size == 0)
			argp_error(state, "--%s: must be more than 0", option);
		break;
	case -ERANGE:
		argp_error(state, "--%s: '%s' is too large", option, text);
		break;
	default:
		argp_error(state,
		           "--%s: '%s' is not a size; give bytes, or K, M, G, T for powers of 1024",
		           option, text);
	}
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
		snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", choices[i]);
	}
	argp_error(state, "--%s: unknown '%s'; there is: %s", option, text, list);
	return NULL;
}

int cli_context_new(const char *backend, size_t piece_bytes, sluice_context **out)
{
	struct sluice_config config = SLUICE_CONFIG_INIT;

	if (backend && (!strcmp(backend, "multi") || !strcmp(backend, "easy")))
		config.remote_backend = backend;
	else
		config.backend = backend;
	config.piece_bytes = piece_bytes;
	int rc = sluice_context_new(&config, out);
	if (rc)
		warnx("%s", sluice_last_message());
	return rc;
}
