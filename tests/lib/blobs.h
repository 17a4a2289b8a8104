/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon of the store for rows whose files are blobs. */
#ifndef TESTS_BLOBS_H
#define TESTS_BLOBS_H

/* Starts it: the program that SLUICED names. Ends the process with status 77 and a reason if there is none. It
 * ends with the process. */
void blobs_start(void);
/* Publishes what the file at path, if it is there, holds now. Static, as scratch(). */
const char *blob_address(const char *path);

#endif
