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
	struct sluice_origin given; /* `ctx`, `uri` and `device` are used */
	struct sluice_open_options open;
	const char *name;
	char *uri; /* the object's; NULL: there is none */
};

/* Reads the arguments of a public call, but for the URI. Returns 0, or -EINVAL with a sentence. */
int sl_origin_find(const char *call, sluice_store *store, const struct sluice_origin *origin,
                   const char *name, struct sl_origin *out);
/* Finds the object; the caller frees o->uri. Returns 0, or -EINVAL, -ENOMEM with a sentence. */
int sl_origin_name(const char *call, struct sl_origin *o);
/* Returns whether the name means an index of files: such an object is not written. */
bool sl_origin_is_index(const char *name);
/* Whether the object was missing a moment ago; to remember or forget that. */
bool sl_origin_is_missing(const char *uri);
void sl_origin_set_missing(const char *uri, bool missing);

/* A version of an object. */
struct sl_origin_version {
	char etag[1024];
	uint64_t length;
};
/* Tells the version of an open object. */
int sl_origin_version_of(sluice_file *file, struct sl_origin_version *out);
/* Asks for the version: opens the object for a moment. */
int sl_origin_ask(const struct sl_origin *o, struct sl_origin_version *out);
/* Gives a blob that is not sealed a note with the source of the bytes. told: "sluice.version". */
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
