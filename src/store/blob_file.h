/* SPDX-License-Identifier: Apache-2.0 */
/* What a URI of a blob says; for blob_file.c. */
#ifndef SL_STORE_BLOB_FILE_H
#define SL_STORE_BLOB_FILE_H

#include "store/client.h"
#include "store/store.h"

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

#endif
