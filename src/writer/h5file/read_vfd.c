/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual file driver for HDF5 that only reads, and takes no lock. Each file is read by itself:
 * HDF5 shares no blocks between two that are open. While it notes, raw data is not read: HDF5 looks
 * a chunk up as for H5Dread_chunk(), and the driver keeps where it lies. If bytes of a remote file
 * are not in memory, the call of HDF5 fails; nothing is read until its caller has fetched them.
 *
 * Threads: the thread that is in HDF5.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5file/h5file_internal.h"

#define READ_VALUE   0x5c2 /* the driver's number in HDF5's list, see ordered_vfd.c */
#define LAST_ADDRESS ((haddr_t)INT64_MAX)

static hid_t driver = H5I_INVALID_HID; /* guarded by HDF5's own lock, as the driver's calls are */

struct read_file {
	H5FD_t pub; /* HDF5's; first */
	struct sl_read_vfd *vfd;
	haddr_t eoa, eof;
};

int sl_vfd_read(int fd, haddr_t start, size_t size, void *buffer)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pread(fd, (char *)buffer + done, size - done, (off_t)(start + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int err = -errno;

			H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_VFL,
			         H5E_READERROR, "reading at offset %llu: %s",
			         (unsigned long long)start, sl_error_text(err));
			return err;
		}
		if (n == 0)
			break;
		done += n;
	}
	/* HDF5 expects zeroes beyond the end of the file. */
	memset((char *)buffer + done, 0, size - done);
	return 0;
}

static H5FD_t *read_open(const char *name, unsigned flags, hid_t fapl, haddr_t max_address)
{
	/* The property list has the address of the caller's struct. */
	struct sl_read_vfd *const *info = H5Pget_driver_info(fapl);
	struct read_file *file;
	struct stat status;

	(void)name, (void)max_address;
	/* While it is open: the file of an external link. */
	if (!info || (*info)->open || flags & H5F_ACC_RDWR)
		return NULL;
	if ((*info)->source->fd < 0)
		status.st_size = (off_t)(*info)->source->length;
	else if (fstat((*info)->source->fd, &status))
		return NULL;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	file->vfd = *info;
	file->vfd->open = true;
	file->eof = (haddr_t)status.st_size;
	return &file->pub;
}

static herr_t read_close(H5FD_t *base)
{
	struct read_file *file = (struct read_file *)base;

	file->vfd->open = false;
	free(file);
	return 0;
}

static herr_t read_query(const H5FD_t *base, unsigned long *flags)
{
	(void)base;
	if (flags)
		*flags = H5FD_FEAT_DEFAULT_VFD_COMPATIBLE | H5FD_FEAT_SUPPORTS_SWMR_IO;
	return 0;
}

/* A writer of SWMR appends without setting the end of the file anew. */
static haddr_t read_get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
	const struct read_file *file = (const struct read_file *)base;

	(void)type;
	return SL_MAX(file->eoa, file->eof);
}

static herr_t read_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t end)
{
	(void)type;
	((struct read_file *)base)->eoa = end;
	return 0;
}

static haddr_t read_get_eof(const H5FD_t *base, H5FD_mem_t type)
{
	(void)type;
	return ((const struct read_file *)base)->eof;
}

static herr_t read_read(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, haddr_t start, size_t size,
                        void *buffer)
{
	struct sl_read_vfd *vfd = ((struct read_file *)base)->vfd;

	(void)dxpl;
	if (vfd->notes && type == H5FD_MEM_DRAW) {
		vfd->address = start;
		vfd->length = size;
		return 0;
	}
	if (vfd->source->fd >= 0)
		return sl_vfd_read(vfd->source->fd, start, size, buffer) ? -1 : 0;
	if (!vfd->lacks)
		vfd->lacks = !vfd->source->copy(vfd->source, start, size, buffer);
	return vfd->lacks ? -1 : 0;
}

static herr_t read_write(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, haddr_t start, size_t size,
                         const void *bytes)
{
	(void)base, (void)type, (void)dxpl, (void)start, (void)size, (void)bytes;
	return -1;
}

static herr_t read_terminate(void)
{
	driver = H5I_INVALID_HID;
	return 0;
}

static const H5FD_class_t read_class = {
#ifdef H5FD_CLASS_VERSION /* since 1.13 */
	.version = H5FD_CLASS_VERSION,
	.value = (H5FD_class_value_t)READ_VALUE,
#endif
	.name = "sluice_read",
	.maxaddr = LAST_ADDRESS,
	.fc_degree = H5F_CLOSE_STRONG,
	.terminate = read_terminate,
	.fapl_size = sizeof(struct sl_read_vfd *),
	.open = read_open,
	.close = read_close,
	.query = read_query,
	.get_eoa = read_get_eoa,
	.set_eoa = read_set_eoa,
	.get_eof = read_get_eof,
	.read = read_read,
	.write = read_write,
	.fl_map = H5FD_FLMAP_DICHOTOMY,
};

int sl_read_vfd_set(hid_t fapl, struct sl_read_vfd *vfd)
{
	if (driver < 0)
		driver = H5FDregister(&read_class);
	if (driver < 0 || H5Pset_driver(fapl, driver, &vfd) < 0)
		return sl_fail(-ENOMEM, "HDF5 does not take the file driver");
	return 0;
}
