/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a writer whose process dies at any write: files that grow, get further datasets while others
 * may read, are continued, and are continued after such a death. Every run has a process of its own, so that
 * HDF5 begins anew; a tenth of the points, with STRESS all of them.
 */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "h5file/earliest.h"
#include "h5file/h5file.h"
#include "h5file/hdf5_read.h"
#include "h5file/points.h"
#include "lib/support.h"
#include "lib/unit.h"

enum {
	ROWS = 9,
	COLUMNS = 10,
	EDGE = 5,
	ELEMENTS = EDGE * EDGE,
	SERIES = 4,
	LAST = 36,
	FOREIGN = 7,
	MORE = 70
};

/* Memory that a run shares with the test. */
static struct told {
	volatile unsigned flushed[SERIES]; /* frames */
	volatile unsigned flushes;
	volatile unsigned more; /* datasets of more_name() */
	unsigned points, at;
} * told;
static char path[512], base[512];

/* -------------------------------------------------------------------------------------- series */

static const char *const names[SERIES] = {"fields/u", "v", "fields/deep/w", "all"};
static const char *const scalars[] = {"time", "step"}, *const dimensions[] = {"frame", "y", "x"};

/* So long that a block of texts is filled by a few of them. */
#define LONG_TEXT                                                                               \
	"a text of some length, as programs have them that put their settings into a file; it " \
	"is of no use to anyone but them, and says nothing of what the numbers beside it mean. "

/* Its frames are compressed, grow without compression, or lie in one piece. */
static struct sl_h5_layout layout_of(unsigned s)
{
	static const double numbers[] = {1, 2, 3};
	static const struct sluice_attribute attributes[] = {
		{.name = "text", .text = LONG_TEXT LONG_TEXT LONG_TEXT},
		{.name = "numbers", .numbers = numbers, .count = 3},
	};
	struct sl_h5_layout layout = {
		.type = SLUICE_FLOAT32,
		.element = 4,
		.rank = 2,
		.shape = {ROWS, COLUMNS},
		.chunk = {EDGE, EDGE},
		.level = 1,
		.codec = &sl_codec_none,
		.contiguous = s == 3,
		.frames = s == 3 ? LAST : 0,
		.scalars = scalars,
		.scalar_count = s % 3,
		.dimensions = s == 2 ? dimensions : NULL,
		.attributes = attributes,
		.attribute_count = 2,
	};

	if (s % 2 == 0 && sl_codec_find("deflate", 1, &layout.codec))
		abort();
	layout.shuffle = s == 0;
	return layout;
}

static float element(unsigned s, uint64_t frame, uint64_t y, uint64_t x)
{
	return y < ROWS && x < COLUMNS ? 1 + (frame * 8191 + y * 131 + x * 7 + s) % 65521 : 0;
}

/* --------------------------------------------------------------------------------------- write */

struct run {
	struct sl_h5_file *file;
	struct sl_h5_dataset *sets[SERIES];
	struct sl_h5_layout layouts[SERIES];
	uint64_t next[SERIES]; /* frame */
	bool raw;              /* chunks without compression, so that they have another length */
};

/* The encoder's state, which is large: one for each chunk would be most of the time of the test. NULL: no memory. */
static void *state_of(const struct sl_codec *codec)
{
	static const struct sl_codec *made_for;
	static void *state;

	if (made_for == codec)
		return state;
	if (made_for)
		made_for->state_free(state);
	made_for = codec->state_new(1, 1, ELEMENTS * sizeof(float), &state) ? NULL : codec;
	return made_for ? state : NULL;
}

static int store_chunk(struct run *run, unsigned s, uint64_t frame, uint64_t y, uint64_t x)
{
	const struct sl_h5_layout *layout = &run->layouts[s];
	struct sl_h5_dataset *set = run->sets[s];
	float values[ELEMENTS], shuffled[ELEMENTS];
	uint32_t mask = run->raw ? sl_h5_mask_codec(layout) : 0;
	uint64_t offset[] = {y, x};
	unsigned char packed[4096];
	size_t n = sizeof(values);
	void *state;

	for (unsigned i = 0; i < ELEMENTS; i++)
		values[i] = element(s, frame, y + i / EDGE, x + i % EDGE);
	if (layout->shuffle)
		sl_shuffle(values, n, 4, shuffled);
	else
		memcpy(shuffled, values, n);
	if (!layout->codec->filter || mask)
		return sl_h5_chunk_store(set, frame, offset, mask, shuffled, n);
	state = state_of(layout->codec);
	if (!state)
		return -ENOMEM;
	n = layout->codec->compress(state, shuffled, n, packed, sizeof(packed));
	return sl_h5_chunk_store(set, frame, offset, 0, packed, n);
}

static int write_directly(struct run *run, unsigned s, uint64_t frame)
{
	float values[ROWS][COLUMNS];
	uint64_t offset;
	int fd, err = sl_h5_dataset_offset(run->sets[s], &offset, &fd);

	for (unsigned y = 0; y < ROWS; y++)
		for (unsigned x = 0; x < COLUMNS; x++)
			values[y][x] = element(s, frame, y, x);
	if (!err && pwrite(fd, values, sizeof(values), offset + frame * sizeof(values)) < 0)
		err = -errno;
	return err;
}

static int store_frame(struct run *run, unsigned s)
{
	uint64_t frame = run->next[s]++;
	double values[] = {frame * 0.5, frame * 2.0};
	int err = 0;

	if (run->layouts[s].contiguous)
		err = write_directly(run, s, frame);
	else
		for (unsigned y = 0; !err && y < ROWS; y += EDGE)
			for (unsigned x = 0; !err && x < COLUMNS; x += EDGE)
				err = store_chunk(run, s, frame, y, x);
	return err ? err : sl_h5_frames_stored(run->sets[s], frame, 1, values, frame);
}

static void tell(const struct run *run)
{
	for (unsigned s = 0; s < SERIES; s++)
		if (run->sets[s])
			told->flushed[s] = run->next[s];
	told->flushes++;
}

/* Of the file or of a dataset; those that are there from before a death stay. */
static int add_late_attributes(struct run *run, unsigned frame)
{
	/* More than a block has; later texts come to the rest of the last. */
	static const char *const texts[] = {"",
	                                    LONG_TEXT LONG_TEXT LONG_TEXT,
	                                    "b",
	                                    LONG_TEXT,
	                                    LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT,
	                                    LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT,
	                                    LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT,
	                                    LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT,
	                                    LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT};
	const double numbers[4] = {frame};
	char name[32];
	const struct sluice_attribute late[] = {
		{.name = name, .text = LONG_TEXT},
		{.name = "texts", .texts = texts, .count = 9},
		{.name = "rows", .numbers = numbers, .count = 4, .columns = 2},
	};
	int err;

	snprintf(name, sizeof(name), "late %u", frame);
	err = sl_h5_attributes_give(run->file, frame % 2 ? run->sets[frame % SERIES] : NULL, late,
	                            frame == 5 ? 3 : 1);
	if (!err && told->flushes)
		tell(run);
	return err == -EEXIST ? 0 : err;
}
/* The next frame of a file that is continued; 0: behind its last. */
static unsigned goes_on_at;

static int add(struct run *run, unsigned s)
{
	struct sl_h5_set_options set = {.at = goes_on_at, .frame = goes_on_at};
	int err;

	run->layouts[s] = layout_of(s);
	err = sl_h5_dataset_add(run->file, names[s], &run->layouts[s], &set, &run->sets[s],
	                        &run->next[s]);
	if (!err && told->flushes)
		tell(run);
	return err;
}

static unsigned series_count = SERIES;

/* Frames up to last, with a flush after every third; the series s comes with frame s * 4. */
static int write_frames(struct run *run, bool all_at_once, unsigned last)
{
	int err = 0;

	for (unsigned frame = 0; !err && frame < last; frame++) {
		for (unsigned s = 0; !err && s < series_count; s++) {
			if (!run->sets[s] && (all_at_once || frame >= s * 4))
				err = add(run, s);
			if (!err && run->sets[s] && run->next[s] < last)
				err = store_frame(run, s);
		}
		if (!err)
			err = add_late_attributes(run, frame);
		if (err || frame % 3 != 2)
			continue;
		err = sl_h5_file_flush(run->file);
		if (!err)
			tell(run);
	}
	return err;
}

/* A part of the next frame is stored, and is left out when the file is closed. */
static bool leaves_parts;

static int store_parts(struct run *run)
{
	int err = 0;

	for (unsigned s = 0; !err && leaves_parts && s < 3; s++)
		err = store_chunk(run, s, run->next[s], 0, 0);
	return err;
}

static bool try_again(void *argument, int error)
{
	(void)argument;
	return error == -ENOSPC;
}

static int write_file(unsigned flags, bool all_at_once, unsigned last, bool raw)
{
	static const int64_t run_number = 7;
	const struct sluice_attribute attributes[] = {
		{.name = "title", .text = "a title"},
		{.name = "run", .integers = &run_number, .count = 1},
		{.name = flags & SLUICE_WRITER_APPEND ? "more" : "first", .text = "more of it"},
	};
	struct sl_h5_file_options o = {
		.flags = flags, .attributes = attributes, .attribute_count = 3, .full = try_again};
	struct run run = {.raw = raw};
	int err = sl_h5_file_open(path, &o, &run.file);

	if (err)
		return err;
	err = write_frames(&run, all_at_once, last);
	if (!err)
		err = store_parts(&run);
	if (err)
		sl_h5_file_close(run.file, false);
	else
		err = sl_h5_file_close(run.file, true);
	if (!err)
		tell(&run);
	return err;
}

/* Names that fill the place of a group's names several times, in steps of other lengths. */
static void more_name(unsigned i, char out[300])
{
	snprintf(out, 300, "%s%0*u", i % 3 ? "" : "fields/", 20 + (int)(i * 37 % 230), i);
}

/* Each sixth of them is a virtual dataset: lists of sources beside texts, longer than a page and shorter. */
static size_t more_sources(unsigned i, struct sl_h5_source *sources)
{
	size_t count = i % 6 ? 0 : i % 12 ? ROWS * COLUMNS : 2;

	for (size_t n = 0; n < count; n++)
		sources[n] = (struct sl_h5_source){.file = n % 2 ? "one" : "other",
		                                   .start = {n / COLUMNS, n % COLUMNS},
		                                   .count = {1, 1}};
	return count;
}

static int write_names(void)
{
	const struct sluice_attribute late[] = {{.name = "late", .text = LONG_TEXT}};
	struct sl_h5_file_options o = {.flags = SLUICE_WRITER_APPEND};
	struct run run = {0};
	int err = sl_h5_file_open(path, &o, &run.file);

	for (unsigned i = 0; !err && i < MORE; i++) {
		struct sl_h5_source sources[ROWS * COLUMNS];
		struct sl_h5_layout layout = layout_of(1);
		struct sl_h5_set_options set = {0};
		struct sl_h5_dataset *added;
		uint64_t first;
		char name[300];

		layout.source_count = more_sources(i, sources);
		layout.sources = layout.source_count ? sources : NULL;
		layout.attribute_count = layout.source_count ? 2 : 0;
		layout.scalar_count = 0;
		more_name(i, name);
		err = sl_h5_dataset_add(run.file, name, &layout, &set, &added, &first);
		told->more += !err;
		/* A text that comes when the list is the last of the file. */
		if (!err && layout.sources)
			err = sl_h5_attributes_give(run.file, added, late, 1);
		err = err == -EEXIST ? 0 : err;
	}
	return err ? err : sl_h5_file_close(run.file, true);
}

/* ---------------------------------------------------------------------------------------- look */

static bool sources_are_right(hid_t set, unsigned i)
{
	struct sl_h5_source sources[ROWS * COLUMNS];
	size_t wanted = more_sources(i, sources), count = 0;
	hid_t list, attribute, type;
	char *text = NULL, file[16] = "";
	bool right;

	if (!wanted)
		return true;
	list = H5Dget_create_plist(set);
	attribute = H5Aopen(set, "text", H5P_DEFAULT);
	type = H5Aget_type(attribute);
	right = H5Pget_virtual_count(list, &count) >= 0 && count == wanted &&
	        H5Aread(attribute, type, &text) >= 0 &&
	        !strcmp(text, LONG_TEXT LONG_TEXT LONG_TEXT);
	for (size_t n = 0; right && n < wanted; n++)
		right = H5Pget_virtual_filename(list, n, file, sizeof(file)) >= 0 &&
		        !strcmp(file, sources[n].file);
	free(text);
	H5Tclose(type);
	H5Aclose(attribute);
	H5Pclose(list);
	return right;
}

/* Datasets that were added, and those that may have been. */
static bool names_are_right(hid_t file)
{
	for (unsigned i = 0; i < MORE; i++) {
		char name[300];
		hid_t set;

		more_name(i, name);
		set = H5Dopen2(file, name, H5P_DEFAULT);
		if (i < told->more && (set < 0 || !sources_are_right(set, i)))
			return false;
		H5Dclose(set);
	}
	return true;
}

static bool companion_is_right(hid_t file, unsigned s, unsigned i, hsize_t frames)
{
	double values[LAST + 8];
	char name[64];
	hid_t set, space;
	hsize_t extent = 0;
	bool right;

	snprintf(name, sizeof(name), "%s_%s", names[s], scalars[i]);
	set = H5Dopen2(file, name, H5P_DEFAULT);
	space = H5Dget_space(set);
	right = H5Sget_simple_extent_dims(space, &extent, NULL) == 1 && extent >= frames &&
	        extent <= LAST &&
	        H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
	for (hsize_t frame = 0; right && frame < frames; frame++)
		right = values[frame] == frame * (i ? 2 : 0.5) || isnan(values[frame]);
	H5Sclose(space);
	H5Dclose(set);
	return right;
}

static bool series_is_right(hid_t file, unsigned s, unsigned flushed)
{
	float all[LAST][ROWS][COLUMNS];
	hid_t set = H5Dopen2(file, names[s], H5P_DEFAULT);
	hsize_t frames = set < 0 ? 0 : hdf5_frames(set);
	bool right = frames >= flushed && frames <= LAST;

	if (set < 0)
		return !flushed;
	right = right && H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0;
	for (hsize_t frame = 0; right && frame < frames; frame++)
		for (unsigned y = 0; right && y < ROWS; y++)
			for (unsigned x = 0; right && x < COLUMNS; x++)
				right = all[frame][y][x] == element(s, frame, y, x);
	for (unsigned i = 0; right && i < s % 3; i++)
		right = companion_is_right(file, s, i, frames);
	H5Dclose(set);
	return right;
}

static herr_t read_attribute(hid_t object, const char *name, const H5A_info_t *info, void *argument)
{
	hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(attribute);
	hid_t native = H5Tget_native_type(type, H5T_DIR_ASCEND), space = H5Aget_space(attribute);
	char value[128];
	herr_t done = H5Aread(attribute, native, value);

	(void)info, (void)argument;
	if (done >= 0 && H5Tis_variable_str(type) > 0)
		H5Dvlen_reclaim(native, space, H5P_DEFAULT, value);
	H5Sclose(space);
	H5Tclose(native);
	H5Tclose(type);
	H5Aclose(attribute);
	return done < 0 ? -1 : 0;
}

static herr_t read_attributes(hid_t file, const char *name, const H5O_info_t *info, void *argument)
{
	hid_t object = H5Oopen(file, name, H5P_DEFAULT);
	herr_t done =
		H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, read_attribute, argument);

	(void)info;
	H5Oclose(object);
	return done;
}

/* Everything in the file can be read, whether it was flushed or not. */
static int look(const void *argument)
{
	hid_t file;
	bool right;

	(void)argument;
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	if (file < 0)
		return told->flushes || access(path, F_OK) == 0 ? 100 : 0;
	right = H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, read_attributes, NULL,
	                  H5O_INFO_BASIC) >= 0;
	if (!right)
		return 101;
	for (unsigned s = 0; s < SERIES; s++)
		if (!series_is_right(file, s, told->flushed[s]))
			return 110 + (int)s;
	if (!names_are_right(file))
		return 102;
	H5Fclose(file);
	return 0;
}

/* ----------------------------------------------------------------------------------- processes */

static int end_of(pid_t process)
{
	int status;

	assert_true(process > 0);
	while (waitpid(process, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return status;
}

static int die(unsigned point)
{
	told->points = point;
	if (point == told->at)
		kill(getpid(), SIGKILL);
	return 0;
}

/* The disk is full for a moment. */
static int fail_once(unsigned point)
{
	told->points = point;
	return point == told->at ? ENOSPC : 0;
}
static bool fails;

/* What a process does; dies at a point, 0: at none. Returns whether it lived. */
static bool run(int (*write)(void), unsigned at)
{
	pid_t process;
	int status;

	told->at = at;
	told->points = 0;
	process = fork();
	if (process == 0) {
		int err;

		alarm(60);
		points_hook = fails ? fail_once : die;
		err = write();
		points_hook = NULL;
		if (err)
			print_message("%s\n", sluice_last_message());
		_exit(err != 0);
	}
	status = end_of(process);
	if (!at)
		assert_int_equal(status, 0);
	else if (!WIFEXITED(status))
		assert_int_equal(WTERMSIG(status), SIGKILL);
	return WIFEXITED(status);
}

static void copy(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out;
	static char bytes[1 << 20];
	ssize_t n = read(in, bytes, sizeof(bytes));

	out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_in_range(n, 1, sizeof(bytes) - 1);
	assert_int_equal(write(out, bytes, n), n);
	close(in);
	close(out);
}

/* What was told when the base was written is true again. */
static struct told before;

static void set_out(bool from_base)
{
	unlink(path);
	*told = (struct told){0};
	if (from_base) {
		copy(base, path);
		*told = before;
	}
}

/* A kill would tear a longer block, but for that of a single text, which is written once. */
static void assert_texts_lie_in_pages(void)
{
	static uint8_t bytes[1 << 20];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, bytes, sizeof(bytes));

	close(fd);
	assert_in_range(n, 1, sizeof(bytes) - 1);
	for (ssize_t at = 0; at + 40 < n; at += 8) {
		uint64_t block, first;

		if (memcmp(bytes + at, "GCOL\1", 5))
			continue;
		memcpy(&block, bytes + at + 8, sizeof(block));
		memcpy(&first, bytes + at + 24, sizeof(first));
		assert_true(block <= 4096 || block - first < 48);
	}
}

static void kill_everywhere(const char *what, int (*write)(void), bool from_base)
{
	unsigned points, step, runs = 0, bad = 0;
	uint64_t seed = unit_seed();

	set_out(from_base);
	run(write, 0);
	points = told->points;
	assert_int_equal(hdf5_look_apart(look, NULL), 0);
	assert_texts_lie_in_pages();
	step = getenv("STRESS") ? 1 : SL_MAX(points / (under_sanitizer() ? 12 : 30), 1u);
	for (unsigned at = 1 + unit_random(&seed) % step; at <= points; at += step, runs++) {
		int sight;

		set_out(from_base);
		assert_false(run(write, at));
		sight = hdf5_look_apart(look, NULL);
		if (sight && !bad++)
			print_message("point %u: %d\n", at, sight);
	}
	print_message("%-20s %u points, %u deaths, %u files that are not right\n", what, points,
	              runs, bad);
	assert_int_equal(bad, 0);
}

/* --------------------------------------------------------------------------------------- cases */

static int write_new(void)
{
	return write_file(0, true, LAST, false);
}

static int write_growing(void)
{
	return write_file(0, false, LAST, false);
}

static int write_first_half(void)
{
	return write_file(0, true, LAST / 2, false);
}

static int write_rest(void)
{
	return write_file(SLUICE_WRITER_APPEND, true, LAST, false);
}

static int write_rest_raw(void)
{
	return write_file(SLUICE_WRITER_APPEND, true, LAST, true);
}

static int write_back(void)
{
	for (unsigned s = 0; s < SERIES; s++)
		told->flushed[s] = goes_on_at;
	return write_file(SLUICE_WRITER_APPEND, true, LAST, true);
}

static int write_two_only(void)
{
	return write_file(0, false, 5, false);
}

static void make_base(int (*write)(void))
{
	set_out(false);
	run(write, 0);
	before = *told;
	copy(path, base);
}

TEST(a_new_file_has_what_was_flushed)
{
	kill_everywhere("new", write_new, false);
}

TEST(datasets_are_added_while_others_may_read)
{
	kill_everywhere("growing", write_growing, false);
}

TEST(a_file_that_is_continued_keeps_what_it_had)
{
	make_base(write_first_half);
	kill_everywhere("continued", write_rest, true);
	make_base(write_two_only);
	kill_everywhere("continued with more", write_rest, true);
}

/* Bytes that shift what comes behind them. */
static hsize_t before_it;

/* By a program that knows nothing of this one. */
static int write_foreign(void)
{
	hsize_t chunk[] = {1, EDGE, EDGE}, extent[] = {FOREIGN, ROWS, COLUMNS},
		most[] = {H5S_UNLIMITED, ROWS, COLUMNS};
	float all[FOREIGN][ROWS][COLUMNS];
	hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, hdf5_earliest());
	hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(3, extent, most), set;
	hid_t early = H5Pcreate(H5P_DATASET_CREATE), bytes = H5Screate_simple(1, &before_it, NULL);

	H5Pset_alloc_time(early, H5D_ALLOC_TIME_EARLY);
	H5Dclose(H5Dcreate2(file, "b", H5T_NATIVE_UCHAR, bytes, H5P_DEFAULT, early, H5P_DEFAULT));
	H5Sclose(bytes);
	H5Pclose(early);
	H5Pset_chunk(list, 3, chunk);
	H5Pset_deflate(list, 4);
	H5Gclose(H5Gcreate2(file, "fields", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	set = H5Dcreate2(file, names[0], H5T_NATIVE_FLOAT, space, H5P_DEFAULT, list, H5P_DEFAULT);
	for (unsigned i = 0; i < FOREIGN * ROWS * COLUMNS; i++)
		((float *)all)[i] =
			element(0, i / (ROWS * COLUMNS), i / COLUMNS % ROWS, i % COLUMNS);
	H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
	told->flushed[0] = FOREIGN;
	told->flushes = 1;
	H5Dclose(set);
	H5Sclose(space);
	H5Pclose(list);
	H5Fclose(file);
	H5close();
	return 0;
}

TEST(a_file_that_others_made_keeps_what_it_had)
{
	for (before_it = 8; before_it < 4096; before_it += getenv("STRESS") ? 560 : 2000) {
		make_base(write_foreign);
		kill_everywhere("made by others", write_rest, true);
	}
}

static int write_parts(void)
{
	return write_file(0, false, LAST - 2, false);
}

TEST(frames_that_are_stored_in_part_are_left_out)
{
	leaves_parts = true;
	kill_everywhere("parts", write_parts, false);
	leaves_parts = false;
}

TEST(a_disk_that_is_full_for_a_moment_costs_nothing)
{
	unsigned points, step;

	series_count = 3;
	set_out(false);
	run(write_growing, 0);
	points = told->points;
	step = getenv("STRESS") ? 1 : points / 30;
	fails = true;
	/* The first makes a new file empty, which takes no room. */
	for (unsigned at = 2; at <= points; at += step) {
		set_out(false);
		assert_true(run(write_growing, at));
		assert_int_equal(told->flushed[0], LAST);
		assert_int_equal(hdf5_look_apart(look, NULL), 0);
	}
	fails = false;
	series_count = SERIES;
}

/* Other chunks come to places that those of frames had which were given up. */
TEST(frames_that_are_given_up_are_replaced)
{
	make_base(write_new);
	goes_on_at = 11;
	kill_everywhere("going back", write_back, true);
	goes_on_at = 0;
}

TEST(groups_get_more_names_than_they_have_room_for)
{
	before_it = 8;
	make_base(write_foreign);
	kill_everywhere("names of a file made by others", write_names, true);
	make_base(write_two_only);
	kill_everywhere("names", write_names, true);
}

/* Chunks that were never seen are there when it is continued, with another length. */
TEST(a_death_can_follow_a_death)
{
	unsigned rounds = getenv("STRESS") ? 400 : under_sanitizer() ? 8 : 20, deaths = 0;
	uint64_t seed = unit_seed();

	for (unsigned round = 0; round < rounds; round++) {
		bool lived = false;

		set_out(false);
		for (unsigned i = 0; !lived && i < 5; i++) {
			unsigned at = i < 4 ? 1 + unit_random(&seed) % 900 : 0;

			lived = run(i % 2 ? write_rest_raw : write_rest, at);
			deaths += !lived;
			assert_int_equal(hdf5_look_apart(look, NULL), 0);
		}
		assert_int_equal(told->flushed[0], LAST);
	}
	print_message("%u deaths in %u files\n", deaths, rounds);
	assert_in_range(deaths, rounds, 4 * rounds);
}

int main(void)
{
	const char *folder = getenv("SLUICE_TEST_DIR");
	const struct sl_codec *deflate;
	int failed;

	if (sl_codec_find("deflate", 1, &deflate)) {
		print_message("skipped: %s\n", sluice_last_message());
		return 77;
	}
	snprintf(path, sizeof(path), "%.400s/kill-%d.h5", folder ? folder : ".", (int)getpid());
	snprintf(base, sizeof(base), "%.500s.base", path);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(told != MAP_FAILED);
	/* For all processes that are made from here on. */
	assert_non_null(state_of(deflate));
	failed = RUN_TESTS(NULL, NULL);
	unlink(path);
	unlink(base);
	return failed;
}
