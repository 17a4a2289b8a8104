/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damaged files: bits that flip, bytes that are others, files that end early. Each is read in a child, which is to end by
 * itself: with bytes, or with a sentence. HDF5 itself may crash over its own structures; the handler of the signal looks
 * whether it was in HDF5, and such files are counted apart. Half of the files have HDF5's newest format. In rows of servers nginx
 * has them.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arrays/dataset.h"
#include "core/core.h"
#include "lib/servers.h"

enum { IN_HDF5 = 3, WITHOUT_SENTENCE = 4, LATE = 5, NOT_READ = 6, SECONDS = 20 };

static struct progress {
	unsigned done, opened, read;
} * progress;

static bool in_hdf5(const void *address)
{
	Dl_info info;

	return dladdr(address, &info) && info.dli_fname && strstr(info.dli_fname, "libhdf5");
}

static void on_signal(int number, siginfo_t *about, void *context)
{
	void *frames[64];
	int count;

#ifdef __x86_64__
	/* HDF5 may call what is no function, from where backtrace() does not go on, or crashes. */
	const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	Dl_info info;

	if (!dladdr((void *)registers[REG_RIP], &info) && in_hdf5(*(void **)registers[REG_RSP]))
		_exit(IN_HDF5);
#endif
	(void)about, (void)context;
	count = backtrace(frames, COUNT_OF(frames));
	for (int i = 0; i < count; i++)
		if (in_hdf5(frames[i]))
			_exit(IN_HDF5);
	_exit(number == SIGALRM ? LATE : 128 + number);
}

static void read_dataset(sluice_context *ctx, const char *path, const char *name)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct sluice_array_info info = {sizeof(info)};
	sluice_file *file;
	int64_t moved;
	sluice_op *op;
	char *to;
	size_t n;

	o.dataset = name;
	if (sluice_open(ctx, path, &o, &file)) {
		if (!*sluice_last_message())
			_exit(WITHOUT_SENTENCE);
		return;
	}
	progress->opened++;
	sluice_array_stat(file, &info);
	n = SL_MIN(info.bytes, MIB);
	to = malloc(n + 1);
	for (uint64_t at = 0; at < info.bytes && at < 4 * MIB; at += n) {
		op = start_read(file, to, n, at);
		moved = sluice_wait(op, -1);
		if (moved < 0 && !*sluice_op_message(op))
			_exit(WITHOUT_SENTENCE);
		progress->read += moved >= 0;
		sluice_op_free(op);
	}
	free(to);
	sluice_close(file);
}

static int count_object(void *user, const struct sluice_array_info *info)
{
	*(unsigned *)user += info->is_group;
	return 0;
}

static void list_objects(sluice_context *ctx, const char *name)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	unsigned groups = 0;
	sluice_file *file;

	if (!row->remote) {
		sluice_array_list(name, "/", count_object, &groups);
	} else if (!sluice_open(ctx, name, &o, &file)) {
		sluice_array_list_file(file, "/", count_object, &groups);
		sluice_close(file);
	}
}

/* A file that is whole. */
struct original {
	unsigned char *bytes;
	size_t n;
};

/* Damages the bytes, and reads all datasets: rounds from..to. */
static void child(const char *path, const char *name, const struct original originals[2],
                  uint64_t seed, unsigned from, unsigned to, char names[][40], size_t count)
{
	struct rlimit limit = {3ull << 30, 3ull << 30};
	unsigned char *bytes = malloc(SL_MAX(originals[0].n, originals[1].n));
	sluice_context *ctx;

	/* The first call allocates memory. */
	backtrace(&(void *){NULL}, 1);
	for (size_t i = 0; i < 5; i++)
		sigaction((const int[]){SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGALRM}[i],
		          &(struct sigaction){.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO},
		          NULL);
	if (!under_sanitizer())
		setrlimit(RLIMIT_AS, &limit);
	if (sluice_context_new(NULL, &ctx))
		_exit(1);
	for (unsigned round = from; round < to; round++) {
		const struct original *whole = &originals[round % 2];
		struct rng r = {seed + round};
		size_t n = whole->n, end = n;
		FILE *file;

		rng_next(&r);
		memcpy(bytes, whole->bytes, n);
		/* The first of each format is whole. */
		if (round > 1 && !rng_below(&r, 8)) {
			end = rng_below(&r, n);
		} else if (round > 1) {
			for (size_t i = 1 + rng_below(&r, 3); i; i--) {
				/* Half of them where HDF5 has its own data, at the front. */
				size_t at =
					rng_below(&r, rng_below(&r, 2) ? n : SL_MIN(n, 6 * KIB));

				bytes[at] = rng_below(&r, 3) ? bytes[at] ^ 1u << rng_below(&r, 8)
				                             : (unsigned char)rng_next(&r);
			}
		}
		file = fopen(path, "w");
		if (!file || fwrite(bytes, 1, end, file) != end || fclose(file))
			_exit(1);
		/* An open of a file that is younger would wait. */
		utimensat(AT_FDCWD, path, (struct timespec[2]){{1000, 0}, {1000, 0}}, 0);
		alarm(SECONDS);
		list_objects(ctx, name);
		for (size_t i = 0; i < count; i++)
			read_dataset(ctx, name, names[i]);
		alarm(0);
		/* Sources are not looked for beside a file of a server. */
		if (round == 1 && progress->read < 2 * (count - (row->remote != NULL)))
			_exit(NOT_READ);
		progress->done = round + 1;
	}
	_exit(0);
}

/* Of columns of datasets of the same file. */
static void make_virtual(hid_t file, const char *name)
{
	hsize_t shape[] = {40, 30}, most[] = {H5S_UNLIMITED, 30}, many[] = {H5S_UNLIMITED, 1};
	hid_t space = H5Screate_simple(2, shape, most), list = H5Pcreate(H5P_DATASET_CREATE), set;

	for (hsize_t i = 0; i < 2; i++) {
		hsize_t start[] = {0, 13 * i}, block[] = {1, 13 + 4 * i};

		H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, many, block);
		H5Pset_virtual(list, space, ".", i ? "deflate" : "plain", space);
	}
	set = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, list, H5P_DEFAULT);
	assert_true(set >= 0);
	H5Dclose(set);
	H5Pclose(list);
	H5Sclose(space);
}

static size_t make(const char *path, bool latest, char names[][40])
{
	const char *const words[] = {"deflate", "sum", "plain", "rows", "compact", "all"};
	struct rng r = rng_new(4220);
	hid_t file = file_create(path, latest);
	/* With each index of chunks that the format has. */
	const hsize_t chunk[] = {9, 11},
		      most[3][2] = {{H5S_UNLIMITED, H5S_UNLIMITED}, {40, 30}, {H5S_UNLIMITED, 30}};

	for (size_t i = 0; i < COUNT_OF(words); i++) {
		struct dataset d = {.name = words[i], .rank = 2, .shape = {40, 30}};

		d.type = H5Tcopy(H5T_NATIVE_INT);
		d.list = H5Pcreate(H5P_DATASET_CREATE);
		d.most = i < 3 ? most[i] : NULL;
		if (i < 3 || i == 5)
			H5Pset_chunk(d.list, 2, chunk);
		if (i == 4)
			H5Pset_layout(d.list, H5D_COMPACT);
		if (i == 5)
			H5Pset_shuffle(d.list);
		if (i == 0 || i == 5)
			H5Pset_deflate(d.list, 4);
		if (i == 1 || i == 5)
			H5Pset_fletcher32(d.list);
		dataset_fill(&d, &r);
		dataset_write(&d, file);
		dataset_clear(&d);
		strcpy(names[i], words[i]);
	}
	make_virtual(file, "virtual");
	H5Fclose(file);
	strcpy(names[COUNT_OF(words)], "virtual");
	return COUNT_OF(words) + 1;
}

TEST(damaged_files_are_read_or_refused_and_nothing_else)
{
	unsigned rounds = under_stress()      ? 20000
	                  : under_sanitizer() ? 300
	                                      : 1000,
		 at = 0, crashes = 0;
	char path[300], names[8][40];
	uint64_t seed = test_seed();
	struct original originals[2];
	const char *name = path;
	size_t count;

	snprintf(path, sizeof(path), "%s/damaged-%d.h5", getenv("SLUICE_TEST_DIR"), (int)getpid());
	for (size_t i = 0; i < 2; i++) {
		count = make(path, i, names);
		originals[i].n = file_length(path);
		originals[i].bytes = malloc(originals[i].n);
		file_read(path, originals[i].bytes, originals[i].n, 0);
	}
	if (row->remote)
		name = nginx_uri(path, false);
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	                -1, 0);
	while (at < rounds) {
		unsigned to = SL_MIN(at + 250, rounds);
		pid_t process;
		int status;

		progress->done = at;
		process = fork();
		if (!process)
			child(path, name, originals, seed, at, to, names, count);
		assert_int_equal(waitpid(process, &status, 0), process);
		if (WIFEXITED(status) && WEXITSTATUS(status) == IN_HDF5)
			crashes++;
		else if (!WIFEXITED(status) || WEXITSTATUS(status))
			fail_msg("round %u of seed %llu ended with status %x", progress->done,
			         (unsigned long long)seed, (unsigned)status);
		at = progress->done + (status != 0);
	}
	print_message("%u files: %u datasets opened, %u reads with bytes, %u crashes of HDF5\n",
	              rounds, progress->opened, progress->read, crashes);
	assert_true(progress->opened && progress->read);
	/* Most damage is none to HDF5. */
	assert_in_range(crashes, 0, rounds / 50);
	munmap(progress, sizeof(*progress));
	free(originals[0].bytes);
	free(originals[1].bytes);
	unlink(path);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	H5dont_atexit();
	setenv("SLUICE_HTTP_ATTEMPTS", "2", 1);
	setenv("SLUICE_HTTP_BACKOFF_MS", "5", 1);
	return RUN_TESTS(NULL, NULL);
}
