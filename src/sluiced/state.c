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
                       sizeof(struct sl_server_settings) == 8984 && sizeof(struct sl_state) == 9032,
               "increase SL_STATE_LAYOUT");
_Static_assert(SL_SEGMENT_VERSION < 1000 && SL_PROTOCOL_VERSION < 1000, "parts of SL_LAYOUT");

/* That of this process without the variable, and with room for another one. */
static char **copy_environment(void)
{
	size_t count = 0, n = 0;
	char **copy;

	while (environ[count])
		count++;
	copy = calloc(count + 2, sizeof(*copy));
	for (size_t i = 0; copy && i < count; i++)
		if (strncmp(environ[i], VARIABLE "=", sizeof(VARIABLE)) != 0)
			copy[n++] = environ[i];
	return copy;
}

static bool write_state(const struct sl_state *state)
{
	size_t bytes = sizeof(*state) + state->count * sizeof(state->rows[0]);

	return pwrite(state->state, state, bytes, 0) == (ssize_t)bytes;
}

int sl_start_new(const struct sl_vault *vault, const struct sl_server_settings *settings,
                 enum sl_begin begin, struct sl_start *out)
{
	struct sl_state *state = calloc(1, sizeof(*state) + vault->most * sizeof(state->rows[0]));
	size_t last = 0;

	*out = (struct sl_start){.state = state, .environment = copy_environment()};
	if (!state || !out->environment) {
		free(state);
		free(out->environment);
		return sl_fail(-ENOMEM, "no memory");
	}
	*state = (struct sl_state){.layout = SL_LAYOUT,
	                           .begin = begin,
	                           .listener = vault->listener,
	                           .lock = vault->lock,
	                           .ledger = vault->ledger_fd,
	                           .peer = vault->peer,
	                           .other_fd = vault->other_fd,
	                           .state = memfd_create("sluiced-state", MFD_CLOEXEC),
	                           .other = vault->other,
	                           .most = vault->most,
	                           .settings = *settings};
	for (uint32_t i = 0; i < vault->most; i++)
		if (vault->held[i].fd >= 0)
			state->rows[state->count++] =
				(struct sl_state_row){i, vault->held[i].fd, vault->held[i].id};
	snprintf(out->variable, sizeof(out->variable), VARIABLE "=%d", state->state);
	while (out->environment[last])
		last++;
	out->environment[last] = out->variable;
	if (state->state < 0 || !write_state(state)) {
		int error = errno;

		sl_start_free(out);
		return sl_fail(-error, "cannot write down what there is: %s",
		               sl_error_text(-error));
	}
	return 0;
}

void sl_start_free(struct sl_start *start)
{
	if (start->state->state >= 0)
		close(start->state->state);
	free(start->state);
	free(start->environment);
}

static void leave_open(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, 0);
}

void sl_start_exec(const struct sl_start *start, const char *program, char **arguments)
{
	const struct sl_state *state = start->state;
	const int own[] = {state->listener, state->lock,     state->ledger,
	                   state->peer,     state->other_fd, state->state};

	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		leave_open(own[i]);
	for (uint32_t i = 0; i < state->count; i++)
		leave_open(state->rows[i].fd);
	execve(program, arguments, start->environment);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
}

/* -------------------------------------------------------------------------------------- the new process */

bool sl_state_is_given(void)
{
	return getenv(VARIABLE) != NULL;
}

static int adopt(const struct sl_state *state, size_t bytes, struct sl_vault *vault,
                 struct sl_server_settings *settings, enum sl_begin *out)
{
	int rc;

	if (bytes < sizeof(*state) || state->layout != SL_LAYOUT ||
	    bytes != sizeof(*state) + state->count * sizeof(state->rows[0]))
		return sl_fail(-EPROTO, VARIABLE " names no state of this program's layout, %d",
		               SL_LAYOUT);
	rc = sl_vault_open(state->ledger, state->most, vault);
	if (rc)
		return rc;
	vault->listener = state->listener;
	vault->lock = state->lock;
	vault->peer = state->peer;
	vault->other = state->other;
	vault->other_fd = state->other_fd;
	for (uint32_t i = 0; i < state->count; i++) {
		const struct sl_state_row *row = &state->rows[i];

		if (row->row >= state->most)
			continue;
		vault->held[row->row].fd = row->fd;
		vault->held[row->row].id = row->id;
	}
	*settings = state->settings;
	*out = state->begin;
	return 0;
}

int sl_state_load(struct sl_vault *vault, struct sl_server_settings *settings, enum sl_begin *out)
{
	int fd = atoi(getenv(VARIABLE)), rc;
	struct stat stat;
	void *memory;

	unsetenv(VARIABLE);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	if (fstat(fd, &stat) || !stat.st_size)
		return sl_fail(-EPROTO, VARIABLE " names no memory");
	memory = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return sl_fail(-errno, "cannot map what there is: %s", sl_error_text(-errno));
	rc = adopt(memory, (size_t)stat.st_size, vault, settings, out);
	munmap(memory, (size_t)stat.st_size);
	close(fd);
	return rc;
}
