/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice tensors
 *
 * Parses the command line and lists the tensors in files.
 *
 * Threads: the main thread.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "cli_tensors.h"

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
		o->patterns = cli_grow(o->patterns, o->pattern_count + 1, sizeof(*o->patterns));
		o->patterns[o->pattern_count++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (o->stream && o->device < 0)
			argp_error(state, "--stream: needs a --device");
		/* fall through */
	default:
		return cli_open_option(&o->open, key, arg, state);
	}
}

/* ---------------------------------------------------------------------------------------- ls */

static void list_metadata(const sluice_tensors *tensors)
{
	struct sluice_tensor_file file = {.size = sizeof(file)};
	const char *key, *value;

	for (size_t i = 0; sluice_tensors_file(tensors, i, &file) == 0; i++) {
		printf("%s: %s, %" PRIu64 " bytes\n", file.name, file.format, file.bytes);
		for (size_t j = 0; j < file.metadata; j++) {
			sluice_tensors_metadata(tensors, i, j, &key, &value);
			CLI_OWNED char *name = cli_visible(key), *text = cli_visible(value);
			printf("  %s = %s\n", name, text);
		}
	}
}

static int tensors_ls(sluice_tensors *tensors, const struct cli_tensors_options *o)
{
	struct sluice_tensor tensor = {.size = sizeof(tensor)};
	struct sluice_tensor_file file = {.size = sizeof(file)};
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
		cli_print_tensor(tensor.name, tensor.type, tensor.rank, tensor.shape, tensor.bytes,
		                 several ? file.name : NULL);
		bytes += tensor.bytes;
	}
	printf("%zu tensors, %s\n", i, cli_size_format(bytes, size));
	return 0;
}

/* ---------------------------------------------------------------------------------- subcommands */

static const struct argp_option ls_options[] = {
	{"metadata", CLI_FLAG(cli_tensors_options, metadata), NULL, 0,
         "Show the files, and the texts in their \"__metadata__\", instead of the tensors"},
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
	bool copies; /* the last file is made */
} commands[] = {
	{"ls", "FILE...", "Lists the tensors in FILEs: safetensors, an index of such, npy or npz.",
         ls_options, tensors_ls},
	{"cp", "FILE... DEST",
         "Copies tensors in FILEs into DEST: a file, NAME.safetensors; a collection in the store, "
         "store://NAME; or any other name, of a folder or s3://BUCKET/PREFIX, with files of 2 GiB "
         "and model.safetensors.index.json. What is there is replaced when all is complete.",
         cp_options, cli_tensors_cp, true},
	{"bench", "FILE...",
         "Measures how fast all tensors in FILEs are loaded, and in turn how fast the same bytes "
         "are read by an operation for each file. The first load is not timed.",
         bench_options, cli_tensors_bench},
};

static const struct cli_words words = {
	.command = "sluice tensors",
	.before = "Named arrays in files, such as the weights of models.",
	.of = commands,
	.count = sizeof(commands) / sizeof(*commands),
	.bytes = sizeof(*commands),
	.width = 14,
};

int cli_tensors(int argc, char **argv)
{
	int status;
	const struct tensors_command *command = cli_word_find(&words, argc, argv, &status);
	sluice_tensors *tensors = NULL;

	if (!command)
		return status;
	const struct argp argp = {command->options, tensors_parse, command->arguments,
	                          command->meaning};
	struct cli_tensors_options o = {.device = -1, .rounds = 5};
	o.open.arguments =
		(struct cli_arguments){.least = command->copies ? 2 : 1,
	                               .most = SIZE_MAX,
	                               .noun = command->copies ? "FILE or DEST" : "FILE"};
	argp_parse(&argp, argc - 1, argv + 1, 0, NULL, &o);
	const char **files = (const char **)o.open.arguments.of;
	size_t count = o.open.arguments.count - command->copies;
	o.target = files[count];
	int rc = cli_context_new(o.open.backend, 0, &o.ctx);
	struct sluice_open_options options = cli_open_options(&o.open);
	options.flags = SLUICE_OPEN_READ | o.open.flags;
	if (!rc)
		rc = cli_said(sluice_tensors_open(o.ctx, files, count, &options, &tensors));
	if (!rc)
		rc = command->run(tensors, &o);
	sluice_tensors_free(tensors);
	sluice_context_close(o.ctx);
	free(o.patterns);
	return rc < 0 ? CLI_FAILED : CLI_OK;
}
