/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice stat
 *
 * Prints the properties of a file.
 *
 * Threads: the main thread.
 */
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

#include "cli.h"
#include "sluice/arrays.h"

struct stat_options {
	struct cli_open open;
	bool json;
};

static const struct argp_option option_list[] = {
	{"json", CLI_FLAG(stat_options, json), NULL, 0, "One JSON object on standard output"},
	CLI_OPEN_OPTIONS,
	{0},
};

static const char *kind_name(const char *dataset, const struct sluice_file_info *st)
{
	return dataset             ? "dataset"
	       : st->memory        ? "blob"
	       : S_ISREG(st->mode) ? "regular file"
	       : S_ISBLK(st->mode) ? "block device"
	                           : "object";
}

static void print_stat_bytes(const char *label, uint64_t bytes, const char *note)
{
	char text[CLI_TEXT];

	printf("%-12s %" PRIu64 " bytes", label, bytes);
	if (bytes >= 1024)
		printf(" (%s)", cli_size_format(bytes, text));
	printf("%s\n", note);
}

static void print_stat_time(int64_t ns)
{
	time_t seconds = (time_t)(ns / 1000000000);
	long rest = (long)(ns % 1000000000);
	char day[64], zone[16];
	struct tm tm;

	if (rest < 0) {
		rest += 1000000000;
		seconds--;
	}
	if (!localtime_r(&seconds, &tm) || !strftime(day, sizeof(day), "%Y-%m-%d %H:%M:%S", &tm) ||
	    !strftime(zone, sizeof(zone), "%z", &tm))
		return;
	printf("%-12s %s.%09ld %s\n", "modified", day, rest, zone);
}

static void print_stat_for_people(const char *uri, const char *dataset,
                                  const struct sluice_file_info *st)
{
	bool unknown = st->flags & SLUICE_STAT_SIZE_UNKNOWN;
	bool sparse = S_ISREG(st->mode) && !unknown && st->allocated < st->length;

	printf("%-12s %s\n", "uri", uri);
	if (st->final_uri)
		printf("%-12s %s\n", "found at", st->final_uri);
	printf("%-12s %s\n", "kind", kind_name(dataset, st));
	if (unknown)
		printf("%-12s unknown: it is known when it has been read\n", "length");
	else
		print_stat_bytes("length", st->length, "");
	if (S_ISREG(st->mode) && !unknown)
		print_stat_bytes("allocated", st->allocated, sparse ? ", sparse" : "");
	if (st->mode)
		printf("%-12s %04o\n", "permissions", st->mode & 07777);
	if (st->modified_ns)
		print_stat_time(st->modified_ns);
	if (!st->mode)
		; /* not a local file */
	else if (st->direct_offset)
		printf("%-12s offset and length %u, memory %u\n", "direct I/O", st->direct_offset,
		       st->direct_memory);
	else
		printf("%-12s none\n", "direct I/O");
	if (st->full_etag[0])
		printf("%-12s %s\n", st->memory ? "id" : "etag", st->full_etag);
	if (st->memory)
		printf("%-12s %s\n", "memory", cli_memory_name(st->device));
	if (st->flags & SLUICE_STAT_WHOLE_ONLY)
		printf("%-12s none: it can only be read as a whole\n", "ranges");
	printf("%-12s %s\n", "backend", st->backend);
}

static void print_stat_json(const char *uri, const char *dataset, const struct sluice_file_info *st)
{
	bool unknown = st->flags & SLUICE_STAT_SIZE_UNKNOWN;

	cli_json_string("\"uri\": ", uri);
	cli_json_string(", \"found_at\": ", st->final_uri);
	cli_json_string(", \"kind\": ", kind_name(dataset, st));
	if (unknown)
		printf(", \"length\": null");
	else
		printf(", \"length\": %" PRIu64, st->length);
	printf(", \"allocated\": %" PRIu64 ", \"permissions\": ", st->allocated);
	if (st->mode)
		printf("\"%04o\"", st->mode & 07777);
	else
		printf("null");
	printf(", \"modified_ns\": %" PRId64 ", \"direct_offset\": %u, \"direct_memory\": %u",
	       st->modified_ns, st->direct_offset, st->direct_memory);
	cli_json_string(", \"etag\": ", st->full_etag);
	printf(", \"whole_only\": %s", st->flags & SLUICE_STAT_WHOLE_ONLY ? "true" : "false");
	cli_json_string(", \"backend\": ", st->backend);
	printf("}\n");
}

int cli_stat(int argc, char **argv)
{
	static const struct argp argp = {
		option_list, cli_open_parse, "URI",
		"Shows what is known about the file that URI names, or the "
		"dataset of an HDF5 file, FILE#/DATASET."};
	struct sluice_file_info st = {.size = sizeof(st)};
	struct stat_options o = {.open.arguments = {.least = 1, .most = 1, .noun = "URI"}};
	sluice_context *ctx;
	sluice_file *file = NULL;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	const char *uri = o.open.arguments.of[0];
	if (cli_context_new(o.open.backend, 0, &ctx))
		return CLI_FAILED;
	struct sluice_open_options options = cli_open_options(&o.open);
	options.flags = SLUICE_OPEN_READ | o.open.flags;
	CLI_OWNED char *path = cli_dataset_open_split(ctx, uri, &options);
	int rc = cli_said(sluice_open(ctx, path ? path : uri, &options, &file));
	if (rc == 0)
		rc = cli_said(sluice_stat(file, &st));
	CLI_OWNED char *name = cli_uri_name(uri);
	if (!st.full_etag)
		st.full_etag = st.etag;
	if (rc == 0 && o.json)
		printf("{");
	if (rc == 0 && path)
		rc = cli_array_print(file, o.json);
	if (rc == 0)
		(o.json ? print_stat_json : print_stat_for_people)(name, path, &st);
	sluice_discard(file);
	sluice_context_close(ctx);
	return rc ? CLI_FAILED : CLI_OK;
}
