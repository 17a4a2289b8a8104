/* SPDX-License-Identifier: Apache-2.0 */
/* The images that a simulation publishes in the store (publish.h), as they come. */
#ifndef GRAY_SCOTT_LIVE_H
#define GRAY_SCOTT_LIVE_H

#include <sluice/store.h>
#include <stdbool.h>
#include <stddef.h>

struct live {
	sluice_store *store;
	sluice_watch *watch;
	char prefix[SLUICE_BLOB_NAME_MOST + 1]; /* NAME/ */
	int wait_ms;                            /* for an image, at most */
	long seen;                              /* the last image that was given out; -1: none */
};

/* rows x columns floats, until live_release(). */
struct live_image {
	unsigned number;
	bool running; /* more were being computed when it was found */
	size_t rows, columns;
	const float *values;
	sluice_blob *blob;
};

/* 0, or -1 with a sentence. */
int live_open(struct live *live, const char *name, int wait_ms, char *why, size_t size);
/*
 * 1: the image after the last one, which may have been in the store for long; 0: whoever published them has
 * ended, and this was the last one; -1 with a sentence: that, or no image came in time.
 */
int live_next(struct live *live, struct live_image *out, char *why, size_t size);
void live_release(struct live_image *image);
void live_close(struct live *live);

#endif
