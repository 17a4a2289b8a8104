/* SPDX-License-Identifier: Apache-2.0 */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "number.h"
#include "options.h"

enum {
	KEY_ROWS = 256,
	KEY_COLUMNS,
	KEY_EXTRA,
	KEY_FEED,
	KEY_KILL,
	KEY_DELTAT,
	KEY_CODEC,
	KEY_STORAGE,
	KEY_WAITING,
	KEY_BLOCKS,
	KEY_THREADS,
	KEY_CHECKSUMS,
	KEY_PUBLISH,
	KEY_PUBLISH_EVERY
};

static const struct argp_option option_list[] = {
	{"nbrow", KEY_ROWS, "N", 0, "Rows of the grid (1080)", 0},
	{"nbcol", KEY_COLUMNS, "N", 0, "Columns of the grid (1920)", 0},
	{"nbimage", 'n', "N", 0, "Images to store (1000)", 0},
	{"nbextrastep", KEY_EXTRA, "N", 0,
         "Steps before each image, beside the one that it is made by (32)", 0},
	{"feed-rate", KEY_FEED, "RATE", 0, "How fast u is fed (0.014)", 0},
	{"kill-rate", KEY_KILL, "RATE", 0, "How fast v is killed (0.054)", 0},
	{"deltat", KEY_DELTAT, "TIME", 0, "Time of a step (1)", 0},
	{"blocks", KEY_BLOCKS, "N", 0,
         "Where the reaction begins: in the middle, or in N places, the same ones each time (1)",
         0},
	{"threads", KEY_THREADS, "N", 0,
         "Threads that compute (one for each core; with several ranks one for each of them)", 0},
	{"output", 'o', "FILE", 0, "The HDF5 file; one that exists is replaced (output.h5)", 1},
	{"storage", KEY_STORAGE, "NAME", 0,
         "'sluice': the frame writer; 'plain': H5Dwrite by a thread in the background; 'sync': "
         "H5Dwrite between two images (sluice). Of several ranks rank 0 does so for all of them; "
         "gray-scott-mpi has 'collective', too: H5Dwrite of parallel HDF5 by all ranks",
         1},
	{"codec", KEY_CODEC, "NAME[:LEVEL]", 0,
         "deflate, zstd, lz4 or none (deflate); with other storage gzip or none (gzip)", 1},
	{"storage-buffer-len", KEY_WAITING, "L", 0,
         "Finished images that may wait until the one before them is stored (1)", 1},
	{"checksums", KEY_CHECKSUMS, "FILE", 0,
         "Write the CRC-32 of each image as it was computed, a line each", 1},
	{"publish", KEY_PUBLISH, "NAME", 0,
         "Put images into the store as well, as NAME/000000, NAME/000001 ...; $SLUICE_STORE says "
         "where that is",
         1},
	{"publish-every", KEY_PUBLISH_EVERY, "N", 0,
         "Put each Nth image there, beginning with the first, and the last one (1)", 1},
	{0},
};

static const char description[] =
	"Simulates the Gray-Scott reaction and stores its images in the background.\v"
	"The dataset '" STORAGE_DATASET "' of FILE is v after each image's steps, as float32. "
	"Ctrl-C ends the run early; the images "
	"that were finished until then are stored. Storage holds L + 1 images: the one that is "
	"being stored and L that wait; the next one is computed meanwhile.";

static void parse_storage(struct argp_state *state, struct options *o, const char *arg)
{
	char names[64] = "";

	for (size_t i = 0; storage_kinds[i]; i++) {
		size_t length = strlen(names);

		o->storage = storage_kinds[i];
		if (!strcmp(arg, o->storage->name))
			return;
		snprintf(names + length, sizeof names - length, "%s'%s'", i ? ", " : "",
		         o->storage->name);
	}
	argp_error(state, "--storage is one of %s, not '%s'", names, arg);
}

static void parse_codec(struct argp_state *state, struct options *o, const char *arg)
{
	const char *colon = strchrnul(arg, ':');
	size_t length = (size_t)(colon - arg);

	if (length == 0 || length >= sizeof o->codec)
		argp_error(state, "--codec is NAME or NAME:LEVEL, not '%s'", arg);
	memcpy(o->codec, arg, length);
	o->codec[length] = '\0';
	o->level = *colon ? (int)number_whole(state, "codec NAME:LEVEL", colon + 1, 1, 99) : 0;
}

static char *parse_name(struct argp_state *state, const char *option, char *arg)
{
	if (!arg[0])
		argp_error(state, "--%s needs a name", option);
	return arg;
}

/* Behind the last option, when all that belongs together is known. */
static void check_together(struct argp_state *state, struct options *o)
{
	char why[256];

	if (!o->codec[0])
		snprintf(o->codec, sizeof o->codec, "%s", o->storage->codec);
	if (!o->storage->calls->knows(o->codec, o->level, why, sizeof why))
		argp_error(state, "--codec: %s storage %s", o->storage->name, why);
}

static error_t parse_grid(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case KEY_ROWS:
		o->reaction.rows = number_whole(state, "nbrow", arg, 1, 1 << 20);
		return 0;
	case KEY_COLUMNS:
		o->reaction.columns = number_whole(state, "nbcol", arg, 1, 1 << 20);
		return 0;
	case 'n':
		o->images = (unsigned)number_whole(state, "nbimage", arg, 1, 1000000000);
		return 0;
	case KEY_EXTRA:
		o->extra_steps = (unsigned)number_whole(state, "nbextrastep", arg, 0, 1000000000);
		return 0;
	case KEY_FEED:
		o->reaction.feed = (float)number_real(state, "feed-rate", arg, 0, 1);
		return 0;
	case KEY_KILL:
		o->reaction.kill = (float)number_real(state, "kill-rate", arg, 0, 1);
		return 0;
	case KEY_DELTAT:
		/* Beyond this an explicit step makes the waves larger that diffusion is to flatten. */
		o->reaction.deltat = (float)number_real(state, "deltat", arg, 1e-6, 4);
		return 0;
	case KEY_BLOCKS:
		o->reaction.blocks = (unsigned)number_whole(state, "blocks", arg, 1, 100000);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case KEY_THREADS:
		o->threads = (unsigned)number_whole(state, "threads", arg, 1, 4096);
		return 0;
	case KEY_STORAGE:
		parse_storage(state, o, arg);
		return 0;
	case KEY_CODEC:
		parse_codec(state, o, arg);
		return 0;
	case KEY_WAITING:
		o->waiting = (unsigned)number_whole(state, "storage-buffer-len", arg, 0, 1024);
		return 0;
	case KEY_CHECKSUMS:
		o->checksums = parse_name(state, "checksums", arg);
		return 0;
	case KEY_PUBLISH:
		o->publish = parse_name(state, "publish", arg);
		return 0;
	case KEY_PUBLISH_EVERY:
		o->publish_every =
			(unsigned)number_whole(state, "publish-every", arg, 1, 1000000000);
		return 0;
	case 'o':
		o->output = parse_name(state, "output", arg);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is no option", arg);
		return 0;
	case ARGP_KEY_END:
		check_together(state, o);
		return 0;
	default:
		return parse_grid(key, arg, state);
	}
}

void options_parse(int argc, char **argv, struct options *out)
{
	struct argp argp = {.options = option_list, .parser = parse, .doc = description};

	*out = (struct options){.reaction = REACTION_OPTIONS_INIT,
	                        .images = 1000,
	                        .extra_steps = 32,
	                        .waiting = 1,
	                        .publish_every = 1,
	                        .storage = storage_kinds[0],
	                        .output = "output.h5"};
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, out);
}
