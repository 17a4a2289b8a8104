/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials: the access key by which S3 knows the user, and the sources that it may come from. */
#ifndef SL_S3_CREDENTIALS_H
#define SL_S3_CREDENTIALS_H

#include "s3/profile.h"

struct sl_s3_keys {
	char *id, *secret; /* NULL: requests are not signed */
	char *token;       /* of a session; or NULL */
	int64_t expires;   /* seconds since 1970; 0: never */
};
void sl_s3_keys_clear(struct sl_s3_keys *keys);
/* Returns 0 or -ENOMEM with a sentence. */
int sl_s3_keys_copy(const struct sl_s3_keys *keys, struct sl_s3_keys *out);
bool sl_s3_keys_equal(const struct sl_s3_keys *one, const struct sl_s3_keys *other);
/* Returns 0, or -EINVAL with a sentence that names `where`: a key can be no part of a line of header. */
int sl_s3_keys_check(const struct sl_s3_keys *keys, const char *where);

#define SL_S3_TEXTS 3

struct sl_s3_source;
/* Asks for keys, and waits. Returns 0, or -errno with a sentence. */
typedef int sl_s3_asker(const struct sl_s3_source *source, const struct sl_settings *settings,
                        struct sl_s3_keys *out);

/* The first source that has credentials. */
struct sl_s3_source {
	const char *kind;          /* in words, a constant */
	bool guessed;              /* nothing names it: it may not be there */
	sl_s3_asker *ask;          /* NULL: the keys are here */
	char *texts[SL_S3_TEXTS];  /* with which it asks; NULL: not set */
	struct sl_s3_source *base; /* of the keys with which it asks; or NULL */
	struct sl_s3_keys keys;
};
/*
 * Finds the source, of: the options; the environment, unless the options name a profile; the role, the web identity, the
 * keys or the process of the profile; the container, the machine. May wait for storage; asks none of them. Returns 0,
 * or -EACCES if there is none, -ENOTSUP if only a source has them that sluice cannot ask, -EINVAL; with a sentence,
 * which says what is missing.
 */
int sl_s3_source_find(const struct sluice_s3_options *options, const struct sl_s3_profile *profile,
                      struct sl_s3_source *out);
void sl_s3_source_clear(struct sl_s3_source *source);
/* Returns whether they ask for the same. */
bool sl_s3_source_equal(const struct sl_s3_source *one, const struct sl_s3_source *other);
/* Returns -EACCES, with the sentence that no source has credentials. why: the last has none. */
int sl_s3_source_missing(const struct sl_s3_profile *profile, const char *why);

/* The sources that are asked, and their texts. A command, which is run by the shell, and whose end is waited for: */
sl_s3_asker sl_s3_process_ask;
/* The URL of a container's service; the token that it wants, or the file that has it: */
sl_s3_asker sl_s3_container_ask;
/* The URL of a machine's service: */
sl_s3_asker sl_s3_machine_ask;
/* The URL of the Security Token Service; its region; the query for a role, for which the keys of the base are asked: */
sl_s3_asker sl_s3_role_ask;
/* The URL of that service; the file of a web identity's token; the query: */
sl_s3_asker sl_s3_identity_ask;

/* Returns seconds since 1970 of "2015-08-30T12:36:00Z", or with "+01:00" for the Z; -1: neither. */
int64_t sl_s3_time(const char *text);
/* Copies the string, or the number, of that name in an object of JSON. Returns false if there is none. */
bool sl_s3_json_get(const char *text, const char *name, char *out, size_t size);
/* Takes keys out of a text. token: the name of the session's token. Returns false if a key is missing. */
typedef bool sl_s3_getter(const char *text, const char *name, char *out, size_t size);
bool sl_s3_keys_parse(sl_s3_getter *get, const char *text, const char *token,
                      struct sl_s3_keys *out);

#endif
