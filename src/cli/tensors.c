/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice tensors
 *
 * Parses the command line and lists the tensors in files.
 *
 * Threads: the main thread.
 */
#include <err.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

enum { KEY_DEVICE = 256, KEY_ROUNDS, KEY_NAME };

static error_t tensors_parse(int key, char *arg, struct argp_state *state)
{
	struct cli_tensors_options *o = state->input;

	switch (key) {
	case KEY_DEVICE:
		o->device = cli_option_memory(state, "device", arg);
		return 0;
	case KEY_ROUNDS:
		o->rounds = (unsigned)cli_option_number(state, "rounds", arg, 1, 1000);
		return 0;
	case KEY_NAME:
		o->patterns = reallocarray(o->patterns, o->pattern_count + 1, sizeof *o->patterns);
		if (!o->patterns)
			err(CLI_FAILED, "--name");
		o->patterns[o->pattern_count++] = arg;
		return 0;
	case ARGP_KEY_ARGS:
		o->files = (const char **)state->argv + state->next;
		o->count = (size_t)(state->argc - state->next);
		return 0;
	case ARGP_KEY_END:
		if (!o->count)
			argp_error(state, "FILE is missing");
		if (o->copies && o->count < 2)
			argp_error(state, "the name of the file to make is missing");
		if (o->copies)
			o->target = o->files[--o->count];
		if (o->stream && o->device < 0)
			argp_error(state, "--stream: needs a --device");
		return 0;
	default:
		return cli_open_option(&o->open, key, arg, state);
	}
}

/* ---------------------------------------------------------------------------------------- ls */

static void list_tensor(const struct sluice_tensor *tensor, const char *file)
{
	char size[CLI_TEXT], shape[3 + 22 * SLUICE_TENSOR_RANK] = "[", *end = shape + 1;
	char *name = cli_visible(tensor->name);

	for (unsigned i = 0; i < tensor->rank; i++)
		end += sprintf(end, "%s%" PRIu64, i ? ", " : "", tensor->shape[i]);
	printf("%10s  %-11s  %s%-*s  %s%s%s\n", cli_size_format(tensor->bytes, size),
	       sluice_type_name(tensor->type), shape, (int)(shape + 16 - end), "]", name,
	       file ? "  in " : "", file ? file : "");
	free(name);
}

static void list_metadata(const sluice_tensors *tensors)
{
	struct sluice_tensor_file file = {.size = sizeof file};
	const char *key, *value;

	for (size_t i = 0; sluice_tensors_file(tensors, i, &file) == 0; i++) {
		printf("%s: %s, %" PRIu64 " bytes\n", file.name, file.format, file.bytes);
		for (size_t j = 0; j < file.metadata; j++) {
			sluice_tensors_metadata(tensors, i, j, &key, &value);
			char *name = cli_visible(key), *text = cli_visible(value);
			printf("  %s = %s\n", name, text);
			free(name);
			free(text);
		}
	}
}

static int tensors_ls(sluice_tensors *tensors, const struct cli_tensors_options *o)
{
	struct sluice_tensor tensor = {.size = sizeof tensor};
	struct sluice_tensor_file file = {.size = sizeof file};
	bool several = sluice_tensors_file(tensors, 1, &file) == 0;
	uint64_t bytes = 0;
	char size[CLI_TEXT];
	size_t i;

	if (o->metadata) {
		list_metadata(tensors);
		return 0;
	}
	for (i = 0; sluice_tensors_get(tensors, i, &tensor) == 0; i++) {
		sluice_tensors_file(tensors, tensor.file, &file);
		list_tensor(&tensor, several ? file.name : NULL);
		bytes += tensor.bytes;
	}
	printf("%zu tensors, %s\n", i, cli_size_format(bytes, size));
	return 0;
}

/* ---------------------------------------------------------------------------------- subcommands */

static const struct argp_option ls_options[] = {
	{"metadata", CLI_FLAG(cli_tensors_options, metadata), NULL, 0,
         "Show the files, and the texts in their \"__metadata__\", in place of the tensors"},
	CLI_OPEN_OPTIONS,
	{0},
};

static const struct argp_option cp_options[] = {
	{"name", KEY_NAME, "PATTERN", 0,
         "Only tensors with such names, as of a shell's '*' and '?'; may be repeated"},
	CLI_OPEN_OPTIONS,
	{0},
};

static const struct argp_option bench_options[] = {
	{"device", KEY_DEVICE, "NAME", 0,
         "Load into memory of a device: 'device' or 'device:N' is a GPU, 'emulated' one made of "
         "threads (default: the host)"},
	{"stream", CLI_FLAG(cli_tensors_options, stream), NULL, 0,
         "In the order of a stream of the device"},
	{"rounds", KEY_ROUNDS, "N", 0, "Rounds (default: 5)"},
	CLI_OPEN_OPTIONS,
	{0},
};

static const struct tensors_command {
	const char *name, *arguments, *meaning;
	const struct argp_option *options;
	int (*run)(sluice_tensors *tensors, const struct cli_tensors_options *o);
} tensors_commands[] = {
	{"ls", "FILE...", "Lists the tensors in FILEs: safetensors, an index of such, npy or npz.",
         ls_options, tensors_ls},
	{"cp", "FILE... DEST", "Copies tensors in FILEs into DEST, a new safetensors file.",
         cp_options, cli_tensors_cp},
	{"bench", "FILE...",
         "Measures how fast all tensors in FILEs are loaded, and in turn how fast the same bytes "
         "are read by an operation for each file. The first load is not timed.",
         bench_options, cli_tensors_bench},
};
enum { TENSORS_COMMANDS = sizeof tensors_commands / sizeof *tensors_commands };

static void print_tensors_commands(FILE *to)
{
	fputs("Usage: sluice tensors COMMAND [OPTION...] FILE...\n"
	      "Named arrays in files, such as the weights of models. A FILE is a path or a "
	      "URI.\n\n",
	      to);
	for (size_t i = 0; i < TENSORS_COMMANDS; i++)
		fprintf(to, "  %-7s %-13s %s\n", tensors_commands[i].name,
		        tensors_commands[i].arguments, tensors_commands[i].meaning);
	fputs("\n  sluice tensors COMMAND --help   what a command takes\n", to);
}

static int run_tensors_command(const struct tensors_command *command, int argc, char **argv)
{
	const struct argp argp = {command->options, tensors_parse, command->arguments,
	                          command->meaning};
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	struct cli_tensors_options o = {
		.device = -1, .rounds = 5, .copies = command->run == cli_tensors_cp};
	char name[32];
	sluice_context *ctx = NULL;
	sluice_tensors *tensors = NULL;

	snprintf(name, sizeof name, "sluice tensors %s", command->name);
	argv[0] = program_invocation_name = program_invocation_short_name = name;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	int rc = cli_context_new(o.open.backend, 0, &ctx);
	o.ctx = ctx;
	options.flags = SLUICE_OPEN_READ | o.open.flags;
	cli_open_use(&o.open, &options);
	if (!rc)
		rc = cli_said(sluice_tensors_open(ctx, o.files, o.count, &options, &tensors));
	if (!rc)
		rc = command->run(tensors, &o);
	sluice_tensors_close(tensors);
	sluice_context_free(ctx);
	free(o.open.headers);
	free(o.patterns);
	/* The name is valid only within this function. */
	program_invocation_name = program_invocation_short_name = "sluice tensors";
	return rc < 0 ? CLI_FAILED : CLI_OK;
}

int cli_tensors(int argc, char **argv)
{
	const char *wanted = argc > 1 ? argv[1] : "";

	if (!strcmp(wanted, "--help") || !strcmp(wanted, "-h") || !strcmp(wanted, "help")) {
		print_tensors_commands(stdout);
		return CLI_OK;
	}
	if (!strcmp(wanted, "--version") || !strcmp(wanted, "-V")) {
		printf("sluice %s\n", sluice_version());
		return CLI_OK;
	}
	for (size_t i = 0; i < TENSORS_COMMANDS; i++)
		if (!strcmp(wanted, tensors_commands[i].name))
			return run_tensors_command(&tensors_commands[i], argc - 1, argv + 1);
	if (*wanted)
		warnx("unknown command '%s'", wanted);
	print_tensors_commands(stderr);
	return CLI_USAGE;
}
