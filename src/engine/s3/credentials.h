/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials: the access key by which S3 knows the user, and the sources for it. */
#ifndef SL_S3_CREDENTIALS_H
#define SL_S3_CREDENTIALS_H

#include "s3/profile.h"

struct sl_s3_keys {
	char *id, *secret; /* NULL: requests are not signed */
	char *token;       /* for a session; or NULL */
	int64_t expires;   /* seconds since 1970; 0: never */
};
void sl_s3_keys_clear(struct sl_s3_keys *keys);
/* Returns 0 or -ENOMEM with a sentence. */
int sl_s3_keys_copy(const struct sl_s3_keys *keys, struct sl_s3_keys *out);
bool sl_s3_keys_equal(const struct sl_s3_keys *one, const struct sl_s3_keys *other);
/* Returns 0, or -EINVAL with a sentence about `where`: a header cannot hold the key. */
int sl_s3_keys_check(const struct sl_s3_keys *keys, const char *where);

#define SL_S3_TEXTS 3

struct sl_s3_source;
/* Asks for keys, and waits. Returns 0, or -errno with a sentence. */
typedef int sl_s3_asker(const struct sl_s3_source *source, const struct sl_settings *settings,
                        struct sl_s3_keys *out);

/* The first source with credentials. */
struct sl_s3_source {
	const char *kind;          /* in words, a constant */
	bool guessed;              /* nothing names it: it may not be there */
	sl_s3_asker *ask;          /* NULL: the keys are here */
	char *texts[SL_S3_TEXTS];  /* for asking; NULL: not set */
	struct sl_s3_source *base; /* whose keys it needs for asking; or NULL */
	struct sl_s3_keys keys;
};
/*
 * Finds the source. It looks at the options; the environment, unless the options name a profile;
 * the profile's role, web identity, keys or process; the container; the machine. May wait for
 * storage; asks none. Returns 0; or, with a sentence about the lack, -EACCES if there is none,
 * -ENOTSUP if sluice cannot ask the only source, -EINVAL.
 */
int sl_s3_source_find(const struct sluice_s3_options *options, const struct sl_s3_profile *profile,
                      struct sl_s3_source *out);
void sl_s3_source_clear(struct sl_s3_source *source);
/* Returns whether they ask for the same. */
bool sl_s3_source_equal(const struct sl_s3_source *one, const struct sl_s3_source *other);
/* Returns -EACCES: no source has credentials. why: the last has none. */
int sl_s3_source_missing(const struct sl_s3_profile *profile, const char *why);

/* Askers, each with the texts in its source. Runs a command by the shell: the command. */
sl_s3_asker sl_s3_process_ask;
/* Asks a container's service: the URL; a token for it, or the token's file. */
sl_s3_asker sl_s3_container_ask;
/* Asks a machine's service: the URL. */
sl_s3_asker sl_s3_machine_ask;
/* Asks the Security Token Service, with the base's keys: the URL; the region; the query. */
sl_s3_asker sl_s3_role_ask;
/* Asks it with a web identity's token: the URL; the token's file; the query. */
sl_s3_asker sl_s3_identity_ask;

/* Returns seconds since 1970 of "2015-08-30T12:36:00Z", or with "+01:00" for the Z; -1: neither. */
int64_t sl_s3_time(const char *text);
/* Copies a string or a number from a JSON object, by name. Returns false if there is none. */
bool sl_s3_json_get(const char *text, const char *name, char *out, size_t size);
/* Takes keys from a text. token: the session token's name. Returns false if a key is missing. */
typedef bool sl_s3_getter(const char *text, const char *name, char *out, size_t size);
bool sl_s3_keys_parse(sl_s3_getter *get, const char *text, const char *token,
                      struct sl_s3_keys *out);

#endif
