/* SPDX-License-Identifier: Apache-2.0 */
#include <argp.h>
#include <string.h>

#include "number.h"
#include "render_options.h"
#include "storage.h"

enum {
	KEY_DATASET = 256,
	KEY_EVERY,
	KEY_LAST,
	KEY_RANGE,
	KEY_GAMMA,
	KEY_WIDTH,
	KEY_RATE,
	KEY_NO_IMAGES,
	KEY_NO_ANIMATION,
	KEY_STORE,
	KEY_WAIT
};

static const struct argp_option option_list[] = {
	{"output-dir", 'o', "DIR", 0, "Where the pictures go; it is made (pictures)", 0},
	{"dataset", KEY_DATASET, "NAME", 0, "Images x rows x columns (" STORAGE_DATASET ")", 0},
	{"every", KEY_EVERY, "N", 0, "Take each Nth image, beginning with the first (1)", 0},
	{"last", KEY_LAST, NULL, 0, "Take the last image only", 0},
	{"range", KEY_RANGE, "LOW:HIGH", 0,
         "The values that get the first and the last colour (as the images have them; from the "
         "store, each "
         "image for itself)",
         0},
	{"gamma", KEY_GAMMA, "G", 0,
         "Colours go by this power of the value; below 1 it shows more of the low ones (0.5)", 0},
	{"no-images", KEY_NO_IMAGES, NULL, 0, "Make the animation only", 1},
	{"no-animation", KEY_NO_ANIMATION, NULL, 0, "Make a picture of each image only", 1},
	{"width", KEY_WIDTH, "N", 0, "Pixels from left to right of the animation, at most (480)",
         1},
	{"rate", KEY_RATE, "N", 0, "Images per second of the animation (25)", 1},
	{"store", KEY_STORE, "NAME", 0,
         "Instead of FILE: pictures of the images that gray-scott --publish NAME puts into the "
         "store, as they "
         "come, until it ends; $SLUICE_STORE says where that is",
         2},
	{"wait", KEY_WAIT, "SECONDS", 0, "How long for an image from the store (60)", 2},
	{0},
};

static const char description[] = "Makes a PNG of each image in an HDF5 file, and of all of them "
				  "DIR/animation.png, which browsers "
				  "play; or of each that comes from the store.\vThe same value has "
				  "the same colour in all of them.";

static void parse_range(struct argp_state *state, struct render_options *o, const char *arg)
{
	char low[64];
	size_t length = strcspn(arg, ":");

	if (!arg[length] || length >= sizeof low)
		argp_error(state, "--range is LOW:HIGH, not '%s'", arg);
	memcpy(low, arg, length);
	low[length] = '\0';
	o->low = (float)number_real(state, "range", low, -1e30, 1e30);
	o->high = (float)number_real(state, "range", arg + length + 1, -1e30, 1e30);
	if (!(o->low < o->high))
		argp_error(state, "--range begins with the lower one, not '%s'", arg);
}

static void check_together(struct argp_state *state, const struct render_options *o)
{
	if (!o->path == !o->store)
		argp_error(state, o->path ? "a file or the store?" : "which file?");
	if (o->store && (o->last || o->every != 1 || !o->images))
		argp_error(state, "from the store a picture is made of each image, as it comes");
	if (!o->images && (!o->animation || o->last))
		argp_error(state, "nothing is left to be made");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct render_options *o = state->input;

	switch (key) {
	case 'o':
		o->directory = arg;
		return 0;
	case KEY_DATASET:
		o->dataset = arg;
		return 0;
	case KEY_EVERY:
		o->every = (unsigned)number_whole(state, "every", arg, 1, 1000000000);
		return 0;
	case KEY_LAST:
		o->last = true;
		return 0;
	case KEY_RANGE:
		parse_range(state, o, arg);
		return 0;
	case KEY_GAMMA:
		o->gamma = (float)number_real(state, "gamma", arg, 0.1, 10);
		return 0;
	case KEY_WIDTH:
		o->width = number_whole(state, "width", arg, 1, 1 << 20);
		return 0;
	case KEY_RATE:
		o->hundredths = (unsigned)(100 / number_whole(state, "rate", arg, 1, 100));
		return 0;
	case KEY_NO_IMAGES:
		o->images = false;
		return 0;
	case KEY_STORE:
		if (!arg[0])
			argp_error(state, "--store needs a name");
		o->store = arg;
		return 0;
	case KEY_WAIT:
		o->wait_seconds = (unsigned)number_whole(state, "wait", arg, 1, 1000000);
		return 0;
	case KEY_NO_ANIMATION:
		o->animation = false;
		return 0;
	case ARGP_KEY_ARG:
		if (o->path)
			argp_error(state, "one file at a time, and '%s' is another one", arg);
		o->path = arg;
		return 0;
	case ARGP_KEY_END:
		check_together(state, o);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void render_options_parse(int argc, char **argv, struct render_options *out)
{
	struct argp argp = {option_list, parse, "FILE\n--store=NAME", description, NULL,
	                    NULL,        NULL};

	*out = (struct render_options){.directory = "pictures",
	                               .dataset = STORAGE_DATASET,
	                               .every = 1,
	                               .images = true,
	                               .animation = true,
	                               .gamma = 0.5F,
	                               .width = 480,
	                               .hundredths = 4,
	                               .wait_seconds = 60};
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, out);
}
