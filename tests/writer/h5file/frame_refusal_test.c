/* SPDX-License-Identifier: Apache-2.0 */
/* What the file of a writer refuses: names, attributes, files and datasets that cannot be continued. */
#include "h5file/earliest.h"
#include "h5file/frame_common.h"
#include "h5file/word.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int add_as(struct sl_h5_file *file, const char *name, struct sl_h5_layout layout,
                  struct sl_h5_set_options set)
{
	struct sl_h5_dataset *dataset;
	uint64_t first;

	return sl_h5_dataset_add(file, name, &layout, &set, &dataset, &first);
}

static const struct sl_h5_set_options none_set;

/* --------------------------------------------------------------------------------------- names */

TEST(names_that_are_none_are_refused)
{
	static const char *const bad[] = {"",    "/",  "//a",    "a//b", "a/",
	                                  "/a/", "..", "a/../b", "./a"};
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	struct sl_h5_file *file;
	char name[1100];

	unlink(frame_path);
	file = frame_open(0);
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_int_equal(add_as(file, bad[i], layout, none_set), -EINVAL);
	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(add_as(file, name, layout, none_set), -ENAMETOOLONG);
	frame_put(frame_add(file, "a/.b", &layout, NULL), &layout, 0, NULL);
	assert_refused(add_as(file, "/a/.b", layout, none_set), EEXIST,
	               "'/a/.b' is a dataset of this writer already");
	assert_refused(add_as(file, "a", layout, none_set), EEXIST, "no dataset");
	assert_refused(add_as(file, "a/.b/c", layout, none_set), EEXIST, "no group");
	frame_close(file);
	frame_check("/a/.b", &layout, 1);
}

TEST(scalars_and_attributes_are_checked)
{
	static const char *const doubled[] = {"t", "t"}, *const pathlike[] = {"a/b"};
	static const double number = 1;
	static const int64_t integer = 1, integers[3];
	static char text[70000];
	static const char *const texts[] = {"", NULL, "b", text};
	const struct sluice_attribute bad[] = {
		{.text = "no name"},
		{.name = "", .text = "an empty one"},
		{.name = "nothing"},
		{.name = "two", .text = "a", .numbers = &number, .count = 1},
		{.name = "none", .integers = &integer},
		{.name = "sluice_frames", .integers = &integer, .count = 1},
		{.name = "long", .text = text},
		{.name = "large", .numbers = &number, .count = SIZE_MAX / 4},
		{.name = "no texts", .texts = texts},
		{.name = "a missing text", .texts = texts, .count = 2},
		{.name = "long texts", .texts = texts + 2, .count = 2},
		{.name = "texts and a text", .text = "a", .texts = texts, .count = 1},
		{.name = "columns of texts", .texts = texts, .count = 1, .columns = 1},
		{.name = "columns of a text", .text = "a", .columns = 1},
		{.name = "half a row", .integers = integers, .count = 3, .columns = 2},
		{.name = "few columns", .integers = integers, .count = 3, .columns = SIZE_MAX},
	};
	const struct sluice_attribute twice[] = {{.name = "a", .text = ""},
	                                         {.name = "a", .text = ""}};
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	struct sl_h5_file_options o = {.attributes = twice, .attribute_count = 2};
	struct sl_h5_file *file;

	memset(text, 't', sizeof(text) - 1);
	unlink(frame_path);
	assert_int_equal(sl_h5_file_open(frame_path, &o, &file), -EINVAL);
	file = frame_open(0);
	layout.attribute_count = 1;
	assert_int_equal(add_as(file, "u", layout, none_set), -EINVAL);
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		layout.attributes = &bad[i];
		assert_int_equal(add_as(file, "u", layout, none_set), -EINVAL);
	}
	layout.attribute_count = 0;
	layout.scalar_count = 1;
	assert_int_equal(add_as(file, "u", layout, none_set), -EINVAL);
	layout.scalars = pathlike;
	assert_int_equal(add_as(file, "u", layout, none_set), -EINVAL);
	layout.scalars = doubled;
	layout.scalar_count = 2;
	assert_int_equal(add_as(file, "u", layout, none_set), -EINVAL);
	layout.scalar_count = 1;
	frame_add(file, "u", &layout, NULL);
	layout.scalar_count = 0;
	assert_int_equal(add_as(file, "u_t", layout, none_set), -EEXIST);
	frame_close(file);
}

/* --------------------------------------------------------------------------------- other datasets */

/* What a program of someone else has made; 0 and NULL as HDF5 has it. */
struct other {
	hid_t type;
	hsize_t extent[3], most[3], chunk[3];
	bool shuffle, fletcher, fletcher_first, compact, latest;
	unsigned deflate, precision;
};

static struct other other_usual(void)
{
	return (struct other){.type = H5T_NATIVE_FLOAT,
	                      .extent = {0, 10, 14},
	                      .most = {H5S_UNLIMITED, 10, 14},
	                      .chunk = {1, 4, 5},
	                      .shuffle = true,
	                      .deflate = 6};
}

static void give_precision(hid_t set, unsigned bits)
{
	hid_t space = H5Screate(H5S_SCALAR);
	hid_t attribute = H5Acreate2(set, "sluice_precision", H5T_NATIVE_UINT, space, H5P_DEFAULT,
	                             H5P_DEFAULT);

	assert_true(H5Awrite(attribute, H5T_NATIVE_UINT, &bits) >= 0);
	H5Aclose(attribute);
	H5Sclose(space);
}

static void make_other(const struct other *other, const char *name)
{
	hid_t how = hdf5_earliest(), list = H5Pcreate(H5P_DATASET_CREATE), file, set;
	hid_t space = H5Screate_simple(3, other->extent, other->most);
	bool is_there = access(frame_path, F_OK) == 0;

	if (other->latest)
		H5Pset_libver_bounds(how, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
	if (is_there)
		file = H5Fopen(frame_path, H5F_ACC_RDWR, how);
	else
		file = H5Fcreate(frame_path, H5F_ACC_EXCL, H5P_DEFAULT, how);
	if (other->chunk[0])
		H5Pset_chunk(list, 3, other->chunk);
	if (other->compact)
		H5Pset_layout(list, H5D_COMPACT);
	if (other->fletcher_first)
		H5Pset_fletcher32(list);
	if (other->shuffle)
		H5Pset_shuffle(list);
	if (other->deflate)
		H5Pset_deflate(list, other->deflate);
	if (other->fletcher)
		H5Pset_fletcher32(list);
	set = H5Dcreate2(file, name, other->type, space, H5P_DEFAULT, list, H5P_DEFAULT);
	assert_true(set >= 0);
	if (other->precision)
		give_precision(set, other->precision);
	H5Dclose(set);
	H5Sclose(space);
	H5Pclose(list);
	H5Pclose(how);
	H5Fclose(file);
}

/* The bytes of a file, and when it changed. */
struct sight {
	char bytes[1 << 18];
	ssize_t n;
	struct timespec changed;
};

static void file_see(struct sight *out)
{
	int fd = open(frame_path, O_RDONLY | O_CLOEXEC);
	struct stat status;

	assert_int_equal(fstat(fd, &status), 0);
	out->n = read(fd, out->bytes, sizeof(out->bytes));
	out->changed = status.st_mtim;
	close(fd);
	assert_in_range(out->n, 0, sizeof(out->bytes) - 1);
}

static struct sight before_it, behind_it;

static void assert_untouched(void)
{
	file_see(&behind_it);
	assert_int_equal(behind_it.n, before_it.n);
	assert_memory_equal(behind_it.bytes, before_it.bytes, (size_t)before_it.n);
	assert_memory_equal(&behind_it.changed, &before_it.changed, sizeof(before_it.changed));
}

static int continue_other(struct sl_h5_layout layout, struct sl_h5_set_options set)
{
	struct sl_h5_file *file;
	char sentence[512];
	int err;

	file_see(&before_it);
	file = frame_open(SLUICE_WRITER_APPEND);
	err = add_as(file, "u", layout, set);
	snprintf(sentence, sizeof(sentence), "%s", sluice_last_message());
	if (err) {
		frame_close(file);
		assert_untouched();
		file = frame_open(SLUICE_WRITER_APPEND);
		assert_int_equal(add_as(file, "u", layout, set), err);
	}
	/* A refusal is no error of the file. */
	layout = frame_layout("deflate", 1, true);
	frame_put(frame_add(file, "beside", &layout, NULL), &layout, 0, NULL);
	frame_close(file);
	frame_check("beside", &layout, 1);
	sl_fail(err, "%s", sentence);
	return err;
}

static int open_refused(void)
{
	int err;

	file_see(&before_it);
	err = frame_open_as(frame_path, SLUICE_WRITER_APPEND);
	assert_untouched();
	return err;
}

static int make_and_continue(struct other other, struct sl_h5_layout layout)
{
	unlink(frame_path);
	make_other(&other, "u");
	return continue_other(layout, none_set);
}

TEST(a_dataset_is_continued_only_as_it_is)
{
	const struct other usual = other_usual();
	struct sl_h5_layout layout = frame_layout("deflate", 1, true), wrong;
	struct other other;

	assert_int_equal(make_and_continue(usual, layout), 0);

	other = usual;
	other.type = H5T_NATIVE_INT32;
	assert_refused(make_and_continue(other, layout), EEXIST,
	               "'/u' is int32, asked for float32");
	other.precision = 7;
	wrong = layout;
	wrong.type = SLUICE_INT32;
	assert_refused(make_and_continue(other, wrong), EEXIST,
	               "'/u' is int32, and says that it keeps 7 bits of a mantissa");
	other.precision = 0;
	other.type = H5T_IEEE_F32BE;
	assert_refused(make_and_continue(other, layout), EEXIST, "of another type");

	wrong = layout;
	wrong.shape[1] = 15;
	assert_refused(make_and_continue(usual, wrong), EEXIST,
	               "frames of 10 x 14, asked for 10 x 15");
	wrong.rank = 1;
	assert_refused(make_and_continue(usual, wrong), EEXIST, "3 dimensions, and not 2");
	wrong = layout;
	wrong.frames = 7;
	assert_refused(make_and_continue(usual, wrong), EEXIST, "asked for 7");
	wrong = layout;
	wrong.precision = 7;
	assert_refused(make_and_continue(usual, wrong), EEXIST, "bits");

	other = usual;
	other.fletcher_first = true;
	assert_refused(make_and_continue(other, layout), ENOTSUP, "filter 3 (fletcher32)");
	wrong = layout;
	wrong.sum = true;
	assert_refused(make_and_continue(usual, wrong), EEXIST, "no fletcher32");
	other = usual;
	other.fletcher = true;
	assert_int_equal(make_and_continue(other, layout), 0);
	assert_int_equal(make_and_continue(other, wrong), 0);

	other = (struct other){
		.type = H5T_NATIVE_FLOAT, .extent = {5, 10, 14}, .most = {5, 10, 14}};
	assert_refused(make_and_continue(other, layout), EEXIST, "sluice_frames");
	other.compact = true;
	assert_refused(make_and_continue(other, layout), EEXIST, "neither");
}

/* An enumeration of bytes, and a compound of two numbers, with such names. */
static hid_t other_enum(const char *no, const char *yes)
{
	hid_t type = H5Tenum_create(H5T_STD_I8LE);

	H5Tenum_insert(type, yes, &(int8_t){1});
	H5Tenum_insert(type, no, &(int8_t){0});
	return type;
}

static hid_t other_pair(const char *first, const char *second, hid_t part)
{
	hid_t type = H5Tcreate(H5T_COMPOUND, 2 * H5Tget_size(part));

	H5Tinsert(type, first, 0, part);
	H5Tinsert(type, second, H5Tget_size(part), part);
	return type;
}

static hid_t other_text(size_t bytes, H5T_str_t pad, H5T_cset_t set)
{
	hid_t type = H5Tcopy(H5T_C_S1);

	H5Tset_size(type, bytes);
	H5Tset_strpad(type, pad);
	H5Tset_cset(type, set);
	return type;
}

TEST(types_of_h5py_are_continued_and_those_like_them_are_not)
{
	const struct {
		hid_t type;
		enum sluice_type as;
		size_t element;
		const char *says; /* NULL: it is continued */
	} cases[] = {
		{other_enum("FALSE", "TRUE"), SLUICE_BOOL, 1, NULL},
		{other_enum("NO", "YES"), SLUICE_BOOL, 1, "of another type, asked for bool"},
		{other_enum("FALSE", "TRUE"), SLUICE_INT8, 1, "is bool, asked for int8"},
		{H5Tcopy(H5T_NATIVE_INT8), SLUICE_BOOL, 1, "is int8, asked for bool"},
		{other_pair("r", "i", H5T_IEEE_F32LE), SLUICE_COMPLEX64, 8, NULL},
		{other_pair("r", "i", H5T_IEEE_F64LE), SLUICE_COMPLEX128, 16, NULL},
		{other_pair("r", "i", H5T_IEEE_F64LE), SLUICE_COMPLEX64, 8, "is complex128"},
		{other_pair("re", "im", H5T_IEEE_F32LE), SLUICE_COMPLEX64, 8, "another type"},
		{other_pair("r", "i", H5T_IEEE_F32BE), SLUICE_COMPLEX64, 8, "another type"},
		{other_text(8, H5T_STR_NULLPAD, H5T_CSET_ASCII), SLUICE_STRING, 8, NULL},
		{other_text(9, H5T_STR_NULLPAD, H5T_CSET_ASCII), SLUICE_STRING, 8,
	         "strings of 9 bytes, asked for 8"},
		{other_text(8, H5T_STR_NULLTERM, H5T_CSET_ASCII), SLUICE_STRING, 8, "another type"},
		{other_text(8, H5T_STR_NULLPAD, H5T_CSET_UTF8), SLUICE_STRING, 8, "another type"},
		{other_text(H5T_VARIABLE, H5T_STR_NULLTERM, H5T_CSET_UTF8), SLUICE_STRING, 8,
	         "another type"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct sl_h5_layout layout = frame_layout("deflate", 1, true);
		struct other other = other_usual();

		layout.type = cases[i].as;
		layout.element = cases[i].element;
		other.type = cases[i].type;
		if (cases[i].says)
			assert_refused(make_and_continue(other, layout), EEXIST, cases[i].says);
		else
			assert_int_equal(make_and_continue(other, layout), 0);
		H5Tclose(cases[i].type);
	}
}

TEST(settings_of_the_program_must_agree)
{
	struct other usual = other_usual();
	struct sl_h5_layout layout = frame_layout("deflate", 6, true), wrong, adopted;
	struct sl_h5_set_options all = {true, true, true, true, true};
	struct sl_h5_file *file;

	unlink(frame_path);
	make_other(&usual, "u");
	assert_int_equal(continue_other(layout, all), 0);
	wrong = layout;
	wrong.chunk[0] = 5;
	assert_refused(continue_other(wrong, all), EEXIST, "chunks of 4 x 5, asked for 5 x 5");
	wrong = layout;
	wrong.gather = 3;
	assert_refused(continue_other(wrong, all), EEXIST, "chunks of 1 frames, asked for 3");
	wrong = frame_layout("deflate", 5, true);
	assert_refused(continue_other(wrong, all), EEXIST, "level 6 of deflate, asked for 5");
	wrong = frame_layout("deflate", 6, false);
	assert_refused(continue_other(wrong, all), EEXIST, "is shuffled");
	wrong = frame_layout("none", 1, false);
	assert_refused(continue_other(wrong, all), EEXIST, "codec deflate, asked for none");

	adopted = wrong;
	adopted.chunk[0] = 10;
	file = frame_open(SLUICE_WRITER_APPEND);
	frame_add(file, "u", &adopted, NULL);
	assert_string_equal(adopted.codec->name, "deflate");
	assert_int_equal(adopted.level, 6);
	assert_int_equal(adopted.chunk[0], 4);
	assert_true(adopted.shuffle);
	frame_close(file);
}

TEST(companions_that_are_none_are_refused)
{
	static const char *const names[] = {"time"};
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct other usual = other_usual();

	unlink(frame_path);
	make_other(&usual, "u_time");
	layout.scalars = names;
	layout.scalar_count = 1;
	assert_refused(continue_other(layout, none_set), EEXIST, "'/u_time'");
}

/* ------------------------------------------------------------------------------------ our own */

static const char *const times[] = {"time"};

/* Frames of this layout, with a number each. */
static void make_own(struct sl_h5_layout *layout, unsigned frames)
{
	struct sl_h5_file *file;
	struct sl_h5_dataset *set;

	layout->scalars = times;
	layout->scalar_count = 1;
	unlink(frame_path);
	file = frame_open(0);
	set = frame_add(file, "u", layout, NULL);
	for (unsigned frame = 0; frame < frames; frame++) {
		double time = frame;

		frame_put(set, layout, frame, &time);
	}
	frame_close(file);
}

/* Nothing is given up for a series that is refused. */
TEST(a_series_that_is_to_go_back_is_refused_as_a_whole)
{
	static const char *const dimensions[] = {"t", "y", "x"};
	const struct sl_h5_set_options back = {.at = true, .frame = 2};

	for (unsigned kind = 0; kind < 3; kind++) {
		struct sl_h5_layout layout = frame_layout(kind ? "deflate" : "none", 1, kind),
				    wrong;

		layout.contiguous = !kind;
		layout.frames = kind ? 0 : 9;
		layout.precision = kind == 2 ? 12 : 0;
		make_own(&layout, 5);
		wrong = layout;
		wrong.precision = 7;
		assert_refused(continue_other(wrong, back), EEXIST, "bits of the mantissa");
		wrong = layout;
		wrong.dimensions = dimensions;
		assert_refused(continue_other(wrong, back), EEXIST, "names of its dimensions");
		assert_refused(continue_other(layout,
		                              ((struct sl_h5_set_options){.at = true, .frame = 6})),
		               EINVAL, "has 5 frames");
		frame_check("u", &layout, 5);
		assert_int_equal(continue_other(layout, back), 0);
		frame_check("u", &layout, 2);
	}
}

/* While other series have frames: in a file that others may see. */
TEST(a_series_that_comes_late_is_refused_without_a_trace)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true), wrong = layout;
	double time = 5;
	struct sl_h5_file *file;
	struct sl_h5_dataset *set, *beside;
	uint64_t frames;

	make_own(&layout, 5);
	file = frame_open(SLUICE_WRITER_APPEND);
	beside = frame_add(file, "beside", &layout, NULL);
	frame_put(beside, &layout, 0, &time);
	frame_flush(file);
	file_see(&before_it);
	wrong.shape[0]++;
	assert_refused(add_as(file, "u", wrong, (struct sl_h5_set_options){.at = true}), EEXIST,
	               "asked for 11 x 14");
	assert_refused(add_as(file, "new/u_time/v", layout,
	                      ((struct sl_h5_set_options){.at = true, .frame = 1})),
	               EINVAL, "there is no");
	frame_flush(file);
	assert_untouched();
	/* A check alone. */
	assert_int_equal(sl_h5_dataset_add(file, "u", &layout,
	                                   &(struct sl_h5_set_options){.at = true, .frame = 3},
	                                   NULL, &frames),
	                 0);
	assert_int_equal(frames, 3);
	frame_flush(file);
	assert_untouched();
	set = frame_add(file, "u", &layout, &frames);
	assert_int_equal(frames, 5);
	frame_put(set, &layout, 5, &time);
	frame_close(file);
	frame_check("u", &layout, 6);
}

/* The word of a writer that died in a flush is that of the file. */
TEST(a_file_whose_writer_died_in_a_flush_is_left_as_it_is)
{
	struct sl_h5_layout layout = frame_layout("none", 1, false), wrong = layout;
	struct sl_h5_file *file;
	uint64_t word;
	int fd;

	make_own(&layout, 5);
	fd = open(frame_path, O_RDWR | O_CLOEXEC);
	assert_int_equal(sl_word_read(fd, &word), 1);
	assert_int_equal(sl_word_write(fd, word + 1), 0);
	file_see(&before_it);
	file = frame_open(SLUICE_WRITER_APPEND);
	wrong.shape[0]++;
	assert_int_equal(add_as(file, "u", wrong, none_set), -EEXIST);
	frame_close(file);
	file_see(&behind_it);
	assert_memory_equal(behind_it.bytes, before_it.bytes, (size_t)before_it.n);
	file = frame_open(SLUICE_WRITER_APPEND);
	frame_add(file, "u", &layout, NULL);
	frame_close(file);
	assert_true(sl_word_read(fd, &word) == 1 && word % 2 == 0);
	close(fd);
}

/* -------------------------------------------------------------------------------------- formats */

TEST(files_that_are_not_valid_at_every_moment_are_not_continued)
{
	struct other latest = other_usual();

	unlink(frame_path);
	latest.latest = true;
	make_other(&latest, "u");
	assert_refused(open_refused(), EBADMSG, "format of version");
	frame_write_text("this is a text, and it is longer than a signature");
	assert_refused(open_refused(), EBADMSG, "is no HDF5 file");
	frame_write_text("");
	assert_int_equal(open_refused(), -EBADMSG);
	/* A signature, version 0, and nothing behind it. */
	frame_write_text("\x89HDF\r\n\x1a\n");
	assert_int_equal(truncate(frame_path, 512), 0);
	assert_refused(open_refused(), EBADMSG, "HDF5: ");
}

/* half: the children of a node of an index, halved; 32 by default. */
static void make_rank_5(unsigned half)
{
	hsize_t extent[] = {0, 2, 2, 2, 2}, most[] = {H5S_UNLIMITED, 2, 2, 2, 2},
		chunk[] = {1, 2, 2, 2, 2};
	hid_t creation = H5Pcreate(H5P_FILE_CREATE), file, list, space, set;

	unlink(frame_path);
	H5Pset_istore_k(creation, half);
	file = H5Fcreate(frame_path, H5F_ACC_EXCL, creation, hdf5_earliest());
	H5Pclose(creation);
	list = H5Pcreate(H5P_DATASET_CREATE);
	space = H5Screate_simple(5, extent, most);
	H5Pset_chunk(list, 5, chunk);
	set = H5Dcreate2(file, "u", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, list, H5P_DEFAULT);
	H5Dclose(set);
	H5Sclose(space);
	H5Pclose(list);
	H5Fclose(file);
}

TEST(an_index_is_continued_with_nodes_of_the_usual_length)
{
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	struct sl_h5_file *ours;

	layout.rank = 4;
	for (unsigned i = 0; i < 4; i++)
		layout.shape[i] = layout.chunk[i] = 2;
	make_rank_5(33);
	ours = frame_open(SLUICE_WRITER_APPEND);
	assert_refused(add_as(ours, "u", layout, none_set), EBADMSG, "nodes");
	frame_close(ours);
	for (unsigned others = 0; others < 2; others++) {
		if (others)
			make_rank_5(32);
		else
			unlink(frame_path);
		ours = frame_open(others ? SLUICE_WRITER_APPEND : 0);
		frame_add(ours, "u", &layout, NULL);
		frame_close(ours);
		ours = frame_open(SLUICE_WRITER_APPEND);
		frame_put(frame_add(ours, "u", &layout, NULL), &layout, 0, NULL);
		frame_close(ours);
		frame_check("u", &layout, 1);
	}
}

TEST(names_of_a_group_may_be_many)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct other usual = other_usual();

	unlink(frame_path);
	make_other(&usual, "u");
	for (unsigned session = 0; session < 2; session++) {
		struct sl_h5_file *file = frame_open(SLUICE_WRITER_APPEND);

		for (unsigned i = 0; i < 300; i++) {
			char name[64];

			snprintf(name, sizeof(name), "steps/a longer name/field-%u-%u", session, i);
			frame_add(file, name + (i % 2 ? 20 : 0), &layout, NULL);
		}
		frame_put(frame_add(file, "u", &layout, NULL), &layout, session, NULL);
		frame_close(file);
	}
	frame_check("u", &layout, 2);
	frame_check("field-0-1", &layout, 0);
	frame_check("steps/a longer name/field-1-298", &layout, 0);
}

int main(void)
{
	setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
	return RUN_TESTS(frame_folder_make, frame_folder_remove);
}
