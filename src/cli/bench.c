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
	KEY_COLD,
	KEY_JSON,
	KEY_BUFFER,
	KEY_RANDOM,
	KEY_SEED,
	KEY_SYNC,
	KEY_HUGE,
	KEY_UNALIGNED,
};

static const struct argp_option option_list[] = {
	{"memory", KEY_MEMORY, "KIND", 0,
         "Memory to read into or write from: 'host' (default), or of a device: 'device' or "
         "'device:N' is a GPU, 'emulated' one made of threads; sluice doctor names them",
         0},
	{"order", KEY_ORDER, "KIND", 0,
         "Operations are awaited on the 'host' (default), or come in the order of a 'stream' of "
         "the "
         "device",
         0},
	CLI_OPEN_OPTIONS,
	{"chunk", KEY_CHUNK, "SIZE", 0, "What one request to the system moves at most", 0},
	{"size", KEY_SIZE, "SIZE", 0,
         "Bytes in each round (default: the file's length; 1 GiB for write)", 0},
	{"op-size", KEY_OP_SIZE, "SIZE", 0, "Bytes in one operation (default: 16M)", 0},
	{"depth", KEY_DEPTH, "N", 0, "Operations in flight (default: 16)", 0},
	{"repeat", KEY_REPEAT, "N", 0, "Rounds (default: 5)", 0},
	{"buffer", KEY_BUFFER, "KIND", 0,
         "'op': one buffer for each operation in flight, used again (default); 'full': memory as "
         "large as --size, each operation at its own place",
         0},
	{"huge-pages", KEY_HUGE, NULL, 0, "Ask for huge pages for that memory", 0},
	{"unaligned", KEY_UNALIGNED, NULL, 0, "Place buffers as malloc does, 16 bytes into a page",
         0},
	{"random", KEY_RANDOM, NULL, 0, "Operations at random multiples of --op-size", 0},
	{"seed", KEY_SEED, "N", 0, "Where the random numbers begin (default: 1)", 0},
	{"cold", KEY_COLD, NULL, 0, "Drop the file's pages from the page cache before each round",
         0},
	{"sync", KEY_SYNC, NULL, 0, "write: time includes making each round durable", 0},
	{"force", 'f', NULL, 0, "write: overwrite a file that holds something", 0},
	{"json", KEY_JSON, NULL, 0, "One JSON object on standard output", 0},
	{0},
};

static const char description[] =
	"Measures how fast the file that URI names is read into memory, or written from it.\v"
	"SIZE is bytes, or K, M, G, T for powers of 1024. Memory is touched before the time "
	"starts. "
	"What write leaves in the file is noise; the file stays.";

static error_t bench_parse_argument(char *arg, struct argp_state *state,
                                    struct cli_bench_options *o)
{
	if (state->arg_num == 0 && !strcmp(arg, "write"))
		o->write = true;
	else if (state->arg_num == 0 && strcmp(arg, "read"))
		argp_error(state, "'%s' is neither read nor write", arg);
	else if (state->arg_num == 1)
		o->uri = arg;
	else if (state->arg_num > 1)
		argp_error(state, "too many arguments: '%s'", arg);
	return 0;
}

/* Checks that need no look at the file. */
static void bench_check_options(struct argp_state *state, const struct cli_bench_options *o)
{
	if (!o->uri)
		argp_error(state, state->arg_num ? "URI is missing" : "read or write is missing");
	if (o->chunk && (o->chunk % 4096 || o->chunk > 1 << 30))
		argp_error(state, "--chunk: must be a multiple of 4K and at most 1G");
	if (o->size && o->op_size > o->size)
		argp_error(state, "--op-size: more than --size");
	if (o->on_stream && o->device < 0)
		argp_error(state, "--order: a stream needs the --memory of a device");
	if (o->unaligned && o->device >= 0)
		argp_error(state, "--unaligned: only with the host's memory");
	if (!o->write && o->force)
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
	case KEY_COLD:
		o->cold = true;
		return 0;
	case KEY_JSON:
		o->json = true;
		return 0;
	case KEY_RANDOM:
		o->random = true;
		return 0;
	case KEY_SYNC:
		o->sync = true;
		return 0;
	case KEY_HUGE:
		o->huge = true;
		return 0;
	case KEY_UNALIGNED:
		o->unaligned = true;
		return 0;
	case 'f':
		o->force = true;
		return 0;
	case ARGP_KEY_ARG:
		return bench_parse_argument(arg, state, o);
	case ARGP_KEY_END:
		bench_check_options(state, o);
		return 0;
	default:
		return cli_open_option(&o->open, key, arg, state);
	}
}

/* ------------------------------------------------------------------------------------- results */

struct results {
	const struct cli_bench_run *run;
	const struct cli_bench_round *rounds;
	const char *backend; /* moves the bytes; chunk is the size in use */
	uint64_t chunk;
};

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

static struct summary bench_summarize(const struct results *r)
{
	size_t n = r->run->options->repeat;
	double *rates = malloc(n * sizeof *rates), cpu = 0;
	struct summary s = {0};

	if (!rates)
		err(CLI_FAILED, "results");
	for (size_t i = 0; i < n; i++) {
		rates[i] = (double)r->run->bytes / r->rounds[i].seconds;
		cpu += r->rounds[i].cpu_seconds;
		if (r->rounds[i].resident > s.resident)
			s.resident = r->rounds[i].resident;
	}
	qsort(rates, n, sizeof *rates, compare_rates);
	s.least = rates[0];
	s.most = rates[n - 1];
	s.median = (rates[(n - 1) / 2] + rates[n / 2]) / 2;
	s.cpu_seconds_per_gb = cpu / ((double)r->run->bytes * (double)n / 1e9);
	free(rates);
	return s;
}

static void print_bench_json(const struct results *r)
{
	const struct cli_bench_run *run = r->run;
	const struct cli_bench_options *o = run->options;
	struct summary s = bench_summarize(r);

	printf("{\"direction\": \"%s\", \"uri\": ", o->write ? "write" : "read");
	cli_json_string(o->name);
	printf(", \"memory\": ");
	cli_json_string(o->memory);
	printf(", \"order\": \"%s\"", o->on_stream ? "stream" : "host");
	printf(", \"backend\": ");
	cli_json_string(r->backend);
	printf(", \"chunk\": %" PRIu64 ", \"op_size\": %" PRIu64 ", \"depth\": %u", r->chunk,
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
		printf("%s%.9f", i ? ", " : "", r->rounds[i].seconds);
	printf("], \"bytes_per_second\": {\"min\": %.0f, \"median\": %.0f, \"max\": %.0f}", s.least,
	       s.median, s.most);
	printf(", \"operations_per_second\": %.1f, \"cpu_seconds_per_gb\": %.6f}\n",
	       s.median * (double)run->operations / (double)run->bytes, s.cpu_seconds_per_gb);
}

static void print_bench_head(const struct results *r)
{
	const struct cli_bench_options *o = r->run->options;
	char bytes[CLI_TEXT], op[CLI_TEXT], chunk[CLI_TEXT];

	printf("%s %s: %s in each round, %" PRIu64 " %soperations of %s, %u in flight\n",
	       o->write ? "write" : "read", o->name, cli_size_format(r->run->bytes, bytes),
	       r->run->operations, o->random ? "random " : "", cli_size_format(o->op_size, op),
	       r->run->in_flight);
	printf("backend %s, chunk %s, %s buffer in memory of %s%s%s%s\n\n", r->backend,
	       cli_size_format(r->chunk, chunk), o->full ? "full" : "reused",
	       o->device < 0 ? "the host" : o->memory, o->on_stream ? ", in stream order" : "",
	       o->cold ? ", cold" : "", o->sync ? ", synced" : "");
	printf("%7s %11s %12s %12s %14s\n", "round", "seconds", "rate", "operations/s",
	       "CPU s per GB");
	fflush(stdout);
}

static void print_bench_row(const char *label, const char *seconds, double rate, double operations,
                            double cpu)
{
	char text[CLI_TEXT];

	printf("%7s %11s %12s %12.0f", label, seconds, cli_rate_format(rate, text), operations);
	if (cpu >= 0)
		printf(" %14.3f", cpu);
	putchar('\n');
	fflush(stdout);
}

static void print_bench_round(const struct results *r, unsigned i)
{
	const struct cli_bench_round *round = &r->rounds[i];
	char label[CLI_TEXT], seconds[CLI_TEXT];

	snprintf(label, sizeof label, "%u", i + 1);
	snprintf(seconds, sizeof seconds, "%.6f", round->seconds);
	print_bench_row(label, seconds, (double)r->run->bytes / round->seconds,
	                (double)r->run->operations / round->seconds,
	                round->cpu_seconds / ((double)r->run->bytes / 1e9));
}

static void print_bench_foot(const struct results *r)
{
	struct summary s = bench_summarize(r);
	double operations = (double)r->run->operations / (double)r->run->bytes;

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
	if (!run->path) {
		warnx("a remote file is written as a whole and once; time 'sluice cp FILE URI'");
		return -ENOTSUP;
	}
	if (o->force || stat(run->path, &st))
		return 0;
	if (S_ISBLK(st.st_mode) || (S_ISREG(st.st_mode) && st.st_size > 0)) {
		warnx("'%s' holds something; use -f to overwrite it", o->name);
		return -EEXIST;
	}
	return 0;
}

static int bench_open_file(struct cli_bench_run *run, struct cli_bench_options *o)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	int rc = o->write ? bench_check_target(run) : 0;

	if (rc)
		return rc;
	options.flags = o->open.flags | SLUICE_OPEN_READ;
	if (o->write) {
		options.flags = o->open.flags | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE;
		if (cli_is_blob(o->uri) && o->force)
			options.flags |= SLUICE_OPEN_REPLACE;
		if (!o->size)
			o->size = 1 << 30;
		options.expected_size = o->size;
	}
	return cli_said(sluice_open(run->ctx, o->uri, &options, &run->file));
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
	if (whole && (o->random || o->size != st->length || o->op_size != st->length)) {
		warnx("'%s': the server has no ranges; each round can only read all of it by one "
		      "operation",
		      o->name);
		return -ENOTSUP;
	}
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
	struct sluice_setting s = {.size = sizeof s};

	for (size_t i = 0; sluice_context_setting(ctx, i, &s) == 0; i++)
		if (!strcmp(s.variable, variable))
			return s.value;
	return "";
}

/* Returns the largest piece in use, or 0 if the context does not report it. */
static uint64_t bench_piece_bytes(const sluice_context *ctx)
{
	uint64_t bytes = 0;

	sluice_size_parse(bench_setting(ctx, "SLUICE_PIECE_BYTES"), &bytes);
	return bytes;
}

/*
 * Returns the name of the mover: backend "cufile" delegates to "auto" except for GPU memory, and
 * streams unless told not to.
 */
static const char *mover_name(const struct cli_bench_run *run, const char *backend)
{
	const struct cli_bench_options *o = run->options;
	struct sluice_device d = {.size = sizeof d};

	if (strcmp(backend, "cufile") != 0)
		return backend;
	if (o->device < 0 || sluice_device_describe(o->device, &d) || !d.real)
		return "auto";
	if (o->on_stream && strcmp(bench_setting(run->ctx, "SLUICE_CUFILE_STREAMS"), "1") != 0)
		return "auto";
	return backend;
}

static int bench_run_rounds(struct results *r, struct cli_bench_round *rounds)
{
	const struct cli_bench_options *o = r->run->options;

	if (!o->json)
		print_bench_head(r);
	for (unsigned i = 0; i < o->repeat; i++) {
		int rc = cli_bench_run_round((struct cli_bench_run *)r->run, &rounds[i]);
		if (rc)
			return rc;
		if (rounds[i].resident > 0.01)
			warnx("round %u: %.0f%% of the file stayed in the page cache", i + 1,
			      rounds[i].resident * 100);
		if (!o->json)
			print_bench_round(r, i);
	}
	if (o->json)
		print_bench_json(r);
	else
		print_bench_foot(r);
	return 0;
}

static int measure_round(struct cli_bench_run *run, struct cli_bench_options *o)
{
	struct sluice_file_info st = {.size = sizeof st};
	struct cli_bench_round *rounds = calloc(o->repeat, sizeof *rounds);
	struct results r = {run, rounds, NULL, bench_piece_bytes(run->ctx)};

	if (!rounds)
		err(CLI_FAILED, "results");
	int rc = cli_said(sluice_stat(run->file, &st));
	if (rc == 0) {
		r.backend = mover_name(run, st.backend);
		rc = bench_settle_sizes(run, o, &st);
	}
	if (rc == 0)
		rc = cli_bench_prepare(run);
	if (rc == 0)
		rc = bench_run_rounds(&r, rounds);
	free(rounds);
	return rc;
}

int cli_bench(int argc, char **argv)
{
	static const struct argp argp = {
		option_list, bench_parse, "read|write URI", description, NULL, NULL, NULL};
	struct cli_bench_options o = {
		.memory = "host", .device = -1, .depth = 16, .repeat = 5, .seed = 1};
	struct cli_bench_run run = {.options = &o};

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (cli_context_new(o.open.backend, o.chunk, &run.ctx))
		return CLI_FAILED;
	run.path = cli_local_path(o.uri);
	o.name = cli_uri_name(o.uri);
	int rc = bench_open_file(&run, &o);
	if (rc == 0) {
		rc = measure_round(&run, &o);
		int closed = sluice_close(run.file);
		rc = rc ? rc : cli_said(closed);
		/* After the close no operation uses that memory. */
		cli_bench_release(&run);
	}
	free(run.path);
	free(o.name);
	sluice_context_free(run.ctx);
	return rc ? CLI_FAILED : CLI_OK;
}
