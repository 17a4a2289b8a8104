/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves, as their sources share them. A plan is fixed when sl_save_plan_make() returns, but for
 * what sl_save_plan_write() adds: other threads see the files when file_count is not 0, and `made`
 * of a file belongs to the thread that writes it until all are joined.
 */
#ifndef SL_SAVE_H
#define SL_SAVE_H

#include "tensors/header.h"

#define SL_SAVE_ID 16 /* digits in hex */

struct sl_save_file;
/* A tensor to save. */
struct sl_save_tensor {
	const char *name;
	const struct sl_type *type;
	unsigned rank;
	int device; /* -1: the host */
	const uint64_t *shape;
	const void *data;
	sluice_file *from; /* has the bytes, at `offset`, if they are not at `data` */
	uint64_t offset;
	uint64_t bytes, begin;             /* in the data of the file */
	const struct sl_save_tensor *same; /* is written, with the same memory; or NULL */
	const struct sl_save_file *file;   /* NULL: it is not written */
};

struct sl_save_file {
	char *name, *uri;                      /* name: in a folder; NULL: of a single file */
	const struct sl_save_tensor **tensors; /* side by side */
	size_t count;
	uint64_t data; /* bytes */
	char *header;  /* the first bytes, up to the data */
	size_t header_bytes;
	bool made;              /* it may be there, and is removed after an error */
	_Atomic uint64_t moved; /* bytes, written so far */
	struct sluice_digest digest;
};

struct sl_save_plan {
	char *uri; /* the only file's, or the folder's, which ends with '/' */
	bool folder;
	char *path;              /* of a local folder, with its '/'; or NULL */
	char id[SL_SAVE_ID + 1]; /* of files in a folder */
	struct sl_arena arena;
	struct sl_names keys;  /* of the metadata, while the plan is made */
	const char **metadata; /* keys and values */
	size_t metadata_count;
	struct sl_save_tensor *tensors; /* as they were given */
	size_t count;
	const struct sl_save_tensor **order; /* that are written, by file */
	size_t written;
	uint64_t file_bytes; /* in a file, at most */
	struct sl_save_file *files;
	_Atomic size_t file_count;
	char *index; /* JSON; NULL: no folder */
	size_t index_bytes;
	_Atomic uint64_t bytes; /* of all files; without headers until they are written */
};
/*
 * Copies and checks the tensors. files: NULL, or for each tensor the open file with the bytes, and
 * their offsets there. sl_save_plan_clear() frees the plan, also after an error. Returns as
 * sluice_tensors_save().
 */
int sl_save_plan_make(const char *uri, const struct sluice_collection_tensor *tensors, size_t count,
                      sluice_file *const *files, const uint64_t *offsets,
                      const struct sluice_tensor_save_options *o, struct sl_save_plan *plan);
/* Divides them into files, writes headers and the index. Returns 0, or an error with a sentence. */
int sl_save_plan_write(struct sl_save_plan *plan);
void sl_save_plan_clear(struct sl_save_plan *plan);

/*
 * Waits for an operation, which is cancelled soon after *stop is set, and frees it; *moved follows
 * its bytes, if not NULL. Returns these, or an error with a sentence.
 */
int64_t sl_save_finish(sluice_op *op, const _Atomic bool *stop, _Atomic uint64_t *moved);
/*
 * Writes a file through buffers, with a digest or not. Waits for reads and writes, which end soon
 * after *stop is set. On a thread of the crew. Returns 0, or an error with a sentence.
 */
int sl_save_stream(struct sl_save_file *file, sluice_file *to, bool digest,
                   const _Atomic bool *stop);

/* ------------------------------------------------------------------------------------- folder */

/* A folder, or prefix of S3, with an index that is replaced; on the thread of the save. */
struct sl_save_folder {
	sluice_context *ctx;
	const struct sluice_open_options *options;
	const struct sl_save_plan *plan;
	char *lock_name;
	int lock;                   /* held while the save is alive; -1: none */
	bool made;                  /* the folder, by this save */
	struct sl_tensor_index old; /* as it was before; without files if there was none */
};
/* Makes the folder, takes the lock of the save, and reads the index that is there, unless *stop. */
int sl_save_folder_open(struct sl_save_folder *folder, bool durable, const _Atomic bool *stop);
/* Replaces the index. */
int sl_save_folder_commit(const struct sl_save_folder *folder, bool durable);
/*
 * Returns whether the index has files of this save, or cannot be read. After an error it may: a
 * server's answer was lost, or the folder cannot be synced.
 */
bool sl_save_folder_in_index(const struct sl_save_folder *folder);
/* Removes files in the old index, and files of dead saves. The next save meets errors again. */
void sl_save_folder_sweep(struct sl_save_folder *folder);
/* stay: a folder that the save has made is kept, though it may be empty. */
void sl_save_folder_close(struct sl_save_folder *folder, bool stay);

#endif
