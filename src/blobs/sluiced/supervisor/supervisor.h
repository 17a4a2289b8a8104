/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: the process that has the listening socket and duplicates of all descriptors.
 *
 * It does little but receive descriptors, so that little can go wrong with it. It starts the server
 * with fork and exec, from its own program. If either process dies, the other starts it again, and
 * the new process inherits everything. In an upgrade the supervisor executes another program, under
 * the same process id, which then replaces the server. If that program ends at once, the server,
 * which still runs, starts a supervisor from the old program.
 *
 * The socket and the messages to systemd are in listen.c.
 */
#ifndef SL_SLUICED_SUPERVISOR_H
#define SL_SLUICED_SUPERVISOR_H

#include "sluiced/supervisor/descriptors.h"

/*
 * Starts the first server and stays as the supervisor until a signal (SIGTERM, SIGINT) or the end
 * of the server; then removes the socket. arguments: of main(), kept. Returns the exit status of
 * the process.
 */
int sl_supervisor_run(struct sl_descriptors *descriptors, char **arguments);
/* Continues in a process that was started with a ledger, in its role; serve: runs the server.
 * Returns the exit status. */
int sl_supervisor_resume(char **arguments, int (*serve)(struct sl_descriptors *));
/* Starts another supervisor, in the server, after it has died. Returns 0 or a negative errno. */
int sl_supervisor_replace(struct sl_descriptors *descriptors);
/* Blocks the signals that stop both processes (SIGINT unless ignored). Their signalfd, or -1. */
int sl_stop_signals(void);

/* ------------------------------------------------------------------------ the socket, systemd */

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

/* Prints a line to stderr, with a priority of <syslog.h> if the journal reads it. */
void sl_report(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
