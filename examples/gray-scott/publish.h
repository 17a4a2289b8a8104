/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images in the store, for other programs, while the next ones are computed: blobs NAME/000000, NAME/000001 and so
 * on, of float32, rows x columns, with what they show as JSON in the note. The name of the next one is reserved
 * before the one before it is sealed. So as long as there is a blob NAME/... that is not sealed more will come,
 * however the simulation ends: the store frees what its process had reserved.
 */
#ifndef GRAY_SCOTT_PUBLISH_H
#define GRAY_SCOTT_PUBLISH_H

#include <sluice/store.h>

#include "reaction.h"

struct publish_options {
	const char *name;
	size_t rows, columns;
	unsigned images, steps; /* of the run; of an image */
	unsigned every;         /* each so manieth image, and the last one */
};

struct publish {
	struct publish_options options;
	sluice_store *store; /* NULL: it is closed, and no calls but close do anything */
	sluice_blob *next;   /* reserved; NULL: there will be no other one */
	unsigned number;     /* of the image that it is for */
	unsigned count;      /* images that are in the store */
	int failed;          /* the first error, */
	char message[512];   /* and its sentence */
};

/* Deletes what an earlier run has left under that name. 0, or a negative errno with a sentence. */
int publish_open(struct publish *publish, const struct publish_options *options);
/* Once for each image, in order; those that are not wanted are left out. After an error it does nothing more. */
void publish_image(struct publish *publish, unsigned number, const struct reaction *reaction);
void publish_close(struct publish *publish);

#endif
