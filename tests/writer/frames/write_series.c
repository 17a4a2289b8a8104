/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_series new PATH: a file with a series of each type, for series_h5py_test.py.
 * write_series append PATH: continues what that test has made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "h5file/h5file.h"

enum { ROWS = 3, COLUMNS = 5, FRAMES = 4 };

static const struct {
	const char *name;
	enum sluice_type type;
	size_t element;
} types[] = {
	{"int8", SLUICE_INT8, 1},       {"uint8", SLUICE_UINT8, 1},
	{"int16", SLUICE_INT16, 2},     {"uint16", SLUICE_UINT16, 2},
	{"int32", SLUICE_INT32, 4},     {"uint32", SLUICE_UINT32, 4},
	{"int64", SLUICE_INT64, 8},     {"uint64", SLUICE_UINT64, 8},
	{"float16", SLUICE_FLOAT16, 2}, {"float32", SLUICE_FLOAT32, 4},
	{"float64", SLUICE_FLOAT64, 8},
};
#define TYPES (sizeof(types) / sizeof(types[0]))

static void check(int err)
{
	if (!err)
		return;
	fprintf(stderr, "%d: %s\n", err, sluice_last_message());
	exit(1);
}

/* Small ones only: no bit is lost. */
static uint16_t half(unsigned value)
{
	unsigned e = 0;

	while (value >> (e + 1))
		e++;
	return value ? (e + 15) << 10 | ((value << (10 - e)) & 0x3ff) : 0;
}

static void put(void *out, enum sluice_type type, size_t size, unsigned value)
{
	uint16_t as_half = half(value);
	int64_t as_integer = value;
	float as_float = value;
	double as_double = value;

	switch (type) {
	case SLUICE_FLOAT16:
		memcpy(out, &as_half, size);
		break;
	case SLUICE_FLOAT32:
		memcpy(out, &as_float, size);
		break;
	case SLUICE_FLOAT64:
		memcpy(out, &as_double, size);
		break;
	default: /* the low bytes come first */
		memcpy(out, &as_integer, size);
	}
}

static unsigned value_at(uint64_t frame, unsigned y, unsigned x)
{
	return (frame * ROWS * COLUMNS + y * COLUMNS + x) % 100;
}

/* A frame is a chunk. */
static void store(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout, uint64_t frame)
{
	size_t n = ROWS * COLUMNS * layout->element;
	unsigned char bytes[ROWS * COLUMNS * 8], shuffled[sizeof(bytes)], packed[4096];
	const uint64_t offset[SLUICE_FRAME_RANK_MOST] = {0};
	double time = frame * 0.5;
	void *state;

	for (unsigned i = 0; i < ROWS * COLUMNS; i++)
		put(bytes + i * layout->element, layout->type, layout->element,
		    value_at(frame, i / COLUMNS, i % COLUMNS));
	if (layout->shuffle)
		sl_shuffle(bytes, n, layout->element, shuffled);
	else
		memcpy(shuffled, bytes, n);
	memcpy(packed, shuffled, n);
	if (layout->codec->filter) {
		check(layout->codec->state_new(layout->level, 1, n, &state));
		n = layout->codec->compress(state, shuffled, n, packed, sizeof(packed));
		layout->codec->state_free(state);
	}
	if (layout->contiguous) {
		uint64_t place;
		int fd;

		check(sl_h5_dataset_offset(dataset, &place, &fd));
		if (pwrite(fd, packed, n, place + frame * n) != (ssize_t)n)
			exit(1);
	} else {
		check(sl_h5_chunk_store(dataset, frame, offset, 0, packed, n));
	}
	check(sl_h5_frames_stored(dataset, frame, 1, &time, frame * 0.125));
}

static void write_one(struct sl_h5_file *file, size_t i, const char *folder, const char *codec)
{
	static const char *const scalars[] = {"time"};
	static const double numbers[] = {0.5, 1.5};
	static const int64_t integers[] = {-7};
	static const struct sluice_attribute attributes[] = {
		{.name = "units", .text = "mol/m\xc2\xb3"},
		{.name = "numbers", .numbers = numbers, .count = 2},
		{.name = "integer", .integers = integers, .count = 1},
	};
	struct sl_h5_layout layout = {
		.type = types[i].type,
		.element = types[i].element,
		.rank = 2,
		.shape = {ROWS, COLUMNS},
		.chunk = {ROWS, COLUMNS},
		.level = 1,
		.shuffle = i % 2,
		.frames = i == 10 ? FRAMES + 3 : 0,
		.precision = i == 9 ? 10 : 0,
		.scalars = scalars,
		.scalar_count = 1,
		.attributes = attributes,
		.attribute_count = 3,
	};
	struct sl_h5_set_options set = {0};
	struct sl_h5_dataset *dataset;
	char name[64];
	uint64_t first;

	snprintf(name, sizeof(name), "%s/%s", folder, types[i].name);
	check(sl_codec_find(codec, 1, &layout.codec));
	layout.contiguous = layout.frames && !layout.codec->filter;
	check(sl_h5_dataset_add(file, name, &layout, &set, &dataset, &first));
	for (uint64_t frame = first; frame < first + FRAMES; frame++)
		store(dataset, &layout, frame);
}

int main(int argc, char **argv)
{
	static const struct sluice_attribute title = {.name = "title", .text = "gr\xc3\xa4y"};
	struct sl_h5_file_options o = {.attributes = &title, .attribute_count = 1};
	struct sl_h5_file *file;
	bool append = argc == 3 && strcmp(argv[1], "append") == 0;

	if (argc != 3)
		return 2;
	o.flags = append ? SLUICE_WRITER_APPEND : 0;
	check(sl_h5_file_open(argv[2], &o, &file));
	for (size_t i = 0; i < TYPES; i++)
		write_one(file, i, append ? "theirs" : "ours", i % 2 ? "deflate" : "none");
	check(sl_h5_file_close(file, true));
	return 0;
}
