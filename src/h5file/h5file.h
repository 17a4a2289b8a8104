/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HDF5 file of a writer. All calls that take a file or a dataset are made by the
 * writer's thread, one at a time; they may wait for storage and for HDF5's lock. Results are 0 or a
 * negative errno, with a sentence via sl_fail() that has HDF5's own words.
 *
 * After the first error of storing or flushing the file is left alone: it stays at its last flush, every
 * later call but close returns that error, and close ends in order.
 */
#ifndef SL_H5FILE_H
#define SL_H5FILE_H

#include <sluice/writer.h>

#include "codec/codec.h"
#include "core/core.h"

struct sl_frame_file;
struct sl_frame_dataset;

/* What a dataset is made of; shapes have the slowest dimension first. */
struct sl_frame_layout {
	enum sluice_type type;
	size_t element; /* bytes of one */
	unsigned rank;  /* of a frame */
	uint64_t shape[SLUICE_RANK_MOST];
	uint64_t chunk[SLUICE_RANK_MOST]; /* in a frame; at most the shape */
	uint64_t frames;                  /* the fixed number; 0: it grows */
	uint64_t gather;                  /* frames of a chunk; 0 and 1: one */
	const struct sl_codec *codec;     /* sl_codec_none: stored as it is */
	int level;
	bool shuffle;
	bool contiguous;    /* a fixed number of frames in one piece, without chunks */
	unsigned precision; /* 0: all bits; told in an attribute */
	const char *const *scalars;
	size_t scalar_count;
	const char *const *dimensions; /* rank + 1 names, that of the frames first; NULL: none */
	const struct sluice_attribute *attributes;
	size_t attribute_count;
};

/* The header of a dataset, and as many nodes of its index as lie above each other. */
#define SL_FRAME_HELD        ((uint64_t)20 << 10)
#define SL_FRAME_HELD_SCALAR ((uint64_t)8 << 10)
/* The same of all datasets that a layout makes. */
static inline uint64_t sl_frame_held(const struct sl_frame_layout *layout)
{
	return SL_FRAME_HELD + SL_FRAME_HELD_SCALAR * (layout->scalar_count +
	                                               (layout->dimensions ? layout->rank + 1 : 0));
}

struct sl_frame_file_options {
	unsigned flags, mode; /* of the public options */
	/* Metadata held back, in bytes; 0: no limit. A dataset that is added adds sl_frame_held() to a limit. */
	uint64_t held_limit;
	const struct sluice_attribute *attributes;
	size_t attribute_count;
	/* The disk is full: waits for a while, and says whether it is to be tried again. Called on the thread of the
	 * call, without a lock. NULL: it is not tried again. */
	bool (*full)(void *argument, int error);
	void *argument;
};

/* 0, or -ENOTSUP with a sentence: built without HDF5, or its library has no lock and flags have no
 * SLUICE_WRITER_ONLY_HDF5. Any thread. */
int sl_frame_file_usable(unsigned flags);
/* 0, or -EINVAL with a sentence: whatever object or dataset they are for. Any thread. */
int sl_frame_attributes_check(const struct sluice_attribute *list, size_t count);
/* what: "scalar", "dimension" */
int sl_frame_names_check(const char *what, const char *const *names, size_t count);

/*
 * path: of the local file. Errors as sluice_writer_open() has them. A file that is continued keeps the
 * attributes that it has. What is promised of every moment holds, in files that other programs made, but for a
 * kill in the middle of one write of metadata that they have placed across two pages.
 */
int sl_frame_file_open(const char *path, const struct sl_frame_file_options *o,
                       struct sl_frame_file **out);

/*
 * Adds a dataset with its groups, companions and attributes; or, with APPEND and if there is one, opens it:
 * then type and shape must agree, and chunk, codec, level and shuffle of the layout become those of the
 * dataset (set says which of them the caller has set: those must agree), and so do frames, contiguous and
 * precision, which must agree unless they are 0. Attributes that are there stay as they are; companions that
 * are not get NaN for the frames that are there. first is the number of these, in contiguous datasets by
 * their attribute. If the file is in its place already, this flushes: all frames that were begun have been
 * stored before this call. layout is changed on success only.
 *
 * -EINVAL: the dataset has fewer frames than are to be kept. -EEXIST: the name is something else, or the dataset is not as asked for. -EBADMSG: it is in a format that
 * is not valid at every moment. -ENOTSUP: its filters are none that are built in. Else errors of storing: the
 * file is left alone.
 */
struct sl_frame_set {
	bool chunk, gather, codec, level, shuffle; /* set by the program */
	bool at;        /* so is the number of the next frame: those from there on are given up */
	uint64_t frame; /* that number */
};
int sl_frame_file_add(struct sl_frame_file *file, const char *name, struct sl_frame_layout *layout,
                      const struct sl_frame_set *set, struct sl_frame_dataset **out,
                      uint64_t *first);

/* Forgets a dataset that was given no frame since it was added; it stays in the file, and can be added again. */
void sl_frame_file_drop(struct sl_frame_dataset *dataset);

/*
 * Stores one chunk as the filters would have left it. The frame is its number in the dataset, of a chunk with
 * several its first one; chunks of
 * one frame come in any order, those of later frames after the first of the frame before. offset: of the
 * chunk in the frame, in elements. mask: HDF5's filter mask, bits of filters that were left out. bytes are
 * the caller's again on return. The error of a full disk leaves the file as it was: it can be flushed.
 */
int sl_frame_file_store(struct sl_frame_dataset *dataset, uint64_t frame, const uint64_t *offset,
                        uint32_t mask, const void *bytes, size_t n);
/*
 * The same of a chunk of which not all frames have come: bytes are those of a whole chunk, without filters, and of its
 * frames those from `from` up to `to` go to the file; those before are there. So a chunk lies there unfiltered until
 * sl_frame_file_store() has all of it, which gives it another place: what was flushed stays where it is until the next flush.
 */
int sl_frame_file_rows(struct sl_frame_dataset *dataset, uint64_t frame, uint64_t from, uint64_t to,
                       const uint64_t *offset, const void *bytes, size_t n);
/* Reads a chunk that was there in part when the dataset was added, without its filters: n bytes. */
int sl_frame_file_read(struct sl_frame_dataset *dataset, const struct sl_frame_layout *layout,
                       uint64_t frame, const uint64_t *offset, void *out, size_t n);
/* The filter mask bit of the codec, and that of the shuffle; 0: the dataset has none. */
uint32_t sl_frame_file_mask_codec(const struct sl_frame_dataset *dataset);
uint32_t sl_frame_file_mask_shuffle(const struct sl_frame_dataset *dataset);

/* Contiguous datasets: where the bytes of frame 0 lie in the file, on a multiple of 4096 in new ones, and a
 * descriptor for whoever writes there beside HDF5; that is over before the next flush. The descriptor stays
 * the file's and shares its lock; the file may have no name yet: another way to it, as for O_DIRECT, is
 * open("/proc/self/fd/N"). */
int sl_frame_file_place(struct sl_frame_dataset *dataset, uint64_t *offset, int *fd);

/*
 * Frames are stored whole, count from `frame` on: their scalars, those of a frame together, go to the companions. Called
 * for the frames of a dataset in order. max_error: the largest error of rounding so far.
 */
int sl_frame_file_frames(struct sl_frame_dataset *dataset, uint64_t frame, uint64_t count,
                         const double *scalars, double max_error);

/* An array of one dimension, which is that of datasets of frames that name it; its type is a number's. */
struct sl_frame_coordinate {
	enum sluice_type type;
	size_t element, count;
	const void *values;
	const struct sluice_attribute *attributes;
	size_t attribute_count;
};
/*
 * Makes one. All frames that were begun have been stored. If the file is in its place already, this flushes. -EEXIST:
 * there is something of that name other than the same values. Else errors of storing.
 */
int sl_frame_file_coordinate(struct sl_frame_file *file, const char *name,
                             const struct sl_frame_coordinate *c);

/*
 * Gives the root, or a dataset, attributes; all or none. All frames that were begun have been stored. If the file
 * is in its place already, this flushes. -EINVAL, -EEXIST: there is one of that name. Else errors of storing.
 */
int sl_frame_file_attributes(struct sl_frame_file *file, struct sl_frame_dataset *dataset,
                             const struct sluice_attribute *list, size_t count);

/* Every frame that sl_frame_file_frames() was told of is in the file, and on the disk if it is durable;
 * the first one gives a new file its name. All frames that were begun have been stored. */
int sl_frame_file_flush(struct sl_frame_file *file);

/*
 * Ends HDF5's side and frees all datasets. keep: after a last flush, if there was no error, without frames that
 * are stored in part; otherwise the file stays at its last flush, and a new one that has seen none is removed. Returns the first error.
 */
int sl_frame_file_close(struct sl_frame_file *file, bool keep);

/* Bytes of memory that hold metadata back now. */
uint64_t sl_frame_file_held(const struct sl_frame_file *file);

#endif
