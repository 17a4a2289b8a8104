/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAEMON_FUZZ_H
#define DAEMON_FUZZ_H

#include "lib/protocol_client.h"

enum { MESSAGES = 1200, PATIENCE = 10 /* seconds for an answer */ };

/* Sends so many messages, and ends the process. */
void fuzz_clients(const struct daemon *d, struct rng r) __attribute__((noreturn));

#endif
