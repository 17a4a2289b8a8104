/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The origin: objects of S3 behind the store, for the files of this room. Clients only; the daemon
 * has no network. Any thread.
 */
#ifndef SL_ORIGIN_H
#define SL_ORIGIN_H

#include <sluice/tensors.h>

#include "core/core.h"

/* A name and its object. */
struct sl_origin {
	sluice_store *store;
	struct sluice_origin given; /* `ctx` and `device` are used */
	struct sluice_open_options open;
	const char *name;
	char *uri; /* of the object; NULL: it has none */
};

/* Reads what a public call was given, but for its URI. Returns 0, or -EINVAL with a sentence. */
int sl_origin_find(const char *call, sluice_store *store, const struct sluice_origin *origin,
                   const char *name, struct sl_origin *out);
/* Finds the object; the caller frees o->uri. Returns 0, or -EINVAL, -ENOMEM with a sentence. */
int sl_origin_name(const char *call, struct sl_origin *o);
/* Returns whether the name is that of an index of files: its object is not written. */
bool sl_origin_is_index(const char *name);
/* Whether the object is known to be missing, as it was a moment ago; to remember or forget that. */
bool sl_origin_is_missing(const char *uri);
void sl_origin_set_missing(const char *uri, bool missing);

/* A version of an object. */
struct sl_origin_version {
	char etag[1024];
	uint64_t length;
};
/* Returns whether the object had that version when the file was opened. */
bool sl_origin_same(const struct sl_origin_version *a, const struct sl_origin_version *b);
/* Asks what the version of an open object is. */
int sl_origin_version_of(sluice_file *file, struct sl_origin_version *out);
/* Opens the object for a moment, to ask that. */
int sl_origin_ask(const struct sl_origin *o, struct sl_origin_version *out);
/* Gives a blob that is not sealed a note of where its bytes came from. */
int sl_origin_note(const struct sl_origin *o, sluice_blob *blob,
                   const struct sl_origin_version *version, const char *told);

/*
 * Reads the object into a blob, or a collection, that is not sealed. replaces: as in struct
 * sluice_blob_options. -ESTALE: it was changed meanwhile.
 */
int sl_origin_read_blob(const struct sl_origin *o, uint64_t replaces, sluice_blob **out);
int sl_origin_read_collection(const struct sl_origin *o, uint64_t replaces,
                              sluice_collection **out);

#endif
