/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5 in a process: its lock, its version, and the program's own setting of its errors. */
#include "h5file/frame_common.h"

#include <fcntl.h>
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
	assert_int_equal(frame_in_child(use_another_hdf5), 0);
}

/* First: what is asked once must not have been asked. */
FIRST_TEST(an_hdf5_without_lock_is_used_only_alone)
{
	assert_int_equal(frame_in_child(use_hdf5_without_lock), 0);
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

int main(void)
{
	return RUN_TESTS(frame_folder_make, frame_folder_remove);
}
