/* SPDX-License-Identifier: Apache-2.0 */
/* The HDF5 file, inside. Threads: the file thread, but for the lock around calls of HDF5. */
#ifndef SL_H5FILE_INTERNAL_H
#define SL_H5FILE_INTERNAL_H

#include "h5file/h5file.h"
#include "h5file/ordered_vfd.h"

/* Values of a scalar that wait for its next write. */
#define SL_H5_PENDING 512
#define SL_H5_COLUMN  1024 /* elements of a chunk of a one-dimensional dataset: 8 KiB of doubles */
#define SL_H5_RANK    (SLUICE_FRAME_RANK_MOST + 1) /* of a dataset, at most */
/* Bytes of an index node, at most: 64 entries for frames of rank 4, as HDF5 has it by default. */
#define SL_H5_NODE 4176
/* In a sentence: the help against a later format. */
#define SL_H5_REPACK                                                           \
	"a copy by 'h5repack -f SHUF -f GZIP=1 -S FSM_AGGR -P 0 OLD NEW' can " \
	"be, unless netCDF made the file"
/* Bytes for a group's names before they move; with HDF5's head of 32 a page at most. */
#define SL_H5_NAMES 4000

/* ------------------------------------------------------------------------------ calls of HDF5 */

/* Prepares the library. 0, or -ENOTSUP with a sentence: it has no lock, and alone is false. */
int sl_hdf5_start(bool alone);

/* Between enter and leave HDF5 prints no errors, is used by a single thread of all writers, and
 * no child is forked. leave restores the program's setting. They do not nest. */
void sl_hdf5_enter(void);
void sl_hdf5_leave(void);
/* Between those two, while the thread waits for storage: other writers may be in HDF5, and children
 * be forked. Where HDF5 has no lock nothing happens, as the setting is the process's there. */
void sl_hdf5_pause(void);
void sl_hdf5_resume(void);

/* Returns the result of a call unchanged. If it is negative, HDF5's message is kept for the next
 * sl_hdf5_fail() on this thread, because calls that close objects make HDF5 forget it. */
int64_t sl_hdf5_noted(int64_t result);
/* Like sl_fail(), followed by HDF5's message of the noted call, or else of its last call. */
__attribute__((format(printf, 2, 3))) int sl_hdf5_fail(int error, const char *format, ...);

/* ------------------------------------------------------------------------------------- read */

/* A driver that only reads, without locks. It can note where raw data lies and not read it. */
struct sl_read_vfd {
	struct sl_h5_bytes *source; /* the caller's */
	bool open;
	bool lacks; /* set: the source lacks bytes, and nothing is read until this is false again */
	bool notes; /* at any time: raw data is not read, and its place is noted */
	uint64_t address, length;
};
/* Makes a file opened with fapl use the driver, for as long as it is open. -ENOMEM, a sentence. */
int sl_read_vfd_set(hid_t fapl, struct sl_read_vfd *vfd);
/* Describes the type of elements in *out, for the caller to free, and the dimensions of an array
 * type, which are left out. -ENOTSUP or -ENOMEM with a sentence that goes on behind a name. */
int sl_h5_type_describe(hid_t type, char **out, unsigned *rank, hsize_t dims[SL_H5_DIMENSIONS]);
/* Reads the filters of a list; the bytes of a chunk are the caller's. -EBADMSG: as above. */
int sl_h5_filters_get(hid_t list, struct sl_filters *out);

/* ------------------------------------------------------------------------------------- file */

/* A file without a name until its first flush: a process that dies before leaves nothing. Where the
 * file system lacks this, it has a temporary name beside the final name; a dead process's is
 * removed when the next file for that name is opened, a minute later or after. */
struct sl_new_file {
	char *path;      /* absolute, no symbolic link */
	char *temporary; /* NULL: it has none */
	bool replace;
	bool named;
	int fd; /* for reading and writing; above 2, so that no program mistakes it for its own */
};

/* Opens it. Takes ownership of path in any case. replace: a regular file may have the name; the new
 * file gets its owner and, if mode is 0, its permissions. Otherwise -EEXIST if the name is taken.
 * nameless: without a temporary name if possible. */
int sl_new_file_open(char *path, bool replace, bool nameless, unsigned mode,
                     struct sl_new_file *out);
/* Names it; -EEXIST if the name was taken meanwhile and is not to be replaced. durable: the name
 * survives the loss of power. With a sentence. */
int sl_new_file_name(struct sl_new_file *file, bool durable);
/* Closes it. A file without a name is gone. */
void sl_new_file_close(struct sl_new_file *file);

/* All fields belong to the file thread. */
struct sl_h5_file {
	struct sl_ordered_vfd vfd;
	hid_t id;
	hsize_t base;           /* offset of address 0, behind a block of the user's */
	struct sl_new_file own; /* a file that was there is named, too */
	bool durable, apart;
	bool untouched; /* an existing file, before this writer's first change: HDF5 makes none */
	struct sl_list datasets;
	struct sl_list open; /* guarded by the list of all open files */
	uint64_t device, inode;
	bool (*full)(void *argument, int error); /* of the options */
	void *argument;
	int error; /* the first error; the file is left alone after it */
	char message[1024];
};

struct sl_h5_scalar {
	char *name;
	hid_t id;
	uint64_t object; /* as of a dataset */
	uint64_t extent; /* values that it has, or will have with the next write */
	double *pending; /* SL_H5_PENDING; the first is that of frame start */
	uint64_t start;
	size_t count;
};

struct sl_h5_dataset {
	struct sl_list link; /* file->datasets */
	struct sl_h5_file *file;
	char *name; /* absolute: "/fields/u" */
	hid_t id;
	uint64_t object; /* where HDF5 has its header, if it was there before */
	bool contiguous;
	bool counted;  /* an attribute has the number of frames, and not the extent */
	unsigned rank; /* with that of the frames' numbers */
	hsize_t extent[SL_H5_RANK];
	/* With several frames in a chunk (gather > 1): the partly stored chunks, from frame `begun`
	 * on, by their number in a frame, and where they lie in the file. Behind them those of the
	 * frames before, as far as this writer has stored them. */
	uint64_t gather, chunk[SLUICE_FRAME_RANK_MOST], begun;
	struct sl_h5_partial_chunk {
		uint64_t start, bytes; /* 0: it is not there */
	} * partial;
	size_t partial_count;
	uint64_t partial_bytes;  /* of each of them, when it is whole and has no filters */
	uint64_t start;          /* offset of a contiguous dataset in the file */
	uint64_t header;         /* offset of its header, if it has a single dimension */
	uint64_t frames;         /* complete frames */
	uint64_t frames_written; /* of these, those that the attribute has */
	hid_t frames_attribute;  /* see `counted` */
	hid_t error_attribute;   /* with a precision */
	double max_error, error_written;
	uint32_t mask; /* of all its filters */
	struct sl_h5_scalar *scalars;
	size_t scalar_count;
	char *scales[SL_H5_RANK]; /* absolute; NULL: its dimensions have no names */
};

/* HDF5 said no while it changed the file: from now on it is left alone. Returns the error, with
 * HDF5's words in the sentence. */
__attribute__((format(printf, 3, 4))) int sl_h5_fail(struct sl_h5_file *file, int error,
                                                     const char *format, ...);
/* The first error once more; 0: there was none. */
int sl_h5_error(const struct sl_h5_file *file);
/* Between enter and leave: writes the driver's deferred data, without HDF5's lock and ours. Returns
 * the driver's error, without a sentence. */
int sl_h5_settle(struct sl_h5_file *file);
/* Outside of them: waits until there is room for so many bytes of raw data and the flush behind
 * them. The error of a full disk, without a sentence: nothing has changed. */
int sl_h5_room(struct sl_h5_file *file, uint64_t bytes);
/* Inside of enter and leave: all that was written is in the file, which has its name then. */
int sl_h5_flush(struct sl_h5_file *file);
/* After an object was added: flushes if others see the file. */
int sl_h5_added(struct sl_h5_file *file);

/* ---------------------------------------------------------------------------------- datasets */

/* HDF5's type for elements, as h5py makes it; element: bytes of a string. Closed by the caller. */
hid_t sl_h5_type(enum sluice_type type, size_t element);

/* Makes a dataset. */
hid_t sl_h5_create(struct sl_h5_file *file, const char *name, hid_t type, unsigned rank,
                   const hsize_t *extent, const hsize_t *most, hid_t list);
/* Makes a one-dimensional dataset of this length, or with 0 a growing dataset. */
hid_t sl_h5_column(struct sl_h5_file *file, const char *name, hid_t type, hsize_t length);
/* Opens a dataset without a cache of chunks, which is closed by the caller. Negative: there is an
 * error, and HDF5's message is kept. */
hid_t sl_h5_dataset_open(hid_t file, const char *name);

/* Finds the offset of a contiguous dataset. */
int sl_h5_offset_find(struct sl_h5_dataset *dataset);
/* Gives a list of creation the sources of the layout; whether those of a list are these. */
bool sl_h5_sources_set(hid_t list, const char *name, const struct sl_h5_layout *layout);
int sl_h5_sources_check(const struct sl_h5_dataset *dataset, hid_t list,
                        const struct sl_h5_layout *layout);
/* Reads the parts of a virtual dataset that is described but for them. -ENOTSUP with a sentence:
 * they are not such as sl_h5_sources_set() makes. */
int sl_h5_parts_get(hid_t list, hid_t space, const char *name, struct sl_h5_array *out);
/* Reads the filters of a list as the file has them: a shuffle, a codec and a checksum, in the order
 * in which HDF5 applies them, each of which may be missing. -ENOTSUP: there are others. */
int sl_h5_filters_read(const char *name, hid_t list, size_t element, struct sl_h5_layout *out);
/* Opens an existing dataset, and takes over its layout. Changes nothing in the file. */
int sl_h5_dataset_continue(struct sl_h5_dataset *dataset, struct sl_h5_layout *layout,
                           const struct sl_h5_set_options *set);
/* Gives up frames, if a program goes back, and in any case chunks left behind the end by a death.
 * The frames are not seen any more before others use their space, and before their numbers go. */
int sl_h5_dataset_go_back(struct sl_h5_dataset *dataset, bool back);
/* Gives up frames from a number on, and chunks behind the end. Nothing else has it open. */
int sl_h5_truncate(struct sl_h5_file *file, const char *name, hid_t *id, uint64_t extent,
                   uint64_t frames);
void sl_h5_dataset_free(struct sl_h5_dataset *dataset);
/* Flushes the file with all datasets. last: then it is closed. */
int sl_h5_datasets_flush(struct sl_h5_file *file, bool last);
/* After the last flush: moves the last chunks forward to spare space, and flushes. */
int sl_h5_file_pack(struct sl_h5_file *file);
/* Bytes at the end of the file that a scalar may take in a flush. */
#define SL_H5_AHEAD ((uint64_t)24 << 10)
/* For chunks with several frames: their records, and those of chunks that are partly there. */
int sl_h5_partial_chunks_init(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout);
/* Writes scalars and attributes before a flush. */
int sl_h5_dataset_flush(struct sl_h5_dataset *dataset);

/* -------------------------------------------------------------------------------------- names */

/* The absolute path of a name, freed by the caller; -EINVAL or -ENAMETOOLONG with a sentence. */
int sl_h5_name_new(const char *name, char **out);
/* 1: there is a dataset of that path, 0: nothing; -EEXIST with a sentence: something else. */
int sl_h5_name_find(struct sl_h5_file *file, const char *path);
/* Makes the groups on the way. */
int sl_h5_name_groups(struct sl_h5_file *file, const char *path);

/* ------------------------------------------------------------------------------------ scalars */

/* Opens existing scalars. Creates nothing, so that a refusal leaves no traces. */
int sl_h5_scalars_open(struct sl_h5_dataset *dataset, const char *const *names, size_t count);
/* Gives the numbers of frames from there on up, and chunks behind the end of a scalar. */
int sl_h5_scalars_truncate(struct sl_h5_dataset *dataset, uint64_t frames);
/* Makes missing scalars, without numbers for the first frames. A scalar is the frames' scale, or
 * refers to it. */
int sl_h5_scalar_make(struct sl_h5_dataset *dataset, struct sl_h5_scalar *scalar);
int sl_h5_scalars_make(struct sl_h5_dataset *dataset, uint64_t first);
void sl_h5_scalars_close(struct sl_h5_dataset *dataset);
/* The numbers of the next frame. */
int sl_h5_scalars_add(struct sl_h5_dataset *dataset, const double *scalars);
int sl_h5_scalars_flush(struct sl_h5_dataset *dataset);

/* --------------------------------------------------------------------------------- dimensions */

/* Names the scales; a scalar may be that of the frames. Without names those below do nothing. */
int sl_h5_scales_name(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout);
/* Runs a function for each dimension, with its length, 0: it grows, until the first error. */
int sl_h5_scales_each(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout,
                      int (*run)(struct sl_h5_dataset *dataset, unsigned i, uint64_t length));
/* Whether an existing scale fits a new dataset; whether an existing dataset has these. */
int sl_h5_scale_check(struct sl_h5_dataset *dataset, unsigned i, uint64_t wanted);
int sl_h5_scales_agree(const struct sl_h5_dataset *dataset);
/* Makes a scalar a dimension scale. */
int sl_h5_scale_mark(struct sl_h5_file *file, hid_t id, const char *path);
/* A dimension without a coordinate has a length and no bytes. */
int sl_h5_scale_make(struct sl_h5_file *file, const char *path, uint64_t length);
/* The length of a scale, 0: it grows; negative: it is none. */
int64_t sl_h5_scale_length(struct sl_h5_file *file, const char *path);
/* Gives a dataset the first of its scales. */
int sl_h5_scales_attach(struct sl_h5_dataset *dataset, hid_t id, unsigned rank);
/* Gives scales of a dataset that have none the references to all datasets of the list. */
int sl_h5_scales_refer(struct sl_h5_file *file, const struct sl_h5_dataset *dataset);

/* -------------------------------------------------------------------------------- attributes */

/* Makes an attribute of an array, or with count 0 a single value. Returns it open, or negative. */
hid_t sl_h5_attribute_make(hid_t object, const char *name, hid_t type, hsize_t count,
                           const void *value);
/* The same, and closes it. */
bool sl_h5_attribute_write(hid_t object, const char *name, hid_t type, hsize_t count,
                           const void *value);

/* Gives an object its attributes; existing attributes stay. name: for sentences. Called once
 * between two flushes, after an object was created: HDF5 fills a block of texts before it takes
 * another, in a single write that must not cross a page, and extends the last block in the file. */
int sl_h5_attributes_add(struct sl_h5_file *file, hid_t object, const char *name,
                         const struct sluice_attribute *list, size_t count);

#endif
