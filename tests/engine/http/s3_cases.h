/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of S3 share. */
#ifndef TESTS_HTTP_S3_H
#define TESTS_HTTP_S3_H

#include "http/cases.h"

/* The environment has keys, and no file of the user is read. */
int s3_setup(void **state);
int s3_teardown(void **state);
#define S3_TEST(name) FIXTURE_TEST_WITH(name, s3_setup, s3_teardown)

int try_open(struct fixture *f, const char *uri, const struct sluice_s3_options *s3,
             sluice_file **out);
/* Opening fails with -error and a sentence that has `says` in it. */
void refused(struct fixture *f, const char *uri, const struct sluice_s3_options *s3, int error,
             const char *says);
/* Reads an object of that bucket that is a file, whole and in parts. */
void reads_with(struct fixture *f, const char *bucket, const struct sluice_s3_options *s3);
void reads(struct fixture *f, const char *bucket);

/* The text has no key, and no token, of the servers. */
void assert_nothing_secret(const char *text);

void file_say(const char *path, const char *text);
/* The environment has no keys, and files that say this. */
void only_files(struct fixture *f, const char *credentials, const char *config);
/* Returns a number of metadata_server.py: "USER/issued", "slowed/OBJECT". */
long s3_count(struct fixture *f, const char *name);
/* How many requests of a kind the server answered in a bucket, or how many uploads are "open" there. */
long s3_counted(struct fixture *f, const char *bucket, const char *what);
/* Returns whether this build sends checksums. */
bool s3_has_sums(void);
/* Parts of 64 KiB, and a share of four of them. */
void s3_small_parts(struct fixture *f);
sluice_file *s3_open_put(struct fixture *f, const char *uri, unsigned flags, uint64_t expected);

#endif
