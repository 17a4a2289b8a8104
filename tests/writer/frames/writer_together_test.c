/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of one program: on a writer, on two, and in HDF5 itself. */
#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "frames/field.h"

enum { LINES = 4, OTHERS = 2 };

static sluice_writer *writer_open(struct fixture *f, const char *name)
{
	sluice_writer *w = NULL;

	assert_ok(field_open(f->ctx, scratch(f, name), 0, &w));
	return w;
}

/* ------------------------------------------------------------------------ HDF5 of the program */

/* A thread of the program that has files of its own. */
struct other {
	char path[300];
	_Atomic bool *stop;
	_Atomic unsigned rounds;
	const char *wrong;
	unsigned errors; /* that HDF5 has told it of */
};

enum { VALUES = 40000 };

static int write_values(const char *path, int first)
{
	hsize_t shape = VALUES, chunk = 1000;
	hid_t space = H5Screate_simple(1, &shape, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
	hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), set;
	int *values = malloc(VALUES * sizeof(*values));
	int rc;

	H5Pset_chunk(list, 1, &chunk);
	H5Pset_shuffle(list);
	H5Pset_deflate(list, 1);
	set = H5Dcreate2(file, "values", H5T_NATIVE_INT, space, H5P_DEFAULT, list, H5P_DEFAULT);
	for (int i = 0; i < VALUES; i++)
		values[i] = first + i;
	rc = H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
	free(values);
	H5Dclose(set);
	H5Pclose(list);
	H5Sclose(space);
	return H5Fclose(file) < 0 ? -1 : rc;
}

static const char *read_values(const char *path, int first)
{
	hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	hid_t set = H5Dopen2(file, "values", H5P_DEFAULT);
	int *values = calloc(VALUES, sizeof(*values));
	const char *wrong = NULL;

	if (H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
		wrong = "its file cannot be read";
	for (int i = 0; !wrong && i < VALUES; i++)
		if (values[i] != first + i)
			wrong = "its values are others";
	free(values);
	H5Dclose(set);
	H5Fclose(file);
	return wrong;
}

static herr_t count_error(hid_t stack, void *other)
{
	(void)stack;
	((struct other *)other)->errors++;
	return 0;
}

static void *use_hdf5(void *argument)
{
	struct other *other = argument;

	H5Eset_auto2(H5E_DEFAULT, count_error, other);
	for (; !other->wrong && !atomic_load(other->stop); other->rounds++) {
		if (write_values(other->path, (int)other->rounds))
			other->wrong = "its file cannot be written";
		if (!other->wrong)
			other->wrong = read_values(other->path, (int)other->rounds);
		/* One error that it means to make, and is told of. */
		H5Fopen("/nonexistent", H5F_ACC_RDONLY, H5P_DEFAULT);
	}
	H5Eclear2(H5E_DEFAULT);
	return NULL;
}

static bool all_have_begun(const struct other *others)
{
	bool all = true;

	for (int i = 0; i < OTHERS; i++)
		all &= atomic_load(&others[i].rounds) >= 3;
	return all;
}

FIXTURE_TEST(the_program_may_use_hdf5_meanwhile)
{
	_Atomic bool stop = false;
	struct other others[OTHERS] = {0};
	pthread_t threads[OTHERS];
	sluice_writer *w = writer_open(f, "x.h5");
	sluice_series *s;
	uint64_t frames = 0;

	assert_ok(field_add(w, "u", "deflate", 0, &s));
	for (int i = 0; i < OTHERS; i++) {
		snprintf(others[i].path, sizeof(others[i].path), "%s/own%d.h5", f->dir, i);
		others[i].stop = &stop;
		assert_int_equal(pthread_create(&threads[i], NULL, use_hdf5, &others[i]), 0);
	}
	for (; frames < 60 || !all_have_begun(others); frames++) {
		assert_ok(field_put(s, "u", frames, frames + 1));
		if (frames % 7 == 0)
			assert_ok(sluice_writer_flush(w, PATIENCE_MS));
	}
	assert_ok(sluice_writer_close(w, PATIENCE_MS));
	atomic_store(&stop, true);
	for (int i = 0; i < OTHERS; i++) {
		pthread_join(threads[i], NULL);
		if (others[i].wrong)
			fail_msg("%s", others[i].wrong);
		assert_int_equal(others[i].errors, others[i].rounds);
	}
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", frames, frames), 0);
}

/* ------------------------------------------------------------------------------- two writers */

struct one {
	struct fixture *f;
	char path[300];
	const char *codec;
	int rc;
};

static void *write_one(void *argument)
{
	struct one *one = argument;
	sluice_writer *w = NULL;
	sluice_series *s;
	int rc = field_open(one->f->ctx, one->path, 0, &w);

	if (!rc)
		rc = field_add(w, "u", one->codec, 0, &s);
	for (uint64_t frame = 0; !rc && frame < 40; frame++) {
		rc = field_put(s, "u", frame, frame + 1);
		if (!rc && frame % 5 == 4)
			rc = sluice_writer_flush(w, PATIENCE_MS);
	}
	one->rc = sluice_writer_close(w, PATIENCE_MS);
	one->rc = rc ? rc : one->rc;
	return NULL;
}

FIXTURE_TEST(two_writers_have_two_files)
{
	struct one ones[2] = {{.codec = "deflate"}, {.codec = "none"}};
	pthread_t threads[2];

	for (int i = 0; i < 2; i++) {
		ones[i].f = f;
		snprintf(ones[i].path, sizeof(ones[i].path), "%s/%d.h5", ones[i].f->dir, i);
		assert_int_equal(pthread_create(&threads[i], NULL, write_one, &ones[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(ones[i].rc, 0);
		assert_int_equal(field_look(ones[i].path, "u", 40, 40), 0);
	}
}

/* ------------------------------------------------------------------------------- one for all */

/* A thread with a series of its own, which it adds itself. */
struct line {
	sluice_writer *w;
	char name[16];
	struct rng r;
	uint64_t count;
	int rc; /* the first that was not expected; asserts are for the main thread */
};

static int hand_in(struct line *line, sluice_series *s, uint64_t frame, void *own)
{
	void *memory;
	int rc;

	if (!rng_below(&line->r, 4)) {
		rc = sluice_series_acquire(s, PATIENCE_MS, &memory);
		rc = rc ? rc : sluice_series_discard(s, memory);
		if (rc)
			return rc;
	}
	if (rng_below(&line->r, 2))
		return field_put(s, line->name, frame, frame + 1);
	field_fill(line->name, frame, own);
	return sluice_series_push(s, own, (double[]){field_time(line->name, frame)}, PATIENCE_MS);
}

static void *line_run(void *argument)
{
	struct line *line = argument;
	struct sluice_series_options o = field_options(NULL, 0);
	void *own = malloc(FIELD_ELEMENTS * sizeof(float));
	sluice_series *s;

	o.codec = rng_below(&line->r, 3) ? "deflate" : "none";
	o.frames = rng_below(&line->r, 2) ? line->count : 0;
	o.depth = 1 + (unsigned)rng_below(&line->r, 4);
	line->rc = sluice_series_add(line->w, line->name, &o, &s);
	for (uint64_t frame = 0; !line->rc && frame < line->count; frame++) {
		line->rc = hand_in(line, s, frame, own);
		if (!line->rc && !rng_below(&line->r, 6)) {
			int rc = sluice_writer_flush(line->w, rng_below(&line->r, 2) ? -1 : 1);

			line->rc = rc == -EINPROGRESS ? 0 : rc;
		}
	}
	free(own);
	return NULL;
}

struct reader {
	sluice_writer *w;
	_Atomic bool stop;
	const char *wrong;
};

/* Counts only grow, and stand in their order. */
static void *read_statistics(void *argument)
{
	struct reader *reader = argument;
	struct sluice_writer_counts last = {0};

	while (!atomic_load(&reader->stop) && !reader->wrong) {
		struct sluice_writer_counts now = {.size = sizeof(now)};
		struct sluice_writer_failure error = {.size = sizeof(error)};

		if (sluice_writer_stats(reader->w, &now) || sluice_writer_error(reader->w, &error))
			reader->wrong = "no statistics, or an error";
		else if (now.visible > now.stored || now.stored > now.submitted)
			reader->wrong =
				"more frames are visible than stored, or stored than there are";
		else if (now.submitted - now.stored != now.queued + now.in_flight ||
		         now.queued > now.submitted)
			reader->wrong = "frames are lost on the way";
		else if (now.submitted < last.submitted || now.stored < last.stored ||
		         now.visible < last.visible || now.flushes < last.flushes ||
		         now.stored_bytes < last.stored_bytes)
			reader->wrong = "a count has become less";
		last = now;
	}
	return NULL;
}

static void round_of(struct fixture *f, struct rng *r)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	struct line lines[LINES] = {0};
	struct reader reader = {0};
	pthread_t threads[LINES + 1];
	bool drops = !rng_below(r, 4);
	const char *path = scratch(f, "x.h5");

	o.flags = SLUICE_WRITER_REPLACE;
	o.threads = 1 + rng_below(r, 4);
	o.checkpoint_frames = rng_below(r, 4);
	o.checkpoint_ms = rng_below(r, 2) ? 1 : -1;
	assert_ok(sluice_writer_open(f->ctx, path, &o, &reader.w));
	assert_int_equal(pthread_create(&threads[LINES], NULL, read_statistics, &reader), 0);
	for (int i = 0; i < LINES; i++) {
		lines[i] = (struct line){
			.w = reader.w, .r = rng_new(rng_next(r)), .count = 1 + rng_below(r, 20)};
		snprintf(lines[i].name, sizeof(lines[i].name), "g/%c", 'a' + i);
		assert_int_equal(pthread_create(&threads[i], NULL, line_run, &lines[i]), 0);
	}
	for (int i = 0; i < LINES; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&reader.stop, true);
	pthread_join(threads[LINES], NULL);
	for (int i = 0; i < LINES; i++)
		assert_int_equal(lines[i].rc, 0);
	if (reader.wrong)
		fail_msg("%s", reader.wrong);
	if (drops)
		sluice_writer_discard(reader.w);
	else
		assert_ok(sluice_writer_close(reader.w, PATIENCE_MS));
	for (int i = 0; i < LINES; i++)
		assert_int_equal(
			field_look(path, lines[i].name, drops ? 0 : lines[i].count, lines[i].count),
			0);
	unlink(path);
}

FIXTURE_TEST(threads_share_a_writer_in_any_schedule)
{
	struct rng r = rng_new(7);
	int rounds = getenv("STRESS") ? 600 : under_sanitizer() ? 15 : 60;

	for (int i = 0; i < rounds; i++)
		round_of(f, &r);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return RUN_TESTS(NULL, NULL);
}
