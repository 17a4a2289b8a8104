/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture.h"
#include "still.h"

static int write_file(const char *path, const struct png *png, char *why, size_t size)
{
	FILE *file = fopen(path, "we");
	bool good = file && fwrite(png->data, 1, png->size, file) == png->size;

	if ((file && fclose(file)) || !good) {
		snprintf(why, size, "'%s': %s", path, strerror(errno));
		return -errno;
	}
	return 0;
}

int still_write(const struct still *s, const struct scale *scale, const struct colour *colours,
                char *why, size_t size, char **path)
{
	const char *slash = strrchr(s->name, '/');
	struct png png;
	char *own;
	int rc;

	colours_map(scale, s->values, s->rows * s->columns, s->pixels);
	rc = picture_encode(&(struct picture){s->rows, s->columns, s->pixels, colours}, &png, why,
	                    size);
	if (rc)
		return rc;
	if (asprintf(&own, "%s/%s_%06llu.png", s->directory, slash ? slash + 1 : s->name,
	             s->number) < 0) {
		snprintf(why, size, "out of memory");
		own = NULL;
		rc = -ENOMEM;
	}
	if (!rc)
		rc = write_file(own, &png, why, size);
	free(png.data);
	if (!rc && path)
		*path = own;
	else
		free(own);
	return rc;
}
