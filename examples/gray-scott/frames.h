/* SPDX-License-Identifier: Apache-2.0 */
/* Reads images back from an HDF5 file, whoever wrote it. */
#ifndef GRAY_SCOTT_FRAMES_H
#define GRAY_SCOTT_FRAMES_H

#include <hdf5.h>
#include <pthread.h>
#include <stdint.h>

struct frames {
	uint64_t count;
	size_t rows, columns;
	hid_t file, dataset;
	pthread_mutex_t mutex; /* HDF5 is called by one thread at a time */
};

/* A dataset of three dimensions: images, rows, columns; any type of numbers. 0, or -1 with a sentence. */
int frames_open(struct frames *frames, const char *path, const char *dataset, char *why,
                size_t size);
void frames_close(struct frames *frames);

/* rows * columns floats. 0, or -1 with a sentence. Any thread. */
int frames_read(struct frames *frames, uint64_t index, float *out, char *why, size_t size);

#endif
