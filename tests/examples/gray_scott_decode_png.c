/* SPDX-License-Identifier: Apache-2.0 */
/* usage: decode_png FILE... prints rows, columns and the CRC-32 of the pixels (RGBA) of each. */
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

static int decode(const char *path)
{
	png_image image = {.version = PNG_IMAGE_VERSION};
	unsigned char *pixels = NULL;

	if (png_image_begin_read_from_file(&image, path)) {
		image.format = PNG_FORMAT_RGBA;
		pixels = malloc(PNG_IMAGE_SIZE(image));
		if (pixels && png_image_finish_read(&image, NULL, pixels, 0, NULL))
			printf("%u %u %08lx\n", image.height, image.width,
			       crc32_z(0, pixels, PNG_IMAGE_SIZE(image)));
	}
	free(pixels);
	if (PNG_IMAGE_FAILED(image))
		fprintf(stderr, "%s: %s\n", path, image.message);
	png_image_free(&image);
	return PNG_IMAGE_FAILED(image) || !pixels;
}

int main(int argc, char **argv)
{
	int rc = 0;

	for (int i = 1; i < argc; i++)
		rc |= decode(argv[i]);
	return rc;
}
