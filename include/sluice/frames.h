/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a file of frames while its writer writes it.
 *
 * A flush changes blocks of the file one after the other. Each of the states between two of these writes is a
 * valid file, but whoever reads some blocks before a write and others after it may see an error of HDF5, or
 * no error and frames of zeros. So the file has a number, which a writer of this library makes odd before
 * the first such write of a flush and even after the last. Whatever is read with HDF5, h5py or any other
 * program between sluice_frames_begin() and a sluice_frames_check() that returns 0 is of one state of the
 * file, which has all frames up to a flush. Opening the file is part of it: HDF5 keeps what it has read.
 *
 *	sluice_frames_open("run.h5", &f);
 *	do {
 *		rc = sluice_frames_begin(f, -1);
 *		if (!rc) {
 *			failed = read_some("run.h5");       (H5Fopen, H5Dread, H5Fclose; keeps no data)
 *			rc = sluice_frames_check(f);
 *		}
 *	} while (rc == -EAGAIN);
 *
 * An error of HDF5 counts only if the check returns 0. A process that has the file open in HDF5 already shares what
 * that has read of it: close it first. HDF5's own lock keeps readers out while a writer has the
 * file: they open it with H5Pset_file_locking(fapl, false, true), or HDF5_USE_FILE_LOCKING=FALSE. Reader and
 * writer are on the same machine.
 *
 * The number is 8 bytes, little endian, at offset 136 of the file, behind "\x89sluice\n" at offset 128. The
 * writer has a lock on these 16 bytes (fcntl(2), F_OFD_SETLK): one that was killed in the middle of a flush has
 * left the number odd, and nobody has the lock; then the file stands still, and is valid. Files that were not
 * made by a writer have no number; nor have those of versions before this one.
 */
#ifndef SLUICE_FRAMES_H
#define SLUICE_FRAMES_H

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A file that is followed. Used by one thread at a time. */
typedef struct sluice_frames sluice_frames;

/* path: of a local file; it is copied. Nothing is read yet. -errno as of open(2), -ENOMEM. */
SLUICE_API int sluice_frames_open(const char *path, sluice_frames **out);

/*
 * Waits until no flush is in the middle, which takes as long as storage does; a negative timeout_ms is for ever.
 * If path is another file by now (a writer has replaced it), it is that one from here on. -EAGAIN: not in
 * time. -ENOTSUP: somebody writes the file, and it has no number. Errors of open(2) and pread(2).
 */
SLUICE_API int sluice_frames_begin(sluice_frames *f, int timeout_ms);

/* 0: what was read since begin is of one state of the file that path names. -EAGAIN: it changed meanwhile, and
 * what was read is to be forgotten. Errors of pread(2). */
SLUICE_API int sluice_frames_check(sluice_frames *f);

/* NULL is allowed. */
SLUICE_API void sluice_frames_close(sluice_frames *f);

#ifdef __cplusplus
}
#endif
#endif
