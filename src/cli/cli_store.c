/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice store: commands
 *
 * Parses the command line and runs the commands on blobs and the daemon; store_show.c prints.
 *
 * Threads: the main thread.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli_store.h"
#include "cp.h"

enum { KEY_WAIT = 256, KEY_COUNT, KEY_DEVICE };

#define OPTION_SOCKET                                                                 \
	{                                                                             \
		"socket", CLI_MEMBER(CLI_WORD, cli_store_options, socket), "PATH", 0, \
			"Where the daemon listens; without it $SLUICE_STORE, else "   \
			"$XDG_RUNTIME_DIR/sluice.sock"                                \
	}
#define OPTION_ORIGIN                                                                \
	{                                                                            \
		"origin", CLI_MEMBER(CLI_WORD, cli_store_options, origin), "URI", 0, \
			"s3://BUCKET/PREFIX, where NAME is an object; without it "   \
			"$SLUICE_STORE_ORIGIN"                                       \
	}
#define OPTION_JSON                                                 \
	{                                                           \
		"json", CLI_FLAG(cli_store_options, json), NULL, 0, \
			"JSON objects, one in each line"            \
	}

static error_t store_parse(int key, char *arg, struct argp_state *state)
{
	struct cli_store_options *o = state->input;

	switch (key) {
	case 'f':
		o->replace = true;
		return 0;
	case KEY_WAIT:
		o->wait_ms = (int)cli_option_number(state, "wait", arg, 0, 1000000) * 1000;
		return 0;
	case KEY_DEVICE:
		o->device = *arg >= '0' && *arg <= '9'
		                    ? (int)cli_option_number(state, "device", arg, 0, INT_MAX)
		                    : cli_option_memory(state, "device", arg);
		o->tensors = true;
		return 0;
	case KEY_COUNT:
		o->count = cli_option_number(state, "count", arg, 1, UINT64_MAX);
		return 0;
	case ARGP_KEY_END:
		if (o->prometheus && (o->json || o->arguments.count))
			argp_error(state, "--prometheus: of the daemon only, and not with --json");
		/* fall through */
	default:
		return cli_arguments_option(&o->arguments, key, arg, state);
	}
}

/* --------------------------------------------------------------------------------- put, get, rm */

/* Appends an option to the URI if wanted. */
static char *add_option(char *uri, bool wanted, const char *key, const char *value)
{
	return wanted ? cli_blob_option(uri, key, value) : uri;
}

static int run_cp(const char *source, const char *target, bool force)
{
	char *sources[] = {(char *)source};
	struct cli_cp_options cp = {.sources = sources,
	                            .count = 1,
	                            .target = target,
	                            .through = -1,
	                            .open = {.quiet = true, .force = force}};

	return cli_cp_run(&cp) == CLI_OK ? 0 : -EIO;
}

/* put and get are 'sluice cp' with other names for the blob, but for tensors. */
static int store_put(sluice_store *store, const struct cli_store_options *o)
{
	static const char index[] = ".index.json";
	size_t length = strcspn(o->arguments.of[1], "?"), n = sizeof(index) - 1;

	(void)store;
	if (o->tensors || o->arguments.count > 2 ||
	    (length > n && !memcmp(o->arguments.of[1] + length - n, index, n)))
		return cli_store_put_tensors(o);
	CLI_OWNED char *uri = cli_blob_uri(o->arguments.of[0]);
	uri = add_option(uri, o->socket, "socket", o->socket);
	uri = add_option(uri, o->cache, "cache", NULL);
	uri = add_option(uri, o->pin, "pin", NULL);
	return run_cp(o->arguments.of[1], uri, o->replace);
}

static int store_get(sluice_store *store, const struct cli_store_options *o)
{
	CLI_OWNED char *uri = cli_blob_uri(o->by_id ? "" : o->arguments.of[0]);
	char wait[16];

	(void)store;
	snprintf(wait, sizeof(wait), "%d", o->wait_ms);
	uri = add_option(uri, o->socket, "socket", o->socket);
	uri = add_option(uri, o->by_id, "id", o->arguments.of[0]);
	uri = add_option(uri, o->wait_ms, "wait_ms", wait);
	uri = add_option(uri, o->origin, "origin", o->origin);
	return run_cp(uri, o->arguments.of[1], true);
}

/* ----------------------------------------------------------------------------------- the daemon */

static int store_upgrade(sluice_store *store, const struct cli_store_options *o)
{
	struct sluice_store_counts stats = {.size = sizeof(stats)};
	int rc = cli_said(sluice_store_upgrade(store));

	(void)o;
	if (!rc)
		rc = cli_said(sluice_store_stats(store, &stats));
	if (!rc)
		printf("sluiced %s\n", stats.version);
	return rc;
}

static int store_stop(sluice_store *store, const struct cli_store_options *o)
{
	(void)o;
	return cli_said(sluice_store_stop(store));
}

/* ---------------------------------------------------------------------------------- subcommands */

static const struct argp_option ls_options[] = {
	OPTION_SOCKET,
	OPTION_JSON,
	{"tensors", CLI_FLAG(cli_store_options, tensors), NULL, 0, "Also those of collections"},
	{0}};
static const struct argp_option put_options[] = {
	OPTION_SOCKET,
	{"replace", CLI_FLAG(cli_store_options, replace), NULL, 0,
         "Take the name from the blob that has it"},
	{"force", 'f', NULL, OPTION_ALIAS, NULL},
	{"cache", CLI_FLAG(cli_store_options, cache), NULL, 0,
         "It may be dropped when memory is short"},
	{"pin", CLI_FLAG(cli_store_options, pin), NULL, 0, "It is never dropped"},
	{"tensors", CLI_FLAG(cli_store_options, tensors), NULL, 0,
         "Publish the tensors in files as a collection, as of an .index.json"},
	{"device", KEY_DEVICE, "NAME", 0,
         "The same, in memory of a device: a number or a name, as in sluice doctor"},
	{0}};
static const struct argp_option get_options[] = {
	OPTION_SOCKET,
	{"wait", KEY_WAIT, "SECONDS", 0, "Wait for somebody to publish it, or fetch it"},
	OPTION_ORIGIN,
	{"id", CLI_FLAG(cli_store_options, by_id), NULL, 0, "NAME is the number of a blob"},
	{0}};
static const struct argp_option rm_options[] = {
	OPTION_SOCKET,
	{"origin", CLI_MEMBER(CLI_WORD, cli_store_options, origin), "URI", 0,
         "Also remove the objects URI/NAME, URI being s3://BUCKET/PREFIX"},
	{0}};
static const struct argp_option push_options[] = {OPTION_SOCKET,
                                                  OPTION_ORIGIN,
                                                  {"exclusive",
                                                   CLI_FLAG(cli_store_options, exclusive), NULL, 0,
                                                   "Fail if there is such an object"},
                                                  {0}};
static const struct argp_option refresh_options[] = {OPTION_SOCKET, OPTION_ORIGIN, {0}};
static const struct argp_option daemon_options[] = {OPTION_SOCKET, {0}};
static const struct argp_option stat_options[] = {OPTION_SOCKET,
                                                  OPTION_JSON,
                                                  {"prometheus",
                                                   CLI_FLAG(cli_store_options, prometheus), NULL, 0,
                                                   "The text format of Prometheus"},
                                                  {0}};
static const struct argp_option watch_options[] = {
	OPTION_SOCKET, OPTION_JSON, {"count", KEY_COUNT, "N", 0, "End after N lines"}, {0}};

static const struct store_command {
	const char *name, *arguments, *meaning;
	const struct argp_option *options;
	int (*run)(sluice_store *store, const struct cli_store_options *o);
	unsigned least, most; /* arguments */
	bool by_uri;          /* run() connects itself, and store is NULL */
} commands[] = {
	{"ls", "[PREFIX]", "Lists the blobs whose names begin with PREFIX.", ls_options,
         cli_store_ls, 0, 1},
	{"put", "NAME FILE...",
         "Publishes the bytes of FILE, which is a path or a URI, as NAME; or the tensors in an "
         ".index.json, or in several files.",
         put_options, store_put, 2, UINT32_MAX, true},
	{"get", "NAME FILE",
         "Writes the bytes of the blob NAME to FILE, which is overwritten; '-': standard output.",
         get_options, store_get, 2, 2, true},
	{"rm", "NAME...", "Deletes blobs; whoever holds one keeps it until he releases it.",
         rm_options, cli_store_rm, 1, UINT32_MAX},
	{"push", "NAME...", "Uploads blobs as objects of S3; collections as .safetensors files.",
         push_options, cli_store_push, 1, UINT32_MAX},
	{"refresh", "NAME...",
         "Asks S3 whether the objects that blobs were fetched from have changed, and fetches them "
         "again if so.",
         refresh_options, cli_store_refresh, 1, UINT32_MAX},
	{"stat", "[NAME]", "Shows what is known of a blob; without NAME, of the daemon.",
         stat_options, cli_store_stat, 0, 1},
	{"trim", "", "Gives back the host memory that the daemon keeps for the next blobs.",
         daemon_options, cli_store_trim, 0, 0},
	{"watch", "[PREFIX]", "Prints what happens to blobs whose names begin with PREFIX.",
         watch_options, cli_store_watch, 0, 1},
	{"upgrade", "", "Has the daemon go on as the program that is at its path now.",
         daemon_options, store_upgrade, 0, 0},
	{"stop", "", "Stops the daemon, and waits until it has ended; all blobs are gone.",
         daemon_options, store_stop, 0, 0},
};

static const struct cli_words words = {
	.command = "sluice store",
	.before = "Named blobs of memory that processes share, by the daemon sluiced.",
	.of = commands,
	.count = sizeof(commands) / sizeof(*commands),
	.bytes = sizeof(*commands),
	.width = 13,
};

int cli_store(int argc, char **argv)
{
	int status, rc = 0;
	const struct store_command *command = cli_word_find(&words, argc, argv, &status);
	sluice_store *store = NULL;

	if (!command)
		return status;
	const struct argp argp = {command->options, store_parse, command->arguments,
	                          command->meaning};
	struct cli_store_options o = {.device = -1,
	                              .arguments = {.least = command->least,
	                                            .most = command->most,
	                                            .noun = "an argument"}};
	argp_parse(&argp, argc - 1, argv + 1, 0, NULL, &o);
	if (!command->by_uri)
		rc = cli_said(sluice_store_open(o.socket, NULL, &store));
	if (!rc) {
		rc = command->run(store, &o);
		sluice_store_close(store);
	}
	return rc < 0 ? CLI_FAILED : CLI_OK;
}
