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

/* The first source that has credentials. */
struct sl_s3_source {
	const char *kind; /* in words, a constant */
	char *command;    /* of a process that prints the keys, which are not there yet; or NULL */
	struct sl_s3_keys keys;
};
/*
 * Finds the source, of: the options; the environment, unless the options name a profile; the profile. May wait for
 * storage. Returns 0, or -EACCES if there is none, -ENOTSUP if only a source has them that sluice cannot ask, -EINVAL;
 * with a sentence, which says what is missing.
 */
int sl_s3_source_find(const struct sluice_s3_options *options, const struct sl_s3_profile *profile,
                      struct sl_s3_source *out);
void sl_s3_source_clear(struct sl_s3_source *source);
/* Runs the command of a source by the shell, and waits for its end. Returns 0, or -EACCES with a sentence. */
int sl_s3_process_run(const char *command, struct sl_s3_keys *out);
/* Parses the output of such a command (JSON). Returns false if it is none, or lacks a key. */
bool sl_s3_process_parse(const char *text, struct sl_s3_keys *out);

#endif
