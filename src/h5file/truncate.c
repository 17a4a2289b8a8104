/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives up frames at the end of a dataset. H5Dset_extent() would take their chunks out of the
 * index, and the file would show frames of zeroes until the header is written. Here the 8 bytes
 * of the extent in the header are written while HDF5 does not have that header in memory. The
 * chunks stay in the index, as chunks after a crash do, until frames of these numbers come
 * again. Called by the file thread.
 */
#include <errno.h>
#include <unistd.h>

#include "h5file/h5file_internal.h"

/* A header of version 1: the bytes of its messages are said at 8, and the first of them is at
 * 16. */
#define BLOCK_BYTES 8
#define FIRST       16
/* A message: its type and length, and at 8 its contents. */
#define MESSAGE      8
#define DATASPACE    1
#define CONTINUATION 16

static bool header_read(int fd, uint64_t at, void *out, size_t n)
{
	return pread(fd, out, n, (off_t)at) == (ssize_t)n;
}

/* Returns the offset of the extent, which must have this value; 0: not found. base: offset of
 * address 0. */
static uint64_t find_extent(int fd, uint64_t base, uint64_t header, uint64_t extent)
{
	uint64_t at = base + header + FIRST, more[2] = {0}, there;
	uint8_t space[2];
	uint16_t kind[2];
	uint32_t bytes;

	if (!header_read(fd, base + header + BLOCK_BYTES, &bytes, sizeof(bytes)))
		return 0;
	for (uint64_t end = at + bytes; at + MESSAGE <= end; at += MESSAGE + kind[1]) {
		if (!header_read(fd, at, kind, sizeof(kind)))
			return 0;
		if (kind[0] == DATASPACE && header_read(fd, at + MESSAGE, space, sizeof(space))) {
			at += MESSAGE + (space[0] == 1 ? 8 : 4);
			return header_read(fd, at, &there, sizeof(there)) && there == extent ? at
			                                                                     : 0;
		}
		if (kind[0] == CONTINUATION && !header_read(fd, at + MESSAGE, more, sizeof(more)))
			return 0;
		/* The next block, which begins with a message. */
		if (at + MESSAGE + kind[1] + MESSAGE > end && more[1]) {
			at = base + more[0] - MESSAGE - kind[1];
			end = base + more[0] + more[1];
			more[1] = 0;
		}
	}
	return 0;
}

/* Called with nothing to flush, on a file that was opened so that closed objects leave HDF5's
 * memory. */
int sl_h5_truncate(struct sl_h5_file *file, const char *name, hid_t *id, uint64_t extent,
                   uint64_t frames)
{
	hid_t list = H5Fget_create_plist(file->id), access = sl_h5_access_list();
	hsize_t base = 0;
	uint64_t at = 0;
	H5O_info_t info;

	if (H5Pget_userblock(list, &base) >= 0 && H5Oget_info2(*id, &info, H5O_INFO_BASIC) >= 0)
		at = find_extent(file->own.fd, base, info.addr, extent);
	H5Dclose(*id);
	if (at && sl_ordered_vfd_change(&file->vfd, at, &frames, sizeof(frames)))
		at = 0;
	*id = sl_hdf5_noted(H5Dopen2(file->id, name, access));
	H5Pclose(access);
	H5Pclose(list);
	if (!at || *id < 0)
		return sl_h5_fail(file, -EIO, "the frames of '%s' from %llu on cannot be given up",
		                  name, (unsigned long long)frames);
	return 0;
}
