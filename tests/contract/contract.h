/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite is one program: its files are in main.c. */
#ifndef TESTS_CONFORMANCE_H
#define TESTS_CONFORMANCE_H

#include "lib/support.h"

#define WRITES_IN_PLACE "a remote file cannot be written in place"
#define NO_PROTECTION   "a device has no mprotect(), and the shim would have to read this memory"
#define WATCHED         "it watches the bytes come, which are somewhere else"
#define ONE_STREAM      "the two reads may be on one stream"

#endif
