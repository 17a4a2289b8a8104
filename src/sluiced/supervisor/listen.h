/* SPDX-License-Identifier: Apache-2.0 */
/* How the daemon comes to its socket, and what it tells systemd, by the protocols of sd_listen_fds(3) and
 * sd_notify(3), which need no library. */
#ifndef SL_SLUICED_LISTEN_H
#define SL_SLUICED_LISTEN_H

#include <sys/types.h>

/* The socket that systemd has made; -1: it has made none. */
int sl_listen_inherited(void);
/*
 * A listening socket at path, of 107 bytes at most, for our user and root alone, or for the members of a group too; (gid_t)-1: none. A
 * socket that a dead daemon has left is replaced; lock is a descriptor that is to stay open as long as this one
 * may be in use. -EADDRINUSE with a sentence: a daemon is there.
 */
int sl_listen_at(const char *path, gid_t group, int *out, int *lock);
/* Says "READY=1" or another state to systemd, if it is there. */
void sl_listen_notify(const char *state);

/* One line to stderr, as by printf(), with a priority of <syslog.h> if the journal reads it there. */
void sl_report(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
