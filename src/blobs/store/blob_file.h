/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are blobs: the parsed URI, and moving bytes to and from devices. */
#ifndef SL_STORE_BLOB_FILE_H
#define SL_STORE_BLOB_FILE_H

#include "store/store.h"
#include "store/store_internal.h"

struct sl_blob_uri {
	char *text;         /* decoded; owned */
	const char *name;   /* in text; "": named by its id */
	const char *socket; /* in text, or NULL */
	const char *origin; /* in text, or NULL */
	uint64_t id;        /* 0: named by its name */
	int wait_ms;
	unsigned flags; /* enum sluice_blob_flags */
	int device;     /* -1: the host */
	bool to_write;  /* has an option that is only for creating a blob */
};

/* Parses a URI. Returns 0, -EINVAL or -ENODEV with a message. The caller frees out->text. */
int sl_blob_uri_parse(const char *uri, struct sl_blob_uri *out);

/* -------------------------------------------------------------------------- collection_file.c */

/* A collection as a .safetensors file, for reading. */
struct sl_collection_view;
/* Takes the owner over unless it fails. 0 or an error with a message. */
int sl_collection_view_open(struct sl_core *core, sluice_blob *owner,
                            struct sl_collection_view **out);
/* Nothing may be in flight. NULL is allowed. */
void sl_collection_view_close(struct sl_collection_view *view);
uint64_t sl_collection_view_bytes(const struct sl_collection_view *view);
/* See sl_backend_ops.read_now() and submit(); the bytes are in the file. */
int64_t sl_collection_view_read_now(const struct sl_collection_view *view, char *data,
                                    size_t length, uint64_t offset);
void sl_collection_view_submit(const struct sl_collection_view *view, struct sl_piece *piece);

/* ------------------------------------------------------------------------ device/blob_mover.c */

/* A file that is host memory, which workers copy. */
struct sl_host_file {
	struct sl_backend base;
	struct sl_core *core;
	uintptr_t start; /* address of its first byte */
};
static inline struct sl_host_file *sl_host_file_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_host_file, base);
}
/* See sl_backend_ops.submit(). */
void sl_host_file_submit(struct sl_backend *backend, struct sl_piece *piece);
/* Moves pieces and transfers between a blob on a device and other memory. */
struct sl_blob_mover;
int sl_blob_mover_open(struct sl_core *core, int device, struct sl_blob_mover **out);
/* Nothing may be in flight. NULL is allowed. */
void sl_blob_mover_close(struct sl_blob_mover *mover);
/* See sl_backend_ops.submit(); inside: address in the blob. */
void sl_blob_mover_submit(struct sl_blob_mover *mover, struct sl_piece *piece, char *inside);
/* See sl_backend_ops.enqueue(). */
int sl_blob_mover_enqueue(struct sl_blob_mover *mover, sluice_stream stream,
                          const struct sl_transfer *transfer, char *inside, bool write);

#endif
