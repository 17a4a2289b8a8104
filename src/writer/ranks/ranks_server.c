/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server, in rank 0: it takes the messages from all ranks in turn, gives space, enters the
 * chunks of complete frames into the index, and flushes. It waits for storage, and for nothing else
 * but messages and the time of the next checkpoint.
 *
 * Threads: the server's own, with the HDF5 files; the link's brings messages.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_internal.h"

#define BEHIND 3 /* slow ranks, at most, to be named */

static bool message_is_urgent(const struct sl_rank_message *message)
{
	return message->kind == SL_MESSAGE_FAIL ||
	       (message->kind == SL_MESSAGE_END && message->discarded);
}

void sl_server_take(struct sl_rank_server *server, struct sl_rank_message *message)
{
	sl_mutex_lock(&server->mutex);
	sl_list_append(&server->locked.inbox, &message->link);
	server->locked.hurry |= message_is_urgent(message);
	pthread_cond_signal(&server->work);
	sl_mutex_unlock(&server->mutex);
}

void sl_server_lose(struct sl_rank_server *server)
{
	sl_mutex_lock(&server->mutex);
	server->locked.lost = server->locked.hurry = true;
	pthread_cond_signal(&server->work);
	sl_mutex_unlock(&server->mutex);
}

/* -------------------------------------------------------------------------------------- frames */

static void server_want(struct sl_rank_server *server, const struct sl_rank_message *message)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_SPACE};
	int rc = -EPROTO;

	sl_mutex_lock(&server->using);
	if (server->file_count && message->want.least <= message->want.bytes &&
	    message->want.bytes <= INT64_MAX / 2)
		rc = sl_files_space(server, message, &head.space);
	else
		sl_fail(rc, "rank %d wants space that cannot be", message->from);
	sl_mutex_unlock(&server->using);
	if (rc)
		sl_server_fail(server, rc);
	else
		sl_server_tell(server, message->from, &head, NULL, 0);
}

/* The next frame is complete: it gets into the index. */
static void frame_complete(struct sl_rank_server *server, struct sl_server_series *ss,
                           struct sl_server_slot *slot)
{
	sl_mutex_lock(&server->using);
	int rc = sl_files_enter(server, ss, slot);
	sl_mutex_unlock(&server->using);
	sl_server_slot_clear(slot);
	if (rc) {
		sl_server_fail(server, rc);
		return;
	}
	ss->complete++;
	ss->changed = true;
	server->frames_since++;
	if (server->dirty_since == SL_FOREVER)
		server->dirty_since = sl_now();
}

/* Returns whether the message has the expected frame, and its length. */
static bool frame_is_good(const struct sl_rank_server *server,
                          const struct sl_rank_message *message)
{
	if (message->frame.series >= server->series_count)
		return false;
	const struct sl_server_series *ss = server->series[message->frame.series];
	return message->frame.frame - ss->complete < SLUICE_RANKS_AHEAD &&
	       message->frame.frame == ss->frames[message->from] &&
	       message->n == ss->layout.scalar_count * sizeof(double) +
	                             message->frame.count * sizeof(struct sl_rank_record);
}

/* Takes the message. */
static void server_frame(struct sl_rank_server *server, struct sl_rank_message *message)
{
	if (!frame_is_good(server, message)) {
		sl_server_fail(server, sl_fail(-EPROTO, "a frame came that is not expected"));
		free(message);
		return;
	}
	struct sl_server_series *ss = server->series[message->frame.series];
	struct sl_server_slot *slot = &ss->slots[message->frame.frame % SLUICE_RANKS_AHEAD];
	slot->count++;
	sl_list_append(&slot->messages, &message->link);
	ss->frames[message->from]++;
	while (!server->error &&
	       (slot = &ss->slots[ss->complete % SLUICE_RANKS_AHEAD])->count == ss->contributors)
		frame_complete(server, ss, slot);
}

/* --------------------------------------------------------------------------------------- flush */

static void flush_ask(struct sl_rank_server *server, int from)
{
	server->rank[from].flush = true;
	for (size_t i = 0; i < server->series_count; i++) {
		struct sl_server_series *ss = server->series[i];

		ss->asked[from] = ss->frames[from] == UINT64_MAX ? 0 : ss->frames[from];
	}
}

/* Whether a rank has asked for a flush, and all of its frames are there. */
static bool flush_can_be(const struct sl_rank_server *server, int rank)
{
	for (size_t i = 0; i < server->series_count; i++)
		if (server->series[i]->complete < server->series[i]->asked[rank])
			return false;
	return server->rank[rank].flush;
}

static bool flush_due(const struct sl_rank_server *server)
{
	for (int r = 0; r < server->ranks; r++)
		if (flush_can_be(server, r))
			return true;
	if (server->dirty_since == SL_FOREVER)
		return false;
	return (server->checkpoint_frames && server->frames_since >= server->checkpoint_frames) ||
	       (server->checkpoint_ns && sl_now() - server->dirty_since >= server->checkpoint_ns);
}

/* Finds the slowest ranks, if they are few and another waits for them. True: they are new. */
static bool series_is_behind(struct sl_rank_server *server, struct sl_server_series *ss)
{
	struct sl_rank_names behind = {0};
	bool waits = false;

	for (int r = 0; r < server->ranks; r++) {
		if (ss->frames[r] == ss->complete)
			sl_rank_names_add(&behind, r);
		waits |= ss->frames[r] == ss->complete + SLUICE_RANKS_AHEAD;
	}
	if (!waits || behind.count > BEHIND || !memcmp(&behind, &ss->behind, sizeof(behind)))
		return false;
	ss->behind = behind;
	return true;
}

/* Tells the progress of series, if it is new. */
static void tell_states(struct sl_rank_server *server)
{
	for (size_t i = 0; i < server->series_count; i++) {
		struct sl_server_series *ss = server->series[i];
		struct sl_rank_message head = {.kind = SL_MESSAGE_STATE,
		                               .state = {(uint32_t)i, ss->complete, ss->visible}};

		if (!series_is_behind(server, ss) && !ss->changed)
			continue;
		ss->changed = false;
		sl_server_tell_all(server, &head, &ss->behind, sizeof(ss->behind));
	}
	if (server->full)
		sl_server_tell_full(server, 0);
}

static void server_flush(struct sl_rank_server *server)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_FLUSHED};

	sl_mutex_lock(&server->using);
	int rc = sl_files_flush(server);
	sl_mutex_unlock(&server->using);
	if (rc) {
		sl_server_fail(server, rc);
		return;
	}
	server->dirty_since = SL_FOREVER;
	server->frames_since = 0;
	for (size_t i = 0; i < server->series_count; i++) {
		struct sl_server_series *ss = server->series[i];

		ss->changed |= ss->visible != ss->complete;
		ss->visible = ss->complete;
	}
	tell_states(server);
	for (int r = 0; r < server->ranks; r++)
		if (flush_can_be(server, r)) {
			server->rank[r].flush = false;
			sl_server_tell(server, r, &head, NULL, 0);
		}
}

/* ------------------------------------------------------------------------------------- the end */

/* The others hear how many frames they can complete; the last message is about no series. */
static void tell_left(struct sl_rank_server *server, int leaver)
{
	for (size_t i = 0; i <= server->series_count; i++) {
		struct sl_rank_message head = {
			.kind = SL_MESSAGE_LEFT,
			.left = {.series = (uint32_t)i, .rank = (uint64_t)leaver}};

		if (i < server->series_count)
			head.left.frame = server->series[i]->frames[leaver];
		sl_server_tell_all(server, &head, NULL, 0);
	}
}

static void server_end(struct sl_rank_server *server, int from, bool discarded)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_OVER};

	if (server->rank[from].ended)
		return;
	server->rank[from].ended = true;
	server->end_count++;
	server->discarded |= discarded;
	if (discarded || server->step_count)
		sl_server_fail(server,
		               sl_fail(discarded ? -ECANCELED : -EINVAL,
		                       "rank %d has %s the writer%s", from,
		                       discarded ? "discarded" : "closed",
		                       server->step_count ? ", and others add a series" : ""));
	tell_left(server, from);
	/* It waits for others only if they need its file. */
	if (discarded && from) {
		sl_server_tell(server, from, &head, NULL, 0);
		server->rank[from].gone = true;
	}
}

static const char *step_name(enum sl_message_kind kind)
{
	return kind <= SL_STEP_OPENED ? "opens the writer" : "adds a series";
}

/* Takes the message. */
static void server_step(struct sl_rank_server *server, struct sl_rank_message *of)
{
	enum sl_message_kind kind = of->kind;

	if (server->end_count || (server->step_count && server->step != kind) ||
	    server->rank[of->from].step) {
		sl_server_fail(server, sl_fail(-EINVAL, "rank %d %s, and another %s", of->from,
		                               step_name(kind),
		                               server->end_count ? "has closed the writer"
		                                                 : step_name(server->step)));
		free(of);
		return;
	}
	server->step = kind;
	server->rank[of->from].step = of;
	if (++server->step_count < server->ranks)
		return;
	sl_mutex_lock(&server->using);
	sl_server_step(server);
	sl_mutex_unlock(&server->using);
	sl_server_drop_steps(server);
}

/* Handles a message, and frees it. */
static void server_handle(struct sl_rank_server *server, struct sl_rank_message *message)
{
	switch (server->error && message->kind != SL_MESSAGE_END ? SL_STEPS : message->kind) {
	case SL_STEP_OPEN:
	case SL_STEP_OPENED:
	case SL_STEP_ADD:
	case SL_STEP_ADDED:
		server_step(server, message);
		return;
	case SL_MESSAGE_FRAME:
		server_frame(server, message);
		return;
	case SL_MESSAGE_WANT:
		server_want(server, message);
		break;
	case SL_MESSAGE_FLUSH:
		flush_ask(server, message->from);
		break;
	case SL_MESSAGE_FAIL:
		sl_server_fail(server, sl_server_rank_error(server, message, message->error));
		break;
	case SL_MESSAGE_LATE:
		sl_server_late(server, message->from, message->result.step);
		break;
	case SL_MESSAGE_END:
		server_end(server, message->from, message->discarded);
		break;
	default:
		break;
	}
	free(message);
}

static int64_t server_wake_at(const struct sl_rank_server *server)
{
	if (!server->checkpoint_ns || server->dirty_since == SL_FOREVER || server->error)
		return SL_FOREVER;
	return server->dirty_since + server->checkpoint_ns;
}

/* Returns the next message; NULL: it is time for a checkpoint, or messages are lost. */
static struct sl_rank_message *server_next(struct sl_rank_server *server, bool wait)
{
	struct sl_list *at;

	sl_mutex_lock(&server->mutex);
	/* Ended by a message, the link's end, or the next checkpoint. */
	while (wait && sl_list_empty(&server->locked.inbox) && !server->locked.lost)
		if (sl_cond_wait(&server->work, &server->mutex, server_wake_at(server)))
			break;
	at = sl_list_take(&server->locked.inbox);
	server->lost = server->locked.lost;
	sl_mutex_unlock(&server->mutex);
	return at ? SL_CONTAINER(at, struct sl_rank_message, link) : NULL;
}

/* All ranks have closed the writer: frames without all blocks are an error. */
static void check_complete(struct sl_rank_server *server)
{
	for (size_t i = 0; i < server->series_count; i++) {
		const struct sl_server_series *ss = server->series[i];
		uint64_t most = 0;
		int least = 0;

		for (int r = 0; r < server->ranks; r++) {
			least = ss->frames[r] < ss->frames[least] ? r : least;
			if (ss->frames[r] != UINT64_MAX)
				most = SL_MAX(most, ss->frames[r]);
		}
		if (ss->frames[least] == most)
			continue;
		sl_server_fail(server,
		               sl_fail(-ENODATA,
		                       "rank %d has closed the writer after %llu frames of '%s'",
		                       least, (unsigned long long)ss->frames[least], ss->name));
	}
}

static void server_close(struct sl_rank_server *server)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_OVER};
	bool keep = server->end_count == server->ranks && !server->discarded;

	sl_mutex_lock(&server->using);
	int rc = sl_files_close(server, keep);
	sl_mutex_unlock(&server->using);
	if (rc)
		sl_server_fail(server, rc);
	if (keep)
		check_complete(server);
	sl_server_tell_all(server, &head, NULL, 0);
}

static void *server_run(void *argument)
{
	struct sl_rank_server *server = argument;
	bool idle = false;

	while (server->end_count < server->ranks && !server->lost) {
		struct sl_rank_message *message = server_next(server, idle);

		idle = !message;
		if (message)
			server_handle(server, message);
		else if (server->file_count && !server->error && flush_due(server))
			server_flush(server);
		if (idle)
			tell_states(server);
	}
	server_close(server);
	return NULL;
}

int sl_server_start(struct sl_link *link, int ranks, struct sl_rank_server **out) SL_UNCHECKED
{
	struct sl_rank_server *server = calloc(1, sizeof(*server));

	if (!server)
		return sl_fail(-ENOMEM, "no memory");
	server->link = link;
	server->ranks = ranks;
	server->dirty_since = SL_FOREVER;
	sl_list_init(&server->locked.inbox);
	sl_mutex_init(&server->mutex);
	sl_mutex_init(&server->using);
	pthread_cond_init(&server->work, NULL);
	server->rank = calloc((size_t)ranks, sizeof(*server->rank));
	int rc = server->rank ? sl_thread_start(&server->thread, "sluice-file", server_run, server)
	                      : -ENOMEM;
	if (!rc) {
		*out = server;
		return 0;
	}
	free(server->rank);
	free(server);
	return sl_fail(rc, "rank 0 cannot start its file thread: %s", sl_error_text(rc));
}

void sl_server_join(struct sl_rank_server *server)
{
	pthread_join(server->thread, NULL);
}

void sl_server_free(struct sl_rank_server *server) SL_UNCHECKED
{
	sl_server_drop_steps(server);
	sl_list_each_of (message, &server->locked.inbox, struct sl_rank_message, link)
		free(message);
	for (size_t i = 0; i < server->series_count; i++)
		sl_server_series_free(server->series[i]);
	sl_server_series_free(server->fresh);
	free(server->series);
	free(server->rank);
	pthread_cond_destroy(&server->work);
	sl_mutex_destroy(&server->mutex);
	sl_mutex_destroy(&server->using);
	free(server);
}
