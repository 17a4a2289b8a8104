/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HDF5 file of a writer. Calls return 0 or a negative errno, with a sentence via sl_fail() with
 * HDF5's own words. After the first error of storing or flushing the file stays as the last flush
 * left it: every later call returns this error, and sl_h5_file_close() closes it in order.
 *
 * Threads: the file thread makes all calls with a file or a dataset; they may wait for storage and
 * for HDF5's lock.
 */
#ifndef SL_H5FILE_H
#define SL_H5FILE_H

#include <sluice/writer.h>

#include "codec/codec.h"
#include "core/core.h"

#define SL_H5_DIMENSIONS 32 /* of a dataset of any program */

struct sl_h5_file;
struct sl_h5_dataset;

/* Elements of each frame that the dataset of the same name in another file has. */
struct sl_h5_source {
	const char *file; /* in the folder of this file */
	uint64_t start[SLUICE_FRAME_RANK_MOST], count[SLUICE_FRAME_RANK_MOST];
};

/* Layout of a dataset; shapes have the slowest dimension first. */
struct sl_h5_layout {
	enum sluice_type type;
	size_t element; /* bytes of an element */
	unsigned rank;  /* of a frame, at least 1 */
	bool single; /* frames are numbers: shape is {1}, and the dataset has no dimension for it */
	uint64_t shape[SLUICE_FRAME_RANK_MOST];
	uint64_t chunk[SLUICE_FRAME_RANK_MOST]; /* in a frame; at most the shape */
	uint64_t frames;                        /* the fixed number; 0: it grows */
	uint64_t gather;                        /* frames of a chunk; 0 is the same as 1 */
	const struct sl_codec *codec;           /* sl_codec_none: stored as it is */
	int level;
	bool shuffle;
	bool sum;           /* chunks end in a checksum */
	bool contiguous;    /* a fixed number of frames, contiguous and without chunks */
	unsigned precision; /* 0: all bits; told in an attribute */
	/* A virtual dataset over other files, whose datasets have the chunks; NULL: it is none. */
	const struct sl_h5_source *sources;
	size_t source_count;
	const char *const *scalars;
	size_t scalar_count;
	const char *const *dimensions; /* rank + 1 names, that of the frames first; NULL: none */
	const struct sluice_attribute *attributes;
	size_t attribute_count;
};

/* Returns the number of dimensions of the dataset. */
static inline unsigned sl_h5_rank(const struct sl_h5_layout *layout)
{
	return layout->single ? 1 : layout->rank + 1;
}
/* Returns whether elements have a mantissa, so that a precision means something. */
static inline bool sl_h5_has_mantissa(const struct sl_h5_layout *layout)
{
	enum sl_number number = sl_type_find(layout->type)->number;

	return number == SL_REAL || number == SL_COMPLEX;
}

/* The header of a dataset, and as many nodes of its index as lie above each other. */
#define SL_H5_HELD        ((uint64_t)20 << 10)
#define SL_H5_HELD_SCALAR ((uint64_t)8 << 10)
/* The same of all datasets that a layout makes. */
static inline uint64_t sl_h5_held_bytes(const struct sl_h5_layout *layout)
{
	return SL_H5_HELD + SL_H5_HELD_SCALAR * (layout->scalar_count +
	                                         (layout->dimensions ? layout->rank + 1 : 0));
}

/* Return the filter mask bit of the shuffle, that of the codec, and that of the checksum; 0: the
 * dataset has none. */
static inline uint32_t sl_h5_mask_shuffle(const struct sl_h5_layout *layout)
{
	return layout->shuffle;
}
static inline uint32_t sl_h5_mask_codec(const struct sl_h5_layout *layout)
{
	return layout->codec->filter ? 1u << layout->shuffle : 0;
}
static inline uint32_t sl_h5_mask_sum(const struct sl_h5_layout *layout)
{
	return layout->sum ? 1u << (layout->shuffle + (layout->codec->filter != 0)) : 0;
}

struct sl_h5_file_options {
	unsigned flags, mode; /* of the public options */
	/* Bytes of metadata held back; 0: no limit. Each dataset adds sl_h5_held_bytes() to it. */
	uint64_t held_limit;
	const struct sluice_attribute *attributes;
	size_t attribute_count;
	/* Other processes write to it, too: a new file has a temporary name instead of none. */
	bool shared;
	bool apart; /* on other machines: no page has bytes of theirs and of HDF5 */
	/* The disk is full: waits for a while, and says whether it is to be tried again. Called
	 * on the thread of the call, without a lock. NULL: it is not tried again. */
	bool (*full)(void *argument, int error);
	void *argument;
};

/* Returns 0, or -ENOTSUP with a sentence: built without HDF5, or its library is not threadsafe
 * and flags lack SLUICE_WRITER_ONLY_HDF5. Any thread. */
int sl_h5_usable(unsigned flags);
/* Returns 0, or -EINVAL with a sentence. Any thread. */
int sl_h5_attributes_check(const struct sluice_attribute *list, size_t count);
/* what: "scalar" or "dimension", for the sentence */
int sl_h5_names_check(const char *what, const char *const *names, size_t count);

/* Opens the file; path is local. Errors: see sluice_writer_open(). A continued file keeps its
 * attributes. In other programs' files the guarantees do not cover a kill during a single write of
 * a metadata block across two pages. */
int sl_h5_file_open(const char *path, const struct sl_h5_file_options *o, struct sl_h5_file **out);

/*
 * Adds a dataset with its groups, scalars and attributes; with APPEND an existing dataset is
 * opened instead. Then type and shape must agree; chunk, codec, level and shuffle are taken from
 * the dataset and must agree where `set` says so; sum is taken from it, and must agree if it is
 * set; frames, contiguous and precision must agree or be 0; sources must be the same. Existing
 * attributes stay; missing scalars get NaN for existing frames, and first is their number. A named
 * file is flushed: all begun frames must have been stored. The layout is changed on success only.
 * Without `out` it is only checked: nothing is made, flushed or given up.
 *
 * Errors, besides those of storing, which leave the file alone:
 *  -EINVAL   the dataset has fewer frames than are to be kept
 *  -EEXIST   another object has the name, or the dataset differs from the options
 *  -EBADMSG  its format is not valid after each write
 *  -ENOTSUP  its filters are not built in
 */
struct sl_h5_set_options {
	bool chunk, gather, codec, level, shuffle; /* set by the program */
	bool at;        /* so is the number of the next frame: those from there on are given up */
	uint64_t frame; /* that number */
};
int sl_h5_dataset_add(struct sl_h5_file *file, const char *name, struct sl_h5_layout *layout,
                      const struct sl_h5_set_options *set, struct sl_h5_dataset **out,
                      uint64_t *first);

/* Forgets a dataset without new frames; it stays in the file, and can be added again. */
void sl_h5_dataset_forget(struct sl_h5_dataset *dataset);

/*
 * Stores a filtered chunk. frame: number of its first frame in the dataset. Chunks of a frame come
 * in any order, after the first chunk of the frame before. offset: where the chunk begins in the
 * frame, in elements. mask: HDF5's filter mask, with bits for omitted filters. The bytes are the
 * caller's again on return. When the disk is full the file is unchanged and can be flushed.
 */
int sl_h5_chunk_store(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                      uint32_t mask, const void *bytes, size_t n);
/* Stores a chunk when the file is closed: no more space is needed for rows. there: the file has its
 * frames, and on a full disk keeps them as they are. */
int sl_h5_chunk_store_last(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                           const void *bytes, size_t n, bool there);
/* Fills memory for n bytes of elements with the dataset's fill value. */
void sl_h5_fill(const struct sl_h5_dataset *dataset, void *out, size_t n);
/* Whether the open chunk that begins with a frame is in the file without filters. */
bool sl_h5_chunk_is_raw(const struct sl_h5_dataset *dataset, uint64_t frame);
/* Stores frames from..to of a chunk before it is full, and the earlier frames where the file has
 * them with filters. bytes: the whole chunk, without filters. It stays unfiltered until
 * sl_h5_chunk_store() brings all of it, in other space; the old space is kept until the next
 * flush. */
int sl_h5_chunk_store_frames(struct sl_h5_dataset *dataset, uint64_t frame, uint64_t from,
                             uint64_t to, const uint64_t *offset, const void *bytes, size_t n);
/* Reads a chunk that was partly there when the dataset was added, without its filters: n bytes. */
int sl_h5_chunk_read(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                     void *out, size_t n);

/* A shared file: the absolute name for others to open it now, which stays the file's. Space for
 * others to write a chunk; when its bytes are there, it is entered. */
const char *sl_h5_file_name(const struct sl_h5_file *file);
int sl_h5_space_take(struct sl_h5_file *file, uint64_t bytes, uint64_t *start);
int sl_h5_chunk_enter(struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
                      uint32_t mask, uint64_t start, size_t n);

/* Contiguous datasets: returns the offset of frame 0 in the file, a multiple of 4096 in new
 * datasets, and a descriptor for writes outside HDF5, which must end before the next flush. The
 * descriptor stays the file's and shares its lock. The file may have no name yet:
 * open("/proc/self/fd/N") opens it again, for example for O_DIRECT. */
int sl_h5_dataset_offset(struct sl_h5_dataset *dataset, uint64_t *offset, int *fd);

/* Reports `count` stored frames from `frame` on, and takes their scalars, frame by frame. Called in
 * the order of the frames. max_error: the largest rounding error so far. */
int sl_h5_frames_stored(struct sl_h5_dataset *dataset, uint64_t frame, uint64_t count,
                        const double *scalars, double max_error);

/* A coordinate: numbers in a single dimension; datasets of frames refer to it by name. */
struct sl_h5_coordinate {
	const char *name;
	enum sluice_type type;
	size_t element, count;
	const void *values;
	const struct sluice_attribute *attributes;
	size_t attribute_count;
};
/* Makes a coordinate. All begun frames must have been stored; a named file is flushed. -EEXIST: the
 * name is taken by anything but the same values. Else errors of storing. */
int sl_h5_coordinate_add(struct sl_h5_file *file, const struct sl_h5_coordinate *c);

/* Gives the root or a dataset attributes; all or none. All begun frames must have been stored; a
 * named file is flushed. -EINVAL, -EEXIST: there is such an attribute. Else errors of storing. */
int sl_h5_attributes_give(struct sl_h5_file *file, struct sl_h5_dataset *dataset,
                          const struct sluice_attribute *list, size_t count);

/* Flushes: all reported frames are in the file, and on the disk if it is durable. The first flush
 * gives a new file its name. All begun frames must have been stored. */
int sl_h5_file_flush(struct sl_h5_file *file);
/* Removes the file that has the name: another, which this is to replace, or this. */
int sl_h5_file_vacate(struct sl_h5_file *file);

/* Closes the file and frees all datasets. keep: flushes first, if there was no error, without
 * partly stored frames. Otherwise the file stays as the last flush left it, and a new file without
 * a flush is removed. Returns the first error. */
int sl_h5_file_close(struct sl_h5_file *file, bool keep);

/* Bytes of memory that hold metadata back now. */
uint64_t sl_h5_file_held(const struct sl_h5_file *file);

/* -------------------------------------------------------------------------- datasets that are read
 *
 * Any thread makes these calls, which may wait for storage and for HDF5's lock; a reader is used by
 * one thread at a time. */

/* When a file was looked at, and whether it is still the same: see word.h. */
struct sl_h5_state {
	bool has_word, written; /* written: a writer had the file open */
	uint64_t word, length;
	int64_t modified_ns;
};
/* Waits until no flush of our writer is in progress, and the last change of another program is old
 * enough for the next to have another time. Returns 0, -EAGAIN at the deadline, or another
 * -errno; no sentence. */
int sl_h5_state_take(int fd, int64_t deadline, struct sl_h5_state *out);
/* Returns 1 if what was read since belongs to that state; 0: our writer has changed the file, or
 * may have; -ESTALE: another has; or -errno. Makes few system calls, of local files. */
int sl_h5_state_holds(int fd, const struct sl_h5_state *state);

/* A segment of a dataset in another file, which the HDF5 file names. */
struct sl_h5_segment {
	char *file;
	uint64_t offset, bytes;
};
/* A block of a virtual dataset that is a block of another dataset. The file has these names, "." is
 * the file itself. */
struct sl_h5_part {
	char *file, *dataset;
	/* count[0]: UINT64_MAX: as many as the source has. */
	uint64_t start[SL_H5_DIMENSIONS], count[SL_H5_DIMENSIONS];
	uint64_t from[SL_H5_DIMENSIONS]; /* where the block of the source begins */
	bool whole;                      /* it is all of the source */
	/* Of the source: to each dimension that of the virtual dataset. Of both, others
	 * (SL_H5_DIMENSIONS) have length 1. */
	unsigned rank, dimension[SL_H5_DIMENSIONS];
};
/* Sets the last: the block of the source has that rank and shape, and the virtual dataset has all
 * dimensions. Returns false if they do not match. Known but where it is all of the source. */
bool sl_h5_part_match(struct sl_h5_part *part, unsigned all, unsigned rank, const uint64_t *count);
/* A dataset as it is described by the file. */
struct sl_h5_array {
	char *name;     /* from the root */
	unsigned rank;  /* with the dimensions of an array type, which come last */
	unsigned depth; /* the number of these */
	uint64_t shape[SL_H5_DIMENSIONS], chunk[SL_H5_DIMENSIONS];
	size_t element; /* bytes */
	uint64_t bytes; /* in all elements, at most INT64_MAX */
	char *type;     /* as <sluice/arrays.h> has it */
	char *filter_names;
	struct sl_filters filters; /* with chunks; checked */
	enum {
		SL_H5_CHUNKED,
		SL_H5_CONTIGUOUS,
		SL_H5_COMPACT,
		SL_H5_EXTERNAL,
		SL_H5_VIRTUAL
	} layout;
	/* Contiguous; UINT64_MAX: there are no bytes yet. Virtual: the first length, if its parts
	 * end there, else the first length at most. */
	uint64_t address;
	char *compact;                  /* the bytes, or NULL */
	char *fill;                     /* an element where there are none; NULL: zeros */
	struct sl_h5_segment *segments; /* external */
	size_t segment_count;
	struct sl_h5_part *parts; /* virtual; no two have an element */
	size_t part_count;
};
void sl_h5_array_clear(struct sl_h5_array *array);

/*
 * The bytes of a file for HDF5. With a remote file they are copied from memory; if some are not
 * there, the call of HDF5 fails, they are fetched without HDF5's lock, and the call is made again.
 */
struct sl_h5_bytes {
	int fd; /* a local file; -1: the rest counts */
	uint64_t length;
	unsigned rank; /* set by a reader: the dataset's dimensions; 0: not known yet */
	/* In HDF5's lock. Returns false if bytes are missing, which are noted. */
	bool (*copy)(struct sl_h5_bytes *source, uint64_t offset, size_t n, void *to);
	/* Fetches the last missing bytes. Waits for storage. 0, or -errno with a sentence. */
	int (*fetch)(struct sl_h5_bytes *source);
};

struct sl_h5_reader;
/* Opens a dataset of the file. The source stays the caller's, until the reader is closed; path is
 * for the sentences. -ENOENT, -EISDIR, -ENOTSUP or -EBADMSG with a sentence, or an error of the
 * source. */
int sl_h5_reader_open(struct sl_h5_bytes *source, const char *path, const char *dataset,
                      struct sl_h5_reader **out, struct sl_h5_array *array);
void sl_h5_reader_close(struct sl_h5_reader *reader); /* NULL is allowed */
/* Where the bytes of a chunk lie. */
struct sl_h5_place {
	const uint64_t *at;       /* in: its first element; those of array types are left out */
	uint64_t address, length; /* length 0: there is no such chunk */
	uint32_t mask;
};
/* Finds chunks; reads the index alone. -EBADMSG with a sentence: the index is damaged; or an error
 * of the source. */
int sl_h5_reader_find(struct sl_h5_reader *reader, size_t count, struct sl_h5_place *places);

/* Calls found() for each group and dataset at and below a path, once, in HDF5's lock. refused: why
 * the dataset cannot be opened, or NULL; array: the known fields of a dataset, or NULL: a group.
 * Returns 0, the result of found(), or -errno with a sentence. */
typedef int sl_h5_found(void *user, const char *name, const struct sl_h5_array *array,
                        const char *refused);
int sl_h5_list(struct sl_h5_bytes *source, const char *path, const char *below, sl_h5_found *found,
               void *user);

#endif
