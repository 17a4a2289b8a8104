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

/* Returns "[3, 4]" for the caller to free, and "(3, 4,)" as a tuple of Python. */
static char *lengths_text(const uint64_t *lengths, unsigned rank, bool tuple)
{
	char text[3 + 22 * SLUICE_ARRAY_RANK_MOST], *end = text;

	*end++ = tuple ? '(' : '[';
	for (unsigned i = 0; i < rank; i++)
		end += sprintf(end, "%s%" PRIu64, i ? ", " : "", lengths[i]);
	strcpy(end, !tuple ? "]" : rank == 1 ? ",)" : ")");
	return cli_format("%s", text);
}

static void array_print_json(FILE *to, const struct sluice_array_info *info)
{
	char *shape = lengths_text(info->shape, info->rank, false);
	char *chunk = lengths_text(info->chunk, info->rank, false);

	fprintf(to, "\"shape\": %s, \"chunk\": %s, \"type\": ", shape,
	        info->chunk[0] ? chunk : "null");
	if (info->type)
		cli_json_text(to, info->type);
	else
		fputs("null", to);
	fputs(", \"filters\": ", to);
	cli_json_text(to, info->filters ? info->filters : "");
	free(shape);
	free(chunk);
}

int cli_array_print(sluice_file *file, bool json)
{
	struct sluice_array_info info = {.size = sizeof(info)};
	int rc = cli_said(sluice_array_stat(file, &info));

	if (rc)
		return rc;
	if (json) {
		array_print_json(stdout, &info);
		printf(", ");
		return 0;
	}
	char *shape = lengths_text(info.shape, info.rank, false);
	char *chunk = lengths_text(info.chunk, info.rank, false);
	char *type = cli_visible(info.type), *filters = cli_visible(info.filters);
	printf("%-12s %s\n%-12s %s\n", "type", type, "shape", shape);
	printf("%-12s %s\n%-12s %s\n", "chunk", info.chunk[0] ? chunk : "none", "filters",
	       filters[0] ? filters : "none");
	free(shape);
	free(chunk);
	free(type);
	free(filters);
	return 0;
}

char *cli_array_header(sluice_file *file, size_t *n)
{
	struct sluice_array_info info = {.size = sizeof(info)};
	int rc = sluice_array_stat(file, &info);

	if (rc)
		return NULL;
	/* numpy has no bfloat16: its bits are integers. */
	const char *type = strncmp(info.type, "bfloat16", 8) ? info.type
	                   : info.type[8]                    ? ">u2"
	                                                     : "<u2";
	char *shape = lengths_text(info.shape, info.rank, true), quote[] = "'";
	quote[0] = type[0] == '[' ? '\0' : '\'';
	char *text = cli_format("{'descr': %s%s%s, 'fortran_order': False, 'shape': %s, }", quote,
	                        type, quote, shape);
	size_t length = strlen(text);
	bool utf8 = false;
	for (const char *at = text; *at; at++)
		utf8 |= (unsigned char)*at >= 0x80;
	/* Version 1 has a length of 2 bytes, 2 of 4; 3 is in UTF-8. All end at a multiple of 64. */
	unsigned version = utf8                        ? 3
	                   : length > UINT16_MAX - 128 ? 2
	                                               : 1,
		 begin = version > 1 ? 12 : 10;
	*n = (begin + length + 1 + 63) / 64 * 64;
	char *header = cli_format("%*s", (int)*n, "");
	memset(header, ' ', *n);
	memcpy(header, "\x93NUMPY", 6);
	header[6] = (char)version;
	header[7] = 0;
	for (unsigned i = 8; i < begin; i++)
		header[i] = (char)((*n - begin) >> 8 * (i - 8));
	memcpy(header + begin, text, length);
	header[*n - 1] = '\n';
	free(shape);
	free(text);
	return header;
}

static int array_found(void *user, const struct sluice_array_info *info)
{
	const struct array_list *list = user;
	size_t n = strlen(list->below);
	const char *rest = strncmp(info->name, list->below, n) ? "" : info->name + n;

	/* A dataset that is named itself has no rest. */
	if (!list->recursive && rest[0] && strchr(rest + 1, '/'))
		return 0;
	if (info->is_group && (list->recursive || !rest[strspn(rest, "/")]))
		return 0;
	if (list->json) {
		fputs("{\"name\": ", list->out);
		cli_json_text(list->out, info->name);
		fputs(info->is_group ? ", \"group\": true" : ", ", list->out);
		if (!info->is_group)
			array_print_json(list->out, info);
		if (!info->is_group)
			fprintf(list->out, ", \"length\": %" PRIu64 ", \"refused\": ", info->bytes);
		if (info->refused)
			cli_json_text(list->out, info->refused);
		else if (!info->is_group)
			fputs("null", list->out);
		fputs("}\n", list->out);
		return 0;
	}
	char *name = cli_visible(info->name), *type = cli_visible(info->type ? info->type : "?");
	char *shape = lengths_text(info->shape, info->is_group ? 0 : info->rank, false);
	char *note = cli_visible(info->refused   ? info->refused
	                         : info->filters ? info->filters
	                                         : "");
	if (info->is_group)
		fprintf(list->out, "%15s  %-6s  %-20s  %s/\n", "", "", "", name);
	else
		fprintf(list->out, "%15" PRIu64 "  %-6s  %-20s  %s%s%s\n", info->bytes, type, shape,
		        name, note[0] ? "  " : "", note);
	free(name);
	free(type);
	free(shape);
	free(note);
	return 0;
}

static int array_list_read(const char *path, FILE *out, void *user)
{
	struct array_list *list = user;

	list->out = out;
	return sluice_array_list(path, list->below[0] ? list->below : "/", array_found, list);
}

int cli_array_ls(const char *path, const char *group, bool recursive, bool json)
{
	size_t n = strlen(group);
	char *below, *text = NULL;

	while (n && group[n - 1] == '/')
		n--;
	below = cli_format("%.*s", (int)n, group);
	struct array_list list = {.below = below, .recursive = recursive, .json = json};
	int rc = cli_said(cli_h5_read(path, array_list_read, &list, &text));
	fputs(text && !rc ? text : "", stdout);
	free(text);
	free(below);
	return rc;
}
