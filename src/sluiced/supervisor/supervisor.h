/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: the process that has the listening socket and duplicates of all descriptors, and does little but
 * receive them, so that little can go wrong with it. It starts the server with fork and exec, from its own program. If one of
 * the two dies, the other starts it again, and the new process inherits what there is. An upgrade is the same with another
 * program: the supervisor executes it, with the same process id, and it replaces the server. If that program ends at once,
 * the server that still runs makes a supervisor from the old one.
 */
#ifndef SL_SLUICED_SUPERVISOR_H
#define SL_SLUICED_SUPERVISOR_H

#include "sluiced/supervisor/descriptors.h"

/*
 * Makes the first server and stays as the supervisor until it is told to stop (SIGTERM, SIGINT), or the server has
 * stopped; then removes the socket. arguments is that of main(), and stays. The result is the process's exit status.
 */
int sl_supervisor_run(struct sl_descriptors *descriptors, char **arguments);
/* In a process that was begun by the other one: is what it was begun as. */
int sl_supervisor_resume(char **arguments);
/* In the server, whose supervisor is dead: starts another one. 0, or a negative errno. */
int sl_supervisor_replace(struct sl_descriptors *descriptors);
/* Blocks the signals that stop both processes; their signalfd, or -1. Without SIGINT where that was ignored. */
int sl_stop_signals(void);

#endif
