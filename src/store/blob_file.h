/* SPDX-License-Identifier: Apache-2.0 */
/* What a URI of a blob says; for blob_file.c. */
#ifndef SL_STORE_BLOB_FILE_H
#define SL_STORE_BLOB_FILE_H

#include "store/store.h"
#include "store/store_internal.h"

struct sl_blob_uri {
	char *text;         /* the name and what follows it, decoded; owned */
	const char *name;   /* in text; "" if it is named by its id */
	const char *socket; /* in text, or NULL */
	uint64_t id;        /* 0: by name */
	int wait_ms;
	unsigned flags; /* of enum sluice_blob_flags */
	int device;     /* -1: the host */
	bool to_write;  /* something was said that is for a blob to be made only */
};

/* 0; -EINVAL, -ENODEV with a sentence. Cleared by free(out->text). */
int sl_blob_uri_parse(const char *uri, struct sl_blob_uri *out);

/* ------------------------------------------------------- bytes of blobs on devices: blob_device.c */

/* A file that is memory of the host, which workers copy. */
struct sl_host_file {
	struct sl_backend base;
	struct sl_core *core;
	uintptr_t start; /* the address of its first byte */
};
static inline struct sl_host_file *sl_host_file_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_host_file, base);
}
/* As sl_backend_ops.submit(). */
void sl_host_file_submit(struct sl_backend *backend, struct sl_piece *piece);
/* Moves pieces and transfers between such a blob and other memory. */
struct sl_blob_mover;
int sl_blob_mover_open(struct sl_core *core, int device, struct sl_blob_mover **out);
/* When nothing is in flight. NULL is allowed. */
void sl_blob_mover_close(struct sl_blob_mover *mover);
/* As sl_backend_ops.submit(); place: in the blob. */
void sl_blob_mover_submit(struct sl_blob_mover *mover, struct sl_piece *piece, char *place);
/* As sl_backend_ops.enqueue(). */
int sl_blob_mover_enqueue(struct sl_blob_mover *mover, sluice_stream stream,
                          const struct sl_transfer *transfer, char *place, bool write);

#endif
