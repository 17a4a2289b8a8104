/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite is one program: each file offers its tests as a group. */
#ifndef TESTS_CONFORMANCE_H
#define TESTS_CONFORMANCE_H

#include "lib/support.h"

#define WRITES_IN_PLACE "a remote file cannot be written in place"
#define NO_PROTECTION   "a device has no mprotect(), and the shim would have to read this memory"
#define WATCHED         "it watches the bytes come, which are somewhere else"
#define ONE_STREAM      "the two reads may be on one stream"

int group_read(void);
int group_write(void);
int group_vector(void);
int group_order(void);
int group_model(void);
int group_special(void);
int group_uri(void);
int group_open(void);
int group_replace(void);
int group_done(void);
int group_cancel(void);
int group_lifetime(void);
int group_errors(void);
int group_fork(void);

#endif
