/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice ls
 *
 * Lists buckets and objects of S3, folders, and datasets of HDF5 files.
 *
 * Threads: the main thread.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"

#define HDF5_BEGIN (256 << 10) /* often all that HDF5 needs: comes with the opening */

struct ls_options {
	struct cli_open open;
	bool json;
};

static const struct argp_option option_list[] = {
	{"recursive", 'r', NULL, 0,
         "All below the prefix, folder or group, not up to the next '/'"},
	{"json", CLI_FLAG(ls_options, json), NULL, 0, "Print a JSON object for each line"},
	CLI_S3_OPTIONS,
	{NULL},
};

static error_t ls_parse(int key, char *arg, struct argp_state *state)
{
	struct ls_options *o = state->input;

	switch (key) {
	case ARGP_KEY_END:
		if (o->open.arguments.count && cli_is_blob(o->open.arguments.of[0]))
			argp_error(state, "'%s': sluice store ls lists blobs",
			           o->open.arguments.of[0]);
		/* fall through */
	default:
		return cli_open_option(&o->open, key, arg, state);
	}
}

static void print_entry(const struct ls_options *o, const struct sluice_entry *e)
{
	char date[CLI_TEXT] = "";

	if (o->json) {
		cli_json_string("{\"name\": ", e->name);
		if (e->is_prefix)
			printf(", \"prefix\": true");
		else
			printf(", \"length\": %" PRIu64, e->length);
		if (!e->is_prefix || e->modified_ns)
			printf(", \"modified_ns\": %" PRId64, e->modified_ns);
		if (!e->is_prefix)
			cli_json_string(", \"etag\": ", e->etag);
		printf("}\n");
		return;
	}
	CLI_OWNED char *name =
		isatty(STDOUT_FILENO) ? cli_visible(e->name) : cli_format("%s", e->name);
	if (e->modified_ns || !e->is_prefix)
		cli_date_format(e->modified_ns, date);
	if (e->is_prefix)
		printf("%15s  %19s  %s\n", "", date, name);
	else
		printf("%15" PRIu64 "  %s  %s\n", e->length, date, name);
}

int cli_ls(int argc, char **argv)
{
	static const struct argp argp = {
		option_list, ls_parse, "URI",
		"Lists the objects of S3 at s3://BUCKET/PREFIX: bytes, time of "
		"the last change (UTC), name; or at s3:// the buckets: time of "
		"their creation, name; or a local folder; or the datasets of an HDF5 file, FILE#/ "
		"or FILE#/GROUP: bytes, type, shape, name, filters."};
	struct sluice_entry entry = {.size = sizeof(entry)};
	struct ls_options o = {.open.arguments = {.least = 1, .most = 1, .noun = "URI"}};
	sluice_list *list = NULL;
	sluice_context *ctx;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	const char *group;
	CLI_OWNED char *path = cli_dataset_split(o.open.arguments.of[0], &group);
	CLI_OWNED char *local = path ? cli_local_path(path) : NULL;
	if (local)
		return cli_array_ls(local, NULL, group, o.open.recursive, o.json) ? CLI_FAILED
		                                                                  : CLI_OK;
	if (cli_context_new(o.open.backend, 0, &ctx))
		return CLI_FAILED;
	struct sluice_open_options options = cli_open_options(&o.open);
	if (path) {
		sluice_file *file = NULL;
		options.first_bytes = HDF5_BEGIN;
		int status = cli_said(sluice_open(ctx, path, &options, &file));
		status =
			status ? status : cli_array_ls(path, file, group, o.open.recursive, o.json);
		if (file)
			sluice_close(file);
		sluice_context_close(ctx);
		return status ? CLI_FAILED : CLI_OK;
	}
	int rc = cli_said(
		sluice_list_open(ctx, o.open.arguments.of[0], &options, o.open.recursive, &list));
	int failed = rc;
	while (list && (rc = cli_said(sluice_list_next(list, &entry)))) {
		if (rc > 0)
			print_entry(&o, &entry);
		else
			failed = rc;
		/* The list of a local folder goes on behind a folder that cannot be read. */
		if (rc < 0 && cli_is_object(o.open.arguments.of[0]))
			break;
	}
	sluice_list_free(list);
	sluice_context_close(ctx);
	return failed ? CLI_FAILED : CLI_OK;
}
