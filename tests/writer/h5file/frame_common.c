/* SPDX-License-Identifier: Apache-2.0 */
#include "h5file/frame_common.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

char frame_folder[256], frame_path[512];

int frame_folder_make(void **unused)
{
	const char *place = getenv("SLUICE_TEST_DIR");
	const struct sl_codec *deflate;

	(void)unused;
	if (sl_codec_find("deflate", 1, &deflate)) {
		print_message("skipped: %s\n", sluice_last_message());
		exit(77);
	}
	snprintf(frame_folder, sizeof(frame_folder), "%.200s/frame-file-%d", place ? place : ".",
	         (int)getpid());
	snprintf(frame_path, sizeof(frame_path), "%s/file.h5", frame_folder);
	return mkdir(frame_folder, 0700);
}

int frame_folder_remove(void **unused)
{
	(void)unused;
	unlink(frame_path);
	return rmdir(frame_folder);
}

/* --------------------------------------------------------------------------------------- calls */

static void good(int err)
{
	if (err)
		print_message("%d: %s\n", err, sluice_last_message());
	assert_int_equal(err, 0);
}

int frame_open_as(const char *path, unsigned flags)
{
	struct sl_h5_file_options o = {.flags = flags};
	struct sl_h5_file *file;
	int err = sl_h5_file_open(path, &o, &file);

	if (!err)
		frame_close(file);
	return err;
}

void frame_write_text(const char *text)
{
	int fd = open(frame_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

void frame_said(const char *part)
{
	if (!strstr(sluice_last_message(), part))
		print_message("'%s' is not in '%s'\n", part, sluice_last_message());
	assert_non_null(strstr(sluice_last_message(), part));
}

struct sl_h5_file *frame_open(unsigned flags)
{
	struct sl_h5_file_options o = {.flags = flags};
	struct sl_h5_file *file = NULL;

	good(sl_h5_file_open(frame_path, &o, &file));
	return file;
}

void frame_close(struct sl_h5_file *file)
{
	good(sl_h5_file_close(file, true));
}

void frame_flush(struct sl_h5_file *file)
{
	good(sl_h5_file_flush(file));
}

struct sl_h5_layout frame_layout(const char *codec, int level, bool shuffle)
{
	struct sl_h5_layout layout = {
		.type = SLUICE_FLOAT32,
		.element = 4,
		.rank = 2,
		.shape = {10, 14},
		.chunk = {4, 5},
		.level = level,
		.shuffle = shuffle,
	};

	good(sl_codec_find(codec, level, &layout.codec));
	return layout;
}

struct sl_h5_dataset *frame_add(struct sl_h5_file *file, const char *name,
                                struct sl_h5_layout *layout, uint64_t *first)
{
	struct sl_h5_set_options set = {0};
	struct sl_h5_dataset *dataset = NULL;
	uint64_t frames;

	good(sl_h5_dataset_add(file, name, layout, &set, &dataset, first ? first : &frames));
	return dataset;
}

/* -------------------------------------------------------------------------------------- frames */

static size_t elements_of(const uint64_t *shape, unsigned rank)
{
	size_t elements = 1;

	for (unsigned i = 0; i < rank; i++)
		elements *= shape[i];
	return elements;
}

size_t frame_bytes(const struct sl_h5_layout *layout)
{
	return elements_of(layout->shape, layout->rank) * layout->element;
}

unsigned char *frame_make(const struct sl_h5_layout *layout, uint64_t frame)
{
	size_t n = frame_bytes(layout);
	unsigned char *bytes = malloc(n);
	uint64_t seed = frame * 1000003 + n;

	for (size_t i = 0; i < n; i++)
		bytes[i] = unit_random(&seed) % 5 * (i % layout->element + 1);
	return bytes;
}

/* Copies one chunk out of a frame; beyond the frame's edge are zeroes. In rows of the last dimension. */
static void cut(const struct sl_h5_layout *layout, const unsigned char *frame,
                const uint64_t *offset, unsigned char *chunk)
{
	size_t elements = elements_of(layout->chunk, layout->rank), size = layout->element;

	memset(chunk, 0, elements * size);
	for (size_t i = 0; i < elements; i++) {
		size_t rest = i, at = 0, stride = 1;
		bool inside = true;

		for (int d = (int)layout->rank - 1; d >= 0; d--) {
			uint64_t place = offset[d] + rest % layout->chunk[d];

			inside &= place < layout->shape[d];
			at += place * stride;
			stride *= layout->shape[d];
			rest /= layout->chunk[d];
		}
		if (inside)
			memcpy(chunk + i * size, frame + at * size, size);
	}
}

static int store_chunk(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout,
                       uint64_t frame, const unsigned char *bytes, const uint64_t *offset,
                       uint32_t mask)
{
	size_t n = elements_of(layout->chunk, layout->rank) * layout->element, length = n, room = n;
	const struct sl_codec *codec = layout->codec;
	unsigned char *chunk = malloc(n), *shuffled = malloc(n), *packed;
	void *state;
	int err;

	room = codec->filter ? codec->bound(n) : n;
	packed = malloc(room);
	cut(layout, bytes, offset, chunk);
	if (layout->shuffle && !(mask & sl_h5_mask_shuffle(layout)))
		sl_shuffle(chunk, n, layout->element, shuffled);
	else
		memcpy(shuffled, chunk, n);
	if (codec->filter && !(mask & sl_h5_mask_codec(layout))) {
		good(codec->state_new(layout->level, layout->element, n, &state));
		length = codec->compress(state, shuffled, n, packed, room);
		codec->state_free(state);
	} else {
		memcpy(packed, shuffled, n);
	}
	err = sl_h5_chunk_store(dataset, frame, offset, mask, packed, length);
	free(packed);
	free(shuffled);
	free(chunk);
	return err;
}

static int store_chunks(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout,
                        uint64_t frame, const unsigned char *bytes, enum frame_masks masks)
{
	uint32_t filters = sl_h5_mask_codec(layout) | sl_h5_mask_shuffle(layout);
	uint64_t offset[SLUICE_FRAME_RANK_MOST] = {0};
	int d = 0, err = 0;

	for (unsigned i = 0; !err && d >= 0; i++) {
		err = store_chunk(dataset, layout, frame, bytes, offset,
		                  masks == MASKS_MIXED ? (i + frame) % 4 & filters : 0);
		for (d = (int)layout->rank - 1; d >= 0; d--) {
			offset[d] += layout->chunk[d];
			if (offset[d] < layout->shape[d])
				break;
			offset[d] = 0;
		}
	}
	return err;
}

static int write_directly(struct sl_h5_dataset *dataset, uint64_t frame, const unsigned char *bytes,
                          size_t n)
{
	uint64_t offset;
	int fd, err = sl_h5_dataset_offset(dataset, &offset, &fd);

	if (!err && pwrite(fd, bytes, n, offset + frame * n) != (ssize_t)n)
		err = -errno;
	return err;
}

int frame_store(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout, uint64_t frame,
                const double *scalars, enum frame_masks masks)
{
	unsigned char *bytes = frame_make(layout, frame);
	int err = layout->contiguous ? write_directly(dataset, frame, bytes, frame_bytes(layout))
	                             : store_chunks(dataset, layout, frame, bytes, masks);

	free(bytes);
	return err ? err : sl_h5_frames_stored(dataset, frame, 1, scalars, 0);
}

void frame_put(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout, uint64_t frame,
               const double *scalars)
{
	good(frame_store(dataset, layout, frame, scalars, MASKS_NONE));
}

/* --------------------------------------------------------------------------------------- check */

/* A chunk that HDF5 gives back as it lies in the file. */
static void check_chunk(hid_t dataset, const struct sl_h5_layout *layout,
                        const unsigned char *frame, const hsize_t *place)
{
	size_t n = elements_of(layout->chunk, layout->rank) * layout->element;
	unsigned char *stored, *shuffled = malloc(n), *back = malloc(n), *chunk = malloc(n);
	hsize_t length;
	uint32_t mask;
	uint64_t offset[SLUICE_FRAME_RANK_MOST];
	void *state;

	for (unsigned i = 0; i < layout->rank; i++)
		offset[i] = place[i + 1];
	assert_true(H5Dget_chunk_storage_size(dataset, place, &length) >= 0);
	stored = malloc(length);
	assert_true(H5Dread_chunk(dataset, H5P_DEFAULT, place, &mask, stored) >= 0);
	assert_int_equal(mask, 0);
	good(layout->codec->state_new(layout->level, layout->element, n, &state));
	good(layout->codec->decompress(state, stored, length, shuffled, n));
	layout->codec->state_free(state);
	if (layout->shuffle)
		sl_unshuffle(shuffled, n, layout->element, back);
	else
		memcpy(back, shuffled, n);
	cut(layout, frame, offset, chunk);
	assert_memory_equal(back, chunk, n);
	free(chunk);
	free(back);
	free(shuffled);
	free(stored);
}

static void check_decoded(hid_t dataset, const struct sl_h5_layout *layout, hsize_t frames)
{
	hsize_t count, place[SLUICE_FRAME_RANK_MOST + 1];
	hid_t space = H5Dget_space(dataset);

	assert_true(H5Dget_num_chunks(dataset, space, &count) >= 0);
	assert_true(count >= frames);
	for (hsize_t i = 0; i < count; i++) {
		unsigned char *bytes;

		assert_true(H5Dget_chunk_info(dataset, space, i, place, NULL, NULL, NULL) >= 0);
		bytes = frame_make(layout, place[0]);
		check_chunk(dataset, layout, bytes, place);
		free(bytes);
	}
	H5Sclose(space);
}

static void check_read(hid_t dataset, const struct sl_h5_layout *layout, hsize_t frames)
{
	size_t n = frame_bytes(layout);
	hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
	unsigned char *all = malloc(H5Sget_simple_extent_npoints(space) * layout->element + 1);

	assert_true(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0);
	for (hsize_t frame = 0; frame < frames; frame++) {
		unsigned char *bytes = frame_make(layout, frame);

		assert_memory_equal(all + frame * n, bytes, n);
		free(bytes);
	}
	free(all);
	H5Sclose(space);
	H5Tclose(type);
}

void frame_check(const char *name, const struct sl_h5_layout *layout, hsize_t frames)
{
	hid_t file = H5Fopen(frame_path, H5F_ACC_RDONLY, H5P_DEFAULT);
	hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset);
	hsize_t extent[SLUICE_FRAME_RANK_MOST + 1];

	assert_int_equal(H5Sget_simple_extent_dims(space, extent, NULL), layout->rank + 1);
	assert_int_equal(extent[0], layout->contiguous ? layout->frames : frames);
	for (unsigned i = 0; i < layout->rank; i++)
		assert_int_equal(extent[i + 1], layout->shape[i]);
	if (layout->codec->filter && H5Zfilter_avail(layout->codec->filter) <= 0)
		check_decoded(dataset, layout, frames);
	else
		check_read(dataset, layout, frames);
	H5Sclose(space);
	H5Dclose(dataset);
	H5Fclose(file);
}

void companion_check(const char *name, const double *values, hsize_t count)
{
	hid_t file = H5Fopen(frame_path, H5F_ACC_RDONLY, H5P_DEFAULT);
	hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset);
	hsize_t extent = 0;
	double *all;

	assert_int_equal(H5Sget_simple_extent_dims(space, &extent, NULL), 1);
	assert_int_equal(extent, count);
	all = calloc(count + 1, sizeof(*all));
	assert_true(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0);
	for (hsize_t i = 0; i < count; i++)
		assert_true(isnan(values[i]) ? isnan(all[i]) : all[i] == values[i]);
	free(all);
	H5Sclose(space);
	H5Dclose(dataset);
	H5Fclose(file);
}

int frame_in_child(int (*what)(void))
{
	pid_t process = fork();
	int status;

	if (process == 0) {
		alarm(60);
		_exit(what());
	}
	assert_true(process > 0);
	while (waitpid(process, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
