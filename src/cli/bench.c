/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice bench: options and output
 *
 * Parses the options, fits the sizes to the file, runs the rounds of bench_run.c and prints
 * results.
 *
 * Threads: the main thread.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench.h"

enum {
	KEY_MEMORY = 256,
	KEY_ORDER,
	KEY_CHUNK,
	KEY_SIZE,
	KEY_OP_SIZE,
	KEY_DEPTH,
	KEY_REPEAT,
	KEY_BUFFER,
	KEY_SEED,
};

static const struct argp_option option_list[] = {
	{"memory", KEY_MEMORY, "KIND", 0,
         "Memory to read into or write from: 'host' (default), or of a device: 'device' or "
         "'device:N' is a GPU, 'emulated' one made of threads; sluice doctor names them"},
	{"order", KEY_ORDER, "KIND", 0,
         "Operations are awaited on the 'host' (default), or come in the order of a 'stream' of "
         "the device"},
	CLI_OPEN_OPTIONS,
	{"chunk", KEY_CHUNK, "SIZE", 0, "What one request to the system moves at most"},
	{"size", KEY_SIZE, "SIZE", 0,
         "Bytes in each round (default: the file's length; 1 GiB for write)"},
	{"op-size", KEY_OP_SIZE, "SIZE", 0, "Bytes in one operation (default: 16M)"},
	{"depth", KEY_DEPTH, "N", 0, "Operations in flight (default: 16)"},
	{"repeat", KEY_REPEAT, "N", 0, "Rounds (default: 5)"},
	{"buffer", KEY_BUFFER, "KIND", 0,
         "'op': one buffer for each operation in flight, used again (default); 'full': memory as "
         "large as --size, each operation at an offset of its own"},
	{"huge-pages", CLI_FLAG(cli_bench_options, huge), NULL, 0,
         "Ask for huge pages for that memory"},
	{"unaligned", CLI_FLAG(cli_bench_options, unaligned), NULL, 0,
         "Place buffers as malloc does, 16 bytes into a page"},
	{"random", CLI_FLAG(cli_bench_options, random), NULL, 0,
         "Operations at random multiples of --op-size"},
	{"seed", KEY_SEED, "N", 0, "Where the random numbers begin (default: 1)"},
	{"cold", CLI_FLAG(cli_bench_options, cold), NULL, 0,
         "Drop the file's pages from the page cache before each round"},
	{"sync", CLI_FLAG(cli_bench_options, sync), NULL, 0,
         "write: time includes making each round durable"},
	{"force", 'f', NULL, 0, "write: overwrite a file that holds something"},
	{"json", CLI_FLAG(cli_bench_options, json), NULL, 0, "One JSON object on standard output"},
	{0},
};

static const char description[] =
	"Measures how fast the file that URI names is read into memory, or written from it; or how "
	"fast a dataset of an HDF5 file, FILE#/DATASET, is read.\v"
	"SIZE is bytes, or K, M, G, T for powers of 1024. Memory is touched before the time "
	"starts. "
	"What write leaves in the file is noise; the file stays. A remote file is written anew in "
	"each round, and its time ends when the server has all of it.";

/* Takes the arguments, and makes the checks that need no look at the file. */
static void bench_check_options(struct argp_state *state, struct cli_bench_options *o)
{
	const char *direction = o->open.arguments.of[0];

	o->uri = o->open.arguments.of[1];
	o->write = !strcmp(direction, "write");
	if (!o->write && strcmp(direction, "read"))
		argp_error(state, "'%s' is neither read nor write", direction);
	if (o->chunk && (o->chunk % 4096 || o->chunk > 1 << 30))
		argp_error(state, "--chunk: must be a multiple of 4K and at most 1G");
	if (o->size && o->op_size > o->size)
		argp_error(state, "--op-size: more than --size");
	if (o->on_stream && o->device < 0)
		argp_error(state, "--order: a stream needs the --memory of a device");
	if (o->unaligned && o->device >= 0)
		argp_error(state, "--unaligned: only with the host's memory");
	if (!o->write && o->open.force)
		argp_error(state, "--force: only for write");
	if (!o->write && o->sync)
		argp_error(state, "--sync: only for write");
}

static error_t bench_parse(int key, char *arg, struct argp_state *state)
{
	static const char *const orders[] = {"host", "stream", NULL};
	static const char *const buffers[] = {"op", "full", NULL};
	struct cli_bench_options *o = state->input;

	switch (key) {
	case KEY_MEMORY:
		o->device = cli_option_memory(state, "memory", arg);
		o->memory = cli_memory_name(o->device);
		return 0;
	case KEY_ORDER:
		o->on_stream = !strcmp(cli_option_choice(state, "order", arg, orders), "stream");
		return 0;
	case KEY_CHUNK:
		o->chunk = cli_option_size(state, "chunk", arg);
		return 0;
	case KEY_SIZE:
		o->size = cli_option_size(state, "size", arg);
		return 0;
	case KEY_OP_SIZE:
		o->op_size = cli_option_size(state, "op-size", arg);
		return 0;
	case KEY_DEPTH:
		o->depth = (unsigned)cli_option_number(state, "depth", arg, 1, 1 << 20);
		return 0;
	case KEY_REPEAT:
		o->repeat = (unsigned)cli_option_number(state, "repeat", arg, 1, 1 << 20);
		return 0;
	case KEY_BUFFER:
		o->full = !strcmp(cli_option_choice(state, "buffer", arg, buffers), "full");
		return 0;
	case KEY_SEED:
		o->seed = cli_option_number(state, "seed", arg, 0, UINT64_MAX);
		return 0;
	case ARGP_KEY_END:
		cli_open_option(&o->open, key, arg, state);
		bench_check_options(state, o);
		return 0;
	default:
		return cli_open_option(&o->open, key, arg, state);
	}
}

/* ------------------------------------------------------------------------------------- results */

static int compare_rates(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct summary {
	double least, median, most; /* bytes per second */
	double cpu_seconds_per_gb;
	double resident; /* largest part in the page cache */
};

static struct summary bench_summarize(const struct cli_bench_run *run)
{
	size_t n = run->options->repeat;
	CLI_OWNED double *rates = malloc(n * sizeof(*rates));
	double cpu = 0;
	struct summary s = {0};

	if (!rates)
		err(CLI_FAILED, "results");
	for (size_t i = 0; i < n; i++) {
		rates[i] = (double)run->bytes / run->rounds[i].seconds;
		cpu += run->rounds[i].cpu_seconds;
		if (run->rounds[i].resident > s.resident)
			s.resident = run->rounds[i].resident;
	}
	qsort(rates, n, sizeof(*rates), compare_rates);
	s.least = rates[0];
	s.most = rates[n - 1];
	s.median = (rates[(n - 1) / 2] + rates[n / 2]) / 2;
	s.cpu_seconds_per_gb = cpu / ((double)run->bytes * (double)n / 1e9);
	return s;
}

static void print_bench_json(const struct cli_bench_run *run)
{
	const struct cli_bench_options *o = run->options;
	struct summary s = bench_summarize(run);

	printf("{\"direction\": \"%s\"", o->write ? "write" : "read");
	cli_json_string(", \"uri\": ", o->name);
	cli_json_string(", \"memory\": ", o->memory);
	printf(", \"order\": \"%s\"", o->on_stream ? "stream" : "host");
	cli_json_string(", \"backend\": ", run->backend);
	printf(", \"chunk\": %" PRIu64 ", \"op_size\": %" PRIu64 ", \"depth\": %u", run->chunk,
	       o->op_size, o->depth);
	printf(", \"buffer\": \"%s\", \"random\": %s, \"cold\": %s, \"sync\": %s",
	       o->full ? "full" : "op", o->random ? "true" : "false", o->cold ? "true" : "false",
	       o->sync ? "true" : "false");
	if (o->cold)
		printf(", \"resident\": %.4f", s.resident);
	printf(", \"bytes\": %" PRIu64 ", \"operations\": %" PRIu64
	       ", \"repeat\": %u, \"seconds\": [",
	       run->bytes, run->operations, o->repeat);
	for (unsigned i = 0; i < o->repeat; i++)
		printf("%s%.9f", i ? ", " : "", run->rounds[i].seconds);
	printf("], \"bytes_per_second\": {\"min\": %.0f, \"median\": %.0f, \"max\": %.0f}", s.least,
	       s.median, s.most);
	printf(", \"operations_per_second\": %.1f, \"cpu_seconds_per_gb\": %.6f}\n",
	       s.median * (double)run->operations / (double)run->bytes, s.cpu_seconds_per_gb);
}

static void print_bench_head(const struct cli_bench_run *run)
{
	const struct cli_bench_options *o = run->options;
	char bytes[CLI_TEXT], op[CLI_TEXT], chunk[CLI_TEXT];

	printf("%s %s: %s in each round, %" PRIu64 " %soperations of %s, %u in flight\n",
	       o->write ? "write" : "read", o->name, cli_size_format(run->bytes, bytes),
	       run->operations, o->random ? "random " : "", cli_size_format(o->op_size, op),
	       run->in_flight);
	printf("backend %s, chunk %s, %s buffer in memory of %s%s%s%s\n\n", run->backend,
	       cli_size_format(run->chunk, chunk), o->full ? "full" : "reused",
	       o->device < 0 ? "the host" : o->memory, o->on_stream ? ", in stream order" : "",
	       o->cold ? ", cold" : "", o->sync ? ", synced" : "");
	printf("%7s %11s %12s %12s %14s\n", "round", "seconds", "rate", "operations/s",
	       "CPU s per GB");
	cli_flush();
}

static void print_bench_row(const char *label, const char *seconds, double rate, double operations,
                            double cpu)
{
	char text[CLI_TEXT];

	printf("%7s %11s %12s %12.0f", label, seconds, cli_rate_format(rate, text), operations);
	if (cpu >= 0)
		printf(" %14.3f", cpu);
	putchar('\n');
	cli_flush();
}

static void print_bench_round(const struct cli_bench_run *run, unsigned i)
{
	const struct cli_bench_round *round = &run->rounds[i];
	char label[CLI_TEXT], seconds[CLI_TEXT];

	snprintf(label, sizeof(label), "%u", i + 1);
	snprintf(seconds, sizeof(seconds), "%.6f", round->seconds);
	print_bench_row(label, seconds, (double)run->bytes / round->seconds,
	                (double)run->operations / round->seconds,
	                round->cpu_seconds / ((double)run->bytes / 1e9));
}

static void print_bench_foot(const struct cli_bench_run *run)
{
	struct summary s = bench_summarize(run);
	double operations = (double)run->operations / (double)run->bytes;

	putchar('\n');
	print_bench_row("min", "", s.least, s.least * operations, -1);
	print_bench_row("median", "", s.median, s.median * operations, s.cpu_seconds_per_gb);
	print_bench_row("max", "", s.most, s.most * operations, -1);
}

/* ----------------------------------------------------------------------------------- the bench */

static int bench_check_target(const struct cli_bench_run *run)
{
	const struct cli_bench_options *o = run->options;
	struct stat st;

	/* If the name is taken, the library says so. */
	if (cli_is_blob(o->uri))
		return 0;
	if (run->whole && o->random)
		return cli_fail(-ENOTSUP, "--random: '%s' is remote, and written front to back",
		                o->name);
	if (o->open.force || run->whole || stat(run->path, &st))
		return 0;
	if (S_ISBLK(st.st_mode) || (S_ISREG(st.st_mode) && st.st_size > 0))
		return cli_fail(-EEXIST, "'%s' holds something; use -f to overwrite it", o->name);
	return 0;
}

/* A remote file is opened for each round. */
static int bench_open_file(struct cli_bench_run *run, struct cli_bench_options *o)
{
	struct sluice_open_options options = cli_open_options(&o->open);
	int rc = o->write ? bench_check_target(run) : 0;

	if (rc)
		return rc;
	options.flags = o->open.flags | SLUICE_OPEN_READ;
	options.dataset = o->dataset;
	if (o->write) {
		options.flags = o->open.flags | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE;
		if (!run->path && o->open.force)
			options.flags |= SLUICE_OPEN_REPLACE;
		else if (run->whole)
			options.flags |= SLUICE_OPEN_EXCLUSIVE;
		if (!o->size)
			o->size = 1 << 30;
		options.expected_size = o->size;
	}
	cli_interrupt_wait(run->whole);
	rc = cli_said(sluice_open(run->ctx, o->uri, &options, &run->file));
	cli_interrupt_wait(false);
	return rc;
}

/* Fits the sizes to the file. */
static int bench_settle_sizes(struct cli_bench_run *run, struct cli_bench_options *o,
                              const struct sluice_file_info *st)
{
	if (!o->write && st->length == 0)
		return cli_fail(-EINVAL, "'%s' %s", o->name,
		                st->flags & SLUICE_STAT_SIZE_UNKNOWN ? "has no known length"
		                                                     : "is empty");
	bool whole = st->flags & SLUICE_STAT_WHOLE_ONLY;
	if (!o->size)
		o->size = st->length;
	if (!o->op_size)
		o->op_size = o->size < 16 << 20 || whole ? o->size : 16 << 20;
	if (whole && (o->random || o->size != st->length || o->op_size != st->length))
		return cli_fail(-ENOTSUP,
		                "'%s': the server has no ranges; each round can only read all of "
		                "it by one operation",
		                o->name);
	run->range = o->write ? o->size : st->length;
	if (!o->write && !o->random && o->size > st->length)
		return cli_fail(-EINVAL, "--size: '%s' holds only %" PRIu64 " bytes", o->name,
		                st->length);
	if (o->op_size > run->range)
		return cli_fail(-EINVAL, "--op-size: '%s' holds only %" PRIu64 " bytes", o->name,
		                run->range);
	run->operations = o->random ? o->size / o->op_size
	                            : o->size / o->op_size + (o->size % o->op_size != 0);
	run->bytes = o->random ? run->operations * o->op_size : o->size;
	return 0;
}

/* Returns the value of a setting, valid as long as the context; "" if there is no such setting. */
static const char *bench_setting(const sluice_context *ctx, const char *variable)
{
	struct sluice_setting s = {.size = sizeof(s)};

	for (size_t i = 0; sluice_context_setting(ctx, i, &s) == 0; i++)
		if (!strcmp(s.variable, variable))
			return s.value;
	return "";
}

/*
 * Returns the name of the mover: backend "cufile" delegates to "auto" except for GPU memory, and
 * streams unless told not to.
 */
static const char *mover_name(const struct cli_bench_run *run, const char *backend)
{
	const struct cli_bench_options *o = run->options;
	struct sluice_device d = {.size = sizeof(d)};

	if (strcmp(backend, "cufile") != 0)
		return backend;
	if (o->device < 0 || sluice_device_describe(o->device, &d) || !d.real)
		return "auto";
	if (o->on_stream && strcmp(bench_setting(run->ctx, "SLUICE_CUFILE_STREAMS"), "1") != 0)
		return "auto";
	return backend;
}

static int bench_run_rounds(struct cli_bench_run *run, struct cli_bench_options *o)
{
	if (!o->json)
		print_bench_head(run);
	for (unsigned i = 0; i < o->repeat; i++) {
		int rc = run->file ? 0 : bench_open_file(run, o);
		if (rc == 0)
			rc = cli_bench_run_round(run, &run->rounds[i]);
		if (rc)
			return rc;
		/* The file of this round may be replaced by the next. */
		o->open.force = true;
		if (run->rounds[i].resident > 0.01)
			cli_warn("round %u: %.0f%% of the file stayed in the page cache", i + 1,
			         run->rounds[i].resident * 100);
		if (!o->json)
			print_bench_round(run, i);
	}
	if (o->json)
		print_bench_json(run);
	else
		print_bench_foot(run);
	return 0;
}

static int measure_round(struct cli_bench_run *run, struct cli_bench_options *o)
{
	struct sluice_file_info st = {.size = sizeof(st)};

	run->rounds = calloc(o->repeat, sizeof(*run->rounds));
	if (!run->rounds)
		err(CLI_FAILED, "results");
	sluice_size_parse(bench_setting(run->ctx, "SLUICE_PIECE_BYTES"), &run->chunk);
	int rc = cli_said(sluice_stat(run->file, &st));
	if (rc == 0) {
		run->backend = mover_name(run, st.backend);
		rc = bench_settle_sizes(run, o, &st);
	}
	if (rc == 0)
		rc = cli_bench_prepare(run);
	if (rc == 0)
		rc = bench_run_rounds(run, o);
	free(run->rounds);
	return rc;
}

int cli_bench(int argc, char **argv)
{
	static const struct argp argp = {option_list, bench_parse, "read|write URI", description};
	struct cli_bench_options o = {
		.open.arguments = {.least = 2, .most = 2, .noun = "read, write or the URI"},
		.memory = "host",
		.device = -1,
		.depth = 16,
		.repeat = 5,
		.seed = 1};
	struct cli_bench_run run = {.options = &o};

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (cli_context_new(o.open.backend, o.chunk, &run.ctx))
		return CLI_FAILED;
	o.name = cli_uri_name(o.uri);
	CLI_OWNED char *file = o.write ? NULL : cli_dataset_split(o.uri, &o.dataset);
	o.uri = file ? file : o.uri;
	run.path = cli_local_path(o.uri);
	run.whole = o.write && !run.path && !cli_is_blob(o.uri);
	if (run.whole)
		cli_interrupt_catch();
	int rc = bench_open_file(&run, &o);
	if (rc == 0) {
		rc = measure_round(&run, &o);
		if (run.whole)
			sluice_discard(run.file);
		else
			rc = cli_bench_close(&run, rc);
		/* After the close no operation uses that memory. */
		cli_memory_free(&run.memory);
		free(run.slots);
	}
	free(run.path);
	free(o.name);
	sluice_context_close(run.ctx);
	if (cli_interrupted())
		cli_interrupt_obey();
	return rc ? CLI_FAILED : CLI_OK;
}
