/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of whole files, and loads that are checked by them; in rows of local files and of servers. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lib/gpu.h"
#include "lib/servers.h"
#include "lib/support.h"
#include "sluice/emulated.h"
#include "sluice/tensors.h"
#include "tensors/digest.h"
#include "tensors/tensors.h"

/* Larger than all buffers of a digest together; and than those of a file of a load with FILES. */
#define LARGE  (67 * MIB + 5)
#define LONG   (45 * MIB + 5)
#define MIDDLE (9 * MIB + 5)
enum { SEED = 7, FILES = 3 };

static const int kinds[] = {SLUICE_SHA256, SLUICE_XXH3_128};

static struct sluice_digest digest_of(sluice_context *ctx, const char *uri, int kind)
{
	sluice_file *file = open_read(ctx, uri);
	struct sluice_digest digest;

	assert_ok(sluice_file_digest(file, kind, &digest));
	assert_int_equal(digest.kind, kind);
	assert_ok(sluice_close(file));
	return digest;
}

static void assert_digest(const struct sluice_digest *digest, const char *hex)
{
	char text[SL_DIGEST_TEXT];

	assert_string_equal(sl_digest_format(digest, text), hex);
}

/* ---------------------------------------------------------------------------------- single files */

FIXTURE_TEST(sha256_is_that_of_fips_180)
{
	static const struct {
		const char *text;
		unsigned times;
		const char *digest;
	} vectors[] = {
		{"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
	         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
		{"aaaaaaaaaa", 100000,
	         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
	};

	for (size_t i = 0; i < COUNT_OF(vectors); i++) {
		const char *path = scratch(f, "vector");
		size_t n = strlen(vectors[i].text);

		file_make(path, 0, 0);
		char *bytes = malloc(n * vectors[i].times + 1);
		for (unsigned j = 0; j < vectors[i].times; j++)
			memcpy(bytes + j * n, vectors[i].text, n);
		file_write(path, bytes, n * vectors[i].times, 0);
		free(bytes);
		struct sluice_digest digest =
			digest_of(f->ctx, address(f, "vector"), SLUICE_SHA256);
		assert_digest(&digest, vectors[i].digest);
	}
}

/* The digest of bytes in one memory. */
static void assert_xxh3_of(const struct sluice_digest *digest, const void *bytes, size_t n)
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, n));
	assert_memory_equal(digest->bytes, &canonical, sizeof(canonical));
}

FIXTURE_TEST(xxh3_is_that_of_all_bytes)
{
	static const size_t sizes[] = {0, 1, MIB - 1, MIB, MIB + 1, 8 * MIB, MIDDLE, LARGE};
	unsigned char *bytes = malloc(LARGE);

	pattern_fill(bytes, LARGE, 0, SEED);
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		file_make(scratch(f, "file"), sizes[i], SEED);
		struct sluice_digest digest =
			digest_of(f->ctx, address(f, "file"), SLUICE_XXH3_128);
		assert_xxh3_of(&digest, bytes, sizes[i]);
		if (!sizes[i])
			assert_digest(&digest, "99aa06d3014798d86001c324468d497f");
	}
	free(bytes);
}

FIXTURE_TEST(a_file_of_unknown_length_has_a_digest)
{
	unsigned char bytes[4096];
	struct sluice_digest digest;
	FILE *file = fopen("/proc/version", "r");
	size_t n = fread(bytes, 1, sizeof(bytes), file);

	fclose(file);
	digest = digest_of(f->ctx, "/proc/version", SLUICE_XXH3_128);
	assert_xxh3_of(&digest, bytes, n);
}

FIXTURE_TEST(each_flipped_bit_changes_the_digest)
{
	struct rng rng = rng_new(1);
	unsigned char byte;

	file_make(scratch(f, "file"), MIDDLE, SEED);
	for (size_t k = 0; k < COUNT_OF(kinds); k++) {
		struct sluice_digest whole = digest_of(f->ctx, address(f, "file"), kinds[k]);
		for (int i = 0; i < rounds_of(30); i++) {
			const size_t edges[] = {0, MIB - 1, MIB, 8 * MIB, MIDDLE - 1};
			size_t at = i < (int)COUNT_OF(edges) ? edges[i] : rng_below(&rng, MIDDLE);
			unsigned char bit = (unsigned char)(1 << rng_below(&rng, 8));

			file_read(scratch(f, "file"), &byte, 1, at);
			byte ^= bit;
			file_write(scratch(f, "file"), &byte, 1, at);
			struct sluice_digest other =
				digest_of(f->ctx, address(f, "file"), kinds[k]);
			assert_false(sl_digest_equal(&whole, &other));
			byte ^= bit;
			file_write(scratch(f, "file"), &byte, 1, at);
		}
		struct sluice_digest again = digest_of(f->ctx, address(f, "file"), kinds[k]);
		assert_true(sl_digest_equal(&whole, &again));
	}
}

FIXTURE_TEST(wrong_arguments_of_a_digest_are_refused)
{
	struct sluice_digest digest = {0};
	sluice_file *file;

	file_make(scratch(f, "file"), 10, SEED);
	file = open_read(f->ctx, address(f, "file"));
	assert_refused(sluice_file_digest(NULL, SLUICE_SHA256, &digest), EINVAL, "file is NULL");
	assert_refused(sluice_file_digest(file, SLUICE_XXH3_128, NULL), EINVAL, "out is NULL");
	assert_refused(sluice_file_digest(file, 3, &digest), EINVAL, "3 is no kind");
	assert_int_equal(digest.kind, 0);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(a_file_that_changes_on_its_server_has_no_digest)
{
	struct sluice_digest digest;
	sluice_file *file;

	if (!row->remote)
		SKIP("local files are read as they are");
	file = open_read(f->ctx, fault_uri("size=%zu&change=2", LARGE));
	assert_refused(sluice_file_digest(file, SLUICE_XXH3_128, &digest), ESTALE, "changed");
	assert_ok(sluice_close(file));
}

/* ----------------------------------------------------------------------------------------- loads */

/* A load of files with their digests. */
struct load {
	struct sl_tensor_file files[FILES];
	struct sluice_tensors tensors;
	struct sluice_digest digests[FILES];
	struct sl_tensor_stretch stretches[FILES];
	_Atomic uint64_t moved;
	_Atomic bool stop;
};

static void load_start(struct load *load)
{
	memset(load, 0, sizeof(*load));
	load->tensors.files = load->files;
}

/* Adds a file that is read by no extents yet. */
static struct sl_tensor_stretch *load_add(struct load *load, sluice_context *ctx, const char *uri,
                                          uint64_t length)
{
	size_t i = load->tensors.file_count++;

	load->files[i] = (struct sl_tensor_file){
		.file = open_read(ctx, uri), .name = strdup(uri), .length = length};
	load->stretches[i] = (struct sl_tensor_stretch){.file = i, .device = -1};
	return &load->stretches[i];
}

static int load_run(struct load *load)
{
	return sl_tensor_read_verified(&load->tensors, load->stretches, load->tensors.file_count,
	                               load->digests, &load->moved, &load->stop);
}

static void load_end(struct load *load)
{
	for (size_t i = 0; i < load->tensors.file_count; i++) {
		assert_ok(sluice_close(load->files[i].file));
		free(load->files[i].name);
		free(load->stretches[i].extents);
	}
}

/* Makes FILES files of the pattern, and a load of them with their digests. */
static void load_of_patterns(struct load *load, struct fixture *f, int kind)
{
	static const uint64_t lengths[FILES] = {MIDDLE, 1, LONG};

	load_start(load);
	for (size_t i = 0; i < FILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "file%zu", i);
		file_make(scratch(f, name), lengths[i], SEED + i);
		load_add(load, f->ctx, address(f, name), lengths[i]);
		load->digests[i] = digest_of(f->ctx, address(f, name), kind);
	}
}

/* Extents of a stretch with gaps, and the whole stretch once more behind them, all in memory of 2 * length bytes. */
static void stretch_scatter(struct sl_tensor_stretch *stretch, uint64_t length,
                            char *const memory[2], struct rng *rng)
{
	uint64_t at = rng_below(rng, 3);

	stretch->extents = malloc((length / 1000 + 3) * sizeof(*stretch->extents));
	stretch->extents[stretch->count++] = (struct sluice_extent){memory[1] + length, length, 0};
	while (at < length) {
		size_t n = rng_below(rng, 3 * MIB) + 1000;

		n = n < length - at ? n : length - at;
		stretch->extents[stretch->count] =
			(struct sluice_extent){memory[stretch->count % 2] + at, n, at};
		stretch->count++;
		at += n + (rng_below(rng, 2) ? 0 : 777);
	}
}

static void assert_scattered(const struct sl_tensor_stretch *stretch, uint64_t seed)
{
	char *bytes = malloc(LONG);

	for (size_t i = 0; i < stretch->count; i++) {
		assert_ok(sluice_copy(bytes, stretch->extents[i].data, stretch->extents[i].length));
		assert_pattern(bytes, stretch->extents[i].length, stretch->extents[i].offset, seed);
	}
	free(bytes);
}

/* Loads patterns into memory of two devices, of which each may be -1, the host. */
static void load_into(struct fixture *f, int kind, const int devices[2])
{
	static struct load load;
	char *memory[FILES][2];
	uint64_t all = 0;
	struct rng rng = rng_new(2);

	load_of_patterns(&load, f, kind);
	for (size_t i = 0; i < FILES; i++) {
		uint64_t length = load.files[i].length;

		for (int j = 0; j < 2; j++) {
			memory[i][j] = malloc(2 * length);
			if (devices[j] >= 0) {
				free(memory[i][j]);
				assert_ok(sluice_device_alloc(devices[j], 2 * length,
				                              (void **)&memory[i][j]));
			}
		}
		stretch_scatter(&load.stretches[i], length, memory[i], &rng);
		all += length;
	}
	assert_ok(load_run(&load));
	assert_int_equal(load.moved, all);
	assert_false(load.stop);
	for (size_t i = 0; i < FILES; i++) {
		assert_scattered(&load.stretches[i], SEED + i);
		for (int j = 0; j < 2; j++)
			if (devices[j] >= 0)
				assert_ok(sluice_device_free(memory[i][j]));
			else
				free(memory[i][j]);
	}
	load_end(&load);
}

FIXTURE_TEST(a_load_with_right_digests_has_all_bytes_on_the_host)
{
	for (size_t k = 0; k < COUNT_OF(kinds); k++)
		load_into(f, kinds[k], (const int[]){-1, -1});
}

FIXTURE_TEST(a_load_with_right_digests_has_all_bytes_on_devices)
{
	struct sluice_emulated_options slow = SLUICE_EMULATED_OPTIONS_INIT;
	struct sluice_emulated_options fast = SLUICE_EMULATED_OPTIONS_INIT;

	slow.seed = test_seed() | 1;
	slow.delay_us = 5000;
	if (!gpu_is_real())
		assert_ok(sluice_emulated_configure(gpu_device(0), &slow));
	load_into(f, SLUICE_XXH3_128, (const int[]){gpu_device(0), gpu_device(1)});
	if (!gpu_is_real())
		assert_ok(sluice_emulated_configure(gpu_device(0), &fast));
	load_into(f, SLUICE_XXH3_128, (const int[]){gpu_device(1), -1});
}

FIXTURE_TEST(a_load_fails_if_a_bit_of_a_file_was_flipped)
{
	static struct load load;
	char should[SL_DIGEST_TEXT], is[SL_DIGEST_TEXT];
	unsigned char byte;

	for (size_t k = 0; k < COUNT_OF(kinds); k++) {
		load_of_patterns(&load, f, kinds[k]);
		file_read(scratch(f, "file2"), &byte, 1, LONG - 1);
		byte ^= 0x10;
		file_write(scratch(f, "file2"), &byte, 1, LONG - 1);
		/* A file on a server is then another one, which a new handle reads. */
		assert_ok(sluice_close(load.files[2].file));
		load.files[2].file = open_read(f->ctx, address(f, "file2"));
		struct sluice_digest digest = digest_of(f->ctx, address(f, "file2"), kinds[k]);
		assert_refused(load_run(&load), EBADMSG, "file2");
		assert_non_null(
			strstr(sluice_last_message(), sl_digest_format(&load.digests[2], should)));
		assert_non_null(strstr(sluice_last_message(), sl_digest_format(&digest, is)));
		assert_true(load.stop);
		load_end(&load);
	}
}

FIXTURE_TEST(a_file_of_a_load_may_have_no_digest)
{
	static struct load load;
	char *bytes = malloc(MIDDLE);

	load_of_patterns(&load, f, SLUICE_XXH3_128);
	load.digests[0] = (struct sluice_digest){0};
	load.stretches[0].extents = malloc(sizeof(*load.stretches[0].extents));
	load.stretches[0].extents[0] = (struct sluice_extent){bytes, MIDDLE, 0};
	load.stretches[0].count = 1;
	assert_ok(load_run(&load));
	assert_pattern(bytes, MIDDLE, 0, SEED);
	load_end(&load);
	free(bytes);
}

FIXTURE_TEST(a_load_fails_if_a_file_has_become_shorter)
{
	static struct load load;

	load_of_patterns(&load, f, SLUICE_XXH3_128);
	load.files[0].length += 5 * MIB;
	assert_refused(load_run(&load), EIO, "file0");
	load_end(&load);
}

FIXTURE_TEST(a_load_that_is_cancelled_before_it_begins_reads_nothing)
{
	static struct load load;

	load_of_patterns(&load, f, SLUICE_XXH3_128);
	load.stop = true;
	assert_refused(load_run(&load), ECANCELED, "cancelled");
	assert_int_equal(load.moved, 0);
	load_end(&load);
}

static void *stop_soon(void *argument)
{
	struct load *load = argument;

	sleep_ms(100);
	load->stop = true;
	return NULL;
}

FIXTURE_TEST(a_cancel_ends_a_load_that_waits_for_a_server)
{
	static struct load load;
	pthread_t thread;
	const char *uri;
	double begun;

	if (!row->remote)
		SKIP("no local file keeps a read waiting");
	uri = fault_uri("size=%zu&fault=hold:1000", MIDDLE);
	load_start(&load);
	load_add(&load, f->ctx, uri, MIDDLE);
	load.digests[0].kind = SLUICE_XXH3_128;
	begun = seconds_now();
	assert_int_equal(pthread_create(&thread, NULL, stop_soon, &load), 0);
	assert_refused(load_run(&load), ECANCELED, "cancelled");
	assert_true(seconds_now() - begun < 10);
	pthread_join(thread, NULL);
	release_held(uri);
	load_end(&load);
}

FIXTURE_TEST(the_first_error_ends_the_reads_of_other_files)
{
	static struct load load;
	const char *uri;
	double begun;

	if (!row->remote)
		SKIP("no local file keeps a read waiting");
	uri = fault_uri("size=%zu&fault=hold:1000", MIDDLE);
	load_start(&load);
	load_add(&load, f->ctx, uri, MIDDLE);
	file_make(scratch(f, "file"), 1000, SEED);
	load_add(&load, f->ctx, address(f, "file"), 1000);
	load.digests[0].kind = load.digests[1].kind = SLUICE_XXH3_128;
	begun = seconds_now();
	assert_refused(load_run(&load), EBADMSG, "file");
	assert_true(seconds_now() - begun < 10);
	release_held(uri);
	load_end(&load);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	row_start_devices();
	/* By hand: the cases whose names match. */
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return RUN_TESTS(NULL, NULL);
}
