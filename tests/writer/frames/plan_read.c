/* SPDX-License-Identifier: Apache-2.0 */
/* What HDF5 makes of a plan's file. Filters that it does not have are lent to it meanwhile. */
#include "codec/codec.h"
#include "frames/plan.h"

/* ------------------------------------------------------------------------------------- filters */

static const struct sl_codec *lent; /* with a chunk of that many bytes */
static size_t lent_bytes;

static size_t decode(unsigned flags, size_t count, const unsigned values[], size_t length,
                     size_t *room, void **bytes)
{
	void *decoded = H5allocate_memory(lent_bytes, false), *state;
	bool good = flags & H5Z_FLAG_REVERSE &&
	            !lent->state_new(1, count > 2 ? values[2] : 1, lent_bytes, &state);

	if (good) {
		good = !lent->decompress(state, *bytes, length, decoded, lent_bytes);
		lent->state_free(state);
	}
	if (!good) {
		H5free_memory(decoded);
		return 0;
	}
	H5free_memory(*bytes);
	*bytes = decoded;
	*room = lent_bytes;
	return lent_bytes;
}

static void lend(const struct plan_series *s, hid_t list)
{
	H5Z_class2_t class = {.version = H5Z_CLASS_T_VERS,
	                      .encoder_present = 1,
	                      .decoder_present = 1,
	                      .name = "lent",
	                      .filter = decode};
	hsize_t chunk[SLUICE_FRAME_RANK_MOST + 1];

	assert_ok(sl_codec_find(s->o.codec, s->o.level ? s->o.level : 1, &lent));
	if (H5Pget_layout(list) != H5D_CHUNKED)
		return;
	H5Pget_chunk(list, SLUICE_FRAME_RANK_MOST + 1, chunk);
	lent_bytes = content_element_bytes(s->o.type);
	for (unsigned d = 0; d <= s->o.rank; d++)
		lent_bytes *= chunk[d];
	class.id = lent->filter;
	if (lent->filter && H5Zfilter_avail(lent->filter) <= 0)
		assert_true(H5Zregister(&class) >= 0);
	else
		lent = NULL;
}

static void take_back(void)
{
	if (lent && lent->filter)
		assert_true(H5Zunregister(lent->filter) >= 0);
}

/* The filters of a dataset are those that were asked for, in their order. */
static void check_filters(const struct plan_series *s, hid_t list)
{
	struct sluice_codec codec = {.size = sizeof(codec)};
	int wanted[3], count = 0;

	for (size_t i = 0; !sluice_codec_describe(i, &codec); i++)
		if (!strcmp(codec.name, s->o.codec))
			break;
	if (codec.filter && codec.filter != 32008 &&
	    (s->o.shuffle == SLUICE_SHUFFLE_BYTE ||
	     (s->o.shuffle == SLUICE_SHUFFLE_DEFAULT && content_element_bytes(s->o.type) > 1)))
		wanted[count++] = H5Z_FILTER_SHUFFLE;
	if (codec.filter)
		wanted[count++] = codec.filter;
	if (s->o.flags & SLUICE_SERIES_FLETCHER32)
		wanted[count++] = H5Z_FILTER_FLETCHER32;
	assert_int_equal(H5Pget_nfilters(list), count);
	for (int i = 0; i < count; i++) {
		unsigned values[8], flags, config;
		size_t many = COUNT_OF(values);

		assert_int_equal(
			H5Pget_filter2(list, (unsigned)i, &flags, &many, values, 0, NULL, &config),
			wanted[i]);
		if (wanted[i] == H5Z_FILTER_DEFLATE)
			assert_int_equal(values[0], s->o.level ? s->o.level : 1);
	}
}

/* ------------------------------------------------------------------------------------ datasets */

static void check_chunk(const struct plan_series *s, hid_t list)
{
	hsize_t chunk[SLUICE_FRAME_RANK_MOST + 1];

	assert_int_equal(H5Pget_chunk(list, SLUICE_FRAME_RANK_MOST + 1, chunk), s->o.rank + 1);
	if (s->o.chunk_frames)
		assert_true(chunk[0] == s->o.chunk_frames || chunk[0] == s->o.frames);
	else
		assert_true(chunk[0] == 1 || !s->o.chunk[0]);
	for (unsigned d = 0; d < s->o.rank && s->o.chunk[0]; d++) {
		uint64_t given = s->o.chunk[d], whole = s->o.shape[d];

		assert_int_equal(chunk[d + 1], given < whole ? given : whole);
	}
}

static uint64_t number_of(hid_t object, const char *name)
{
	hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
	uint64_t value = 0;

	assert_true(attribute >= 0);
	assert_true(H5Aread(attribute, H5T_NATIVE_UINT64, &value) >= 0);
	H5Aclose(attribute);
	return value;
}

/* Frames that a dataset has; a fixed number without a codec lies in one piece. */
static uint64_t check_shape(const struct plan_series *s, hid_t set, bool contiguous)
{
	hid_t space = H5Dget_space(set);
	hsize_t extent[SLUICE_FRAME_RANK_MOST + 1], most[SLUICE_FRAME_RANK_MOST + 1];

	assert_int_equal(H5Sget_simple_extent_dims(space, extent, most), s->o.rank + 1);
	assert_true(most[0] == (s->o.frames ? s->o.frames : H5S_UNLIMITED));
	for (unsigned d = 0; d < s->o.rank; d++)
		assert_int_equal(extent[d + 1], s->o.shape[d]);
	H5Sclose(space);
	if (!contiguous)
		return extent[0];
	assert_int_equal(extent[0], s->o.frames);
	return number_of(set, "sluice_frames");
}

/* sluice reads the same bytes. */
static void check_array(const struct plan *plan, const struct plan_series *s, const char *path,
                        const char *found, size_t n)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	char *read = malloc(n + 1);
	sluice_file *file;

	o.dataset = s->name;
	assert_ok(sluice_open(plan->ctx, path, &o, &file));
	assert_read(file, read, n, 0);
	assert_bytes(read, found, n);
	assert_ok(sluice_close(file));
	free(read);
}

static void check_frames(const struct plan *plan, const struct plan_series *s, hid_t set,
                         const char *path)
{
	hid_t type = H5Dget_type(set), space = H5Dget_space(set);
	hssize_t all = H5Sget_simple_extent_npoints(space);
	unsigned dropped = s->o.precision ? content_mantissa(s->o.type) - s->o.precision : 0;
	char *found = malloc((size_t)all * content_element_bytes(s->o.type) + 1);

	assert_int_equal(H5Tget_size(type), content_element_bytes(s->o.type));
	assert_true(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0);
	for (uint64_t frame = 0; frame < s->frames; frame++) {
		size_t at = content_differs(&s->content, frame, s->elements, dropped,
		                            found + frame * s->bytes);

		if (at != s->elements)
			fail_msg("plan %d, '%s', frame %d: element %zu is another",
			         (int)plan->number, s->name, (int)frame, at);
	}
	if (plan->ctx)
		check_array(plan, s, path, found, (size_t)all * s->bytes / s->elements);
	free(found);
	H5Sclose(space);
	H5Tclose(type);
}

static void check_companions(const struct plan_series *s, hid_t file)
{
	for (unsigned i = 0; i < s->o.scalar_count; i++) {
		double found[64];
		hsize_t extent;
		char name[64];
		hid_t set, space;

		snprintf(name, sizeof(name), "%s_%s", s->name, s->o.scalars[i]);
		set = H5Dopen2(file, name, H5P_DEFAULT);
		assert_true(set >= 0);
		space = H5Dget_space(set);
		assert_int_equal(H5Sget_simple_extent_dims(space, &extent, NULL), 1);
		assert_int_equal(extent, s->frames);
		assert_in_range(extent, 0, COUNT_OF(found));
		assert_true(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >=
		            0);
		for (uint64_t frame = 0; frame < s->frames; frame++)
			assert_true(found[frame] == content_scalar(&s->content, frame, i));
		H5Sclose(space);
		H5Dclose(set);
	}
}

static void check_attributes(const struct plan_series *s, hid_t set)
{
	for (size_t i = 0; i < s->o.attribute_count; i++)
		assert_true(H5Aexists(set, s->o.attributes[i].name) > 0);
	if (s->o.precision)
		assert_int_equal(number_of(set, "sluice_precision"), s->o.precision);
	else
		assert_int_equal(H5Aexists(set, "sluice_precision"), 0);
}

static void check_series(const struct plan *plan, struct plan_series *s, hid_t file, uint64_t most,
                         const char *path)
{
	hid_t set = H5Dopen2(file, s->name, H5P_DEFAULT), list = H5Dget_create_plist(set);
	bool contiguous = H5Pget_layout(list) == H5D_CONTIGUOUS;
	uint64_t frames;

	assert_int_equal(contiguous, plan_is_contiguous(s));
	frames = check_shape(s, set, contiguous);
	assert_in_range(frames, s->frames, most);
	s->frames = frames;
	check_filters(s, list);
	if (!contiguous)
		check_chunk(s, list);
	lend(s, list);
	check_frames(plan, s, set, path);
	check_companions(s, file);
	check_attributes(s, set);
	H5Pclose(list);
	H5Dclose(set);
	take_back();
}

void plan_read(struct plan *plan, const char *path, const uint64_t *most)
{
	hid_t file;

	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	for (unsigned i = 0; i < plan->count; i++) {
		struct plan_series *s = &plan->series[i];

		s->there = file >= 0 && H5Oexists_by_name(file, s->name, H5P_DEFAULT) > 0;
		if (s->there)
			check_series(plan, s, file, most[i], path);
		else
			assert_int_equal(s->frames, 0);
	}
	if (file >= 0)
		H5Fclose(file);
}
