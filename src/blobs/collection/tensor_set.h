/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of collections, as the files of this room share them. */
#ifndef SL_COLLECTION_TENSOR_SET_H
#define SL_COLLECTION_TENSOR_SET_H

#include "collection/table.h"

struct sluice_collection {
	uint32_t process;       /* see sl_process_is() */
	_Atomic unsigned users; /* the handle, and tensors that were exported */
	sluice_blob *owner;
	struct sl_table table;
	/* Of the parts. */
	char *data[SLUICE_BLOB_PARTS_MOST];
	int device[SLUICE_BLOB_PARTS_MOST];
};

/*
 * Makes a handle of an owner, and reads its n bytes; takes the owner over unless it fails. Returns
 * 0 or an error with a sentence.
 */
int sl_collection_wrap(sluice_blob *owner, const void *bytes, size_t n, sluice_collection **out);

#endif
