/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice presign
 *
 * Prints URLs by which others get, put or remove objects of S3 without keys.
 *
 * Threads: the main thread.
 */
#include <stdlib.h>
#include <time.h>

#include "cli.h"

struct presign_options {
	struct cli_open open;
	const char *method;
	unsigned seconds;
};

enum { KEY_EXPIRES = 256, KEY_METHOD };

static const struct argp_option option_list[] = {
	{"expires", KEY_EXPIRES, "SECONDS", 0,
         "For so long from now on; default: 3600, at most 7 days"},
	{"method", KEY_METHOD, "METHOD", 0, "GET (default), HEAD, PUT or DELETE"},
	CLI_S3_OPTIONS,
	CLI_VERSION_OPTION,
	{NULL},
};

static error_t presign_parse(int key, char *arg, struct argp_state *state)
{
	static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE", NULL};
	struct presign_options *o = state->input;

	switch (key) {
	case KEY_EXPIRES:
		o->seconds =
			(unsigned)cli_option_number(state, "expires", arg, 1, SLUICE_PRESIGN_MOST);
		return 0;
	case KEY_METHOD:
		o->method = cli_option_choice(state, "method", arg, methods);
		return 0;
	default:
		return cli_open_option(&o->open, key, arg, state);
	}
}

int cli_presign(int argc, char **argv)
{
	static const struct argp argp = {option_list, presign_parse, "URI...",
	                                 "Prints a URL for each object of S3, s3://BUCKET/KEY, by "
	                                 "which anybody may get it, put it or "
	                                 "remove it until the URL ends. No server is asked."};
	struct presign_options o = {.open.arguments = {.least = 1, .most = SIZE_MAX, .noun = "URI"},
	                            .method = "GET",
	                            .seconds = 3600};
	const struct cli_arguments *uris = &o.open.arguments;
	sluice_context *ctx;
	int failed = 0;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (cli_context_new(o.open.backend, 0, &ctx))
		return CLI_FAILED;
	struct sluice_open_options options = cli_open_options(&o.open);
	for (size_t i = 0; i < uris->count; i++) {
		int64_t wanted = time(NULL) + o.seconds, end_ns;
		CLI_OWNED char *url = NULL;

		if (cli_said(sluice_presign(ctx, o.method, uris->of[i], &options, o.seconds, &url,
		                            &end_ns))) {
			failed = 1;
			continue;
		}
		puts(url);
		if (end_ns / 1000000000 < wanted)
			cli_warn("'%s': the URL ends in %lld seconds, with the keys that signed it",
			         uris->of[i], (long long)(end_ns / 1000000000 - time(NULL)));
	}
	sluice_context_close(ctx);
	return failed ? CLI_FAILED : CLI_OK;
}
