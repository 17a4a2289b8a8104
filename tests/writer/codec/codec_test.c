/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs, by the decoders of their formats. */
#include <errno.h>
#include <malloc.h>

#include "codec/codec_common.h"

#define MIB ((size_t)1 << 20)

#ifdef BUILT_WITH_LZ4
#include <lz4.h>

static void unpack_lz4(const unsigned char *in, size_t n, unsigned char *out, size_t length)
{
	assert_int_equal(LZ4_decompress_safe((const char *)in, (char *)out, n, length), length);
}
#else
static void unpack_lz4(const unsigned char *in, size_t n, unsigned char *out, size_t length)
{
	(void)in, (void)n, (void)out, (void)length;
	fail();
}
#endif

static const struct sl_codec *built_in(size_t i)
{
	const struct sl_codec *codec = sl_codec_at(i);

	return codec->missing ? NULL : codec;
}

/* For each codec that is built in. */
#define each_codec(codec)                                      \
	for (size_t index_ = 0; sl_codec_at(index_); index_++) \
		for (const struct sl_codec *codec = built_in(index_); codec; codec = NULL)

/* By the tests' own decoder, with elements of a byte. */
static bool reference_decode(const struct sl_codec *codec, const void *in, size_t n, void *out,
                             size_t length)
{
	const struct reference *known = reference_of(codec->filter);

	/* every_codec_has_the_number_that_its_readers_know says more. */
	return known && known->decode(in, n, 1, out, length);
}

static void *state_of(const struct sl_codec *codec, int level, size_t n)
{
	void *codec_state = NULL;

	assert_int_equal(codec->state_new(level, 1, n, &codec_state), 0);
	return codec_state;
}

/* ------------------------------------------------------------------------------------- table */

/* Readers have the decoders, by these numbers: a number that is mistyped in the product is seen here. */
TEST(every_codec_has_the_number_that_its_readers_know)
{
	for (size_t i = 0; sl_codec_at(i); i++) {
		const struct sl_codec *codec = sl_codec_at(i);
		const struct reference *known = reference_of(codec->filter);

		if (!known || strcmp(known->name, codec->name) != 0)
			fail_msg("codec '%s' of filter %d has no row among the references in "
			         "tests/writer/codec/codec_reference.c, with a decoder by another "
			         "library "
			         "than its encoder's if there is one",
			         codec->name, codec->filter);
		assert_int_equal(known->shuffles, codec->shuffles);
	}
}

TEST(a_codec_is_found_by_its_name_and_level)
{
	static const struct {
		const char *name;
		int filter, least, most;
	} rows[] = {{"none", 0, -5, 100},
	            {"deflate", 1, 1, 9},
	            {"zstd", 32015, 1, 19},
	            {"lz4", 32004, 1, 1},
	            {"bitshuffle-lz4", 32008, 1, 1}};
	const struct sl_codec *codec, *untouched = (void *)&codec;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int level = rows[i].least; level <= rows[i].most; level++) {
			int result;

			codec = untouched;
			result = sl_codec_find(rows[i].name, level, &codec);
			if (result) {
				assert_int_equal(result, -ENOTSUP);
				assert_non_null(strstr(sluice_last_message(), "is not built in"));
				assert_non_null(strstr(sluice_last_message(), rows[i].name));
				assert_ptr_equal(codec, untouched);
				continue;
			}
			assert_string_equal(codec->name, rows[i].name);
			assert_int_equal(codec->filter, rows[i].filter);
			assert_null(codec->missing);
		}
		if (!rows[i].filter)
			continue;
		assert_int_equal(sl_codec_find(rows[i].name, 0, &codec), -EINVAL);
		assert_int_equal(sl_codec_find(rows[i].name, rows[i].most + 1, &codec), -EINVAL);
		assert_non_null(strstr(sluice_last_message(), "levels from"));
	}
	assert_int_equal(sl_codec_find("gzip", 1, &codec), -EINVAL);
	assert_non_null(strstr(sluice_last_message(), "'gzip'"));
	assert_int_equal(sl_codec_find("", 1, &codec), -EINVAL);
}

/* The build says what it found; the table has to agree. */
TEST(codecs_found_by_the_build_are_built_in)
{
	assert_int_equal(!sl_codec_isal.missing, BUILT_WITH_ISAL);
	assert_int_equal(!sl_codec_libdeflate.missing, BUILT_WITH_LIBDEFLATE);
#ifdef BUILT_WITH_ZSTD
	assert_null(sl_codec_zstd.missing);
#else
	assert_non_null(sl_codec_zstd.missing);
#endif
#ifdef BUILT_WITH_LZ4
	assert_null(sl_codec_lz4.missing);
	assert_null(sl_codec_bitshuffle.missing);
#else
	assert_non_null(sl_codec_lz4.missing);
#endif
}

TEST(deflate_at_level_1_is_done_by_isal_where_it_is)
{
	const struct sl_codec *codec;

	if (sl_codec_isal.missing) {
		print_message("skipped: %s\n", sl_codec_isal.missing);
		skip();
	}
	assert_int_equal(sl_codec_find("deflate", 1, &codec), 0);
	assert_string_equal(codec->encoder, "ISA-L");
	if (!sl_codec_find("deflate", 2, &codec))
		assert_string_equal(codec->encoder, "libdeflate");
}

TEST(client_data_is_what_the_filters_document)
{
	unsigned values[SL_CODEC_VALUES];

	each_codec(codec)
	{
		unsigned count = codec->client_data(codec->most, 1, values);

		assert_int_equal(count, codec->filter == 32008 ? 5 : codec->filter ? 1 : 0);
		if (codec->filter == 32008)
			assert_memory_equal(values, ((unsigned[]){0, 2, 1, 0, 2}), sizeof(values));
		if (codec->filter == 1 || codec->filter == 32015)
			assert_int_equal(values[0], codec->most);
		if (codec->filter == 32004)
			assert_int_equal(values[0], MIB);
	}
}

/* ------------------------------------------------------------------------------- bit shuffle */

/* Each bit of a block by itself; the room is exact, and nothing is left of it. */
static void decode_bits(const unsigned char *in, size_t n, size_t size, unsigned char *out,
                        size_t length)
{
	unsigned char *bits = malloc(8192);
	size_t at = 12, most = 8192 / size / 8 * 8;

	assert_in_range(n, 12, SIZE_MAX);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(in[i], (uint64_t)length >> (56 - 8 * i) & 0xff);
	assert_int_equal(in[8] << 24 | in[9] << 16 | in[10] << 8 | in[11], most * size);
	for (size_t left = length / size / 8 * 8, here; left; left -= here, out += here * size) {
		size_t packed = in[at] << 24 | in[at + 1] << 16 | in[at + 2] << 8 | in[at + 3];

		here = left < most ? left : most;
		assert_in_range(packed, 1, n - at - 4);
		unpack_lz4(in + at + 4, packed, bits, here * size);
		at += 4 + packed;
		memset(out, 0, here * size);
		for (size_t bit = 0; bit < here * size * 8; bit++)
			if (bits[bit / 8] >> bit % 8 & 1)
				out[bit % here * size + bit / here / 8] |= 1 << bit / here % 8;
	}
	assert_int_equal(n - at, length % (8 * size));
	memcpy(out, in + at, n - at);
	free(bits);
}

TEST(bitshuffle_output_has_the_format_of_its_filter)
{
	static const size_t sizes[] = {1, 2, 4, 8}, counts[] = {0, 1, 7, 8, 2047, 8192, 30001};
	const struct sl_codec *codec = &sl_codec_bitshuffle;
	uint64_t seed = unit_seed();

	if (codec->missing) {
		print_message("skipped: %s\n", codec->missing);
		skip();
	}
	for (unsigned i = 0; i < 4 * 7 * FIELDS * SL_SIMD_WAYS; i++) {
		size_t size = sizes[i % 4], n = counts[i / 4 % 7] * size, length;
		unsigned char *in = malloc(n + 1), *back = malloc(n + 1);
		unsigned char *packed = malloc(codec->bound(n));
		void *memory;

		sl_simd_limit((enum sl_simd)(i / 28 / FIELDS));
		field_fill((enum field)(i / 28 % FIELDS), &seed, in, n);
		assert_int_equal(codec->state_new(1, size, n, &memory), 0);
		length = codec->compress(memory, in, n, packed, codec->bound(n));
		decode_bits(packed, length, size, back, n);
		assert_memory_equal(back, in, n);
		memset(back, 0x5a, n);
		assert_int_equal(codec->decompress(memory, packed, length, back, n), 0);
		assert_memory_equal(back, in, n);
		codec->state_free(memory);
		free(packed);
		free(back);
		free(in);
	}
	sl_simd_limit(SL_SIMD_WAYS - 1);
}

/* -------------------------------------------------------------------------------- round trips */

/* A stored chunk has another length than one without filters, whatever its bytes. */
static void check_stored(const struct sl_codec *codec, void *codec_state, const unsigned char *in,
                         size_t n)
{
	struct fenced packed = fenced_new(codec->bound(n)), back = fenced_new(n), exact;
	size_t length = codec->store(codec_state, in, n, packed.data);

	assert_in_range(length, n + 1, packed.length);
	exact = fenced_new(length);
	memcpy(exact.data, packed.data, length);
	assert_true(reference_decode(codec, exact.data, length, back.data, n));
	assert_memory_equal(back.data, in, n);
	memset(back.data, 0x5a, n);
	assert_int_equal(codec->decompress(codec_state, exact.data, length, back.data, n), 0);
	assert_memory_equal(back.data, in, n);
	fenced_free(&exact);
	fenced_free(&back);
	fenced_free(&packed);
}

/* The shortest room is a byte less than the chunk; all else has to fit into the bound. */
static void check_round_trip(const struct sl_codec *codec, void *codec_state,
                             const unsigned char *in, size_t n)
{
	struct fenced source = fenced_new(n), packed = fenced_new(codec->bound(n));
	struct fenced back = fenced_new(n), exact;
	size_t length;

	memcpy(source.data, in, n);
	length = codec->compress(codec_state, source.data, n, packed.data, packed.length);
	assert_in_range(length, n || codec->filter ? 1 : 0, packed.length);
	assert_memory_equal(source.data, in, n);

	exact = fenced_new(length);
	memcpy(exact.data, packed.data, length);
	memset(back.data, 0x5a, n);
	assert_true(reference_decode(codec, exact.data, length, back.data, n));
	assert_memory_equal(back.data, in, n);
	memset(back.data, 0x5a, n);
	assert_int_equal(codec->decompress(codec_state, exact.data, length, back.data, n), 0);
	assert_memory_equal(back.data, in, n);

	if (codec->store)
		check_stored(codec, codec_state, in, n);
	fenced_free(&exact);
	fenced_free(&back);
	fenced_free(&packed);
	fenced_free(&source);
}

static void round_trips(size_t n, unsigned size, bool few_levels)
{
	unsigned char *field = malloc(n + 1), *shuffled = malloc(n + 1);
	uint64_t seed = unit_seed() + n;

	for (enum field f = 0; f < FIELDS; f++) {
		field_fill(f, &seed, field, n);
		sl_shuffle(field, n, size, shuffled);
		each_codec(codec)
		{
			for (int level = codec->least; level <= codec->most; level++) {
				void *codec_state;

				if (few_levels && level != 1 && level != 3 && level != 6)
					continue;
				codec_state = state_of(codec, level, n);
				check_round_trip(codec, codec_state, shuffled, n);
				codec->state_free(codec_state);
			}
		}
	}
	free(shuffled);
	free(field);
}

TEST(short_chunks_come_back_at_every_level)
{
	static const size_t lengths[] = {0, 1, 2, 3, 7, 8, 13, 31, 127, 1021, 4096, 65521};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (unsigned size = 1; size <= 8; size *= 2)
			round_trips(lengths[i], size, lengths[i] > 4096 && size != 4);
}

TEST(long_chunks_come_back)
{
	static const size_t lengths[] = {65535, 65536, 1048573, MIB, MIB + 1, 4 * MIB};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		round_trips(lengths[i], 1 << i % 4, true);
}

TEST(a_state_serves_any_sequence_of_chunks)
{
	unsigned char *field = malloc(MIB / 2);
	uint64_t seed = unit_seed();

	each_codec(codec)
	{
		void *codec_state = state_of(codec, 1, MIB / 2);

		for (int round = 0; round < 60; round++) {
			size_t n = unit_random(&seed) % (round % 4 ? 5000 : MIB / 2);

			field_fill(unit_random(&seed) % FIELDS, &seed, field, n);
			check_round_trip(codec, codec_state, field, n);
		}
		codec->state_free(codec_state);
	}
	free(field);
}

TEST(output_that_does_not_fit_is_refused)
{
	enum { N = 3001 };
	unsigned char field[N], back[N];
	uint64_t seed = unit_seed();

	for (enum field f = 0; f < FIELDS; f++) {
		field_fill(f, &seed, field, N);
		each_codec(codec)
		{
			void *codec_state = state_of(codec, 1, N);
			size_t most = codec->bound(N), refused = 0;

			for (size_t room = 0; room <= most;
			     room += room < 300 || room + 100 > most ? 1 : 37) {
				struct fenced packed = fenced_new(room);
				size_t length =
					codec->compress(codec_state, field, N, packed.data, room);

				assert_in_range(length, 0, room);
				refused += !length;
				if (length)
					assert_true(reference_decode(codec, packed.data, length,
					                             back, N));
				if (length)
					assert_memory_equal(back, field, N);
				fenced_free(&packed);
			}
			assert_in_range(refused, 1, most);
			codec->state_free(codec_state);
		}
	}
}

/* Noise with one match in it: what is won there is what the rest costs, now and then. */
TEST(incompressible_data_of_equal_length_comes_back)
{
	unsigned char field[64], packed[256], back[64];
	uint64_t seed = unit_seed();

	each_codec(codec)
	{
		void *codec_state = state_of(codec, 1, sizeof(field));

		for (int round = 0; round < 20000; round++) {
			size_t n = 30 + unit_random(&seed) % 34, match = 4 + unit_random(&seed) % 8;
			size_t length;

			field_fill(FIELD_NOISE, &seed, field, n);
			memmove(field + 12, field + unit_random(&seed) % 5, match);
			length = codec->compress(codec_state, field, n, packed, sizeof(packed));
			assert_true(reference_decode(codec, packed, length, back, n));
			assert_memory_equal(back, field, n);
		}
		codec->state_free(codec_state);
	}
}

TEST(noise_is_refused_where_it_would_grow)
{
	unsigned char *field = malloc(MIB), *packed = malloc(MIB);
	uint64_t seed = unit_seed();

	field_fill(FIELD_NOISE, &seed, field, MIB);
	each_codec(codec)
	{
		void *codec_state = state_of(codec, 1, MIB);

		assert_int_equal(codec->compress(codec_state, field, MIB, packed, MIB - 1), 0);
		codec->state_free(codec_state);
	}
	free(packed);
	free(field);
}

/* A state in memory that had this word everywhere: the allocator gives it what was freed before. Sanitizers' own do not. */
static size_t packed_after(const struct sl_codec *codec, uint16_t word, const void *in, size_t n,
                           void *out)
{
	uint16_t *before = malloc(8 * MIB);
	void *codec_state;
	size_t packed;

	assert_non_null(before);
	for (size_t i = 0; i < 4 * MIB; i++)
		((volatile uint16_t *)before)[i] = word;
	free(before);
	codec_state = state_of(codec, 1, n);
	packed = codec->compress(codec_state, in, n, out, n);
	codec->state_free(codec_state);
	return packed;
}

TEST(what_was_in_the_memory_of_a_state_changes_nothing)
{
	unsigned char *text = malloc(MIB / 4), *packed = malloc(MIB / 4);
	uint64_t seed = unit_seed();

	/* Freed memory stays in the heap as it is. */
	mallopt(M_PERTURB, 0);
	mallopt(M_MMAP_THRESHOLD, 64 * MIB);
	mallopt(M_TRIM_THRESHOLD, 128 * MIB);
	field_fill(FIELD_TEXT, &seed, text, MIB / 4);
	each_codec(codec)
	{
		size_t clean = packed_after(codec, 0, text, MIB / 4, packed);

		for (uint16_t word = 1; word <= 16; word++)
			if (packed_after(codec, word, text, MIB / 4, packed) != clean)
				fail_msg("%s (%s): another length after a word of %u", codec->name,
				         codec->encoder, word);
	}
	free(packed);
	free(text);
}

TEST(smooth_fields_become_smaller)
{
	unsigned char *field = malloc(MIB), *shuffled = malloc(MIB), *packed = malloc(MIB);
	uint64_t seed = unit_seed();

	field_fill(FIELD_SMOOTH32, &seed, field, MIB);
	sl_shuffle(field, MIB, 4, shuffled);
	each_codec(codec)
	{
		void *codec_state = state_of(codec, 1, MIB);

		if (codec->filter)
			assert_in_range(codec->compress(codec_state, shuffled, MIB, packed, MIB), 1,
			                MIB * 9 / 10);
		codec->state_free(codec_state);
	}
	free(packed);
	free(shuffled);
	free(field);
}

/* ------------------------------------------------------------------------------ damaged chunks */

static void expect_refusal(const struct sl_codec *codec, void *codec_state, const unsigned char *in,
                           size_t n, size_t length)
{
	struct fenced packed = fenced_new(n), back = fenced_new(length);

	memcpy(packed.data, in, n);
	assert_int_equal(codec->decompress(codec_state, packed.data, n, back.data, length),
	                 -EBADMSG);
	fenced_free(&back);
	fenced_free(&packed);
}

TEST(a_chunk_of_another_length_is_refused)
{
	enum { N = 5000 };
	unsigned char field[N], packed[2 * N];
	uint64_t seed = unit_seed();

	field_fill(FIELD_TEXT, &seed, field, N);
	each_codec(codec)
	{
		void *codec_state = state_of(codec, 1, N);
		size_t length = codec->compress(codec_state, field, N, packed, sizeof(packed));

		packed[length] = 0;
		expect_refusal(codec, codec_state, packed, length, N - 1);
		expect_refusal(codec, codec_state, packed, length, N + 1);
		expect_refusal(codec, codec_state, packed, length, 0);
		expect_refusal(codec, codec_state, packed, length + 1, N);
		for (size_t n = 0; n < length; n++)
			expect_refusal(codec, codec_state, packed, n, N);
		codec->state_free(codec_state);
	}
}

/* Only deflate has a checksum of what comes out; none may touch other memory. */
TEST(damaged_chunks_stay_within_their_memory)
{
	enum { N = 5000 };
	unsigned char field[N], packed[2 * N];
	uint64_t seed = unit_seed();

	each_codec(codec)
	{
		void *codec_state = state_of(codec, 1, N);
		int refused = 0;

		for (int round = 0; round < 3000; round++) {
			struct fenced damaged, back = fenced_new(N);
			size_t length, at;
			int result;

			field_fill(round % FIELDS, &seed, field, N);
			length = codec->compress(codec_state, field, N, packed, sizeof(packed));
			damaged = fenced_new(length);
			memcpy(damaged.data, packed, length);
			at = unit_random(&seed) % length;
			damaged.data[at] ^= 1 + unit_random(&seed) % 255;
			result = codec->decompress(codec_state, damaged.data, length, back.data, N);
			if (result)
				assert_int_equal(result, -EBADMSG);
			else if (codec->filter == 1)
				assert_memory_equal(back.data, field, N);
			refused += result < 0;
			fenced_free(&damaged);
			fenced_free(&back);
		}
		/* Most of deflate and some of the rest; "none" has nothing to go by. */
		assert_in_range(refused, codec->filter == 1 ? 2900 : codec->filter ? 100 : 0, 3000);
		codec->state_free(codec_state);
	}
}

/* ------------------------------------------------------------------------------------ threads */

struct worker {
	const struct sl_codec *codec;
	void *codec_state;
	const unsigned char *in;
	unsigned char *out;
	size_t length;
};

static void *work(void *argument)
{
	struct worker *worker = argument;

	for (int round = 0; round < 5; round++)
		worker->length = worker->codec->compress(worker->codec_state, worker->in, MIB / 2,
		                                         worker->out, MIB);
	return NULL;
}

TEST(threads_with_a_state_each_do_what_one_does)
{
	enum { THREADS = 4 };
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	unsigned char *fields = malloc(THREADS * MIB), *alone = malloc(MIB);
	uint64_t seed = unit_seed();

	for (int i = 0; i < THREADS; i++)
		field_fill(FIELD_SMOOTH32 + i, &seed, fields + i * MIB, MIB / 2);
	each_codec(codec)
	{
		for (int i = 0; i < THREADS; i++) {
			workers[i] = (struct worker){codec, state_of(codec, 1, MIB / 2),
			                             fields + i * MIB, malloc(MIB), 0};
			assert_int_equal(sl_thread_start(&threads[i], "codec", work, &workers[i]),
			                 0);
		}
		for (int i = 0; i < THREADS; i++) {
			void *codec_state = state_of(codec, 1, MIB / 2);

			pthread_join(threads[i], NULL);
			assert_int_equal(
				codec->compress(codec_state, workers[i].in, MIB / 2, alone, MIB),
				workers[i].length);
			assert_memory_equal(alone, workers[i].out, workers[i].length);
			codec->state_free(codec_state);
			codec->state_free(workers[i].codec_state);
			free(workers[i].out);
		}
	}
	free(alone);
	free(fields);
}

/* --------------------------------------------------------------------------------------- pays */

static bool pays(const struct sl_codec *codec, const void *in, size_t n)
{
	size_t room = codec->bound(SL_CODEC_SAMPLE);
	void *scratch = malloc(room), *codec_state = state_of(codec, 1, n);
	bool answer = sl_codec_pays(codec, codec_state, in, n, scratch, room);

	codec->state_free(codec_state);
	free(scratch);
	return answer;
}

TEST(noise_does_not_pay_and_all_else_does)
{
	unsigned char *field = malloc(MIB), *shuffled = malloc(MIB);
	uint64_t seed = unit_seed();

	for (enum field f = 0; f < FIELDS; f++) {
		field_fill(f, &seed, field, MIB);
		sl_shuffle(field, MIB,
		           f == FIELD_SMOOTH32   ? 4
		           : f == FIELD_SMOOTH64 ? 8
		                                 : 1,
		           shuffled);
		each_codec(codec) if (codec->filter &&
		                      pays(codec, shuffled, MIB) != (f != FIELD_NOISE))
			fail_msg("%s of %s", codec->encoder, field_names[f]);
	}
	free(shuffled);
	free(field);
}

/* An exponent that is the same everywhere is an eighth of a float64, and in one plane of eight. */
TEST(compression_pays_with_a_smooth_plane_among_noise)
{
	unsigned char *field = malloc(MIB);
	uint64_t seed = unit_seed();

	for (int plane = 0; plane < 8; plane++) {
		field_fill(FIELD_NOISE, &seed, field, MIB);
		memset(field + plane * (MIB / 8), 0x3f, MIB / 8);
		each_codec(codec) assert_int_equal(pays(codec, field, MIB), codec->filter != 0);
	}
	free(field);
}

TEST(a_short_chunk_is_always_tried)
{
	unsigned char field[4096];
	uint64_t seed = unit_seed();

	field_fill(FIELD_NOISE, &seed, field, sizeof(field));
	each_codec(codec) assert_int_equal(pays(codec, field, sizeof(field)), codec->filter != 0);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
