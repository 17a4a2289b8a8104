/* SPDX-License-Identifier: Apache-2.0 */
/* Passing descriptors: a message of a Unix socket with up to two descriptors. */
#ifndef SL_FDPASS_H
#define SL_FDPASS_H

#include <stddef.h>
#include <sys/types.h>

#define SL_FDS_MOST 2

/*
 * Sends bytes with `count` descriptors as a single message. flags are those of sendmsg(); MSG_NOSIGNAL is added. A call
 * that a signal interrupts is repeated.
 *
 * Returns the number of bytes sent, or -errno.
 */
ssize_t sl_fds_send(int socket, const void *data, size_t bytes, const int *fds, unsigned count,
                    int flags);
/*
 * Receives a message of at most `bytes` bytes. flags are those of recvmsg(); MSG_CMSG_CLOEXEC is added. A call that
 * a signal interrupts is repeated.
 *
 * Returns the length of the message, 0 at the end of the connection (or for an empty message), or -errno. In each
 * case fds holds the descriptors that came, which belong to the caller, and -1 in the rest. *cut is MSG_TRUNC or
 * MSG_CTRUNC where bytes or descriptors did not fit, else 0.
 */
ssize_t sl_fds_receive(int socket, void *data, size_t bytes, int fds[SL_FDS_MOST], int flags,
                       int *cut);

#endif
