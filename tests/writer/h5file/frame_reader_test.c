/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader beside a writer. At each write of a flush one begins to read, and reads on when the flush is over:
 * HDF5 has blocks of before it then, and finds others of after it.
 */
#include <sluice/frames.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "h5file/frame_common.h"
#include "h5file/points.h"

enum { POINTS = 7, FRAMES = 130, ELEMENTS = 16, SHARED = 8 };

/* Frames of a chunk: 1 or SHARED. */
static unsigned gather = 1;

static hid_t open_beside(void)
{
	hid_t list = H5Pcreate(H5P_FILE_ACCESS), file;

	H5Pset_file_locking(list, false, true);
	file = H5Fopen(frame_path, H5F_ACC_RDONLY, list);
	H5Pclose(list);
	return file;
}

static float value(uint64_t frame, unsigned i)
{
	return 1 + (float)(frame * 131 + i);
}

/* 0: all of a frame is right, 1: not, -1: HDF5 tells of an error. */
static int read_frame(hid_t set, uint64_t frame)
{
	hsize_t start[2] = {frame}, count[2] = {1, ELEMENTS}, elements = ELEMENTS;
	hid_t space = H5Dget_space(set), memory = H5Screate_simple(1, &elements, NULL);
	float got[ELEMENTS];
	herr_t done;
	int wrong = 0;

	H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
	done = H5Dread(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, got);
	H5Sclose(memory);
	H5Sclose(space);
	for (unsigned i = 0; done >= 0 && i < ELEMENTS; i++)
		wrong |= got[i] != value(frame, i);
	return done < 0 ? -1 : wrong;
}

static struct reader {
	sluice_frames *frames;
	bool begun; /* with the rule */
	hid_t file, set;
	uint64_t count;
} reader;
static unsigned begin_at; /* which write of a flush */
static unsigned told_to_wait, wrong, wrong_by_the_rule, right_by_the_rule;

static void begin_to_read(struct reader *r)
{
	hid_t space;
	hsize_t extent[2] = {0};

	r->begun = sluice_frames_begin(r->frames, 0) == 0;
	told_to_wait += !r->begun;
	r->file = open_beside();
	r->set = r->file < 0 ? -1 : H5Dopen2(r->file, "u", H5P_DEFAULT);
	r->count = 0;
	if (r->set < 0)
		return;
	space = H5Dget_space(r->set);
	H5Sget_simple_extent_dims(space, extent, NULL);
	H5Sclose(space);
	r->count = extent[0];
	/* The way from the root to the first chunk. */
	if (r->count)
		read_frame(r->set, 0);
}

static void read_on(struct reader *r)
{
	int found = r->set < 0 ? -1 : 0;
	bool rule;

	for (uint64_t i = r->count; found >= 0 && i > 0 && i + 70 > r->count; i--)
		found = found || read_frame(r->set, i - 1);
	rule = r->begun && sluice_frames_check(r->frames) == 0;
	wrong += found > 0;
	wrong_by_the_rule += rule && found;
	right_by_the_rule += rule && !found;
	if (r->set >= 0)
		H5Dclose(r->set);
	if (r->file >= 0)
		H5Fclose(r->file);
	r->file = 0;
}

/* One at a time: HDF5 shares what the process has open of a file. */
static int at_each_write(unsigned point)
{
	(void)point;
	if (!begin_at--)
		begin_to_read(&reader);
	return 0;
}

static struct sl_h5_layout small_layout(void)
{
	struct sl_h5_layout layout = {
		.type = SLUICE_FLOAT32,
		.element = 4,
		.rank = 1,
		.shape = {ELEMENTS},
		.chunk = {ELEMENTS},
		.gather = gather,
		.level = 1,
	};

	sl_codec_find(gather > 1 ? "deflate" : "none", layout.level, &layout.codec);
	return layout;
}

/* Each frame goes to the chunk as it comes; the last of a chunk brings all of it, compressed, to another place. */
static int put_shared(struct sl_h5_dataset *set, uint64_t frame)
{
	static float chunk[SHARED][ELEMENTS];
	struct sl_h5_layout layout = small_layout();
	uint64_t offset[] = {0}, slot = frame % SHARED;
	unsigned char packed[sizeof(chunk)];
	void *state;
	size_t n;

	for (unsigned i = 0; i < ELEMENTS; i++)
		chunk[slot][i] = value(frame, i);
	if (slot < SHARED - 1)
		return sl_h5_chunk_store_frames(set, frame - slot, slot, slot + 1, offset, chunk,
		                                sizeof(chunk));
	assert_int_equal(layout.codec->state_new(layout.level, 4, sizeof(chunk), &state), 0);
	n = layout.codec->compress(state, chunk, sizeof(chunk), packed, sizeof(packed) - 1);
	layout.codec->state_free(state);
	assert_true(n > 0);
	return sl_h5_chunk_store(set, frame - slot, offset, 0, packed, n);
}

static int put(struct sl_h5_dataset *set, uint64_t frame)
{
	uint64_t offset[] = {0};
	float values[ELEMENTS];
	int err;

	for (unsigned i = 0; i < ELEMENTS; i++)
		values[i] = value(frame, i);
	err = gather > 1 ? put_shared(set, frame)
	                 : sl_h5_chunk_store(set, frame, offset, 0, values, sizeof(values));
	return err ? err : sl_h5_frames_stored(set, frame, 1, NULL, 0);
}

static void read_beside(struct sl_h5_file *file, unsigned at)
{
	begin_at = at;
	points_hook = at_each_write;
	frame_flush(file);
	points_hook = NULL;
	if (reader.file)
		read_on(&reader);
	begin_to_read(&reader);
	read_on(&reader);
}

static void write_and_read(unsigned at)
{
	struct sl_h5_layout layout = small_layout();
	struct sl_h5_file *file = frame_open(SLUICE_WRITER_REPLACE);
	struct sl_h5_dataset *set = frame_add(file, "u", &layout, NULL);

	assert_int_equal(put(set, 0), 0);
	frame_flush(file);
	assert_int_equal(sluice_frames_open(frame_path, &reader.frames), 0);
	for (uint64_t frame = 1; frame < FRAMES; frame++) {
		assert_int_equal(put(set, frame), 0);
		read_beside(file, at);
	}
	frame_close(file);
	sluice_frames_free(reader.frames);
}

TEST(a_reader_that_follows_the_rule_sees_whole_frames)
{
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	for (unsigned at = 0; at < POINTS; at++)
		write_and_read(at);
	print_message("%u readers waited, %u found wrong frames; by the rule %u right, %u wrong\n",
	              told_to_wait, wrong, right_by_the_rule, wrong_by_the_rule);
	assert_int_equal(wrong_by_the_rule, 0);
	assert_int_equal(right_by_the_rule, POINTS * (FRAMES - 1));
	assert_true(told_to_wait >= FRAMES - 1);
	assert_true(wrong > 0);
}

/* Chunks that move at a flush, and whose old places get other chunks after it. */
TEST(a_reader_of_shared_chunks_sees_whole_frames)
{
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	gather = SHARED;
	told_to_wait = wrong = wrong_by_the_rule = right_by_the_rule = 0;
	for (unsigned at = 0; at < POINTS; at += 2)
		write_and_read(at);
	gather = 1;
	assert_int_equal(wrong_by_the_rule, 0);
	assert_int_equal(right_by_the_rule, (POINTS + 1) / 2 * (FRAMES - 1));
	assert_true(told_to_wait >= FRAMES - 1);
}

/* Until it is killed. A new file from time to time, as it gets longer. */
static void write_for_ever(void)
{
	for (;;) {
		struct sl_h5_layout layout = small_layout();
		struct sl_h5_file *file = frame_open(SLUICE_WRITER_REPLACE);
		struct sl_h5_dataset *set = frame_add(file, "u", &layout, NULL);

		for (uint64_t frame = 0; frame < 4000; frame++) {
			assert_int_equal(put(set, frame), 0);
			if (frame % 4 == 3)
				frame_flush(file);
		}
		frame_close(file);
	}
}

/* With STRESS as many frames as it takes to see several without the rule. */
static void read_beside_a_process(void)
{
	unsigned wanted = getenv("STRESS") ? 1500 : 20, tries = 0;
	pid_t writer;

	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	unlink(frame_path);
	writer = fork();
	if (!writer) {
		write_for_ever();
		_exit(1);
	}
	while (access(frame_path, F_OK))
		usleep(1000);
	assert_int_equal(sluice_frames_open(frame_path, &reader.frames), 0);
	wrong = wrong_by_the_rule = right_by_the_rule = 0;
	for (; right_by_the_rule < wanted; tries++) {
		assert_int_equal(sluice_frames_begin(reader.frames, -1), 0);
		begin_to_read(&reader);
		read_on(&reader);
	}
	sluice_frames_free(reader.frames);
	assert_int_equal(kill(writer, SIGKILL), 0);
	assert_int_equal(waitpid(writer, NULL, 0), writer);
	print_message(
		"%u of %u tries are by the rule, of 70 frames each; %u wrong, without it %u\n",
		right_by_the_rule, tries, wrong_by_the_rule, wrong);
	assert_int_equal(wrong_by_the_rule, 0);
}

TEST(a_reader_in_another_process_sees_whole_frames)
{
	read_beside_a_process();
	gather = SHARED;
	read_beside_a_process();
	gather = 1;
}

/* ------------------------------------------------------------------------------ who has written it */

static struct reader *the_reader(void)
{
	static struct reader r;

	sluice_frames_free(r.frames);
	r = (struct reader){0};
	assert_int_equal(sluice_frames_open(frame_path, &r.frames), 0);
	wrong_by_the_rule = right_by_the_rule = 0;
	return &r;
}

static int die_in_the_flush(unsigned point)
{
	sluice_frames *f;

	(void)point;
	if (sluice_frames_open(frame_path, &f) == 0 && sluice_frames_begin(f, 0) == -EAGAIN)
		raise(SIGKILL);
	return 0;
}

static void write_frames(unsigned flags, uint64_t first, uint64_t frames)
{
	struct sl_h5_layout layout = small_layout();
	struct sl_h5_file *file = frame_open(flags);
	struct sl_h5_dataset *set = frame_add(file, "u", &layout, NULL);

	for (uint64_t i = first; i < first + frames; i++)
		assert_int_equal(put(set, i), 0);
	frame_flush(file);
	if (first)
		points_hook = die_in_the_flush;
	assert_int_equal(put(set, first + frames), 0);
	frame_close(file);
}

TEST(a_writer_that_died_in_a_flush_keeps_nobody_waiting)
{
	struct sl_h5_layout layout = small_layout();
	struct sl_h5_file *file;
	struct reader *r;
	int status;
	pid_t child;

	write_frames(SLUICE_WRITER_REPLACE, 0, 100);
	child = fork();
	if (!child) {
		write_frames(SLUICE_WRITER_APPEND, 101, 1);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	r = the_reader();
	begin_to_read(r);
	read_on(r);
	assert_int_equal(right_by_the_rule, 1);
	/* The next writer ends what was left. */
	assert_int_equal(sluice_frames_begin(r->frames, 0), 0);
	file = frame_open(SLUICE_WRITER_APPEND);
	assert_int_equal(sluice_frames_check(r->frames), -EAGAIN);
	assert_int_equal(sluice_frames_begin(r->frames, 0), 0);
	frame_add(file, "u", &layout, NULL);
	frame_close(file);
}

TEST(a_file_of_another_program_is_read_while_nobody_writes_it)
{
	struct sl_h5_layout layout = small_layout();
	struct sl_h5_file *file;
	struct reader *r;
	struct timespec when[2] = {{0, UTIME_OMIT}, {1, 0}};

	H5Fclose(H5Fcreate(frame_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
	r = the_reader();
	assert_int_equal(sluice_frames_begin(r->frames, 0), 0);
	assert_int_equal(sluice_frames_check(r->frames), 0);
	assert_int_equal(utimensat(AT_FDCWD, frame_path, when, 0), 0);
	assert_int_equal(sluice_frames_check(r->frames), -EAGAIN);
	assert_int_equal(sluice_frames_begin(r->frames, 0), 0);
	file = frame_open(SLUICE_WRITER_APPEND);
	assert_int_equal(sluice_frames_check(r->frames), -EAGAIN);
	assert_int_equal(sluice_frames_begin(r->frames, 0), -ENOTSUP);
	frame_add(file, "u", &layout, NULL);
	frame_close(file);
	assert_int_equal(sluice_frames_begin(r->frames, 0), 0);
}

TEST(a_file_that_is_replaced_is_another_one)
{
	struct reader *r;

	write_frames(SLUICE_WRITER_REPLACE, 0, 3);
	r = the_reader();
	assert_int_equal(sluice_frames_begin(r->frames, 0), 0);
	write_frames(SLUICE_WRITER_REPLACE, 0, 5);
	assert_int_equal(sluice_frames_check(r->frames), -EAGAIN);
	begin_to_read(r);
	assert_int_equal(r->count, 6);
	read_on(r);
	assert_int_equal(right_by_the_rule, 1);
	sluice_frames_free(r->frames);
}

/* With an argument it is a writer for follow_h5py_test.py: of that file, until it is killed; with another one, of
 * chunks with several frames. */
int main(int argc, char **argv)
{
	if (argc > 1) {
		snprintf(frame_path, sizeof(frame_path), "%s", argv[1]);
		gather = argc > 2 ? SHARED : 1;
		write_for_ever();
	}
	return RUN_TESTS(frame_folder_make, frame_folder_remove);
}
