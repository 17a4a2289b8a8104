/* SPDX-License-Identifier: Apache-2.0 */
/* The server's words to the ranks: answers, errors, and a full disk, for which it waits.
 * Threads: the server's. */
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_internal.h"

#define FULL_NS ((int64_t)1000000000) /* until a full disk is tried again */

void sl_server_tell(struct sl_rank_server *server, int to, const struct sl_rank_message *head,
                    const void *body, size_t n)
{
	if (!server->rank[to].gone)
		sl_link_tell(server->link, to, head, body, n);
}

void sl_server_tell_all(struct sl_rank_server *server, const struct sl_rank_message *head,
                        const void *body, size_t n)
{
	for (int r = 0; r < server->ranks; r++)
		sl_server_tell(server, r, head, body, n);
}

void sl_server_drop_steps(struct sl_rank_server *server)
{
	for (int r = 0; r < server->ranks; r++) {
		free(server->rank[r].step);
		server->rank[r].step = NULL;
	}
	server->step_count = 0;
}

void sl_server_fail(struct sl_rank_server *server, int error)
{
	const char *sentence = sluice_last_message();
	struct sl_rank_message head = {.kind = SL_MESSAGE_FAILED, .error = error};

	if (server->error)
		return;
	server->error = error;
	sl_server_drop_steps(server);
	sl_server_tell_all(server, &head, sentence, strlen(sentence));
}

int sl_server_rank_error(const struct sl_rank_server *server, const struct sl_rank_message *of,
                         int error)
{
	const char *sentence = (const char *)(of + 1);

	return server->ranks > 1 ? sl_fail(error, "rank %d: %.*s", of->from, (int)of->n, sentence)
	                         : sl_fail(error, "%.*s", (int)of->n, sentence);
}

void sl_server_tell_full(struct sl_rank_server *server, int error)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_FULL, .error = error};

	sl_server_tell_all(server, &head, NULL, 0);
	server->full = error;
	server->full_since = sl_now();
}

bool sl_server_full(void *argument, int error)
{
	struct sl_rank_server *server = argument;
	int64_t now = sl_now(), last, until;

	if (!server->full_ns)
		return false;
	if (!server->full)
		sl_server_tell_full(server, error);
	last = server->full_ns == SL_FOREVER ? SL_FOREVER : server->full_since + server->full_ns;
	until = SL_MIN(now + SL_MIN(FULL_NS, server->full_ns / 10), last);
	sl_mutex_lock(&server->mutex);
	/* Ended by the time, or a rank's failure or discard. */
	while (!server->locked.hurry && sl_now() < until)
		sl_cond_wait(&server->work, &server->mutex, until);
	bool hurry = server->locked.hurry;
	sl_mutex_unlock(&server->mutex);
	return !hurry && now < last;
}

void sl_server_slot_clear(struct sl_server_slot *slot)
{
	sl_list_each_of (message, &slot->messages, struct sl_rank_message, link)
		free(message);
	sl_list_init(&slot->messages);
	slot->count = 0;
}

void sl_server_series_free(struct sl_server_series *ss)
{
	if (!ss)
		return;
	for (unsigned i = 0; i < SLUICE_RANKS_AHEAD; i++)
		sl_server_slot_clear(&ss->slots[i]);
	free(ss->name);
	free(ss->datasets);
	free(ss->blocks);
	free(ss->frames);
	free(ss->asked);
	free(ss);
}
