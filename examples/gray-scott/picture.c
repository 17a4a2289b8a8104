/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture.h"

struct encoder {
	struct png file;
	size_t room;
	char *why;
	size_t why_size;
};

static void append(png_structp png, png_bytep data, size_t size)
{
	struct encoder *e = png_get_io_ptr(png);

	if (size > e->room - e->file.size) {
		size_t room = 2 * e->room > e->file.size + size ? 2 * e->room : e->file.size + size;
		unsigned char *more = realloc(e->file.data, room);

		if (!more)
			png_error(png, "out of memory");
		e->file.data = more;
		e->room = room;
	}
	memcpy(e->file.data + e->file.size, data, size);
	e->file.size += size;
}

static void flush(png_structp png)
{
	(void)png;
}

static void fail(png_structp png, png_const_charp message)
{
	struct encoder *e = png_get_error_ptr(png);

	snprintf(e->why, e->why_size, "%s", message);
	png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp message)
{
	(void)png;
	(void)message;
}

static void encode(png_structp png, png_infop info, const struct picture *p)
{
	png_color palette[COLOURS];

	for (int i = 0; i < COLOURS; i++)
		palette[i] =
			(png_color){p->colours[i].red, p->colours[i].green, p->colours[i].blue};
	png_set_IHDR(png, info, (png_uint_32)p->columns, (png_uint_32)p->rows, 8,
	             PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
	             PNG_FILTER_TYPE_DEFAULT);
	png_set_PLTE(png, info, palette, COLOURS);
	/* The table is in the order of the values: neighbours differ little, as those of a photograph do. */
	png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB | PNG_FILTER_UP | PNG_FILTER_AVG);
	png_write_info(png, info);
	for (size_t row = 0; row < p->rows; row++)
		png_write_row(png, p->pixels + row * p->columns);
	png_write_end(png, NULL);
}

int picture_encode(const struct picture *picture, struct png *out, char *why, size_t size)
{
	struct encoder e = {.why = why, .why_size = size};
	png_structp png;
	png_infop info;

	snprintf(why, size, "out of memory");
	if (picture->rows > PNG_UINT_31_MAX || picture->columns > PNG_UINT_31_MAX) {
		snprintf(why, size, "too large for PNG");
		return -EFBIG;
	}
	png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &e, fail, ignore);
	info = png ? png_create_info_struct(png) : NULL;
	/* fail() comes back to here. */
	if (!info || setjmp(png_jmpbuf(png))) {
		png_destroy_write_struct(&png, &info);
		free(e.file.data);
		return -EIO;
	}
	png_set_write_fn(png, &e, append, flush);
	encode(png, info, picture);
	png_destroy_write_struct(&png, &info);
	*out = e.file;
	return 0;
}
