/* SPDX-License-Identifier: Apache-2.0 */
/* The HDF5 file of a writer, read back by HDF5 itself with its own filters. */
#include "h5file/frame_common.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------ contents */

static const char *const codecs[] = {"none", "deflate", "zstd", "lz4"};

static bool has_codec(const char *name)
{
	const struct sl_codec *codec;

	return sl_codec_find(name, 1, &codec) == 0;
}

static const struct {
	enum sluice_type type;
	size_t element;
} types[] = {
	{SLUICE_INT8, 1},    {SLUICE_UINT8, 1},   {SLUICE_INT16, 2},   {SLUICE_UINT16, 2},
	{SLUICE_INT32, 4},   {SLUICE_UINT32, 4},  {SLUICE_INT64, 8},   {SLUICE_UINT64, 8},
	{SLUICE_FLOAT16, 2}, {SLUICE_FLOAT32, 4}, {SLUICE_FLOAT64, 8},
};

/* Of up to a few hundred elements, with chunks that do not divide it. */
static struct sl_h5_layout any_layout(uint64_t *seed)
{
	const char *codec;
	struct sl_h5_layout layout;
	unsigned type = unit_random(seed) % COUNT_OF(types);

	do
		codec = codecs[unit_random(seed) % COUNT_OF(codecs)];
	while (!has_codec(codec));
	layout = frame_layout(codec, 1, unit_random(seed) % 2);
	layout.type = types[type].type;
	layout.element = types[type].element;
	layout.rank = 1 + unit_random(seed) % SLUICE_FRAME_RANK_MOST;
	for (unsigned i = 0; i < layout.rank; i++) {
		layout.shape[i] = 1 + unit_random(seed) % (layout.rank > 2 ? 7 : 23);
		layout.chunk[i] = 1 + unit_random(seed) % layout.shape[i];
	}
	layout.frames = unit_random(seed) % 3 ? 0 : 9;
	layout.contiguous = layout.frames && !layout.codec->filter && !layout.shuffle;
	return layout;
}

static void write_any(struct sl_h5_layout *layout, uint64_t frames, uint64_t again)
{
	struct sl_h5_file *file = frame_open(0);
	struct sl_h5_dataset *dataset = frame_add(file, "fields/u", layout, NULL);
	enum frame_masks masks =
		layout->codec->filter == H5Z_FILTER_DEFLATE ? MASKS_MIXED : MASKS_NONE;
	uint64_t first;

	for (uint64_t frame = 0; frame < frames; frame++) {
		assert_int_equal(frame_store(dataset, layout, frame, NULL, masks), 0);
		if (frame % 3 == 2)
			frame_flush(file);
	}
	frame_close(file);
	file = frame_open(SLUICE_WRITER_APPEND);
	dataset = frame_add(file, "fields/u", layout, &first);
	assert_int_equal(first, frames);
	for (uint64_t frame = frames; frame < frames + again; frame++)
		assert_int_equal(frame_store(dataset, layout, frame, NULL, masks), 0);
	frame_close(file);
}

TEST(frames_of_any_kind_come_back)
{
	uint64_t seed = unit_seed();

	for (unsigned i = 0; i < (under_sanitizer() ? 60 : 300); i++) {
		struct sl_h5_layout layout = any_layout(&seed);
		uint64_t frames = unit_random(&seed) % 6, again = unit_random(&seed) % 4;

		unlink(frame_path);
		write_any(&layout, frames, again);
		frame_check("/fields/u", &layout, frames + again);
	}
}

TEST(filters_are_in_the_file_as_declared)
{
	for (unsigned i = 0; i < 2 * COUNT_OF(codecs); i++) {
		struct sl_h5_layout layout;
		struct sl_h5_file *file;
		hid_t id, set, list;
		unsigned values[4], flags, expected[SL_CODEC_VALUES];
		size_t count = 4;
		int shuffle = i % 2;

		if (!has_codec(codecs[i / 2]))
			continue;
		layout = frame_layout(codecs[i / 2], 1, shuffle);
		unlink(frame_path);
		file = frame_open(0);
		frame_put(frame_add(file, "u", &layout, NULL), &layout, 0, NULL);
		frame_close(file);
		id = H5Fopen(frame_path, H5F_ACC_RDONLY, H5P_DEFAULT);
		set = H5Dopen2(id, "u", H5P_DEFAULT);
		list = H5Dget_create_plist(set);
		assert_int_equal(H5Pget_nfilters(list), shuffle + (layout.codec->filter != 0));
		if (shuffle)
			assert_int_equal(
				H5Pget_filter2(list, 0, &flags, &count, values, 0, NULL, NULL),
				H5Z_FILTER_SHUFFLE);
		count = 4;
		if (layout.codec->filter) {
			assert_int_equal(H5Pget_filter2(list, shuffle, &flags, &count, values, 0,
			                                NULL, NULL),
			                 layout.codec->filter);
			assert_int_equal(count, layout.codec->client_data(1, 4, expected));
			assert_int_equal(values[0], expected[0]);
		}
		H5Pclose(list);
		H5Dclose(set);
		H5Fclose(id);
	}
}

/* A plugin of zstd: what it sets is not what the writer has set. */
static size_t never_filter(unsigned flags, size_t count, const unsigned *values, size_t n,
                           size_t *size, void **bytes)
{
	(void)flags, (void)count, (void)values, (void)n, (void)size, (void)bytes;
	return 0;
}

static herr_t set_own_values(hid_t list, hid_t type, hid_t space)
{
	unsigned values[] = {7, 42};

	(void)type, (void)space;
	return H5Pmodify_filter(list, 32015, H5Z_FLAG_OPTIONAL, 2, values);
}

TEST(a_filter_that_is_loaded_may_set_values_of_its_own)
{
	const H5Z_class2_t plugin = {
		.version = H5Z_CLASS_T_VERS,
		.id = 32015,
		.encoder_present = 1,
		.decoder_present = 1,
		.name = "zstd",
		.set_local = set_own_values,
		.filter = never_filter,
	};
	struct sl_h5_layout layout, asked;
	struct sl_h5_file *file;
	uint64_t first;

	if (!has_codec("zstd")) {
		print_message("skipped: zstd is not built in\n");
		skip();
	}
	layout = asked = frame_layout("zstd", 1, true);
	unlink(frame_path);
	assert_true(H5Zregister(&plugin) >= 0);
	file = frame_open(0);
	frame_put(frame_add(file, "u", &layout, NULL), &layout, 0, NULL);
	frame_close(file);
	file = frame_open(SLUICE_WRITER_APPEND);
	frame_put(frame_add(file, "u", &asked, &first), &layout, 1, NULL);
	assert_int_equal(first, 1);
	assert_int_equal(asked.level, 7);
	frame_close(file);
	assert_true(H5Zunregister(32015) >= 0);
	frame_check("u", &layout, 2);
}

/* -------------------------------------------------------------------------------- what is beside */

TEST(a_companion_has_a_number_for_each_frame)
{
	static const char *const names[] = {"time", "step"}, *const more[] = {"step", "energy"};
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	enum { FRAMES = 1100 }; /* more than are kept, and than a chunk has */
	double time[FRAMES], step[FRAMES + 1], energy[FRAMES + 1], last[] = {-1, -2};
	struct sl_h5_file *file;
	struct sl_h5_dataset *dataset;
	uint64_t first;

	layout.rank = 1;
	layout.shape[0] = layout.chunk[0] = 3;
	layout.scalars = names;
	layout.scalar_count = 2;
	unlink(frame_path);
	file = frame_open(0);
	dataset = frame_add(file, "/a/u", &layout, NULL);
	for (unsigned frame = 0; frame < FRAMES; frame++) {
		double values[] = {time[frame] = frame * 0.25, step[frame] = frame};

		frame_put(dataset, &layout, frame, values);
		energy[frame] = NAN;
		if (frame % 333 == 5)
			frame_flush(file);
	}
	frame_close(file);
	companion_check("/a/u_time", time, FRAMES);
	companion_check("/a/u_step", step, FRAMES);

	layout.scalars = more;
	file = frame_open(SLUICE_WRITER_APPEND);
	dataset = frame_add(file, "/a/u", &layout, &first);
	assert_int_equal(first, FRAMES);
	step[FRAMES] = last[0];
	energy[FRAMES] = last[1];
	frame_put(dataset, &layout, FRAMES, last);
	frame_close(file);
	companion_check("/a/u_time", time, FRAMES);
	companion_check("/a/u_step", step, FRAMES + 1);
	companion_check("/a/u_energy", energy, FRAMES + 1);
	frame_check("/a/u", &layout, FRAMES + 1);
}

static double number_of(const char *object, const char *name)
{
	hid_t file = H5Fopen(frame_path, H5F_ACC_RDONLY, H5P_DEFAULT);
	hid_t attribute = H5Aopen_by_name(file, object, name, H5P_DEFAULT, H5P_DEFAULT);
	double value = NAN;

	assert_true(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) >= 0);
	H5Aclose(attribute);
	H5Fclose(file);
	return value;
}

TEST(names_of_attributes_have_their_character_set)
{
	const double number = 1;
	const struct sluice_attribute attributes[] = {
		{.name = "gr\xc3\xb6\xc3\x9f"
	                 "e",
	         .numbers = &number,
	         .count = 1},
		{.name = "size", .numbers = &number, .count = 1},
	};
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_file *file;
	hid_t read;

	unlink(frame_path);
	layout.attributes = attributes;
	layout.attribute_count = 2;
	file = frame_open(0);
	frame_add(file, "u", &layout, NULL);
	frame_close(file);
	read = H5Fopen(frame_path, H5F_ACC_RDONLY, H5P_DEFAULT);
	for (unsigned i = 0; i < 2; i++) {
		H5A_info_t info;

		assert_true(H5Aget_info_by_name(read, "u", attributes[i].name, &info,
		                                H5P_DEFAULT) >= 0);
		assert_int_equal(info.cset, i ? H5T_CSET_ASCII : H5T_CSET_UTF8);
	}
	H5Fclose(read);
}

TEST(the_largest_error_is_that_of_the_last_flush)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true), asked = layout;
	struct sl_h5_file *file;
	struct sl_h5_dataset *dataset;

	unlink(frame_path);
	layout.precision = 7;
	file = frame_open(0);
	dataset = frame_add(file, "u", &layout, NULL);
	assert_int_equal(sl_h5_frames_stored(dataset, 0, 1, NULL, 0.5), 0);
	assert_int_equal(sl_h5_frames_stored(dataset, 1, 1, NULL, 0.25), 0);
	frame_flush(file);
	assert_true(number_of("u", "sluice_max_error") == 0.5);
	assert_true(number_of("u", "sluice_precision") == 7);
	assert_int_equal(sl_h5_frames_stored(dataset, 2, 1, NULL, 2), 0);
	assert_true(number_of("u", "sluice_max_error") == 0.5);
	frame_close(file);
	assert_true(number_of("u", "sluice_max_error") == 2);

	file = frame_open(SLUICE_WRITER_APPEND);
	dataset = frame_add(file, "u", &asked, NULL);
	assert_int_equal(asked.precision, 7);
	assert_int_equal(sl_h5_frames_stored(dataset, 3, 1, NULL, 1), 0);
	frame_close(file);
	assert_true(number_of("u", "sluice_max_error") == 2);
}

TEST(a_dataset_that_is_dropped_can_be_added_again)
{
	struct sl_h5_layout layouts[] = {frame_layout("deflate", 1, true),
	                                 frame_layout("none", 1, false)};

	layouts[1].contiguous = true;
	layouts[1].frames = 3;
	for (size_t i = 0; i < COUNT_OF(layouts); i++) {
		struct sl_h5_layout *layout = &layouts[i];
		struct sl_h5_file *file;
		struct sl_h5_dataset *dataset;
		uint64_t first;

		unlink(frame_path);
		file = frame_open(0);
		sl_h5_dataset_forget(frame_add(file, "g/u", layout, NULL));
		frame_flush(file);
		sl_h5_dataset_forget(frame_add(file, "g/u", layout, NULL));
		dataset = frame_add(file, "g/u", layout, &first);
		assert_int_equal(first, 0);
		if (!i)
			frame_put(dataset, layout, 0, NULL);
		frame_close(file);
		if (!i)
			frame_check("/g/u", layout, 1);
	}
}

TEST(a_contiguous_dataset_says_how_far_it_is)
{
	struct sl_h5_layout layout = frame_layout("none", 1, false), asked = layout;
	struct sl_h5_file *file;
	struct sl_h5_dataset *dataset;
	uint64_t first, offset;
	int fd;

	unlink(frame_path);
	layout.contiguous = true;
	layout.frames = 5;
	file = frame_open(0);
	dataset = frame_add(file, "u", &layout, NULL);
	assert_int_equal(sl_h5_dataset_offset(dataset, &offset, &fd), 0);
	assert_int_equal(offset % 4096, 0);
	frame_put(dataset, &layout, 0, NULL);
	frame_put(dataset, &layout, 1, NULL);
	frame_flush(file);
	assert_true(number_of("u", "sluice_frames") == 2);
	frame_put(dataset, &layout, 2, NULL);
	assert_int_equal(sl_h5_file_close(file, false), 0);
	assert_true(number_of("u", "sluice_frames") == 2);

	file = frame_open(SLUICE_WRITER_APPEND);
	dataset = frame_add(file, "u", &asked, &first);
	assert_int_equal(first, 2);
	assert_true(asked.contiguous);
	assert_int_equal(asked.frames, 5);
	for (unsigned frame = 2; frame < 5; frame++)
		frame_put(dataset, &asked, frame, NULL);
	frame_close(file);
	assert_true(number_of("u", "sluice_frames") == 5);
	frame_check("u", &layout, 5);
}

/* ---------------------------------------------------------------------------------------- files */

TEST(a_new_file_appears_with_its_first_flush)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_file *file;
	struct sl_h5_dataset *dataset;

	unlink(frame_path);
	file = frame_open(SLUICE_WRITER_DURABLE);
	dataset = frame_add(file, "u", &layout, NULL);
	frame_put(dataset, &layout, 0, NULL);
	assert_int_equal(access(frame_path, F_OK), -1);
	frame_flush(file);
	frame_check("u", &layout, 1);
	frame_put(dataset, &layout, 1, NULL);
	assert_int_equal(sl_h5_file_close(file, false), 0);
	frame_check("u", &layout, 1);

	unlink(frame_path);
	file = frame_open(0);
	frame_put(frame_add(file, "u", &layout, NULL), &layout, 0, NULL);
	assert_int_equal(sl_h5_file_close(file, false), 0);
}

TEST(frames_of_one_number_that_are_not_flushed_are_dropped)
{
	struct sl_h5_layout layout = frame_layout("none", 0, false);
	struct sl_h5_file *file;
	struct sl_h5_dataset *dataset;

	layout.single = true;
	layout.rank = 1;
	layout.shape[0] = layout.chunk[0] = 1;
	unlink(frame_path);
	file = frame_open(0);
	dataset = frame_add(file, "u", &layout, NULL);
	frame_put(dataset, &layout, 0, NULL);
	frame_flush(file);
	/* HDF5 writes the header while it closes the file. */
	frame_put(dataset, &layout, 1, NULL);
	assert_int_equal(sl_h5_file_close(file, false), 0);
	layout.rank = 0;
	frame_check("u", &layout, 1);
}

TEST(a_file_is_replaced_whole_and_keeps_its_permissions)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_file *file;
	struct stat status;

	unlink(frame_path);
	file = frame_open(0);
	frame_put(frame_add(file, "old", &layout, NULL), &layout, 0, NULL);
	frame_close(file);
	assert_int_equal(chmod(frame_path, 0640), 0);
	file = frame_open(SLUICE_WRITER_REPLACE);
	frame_put(frame_add(file, "new", &layout, NULL), &layout, 0, NULL);
	frame_check("old", &layout, 1);
	frame_close(file);
	frame_check("new", &layout, 1);
	assert_int_equal(stat(frame_path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0640);
}

/* Its own lock is let go with it, and its memory of datasets. */
TEST(a_path_may_be_a_link_or_relative)
{
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	struct sl_h5_file_options o = {0};
	struct sl_h5_file *file;
	char old[512], real[600];

	unlink(frame_path);
	snprintf(real, sizeof(real), "%s/real.h5", frame_folder);
	assert_int_equal(symlink("real.h5", frame_path), 0);
	file = NULL;
	assert_int_equal(sl_h5_file_open(real, &o, &file), 0);
	frame_close(file);
	file = frame_open(SLUICE_WRITER_APPEND);
	frame_put(frame_add(file, "u", &layout, NULL), &layout, 0, NULL);
	frame_close(file);
	frame_check("u", &layout, 1);
	unlink(frame_path);
	unlink(real);

	assert_non_null(getcwd(old, sizeof(old)));
	assert_int_equal(chdir(frame_folder), 0);
	assert_int_equal(sl_h5_file_open("file.h5", &o, &file), 0);
	assert_int_equal(chdir("/"), 0);
	frame_put(frame_add(file, "u", &layout, NULL), &layout, 0, NULL);
	frame_close(file);
	assert_int_equal(chdir(old), 0);
	frame_check("u", &layout, 1);
}

TEST(names_and_groups_go_on_with_what_is_there)
{
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	char name[1000] = "";
	struct sl_h5_file *file;

	unlink(frame_path);
	memset(name, 'n', sizeof(name) - 1);
	file = frame_open(0);
	frame_put(frame_add(file, name, &layout, NULL), &layout, 0, NULL);
	frame_put(frame_add(file, "/a/b/c/d", &layout, NULL), &layout, 0, NULL);
	frame_flush(file);
	frame_put(frame_add(file, "a/b/e", &layout, NULL), &layout, 0, NULL);
	frame_close(file);
	file = frame_open(SLUICE_WRITER_APPEND);
	frame_put(frame_add(file, "a/f", &layout, NULL), &layout, 0, NULL);
	frame_put(frame_add(file, "a/b/c/d", &layout, NULL), &layout, 1, NULL);
	frame_close(file);
	frame_check(name, &layout, 1);
	frame_check("/a/b/c/d", &layout, 2);
	frame_check("/a/b/e", &layout, 1);
	frame_check("/a/f", &layout, 1);
}

/* -------------------------------------------------------------------------------------- places */

/* A frame that is a single chunk, written by somebody else to a place that the file gives. */
static void write_to_place(struct sl_h5_file *file, struct sl_h5_layout *layout, uint64_t frame,
                           uint64_t *place)
{
	unsigned char *bytes = frame_make(layout, frame);
	int fd = open(sl_h5_file_name(file), O_WRONLY | O_CLOEXEC);

	assert_ok(sl_h5_space_take(file, frame_bytes(layout), place));
	assert_int_equal(pwrite(fd, bytes, frame_bytes(layout), (off_t)*place),
	                 frame_bytes(layout));
	close(fd);
	free(bytes);
}

static void give_text(struct sl_h5_file *file, struct sl_h5_dataset *dataset, unsigned number)
{
	char name[32], text[3000];
	struct sluice_attribute attribute = {.name = name, .text = text};

	snprintf(name, sizeof(name), "note %u", number);
	memset(text, 'a' + (int)number % 26, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_ok(sl_h5_attributes_give(file, dataset, &attribute, 1));
}

/* Metadata of a dataset grows where it is the last in the file, and other metadata is new. */
TEST(places_that_others_write_to_are_nobody_elses)
{
	static const uint64_t start[2] = {0};
	struct sl_h5_file_options o = {.shared = true, .flags = SLUICE_WRITER_REPLACE};
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	struct sl_h5_file *file;
	char name[16];

	memcpy(layout.chunk, layout.shape, sizeof(layout.chunk));
	assert_ok(sl_h5_file_open(frame_path, &o, &file));
	for (unsigned i = 0; i < 12; i++) {
		struct sl_h5_dataset *dataset;
		uint64_t place;

		snprintf(name, sizeof(name), "u%u", i);
		dataset = frame_add(file, name, &layout, NULL);
		for (unsigned frame = 0; frame < 5; frame++) {
			write_to_place(file, &layout, frame, &place);
			give_text(file, frame % 2 ? NULL : dataset, i * 5 + frame);
			assert_ok(sl_h5_chunk_enter(dataset, frame, start, 0, place,
			                            frame_bytes(&layout)));
			assert_ok(sl_h5_frames_stored(dataset, frame, 1, NULL, 0));
		}
		if (i == 6)
			frame_flush(file);
	}
	frame_close(file);
	for (unsigned i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "u%u", i);
		frame_check(name, &layout, 5);
	}
}

/* Of rank 4: then a node of the index with all its 64 entries is longer than a page. */
TEST(frames_of_each_rank_lie_in_a_file_of_version_0)
{
	enum { VERSION_AT = 8 };
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	struct sl_h5_set_options back = {.at = true};
	char head[VERSION_AT + 1];
	int fd;

	layout.rank = 4;
	for (unsigned i = 0; i < 4; i++) {
		layout.shape[i] = 2;
		layout.chunk[i] = 1;
	}
	/* 16 chunks a frame: 4 frames fill a leaf, and further ones divide it. */
	for (uint64_t kept = 0; kept < 12; kept++) {
		struct sl_h5_dataset *dataset;
		struct sl_h5_file *file;
		uint64_t first;

		unlink(frame_path);
		write_any(&layout, 4, kept % 2 ? 0 : 9);
		back.frame = kept % 2 ? kept % 4 : kept;
		file = frame_open(SLUICE_WRITER_APPEND);
		assert_ok(sl_h5_dataset_add(file, "fields/u", &layout, &back, &dataset, &first));
		for (uint64_t frame = back.frame; frame < 15; frame++)
			frame_put(dataset, &layout, frame, NULL);
		frame_close(file);
		frame_check("fields/u", &layout, 15);
		fd = open(frame_path, O_RDONLY | O_CLOEXEC);
		assert_int_equal(read(fd, head, sizeof(head)), sizeof(head));
		close(fd);
		assert_int_equal(head[VERSION_AT], 0);
	}
}

int main(void)
{
	setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
	return RUN_TESTS(frame_folder_make, frame_folder_remove);
}
