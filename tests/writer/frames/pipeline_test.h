/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of a writer over the fake file share. */
#ifndef PIPELINE_TEST_H
#define PIPELINE_TEST_H

#include <sluice/writer.h>

#include "frames/fake_file.h"
#include "lib/cases.h"
#include "lib/support.h"

/* As fixture_setup() and fixture_teardown(); the fake starts afresh, and has seen nothing wrong. */
int pipeline_setup(void **state);
int pipeline_teardown(void **state);
#define PIPELINE_TEST(name) FIXTURE_TEST_WITH(name, pipeline_setup, pipeline_teardown)

sluice_writer *writer_open(struct fixture *f, const struct sluice_writer_options *o);
/* Options of a small series: frames of 40 x 50 floats in chunks of 7 x 50, deflate. */
struct sluice_series_options small_options(void);
sluice_series *series_add(sluice_writer *w, const char *name,
                          const struct sluice_series_options *o);
/* What frame `number` of the series `seed` holds: smooth enough to be compressed. */
void frame_fill(void *data, size_t bytes, uint64_t seed, uint64_t number);
void frame_put(sluice_series *s, uint64_t seed, uint64_t number);
/* Frames 0 to count - 1 are in the fake, whole and right. */
void assert_frames(const struct fake_dataset *d, uint64_t seed, uint64_t count);
struct sluice_writer_counts writer_stats(sluice_writer *w);
struct sluice_writer_counts series_stats(sluice_series *s);

#endif
