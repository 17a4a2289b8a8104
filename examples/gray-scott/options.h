/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_OPTIONS_H
#define GRAY_SCOTT_OPTIONS_H

#include "reaction.h"
#include "storage.h"

struct options {
	struct reaction_options reaction;
	unsigned images, extra_steps, waiting;
	unsigned threads; /* 0: one for each core */
	const struct storage_kind *storage;
	char codec[16]; /* empty: the storage's own */
	int level;      /* 0: the codec's own */
	const char *output, *checksums;
	const char *publish; /* in the store, under this name; NULL: not at all */
	unsigned publish_every;
};

/* Ends the program with a sentence and status 2 where something is wrong. */
void options_parse(int argc, char **argv, struct options *out);

#endif
