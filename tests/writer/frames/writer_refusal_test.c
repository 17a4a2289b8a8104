/* SPDX-License-Identifier: Apache-2.0 */
/* What the calls of a writer refuse, with HDF5 behind them, and that a writer goes on after it. */
#include <fcntl.h>
#include <hdf5.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frames/field.h"

static sluice_writer *writer_open(struct fixture *f, const char *name, unsigned flags)
{
	sluice_writer *w = NULL;

	assert_ok(field_open(f->ctx, scratch(f, name), flags, &w));
	return w;
}

static sluice_series *series_add(sluice_writer *w, const char *name, const char *codec,
                                 uint64_t frames)
{
	sluice_series *s = NULL;

	assert_ok(field_add(w, name, codec, frames, &s));
	return s;
}

/* --------------------------------------------------------------------------------------- paths */

FIXTURE_TEST(a_path_that_cannot_be_written_is_refused_at_once)
{
	sluice_writer *w = NULL;

	assert_refused(field_open(f->ctx, scratch(f, "none/x.h5"), 0, &w), ENOENT, "none/x.h5");
	assert_refused(field_open(f->ctx, f->dir, 0, &w), EEXIST, "scratch-");
	assert_refused(field_open(f->ctx, f->dir, SLUICE_WRITER_REPLACE, &w), EISDIR, "directory");
	assert_refused(field_open(f->ctx, f->dir, SLUICE_WRITER_APPEND, &w), EISDIR, "scratch-");
	assert_int_equal(mkfifo(scratch(f, "fifo"), 0600), 0);
	assert_refused(field_open(f->ctx, scratch(f, "fifo"), 0, &w), EEXIST, "fifo");
	assert_refused(field_open(f->ctx, scratch(f, "fifo"), SLUICE_WRITER_REPLACE, &w), ESPIPE,
	               "regular");
	assert_refused(field_open(f->ctx, scratch(f, "fifo"), SLUICE_WRITER_APPEND, &w), EBADMSG,
	               "regular");
	file_make(scratch(f, "text"), 5000, 1);
	assert_refused(field_open(f->ctx, scratch(f, "text"), 0, &w), EEXIST, "text");
	assert_refused(field_open(f->ctx, scratch(f, "text"), SLUICE_WRITER_APPEND, &w), EBADMSG,
	               "HDF5");
	assert_refused(field_open(f->ctx, "", 0, &w), EINVAL, "");
	assert_null(w);
	assert_int_equal(directory_entries(f->dir), 2);
}

FIXTURE_TEST(memory_that_is_kept_outlives_the_writer)
{
	sluice_writer *w = writer_open(f, "x.h5", 0);
	sluice_series *s = series_add(w, "u", NULL, 0);
	void *memory = NULL, *frame;
	size_t bytes = 0;

	assert_refused(sluice_series_keep_memory(NULL, &memory, &bytes), EINVAL, "series");
	assert_refused(sluice_series_keep_memory(s, NULL, &bytes), EINVAL, "result");
	assert_ok(sluice_series_keep_memory(s, &memory, &bytes));
	assert_ok(sluice_series_acquire(s, -1, &frame));
	assert_true((char *)frame >= (char *)memory &&
	            (char *)frame + sluice_series_frame_bytes(s) <= (char *)memory + bytes);
	assert_ok(sluice_writer_close(w, -1));
	memset(memory, 1, bytes);
	assert_int_equal(munmap(memory, bytes), 0);
}

/* By a process that is nobody. */
static int try_as_nobody(const char *folder, const char *file)
{
	sluice_context *ctx;
	sluice_writer *w;
	char path[600];

	snprintf(path, sizeof(path), "%s/new.h5", folder);
	if (setgid(65534) || setuid(65534) || sluice_context_new(NULL, &ctx))
		return 1;
	if (field_open(ctx, path, 0, &w) != -EACCES || !strstr(sluice_last_message(), path))
		return 2;
	if (field_open(ctx, file, SLUICE_WRITER_APPEND, &w) != -EACCES)
		return 3;
	return sluice_context_close(ctx) ? 4 : 0;
}

/* A child of a process that has no context. */
FIRST_TEST(read_only_file_is_refused_for_writing)
{
	char dir[] = "/tmp/sluice-nobody-XXXXXX", file[64];
	int status, fd;
	pid_t child;

	if (geteuid())
		SKIP("only root becomes nobody");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	snprintf(file, sizeof(file), "%s/old.h5", dir);
	fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	close(fd);
	child = fork();
	if (!child) {
		alarm(100);
		_exit(try_as_nobody(dir, file));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	unlink(file);
	rmdir(dir);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

FIXTURE_TEST(a_file_that_is_deleted_meanwhile_is_an_error_of_the_next_flush)
{
	sluice_writer *w = writer_open(f, "x.h5", 0);
	sluice_series *s = series_add(w, "u", "deflate", 0);
	void *frame;

	assert_ok(field_put(s, "u", 0, 3));
	assert_ok(sluice_writer_flush(w, -1));
	assert_ok(field_put(s, "u", 3, 5));
	assert_int_equal(unlink(scratch(f, "x.h5")), 0);
	assert_refused(sluice_writer_flush(w, -1), ESTALE, "deleted");
	assert_refused(sluice_series_acquire(s, -1, &frame), ESTALE, "deleted");
	assert_refused(sluice_writer_close(w, -1), ESTALE, "deleted");
	assert_int_equal(directory_entries(f->dir), 0);
	/* Nothing of it stays behind: the name is free. */
	w = writer_open(f, "x.h5", 0);
	s = series_add(w, "u", "deflate", 0);
	assert_ok(field_put(s, "u", 0, 2));
	assert_ok(sluice_writer_close(w, -1));
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 2, 2), 0);
}

/* -------------------------------------------------------------------------------- what is there */

static void assert_other(sluice_writer *w, struct sluice_series_options o, const char *says)
{
	sluice_series *s = NULL;

	assert_refused(sluice_series_add(w, "g/u", &o, &s), EEXIST, says);
	assert_null(s);
}

FIXTURE_TEST(a_dataset_that_is_other_than_asked_for_is_refused_and_the_rest_goes_on)
{
	sluice_writer *w = writer_open(f, "x.h5", 0);
	sluice_series *s = series_add(w, "g/u", "deflate", 0), *none = NULL;
	struct sluice_series_options o;

	assert_ok(field_put(s, "g/u", 0, 4));
	assert_ok(sluice_writer_close(w, -1));
	w = writer_open(f, "x.h5", SLUICE_WRITER_APPEND);
	o = field_options("deflate", 0);
	o.shape[1]++;
	assert_other(w, o, "61 x 51");
	o = field_options("deflate", 0);
	o.rank = 1;
	assert_other(w, o, "dimensions");
	o = field_options("deflate", 0);
	o.type = SLUICE_FLOAT64;
	assert_other(w, o, "float32");
	o = field_options("none", 0);
	assert_other(w, o, "deflate");
	o = field_options("deflate", 0);
	o.level = 5;
	assert_other(w, o, "level");
	o = field_options("deflate", 0);
	o.shuffle = SLUICE_SHUFFLE_NONE;
	assert_other(w, o, "shuffled");
	o = field_options("deflate", 0);
	o.chunk[0]++;
	assert_other(w, o, "chunks");
	o = field_options("deflate", 7);
	assert_other(w, o, "7");
	o = field_options("none", 0);
	assert_refused(sluice_series_add(w, "g", &o, &none), EEXIST, "g");
	assert_refused(sluice_series_add(w, "g/u/x", &o, &none), EEXIST, "g/u");
	o.codec = "gzip";
	assert_refused(sluice_series_add(w, "v", &o, &none), EINVAL, "gzip");
	assert_null(none);
	s = series_add(w, "g/u", NULL, 0);
	assert_refused(field_add(w, "g/u", NULL, 0, &none), EEXIST, "g/u");
	assert_ok(field_put(s, "g/u", 4, 6));
	s = series_add(w, "g/v", "none", 0);
	assert_ok(field_put(s, "g/v", 0, 1));
	assert_ok(sluice_writer_close(w, -1));
	assert_int_equal(field_look(scratch(f, "x.h5"), "g/u", 6, 6), 0);
	assert_int_equal(field_look(scratch(f, "x.h5"), "g/v", 1, 1), 0);
}

/* Its chunks take more memory than those that were asked for. */
FIXTURE_TEST(a_dataset_that_does_not_fit_keeps_its_frames)
{
	struct sluice_series_options o = field_options("deflate", 0);
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	static char before[1 << 21], after[1 << 21];
	sluice_writer *w = writer_open(f, "x.h5", 0);
	sluice_series *s = NULL;
	uint64_t length;

	o.chunk_frames = 60;
	assert_ok(sluice_series_add(w, "u", &o, &s));
	assert_ok(field_put(s, "u", 0, 5));
	assert_ok(sluice_writer_close(w, -1));
	length = file_length(scratch(f, "x.h5"));
	assert_in_range(length, 1, sizeof(before));
	file_read(scratch(f, "x.h5"), before, length, 0);
	wo.flags = SLUICE_WRITER_APPEND;
	wo.memory_bytes = 2 * MIB;
	wo.threads = 1;
	assert_ok(sluice_writer_open(f->ctx, scratch(f, "x.h5"), &wo, &w));
	o.chunk_frames = 0;
	o.flags = SLUICE_SERIES_CONTINUE_AT;
	o.continue_at = 2;
	assert_refused(sluice_series_add(w, "u", &o, &s), ENOBUFS, "memory_bytes");
	assert_ok(sluice_writer_close(w, -1));
	assert_int_equal(file_length(scratch(f, "x.h5")), length);
	file_read(scratch(f, "x.h5"), after, length, 0);
	assert_bytes(after, before, length);
}

FIXTURE_TEST(a_codec_that_is_not_built_in_is_refused_by_its_name)
{
	sluice_writer *w = writer_open(f, "x.h5", 0);
	struct sluice_codec codec = {.size = sizeof(codec)};
	unsigned missing = 0;

	for (size_t i = 0; !sluice_codec_describe(i, &codec); i++) {
		struct sluice_series_options o = field_options(codec.name, 0);
		sluice_series *s = NULL;
		char name[16];

		snprintf(name, sizeof(name), "s%zu", i);
		o.level = codec.most;
		if (!codec.missing) {
			assert_ok(sluice_series_add(w, name, &o, &s));
			continue;
		}
		/* Another library may have the same format. */
		if (sluice_series_add(w, name, &o, &s))
			assert_refused(sluice_series_add(w, name, &o, &s), ENOTSUP, codec.name);
		missing++;
	}
	print_message("%u encoders are not built in\n", missing);
	assert_ok(sluice_writer_close(w, -1));
}

/* ------------------------------------------------------------------------------------ life */

FIXTURE_TEST(frames_that_are_forgotten_are_not_in_the_file)
{
	sluice_writer *w = writer_open(f, "x.h5", 0);
	struct sluice_series_options o = field_options("deflate", 0);
	sluice_series *s;
	void *frames[3];
	double time = 0;

	o.depth = 4;
	assert_ok(sluice_series_add(w, "u", &o, &s));
	for (int i = 0; i < 3; i++)
		assert_ok(sluice_series_acquire(s, -1, &frames[i]));
	assert_refused(sluice_series_submit(s, (char *)frames[0] + 1, &time), EINVAL, "no frame");
	assert_refused(sluice_series_submit(s, &time, &time), EINVAL, "no frame");
	assert_ok(field_put(s, "u", 0, 5));
	assert_ok(sluice_series_discard(s, frames[1]));
	assert_refused(sluice_series_discard(s, frames[1]), EINVAL, "not acquired");
	assert_refused(sluice_series_submit(s, frames[1], &time), EINVAL, "not acquired");
	assert_ok(sluice_writer_close(w, -1));
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 5, 5), 0);
	assert_refused(sluice_writer_close(w, -1), EINVAL, "no such writer");
	sluice_writer_discard(w);
}

/* How many calls it took. */
static unsigned close_impatiently(struct fixture *f)
{
	struct sluice_series_options o = field_options("deflate", 0);
	sluice_writer *w = writer_open(f, "x.h5", SLUICE_WRITER_REPLACE);
	sluice_series *s;
	unsigned calls = 1;
	int rc;

	o.level = 9;
	o.depth = 30;
	assert_ok(sluice_series_add(w, "u", &o, &s));
	assert_ok(field_put(s, "u", 0, 30));
	while ((rc = sluice_writer_close(w, 0)) == -EINPROGRESS)
		calls++;
	assert_int_equal(rc, 0);
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 30, 30), 0);
	return calls;
}

FIXTURE_TEST(close_without_patience_can_be_called_until_it_is_done)
{
	unsigned calls = 1;

	/* On a busy machine all may be done before the first call. */
	for (int round = 0; round < 50 && calls < 2; round++)
		calls = close_impatiently(f);
	assert_in_range(calls, 2, UINT32_MAX);
}

FIXTURE_TEST(discarded_upload_was_never_there)
{
	sluice_writer *w = writer_open(f, "x.h5", 0);
	sluice_series *s = series_add(w, "u", "deflate", 0);

	assert_ok(field_put(s, "u", 0, 9));
	sluice_writer_discard(w);
	assert_int_equal(directory_entries(f->dir), 0);
	w = writer_open(f, "x.h5", 0);
	s = series_add(w, "u", "deflate", 0);
	assert_ok(field_put(s, "u", 0, 3));
	assert_ok(sluice_writer_flush(w, -1));
	assert_ok(field_put(s, "u", 3, 9));
	sluice_writer_discard(w);
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 3, 3), 0);
	/* A replacement that saw no flush leaves what there was. */
	w = writer_open(f, "x.h5", SLUICE_WRITER_REPLACE);
	s = series_add(w, "other", "deflate", 0);
	assert_ok(field_put(s, "other", 0, 2));
	sluice_writer_discard(w);
	assert_int_equal(field_look(scratch(f, "x.h5"), "u", 3, 3), 0);
}

FIXTURE_TEST(file_has_a_single_writer)
{
	sluice_writer *a = writer_open(f, "x.h5", 0), *b = NULL;
	sluice_series *s = series_add(a, "u", "none", 0);

	assert_ok(field_put(s, "u", 0, 2));
	assert_refused(field_open(f->ctx, scratch(f, "x.h5"), 0, &b), EBUSY, "open");
	assert_ok(sluice_writer_flush(a, -1));
	assert_refused(field_open(f->ctx, scratch(f, "x.h5"), SLUICE_WRITER_APPEND, &b), EBUSY,
	               "open");
	assert_int_equal(link(scratch(f, "x.h5"), scratch(f, "y.h5")), 0);
	assert_refused(field_open(f->ctx, scratch(f, "y.h5"), SLUICE_WRITER_APPEND, &b), EBUSY,
	               "open");
	assert_null(b);
	assert_ok(field_put(s, "u", 2, 4));
	assert_ok(sluice_writer_close(a, -1));
	assert_int_equal(field_look(scratch(f, "y.h5"), "u", 4, 4), 0);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	return RUN_TESTS(NULL, NULL);
}
