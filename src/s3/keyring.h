/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials that processes print, and that the files of a context share until they expire. */
#ifndef SL_S3_KEYRING_H
#define SL_S3_KEYRING_H

#include "s3/credentials.h"

struct sl_s3_keyring;
struct sl_s3_process;

/*
 * Finds the process of that command, which lives as long as the keyring. Runs it if its keys are missing or about to
 * expire, and waits for its end, or for another thread that runs it. Returns 0, or -EACCES with a sentence.
 */
int sl_s3_process_acquire(struct sl_s3_keyring *keyring, struct sl_pool *waiting,
                          const char *command, struct sl_s3_process **out);
/* Copies the keys; if they expire soon, a task runs the process again. Returns 0 or -ENOMEM with a sentence. */
int sl_s3_process_copy(struct sl_s3_process *process, int64_t now, struct sl_s3_keys *out);
/* The server says that the keys are expired: a task runs the process again. Returns false if the keys are new. */
bool sl_s3_process_renew(struct sl_s3_process *process);

#endif
