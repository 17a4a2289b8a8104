/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets of HDF5 files
 *
 * Lists them for sluice ls, describes them for sluice stat, and makes the header of the .npy file
 * that sluice cp writes.
 *
 * Threads: the main thread; cli_dataset_split() and cli_array_header() any.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "sluice/arrays.h"

struct array_list {
	const char *below; /* the path of a group, without '/' at its end */
	bool recursive, json;
	FILE *out;
};

char *cli_dataset_split(const char *uri, const char **dataset)
{
	size_t n = sluice_array_split(uri);

	*dataset = n ? uri + n + 1 : NULL;
	return n ? cli_format("%.*s", (int)n, uri) : NULL;
}

char *cli_dataset_open_split(sluice_context *ctx, const char *uri,
                             struct sluice_open_options *options)
{
	char *file = cli_dataset_split(uri, &options->dataset);
	struct sluice_open_options whole = *options;
	sluice_file *object;

	whole.dataset = NULL;
	if (!file || strncmp(uri, "s3://", 5) || sluice_open(ctx, uri, &whole, &object))
		return file;
	sluice_discard(object);
	free(file);
	options->dataset = NULL;
	return NULL;
}

/* "[3, 4]", or "(3, 4)" and "(3,)" as tuples of Python. */
struct lengths {
	char text[4 + 22 * SLUICE_ARRAY_RANK_MOST];
};

static struct lengths lengths_of(const uint64_t *lengths, unsigned rank, const char *brackets)
{
	struct lengths made;
	char *end = made.text;

	*end++ = brackets[0];
	for (unsigned i = 0; i < rank; i++)
		end += sprintf(end, "%s%" PRIu64, i ? ", " : "", lengths[i]);
	sprintf(end, "%s%c", rank == 1 && brackets[0] == '(' ? "," : "", brackets[1]);
	return made;
}

static void array_print_json(FILE *to, const struct sluice_array_info *info)
{
	fprintf(to, "\"shape\": %s, ", lengths_of(info->shape, info->rank, "[]").text);
	fprintf(to, "\"chunk\": %s, \"type\": ",
	        info->chunk[0] ? lengths_of(info->chunk, info->rank, "[]").text : "null");
	cli_json_text(to, info->type);
	fputs(", \"filters\": ", to);
	cli_json_text(to, info->filters ? info->filters : "");
	fputs(", ", to);
}

int cli_array_print(sluice_file *file, bool json)
{
	struct sluice_array_info info = {.size = sizeof(info)};
	int rc = cli_said(sluice_array_stat(file, &info));

	if (!rc && json)
		array_print_json(stdout, &info);
	if (rc || json)
		return rc;
	CLI_OWNED char *type = cli_visible(info.type), *filters = cli_visible(info.filters);
	printf("%-12s %s\n", "type", type);
	printf("%-12s %s\n", "shape", lengths_of(info.shape, info.rank, "[]").text);
	printf("%-12s %s\n", "chunk",
	       info.chunk[0] ? lengths_of(info.chunk, info.rank, "[]").text : "none");
	printf("%-12s %s\n", "filters", filters[0] ? filters : "none");
	return 0;
}

char *cli_array_header(sluice_file *file, size_t *n)
{
	struct sluice_array_info info = {.size = sizeof(info)};

	if (sluice_array_stat(file, &info))
		return NULL;
	/* numpy has no bfloat16: its bits are integers. */
	const char *type = strncmp(info.type, "bfloat16", 8) ? info.type
	                   : info.type[8]                    ? ">u2"
	                                                     : "<u2";
	const char *quote = type[0] == '[' ? "" : "'";
	CLI_OWNED char *text =
		cli_format("{'descr': %s%s%s, 'fortran_order': False, 'shape': %s, }", quote, type,
	                   quote, lengths_of(info.shape, info.rank, "()").text);
	size_t length = strlen(text);
	bool utf8 = false;
	for (const char *at = text; *at; at++)
		utf8 |= (unsigned char)*at >= 0x80;
	/* Version 1 has a length of 2 bytes, 2 of 4; 3 is in UTF-8. All end at a multiple of 64. */
	unsigned version = utf8 ? 3 : length > UINT16_MAX - 128 ? 2 : 1;
	size_t begin = version > 1 ? 12 : 10;
	*n = (begin + length + 1 + 63) / 64 * 64;
	char *header = cli_format("\x93NUMPY%*s", (int)*n - 6, "\n");
	header[6] = (char)version;
	header[7] = 0;
	for (size_t i = 8; i < begin; i++)
		header[i] = (char)((*n - begin) >> 8 * (i - 8));
	memcpy(header + begin, text, length);
	return header;
}

static int array_found(void *user, const struct sluice_array_info *info)
{
	const struct array_list *list = user;
	const char *rest = info->name + SL_MIN(strlen(list->below), strlen(info->name));

	/* All that is listed is at or below the path: what is named itself has no rest. */
	if (!list->recursive && rest[0] && strchr(rest + 1, '/'))
		return 0;
	if (info->is_group && (list->recursive || !rest[strspn(rest, "/")]))
		return 0;
	if (list->json) {
		fputs("{", list->out);
		if (!info->is_group) {
			array_print_json(list->out, info);
			fprintf(list->out, "\"length\": %" PRIu64 ", \"refused\": ", info->bytes);
			cli_json_text(list->out, info->refused);
		}
		fputs(info->is_group ? "\"group\": true, \"name\": " : ", \"name\": ", list->out);
		cli_json_text(list->out, info->name);
		fputs("}\n", list->out);
		return 0;
	}
	CLI_OWNED char *name = cli_visible(info->name);
	CLI_OWNED char *type = cli_visible(info->type ? info->type : "?");
	CLI_OWNED char *note = cli_visible(info->refused   ? info->refused
	                                   : info->filters ? info->filters
	                                                   : "");
	if (info->is_group)
		fprintf(list->out, "%15s  %-6s  %-20s  %s/\n", "", "", "", name);
	else
		fprintf(list->out, "%15" PRIu64 "  %-6s  %-20s  %s%s%s\n", info->bytes, type,
		        lengths_of(info->shape, info->rank, "[]").text, name, note[0] ? "  " : "",
		        note);
	return 0;
}

static int array_list_read(const char *path, FILE *out, void *user)
{
	struct array_list *list = user;

	list->out = out;
	return sluice_array_list(path, list->below[0] ? list->below : "/", array_found, list);
}

int cli_array_ls(const char *path, sluice_file *remote, const char *group, bool recursive,
                 bool json)
{
	size_t n = strlen(group);
	CLI_OWNED char *text = NULL;

	while (n && group[n - 1] == '/')
		n--;
	CLI_OWNED char *below = cli_format("%.*s", (int)n, group);
	struct array_list list = {.below = below, .recursive = recursive, .json = json};
	int rc;

	if (remote) {
		size_t length;
		list.out = open_memstream(&text, &length);
		rc = list.out ? sluice_array_list_file(remote, below[0] ? below : "/", array_found,
		                                       &list)
		              : sl_fail(-ENOMEM, "no memory");
		if (list.out)
			fclose(list.out);
	} else {
		rc = cli_h5_read(path, array_list_read, &list, &text);
	}
	cli_said(rc);
	fputs(text && !rc ? text : "", stdout);
	return rc;
}
