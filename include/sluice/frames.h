/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a file of frames while its writer writes it.
 *
 * A flush changes blocks of the file one after the other. The file is valid after each single
 * write, but a reader that reads some blocks before a write and others after it may see an error of
 * HDF5, or no error and frames of zeros. The file therefore contains a number. A writer of this
 * library makes it odd before the first write of a flush and even after the last. All data read
 * with HDF5, h5py or any other program between sluice_frames_begin() and a sluice_frames_check()
 * that returns 0 belongs to the same state of the file, which has all frames up to a flush. Opening
 * the file is part of the reading, because HDF5 keeps the blocks that it has read.
 *
 *	sluice_frames_open("run.h5", &f);
 *	do {
 *		rc = sluice_frames_begin(f, -1);
 *		if (!rc) {
 *			failed = read_some("run.h5");  (H5Fopen, H5Dread, H5Fclose; keeps nothing)
 *			rc = sluice_frames_check(f);
 *		}
 *	} while (rc == -EAGAIN);
 *
 * An error of HDF5 counts only if the check returns 0. If the process already has the file open in
 * HDF5, the new handle shares the blocks that the old handle has read: close the old handle first.
 * HDF5's own lock keeps readers out while a writer has the file; readers therefore open it with
 * H5Pset_file_locking(fapl, false, true) or with HDF5_USE_FILE_LOCKING=FALSE. Reader and writer
 * must be on the same machine.
 *
 * The number is 8 bytes, little endian, at offset 136 of the file, behind "\x89sluice\n" at offset
 * 128. The writer holds a lock on these 16 bytes (fcntl(2), F_OFD_SETLK). A writer that is killed
 * in the middle of a flush leaves the number odd and the bytes unlocked; the file then no longer
 * changes, and is valid. Files that were not made by a writer of this library have no number, nor
 * do files of writers before this version.
 */
#ifndef SLUICE_FRAMES_H
#define SLUICE_FRAMES_H

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A file that is being followed. To be used by one thread at a time, also in a child of fork(). */
typedef struct sluice_frames sluice_frames;

/*
 * Opens a local file for following. The path is copied. Nothing is read yet.
 *
 * Returns 0, the errors of open(2), or -ENOMEM.
 */
SLUICE_API int sluice_frames_open(const char *path, sluice_frames **out);

/*
 * Waits until no flush is in progress, which takes as long as storage does; for ever if timeout_ms
 * is negative. If a writer has replaced the file under this path, the new file is followed from
 * here on.
 *
 * Returns 0, or
 *   -EAGAIN    the flush did not end in time
 *   -ENOTSUP   a process writes the file, and the file has no number
 *   the errors of open(2) and pread(2)
 */
SLUICE_API int sluice_frames_begin(sluice_frames *f, int timeout_ms);

/*
 * Tells whether the data read since sluice_frames_begin() is consistent.
 *
 * Returns 0 if the data belongs to one state of the file that the path names, or
 *   -EAGAIN   the file changed meanwhile, and the data must be discarded
 *   the errors of pread(2)
 */
SLUICE_API int sluice_frames_check(sluice_frames *f);

/* Closes the file. */
SLUICE_API void sluice_frames_free(sluice_frames *f);

/* A dataset of an HDF5 file, as it is found. */
struct sluice_frames_dataset {
	size_t size;      /* in bytes, of this struct */
	const char *name; /* "fields/u" */
	uint64_t frames;  /* the length of its first dimension, or as many of these as are stored */
	uint64_t chunks;  /* that are stored; 0: it has none, or is not divided into chunks */
	uint64_t masked;  /* chunks without one of the filters, which mapping programs miss */
	uint64_t bytes;   /* in the file */
	uint64_t wrong;   /* chunks that cannot be read or decoded, and other errors */
	const char *filters; /* "shuffle deflate"; "": none */
	const char *message; /* the sentence of the first error, or NULL */
};
/* Called for each dataset; the strings are valid until it returns. */
typedef void (*sluice_frames_found)(void *user, const struct sluice_frames_dataset *dataset);
/*
 * Reads all chunks of all datasets of a local HDF5 file, of any program, decodes them, and compares
 * sums where the file has them (fletcher32). Of contiguous data it compares the length with that of
 * the file; sources of virtual datasets are not read. Codecs of this build need no plugin. Writers
 * of this process wait until it returns, and fork() does for up to a second. If another process
 * writes the file, call it between sluice_frames_begin() and sluice_frames_check(). HDF5 may crash,
 * loop or take much memory over a file that was made for that: a program that reads such files
 * calls this in a child, as `sluice h5 check` does.
 *
 * Returns 0, or
 *   -EBADMSG   a dataset is wrong, or the file is no HDF5 file; the sentence says which
 *   -ENOTSUP   this build has no HDF5
 */
SLUICE_API int sluice_frames_inspect(const char *path, sluice_frames_found found, void *user);

#ifdef __cplusplus
}
#endif
#endif
