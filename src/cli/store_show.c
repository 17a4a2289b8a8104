/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice store: output
 *
 * Prints blobs, events and the daemon's counts, for users, as JSON and for Prometheus.
 *
 * Threads: the main thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli_store.h"

#define LONG_TEXT    64
#define DEVICES_MOST 256

static const char *state_name(int state)
{
	return state == SLUICE_BLOB_IS_CREATED   ? "created"
	       : state == SLUICE_BLOB_IS_DYING   ? "dying"
	       : state == SLUICE_BLOB_IS_SPILLED ? "spilled"
	                                         : "sealed";
}

static void flag_names(const struct sluice_blob_info *info, char text[LONG_TEXT])
{
	unsigned flags = info->flags;

	snprintf(text, LONG_TEXT, "%s%s%s%s", flags & SLUICE_BLOB_CACHE ? " cache" : "",
	         flags & SLUICE_BLOB_PIN ? " pinned" : "",
	         flags & SLUICE_BLOB_TRANSIENT ? " transient" : "",
	         info->kind == SLUICE_BLOB_OF_PROCESS ? " memory of its process" : "");
}

static const char *place_name(const struct sluice_blob_info *info)
{
	return info->place[0] ? info->place : "host";
}

/* Prints a JSON object without its end. */
static void blob_json_begin(const struct sluice_blob_info *info)
{
	cli_json_string("{\"name\": ", info->name);
	printf(", \"id\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"memory\": %" PRIu64, info->id,
	       info->bytes, info->memory);
	cli_json_string(", \"place\": ", place_name(info));
	printf(", \"parts\": %u, \"of_process\": %s, \"state\": \"%s\", \"cache\": %s, \"pinned\": "
	       "%s, "
	       "\"transient\": %s, "
	       "\"user\": %" PRIu32 ", \"process\": %" PRId32 ", \"made_ns\": %" PRId64,
	       info->parts, info->kind == SLUICE_BLOB_OF_PROCESS ? "true" : "false",
	       state_name(info->state), info->flags & SLUICE_BLOB_CACHE ? "true" : "false",
	       info->flags & SLUICE_BLOB_PIN ? "true" : "false",
	       info->flags & SLUICE_BLOB_TRANSIENT ? "true" : "false", info->user, info->process,
	       info->made_ns);
}

/* ---------------------------------------------------------------------------------------- ls */

static int compare_names(const void *a, const void *b)
{
	const struct sluice_blob_info *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : x->id < y->id ? -1 : x->id > y->id;
}

/* Lists all blobs, sorted; the caller frees the list. */
static int list_blobs(sluice_store *store, const char *prefix, struct sluice_blob_info **out,
                      size_t *count)
{
	struct sluice_blob_info *infos = NULL;
	uint64_t cursor = 0;
	size_t n = 0;

	for (;;) {
		infos = cli_grow(infos, n + SLUICE_BLOB_BATCH, sizeof(*infos));
		infos[n].size = sizeof(*infos);
		int rc = cli_said(
			sluice_blob_list(store, prefix, &cursor, infos + n, SLUICE_BLOB_BATCH));
		if (rc < 0) {
			free(infos);
			return rc;
		}
		if (rc == 0)
			break;
		n += (size_t)rc;
	}
	qsort(infos, n, sizeof(*infos), compare_names);
	*out = infos;
	*count = n;
	return 0;
}

static void print_blob_line(const struct sluice_blob_info *info)
{
	char size[CLI_TEXT], flags[LONG_TEXT];
	CLI_OWNED char *name =
		info->name[0] ? cli_visible(info->name) : cli_format("#%" PRIu64, info->id);

	flag_names(info, flags);
	printf("%10s  %-7s  %-12s  user %" PRIu32 ", process %-7" PRId32 "  %s%s%s%s\n",
	       cli_size_format(info->bytes, size), state_name(info->state), place_name(info),
	       info->user, info->process, name, flags[0] ? "  (" : "", flags[0] ? flags + 1 : "",
	       flags[0] ? ")" : "");
}

int cli_store_ls(sluice_store *store, const struct cli_store_options *o)
{
	struct sluice_blob_info *infos;
	size_t count;
	int rc = list_blobs(store, o->arguments.count ? o->arguments.of[0] : "", &infos, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++) {
		if (!o->json) {
			print_blob_line(&infos[i]);
		} else {
			blob_json_begin(&infos[i]);
			printf("}\n");
		}
		if (!o->tensors || !infos[i].parts)
			continue;
		/* A collection that this process cannot attach to does not hide the others. */
		int failed = cli_store_ls_tensors(store, infos[i].name, infos[i].id, o->json);
		rc = failed ? failed : rc;
	}
	free(infos);
	return rc;
}

/* -------------------------------------------------------------------------------------- stat */

static void print_blob(const struct sluice_blob_info *info)
{
	char size[CLI_TEXT], flags[LONG_TEXT], when[64] = "";
	CLI_OWNED char *name = cli_visible(info->name);
	time_t seconds = (time_t)(info->made_ns / 1000000000);
	struct tm tm;

	flag_names(info, flags);
	if (localtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S %z", &tm);
	printf("%-12s %s\n", "name", name);
	printf("%-12s %" PRIu64 "\n", "id", info->id);
	printf("%-12s %" PRIu64 " bytes (%s)\n", "size", info->bytes,
	       cli_size_format(info->bytes, size));
	printf("%-12s %s\n", "memory", cli_size_format(info->memory, size));
	printf("%-12s %s\n", "place", place_name(info));
	if (info->parts)
		printf("%-12s %u\n", "parts", info->parts);
	printf("%-12s %s%s\n", "state", state_name(info->state), flags);
	printf("%-12s %u\n", "holders", info->holders);
	printf("%-12s user %" PRIu32 ", process %" PRId32 "\n", "made by", info->user,
	       info->process);
	printf("%-12s %s\n", "made", when);
}

static int stat_blob(sluice_store *store, const struct cli_store_options *o)
{
	struct sluice_blob_info info = {.size = sizeof(info)};
	int rc = cli_said(sluice_blob_stat(store, o->arguments.of[0], &info));

	if (rc)
		return rc;
	if (!o->json) {
		print_blob(&info);
		return 0;
	}
	blob_json_begin(&info);
	printf(", \"holders\": %u}\n", info.holders);
	return 0;
}

/* The counts of the daemon, with their names for users, JSON and Prometheus. */
static const struct figure {
	const char *key, *meaning;
	size_t at;
	enum { BYTES, NOW, EVER, TIME, PROCESS } kind;
} figures[] = {
#define FIGURE(field, kind, meaning)                                               \
	{                                                                          \
#field, meaning, offsetof(struct sluice_store_counts, field), kind \
	}
	FIGURE(memory_limit, BYTES, "memory that blobs may take"),
	FIGURE(memory_bytes, BYTES, "memory taken"),
	FIGURE(blob_bytes, BYTES, "memory of blobs"),
	FIGURE(leased_bytes, BYTES, "memory with clients, for blobs to come"),
	FIGURE(warm_bytes, BYTES, "memory kept for the next blobs"),
	FIGURE(sealed, NOW, "blobs"),
	FIGURE(created, NOW, "blobs not sealed yet"),
	FIGURE(dying, NOW, "blobs deleted and still held"),
	FIGURE(clients, NOW, "connections"),
	FIGURE(waiting, NOW, "gets that wait"),
	FIGURE(seals, EVER, "seals since the server began"),
	FIGURE(gets, EVER, "gets that asked the server"),
	FIGURE(deletes, EVER, "deletes since the server began"),
	FIGURE(dropped, EVER, "blobs dropped because memory was short"),
	FIGURE(spilled, NOW, "blobs spilled to files"),
	FIGURE(spilled_bytes, BYTES, "bytes in files"),
	FIGURE(spill_limit, BYTES, "bytes that may be in files"),
	FIGURE(spills, EVER, "blobs spilled because memory was short"),
	FIGURE(returns, EVER, "blobs brought back from files"),
	FIGURE(spill_failures, EVER, "files not written, or not read"),
	FIGURE(requests, EVER, "requests"),
	FIGURE(refused, EVER, "requests answered by an error"),
	FIGURE(replacements, EVER, "servers before this one"),
	FIGURE(up_ns, TIME, "time since this server began"),
	FIGURE(upgrades, EVER, "upgrades of the daemon"),
	FIGURE(supervisor, PROCESS, "process of the supervisor"),
	FIGURE(server, PROCESS, "process of the server"),
#undef FIGURE
};
enum { FIGURES = sizeof(figures) / sizeof(*figures) };

static void print_figure(const struct figure *figure, uint64_t value)
{
	char text[CLI_TEXT];

	if (figure->kind == BYTES && value == UINT64_MAX)
		printf("%-40s as many as there is space for\n", figure->meaning);
	else if (figure->kind == BYTES)
		printf("%-40s %s\n", figure->meaning, cli_size_format(value, text));
	else if (figure->kind == TIME)
		printf("%-40s %.0f s\n", figure->meaning, (double)value / 1e9);
	else
		printf("%-40s %" PRIu64 "\n", figure->meaning, value);
}

static void print_prometheus(const struct figure *figure, uint64_t value)
{
	bool ever = figure->kind == EVER;
	char key[CLI_TEXT];

	/* It counts and measures nothing. */
	if (figure->kind == PROCESS)
		return;
	/* Prometheus expects seconds, and the unit in the name. */
	if (figure->kind == TIME)
		snprintf(key, sizeof(key), "%.*s_seconds",
		         (int)(strlen(figure->key) - strlen("_ns")), figure->key);
	else
		snprintf(key, sizeof(key), "%s%s", figure->key, ever ? "_total" : "");
	printf("# HELP sluice_store_%s %s\n# TYPE sluice_store_%s %s\n", key, figure->meaning, key,
	       ever ? "counter" : "gauge");
	if (figure->kind == TIME)
		printf("sluice_store_%s %.3f\n", key, (double)value / 1e9);
	else
		printf("sluice_store_%s %" PRIu64 "\n", key, value);
}

/* ------------------------------------------------------------------------- stat: devices */

static void print_store_device(const struct sluice_store_device_info *d)
{
	char used[CLI_TEXT], leaving[CLI_TEXT], limit[CLI_TEXT], title[LONG_TEXT];

	snprintf(title, sizeof(title), "memory of %s taken", d->place);
	printf("%-40s %s", title, cli_size_format(d->memory_bytes, used));
	if (d->memory_limit != UINT64_MAX)
		printf(" of %s", cli_size_format(d->memory_limit, limit));
	if (d->leaving_bytes)
		printf(", %s of it deleted and still mapped",
		       cli_size_format(d->leaving_bytes, leaving));
	printf("\n");
}

static void print_store_device_json(const struct sluice_store_device_info *d)
{
	cli_json_string("{\"place\": ", d->place);
	if (d->memory_limit != UINT64_MAX)
		printf(", \"memory_limit\": %" PRIu64, d->memory_limit);
	printf(", \"memory_bytes\": %" PRIu64 ", \"leaving_bytes\": %" PRIu64 "}", d->memory_bytes,
	       d->leaving_bytes);
}

/* Prints a quoted label; no place contains the control characters that the format forbids. */
static void print_label(const char *place)
{
	printf("{place=\"");
	for (; *place; place++)
		printf("%s%c", *place == '"' || *place == '\\' ? "\\" : "", *place);
	printf("\"}");
}

/* Prometheus expects all values of a name together. */
static void print_devices_prometheus(const struct sluice_store_device_info *devices, size_t count)
{
	static const struct {
		const char *key, *meaning;
		size_t at;
	} gauges[] = {
		{"memory_bytes", "memory of a device taken",
	         offsetof(struct sluice_store_device_info, memory_bytes)},
		{"leaving_bytes", "memory of a device that was deleted and is still mapped",
	         offsetof(struct sluice_store_device_info, leaving_bytes)},
	};

	for (size_t i = 0; count && i < sizeof(gauges) / sizeof(*gauges); i++) {
		printf("# HELP sluice_store_device_%s %s\n# TYPE sluice_store_device_%s gauge\n",
		       gauges[i].key, gauges[i].meaning, gauges[i].key);
		for (size_t j = 0; j < count; j++) {
			printf("sluice_store_device_%s", gauges[i].key);
			print_label(devices[j].place);
			printf(" %" PRIu64 "\n",
			       *(const uint64_t *)((const char *)&devices[j] + gauges[i].at));
		}
	}
}

static int stat_devices(sluice_store *store, const struct cli_store_options *o)
{
	static struct sluice_store_device_info devices[DEVICES_MOST];
	size_t count = 0;
	int rc = 0;

	while (!rc && count < DEVICES_MOST) {
		devices[count].size = sizeof(*devices);
		rc = sluice_store_device(store, (unsigned)count, &devices[count]);
		count += !rc;
	}
	if (rc && rc != -ENOENT)
		return cli_said(rc);
	if (o->prometheus && !o->json)
		print_devices_prometheus(devices, count);
	for (size_t i = 0; !o->json && !o->prometheus && i < count; i++)
		print_store_device(&devices[i]);
	for (size_t i = 0; o->json && i < count; i++) {
		printf("%s", i ? ", " : "");
		print_store_device_json(&devices[i]);
	}
	return 0;
}

static int stat_daemon(sluice_store *store, const struct cli_store_options *o)
{
	struct sluice_store_counts stats = {.size = sizeof(stats)};
	int rc = cli_said(sluice_store_stats(store, &stats));

	if (rc)
		return rc;
	for (size_t i = 0; i < FIGURES; i++) {
		uint64_t value = *(const uint64_t *)((const char *)&stats + figures[i].at);

		if (o->json)
			printf("%s\"%s\": %" PRIu64, i ? ", " : "{", figures[i].key, value);
		else if (o->prometheus)
			print_prometheus(&figures[i], value);
		else
			print_figure(&figures[i], value);
	}
	if (o->json)
		printf(", \"version\": \"%s\", \"devices\": [", stats.version);
	else if (o->prometheus)
		printf("# HELP sluice_store_build_info version of sluiced\n"
		       "# TYPE sluice_store_build_info gauge\n"
		       "sluice_store_build_info{version=\"%s\"} 1\n",
		       stats.version);
	else
		printf("%-40s %s\n", "version of sluiced", stats.version);
	rc = stat_devices(store, o);
	if (o->json)
		printf("]}\n");
	return rc;
}

int cli_store_trim(sluice_store *store, const struct cli_store_options *o)
{
	char text[CLI_TEXT];
	uint64_t freed;
	int rc = cli_said(sluice_store_trim(store, &freed));

	(void)o;
	if (!rc)
		printf("%s given back\n", cli_size_format(freed, text));
	return rc;
}

int cli_store_stat(sluice_store *store, const struct cli_store_options *o)
{
	return o->arguments.count ? stat_blob(store, o) : stat_daemon(store, o);
}

/* ------------------------------------------------------------------------------------- watch */

static const char *figure_kind_name(int kind)
{
	return kind == SLUICE_WATCH_CREATED   ? "created"
	       : kind == SLUICE_WATCH_SEALED  ? "sealed"
	       : kind == SLUICE_WATCH_DELETED ? "deleted"
	                                      : "lost";
}

static void print_event(const struct sluice_watch_event *e, bool json)
{
	CLI_OWNED char *name = cli_visible(e->name);
	char size[CLI_TEXT];

	if (json) {
		printf("{\"event\": \"%s\"", figure_kind_name(e->kind));
		cli_json_string(", \"name\": ", e->name);
		printf(", \"id\": %" PRIu64 ", \"bytes\": %" PRIu64 "}\n", e->id, e->bytes);
	} else if (e->kind == SLUICE_WATCH_LOST) {
		printf("%-8s (what happened meanwhile is not known)\n", figure_kind_name(e->kind));
	} else {
		printf("%-8s %10s  %s\n", figure_kind_name(e->kind),
		       cli_size_format(e->bytes, size), name);
	}
	cli_flush();
}

int cli_store_watch(sluice_store *store, const struct cli_store_options *o)
{
	struct sluice_watch_event e = {.size = sizeof(e)};
	sluice_watch *watch = NULL;
	uint64_t seen = 0;
	int rc = sluice_watch_open(store, o->arguments.count ? o->arguments.of[0] : "", &watch);

	for (; !rc && !ferror(stdout) && (!o->count || seen < o->count); seen++) {
		rc = sluice_watch_next(watch, -1, &e);
		if (!rc)
			print_event(&e, o->json);
	}
	cli_said(rc);
	sluice_watch_free(watch);
	return rc;
}
