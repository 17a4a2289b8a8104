/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets of HDF5 files, read as files of bytes: chunks are decoded on all cores.
 *
 * sluice_open() with the option `dataset` opens a dataset of an HDF5 file for reading. The HDF5
 * file is local or on a server (http, https, s3). The bytes of the opened file are the elements in
 * C order, as stored behind the filters: nothing is converted, and the type says their byte order.
 * All calls with files work on it. A request with `rank` reads a box of the dataset.
 *
 *	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
 *
 *	o.dataset = "/fields/u";
 *	rc = sluice_open(ctx, "run.h5", &o, &file);
 *
 * HDF5 reads the file's own data (headers, indexes) under its lock, and no other bytes. Stored
 * bytes are fetched by the backend of the file, and decoded by the workers of the context.
 * A file takes memory for decoded chunks: at most 64 MiB in flight, or two chunks for each worker
 * if these are more, and 64 MiB, or a chunk, for chunks that a read needed in part. On the way to a
 * device chunks are decoded in pinned memory of the context, each once while a box has few rows; in
 * stream order an error is the operation's, and the stream goes on.
 *
 * A file that a writer of this library writes meanwhile is read as of a state of the file that its
 * last flush left; sluice_array_refresh() takes its newer length. If the length or the time of the
 * last change of any other file changes, operations fail with -ESTALE until a refresh; an open and
 * a refresh wait until that time is 20 ms ago, for two changes may have the same. No lock is taken.
 * Where the HDF5 library was built without its own lock, nothing else in the process may use it
 * meanwhile.
 *
 * Files on a server: bytes for HDF5 are fetched without HDF5's lock, in blocks of 256 KiB to 4 MiB,
 * and kept while the file is open, 64 MiB at most. All bytes belong to the opened object, by the
 * ETag; after a change operations fail with -ESTALE, and sluice_array_refresh() finds nothing new.
 * Chunks near each other come in a single request. SLUICE_HTTP_GAP_BYTES and the other settings for
 * remote files hold. The open waits for some round trips.
 *
 * A virtual dataset is read if SLUICE_WRITER_NODE_FILES could have made it: each part is a block
 * from all frames, at the same place in a dataset with the same type and shape. That dataset is in
 * the same file, or in another in the same folder, or in the folder behind links. As with HDF5 the
 * longest part gives the length. Elements of shorter parts, and of parts without file or dataset
 * at the open, have the fill value; the attribute "sluice_frames" counts the complete frames of our
 * writer. The parts share the memory above, and each may change like a file. Others are refused.
 *
 * Damage is found as far as the file allows (sums of fletcher32, formats of the codecs), and the
 * sentence names the dataset, the chunk and the filter. HDF5 itself may crash, loop or take much
 * memory over a file with headers that were made for that: a program opens such files in a child.
 *
 * Errors of sluice_open() with `dataset`, beside its others:
 *   -ENOTSUP   a store:// URI; a server without parts of files, or an external or virtual dataset
 *              there; a type of variable length, a filter, or a format of a newer HDF5 that this
 *              build cannot read; a virtual dataset with other parts; or this build has no HDF5
 *   -ENOENT    there is no such dataset
 *   -EISDIR    the name is a group
 *   -EINVAL    flags to write
 *   -EBADMSG   it is no HDF5 file, or it is damaged
 *   from a server, the errors in docs/remote.md
 */
#ifndef SLUICE_ARRAYS_H
#define SLUICE_ARRAYS_H

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_ARRAY_RANK_MOST 32

/* A dataset, or a group in a list. The texts belong to the file that is open, and are valid until
 * it is refreshed or closed; in a list, until found() returns. */
struct sluice_array_info {
	size_t size;      /* in: sizeof(struct sluice_array_info) */
	const char *name; /* of the dataset, from the root: "/fields/u" */
	unsigned rank;    /* 0: a single element */
	/* Elements in each dimension, slowest first. Dimensions of an array type come last. */
	uint64_t shape[SLUICE_ARRAY_RANK_MOST];
	uint64_t chunk[SLUICE_ARRAY_RANK_MOST]; /* chunk[0] is 0: not divided into chunks */
	size_t element;                         /* bytes of an element */
	uint64_t bytes;                         /* of all elements */
	/*
	 * The type, as numpy describes it. Of a simple type it is a word: "<f4", ">i2", "|b1",
	 * "<c8", "|S8", "|V3". Of a compound type it is a list as in the header of a .npy file:
	 * "[('x', '<f4'), ('', '|V4'), ('v', '<i2', (3,))]", where a field without a name is
	 * padding. numpy.lib.format.descr_to_dtype(ast.literal_eval()) reads it. bfloat16, which
	 * numpy lacks, is "bfloat16" or "bfloat16 big-endian". NULL: of a group, or of a type that
	 * cannot be read.
	 */
	const char *type;
	const char *filters; /* names, in the order in which they were applied; "": none */
	const char *refused; /* in a list: the sentence that an open would fail with, or NULL */
	int is_group;        /* 1: in a list, a group; only `name` means something */
};

/*
 * Describes the dataset that the file shows. Any thread; not while another refreshes the file.
 * Returns 0, or -EINVAL: the file is no dataset.
 */
SLUICE_API int sluice_array_stat(sluice_file *file, struct sluice_array_info *out);

/*
 * Takes the length that the dataset has now, if a writer has made it longer, and the file as it is
 * now, if another program has changed it. Waits for a flush of our writer that is in progress, and
 * for storage. Operations in flight go on with the old length. If another program has changed the
 * file they fail with -ESTALE, as some of their bytes may be of the file before. Any thread.
 *
 * Returns 0, or
 *   -EINVAL   the file is no dataset
 *   -EAGAIN   the flush did not end within 10 s
 *   -ESTALE   the dataset is shorter, or is another now; or another program changes it meanwhile
 *   the errors of sluice_open()
 */
SLUICE_API int sluice_array_refresh(sluice_file *file);

/* Called for each object; all that info points to is valid until it returns. 0: go on; another
 * value ends the list, which returns it. */
typedef int (*sluice_array_found)(void *user, const struct sluice_array_info *info);
/*
 * Lists the groups and datasets of a local HDF5 file at and below a path in it ("/": all), in the
 * order of their names: a group comes before all that is in it, and an object with several names
 * has the first. A virtual dataset has the length in the header; nothing looks at the parts.
 * found() must not call HDF5 or this library. Any thread; writers of this process wait
 * meanwhile. If another process writes the file, call it between sluice_frames_begin() and
 * sluice_frames_check().
 *
 * Returns 0, the value of found(), or
 *   -ENOENT    there is no such file, or no such path in it
 *   -EBADMSG   it is no HDF5 file, or it is damaged
 *   -ENOTSUP   this build has no HDF5
 */
SLUICE_API int sluice_array_list(const char *file, const char *path, sluice_array_found found,
                                 void *user);

/*
 * The same for an HDF5 file on a server, which is open for reading without a dataset. The file
 * stays open; found() must not make calls with it. If it was opened with first_bytes, 256 KiB, the
 * list needs fewer requests. Waits for the server; writers of this process do not wait for that.
 *
 * Returns as sluice_array_list(), the errors of reads, or
 *   -ENOTSUP   also: the file is local, or the server does not send parts of it
 */
SLUICE_API int sluice_array_list_file(sluice_file *file, const char *path, sluice_array_found found,
                                      void *user);

/*
 * Splits "run.h5#/fields/u" at the last "#/", unless a local file has the whole name, or the
 * name is a store:// URI. In a URI '?' and '#' before that stay as they are. May wait for local
 * storage. Any thread.
 *
 * Returns the bytes of the name of the file; '#' is behind them, and then the path of the dataset.
 * 0: the name has no dataset, or is NULL.
 */
SLUICE_API size_t sluice_array_split(const char *name);

#ifdef __cplusplus
}
#endif
#endif
