/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that implement h5file.h share. */
#ifndef SL_DATASET_H
#define SL_DATASET_H

#include "h5file/h5file.h"
#include "h5file/hdf5_error.h"
#include "h5file/new_file.h"
#include "h5file/ordered_vfd.h"

/* Values of a companion that wait for its next write. */
#define SL_FRAME_PENDING 512
#define SL_FRAME_COLUMN \
	1024 /* elements of a chunk of a dataset of one dimension: 8 KiB of doubles */
#define SL_FRAME_RANK (SLUICE_RANK_MOST + 1) /* of a dataset, at most */
/* Bytes for the names of a group before they move for the first time; with HDF5's head of 32 a page at most. */
#define SL_FRAME_NAMES 4000

/* The calls are made by one thread at a time, which all fields belong to. */
struct sl_frame_file {
	struct sl_ordered_vfd vfd;
	hid_t id;
	struct sl_new_file own; /* a file that was there is named, too */
	bool durable;
	struct sl_list datasets;
	struct sl_list open; /* guarded by the list of all open files */
	uint64_t device, inode;
	bool (*full)(void *argument, int error); /* of the options */
	void *argument;
	int error; /* the first one; the file is left alone after it */
	char message[1024];
};

struct sl_frame_companion {
	char *name;
	hid_t id;
	uint64_t extent; /* values that it has, or will have with the next write */
	double *pending; /* SL_FRAME_PENDING; the first is that of frame start */
	uint64_t start;
	size_t count;
};

struct sl_frame_dataset {
	struct sl_list link; /* file->datasets */
	struct sl_frame_file *file;
	char *name; /* absolute: "/fields/u" */
	hid_t id;
	bool contiguous;
	unsigned rank; /* with that of the frames' numbers */
	hsize_t extent[SL_FRAME_RANK];
	/* Of chunks with several frames (gather > 1): the chunks of the frames from `begun` on, of which not all have
	 * come, by their number among those of a frame, and where they lie in the file. */
	uint64_t gather, chunk[SLUICE_RANK_MOST], begun;
	struct sl_frame_part {
		uint64_t place, bytes; /* 0: it is not there */
	} * parts;
	size_t part_count;
	uint64_t place;         /* of a contiguous one in the file */
	uint64_t frames;        /* whole ones */
	uint64_t told;          /* of these, those that the attribute has */
	hid_t frames_attribute; /* of contiguous ones */
	hid_t error_attribute;  /* with a precision */
	double max_error, error_told;
	uint32_t mask_codec, mask_shuffle;
	struct sl_frame_companion *companions;
	size_t companion_count;
	char *scales[SL_FRAME_RANK]; /* absolute; NULL: its dimensions have no names */
};

/*
 * HDF5 said no while it changed the file: from now on it is left alone. Returns the error, with a
 * sentence that has HDF5's words.
 */
__attribute__((format(printf, 3, 4))) int sl_frame_fail(struct sl_frame_file *file, int error,
                                                        const char *format, ...);
/* The first error once more; 0: there was none. */
int sl_frame_error(const struct sl_frame_file *file);
/* Inside of enter and leave: what HDF5's calls have left to be written is written, without HDF5's lock and
 * ours. Returns the driver's error; there is no sentence yet. */
int sl_frame_settle(struct sl_frame_file *file);
/* Outside of them: waits until there is room for so many bytes of raw data and the flush behind them. The error of a
 * full disk, without a sentence: nothing has changed. */
int sl_frame_room(struct sl_frame_file *file, uint64_t bytes);
/* Inside of enter and leave: all that was written is in the file, which has its name then. */
int sl_frame_flush(struct sl_frame_file *file);
/* After an object was added: flushes if others see the file. */
int sl_frame_added(struct sl_frame_file *file);

/* ---------------------------------------------------------------------------------- datasets */

/* HDF5's type for elements; constants of the library, but for float16. Closed by the caller. */
hid_t sl_frame_type(enum sluice_type type);

/* Makes a dataset of one dimension, of fixed length or, with 0, one that grows. */
hid_t sl_frame_column(struct sl_frame_file *file, const char *name, hid_t type, hsize_t length);
/* What datasets are opened with: no cache of chunks. */
hid_t sl_frame_access_list(void);

/* Where a contiguous one lies. */
int sl_frame_place_find(struct sl_frame_dataset *dataset);
/* Whether the filters of a list are those of the layout. */
int sl_frame_filters_check(const char *name, hid_t list, const struct sl_frame_layout *layout);
/* Opens one that is there; what layout says of it becomes true. */
int sl_frame_dataset_adopt(struct sl_frame_dataset *dataset, struct sl_frame_layout *layout,
                           const struct sl_frame_set *set);
/* The extent of a dataset that is there, of which nothing else is open, becomes that of fewer frames. */
int sl_frame_cut(struct sl_frame_file *file, const char *name, hid_t *id, uint64_t extent,
                 uint64_t frames);
void sl_frame_dataset_free(struct sl_frame_dataset *dataset);
/* Of the space at the end of the file: what a companion may take in a flush. */
#define SL_FRAME_AHEAD ((uint64_t)24 << 10)
/* Frames of which only a part is stored are not to be seen. */
int sl_frame_dataset_trim(struct sl_frame_dataset *dataset);
/* For chunks with several frames: room for their places, and those of the chunks that are there in part. */
int sl_frame_parts_init(struct sl_frame_dataset *dataset, const struct sl_frame_layout *layout);
/* What is told at a flush: companions and attributes. */
int sl_frame_dataset_flush(struct sl_frame_dataset *dataset);

/* -------------------------------------------------------------------------------------- names */

/* The absolute path of a name, freed by the caller; -EINVAL or -ENAMETOOLONG with a sentence. */
int sl_frame_name_new(const char *name, char **out);
/* 1: there is a dataset of that path, 0: nothing; -EEXIST with a sentence: something else. */
int sl_frame_name_find(struct sl_frame_file *file, const char *path);
/* Makes the groups on the way. */
int sl_frame_name_groups(struct sl_frame_file *file, const char *path);

/* --------------------------------------------------------------------------------- companions */

/* Opens those that are there; nothing is made, so that nothing is in vain if one is refused. */
int sl_frame_companions_open(struct sl_frame_dataset *dataset, const char *const *names,
                             size_t count);
/* Gives the numbers of frames from there on up. */
int sl_frame_companions_cut(struct sl_frame_dataset *dataset, uint64_t frames);
/* Makes the others, without numbers for the first frames. A companion is the scale of the frames, or has it. */
int sl_frame_companion_make(struct sl_frame_dataset *dataset, struct sl_frame_companion *companion);
int sl_frame_companions_make(struct sl_frame_dataset *dataset, uint64_t first);
void sl_frame_companions_close(struct sl_frame_dataset *dataset);
/* The numbers of the next frame. */
int sl_frame_companions_add(struct sl_frame_dataset *dataset, const double *scalars);
int sl_frame_companions_flush(struct sl_frame_dataset *dataset);

/* --------------------------------------------------------------------------------- dimensions */

/* The names of scales, of which that of the frames may be a companion's; without names all below does nothing. */
int sl_frame_scales_name(struct sl_frame_dataset *dataset, const struct sl_frame_layout *layout);
/* Whether those that are there are fit for a new dataset; whether those of a dataset that is there are these. */
int sl_frame_scales_check(struct sl_frame_dataset *dataset, const struct sl_frame_layout *layout);
int sl_frame_scales_agree(const struct sl_frame_dataset *dataset);
/* Makes a companion a scale. */
int sl_frame_scale_mark(struct sl_frame_file *file, hid_t id, const char *path);
/* Makes those that are not there, before all that has them; gives a dataset those of its first dimensions. */
int sl_frame_scales_make(struct sl_frame_dataset *dataset, const struct sl_frame_layout *layout);
int sl_frame_scales_attach(struct sl_frame_dataset *dataset, hid_t id, unsigned rank);
/* Gives scales of a dataset that have none the references to all datasets of the list. */
int sl_frame_scales_refer(struct sl_frame_file *file, const struct sl_frame_dataset *dataset);

/* -------------------------------------------------------------------------------- attributes */

/*
 * Gives an object, called name for people, its attributes; one that is there stays as it is. Between two
 * flushes this comes once, and after an object was made: HDF5 fills the block of texts up before it takes
 * another, in one write that has to be of one page, and makes it longer where it is the last of the file.
 */
int sl_frame_attributes_add(struct sl_frame_file *file, hid_t object, const char *name,
                            const struct sluice_attribute *list, size_t count);

#endif
