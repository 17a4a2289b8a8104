/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of files of tensors: bytes, and tensors. Each belongs to a single thread. */
#ifndef SL_TENSORS_HEADER_H
#define SL_TENSORS_HEADER_H

#include "tensors/tensors.h"

#define SL_TENSOR_HEADER_MOST \
	((uint64_t)100000000) /* bytes, as the documentation of safetensors has it */

/* An index of files: tensors and the files that have them. */
struct sl_tensor_index {
	struct sl_arena arena;
	struct sl_tensor_pair *pairs; /* names of tensors and of files */
	size_t count;
	const char **files; /* names, sorted; each is there once */
	size_t file_count;
};

struct sl_tensor_header {
	struct sl_tensor_file *file;
	char *bytes; /* the first of the file */
	size_t have;
	struct sl_tensor *tensors; /* of this file */
	size_t count;
	struct sl_tensor_index *index; /* NULL: an index is refused */
};

/* Makes the first n bytes available. Returns 0, -EBADMSG: the file has fewer, or a read's error. */
int sl_tensor_header_need(struct sl_tensor_header *header, uint64_t n);
/* Reads n bytes, and waits for them. Returns 0 or an error. */
int sl_tensor_file_read(const struct sl_tensor_file *file, void *to, size_t n, uint64_t offset);
/* The same for many extents at once. */
int sl_tensor_file_read_all(const struct sl_tensor_file *file, const struct sluice_extent *extents,
                            size_t count);
/* The same, which *stop cancels. Returns the bytes missing in the file, or an error. */
int64_t sl_tensor_file_read_some(const struct sl_tensor_file *file,
                                 const struct sluice_extent *extents, size_t count,
                                 const _Atomic bool *stop);
/* Returns error with a sentence that begins with the file's name, and the tensor's if not NULL. */
__attribute__((format(printf, 4, 5))) int sl_tensor_refuse(const struct sl_tensor_file *file,
                                                           int error, const char *tensor,
                                                           const char *format, ...);
/* Copies a text into the arena. 0, -ENOMEM, or -EBADMSG: it is no UTF-8, or has a zero byte. */
int sl_tensor_text(struct sl_arena *arena, const struct sl_tensor_file *file, const char *text,
                   size_t n, const char **out);
/*
 * Adds a tensor, whose shape is copied; the name must be in the arena of the file. Returns 0,
 * -ENOMEM, or -EBADMSG if the bytes are not in the file, or not as many as type and shape want.
 */
int sl_tensor_add(struct sl_tensor_header *header, const struct sl_tensor *tensor);
/*
 * Sorts the tensors by their bytes, and refuses those that overlap. If begin is not 0, all bytes of
 * the file from there on must belong to tensors.
 */
int sl_tensor_header_sort(struct sl_tensor_header *header, uint64_t begin);

/* Read a header of the format that was recognised, and set file->format. Return 0 or an error. */
int sl_safetensors_read(struct sl_tensor_header *header);
int sl_tensor_index_read(struct sl_tensor_header *header);
/*
 * Opens an index and reads it, but no file of it; *stop, if not NULL, ends that soon after it is
 * set. Returns 0, or an error of sluice_tensors_open().
 */
int sl_tensor_index_open(sluice_context *ctx, const char *uri,
                         const struct sluice_open_options *options, const _Atomic bool *stop,
                         struct sl_tensor_index *out);
void sl_tensor_index_clear(struct sl_tensor_index *index);
int sl_npy_read(struct sl_tensor_header *header);
int sl_npz_read(struct sl_tensor_header *header);
/* Adds an array of that name, which is in the arena, from `length` bytes of an .npy file at offset,
 * the first n of which are at `bytes`. */
int sl_npy_add(struct sl_tensor_header *header, const char *name, const char *bytes, size_t n,
               uint64_t offset, uint64_t length);

/* Returns the CRC-32 of bytes of which those before n bytes of data have the CRC-32 `crc`; of none
 * it is 0. */
uint32_t sl_crc32(uint32_t crc, const void *data, size_t n);

/* ---------------------------------------------------------------------------- names and memory */

/* Returns 0, or -ENOMEM with a sentence. most: texts that will be added. */
int sl_names_init(struct sl_names *names, size_t most);
/* Returns the slot of the text, or the free slot where writing adds it. */
struct sl_name *sl_names_slot(const struct sl_names *names, const char *text);

/* Returns n bytes, aligned to 8, or NULL. */
void *sl_arena_take(struct sl_arena *arena, size_t n);
void sl_arena_clear(struct sl_arena *arena);
/* Returns the array with room for an element more than `count`, all of which were added by this
 * call; NULL: no memory, and the array stays. */
void *sl_array_grown(void *array, size_t count, size_t element);

#endif
