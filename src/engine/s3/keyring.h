/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials from sources, shared by the files of a context until they expire. */
#ifndef SL_S3_KEYRING_H
#define SL_S3_KEYRING_H

#include "s3/credentials.h"
#include "s3/s3_internal.h"

struct sl_s3_keyring;
struct sl_s3_keyring *sl_s3_keyring_of(struct sl_keyring *keyring);

/* An endpoint and a bucket, with region and habits; or a text. Lives as long as the keyring. */
struct sl_s3_note {
	struct sl_list link;
	char region[SL_SERVICE_TEXT]; /* "": no server has named it; guarded by the keyring */
	struct sl_habits habits;
	char text[];
};
/* Finds or makes a text's note. Returns NULL without memory. */
struct sl_s3_note *sl_s3_note_keep(struct sl_s3_keyring *keyring, const char *text);
/* Keeps a region, as a server named it. */
void sl_s3_region_keep(struct sl_s3_keyring *keyring, struct sl_s3_note *note, const char *region);
/* Copies the region, if one was kept. */
void sl_s3_region_find(struct sl_s3_keyring *keyring, const struct sl_s3_note *note,
                       char region[SL_SERVICE_TEXT]);

/* A source and its last answer. Lives as long as the keyring. */
struct sl_s3_issuer;
/* Finds a source's issuer, and takes the source. Asks it if keys are missing or about to expire,
 * and waits for the answer, or for another thread to ask; without `waiting`, -EAGAIN. Returns 0, or
 * -errno with a sentence. */
int sl_s3_issuer_acquire(struct sl_s3_keyring *keyring, struct sl_pool *waiting,
                         struct sl_s3_source *source, struct sl_s3_issuer **out);
/* Copies the keys; if they expire soon, a task asks again. Returns 0 or -ENOMEM with a sentence. */
int sl_s3_issuer_copy(struct sl_s3_issuer *issuer, int64_t now, struct sl_s3_keys *out,
                      unsigned *version);
/* The server calls this version expired: a task asks again. Returns false if none will come. */
bool sl_s3_issuer_renew(struct sl_s3_issuer *issuer, unsigned version);

#endif
