/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves into a folder, in a process of its own, of which each call that changes the file system fails, or is the last
 * that the process makes.
 */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/support.h"
#include "sluice/tensors.h"

enum { TENSORS = 6, BYTES = 20000 };
#define INDEX "/model.safetensors.index.json"

/* ------------------------------------------------------------------------------------- calls */

static _Atomic int armed, calls; /* the call that fails, from 1; 0: none */
static int fails_with;           /* 0: the process is killed */
static bool digests, unnamed;    /* of saves; an error has not the name of a file */

/* Whether this call has to fail. */
static bool hit(void)
{
	if (!atomic_load(&armed) || atomic_fetch_add(&calls, 1) + 1 != atomic_load(&armed))
		return false;
	if (!fails_with)
		kill(getpid(), SIGKILL);
	errno = fails_with;
	return true;
}

#define WRAP(result, name, parameters, arguments)            \
	result __real_##name parameters;                     \
	result __wrap_##name parameters;                     \
	result __wrap_##name parameters                      \
	{                                                    \
		return hit() ? -1 : __real_##name arguments; \
	}
WRAP(int, fallocate64, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n))
WRAP(ssize_t, pwritev64v2, (int fd, const struct iovec *v, int count, off64_t at, int flags),
     (fd, v, count, at, flags))
WRAP(int, unlink, (const char *path), (path))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, ftruncate64, (int fd, off64_t n), (fd, n))

static _Atomic ino_t watched; /* a folder, 0 once it is synced */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	struct stat stat;

	if (!fstat(fd, &stat) && stat.st_ino == atomic_load(&watched))
		atomic_store(&watched, 0);
	return hit() ? -1 : __real_fsync(fd);
}

static bool sweeps;               /* another save removes the lock before it is taken */
static _Atomic int locks_at_last; /* that the index found in the folder */

int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
	char link[64], path[500];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (sweeps && n > 5 && !memcmp(path + n - 5, ".lock", 5)) {
		sweeps = false;
		path[n] = 0;
		assert_int_equal(unlink(path), 0);
	}
	return hit() ? -1 : __real_flock(fd, how);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
	glob_t found = {0};
	char *form;

	assert_true(asprintf(&form, "%.*s/.sluice-*.lock", (int)(strrchr(to, '/') - to), to) > 0);
	glob(form, 0, NULL, &found);
	atomic_store(&locks_at_last, (int)found.gl_pathc);
	globfree(&found);
	free(form);
	return hit() ? -1 : __real_rename(from, to);
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
	va_list list;
	mode_t mode;

	va_start(list, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
	va_end(list);
	return flags & O_CREAT && hit() ? -1 : __real_open64(path, flags, mode);
}

/* --------------------------------------------------------------------------------------- saves */

static int save_number(sluice_context *ctx, const char *folder, unsigned number)
{
	static const uint64_t shape[] = {BYTES};
	static char bytes[TENSORS][BYTES];
	static const char *const names[TENSORS] = {"a", "b", "c", "d", "e", "f"};
	struct sluice_tensor_save_options o = SLUICE_TENSOR_SAVE_OPTIONS_INIT;
	struct sluice_collection_tensor v[TENSORS];
	sluice_tensor_save *save;
	int64_t n;

	for (unsigned i = 0; i < TENSORS; i++) {
		memset(bytes[i], (int)(number % 251), BYTES);
		v[i] = (struct sluice_collection_tensor){
			sizeof(v[i]), names[i], SLUICE_UINT8, 1, shape, -1, bytes[i], BYTES};
	}
	o.file_bytes = 1;
	o.digests = digests;
	n = sluice_tensors_save(ctx, folder, v, TENSORS, &o, &save);
	if (!n) {
		n = sluice_tensor_save_wait(save, -1);
		unnamed = n < 0 && !strstr(sluice_tensor_save_message(save), folder);
		sluice_tensor_save_free(save);
	}
	return n < 0 ? (int)n : 0;
}

/* The number of the save that the index has; all tensors have to be of one. */
static unsigned number_of(struct fixture *f, const char *folder)
{
	struct sluice_tensor_file file = {.size = sizeof(file)};
	struct sluice_tensor t = {.size = sizeof(t)};
	char *uri, bytes[BYTES];
	sluice_tensors *tensors;
	int number = -1;

	assert_true(asprintf(&uri, "%s" INDEX, folder) > 0);
	assert_ok(sluice_tensors_open(f->ctx, (const char *const *)&uri, 1, NULL, &tensors));
	assert_int_equal(sluice_tensors_count(tensors), TENSORS);
	for (size_t i = 0; !sluice_tensors_get(tensors, i, &t); i++) {
		assert_ok(sluice_tensors_file(tensors, t.file, &file));
		assert_int_equal(read_now(file.file, bytes, BYTES, t.offset), BYTES);
		for (size_t k = 0; k < BYTES; k++) {
			number = number < 0 ? bytes[k] & 0xff : number;
			assert_int_equal(bytes[k] & 0xff, number);
		}
	}
	sluice_tensors_free(tensors);
	free(uri);
	return (unsigned)number;
}

/* Saves in a child whose call of that number fails, or none; says how many calls it made. Returns how the child ended. */
static int save_with(struct fixture *f, const char *folder, unsigned number, int call, int error,
                     _Atomic int *made)
{
	pid_t child = fork();
	int status;

	(void)f;
	if (!child) {
		struct sluice_config config = row_config();
		sluice_context *ctx;
		int rc;

		forget_leaks();
		if (sluice_context_new(&config, &ctx))
			_exit(99);
		fails_with = error;
		atomic_store(&armed, call);
		rc = save_number(ctx, folder, number);
		atomic_store(made, atomic_load(&calls));
		_exit(rc ? 1 + unnamed : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void fail_each(struct fixture *f, int error)
{
	char *folder = strdup(scratch(f, "saves"));
	_Atomic int *made =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int all;
	unsigned number = 1, failed = 0, stored = 0, rounds = under_stress() ? 10 : 1;

	assert_ok(save_number(f->ctx, folder, number));
	assert_int_equal(save_with(f, folder, ++number, 1 << 30, error, made), 0);
	all = atomic_load(made);
	print_message("%d calls\n", all);
	assert_true(all > 20);
	for (unsigned round = 0; round < rounds; round++)
		for (int call = 1; call <= all; call++) {
			unsigned before = number_of(f, folder), after;
			int status = save_with(f, folder, ++number, call, error, made);

			after = number_of(f, folder);
			failed += status != 0;
			/* The index may have been there already. */
			assert_true(after == number % 251 || (status && after == before));
			stored += status && after != before;
			assert_true(!status || (error ? WIFEXITED(status) : WIFSIGNALED(status)));
			assert_true(!error || WEXITSTATUS(status) < 2);
			assert_ok(save_number(f->ctx, folder, ++number));
			assert_int_equal(number_of(f, folder), number % 251);
			assert_int_equal(directory_entries(folder), TENSORS + 1);
		}
	print_message("%u saves failed, %u of them when they were stored\n", failed, stored);
	assert_true(failed > 20 && stored < failed / 2);
	munmap((void *)made, 4096);
	free(folder);
}

LOCAL_TEST(a_save_of_which_a_call_fails_leaves_the_one_before, "calls of the file system fail")
{
	fail_each(f, EIO);
	digests = true;
	fail_each(f, ENOSPC);
}

LOCAL_TEST(a_save_that_is_killed_at_a_call_leaves_one_that_is_whole,
           "calls of the file system fail")
{
	fail_each(f, 0);
}

LOCAL_TEST(a_save_that_makes_its_folder_stores_the_name_of_that,
           "calls of the file system are watched")
{
	struct stat stat_of;

	assert_int_equal(stat(f->dir, &stat_of), 0);
	atomic_store(&watched, stat_of.st_ino);
	assert_ok(save_number(f->ctx, scratch(f, "saves"), 1));
	assert_int_equal(atomic_load(&watched), 0);
}

LOCAL_TEST(a_save_has_a_lock_though_another_removed_it_before_it_was_taken,
           "calls of the file system are watched")
{
	const char *folder = scratch(f, "saves");

	sweeps = true;
	assert_ok(save_number(f->ctx, folder, 1));
	assert_false(sweeps);
	assert_int_equal(atomic_load(&locks_at_last), 1);
	assert_int_equal(directory_entries(folder), TENSORS + 1);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	printf("row %s\n", row->name);
	return RUN_TESTS(NULL, NULL);
}
