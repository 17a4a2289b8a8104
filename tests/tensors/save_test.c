/* SPDX-License-Identifier: Apache-2.0 */
/* Saves: files and folders of tensors of the host and of devices, replaced, refused, cancelled and killed. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/device_suite.h"
#include "sluice/tensors.h"

static const uint64_t none[] = {0, 5}, square[] = {300, 40}, line[] = {777}, large[] = {3, 1 << 20};

#define INDEX "model.safetensors.index.json"
#define TIED  5

/* Tensors of several types, of which two are tied, one is empty and one is a scalar; on the host and on devices in turn. */
struct set {
	struct sluice_collection_tensor v[7];
	void *data[7];
};

static void set_fill(struct set *set, uint64_t seed, bool devices)
{
	const struct sluice_collection_tensor v[] = {
		{sizeof(*v), "a \"quoted\" \xc3\xa9\n", SLUICE_UINT8, 1, line, -1, NULL, 777},
		{sizeof(*v), "tied", SLUICE_FLOAT32, 2, square, -1, NULL, 48000},
		{sizeof(*v), "empty", SLUICE_FLOAT16, 2, none, -1, NULL, 0},
		{sizeof(*v), "", SLUICE_INT64, 0, NULL, -1, NULL, 8},
		{sizeof(*v), "large", SLUICE_BFLOAT16, 2, large, -1, NULL, 6 << 20},
		{sizeof(*v), "tied too", SLUICE_FLOAT32, 2, square, -1, NULL, 48000},
		{sizeof(*v), "b", SLUICE_BOOL, 1, line, -1, NULL, 777}};

	memcpy(set->v, v, sizeof(v));
	for (unsigned i = 0; i < COUNT_OF(set->v); i++) {
		int device = devices && i % 3 < GPU_DEVICES && v[i].bytes ? (int)i % 3 : -1;

		set->data[i] = NULL;
		set->v[i].device = device;
		if (i == TIED)
			continue;
		if (device >= 0) {
			set->data[i] = device_new(device, v[i].bytes);
			device_fill(set->data[i], v[i].bytes, 0, seed * 100 + i);
		} else {
			set->data[i] = malloc(v[i].bytes + 1);
			pattern_fill(set->data[i], v[i].bytes, 0, seed * 100 + i);
		}
		set->v[i].data = set->data[i];
	}
	set->v[TIED].data = set->data[1];
}

static void set_free(struct set *set)
{
	for (unsigned i = 0; i < COUNT_OF(set->v); i++)
		if (set->v[i].device >= 0)
			device_free(set->data[i]);
		else
			free(set->data[i]);
}

static struct sluice_tensor_save_options options(void)
{
	return (struct sluice_tensor_save_options)SLUICE_TENSOR_SAVE_OPTIONS_INIT;
}

static void save_finish(sluice_tensor_save *save)
{
	uint64_t written, all;
	int64_t n = sluice_tensor_save_wait(save, PATIENCE_MS);

	if (n < 0)
		fail_msg("a save: %s: %s", strerror((int)-n), sluice_tensor_save_message(save));
	sluice_tensor_save_progress(save, &written, &all);
	assert_int_equal(written, all);
	assert_int_equal(n, all);
	assert_ok(sluice_tensor_save_fence(save, 0));
	assert_string_equal(sluice_tensor_save_message(save), "");
	sluice_tensor_save_free(save);
}

static void save_now(struct fixture *f, const char *uri, const struct set *set,
                     const struct sluice_tensor_save_options *o)
{
	sluice_tensor_save *save;

	assert_ok(sluice_tensors_save(f->ctx, uri, set->v, COUNT_OF(set->v), o, &save));
	save_finish(save);
}

static sluice_tensors *tensors_open(struct fixture *f, const char *uri)
{
	sluice_tensors *t;

	assert_ok(sluice_tensors_open(f->ctx, &uri, 1, NULL, &t));
	return t;
}

/* Whether the open files have the tensors of that seed, all of them. */
static bool tensors_are(const sluice_tensors *t, uint64_t seed)
{
	struct set set;
	bool right = sluice_tensors_count(t) == COUNT_OF(set.v) - 1;

	set_fill(&set, seed, false);
	for (unsigned i = 0; right && i < COUNT_OF(set.v); i++) {
		struct sluice_tensor found = {.size = sizeof(found)};
		struct sluice_tensor_file file = {.size = sizeof(file)};
		char *held = malloc(set.v[i].bytes + 1);
		size_t index;

		if (i == TIED) {
			free(held);
			continue;
		}
		assert_ok(sluice_tensors_find(t, set.v[i].name, &index));
		assert_ok(sluice_tensors_get(t, index, &found));
		assert_ok(sluice_tensors_file(t, found.file, &file));
		assert_int_equal(found.type, set.v[i].type);
		assert_int_equal(found.rank, set.v[i].rank);
		assert_memory_equal(found.shape, set.v[i].shape, found.rank * sizeof(uint64_t));
		assert_int_equal(found.bytes, set.v[i].bytes);
		assert_int_equal(read_now(file.file, held, found.bytes, found.offset), found.bytes);
		right = !memcmp(held, set.data[i], found.bytes);
		free(held);
	}
	set_free(&set);
	return right;
}

static void assert_saved(struct fixture *f, const char *uri, uint64_t seed)
{
	sluice_tensors *t = tensors_open(f, uri);

	assert_true(tensors_are(t, seed));
	sluice_tensors_free(t);
}

/* The value of a key in "__metadata__" of a file; NULL: it has none. */
static const char *metadata(const sluice_tensors *t, size_t file, const char *key)
{
	struct sluice_tensor_file info = {.size = sizeof(info)};
	const char *found, *value;

	assert_ok(sluice_tensors_file(t, file, &info));
	for (size_t i = 0; i < info.metadata; i++) {
		assert_ok(sluice_tensors_metadata(t, file, i, &found, &value));
		if (!strcmp(found, key))
			return value;
	}
	return NULL;
}

/* --------------------------------------------------------------------------- what is written */

FIXTURE_TEST(a_file_has_the_tensors_larger_elements_first_from_a_multiple_of_4096)
{
	const char *path = scratch(f, "x.safetensors");
	const char *pairs[] = {"format", "pt", "a \"key\"", "\n"};
	struct sluice_tensor_save_options o = options();
	struct sluice_tensor first = {.size = sizeof(first)};
	sluice_tensors *t;
	struct set set;

	o.metadata = pairs;
	o.metadata_count = 2;
	for (int devices = 0; devices < 2; devices++) {
		set_fill(&set, 1, devices);
		save_now(f, path, &set, &o);
		t = tensors_open(f, path);
		assert_true(tensors_are(t, 1));
		assert_ok(sluice_tensors_get(t, 0, &first));
		assert_int_equal(first.offset % 4096, 0);
		assert_int_equal(first.type, SLUICE_INT64);
		assert_string_equal(metadata(t, 0, "format"), "pt");
		assert_string_equal(metadata(t, 0, "a \"key\""), "\n");
		assert_string_equal(metadata(t, 0, "tied too"), "tied");
		sluice_tensors_free(t);
		set_free(&set);
	}
	assert_int_equal(directory_entries(f->dir), 1);
}

FIXTURE_TEST(a_folder_has_files_and_an_index_which_is_replaced_and_old_files_go)
{
	static const char *const foreign[] = {
		"other-0123456789abcdef.safetensors",
		"mine-0123456789abcdef-00001-of-00002.safetensors",
		"model-0123456789abcdef-00001-of-00002.safetensors.old",
		".sluice-notes-of-the-user"};
	char *folder = strdup(scratch(f, "saves")), path[300];
	struct sluice_tensor_save_options o = options();
	sluice_tensors *old = NULL;
	struct set set;

	snprintf(path, sizeof(path), "%s/" INDEX, folder);
	for (unsigned round = 0; round < 3; round++) {
		o.file_bytes = round == 1 ? 1000 : 0;
		set_fill(&set, round, true);
		save_now(f, folder, &set, &o);
		assert_saved(f, path, round);
		if (old) { /* what was open stays */
			assert_true(tensors_are(old, round - 1));
			sluice_tensors_free(old);
		}
		for (unsigned i = 0; !round && i < COUNT_OF(foreign); i++) {
			char name[400];

			snprintf(name, sizeof(name), "%s/%s", folder, foreign[i]);
			file_make(name, 10, 1);
		}
		old = tensors_open(f, path);
		/* Of 1,000 bytes: 8, 48,000, 6 MiB, and two of 777 with an empty one. */
		assert_int_equal(directory_entries(folder),
		                 COUNT_OF(foreign) + 1 + (round == 1 ? 5 : 1));
		set_free(&set);
	}
	sluice_tensors_free(old);
	free(folder);
}

FIXTURE_TEST(an_empty_set_is_a_file_without_tensors)
{
	const char *path = scratch(f, "empty.safetensors");
	sluice_tensor_save *save;
	sluice_tensors *t;

	assert_ok(sluice_tensors_save(f->ctx, path, NULL, 0, NULL, &save));
	save_finish(save);
	t = tensors_open(f, path);
	assert_int_equal(sluice_tensors_count(t), 0);
	sluice_tensors_free(t);
}

FIXTURE_TEST(a_save_behind_a_stream_has_what_its_kernels_wrote)
{
	const char *path = scratch(f, "x.safetensors");
	struct sluice_tensor_save_options o = options();
	sluice_tensor_save *save;
	sluice_stream stream = stream_new(0);
	struct gpu_hold hold;
	struct set set;
	void *memory;

	set_fill(&set, 7, false);
	memory = device_new(0, set.v[4].bytes);
	free(set.data[4]);
	set.v[4].data = set.data[4] = memory;
	set.v[4].device = 0;
	o.on = 1;
	o.device = gpu_device(0);
	o.stream = stream;
	hold_begin(&hold, 0, stream);
	launch_fill(0, stream, memory, set.v[4].bytes, 0, 704);
	assert_ok(sluice_tensors_save(f->ctx, path, set.v, COUNT_OF(set.v), &o, &save));
	assert_int_equal(sluice_tensor_save_fence(save, 30), -EINPROGRESS);
	assert_int_equal(sluice_tensor_save_wait(save, 0), -EINPROGRESS);
	hold_end(&hold);
	assert_ok(sluice_tensor_save_fence(save, PATIENCE_MS));
	launch_fill(0, stream, memory, set.v[4].bytes, 0, 1);
	save_finish(save);
	assert_saved(f, path, 7);
	stream_pass(0, stream);
	stream_free(stream);
	set_free(&set);
}

FIXTURE_TEST(digests_are_those_of_the_files)
{
	const char *uris[] = {scratch(f, "x.safetensors"), scratch(f, "saves")};
	struct sluice_tensor_save_options o = options();

	o.digests = 1;
	o.file_bytes = 1000;
	for (unsigned i = 0; i < 2; i++) {
		struct sluice_tensor_saved saved = {.size = sizeof(saved)};
		sluice_tensor_save *save;
		struct set set;
		size_t n = 0;

		set_fill(&set, 3, true);
		assert_ok(sluice_tensors_save(f->ctx, uris[i], set.v, COUNT_OF(set.v), &o, &save));
		assert_true(sluice_tensor_save_wait(save, PATIENCE_MS) > 0);
		for (; !sluice_tensor_save_file(save, n, &saved); n++) {
			struct sluice_digest digest;
			sluice_file *file = open_read(f->ctx, saved.uri);

			assert_ok(sluice_file_digest(file, SLUICE_SHA256, &digest));
			assert_int_equal(saved.digest.kind, SLUICE_SHA256);
			assert_memory_equal(saved.digest.bytes, digest.bytes, 32);
			assert_int_equal(saved.bytes, file_length(saved.uri));
			assert_ok(sluice_close(file));
		}
		assert_int_equal(n, i ? 5 : 1);
		sluice_tensor_save_free(save);
		set_free(&set);
	}
	assert_saved(f, uris[0], 3);
	assert_saved(f, scratch(f, "saves/" INDEX), 3);
}

FIXTURE_TEST(tensors_of_files_are_saved_again)
{
	char *to = strdup(scratch(f, "again")), index[300];
	struct sluice_tensor_save_options o = options();
	size_t chosen[2], wrong = 6;
	sluice_tensor_save *save;
	sluice_tensors *from, *some;
	struct set set;

	snprintf(index, sizeof(index), "%s/" INDEX, to);
	set_fill(&set, 9, true);
	o.file_bytes = 1000;
	save_now(f, scratch(f, "saves"), &set, &o);
	from = tensors_open(f, scratch(f, "saves/" INDEX));
	o.file_bytes = 50000;
	o.digests = 1;
	o.on = 1; /* which has no effect, nor the device */
	o.device = 99;
	assert_ok(sluice_tensors_save_files(to, from, NULL, 0, &o, &save));
	save_finish(save);
	assert_saved(f, index, 9);
	assert_ok(sluice_tensors_find(from, "large", &chosen[0]));
	assert_ok(sluice_tensors_find(from, "b", &chosen[1]));
	assert_ok(sluice_tensors_save_files(scratch(f, "two.safetensors"), from, chosen, 2, NULL,
	                                    &save));
	save_finish(save);
	some = tensors_open(f, scratch(f, "two.safetensors"));
	assert_int_equal(sluice_tensors_count(some), 2);
	assert_refused(sluice_tensors_save_files(to, from, &wrong, 1, NULL, &save), EINVAL, "6");
	/* A file that is shorter than its header says leaves what was there. */
	file_truncate(scratch(f, "two.safetensors"), 1 << 20);
	assert_ok(sluice_tensors_save_files(to, some, NULL, 0, NULL, &save));
	assert_int_equal(sluice_tensor_save_wait(save, PATIENCE_MS), -EIO);
	sluice_tensor_save_free(save);
	assert_saved(f, index, 9);
	sluice_tensors_free(from);
	sluice_tensors_free(some);
	set_free(&set);
	free(to);
}

/* ----------------------------------------------------------------------------- what is refused */

FIXTURE_TEST(wrong_tensors_and_names_are_refused_at_once)
{
	struct sluice_tensor_save_options o = options();
	uint64_t huge[] = {UINT64_MAX, 2}, odd[] = {3};
	char bytes[64] = {0};
	struct sluice_collection_tensor v[2] = {
		{sizeof(*v), "a", SLUICE_UINT8, 1, odd, -1, bytes, 0},
		{sizeof(*v), "b", SLUICE_UINT8, 1, odd, -1, bytes, 0}};
	const char *pair[] = {"b", "x", "b", "y"};
	const char *path = scratch(f, "x.safetensors");
	sluice_tensor_save *save;

#define REFUSED(uri, error, says) \
	assert_refused(sluice_tensors_save(f->ctx, uri, v, 2, &o, &save), error, says)
	o.refuse_shared = 1;
	REFUSED(path, EINVAL, "'a' and 'b' have the same memory");
	o.refuse_shared = 0;
	o.metadata = pair;
	o.metadata_count = 1;
	REFUSED(path, EINVAL, "'b' is a key of the metadata");
	o.metadata_count = 2;
	REFUSED(path, EINVAL, "'b' is in the metadata twice");
	o.metadata_count = 0;
	v[1].name = "a";
	REFUSED(path, EINVAL, "two tensors have the name 'a'");
	v[1].name = "__metadata__";
	REFUSED(path, EINVAL, "__metadata__");
	v[1].name = "\xff";
	REFUSED(path, EINVAL, "UTF-8");
	v[1].name = "b";
	v[1].type = SLUICE_COMPLEX128;
	REFUSED(path, ENOTSUP, "'b': safetensors has no elements of complex128");
	v[1].type = 99;
	REFUSED(path, ENOTSUP, "'b'");
	v[1].type = SLUICE_FLOAT4_E2M1;
	REFUSED(path, EINVAL, "ends within a byte");
	v[1].type = SLUICE_UINT8;
	v[1].shape = huge;
	v[1].rank = 2;
	REFUSED(path, EINVAL, "'b': its shape is too large");
	v[1].rank = 17;
	REFUSED(path, EINVAL, "16 dimensions");
	v[1].rank = 1;
	v[1].shape = odd;
	v[1].data = NULL;
	REFUSED(path, EINVAL, "'b': its data is NULL");
	v[1].data = bytes + 8;
	REFUSED("http://127.0.0.1:1/x", ENOTSUP, "no path and no s3");
	REFUSED(scratch(f, INDEX), EINVAL, "and not the index");
	REFUSED("", EINVAL, "empty");
	v[0].size = 0;
	REFUSED(path, EINVAL, "size of a tensor");
#undef REFUSED
	assert_int_equal(directory_entries(f->dir), 0);
}

static void assert_save_fails(struct fixture *f, const char *uri, const struct set *set,
                              unsigned file_bytes, int error, const char *says)
{
	struct sluice_tensor_save_options o = options();
	sluice_tensor_save *save;

	o.file_bytes = file_bytes;
	assert_ok(sluice_tensors_save(f->ctx, uri, set->v, COUNT_OF(set->v), &o, &save));
	assert_int_equal(sluice_tensor_save_wait(save, PATIENCE_MS), -error);
	if (!strstr(sluice_tensor_save_message(save), says))
		fail_msg("\"%s\" does not mention \"%s\"", sluice_tensor_save_message(save), says);
	sluice_tensor_save_free(save);
}

FIXTURE_TEST(a_save_that_fails_leaves_the_old_tensors_and_nothing_of_its_own)
{
	char *folder = strdup(scratch(f, "saves")), path[300];
	struct rlimit before, now;
	struct set set;

	snprintf(path, sizeof(path), "%s/" INDEX, folder);
	set_fill(&set, 1, true);
	assert_save_fails(f, scratch(f, "missing/x.safetensors"), &set, 0, ENOENT, "missing");
	assert_save_fails(f, scratch(f, "missing/saves"), &set, 0, ENOENT, "missing");
	save_now(f, folder, &set, NULL);
	set_free(&set);
	set_fill(&set, 2, true);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	now = before;
	now.rlim_cur = 1 << 20;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
	assert_save_fails(f, folder, &set, 1000, EFBIG, "saves/model-");
	assert_save_fails(f, scratch(f, "new"), &set, 1000, EFBIG, "new/model-");
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(directory_entries(folder), 2);
	assert_int_equal(directory_entries(f->dir), 1);
	assert_saved(f, path, 1);
	set_free(&set);
	free(folder);
}

FIXTURE_TEST(a_save_that_is_cancelled_is_there_or_leaves_nothing)
{
	char *folder = strdup(scratch(f, "saves")), path[300];
	unsigned cancelled = 0, last = 0;
	struct rng r = rng_new(0);

	snprintf(path, sizeof(path), "%s/" INDEX, folder);
	for (unsigned round = 0; round < 40; round++) {
		struct sluice_tensor_save_options o = options();
		sluice_tensor_save *save;
		struct set set;
		int64_t n;

		o.file_bytes = 1000;
		set_fill(&set, round, false);
		assert_ok(sluice_tensors_save(f->ctx, folder, set.v, COUNT_OF(set.v), &o, &save));
		usleep((unsigned)rng_below(&r, round ? 8000 : 1));
		if (round)
			sluice_tensor_save_cancel(save);
		n = sluice_tensor_save_wait(save, PATIENCE_MS);
		assert_true(n > 0 || (n == -ECANCELED && round));
		cancelled += n < 0;
		last = n > 0 ? round : last;
		sluice_tensor_save_free(save);
		set_free(&set);
		assert_saved(f, path, last);
		assert_int_equal(directory_entries(folder), 1 + 5);
	}
	print_message("%u were cancelled\n", cancelled);
	assert_true(cancelled > 3);
	free(folder);
}

/* --------------------------------------------------------------------------- saves that die */

/* A process that saves until it is killed, and counts what it has saved. */
static void save_for_ever(const char *folder, _Atomic unsigned *saved, unsigned seed)
{
	struct sluice_tensor_save_options o = options();
	struct sluice_config config = row_config();
	sluice_context *ctx;

	o.file_bytes = 1000;
	if (sluice_context_new(&config, &ctx))
		_exit(1);
	for (;; seed++) {
		sluice_tensor_save *save;
		struct set set;

		set_fill(&set, seed, false);
		if (sluice_tensors_save(ctx, folder, set.v, COUNT_OF(set.v), &o, &save) ||
		    sluice_tensor_save_wait(save, -1) < 0)
			_exit(2);
		atomic_store(saved, seed);
		sluice_tensor_save_free(save);
		set_free(&set);
	}
}

LOCAL_TEST(a_killed_save_leaves_the_last_complete_one_and_the_next_removes_its_files,
           "a process of its own")
{
	char *folder, path[300];
	_Atomic unsigned *saved;
	unsigned rounds = under_stress() ? 500 : 12, left = 0;
	struct rng r = rng_new(0);
	struct set set;

	if (under_sanitizer())
		SKIP("ThreadSanitizer does not follow a child of a fork that starts threads");
	folder = strdup(scratch(f, "saves"));
	saved = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(path, sizeof(path), "%s/" INDEX, folder);
	set_fill(&set, 0, false);
	save_now(f, folder, &set, NULL);
	for (unsigned round = 0; round < rounds; round++) {
		unsigned begun = atomic_load(saved) + 1;
		sluice_tensors *t;
		pid_t child;
		int status;

		child = fork();
		if (!child)
			save_for_ever(folder, saved, begun);
		usleep(20000 + (unsigned)rng_below(&r, 60000));
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		/* The last that was reported, or the one behind it. */
		t = tensors_open(f, path);
		assert_true(tensors_are(t, atomic_load(saved)) ||
		            tensors_are(t, atomic_load(saved) + 1));
		sluice_tensors_free(t);
		left += directory_entries(folder) != 6;
		atomic_fetch_add(saved, 1);
		save_now(f, folder, &set, NULL);
		assert_int_equal(directory_entries(folder), 2);
		set_free(&set);
		set_fill(&set, atomic_load(saved), false);
		save_now(f, folder, &set, NULL);
	}
	print_message("%u saves left files\n", left);
	assert_true(left > rounds / 4);
	set_free(&set);
	munmap((void *)saved, 4096);
	free(folder);
}

FIXTURE_TEST(saves_at_once_into_a_folder_remove_no_file_of_each_other)
{
	char *folder = strdup(scratch(f, "saves")), path[300];
	struct set sets[4];

	snprintf(path, sizeof(path), "%s/" INDEX, folder);
	for (unsigned i = 0; i < COUNT_OF(sets); i++)
		set_fill(&sets[i], i, false);
	for (unsigned round = 0; round < 10; round++) {
		sluice_tensor_save *saves[COUNT_OF(sets)];
		struct sluice_tensor_save_options o = options();
		sluice_tensors *t;
		bool right = false;

		o.file_bytes = 1000;
		for (unsigned i = 0; i < COUNT_OF(sets); i++)
			assert_ok(sluice_tensors_save(f->ctx, folder, sets[i].v,
			                              COUNT_OF(sets[i].v), &o, &saves[i]));
		for (unsigned i = 0; i < COUNT_OF(sets); i++)
			save_finish(saves[i]);
		t = tensors_open(f, path);
		for (unsigned i = 0; i < COUNT_OF(sets); i++)
			right |= tensors_are(t, i);
		assert_true(right);
		sluice_tensors_free(t);
	}
	/* What the last ones left to each other, the next removes. */
	save_now(f, folder, &sets[0], NULL);
	assert_int_equal(directory_entries(folder), 2);
	for (unsigned i = 0; i < COUNT_OF(sets); i++)
		set_free(&sets[i]);
	free(folder);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	row_start_devices();
	printf("row %s\n", row->name);
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return RUN_TESTS(NULL, NULL);
}
