/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's socket and its messages to systemd, by the protocols of sd_listen_fds(3) and
 * sd_notify(3), which need no library.
 */
#ifndef SL_SLUICED_LISTEN_H
#define SL_SLUICED_LISTEN_H

#include <sys/types.h>

/* Returns the socket that systemd has made, or -1. */
int sl_listen_inherited(void);
/*
 * Makes a socket and listens at `path` (at most 107 bytes), for our user and root, and for the
 * members of `group` unless that is (gid_t)-1. Replaces the socket of a dead daemon. *lock is to
 * stay open as long as the socket may be in use.
 *
 * Returns 0, -EADDRINUSE (another daemon listens there) or another error, with a sentence.
 */
int sl_listen_at(const char *path, gid_t group, int *out, int *lock);
/* Sends "READY=1" or another state to systemd, if it is there. */
void sl_listen_notify(const char *state);

/*
 * Writes a line to stderr, formatted as by printf(), with a priority of <syslog.h> if the journal
 * reads it.
 */
void sl_report(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
