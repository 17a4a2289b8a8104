/* SPDX-License-Identifier: Apache-2.0 */
/* A small series whose frames are known, for what is tried with a writer. Nothing here asserts: results
 * are 0 or a negative errno, and processes that have no cmocka use it too. */
#ifndef FIELD_H
#define FIELD_H

#include "frames/content.h"

enum { FIELD_ROWS = 61, FIELD_COLUMNS = 50, FIELD_ELEMENTS = FIELD_ROWS * FIELD_COLUMNS };

/* float32, in chunks of 20 rows, with a scalar "time". The name decides what is in it. */
struct sluice_series_options field_options(const char *codec, uint64_t frames);
/* No checkpoints by time, and so long a wait for a full disk; 0 to begin with. */
extern int field_full_disk_ms;
int field_open(sluice_context *ctx, const char *path, unsigned flags, sluice_writer **out);
int field_add(sluice_writer *w, const char *name, const char *codec, uint64_t frames,
              sluice_series **out);
/* Frames of those numbers, each acquired and submitted; the first error. */
int field_put(sluice_series *s, const char *name, uint64_t from, uint64_t to);
void field_fill(const char *name, uint64_t frame, void *to);
double field_time(const char *name, uint64_t frame);

/* What HDF5 reads of it in this process: at least and at most so many frames, and all right. 0, or a number
 * that says what is wrong. A file that is not there has 0 frames. */
int field_look(const char *path, const char *name, uint64_t least, uint64_t most);
/* The same by a process of its own, made here and now. */
int field_look_apart(const char *path, const char *name, uint64_t least, uint64_t most);
/* Frames that HDF5 finds in a file that is right. */
uint64_t field_count(const char *path, const char *name);

#endif
