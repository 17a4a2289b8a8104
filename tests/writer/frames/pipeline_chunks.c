/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks: every shape comes back, what does not shrink stays as it is, what is wrong is found. */
#include <math.h>

#include "frames/pipeline_test.h"

static bool is_built_in(const char *codec)
{
	const struct sl_codec *found;

	return !sl_codec_find(codec, 1, &found);
}

static void check_one(struct fixture *f, const struct sluice_series_options *o, uint64_t seed)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	sluice_writer *w;
	sluice_series *s;

	wo.threads = 1 + seed % 5;
	w = writer_open(f, &wo);
	s = series_add(w, "u", o);
	for (uint64_t k = 0; k < 3; k++)
		frame_put(s, seed, k);
	assert_ok(sluice_writer_close(w, -1));
	assert_frames(&fake.datasets[0], seed, 3);
	fake_reset();
}

PIPELINE_TEST(every_shape_type_and_chunk_comes_back)
{
	static const uint64_t sizes[] = {1, 2, 3, 7, 13, 16, 31, 64};
	struct rng r = rng_new(1);
	unsigned codecs = 0;

	while (sl_codec_at(codecs))
		codecs++;
	for (int round = 0; round < 150; round++) {
		struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
		bool chunked = rng_below(&r, 4);

		o.chunk_frames = 1;
		o.type = 1 + (int)rng_below(&r, 11);
		o.rank = 1 + (unsigned)rng_below(&r, 4);
		for (unsigned i = 0; i < o.rank; i++) {
			o.shape[i] =
				sizes[rng_below(&r, o.rank < 3 ? 8 : 6)] * (o.rank == 1 ? 97 : 1);
			o.chunk[i] = chunked ? 1 + rng_below(&r, o.shape[i] + 2) : 0;
		}
		o.codec = sl_codec_at(rng_below(&r, codecs))->name;
		if (!is_built_in(o.codec))
			continue;
		o.shuffle =
			!strcmp(o.codec, "none") || strlen(o.codec) > 7 ? 0 : (int)rng_below(&r, 3);
		o.frames = rng_below(&r, 2) ? 3 : 0;
		o.depth = 1 + (unsigned)rng_below(&r, 4);
		check_one(f, &o, rng_next(&r));
	}
}

PIPELINE_TEST(chunks_are_chosen_for_all_cores)
{
	struct sluice_writer_options wo = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	static const struct {
		unsigned rank;
		uint64_t shape[4], chunk[4];
		int type;
	} rows[] = {
		{2, {1080, 1920}, {135, 1920}, SLUICE_FLOAT32},    /* 8 of a MiB or so */
		{1, {1000}, {1000}, SLUICE_FLOAT64},               /* small: one */
		{2, {256, 1024}, {64, 1024}, SLUICE_FLOAT32},      /* 4 of 256 KiB */
		{3, {2, 512, 512}, {1, 256, 512}, SLUICE_FLOAT32}, /* the slowest first */
		{2, {1, 300000}, {1, 75000}, SLUICE_FLOAT32},
	};

	o.chunk_frames = 1;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		sluice_writer *w;

		wo.threads = 4;
		w = writer_open(f, &wo);
		o.type = rows[i].type;
		o.rank = rows[i].rank;
		memcpy(o.shape, rows[i].shape, sizeof(o.shape));
		series_add(w, "u", &o);
		for (unsigned d = 0; d < o.rank; d++)
			assert_int_equal(fake.datasets[0].layout.chunk[d], rows[i].chunk[d]);
		assert_ok(sluice_writer_close(w, -1));
		fake_reset();
	}
}

PIPELINE_TEST(incompressible_chunk_is_stored_in_the_form_of_its_codec)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	struct rng r = rng_new(2);
	unsigned char noise[8000], found[8000];
	const struct fake_frame *frame;
	sluice_series *s = series_add(w, "u", &o);

	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (unsigned char)rng_next(&r);
	assert_ok(sluice_series_push(s, noise, NULL, -1));
	assert_ok(sluice_writer_flush(w, -1));
	assert_int_equal(writer_stats(w).chunks, 6);
	/* The last one is half padding, which does shrink. */
	assert_int_equal(writer_stats(w).raw_chunks, 5);
	assert_ok(sluice_writer_close(w, -1));
	frame = &fake.datasets[0].frames[0];
	for (size_t i = 0; i < 6; i++)
		if (frame->chunks[i].offset[0] != 35) {
			assert_int_equal(frame->chunks[i].mask, 0);
			/* A stored block of deflate, in zlib's format. */
			assert_int_equal(frame->chunks[i].length, 1400 + 5 + 6);
		}
	assert_true(fake_read(&fake.datasets[0], 0, found));
	assert_bytes(found, noise, sizeof(noise));
}

PIPELINE_TEST(precision_is_kept_and_its_error_told)
{
	static const char *const names[] = {"deflate", "none"};

	for (int round = 0; round < 4; round++) {
		struct sluice_series_options o = small_options();
		sluice_writer *w = writer_open(f, NULL);
		float *own = malloc(8000), *found = malloc(8000);
		double most = 0;
		sluice_series *s;

		o.codec = names[round % 2];
		o.frames = round / 2 ? 3 : 0;
		o.precision = 6;
		s = series_add(w, "u", &o);
		for (int k = 0; k < 3; k++) {
			for (int i = 0; i < 2000; i++)
				own[i] = sinf((float)(i * (k + 1)) * 0.1f) * 100;
			assert_ok(sluice_series_push(s, own, NULL, -1));
		}
		assert_ok(sluice_writer_flush(w, -1));
		most = series_stats(s).max_error;
		assert_ok(sluice_writer_close(w, -1));
		assert_true(fake_read(&fake.datasets[0], 2, found));
		for (int i = 0; i < 2000; i++) {
			assert_true(fabs((double)found[i] - (double)own[i]) <= most);
			assert_true(fabs((double)found[i] - (double)own[i]) <=
			            fabs((double)own[i]) / 128);
		}
		assert_true(most > 0.1 && most < 1);
		assert_true(fake.datasets[0].max_error == most);
		fake_reset();
		free(own);
		free(found);
	}
}

/* --------------------------------------------------------------------------------------- proof */

static const struct sl_codec *bent;

int __real_sl_codec_find(const char *name, int level, const struct sl_codec **out);
int __wrap_sl_codec_find(const char *name, int level, const struct sl_codec **out);
int __wrap_sl_codec_find(const char *name, int level, const struct sl_codec **out)
{
	int rc = __real_sl_codec_find(name, level, out);

	if (!rc && bent)
		*out = bent;
	return rc;
}

static int decompress_bent(void *state, const void *in, size_t n, void *out, size_t length)
{
	const struct sl_codec *codec;
	int rc = __real_sl_codec_find("deflate", 1, &codec);

	if (!rc)
		rc = codec->decompress(state, in, n, out, length);
	if (!rc)
		((char *)out)[length / 2] ^= 1;
	return rc;
}

PIPELINE_TEST(an_encoder_that_does_not_do_what_it_says_is_found_at_the_first_chunk)
{
	struct sluice_writer_failure error = {.size = sizeof(error)};
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	struct sl_codec codec;
	const struct sl_codec *good;
	sluice_series *s;

	assert_ok(__real_sl_codec_find("deflate", 1, &good));
	codec = *good;
	codec.decompress = decompress_bent;
	bent = &codec;
	s = series_add(w, "u", &o);
	bent = NULL;
	frame_put(s, 1, 0);
	assert_refused(sluice_writer_flush(w, -1), EBADMSG, "does not come back");
	assert_int_equal(sluice_writer_error(w, &error), 1);
	assert_int_equal(error.error, -EBADMSG);
	assert_string_equal(error.stage, "compress");
	assert_string_equal(error.dataset, "u");
	assert_int_equal(error.frame, 0);
	assert_refused(sluice_writer_close(w, -1), EBADMSG, "does not come back");
}

static void adopt_another(struct sl_h5_layout *layout)
{
	layout->chunk[0] = 40;
	layout->chunk[1] = 9;
	layout->shuffle = false;
	assert_ok(__real_sl_codec_find("none", 1, &layout->codec));
}

/* As other programs make them: with a shuffle and no codec. */
static void adopt_a_shuffle(struct sl_h5_layout *layout)
{
	adopt_another(layout);
	layout->shuffle = true;
}

static void adopt_a_shuffle_of_whole_rows(struct sl_h5_layout *layout)
{
	adopt_a_shuffle(layout);
	layout->chunk[0] = 8;
	layout->chunk[1] = 50;
}

PIPELINE_TEST(a_dataset_that_is_continued_keeps_its_chunks_and_codec)
{
	static void (*const adopts[])(struct sl_h5_layout *) = {adopt_another, adopt_a_shuffle,
	                                                        adopt_a_shuffle_of_whole_rows};

	for (size_t i = 0; i < COUNT_OF(adopts); i++) {
		struct sluice_series_options o = small_options();
		sluice_writer *w = writer_open(f, NULL);
		sluice_series *s;

		fake.adopt = adopts[i];
		fake.first = 17;
		s = series_add(w, "u", &o);
		for (uint64_t k = 0; k < 5; k++)
			frame_put(s, 1, k);
		assert_ok(sluice_writer_flush(w, -1));
		assert_int_equal(writer_stats(w).raw_chunks, 0);
		assert_ok(sluice_writer_close(w, -1));
		assert_frames(&fake.datasets[0], 1, 5);
		fake_reset();
	}
}

static void adopt_other_chunks(struct sl_h5_layout *layout)
{
	layout->chunk[0] = 20;
}

PIPELINE_TEST(memory_of_what_was_asked_for_and_is_not_is_given_back)
{
	struct sluice_series_options o = small_options();
	sluice_writer *w = writer_open(f, NULL);
	uint64_t adopted;

	fake.adopt = adopt_other_chunks;
	series_add(w, "u", &o);
	adopted = writer_stats(w).memory_bytes;
	assert_ok(sluice_writer_close(w, -1));
	fake_reset();
	o.chunk[0] = 20;
	w = writer_open(f, NULL);
	series_add(w, "u", &o);
	assert_int_equal(adopted, writer_stats(w).memory_bytes);
	assert_ok(sluice_writer_close(w, -1));
}

static void adopt_a_precision(struct sl_h5_layout *layout)
{
	layout->precision = 6;
}

PIPELINE_TEST(a_dataset_that_is_continued_keeps_its_precision)
{
	for (int fixed = 0; fixed < 2; fixed++) {
		struct sluice_series_options o = small_options();
		sluice_writer *w = writer_open(f, NULL);
		float *own = malloc(8000), *found = malloc(8000);
		sluice_series *s;

		fake.adopt = adopt_a_precision;
		o.codec = "none";
		o.chunk[0] = 8;
		o.frames = fixed ? 3 : 0;
		s = series_add(w, "u", &o);
		for (int i = 0; i < 2000; i++)
			own[i] = sinf((float)i * 0.1f) * 100;
		assert_ok(sluice_series_push(s, own, NULL, -1));
		assert_ok(sluice_writer_flush(w, -1));
		assert_true(series_stats(s).max_error > 0.1);
		assert_ok(sluice_writer_close(w, -1));
		assert_true(fake_read(&fake.datasets[0], 0, found));
		for (int i = 0; i < 2000; i++)
			assert_true(found[i] == 0 ||
			            fmodf(found[i], ldexpf(1, ilogbf(found[i]) - 6)) == 0);
		fake_reset();
		free(own);
		free(found);
	}
}

PIPELINE_TEST(codecs_are_described)
{
	struct sluice_codec codec = {.size = sizeof(codec)};
	size_t i;

	/* A reader needs something besides HDF5 for a filter that is not HDF5's own. */
	for (i = 0; !sluice_codec_describe(i, &codec); i++)
		assert_true(codec.name && !codec.plugin == (codec.filter < 256 || codec.missing));
	assert_true(i >= 6);
	assert_refused(sluice_codec_describe(i, &codec), ENOENT, "there is no codec");
	codec.size = 0;
	assert_refused(sluice_codec_describe(0, &codec), EINVAL, "size");
}
