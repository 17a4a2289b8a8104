/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the supervisor and the server begin: each is made by the other with fork and exec, and finds its descriptors open and
 * a description of them, with the settings, in a memfd that an environment variable names.
 */
#ifndef SL_SLUICED_STATE_H
#define SL_SLUICED_STATE_H

#include "sluiced/server.h"

/*
 * A program may take over from another one if both have the same number. It is made of that of the catalogue's segment, that
 * of the protocol, and this one, which is to be increased when struct sl_kept, struct sl_ledger, struct sl_state or struct
 * sl_server_settings change, in their members or in what these mean. The asserts in state.c and in catalogue/layout.h fail
 * when the size of one of the structs has changed.
 */
#define SL_STATE_LAYOUT 1
#define SL_LAYOUT       (SL_STATE_LAYOUT * 1000000 + SL_SEGMENT_VERSION * 1000 + SL_PROTOCOL_VERSION)

enum sl_begin {
	SL_BEGIN_SERVER = 1,
	SL_BEGIN_SUPERVISOR,
	SL_BEGIN_UPGRADE /* a supervisor that is to replace the server, too */
};

struct sl_state_row {
	uint32_t row;
	int32_t fd;
	uint64_t id;
};
struct sl_state {
	uint32_t layout; /* SL_LAYOUT */
	uint32_t begin;  /* of enum sl_begin */
	int32_t listener, lock, ledger, peer, other_fd, state;
	int32_t other; /* the process at the other end of peer */
	uint32_t most, count;
	uint32_t zero;
	struct sl_server_settings settings;
	struct sl_state_row rows[];
};

/* Writes the description into a new memfd, before a fork for the child, or for the same process. NULL: it cannot, with a
 * sentence. */
struct sl_state *sl_state_new(const struct sl_descriptors *descriptors,
                              const struct sl_server_settings *settings, enum sl_begin begin);
/* Closes the memfd and frees the memory. NULL is allowed. */
void sl_state_free(struct sl_state *state);
/* Executes a program, which inherits the descriptors of the description and 0 to 2. Returns if it cannot. */
void sl_state_exec(const struct sl_state *state, const char *program, char **arguments);

/* Whether this process was begun so: by that memfd. Comes first in main(). */
bool sl_state_is_given(int *fd);
/* In such a process. The result is the end of its socket, its descriptors and settings. 0, or a negative errno with a
 * sentence. */
int sl_state_load(int fd, struct sl_descriptors *descriptors, struct sl_server_settings *settings,
                  enum sl_begin *out);

#endif
