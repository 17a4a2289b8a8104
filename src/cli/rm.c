/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice rm, sluice s3 abandoned
 *
 * Remove objects of S3, and what uploads left behind that were not completed.
 *
 * Threads: the main thread, and others that take entries of a list in turn and remove them.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "cli.h"

enum { THREADS = 32, MANY = 1000, MANY_THREADS = 4, HOUR_S = 3600, DAY_H = 24 };

struct rm_options {
	struct cli_open open;
	bool dry_run;
	bool uploads, remove, json; /* of sluice s3 abandoned */
	uint64_t age;               /* hours */
	bool aged;
};

/* The removal of all entries of a list. */
struct removal {
	const struct rm_options *o;
	const char *uri;
	struct sluice_open_options options;
	sluice_context *ctx;
	bool many;     /* are removed by a request */
	size_t bucket; /* length of "s3://BUCKET/" at the start of uri */
	struct sl_mutex mutex;
	struct {
		sluice_list *list;
		int listed; /* of the last sluice_list_next() */
		uint64_t found;
		int rc;
	} locked SL_GUARDED_BY(&mutex);
};

enum { KEY_AGE = 256 };

static const struct argp_option rm_list[] = {
	{"recursive", 'r', NULL, 0, "All objects with names that begin as that of URI"},
	{"dry-run", CLI_FLAG(rm_options, dry_run), NULL, 0, "Only print what would be removed"},
	{"quiet", 'q', NULL, 0, "Do not print what is removed with -r"},
	CLI_S3_OPTIONS,
	CLI_VERSION_OPTION,
	{NULL},
};

static const struct argp_option abandoned_list[] = {
	{"remove", CLI_FLAG(rm_options, remove), NULL, 0, "Remove them"},
	{"age", KEY_AGE, "HOURS", 0,
         "Only those that began so many hours ago, or earlier; default: 0, with --remove 24, since "
         "an upload may still run"},
	{"json", CLI_FLAG(rm_options, json), NULL, 0, "Print a JSON object for each line"},
	CLI_S3_OPTIONS,
	{NULL},
};

static error_t rm_parse(int key, char *arg, struct argp_state *state)
{
	struct rm_options *o = state->input;
	const struct cli_arguments *uris = &o->open.arguments;

	switch (key) {
	case KEY_AGE:
		o->age = cli_option_number(state, "age", arg, 0, 1000000);
		o->aged = true;
		return 0;
	case ARGP_KEY_END:
		if (o->open.s3.version && (o->open.recursive || uris->count > 1))
			argp_error(state, "--version-id: only for a single object");
		for (size_t i = 0; i < uris->count; i++)
			if (strncasecmp(uris->of[i], "s3://", 5))
				argp_error(state, "'%s' is no object of S3%s",
				           cli_uri_name(uris->of[i]),
				           cli_is_blob(uris->of[i])
				                   ? "; sluice store rm deletes blobs"
				                   : "");
		/* fall through */
	default:
		return cli_open_option(&o->open, key, arg, state);
	}
}

/* Shows an entry that was, or would be, removed; rc: or was not. Returns rc. */
static int entry_show(const struct removal *all, const char *uri, const char *upload, int64_t at,
                      int rc)
{
	CLI_OWNED char *shown = cli_visible(uri);
	char date[CLI_TEXT];

	flockfile(stdout);
	if (rc == 0 && all->o->json) {
		cli_json_string("{\"uri\": ", uri);
		cli_json_string(", \"upload\": ", upload);
		printf(", \"begun_ns\": %" PRId64 "}\n", at);
	} else if (rc == 0 && upload) {
		printf("%s  %s\n", cli_date_format(at, date), shown);
	} else if (rc == 0 &&
	           (all->o->dry_run || (all->o->open.recursive && !all->o->open.quiet))) {
		printf("%s\n", shown);
	}
	funlockfile(stdout);
	return rc;
}

/* Removes, or shows, an entry. Returns 0 or a negative errno, printed. */
static int entry_remove(const struct removal *all, const char *uri, const char *upload, int64_t at)
{
	int rc = 0;

	if (all->o->uploads ? all->o->remove : !all->o->dry_run)
		rc = cli_said(sluice_remove(all->ctx, uri, &all->options, upload));
	return entry_show(all, uri, upload, at, rc);
}

/* Takes the next entry that is to be removed; NULL: there is none. */
static char *removal_take_locked(struct removal *all, char **upload, int64_t *at)
	SL_REQUIRES(&all->mutex)
{
	struct sluice_entry entry = {.size = sizeof(entry)};
	int64_t latest = ((int64_t)time(NULL) - (int64_t)all->o->age * HOUR_S) * 1000000000;
	char *uri = NULL;

	while (!uri && all->locked.listed >= 0 && !cli_interrupted() &&
	       (all->locked.listed = cli_said(sluice_list_next(all->locked.list, &entry))) > 0) {
		if (all->o->uploads && all->o->age && entry.modified_ns > latest)
			continue;
		uri = cli_format("%.*s%s", (int)all->bucket, all->uri, entry.name);
		*upload = all->o->uploads ? cli_format("%s", entry.upload) : NULL;
		*at = entry.modified_ns;
		all->locked.found++;
	}
	if (all->locked.listed < 0)
		all->locked.rc = all->locked.listed;
	return uri;
}

/* Removes entries by requests for many. Returns 0 or a negative errno, printed. */
static int removal_many(struct removal *all, char **uris, size_t count)
{
	char *messages[MANY];
	int errors[MANY], rc;

	rc = sluice_remove_many(all->ctx, (const char *const *)uris, count, &all->options, errors,
	                        messages);
	for (size_t i = 0; i < count; i++) {
		if (errors[i])
			cli_warn("%s", messages[i] ? messages[i] : strerror(-errors[i]));
		entry_show(all, uris[i], NULL, 0, errors[i]);
		free(messages[i]);
	}
	return rc;
}

static void *removal_run(void *argument)
{
	struct removal *all = argument;
	char *uris[MANY], *upload = NULL;
	size_t count;
	int64_t at = 0;

	for (;;) {
		sl_mutex_lock(&all->mutex);
		for (count = 0; count < (all->many ? MANY : 1); count++)
			if (!(uris[count] = removal_take_locked(all, &upload, &at)))
				break;
		sl_mutex_unlock(&all->mutex);
		if (!count)
			return NULL;
		int rc = all->many ? removal_many(all, uris, count)
		                   : entry_remove(all, uris[0], upload, at);
		while (count)
			free(uris[--count]);
		free(upload);
		upload = NULL;
		sl_mutex_lock(&all->mutex);
		all->locked.rc = rc ? rc : all->locked.rc;
		sl_mutex_unlock(&all->mutex);
	}
}

/* Removes all of a list. Without locks before the threads start and after they have ended. */
static int remove_list(struct removal *all) SL_UNCHECKED
{
	size_t rest = strcspn(all->uri + strlen("s3://"), "/");
	pthread_t threads[THREADS];
	unsigned count = 0;
	CLI_OWNED char *uri =
		cli_format("%s%s", all->uri, all->uri[strlen("s3://") + rest] ? "" : "/");

	all->uri = uri;
	all->bucket = strlen("s3://") + rest + 1;
	all->locked.listed = 0;
	all->locked.found = 0;
	all->locked.rc = cli_said(sluice_list_open(
		all->ctx, uri, &all->options,
		all->o->uploads ? SLUICE_LIST_UPLOADS : SLUICE_LIST_RECURSIVE, &all->locked.list));
	all->many = !all->o->uploads && !all->o->dry_run;
	while (all->locked.list && count < (all->many ? MANY_THREADS : THREADS) &&
	       !pthread_create(&threads[count], NULL, removal_run, all))
		count++;
	if (all->locked.list && !count)
		removal_run(all);
	while (count)
		pthread_join(threads[--count], NULL);
	sluice_list_free(all->locked.list);
	all->locked.list = NULL;
	if (!all->locked.rc && !all->locked.found && !all->o->uploads)
		all->locked.rc = cli_fail(-ENOENT, "there are no objects in '%s'", uri);
	return all->locked.rc;
}

static int remove_all(const struct rm_options *o)
{
	struct removal all = {.o = o, .options = cli_open_options(&o->open)};
	int rc = 0;

	sl_mutex_init(&all.mutex);
	if (cli_context_new(o->open.backend, 0, &all.ctx))
		return CLI_FAILED;
	for (size_t i = 0; i < o->open.arguments.count; i++) {
		int failed;

		all.uri = o->open.arguments.of[i];
		failed = o->open.recursive || o->uploads ? remove_list(&all)
		                                         : entry_remove(&all, all.uri, NULL, 0);
		rc = rc ? rc : failed;
	}
	sluice_context_close(all.ctx);
	return rc ? CLI_FAILED : CLI_OK;
}

int cli_rm(int argc, char **argv)
{
	static const struct argp argp = {
		rm_list, rm_parse, "URI...",
		"Removes objects of S3, s3://BUCKET/KEY; with -r all below s3://BUCKET/PREFIX."};
	struct rm_options o = {.open.arguments = {.least = 1, .most = SIZE_MAX, .noun = "URI"}};

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	return remove_all(&o);
}

int cli_s3(int argc, char **argv)
{
	static const struct argp argp = {
		abandoned_list, rm_parse, "abandoned URI...",
		"Lists uploads in parts that were begun below s3://BUCKET/PREFIX, and neither "
		"completed nor dropped. S3 keeps their parts, which cost as much as objects."};
	struct rm_options o = {.open.arguments = {.least = 1, .most = SIZE_MAX, .noun = "URI"},
	                       .uploads = true};

	if (argc < 2 || (strcmp(argv[1], "abandoned") && argv[1][0] != '-'))
		return cli_fail(CLI_USAGE,
		                "usage: sluice s3 abandoned [OPTION...] URI..., or --help");
	/* Only --help may stand in its place. */
	if (argv[1][0] != '-') {
		argv[1] = argv[0];
		argv++;
		argc--;
	}
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (o.remove && !o.aged)
		o.age = DAY_H;
	return remove_all(&o);
}
