/* SPDX-License-Identifier: Apache-2.0 */
#include "sluiced/state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "SLUICED_STATE"

_Static_assert(sizeof(struct sl_kept) == 72 && sizeof(struct sl_kept_device) == 32 &&
                       sizeof(struct sl_ledger) == 2096 && sizeof(struct sl_state_row) == 16 &&
                       sizeof(struct sl_budget) == 40 &&
                       sizeof(struct sl_server_settings) == 9000 && sizeof(struct sl_state) == 9048,
               "increase SL_STATE_LAYOUT");
_Static_assert(SL_SEGMENT_VERSION < 1000 && SL_PROTOCOL_VERSION < 1000, "parts of SL_LAYOUT");

/* In the environment of this process, with the number of a memfd while another program is executed, and else without. */
static char variable[32] = VARIABLE "=";

struct sl_state *sl_state_new(const struct sl_descriptors *descriptors,
                              const struct sl_server_settings *settings, enum sl_begin begin)
{
	struct sl_state *state =
		calloc(1, sizeof(*state) + descriptors->most * sizeof(state->rows[0]));
	size_t bytes;

	if (!state) {
		sl_fail(-ENOMEM, "no memory");
		return NULL;
	}
	*state = (struct sl_state){.layout = SL_LAYOUT,
	                           .begin = begin,
	                           .listener = descriptors->listener,
	                           .lock = descriptors->lock,
	                           .ledger = descriptors->ledger_fd,
	                           .peer = descriptors->peer,
	                           .other_fd = descriptors->other_fd,
	                           .state = memfd_create("sluiced-state", MFD_CLOEXEC),
	                           .other = descriptors->other,
	                           .most = descriptors->most,
	                           .settings = *settings};
	for (uint32_t i = 0; i < descriptors->most; i++)
		if (descriptors->held[i].fd >= 0)
			state->rows[state->count++] = (struct sl_state_row){
				i, descriptors->held[i].fd, descriptors->held[i].id};
	bytes = sizeof(*state) + state->count * sizeof(state->rows[0]);
	if (state->state >= 0 && pwrite(state->state, state, bytes, 0) == (ssize_t)bytes)
		return state;
	sl_fail(-errno, "cannot write down what there is: %s", sl_error_text(-errno));
	sl_state_free(state);
	return NULL;
}

void sl_state_free(struct sl_state *state)
{
	if (state && state->state >= 0)
		close(state->state);
	free(state);
}

static void leave_open(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, 0);
}

void sl_state_exec(const struct sl_state *state, const char *program, char **arguments)
{
	const int own[] = {state->listener, state->lock,     state->ledger,
	                   state->peer,     state->other_fd, state->state};

	snprintf(variable, sizeof(variable), VARIABLE "=%d", state->state);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		leave_open(own[i]);
	for (uint32_t i = 0; i < state->count; i++)
		leave_open(state->rows[i].fd);
	execv(program, arguments);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	strcpy(variable, VARIABLE "=");
}

/* -------------------------------------------------------------------------------------- the new process */

bool sl_state_is_given(int *out)
{
	const char *given = getenv(VARIABLE);
	bool is = given && *given;

	*out = is ? atoi(given) : -1;
	putenv(variable);
	return is;
}

static int adopt(const struct sl_state *state, size_t bytes, struct sl_descriptors *descriptors,
                 struct sl_server_settings *settings, enum sl_begin *out)
{
	int rc;

	if (bytes < sizeof(*state) || state->layout != SL_LAYOUT ||
	    bytes != sizeof(*state) + state->count * sizeof(state->rows[0]))
		return sl_fail(-EPROTO, VARIABLE " names no state of this program's layout, %d",
		               SL_LAYOUT);
	rc = sl_descriptors_open(state->ledger, state->most, descriptors);
	if (rc)
		return rc;
	descriptors->listener = state->listener;
	descriptors->lock = state->lock;
	descriptors->peer = state->peer;
	descriptors->other = state->other;
	descriptors->other_fd = state->other_fd;
	for (uint32_t i = 0; i < state->count; i++) {
		const struct sl_state_row *row = &state->rows[i];

		if (row->row >= state->most)
			continue;
		descriptors->held[row->row].fd = row->fd;
		descriptors->held[row->row].id = row->id;
	}
	*settings = state->settings;
	*out = state->begin;
	return 0;
}

int sl_state_load(int fd, struct sl_descriptors *descriptors, struct sl_server_settings *settings,
                  enum sl_begin *out)
{
	struct stat stat;
	void *memory;
	int rc;

	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	if (fstat(fd, &stat) || !stat.st_size)
		return sl_fail(-EPROTO, VARIABLE " names no memory");
	memory = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return sl_fail(-errno, "cannot map what there is: %s", sl_error_text(-errno));
	rc = adopt(memory, (size_t)stat.st_size, descriptors, settings, out);
	munmap(memory, (size_t)stat.st_size);
	close(fd);
	return rc;
}
