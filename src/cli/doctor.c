/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice doctor
 *
 * Prints the capabilities of this machine, the settings, and how sluice uses them.
 *
 * Threads: the main thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "sluice/store.h"
#include "sluice/writer.h"

struct doctor_options {
	struct cli_arguments path; /* first: see doctor_parse() */
	bool json, s3;
};

static const struct argp_option option_list[] = {
	{"json", CLI_FLAG(doctor_options, json), NULL, 0, "One JSON object on standard output"},
	{"s3", CLI_FLAG(doctor_options, s3), NULL, 0,
         "Ask the source of credentials for S3, too: a service of the network, or a command"},
	{0},
};

static const char description[] =
	"Shows what this machine offers and what sluice makes of it, GPUs and their drivers, the "
	"codecs of the frame writer, the settings in force, and with "
	"PATH (default: the working directory) whether files there can bypass the page cache.\v"
	"'+' is there and used, '-' is missing or switched off.";

static error_t doctor_parse(int key, char *arg, struct argp_state *state)
{
	return cli_arguments_option(state->input, key, arg, state);
}

/* ------------------------------------------------------------------------------------ findings */

/* Of the list that is being printed in JSON. */
static bool list_is_empty;

/* Begins an object in a list of JSON. */
static void item_begin(const char *key, const char *text)
{
	fputs(list_is_empty ? "\n    {" : ",\n    {", stdout);
	list_is_empty = false;
	cli_json_string(key, text);
}

/* Prints a finding in a line or two; or leaves its JSON object open for more fields. */
static void feature_begin(bool json, const struct sluice_feature *f)
{
	if (!json) {
		printf("%c %-16s %s\n", f->usable ? '+' : '-', f->name, f->detail);
		if (f->effect)
			printf("  %-16s %s\n", "", f->effect);
		if (f->remedy)
			printf("  %-16s remedy: %s\n", "", f->remedy);
		return;
	}
	item_begin("\"name\": ", f->name);
	printf(", \"usable\": %s", f->usable ? "true" : "false");
	cli_json_string(", \"detail\": ", f->detail);
	cli_json_string(", \"effect\": ", f->effect);
	cli_json_string(", \"remedy\": ", f->remedy);
}

static void feature_print(bool json, const struct sluice_feature *f)
{
	feature_begin(json, f);
	if (json)
		putchar('}');
}

static void heading_print(bool json, const char *title, const char *key)
{
	list_is_empty = true;
	if (json)
		printf(",\n  \"%s\": [", key);
	else
		printf("\n%s\n", title);
}

static void list_end(bool json)
{
	if (json)
		printf("\n  ]");
}

static void print_machine(const struct doctor_options *o)
{
	struct cli_finding finding;

	heading_print(o->json, "Machine", "machine");
	for (size_t i = 0; cli_machine_finding(i, &finding); i++)
		feature_print(o->json, &finding.feature);
	list_end(o->json);
}

/* Prints the PCI address of a device, and whether this process may run near it. */
static void print_device_address(const struct sluice_device *d, int cores)
{
	if (!d->pci)
		return;
	printf("  %-16s at %s", "", d->pci);
	if (d->numa_node >= 0)
		printf(", NUMA node %d", d->numa_node);
	else
		fputs(sl_machine_nodes("") > 1 ? "; its NUMA node is not known"
		                               : "; there is a single NUMA node",
		      stdout);
	if (cores > 0)
		printf(", of which this process has %d core%s", cores, cores == 1 ? "" : "s");
	else if (cores == 0)
		fputs(", of which this process has no core", stdout);
	putchar('\n');
}

static void print_device_facts_json(const struct sluice_device *d, int cores)
{
	printf(", \"real\": %s, \"memory_bytes\": %" PRIu64 ", \"free_bytes\": %" PRIu64
	       ", \"stream_order\": %s",
	       d->real ? "true" : "false", d->memory_bytes, d->free_bytes,
	       d->stream_order ? "true" : "false");
	cli_json_string(", \"stream_order_detail\": ", d->stream_order_detail);
	cli_json_string(", \"driver\": ", d->driver);
	cli_json_string(", \"pci\": ", d->pci);
	if (d->numa_node < 0)
		printf(", \"numa_node\": null");
	else
		printf(", \"numa_node\": %d", d->numa_node);
	if (cores < 0)
		printf(", \"cores_there\": null}");
	else
		printf(", \"cores_there\": %d}", cores);
}

static void print_device_facts(const struct sluice_device *d, int cores)
{
	char available[CLI_TEXT], total[CLI_TEXT];

	printf("  %-16s memory: %s of %s free\n", "", cli_size_format(d->free_bytes, available),
	       cli_size_format(d->memory_bytes, total));
	printf("  %-16s stream order: %s, %s\n", "", d->stream_order ? "yes" : "no",
	       d->stream_order_detail);
	print_device_address(d, cores);
}

static void print_device(bool json, const struct sluice_device *d)
{
	int cores = d->numa_node < 0 ? -1 : cli_cores_of_node(d->numa_node);
	char remedy[96];
	struct sluice_feature f = {.name = d->name, .usable = 1, .detail = d->detail};

	snprintf(remedy, sizeof remedy, "numactl --cpunodebind=%d --membind=%d", d->numa_node,
	         d->numa_node);
	if (json && cores == 0) {
		f.effect = "bytes go by way of another node";
		f.remedy = remedy;
	}
	feature_begin(json, &f);
	(json ? print_device_facts_json : print_device_facts)(d, cores);
	if (!json && cores == 0)
		printf("  %-16s remedy: %s\n", "", remedy);
}

static void print_device_lost(bool json, int number)
{
	char name[CLI_TEXT];
	struct sluice_feature f = {.name = name, .detail = sluice_last_message()};

	snprintf(name, sizeof name, "device %d", number);
	feature_print(json, &f);
}

/* Prints hardware devices, or the others. */
static void print_devices_of(bool json, bool real)
{
	struct sluice_device d = {.size = sizeof d};
	int rc;

	for (int i = 0; (rc = sluice_device_describe(i, &d)) != -ENOENT; i++) {
		if (rc ? !real : d.real != real)
			continue;
		if (rc)
			print_device_lost(json, i);
		else
			print_device(json, &d);
	}
}

static void print_devices(bool json)
{
	struct sluice_feature f = {.size = sizeof f};

	heading_print(json, "GPU drivers", "drivers");
	for (int i = 0; sluice_device_feature(i, &f) == 0; i++)
		feature_print(json, &f);
	list_end(json);
	heading_print(json, "Devices", "devices");
	print_devices_of(json, true);
	print_devices_of(json, false);
	list_end(json);
}

static void print_features(const struct doctor_options *o, const sluice_context *ctx)
{
	struct sluice_feature f = {.size = sizeof(f)};
	struct sluice_device d = {.size = sizeof(d)};

	/* Load the drivers, without which some features are not examined. */
	sluice_device_describe(0, &d);
	heading_print(o->json, "Features", "features");
	for (size_t i = 0; sluice_context_feature(ctx, i, &f) == 0; i++)
		feature_print(o->json, &f);
	list_end(o->json);
}

static void print_codec(const struct doctor_options *o, const struct sluice_codec *codec)
{
	struct sluice_feature f = {.name = codec->name, .usable = !codec->missing};
	const char *needs = codec->plugin ? "; readers need " : "";
	const char *plugin = codec->plugin ? codec->plugin : "";
	char detail[192];

	if (codec->missing)
		snprintf(detail, sizeof(detail), "no: %s", codec->missing);
	else if (codec->most > codec->least)
		snprintf(detail, sizeof(detail), "by %s, levels %d to %d%s%s", codec->encoder,
		         codec->least, codec->most, needs, plugin);
	else
		snprintf(detail, sizeof(detail), "by %s, level %d%s%s", codec->encoder, codec->most,
		         needs, plugin);
	f.detail = detail;
	feature_print(o->json, &f);
}

static void print_writer(const struct doctor_options *o, sluice_context *ctx)
{
	struct sluice_feature hdf5 = {.name = "HDF5", .detail = "there"};
	struct sluice_codec codec = {.size = sizeof(codec)};
	sluice_writer *none;

	/* The library checks for support of writers before the name, and no file is called "". */
	hdf5.usable = sluice_writer_open(ctx, "", NULL, &none) != -ENOTSUP;
	if (!hdf5.usable)
		hdf5.detail = sluice_last_message();
	hdf5.effect = hdf5.usable ? "frames are stored in HDF5 files, compressed by these codecs:"
	                          : "no frames are stored, though there are these codecs:";
	heading_print(o->json, "Frame writer", "writer");
	feature_print(o->json, &hdf5);
	for (size_t i = 0; sluice_codec_describe(i, &codec) == 0; i++)
		if (codec.filter)
			print_codec(o, &codec);
	list_end(o->json);
}

static void print_store(const struct doctor_options *o)
{
	struct sluice_feature daemon = {.name = "sluiced", .detail = "answers"};
	sluice_store *store;

	daemon.usable = sluice_store_open(NULL, NULL, &store) == 0;
	daemon.effect = daemon.usable ? "processes share memory" : "no memory is shared";
	if (daemon.usable)
		sluice_store_close(store);
	else
		daemon.detail = sluice_last_message();
	heading_print(o->json, "Store", "store");
	feature_print(o->json, &daemon);
	list_end(o->json);
}

/* ------------------------------------------------------------------------------------ settings */

/* Without a context the values are unknown, and the allowed values are shown instead. */
static void print_settings(const struct doctor_options *o, const sluice_context *ctx)
{
	struct sluice_setting s = {.size = sizeof(s)};

	heading_print(o->json, "Settings", "settings");
	for (size_t i = 0; sluice_context_setting(ctx, i, &s) == 0; i++) {
		if (!o->json) {
			printf("  %-26s %-12s %s\n", s.variable, s.value ? s.value : "?",
			       s.value ? s.source : s.range);
			continue;
		}
		item_begin("\"variable\": ", s.variable);
		cli_json_string(", \"value\": ", s.value);
		cli_json_string(", \"source\": ", s.source);
		cli_json_string(", \"default\": ", s.fallback);
		cli_json_string(", \"range\": ", s.range);
		cli_json_string(", \"meaning\": ", s.meaning);
		putchar('}');
	}
	list_end(o->json);
}

/* Returns how many characters must change to turn a into b. Long names count as far. */
static size_t edit_distance(const char *a, const char *b)
{
	enum { LONGEST = 48 };
	size_t row[LONGEST + 1], n = strlen(b);

	if (strlen(a) > LONGEST || n > LONGEST)
		return LONGEST;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t above = row[j];
			row[j] = SL_MIN(SL_MIN(above, row[j - 1]) + 1,
			                diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[n];
}

/* Returns true if name is a setting or the store's variable; else *suggestion is alike, or NULL. */
static bool find_setting(const char *name, const char **suggestion)
{
	struct sluice_setting s = {.size = sizeof(s)};
	size_t closest = 4;

	*suggestion = NULL;
	if (!strcmp(name, "SLUICE_STORE") || !strcmp(name, "SLUICE_STORE_OWNER"))
		return true;
	for (size_t i = 0; sluice_context_setting(NULL, i, &s) == 0; i++) {
		size_t distance = edit_distance(name, s.variable);
		if (distance == 0)
			return true;
		if (distance < closest) {
			closest = distance;
			*suggestion = s.variable;
		}
	}
	return false;
}

static void print_unknown_variable(const struct doctor_options *o, const char *name,
                                   const char *suggestion)
{
	if (!o->json) {
		printf("  %s has no effect: there is no such setting", name);
		if (suggestion)
			printf("; did you mean %s?", suggestion);
		putchar('\n');
		return;
	}
	item_begin("\"variable\": ", name);
	cli_json_string(", \"suggestion\": ", suggestion);
	putchar('}');
}

static void print_unknown_variables(const struct doctor_options *o)
{
	bool begun = o->json;
	const char *suggestion;

	if (begun)
		heading_print(o->json, "Unknown variables", "unknown_variables");
	for (char **v = environ; *v; v++) {
		if (strncmp(*v, "SLUICE_", 7))
			continue;
		CLI_OWNED char *name = cli_format("%.*s", (int)strcspn(*v, "="), *v);
		if (!find_setting(name, &suggestion)) {
			if (!begun)
				heading_print(o->json, "Unknown variables", "unknown_variables");
			begun = true;
			print_unknown_variable(o, name, suggestion);
		}
	}
	list_end(o->json);
}

/* ---------------------------------------------------------------------------------------- path */

/* Opens a nameless file in directory; sets errno on failure. */
static sluice_file *doctor_open_nameless(sluice_context *ctx, const char *directory)
{
	sluice_file *file = NULL;
	CLI_OWNED char *name = cli_format("%s/.sluice-doctor-XXXXXX", directory);
	int fd = mkstemp(name);
	if (fd >= 0) {
		int rc = sluice_open(ctx, name, NULL, &file);
		unlink(name);
		close(fd);
		errno = -rc;
	}
	return file;
}

/* Returns a problem for the caller to free, or NULL. */
static char *stat_path(sluice_context *ctx, const char *path, struct sluice_file_info *out)
{
	CLI_OWNED char *local = cli_local_path(path);
	char *problem = NULL;
	sluice_file *file = NULL;
	struct stat st;

	if (local && stat(local, &st) == 0 && S_ISDIR(st.st_mode)) {
		file = doctor_open_nameless(ctx, local);
		if (!file)
			problem = cli_format("cannot make a file in '%s': %s", local,
			                     strerror(errno));
	} else if (sluice_open(ctx, path, NULL, &file)) {
		problem = strdup(sluice_last_message());
	}
	if (file && sluice_stat(file, out))
		problem = strdup(sluice_last_message());
	sluice_discard(file);
	return problem;
}

static void print_path_json(const char *path, const struct sluice_file_info *st,
                            const char *problem)
{
	cli_json_string(",\n  \"path\": {\"path\": ", path);
	cli_json_string(", \"error\": ", problem);
	if (!problem) {
		printf(", \"direct_offset\": %u, \"direct_memory\": %u", st->direct_offset,
		       st->direct_memory);
		cli_json_string(", \"backend\": ", st->backend);
	}
	putchar('}');
}

static void print_path(const char *path, const struct sluice_file_info *st, const char *problem)
{
	printf("\nFiles at %s\n", path);
	if (problem)
		printf("- %-16s not known: %s\n", "direct I/O", problem);
	else if (st->direct_offset)
		printf("+ %-16s offset and length aligned to %u, memory to %u\n", "direct I/O",
		       st->direct_offset, st->direct_memory);
	else if (!st->mode)
		printf("- %-16s not for remote files\n", "direct I/O");
	else
		printf("- %-16s not there; all goes through the page cache\n"
		       "  %-16s remedy: keep large files on ext4, XFS or a block device\n",
		       "direct I/O", "");
}

/* Returns the reason why the path cannot be examined, for the caller to free, or NULL. */
static char *doctor_examine_path(const struct doctor_options *o, sluice_context *ctx)
{
	const char *path = o->path.count ? o->path.of[0] : ".";
	struct sluice_file_info st = {.size = sizeof(st)};
	CLI_OWNED char *name = cli_uri_name(path);
	char *problem = stat_path(ctx, path, &st);

	if (o->json)
		print_path_json(name, &st, problem);
	else
		print_path(name, &st, problem);
	if (o->path.count)
		return problem;
	/* If no path was given, an unwritable working directory is no fault. */
	free(problem);
	return NULL;
}

/* -------------------------------------------------------------------------------------- doctor */

/* Asks the source of credentials in the row of S3. NULL, or the problem, which the caller frees. */
static char *examine_s3(const struct doctor_options *o, const sluice_context *ctx)
{
	struct sluice_feature f = {.size = sizeof(f)};
	char *problem = NULL;

	for (size_t i = 0; sluice_context_feature(ctx, i, &f) == 0 && strcmp(f.name, "s3") != 0;)
		i++;
	if (!o->json)
		fprintf(stderr, "asking for credentials of S3: %s\n", f.detail);
	if (sluice_s3_check(ctx, NULL))
		problem = strdup(sluice_last_message());
	if (o->json)
		cli_json_string(",\n  \"s3\": ", problem ? problem : "there are keys");
	else if (!problem)
		fputs("\nS3\n+ there are keys\n", stdout);
	return problem;
}

static bool doctor_examine(const struct doctor_options *o)
{
	sluice_context *ctx = NULL;
	char *problem = NULL;

	if (sluice_context_new(NULL, &ctx))
		problem = strdup(sluice_last_message());
	if (o->json) {
		cli_json_string("{\n  \"version\": ", sluice_version());
		cli_json_string(",\n  \"error\": ", problem);
	} else {
		printf("sluice %s\n", sluice_version());
	}
	print_machine(o);
	if (ctx) {
		print_features(o, ctx);
		print_devices(o->json);
		print_writer(o, ctx);
		print_store(o);
		problem = doctor_examine_path(o, ctx);
		if (o->s3 && !problem)
			problem = examine_s3(o, ctx);
	}
	print_settings(o, ctx);
	print_unknown_variables(o);
	if (o->json)
		printf("\n}\n");
	cli_flush();
	if (problem)
		cli_warn("%s", problem);
	bool well = ctx && !problem;
	free(problem);
	sluice_context_close(ctx);
	return well;
}

int cli_doctor(int argc, char **argv)
{
	static const struct argp argp = {option_list, doctor_parse, "[PATH]", description};
	struct doctor_options o = {.path.most = 1};

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	return doctor_examine(&o) ? CLI_OK : CLI_FAILED;
}
