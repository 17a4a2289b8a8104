/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the file: the first error, room for them, and the writes that HDF5's calls have left.
 * Threads: the file thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "h5file/h5file_internal.h"

/* ------------------------------------------------------------------------------------- errors */

int sl_h5_fail(struct sl_h5_file *file, int error, const char *format, ...)
{
	char sentence[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(sentence, sizeof(sentence), format, arguments);
	va_end(arguments);
	if (file->error)
		return sl_h5_error(file);
	file->error = file->vfd.error ? file->vfd.error : error;
	sl_hdf5_fail(file->error, "'%s': %s", file->own.path, sentence);
	snprintf(file->message, sizeof(file->message), "%s", sluice_last_message());
	/* HDF5's cached changes must not reach the file. */
	if (!file->vfd.error)
		file->vfd.error = file->error;
	return file->error;
}

int sl_h5_error(const struct sl_h5_file *file)
{
	return file->error ? sl_fail(file->error, "%s", file->message) : 0;
}

/* -------------------------------------------------------------------------------------- writes */

/* Data in a file without a name is lost when its last descriptor is closed. */
static int file_check_name(struct sl_h5_file *file)
{
	struct stat status;

	if (fstat(file->own.fd, &status))
		return sl_h5_fail(file, -errno, "cannot look at it: %s", sl_error_text(-errno));
	if (!status.st_nlink)
		return sl_h5_fail(file, -ESTALE,
		                  "it was deleted or replaced: what is written goes nowhere");
	return 0;
}

/* Of the longest file allowed no wait makes a longer one. */
static bool is_to_be_tried_again(const struct sl_h5_file *file, int err)
{
	return sl_is_full(err) && err != -EFBIG && !file->vfd.error && file->full &&
	       file->full(file->argument, err);
}

int sl_h5_settle(struct sl_h5_file *file)
{
	int err;

	sl_hdf5_pause();
	do
		err = sl_ordered_vfd_settle(&file->vfd, file->full);
	while (is_to_be_tried_again(file, err));
	if (err && !file->vfd.error)
		err = sl_ordered_vfd_settle(&file->vfd, false);
	sl_hdf5_resume();
	return err;
}

int sl_h5_room(struct sl_h5_file *file, uint64_t bytes)
{
	int err;

	do
		err = sl_ordered_vfd_room(&file->vfd, bytes);
	while (is_to_be_tried_again(file, err));
	return err;
}

int sl_h5_space_take(struct sl_h5_file *file, uint64_t bytes, uint64_t *start)
{
	int err = sl_h5_error(file);

	if (err)
		return err;
	err = sl_h5_room(file, bytes);
	while (!err) {
		err = sl_ordered_vfd_grant(&file->vfd, bytes, file->apart, start);
		if (!is_to_be_tried_again(file, err))
			break;
		err = 0;
	}
	if (err)
		return sl_fail(err, "'%s': no room for %llu bytes of chunks: %s", file->own.path,
		               (unsigned long long)bytes, sl_error_text(err));
	return 0;
}

static int give_name(struct sl_h5_file *file)
{
	int err;

	sl_hdf5_pause();
	do
		err = sl_new_file_name(&file->own, file->durable);
	while (!file->own.named && is_to_be_tried_again(file, err));
	sl_hdf5_resume();
	return err;
}

int sl_h5_flush(struct sl_h5_file *file)
{
	herr_t done;
	int err;

	if (file->untouched)
		return file_check_name(file);
	file->vfd.flush_blocked = false;
	file->vfd.deferred = true;
	done = H5Fflush(file->id, H5F_SCOPE_GLOBAL);
	file->vfd.flush_blocked = true;
	file->vfd.deferred = false;
	if (done < 0 || sl_h5_settle(file))
		return sl_h5_fail(file, -EIO, "it cannot be flushed");
	if (!file->own.named) {
		err = give_name(file);
		if (err)
			return sl_h5_fail(file, err, "%s", sluice_last_message());
	}
	return file_check_name(file);
}

int sl_h5_added(struct sl_h5_file *file)
{
	file->untouched = false;
	return file->own.named ? sl_h5_flush(file) : 0;
}
