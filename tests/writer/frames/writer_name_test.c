/* SPDX-License-Identifier: Apache-2.0 */
/* When a new file gets its name, which may be that of another: by a checkpoint as soon as there is a frame, by a flush or the
 * end in any case. */
#include <hdf5.h>
#include <unistd.h>

#include "frames/field.h"

enum { SOON_MS = 20, LATER_MS = 150 };

/* Opens it in the place of old text, with the most zealous checkpoints. */
static sluice_writer *replace(struct fixture *f)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	sluice_writer *w = NULL;

	file_make(scratch(f, "x.h5"), 5000, 1);
	o.flags = SLUICE_WRITER_REPLACE;
	o.checkpoint_ms = SOON_MS;
	o.checkpoint_frames = 1;
	assert_ok(sluice_writer_open(f->ctx, scratch(f, "x.h5"), &o, &w));
	return w;
}

static bool is_old(struct fixture *f)
{
	return file_length(scratch(f, "x.h5")) == 5000;
}

static void wait_for_name(struct fixture *f)
{
	for (int i = 0; is_old(f) && i < PATIENCE_MS; i++)
		sleep_ms(1);
	assert_false(is_old(f));
}

static sluice_series *add(sluice_writer *w, uint64_t chunk_frames)
{
	struct sluice_series_options o = field_options("deflate", 0);
	sluice_series *s = NULL;

	o.chunk_frames = chunk_frames;
	assert_ok(sluice_series_add(w, "u", &o, &s));
	return s;
}

FIXTURE_TEST(a_checkpoint_replaces_no_file_before_there_is_a_frame)
{
	for (uint64_t chunk_frames = 1; chunk_frames < 9; chunk_frames += 7) {
		sluice_writer *w = replace(f);
		sluice_series *s = add(w, chunk_frames);
		void *frame;

		assert_ok(sluice_series_acquire(s, -1, &frame));
		sleep_ms(LATER_MS);
		assert_true(is_old(f));
		field_fill("u", 0, frame);
		assert_ok(sluice_series_submit(s, frame, (double[]){field_time("u", 0)}));
		wait_for_name(f);
		assert_ok(sluice_writer_close(w, PATIENCE_MS));
		assert_int_equal(field_look(scratch(f, "x.h5"), "u", 1, 1), 0);
	}
}

FIXTURE_TEST(a_flush_and_the_end_give_the_name_without_a_frame)
{
	sluice_writer *w = replace(f);

	add(w, 1);
	assert_ok(sluice_writer_flush(w, PATIENCE_MS));
	assert_false(is_old(f));
	sluice_writer_discard(w);
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 0, 0), 0);
	w = replace(f);
	add(w, 8);
	assert_true(is_old(f));
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 0, 0), 0);
	/* And what is discarded without either was never there. */
	w = replace(f);
	add(w, 1);
	sluice_writer_discard(w);
	assert_true(is_old(f));
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return RUN_TESTS(NULL, NULL);
}
