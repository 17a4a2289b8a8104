/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_RENDER_OPTIONS_H
#define GRAY_SCOTT_RENDER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct render_options {
	const char *path, *directory, *dataset;
	const char *store; /* instead of path: the name that images have in the store */
	unsigned wait_seconds;
	unsigned every;
	bool last, images, animation;
	size_t width;        /* of the animation, at most */
	unsigned hundredths; /* of a second, for each image of the animation */
	float low, high;     /* both 0: as the images have them */
	float gamma;
};

/* Ends the program with a sentence and status 2 where something is wrong. */
void render_options_parse(int argc, char **argv, struct render_options *out);

#endif
