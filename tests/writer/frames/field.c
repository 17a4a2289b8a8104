/* SPDX-License-Identifier: Apache-2.0 */
#include "frames/field.h"

#include <unistd.h>

#include "h5file/hdf5_read.h"

static struct content content_of(const char *name)
{
	struct content c = {SLUICE_FLOAT32, CONTENT_MIXED, 17};

	for (; *name; name++)
		c.seed = c.seed * 31 + (unsigned char)*name;
	return c;
}

struct sluice_series_options field_options(const char *codec, uint64_t frames)
{
	static const char *const scalars[] = {"time"};
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.type = SLUICE_FLOAT32;
	o.rank = 2;
	o.shape[0] = FIELD_ROWS;
	o.shape[1] = FIELD_COLUMNS;
	o.chunk[0] = 20;
	o.chunk[1] = FIELD_COLUMNS;
	o.codec = codec;
	o.frames = frames;
	o.scalars = scalars;
	o.scalar_count = 1;
	return o;
}

int field_full_disk_ms;

int field_open(sluice_context *ctx, const char *path, unsigned flags, sluice_writer **out)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;

	o.flags = flags;
	o.checkpoint_ms = -1;
	o.full_disk_ms = field_full_disk_ms;
	return sluice_writer_open(ctx, path, &o, out);
}

int field_add(sluice_writer *w, const char *name, const char *codec, uint64_t frames,
              sluice_series **out)
{
	struct sluice_series_options o = field_options(codec, frames);

	return sluice_series_add(w, name, &o, out);
}

void field_fill(const char *name, uint64_t frame, void *to)
{
	struct content c = content_of(name);

	content_fill(&c, frame, 0, FIELD_ELEMENTS, to);
}

double field_time(const char *name, uint64_t frame)
{
	struct content c = content_of(name);

	return content_scalar(&c, frame, 0);
}

int field_put(sluice_series *s, const char *name, uint64_t from, uint64_t to)
{
	int rc = 0;

	for (uint64_t frame = from; !rc && frame < to; frame++) {
		double time = field_time(name, frame);
		void *memory;

		rc = sluice_series_acquire(s, PATIENCE_MS, &memory);
		if (rc)
			return rc;
		field_fill(name, frame, memory);
		rc = sluice_series_submit(s, memory, &time);
	}
	return rc;
}

/* ------------------------------------------------------------------------------------- looking */

static int look_at_times(hid_t file, const char *name, const struct content *c, uint64_t frames)
{
	char companion[128];
	hid_t set;
	double *all;
	int wrong = 0;

	snprintf(companion, sizeof(companion), "%s_time", name);
	set = H5Dopen2(file, companion, H5P_DEFAULT);
	if (set < 0 || hdf5_frames(set) < frames)
		return 3;
	all = hdf5_read_all(set, H5T_NATIVE_DOUBLE);
	for (uint64_t frame = 0; all && !wrong && frame < frames; frame++)
		wrong = all[frame] == content_scalar(c, frame, 0) ? 0 : 4;
	free(all);
	H5Dclose(set);
	return all ? wrong : 5;
}

static int look_at_frames(hid_t set, const struct content *c, uint64_t frames)
{
	char *all = hdf5_read_all(set, H5T_NATIVE_FLOAT);
	int wrong = all ? 0 : 6;

	for (uint64_t frame = 0; !wrong && frame < frames; frame++)
		if (content_differs(c, frame, FIELD_ELEMENTS, 0,
		                    all + frame * FIELD_ELEMENTS * sizeof(float)) != FIELD_ELEMENTS)
			wrong = 7;
	free(all);
	return wrong;
}

int field_look(const char *path, const char *name, uint64_t least, uint64_t most)
{
	struct content c = content_of(name);
	hid_t file, set;
	uint64_t frames;
	int wrong;

	if (access(path, F_OK))
		return least ? 1 : 0;
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	if (file < 0)
		return 2;
	if (H5Lexists(file, name, H5P_DEFAULT) <= 0) {
		H5Fclose(file);
		return least ? 8 : 0;
	}
	set = H5Dopen2(file, name, H5P_DEFAULT);
	frames = set < 0 ? UINT64_MAX : hdf5_frames(set);
	wrong = frames < least || frames > most ? 9 : look_at_frames(set, &c, frames);
	if (!wrong)
		wrong = look_at_times(file, name, &c, frames);
	H5Dclose(set);
	H5Fclose(file);
	return wrong;
}

struct look {
	const char *path, *name;
	uint64_t least, most;
};

static int look(const void *argument)
{
	const struct look *l = argument;

	return field_look(l->path, l->name, l->least, l->most);
}

int field_look_apart(const char *path, const char *name, uint64_t least, uint64_t most)
{
	const struct look l = {path, name, least, most};

	return hdf5_look_apart(look, &l);
}

uint64_t field_count(const char *path, const char *name)
{
	hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
	uint64_t frames = hdf5_frames(set);

	H5Dclose(set);
	H5Fclose(file);
	return frames;
}
