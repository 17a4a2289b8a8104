/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of any type and shape whose bytes are known, stored through h5file.h. */
#ifndef FRAME_COMMON_H
#define FRAME_COMMON_H

#include <hdf5.h>

#include "h5file/h5file.h"
#include "lib/support.h"
#include "lib/unit.h"

/* The scratch file. Of RUN_TESTS(): make its folder, and remove both; without deflate the program ends as skipped. */
extern char frame_folder[256], frame_path[512];
int frame_folder_make(void **unused);
int frame_folder_remove(void **unused);
/* Opens and closes a file; the first error. */
int frame_open_as(const char *path, unsigned flags);
/* The scratch file is that text. */
void frame_write_text(const char *text);

/* Asserts that it works. */
struct sl_h5_file *frame_open(unsigned flags);
void frame_close(struct sl_h5_file *file);
void frame_flush(struct sl_h5_file *file);
/* Of 2 dimensions, float32, with edge chunks. */
struct sl_h5_layout frame_layout(const char *codec, int level, bool shuffle);
struct sl_h5_dataset *frame_add(struct sl_h5_file *file, const char *name,
                                struct sl_h5_layout *layout, uint64_t *first);

/* Bytes of a whole frame; freed by the caller. */
size_t frame_bytes(const struct sl_h5_layout *layout);
unsigned char *frame_make(const struct sl_h5_layout *layout, uint64_t frame);
/* Which filters a chunk leaves out: sometimes one, by its place. */
enum frame_masks { MASKS_NONE, MASKS_MIXED };
/* Stores a frame with its scalars; the first error. */
int frame_store(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout, uint64_t frame,
                const double *scalars, enum frame_masks masks);
/* The same, which must work. */
void frame_put(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout, uint64_t frame,
               const double *scalars);
/* What HDF5 reads is what was stored, or, where HDF5 has no such filter, what our decoder reads. */
void frame_check(const char *name, const struct sl_h5_layout *layout, hsize_t frames);
/* The extent of a dataset and the numbers of a companion. */
void companion_check(const char *name, const double *values, hsize_t count);

/* The last sentence has this in it. */
void frame_said(const char *part);

/* The status of a child that does it. */
int frame_in_child(int (*what)(void));

#endif
