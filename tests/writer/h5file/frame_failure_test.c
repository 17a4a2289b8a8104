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
#include <unistd.h>

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
	assert_int_equal(frame_open_as("/proc/no.h5", 0), geteuid() ? -EACCES : -ENOENT);
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
	assert_int_equal(frame_in_child(open_by_hdf5), 1);
	frame_close(file);
	assert_int_equal(frame_in_child(open_by_hdf5), 0);
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
	for (int again = 0; again < 2; again++)
		assert_refused(frame_store(dataset, &layout, 2, NULL, MASKS_NONE), ESTALE,
		               "another program has truncated");
	assert_refused(sl_h5_file_flush(file), ESTALE, "another program has truncated");
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

/* Frames without end; the number of those that the file has then: all that were stored. */
static int write_until_full(const char *name, struct sl_h5_layout *layout, unsigned *stored)
{
	struct sl_h5_file *file = frame_open(0);
	struct sl_h5_dataset *dataset = frame_add(file, name, layout, NULL);
	int err = 0;

	*stored = 0;
	for (unsigned frame = 0; !err && frame < 10000; frame++) {
		err = frame_store(dataset, layout, frame, NULL, MASKS_NONE);
		*stored += !err;
		if (!err && frame % 5 == 4)
			err = sl_h5_file_flush(file);
	}
	assert_true(err < 0);
	assert_int_equal(sl_h5_file_close(file, true), 0);
	return err;
}

static int fill(int expected, const char *said)
{
	struct sl_h5_layout layout = frame_layout("none", 1, false);
	unsigned stored;

	layout.shape[0] = 64;
	layout.chunk[0] = 8;
	layout.shape[1] = layout.chunk[1] = 63;
	unlink(frame_path);
	assert_int_equal(write_until_full("fields/u", &layout, &stored), expected);
	frame_said("'/fields/u'");
	frame_said("frame ");
	frame_said(said);
	assert_in_range(stored, 5, 500);
	frame_check("fields/u", &layout, stored);
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

TEST(a_file_that_may_not_grow_has_all_that_was_stored)
{
	assert_int_equal(frame_in_child(fill_what_is_allowed), 0);
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
