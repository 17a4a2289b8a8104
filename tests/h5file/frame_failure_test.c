/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a writer that is taken, full, deleted, or in the way of someone else. */
#include "h5file/frame_common.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* --------------------------------------------------------------------------------- HDF5's lock */

static bool says_no_lock;
herr_t __wrap_H5is_library_threadsafe(hbool_t *out);
herr_t __real_H5is_library_threadsafe(hbool_t *out);

herr_t __wrap_H5is_library_threadsafe(hbool_t *out)
{
	herr_t done = __real_H5is_library_threadsafe(out);

	*out &= !says_no_lock;
	return done;
}

/* Whether two threads were in HDF5 at a time. */
static atomic_int inside;
static atomic_bool overlapped;
herr_t __wrap_H5Dwrite_chunk(hid_t dataset, hid_t list, uint32_t mask, const hsize_t *offset,
                             size_t n, const void *bytes);
herr_t __real_H5Dwrite_chunk(hid_t dataset, hid_t list, uint32_t mask, const hsize_t *offset,
                             size_t n, const void *bytes);

herr_t __wrap_H5Dwrite_chunk(hid_t dataset, hid_t list, uint32_t mask, const hsize_t *offset,
                             size_t n, const void *bytes)
{
	herr_t done;

	if (!says_no_lock)
		return __real_H5Dwrite_chunk(dataset, list, mask, offset, n, bytes);
	if (atomic_fetch_add(&inside, 1))
		overlapped = true;
	usleep(50);
	done = __real_H5Dwrite_chunk(dataset, list, mask, offset, n, bytes);
	atomic_fetch_sub(&inside, 1);
	return done;
}

/* While a byte is written or synced another thread calls HDF5. */
static atomic_bool watched;
static unsigned watched_writes;
static pthread_t waiting;
static bool is_waiting;
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, int64_t offset);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t n, int64_t offset);
int __wrap_fdatasync(int fd);
int __real_fdatasync(int fd);

static void *call_hdf5(void *argument)
{
	return H5Iis_valid(0) < 0 ? argument : NULL;
}

static void look_at_lock(void)
{
	struct timespec until;

	if (!watched || is_waiting)
		return;
	watched_writes++;
	if (pthread_create(&waiting, NULL, call_hdf5, NULL))
		abort();
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	is_waiting = pthread_timedjoin_np(waiting, NULL, &until);
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, int64_t offset)
{
	look_at_lock();
	return __real_pwrite64(fd, bytes, n, offset);
}

int __wrap_fdatasync(int fd)
{
	look_at_lock();
	return __real_fdatasync(fd);
}

TEST(hdf5_is_not_locked_while_bytes_are_written)
{
	static const char *const scalars[] = {"time"};
	const struct sluice_attribute text = {.name = "text", .text = "what it is"};
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_file *file;
	struct sl_h5_dataset *dataset;
	double number = 1;

	layout.scalars = scalars;
	layout.scalar_count = 1;
	layout.attributes = &text;
	layout.attribute_count = 1;
	file = frame_open(SLUICE_WRITER_REPLACE | SLUICE_WRITER_DURABLE);
	watched = !sl_h5_usable(0);
	if (!watched)
		print_message("skipped: this HDF5 has no lock\n");
	dataset = frame_add(file, "u", &layout, NULL);
	frame_put(dataset, &layout, 0, &number);
	frame_flush(file);
	frame_add(file, "v", &layout, NULL);
	frame_put(dataset, &layout, 1, &number);
	frame_close(file);
	assert_true(watched_writes > 30 || !watched);
	watched = false;
	if (is_waiting)
		pthread_join(waiting, NULL);
	assert_false(is_waiting);
}

static int in_child(int (*what)(void))
{
	pid_t process = fork();
	int status;

	if (process == 0) {
		alarm(60);
		_exit(what());
	}
	assert_true(process > 0);
	while (waitpid(process, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Several threads of one process, each with a file: HDF5 would not survive two of them in it. */
static void *write_a_file(void *argument)
{
	struct sl_h5_file_options o = {.flags = SLUICE_WRITER_ONLY_HDF5};
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_set_options set = {0};
	struct sl_h5_dataset *dataset;
	struct sl_h5_file *file;
	uint64_t first;
	char path[600];
	int err;

	snprintf(path, sizeof(path), "%s.%d", frame_path, (int)(intptr_t)argument);
	err = sl_h5_file_open(path, &o, &file);
	if (err)
		return "open";
	err = sl_h5_dataset_add(file, "u", &layout, &set, &dataset, &first);
	for (unsigned frame = 0; !err && frame < 100; frame++) {
		err = frame_store(dataset, &layout, frame, NULL, MASKS_NONE);
		if (!err && frame % 4 == 3)
			err = sl_h5_file_flush(file);
	}
	err |= sl_h5_file_close(file, !err);
	unlink(path);
	return err ? "write" : NULL;
}

static int use_hdf5_without_lock(void)
{
	pthread_t threads[4];
	void *error, *any = NULL;

	says_no_lock = true;
	if (sl_h5_usable(0) != -ENOTSUP ||
	    !strstr(sluice_last_message(), "SLUICE_WRITER_ONLY_HDF5") ||
	    sl_h5_usable(SLUICE_WRITER_ONLY_HDF5))
		return 1;
	for (intptr_t i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, write_a_file, (void *)i))
			return 2;
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], &error);
		any = any ? any : error;
	}
	return any ? 3 : overlapped ? 4 : 0;
}

static bool says_other_version;
herr_t __wrap_H5get_libversion(unsigned *major, unsigned *minor, unsigned *release);
herr_t __real_H5get_libversion(unsigned *major, unsigned *minor, unsigned *release);

herr_t __wrap_H5get_libversion(unsigned *major, unsigned *minor, unsigned *release)
{
	herr_t done = __real_H5get_libversion(major, minor, release);

	*minor += says_other_version ? 2 : 0;
	return done;
}

static int use_another_hdf5(void)
{
	says_other_version = true;
	if (sl_h5_usable(0) != -ENOTSUP || !strstr(sluice_last_message(), "another HDF5 library"))
		return 1;
	setenv("HDF5_DISABLE_VERSION_CHECK", "1", 1);
	return sl_h5_usable(0) ? 2 : 0;
}

FIRST_TEST(an_hdf5_of_another_version_is_refused)
{
	assert_int_equal(in_child(use_another_hdf5), 0);
}

/* First: what is asked once must not have been asked. */
FIRST_TEST(an_hdf5_without_lock_is_used_only_alone)
{
	assert_int_equal(in_child(use_hdf5_without_lock), 0);
}

/* --------------------------------------------------------------------------------- HDF5's words */

static unsigned printed;

static herr_t print(hid_t stack, void *argument)
{
	(void)stack;
	printed++;
	return argument == &printed ? 0 : -1;
}

static herr_t print_old(void *argument)
{
	return print(0, argument);
}

static int refuse_something(void)
{
	struct sl_h5_file_options o = {.flags = SLUICE_WRITER_APPEND};
	struct sl_h5_file *file;
	int fd = open(frame_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, "\x89HDF\r\n\x1a\n\0", 9), 9);
	close(fd);
	return sl_h5_file_open(frame_path, &o, &file);
}

TEST(the_programs_own_setting_of_errors_stays)
{
	H5E_auto2_t before;
	H5E_auto1_t before_old;
	void *data;

	H5Eget_auto2(H5E_DEFAULT, &before, &data);
	H5Eset_auto2(H5E_DEFAULT, print, &printed);
	assert_refused(refuse_something(), EBADMSG, "HDF5: ");
	assert_int_equal(printed, 0);
	assert_true(H5Fopen("/nowhere", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
	assert_int_equal(printed, 1);
	H5Eset_auto1(print_old, &printed);
	assert_int_equal(refuse_something(), -EBADMSG);
	assert_int_equal(printed, 1);
	assert_true(H5Eget_auto1(&before_old, &data) >= 0);
	assert_ptr_equal(before_old, print_old);
	assert_true(H5Fopen("/nowhere", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
	assert_int_equal(printed, 2);
	H5Eset_auto2(H5E_DEFAULT, before, NULL);
}

/* --------------------------------------------------------------------------------------- names */

/* A file system without files that have no name. */
static bool needs_names;
int __wrap_open64(const char *path, int flags, ...);
int __real_open64(const char *path, int flags, ...);

int __wrap_open64(const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	if (needs_names && (flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return __real_open64(path, flags, mode);
}

static size_t files_in_folder(void)
{
	DIR *folder = opendir(frame_folder);
	size_t count = 0;

	for (struct dirent *entry; (entry = readdir(folder));)
		count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(folder);
	return count;
}

static void use_a_folder(void)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_file *file;

	unlink(frame_path);
	file = frame_open(0);
	assert_int_equal(files_in_folder(), needs_names);
	assert_int_equal(access(frame_path, F_OK), -1);
	assert_int_equal(sl_h5_file_close(file, false), 0);
	assert_int_equal(files_in_folder(), 0);
	for (unsigned i = 0; i < 2; i++) {
		file = frame_open(i ? SLUICE_WRITER_REPLACE : 0);
		frame_put(frame_add(file, i ? "new" : "old", &layout, NULL), &layout, 0, NULL);
		assert_int_equal(files_in_folder(), needs_names + i);
		frame_close(file);
		assert_int_equal(files_in_folder(), 1);
		frame_check(i ? "new" : "old", &layout, 1);
	}
}

TEST(a_file_system_that_needs_names_gets_temporary_ones)
{
	use_a_folder();
	needs_names = true;
	use_a_folder();
	needs_names = false;
}

/* --------------------------------------------------------------------------------------- taken */

static void check_text(const char *text)
{
	int fd = open(frame_path, O_RDONLY | O_CLOEXEC);
	char there[64] = "";

	assert_true(read(fd, there, sizeof(there) - 1) >= 0);
	assert_string_equal(there, text);
	close(fd);
}

TEST(a_name_that_is_taken_is_not_overwritten)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_dataset *dataset;
	struct sl_h5_file *file;

	frame_write_text("somebody's");
	assert_int_equal(frame_open_as(frame_path, 0), -EEXIST);
	unlink(frame_path);
	file = frame_open(0);
	dataset = frame_add(file, "u", &layout, NULL);
	frame_put(dataset, &layout, 0, NULL);
	frame_write_text("someone else's");
	assert_refused(sl_h5_file_flush(file), EEXIST, "its name");
	assert_int_equal(frame_store(dataset, &layout, 1, NULL, MASKS_NONE), -EEXIST);
	assert_int_equal(sl_h5_file_close(file, true), -EEXIST);
	check_text("someone else's");
}

TEST(paths_that_are_none_are_refused)
{
	char path[600];

	unlink(frame_path);
	assert_int_equal(frame_open_as(frame_folder, 0), -EEXIST);
	assert_int_equal(frame_open_as(frame_folder, SLUICE_WRITER_REPLACE), -EISDIR);
	assert_int_equal(frame_open_as(frame_folder, SLUICE_WRITER_APPEND), -EISDIR);
	assert_int_equal(frame_open_as("/dev/null", SLUICE_WRITER_APPEND), -EBADMSG);
	snprintf(path, sizeof(path), "%s/no/file.h5", frame_folder);
	assert_int_equal(frame_open_as(path, 0), -ENOENT);
	assert_int_equal(frame_open_as("/proc/no.h5", 0), -ENOENT);
	assert_int_equal(frame_open_as("", 0), -ENOENT);
}

TEST(file_is_open_once_in_a_process)
{
	struct sl_h5_file *file;
	char other[600];

	unlink(frame_path);
	file = frame_open(0);
	assert_int_equal(frame_open_as(frame_path, 0), -EBUSY);
	assert_int_equal(frame_open_as(frame_path, SLUICE_WRITER_REPLACE), -EBUSY);
	frame_flush(file);
	assert_int_equal(frame_open_as(frame_path, SLUICE_WRITER_APPEND), -EBUSY);
	snprintf(other, sizeof(other), "%s/other.h5", frame_folder);
	assert_int_equal(link(frame_path, other), 0);
	assert_int_equal(frame_open_as(other, SLUICE_WRITER_APPEND), -EBUSY);
	frame_close(file);
	assert_int_equal(frame_open_as(other, SLUICE_WRITER_APPEND), 0);
	unlink(other);
}

static int open_by_hdf5(void)
{
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	return H5Fopen(frame_path, H5F_ACC_RDONLY, H5P_DEFAULT) < 0;
}

TEST(a_file_that_is_locked_is_left_alone)
{
	struct sl_h5_file *file;
	int fd;

	unlink(frame_path);
	frame_close(frame_open(0));
	fd = open(frame_path, O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_SH), 0);
	assert_refused(frame_open_as(frame_path, SLUICE_WRITER_APPEND), EWOULDBLOCK, "locked");
	close(fd);
	file = frame_open(SLUICE_WRITER_APPEND);
	assert_int_equal(in_child(open_by_hdf5), 1);
	frame_close(file);
	assert_int_equal(in_child(open_by_hdf5), 0);
}

/* ------------------------------------------------------------------------------------- deleted */

static struct sl_h5_dataset *begin(struct sl_h5_file **file, struct sl_h5_layout *layout)
{
	struct sl_h5_dataset *dataset;

	unlink(frame_path);
	*file = frame_open(0);
	dataset = frame_add(*file, "u", layout, NULL);
	frame_put(dataset, layout, 0, NULL);
	frame_flush(*file);
	frame_put(dataset, layout, 1, NULL);
	return dataset;
}

TEST(a_file_that_was_deleted_is_missed)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_file *file;
	char other[600];

	begin(&file, &layout);
	unlink(frame_path);
	assert_refused(sl_h5_file_flush(file), ESTALE, "deleted");
	assert_int_equal(sl_h5_file_close(file, true), -ESTALE);

	begin(&file, &layout);
	snprintf(other, sizeof(other), "%s/other.h5", frame_folder);
	close(open(other, O_CREAT | O_CLOEXEC, 0600));
	assert_int_equal(rename(other, frame_path), 0);
	assert_int_equal(sl_h5_file_close(file, true), -ESTALE);

	/* What was given another name is still there. */
	begin(&file, &layout);
	assert_int_equal(rename(frame_path, other), 0);
	frame_close(file);
	assert_int_equal(rename(other, frame_path), 0);
	frame_check("u", &layout, 2);
}

/* As whoever opens a file for HDF5 to write does before HDF5 finds it locked. */
TEST(a_file_that_another_program_truncates_is_missed)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_dataset *dataset;
	struct sl_h5_file *file;

	dataset = begin(&file, &layout);
	assert_int_equal(truncate(frame_path, 0), 0);
	assert_refused(frame_store(dataset, &layout, 2, NULL, MASKS_NONE), ESTALE,
	               "another program has truncated");
	assert_int_equal(sl_h5_file_close(file, true), -ESTALE);

	begin(&file, &layout);
	assert_int_equal(truncate(frame_path, 5000), 0);
	assert_refused(sl_h5_file_flush(file), ESTALE, "another program has truncated");
	assert_int_equal(sl_h5_file_close(file, true), -ESTALE);

	begin(&file, &layout);
	frame_flush(file);
	assert_int_equal(truncate(frame_path, 0), 0);
	assert_int_equal(sl_h5_file_close(file, true), -ESTALE);
}

/* As cp(1) does; it has its length again when the writer looks. */
TEST(a_file_that_another_program_overwrites_is_missed)
{
	struct sl_h5_layout layout = frame_layout("deflate", 1, true);
	struct sl_h5_file *file;
	char text[5] = "", *its;
	struct stat status;
	int fd;

	begin(&file, &layout);
	assert_int_equal(stat(frame_path, &status), 0);
	its = calloc(1, status.st_size);
	memcpy(its, "other", 5);
	fd = open(frame_path, O_RDWR | O_TRUNC | O_CLOEXEC);
	assert_int_equal(write(fd, its, status.st_size), status.st_size);
	free(its);
	assert_refused(sl_h5_file_flush(file), ESTALE, "overwritten");
	assert_int_equal(sl_h5_file_close(file, true), -ESTALE);
	assert_int_equal(pread(fd, text, 5, 0), 5);
	assert_memory_equal(text, "other", 5);
	close(fd);
}

/* ---------------------------------------------------------------------------------------- full */

/* Frames without end; the number of those that the file has then: of a full disk all that were stored, else those
 * that were flushed before the error. */
static int write_until_full(const char *name, struct sl_h5_layout *layout, unsigned *flushed)
{
	struct sl_h5_file *file = frame_open(0);
	struct sl_h5_dataset *dataset = frame_add(file, name, layout, NULL);
	char sentence[1024];
	unsigned stored = 0;
	int err = 0;

	*flushed = 0;
	for (unsigned frame = 0; !err && frame < 10000; frame++) {
		err = frame_store(dataset, layout, frame, NULL, MASKS_NONE);
		stored += !err;
		if (!err && frame % 5 == 4)
			err = sl_h5_file_flush(file);
		if (!err && frame % 5 == 4)
			*flushed = frame + 1;
	}
	assert_true(err < 0);
	if (err == -ENOSPC) {
		assert_int_equal(sl_h5_file_close(file, true), 0);
		*flushed = stored;
		return err;
	}
	snprintf(sentence, sizeof(sentence), "%s", sluice_last_message());
	assert_int_equal(frame_store(dataset, layout, 0, NULL, MASKS_NONE), err);
	assert_string_equal(sluice_last_message(), sentence);
	assert_int_equal(sl_h5_file_flush(file), err);
	assert_int_equal(sl_h5_file_close(file, true), err);
	assert_string_equal(sluice_last_message(), sentence);
	return err;
}

static int fill(int expected, const char *said)
{
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	unsigned flushed;

	layout.shape[0] = 64;
	layout.chunk[0] = 8;
	layout.shape[1] = layout.chunk[1] = 63;
	unlink(frame_path);
	assert_int_equal(write_until_full("fields/u", &layout, &flushed), expected);
	frame_said("'/fields/u'");
	frame_said("frame ");
	frame_said(said);
	assert_in_range(flushed, 5, 500);
	frame_check("fields/u", &layout, flushed);
	return 0;
}

/* As a disk that is full where nothing can be mounted. */
static int fill_what_is_allowed(void)
{
	struct rlimit limit = {1000000, 1000000};

	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	return fill(-EFBIG, "File too large");
}

TEST(a_file_that_may_not_grow_stays_at_its_last_flush)
{
	assert_int_equal(in_child(fill_what_is_allowed), 0);
}

static void contiguous_frames_without_room_are_refused(void)
{
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	struct sl_h5_set_options set = {0};
	struct sl_h5_dataset *dataset;
	struct sl_h5_file *file;
	uint64_t first;

	layout.contiguous = true;
	layout.frames = 100000;
	unlink(frame_path);
	file = frame_open(0);
	assert_refused(sl_h5_dataset_add(file, "u", &layout, &set, &dataset, &first), ENOSPC,
	               "no room for the 100000 frames of '/u'");
	frame_said("No space left");
	assert_int_equal(sl_h5_file_close(file, true), -ENOSPC);
	assert_int_equal(access(frame_path, F_OK), -1);
}

TEST(a_full_disk_leaves_what_was_flushed)
{
	for (unsigned kib = 256; kib < 512; kib += 28) {
		char size[32];

		snprintf(size, sizeof(size), "size=%uk", kib);
		if (mount("sluice", frame_folder, "tmpfs", 0, size)) {
			print_message("skipped: nothing can be mounted: %s\n", strerror(errno));
			skip();
		}
		fill(-ENOSPC, "No space left");
		contiguous_frames_without_room_are_refused();
		assert_int_equal(umount(frame_folder), 0);
	}
}

static bool takes_what_there_is;

int __wrap_fallocate64(int fd, int mode, off_t start, off_t length);
int __real_fallocate64(int fd, int mode, off_t start, off_t length);

/* As ext4: a part is taken, and then there is no more. */
int __wrap_fallocate64(int fd, int mode, off_t start, off_t length)
{
	int done = __real_fallocate64(fd, mode, start, length);

	if (!takes_what_there_is)
		return done;
	errno = ENOSPC;
	return -1;
}

TEST(a_file_does_not_keep_the_space_of_frames_without_room)
{
	struct sl_h5_layout layout = frame_layout("none", 1, false), more = layout;
	struct sl_h5_set_options set = {0};
	struct sl_h5_dataset *dataset;
	struct sl_h5_file *file;
	struct stat before, after;
	uint64_t first;

	unlink(frame_path);
	file = frame_open(0);
	dataset = frame_add(file, "u", &layout, NULL);
	assert_int_equal(frame_store(dataset, &layout, 0, NULL, MASKS_NONE), 0);
	frame_close(file);
	assert_int_equal(stat(frame_path, &before), 0);
	more.contiguous = true;
	more.frames = 10000;
	file = frame_open(SLUICE_WRITER_APPEND);
	takes_what_there_is = true;
	assert_int_equal(sl_h5_dataset_add(file, "v", &more, &set, &dataset, &first), -ENOSPC);
	takes_what_there_is = false;
	frame_said("no room for the 10000 frames of '/v'");
	assert_int_equal(sl_h5_file_close(file, true), -ENOSPC);
	assert_int_equal(stat(frame_path, &after), 0);
	assert_in_range(after.st_size, before.st_size, before.st_size + 65536);
	frame_check("u", &layout, 1);
}

/* The names of a group are more than a dataset adds to the limit. */
TEST(metadata_over_the_limit_is_an_error_with_a_name)
{
	struct sl_h5_file_options o = {.flags = SLUICE_WRITER_APPEND, .held_limit = 400};
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	struct sl_h5_set_options set = {0};
	struct sl_h5_dataset *dataset;
	struct sl_h5_file *file;
	uint64_t first;
	int err;

	unlink(frame_path);
	file = frame_open(0);
	for (unsigned i = 0; i < 40; i++) {
		char name[1000];

		snprintf(name, sizeof(name), "%0999u", i);
		frame_add(file, name, &layout, NULL);
	}
	frame_close(file);
	assert_int_equal(sl_h5_file_open(frame_path, &o, &file), 0);
	err = sl_h5_dataset_add(file, "u", &layout, &set, &dataset, &first);
	for (unsigned frame = 0; !err && frame < 10; frame++) {
		err = frame_store(dataset, &layout, frame, NULL, MASKS_NONE);
		err = err ? err : sl_h5_file_flush(file);
	}
	assert_int_equal(err, -ENOBUFS);
	assert_int_equal(sl_h5_file_close(file, true), -ENOBUFS);
}

static int unmount(void **unused)
{
	umount(frame_folder);
	return frame_folder_remove(unused);
}

int main(void)
{
	return RUN_TESTS(frame_folder_make, unmount);
}
