/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sink of a rank's writer: chunks are written to space from rank 0, and rank 0 is told where.
 *
 * Threads: the file thread writes chunks and posts messages; the thread of the link, or the program
 * in calls of the writer, takes answers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks/ranks_internal.h"

/* For rank 0 to name the missing ranks. */
#define LATE_NS ((int64_t)1000000000)

static struct sl_client *client_of_sink(struct sl_sink *sink)
{
	return SL_CONTAINER(sink, struct sl_client, sink);
}

/* ------------------------------------------------------------------------------------- answers */

static void client_answer(struct sl_client *client, struct sl_rank_message *message)
{
	bool space = message->kind == SL_MESSAGE_SPACE;
	struct sl_rank_message **answer;

	sl_mutex_lock(&client->mutex);
	answer = &client->locked.answers[space ? SL_ANSWER_SPACE : SL_ANSWER_STEP];
	if (message->kind == SL_MESSAGE_OVER) {
		client->locked.over = true;
	} else if (space || message->result.step == client->locked.step) {
		free(*answer);
		*answer = message;
		message = NULL;
	}
	pthread_cond_broadcast(&client->answer);
	sl_mutex_unlock(&client->mutex);
	/* After a time-out nobody expects the answer. */
	free(message);
}

/* Rank 0 has failed, or has heard of a failed rank; over: or there is no way to it. */
static void client_failed(struct sl_client *client, int error, const char *sentence, bool over)
{
	sl_mutex_lock(&client->mutex);
	client->locked.told = true;
	client->locked.over |= over;
	sl_mutex_unlock(&client->mutex);
	/* First the writer: waits of the file thread end with its error. */
	if (client->writer)
		sl_writer_fail(client->writer, error, sentence);
	sl_mutex_lock(&client->mutex);
	client->locked.ended = true;
	pthread_cond_broadcast(&client->answer);
	sl_mutex_unlock(&client->mutex);
}

/* NULL: there is none, or it has no block here. */
static struct sl_rank_series *client_series_locked(struct sl_client *client, uint32_t index)
	SL_REQUIRES(&client->registry)
{
	struct sl_rank_series *rs =
		index < client->registered.series_count ? client->registered.series[index] : NULL;

	return rs && rs->series ? rs : NULL;
}

/* Finds a fragment by chunk and rank, in this order. The number of fragments: there is none. */
static size_t fragment_find(const struct sl_share *share, uint64_t chunk, int from)
{
	size_t low = 0, high = share->fragment_count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		const struct sl_foreign_fragment *fragment = &share->fragments[middle];
		uint64_t of = share->cells[fragment->cell].chunk;

		if (of == chunk && fragment->from == from)
			return middle;
		if (of < chunk || (of == chunk && fragment->from < from))
			low = middle + 1;
		else
			high = middle;
	}
	return share->fragment_count;
}

/* Returns false if the message is wrong. A fragment belongs to the file thread from then on. */
static bool client_take_locked(struct sl_client *client, struct sl_rank_message **message)
	SL_REQUIRES(&client->registry)
{
	struct sl_rank_message *of = *message;
	struct sl_rank_series *rs;
	bool good;

	if (of->kind == SL_MESSAGE_LEFT) {
		rs = client_series_locked(client, of->left.series);
		good = of->left.rank < (uint64_t)client->ranks;
		if (good)
			client->registered.closed[of->left.rank] = true;
		if (good && rs)
			sl_series_last(rs->series, of->left.frame, (int)of->left.rank);
		return good;
	}
	if (of->kind == SL_MESSAGE_STATE) {
		rs = client_series_locked(client, of->state.series);
		good = of->n == sizeof(struct sl_rank_names);
		if (good && rs)
			sl_series_progress(rs->series, of->state.complete, of->state.visible,
			                   (const struct sl_rank_names *)(of + 1));
		return good;
	}
	rs = client_series_locked(client, of->fragment.series);
	good = rs && sl_series_take_fragment(rs->series,
	                                     fragment_find(rs->share, of->fragment.chunk, of->from),
	                                     of->fragment.frame, of, sizeof(*of) + of->n);
	*message = good ? NULL : of;
	return good;
}

void sl_client_take(void *argument, struct sl_rank_message *message)
{
	struct sl_client *client = argument;
	char sentence[1024];
	bool good = true;

	switch (message->kind) {
	case SL_MESSAGE_RESULT:
	case SL_MESSAGE_OVER:
	case SL_MESSAGE_SPACE:
		client_answer(client, message);
		return;
	case SL_MESSAGE_STATE:
	case SL_MESSAGE_LEFT:
	case SL_MESSAGE_FRAGMENT:
		sl_mutex_lock(&client->registry);
		good = client_take_locked(client, &message);
		sl_mutex_unlock(&client->registry);
		if (!good)
			sl_writer_fail(
				client->writer, -EPROTO,
				"a message came that is not expected, or a fragment of a chunk "
				"that no chunk needs");
		break;
	case SL_MESSAGE_FLUSHED:
		sl_writer_flushed(client->writer);
		break;
	case SL_MESSAGE_FULL:
		sl_writer_full(client->writer, message->error);
		break;
	case SL_MESSAGE_FAILED:
		snprintf(sentence, sizeof(sentence), "%.*s", (int)message->n,
		         (const char *)(message + 1));
		client_failed(client, message->error, sentence, false);
		break;
	default:
		if (client->server) {
			sl_server_take(client->server, message);
			return;
		}
	}
	free(message);
}

void sl_client_broken(void *argument, int gone, int error)
{
	struct sl_client *client = argument;
	char sentence[256];

	if (error == -ESHUTDOWN)
		snprintf(sentence, sizeof(sentence),
		         "rank %d has ended the messages (MPI_Finalize?) with the writer open",
		         gone < 0 ? client->rank : gone);
	else
		snprintf(sentence, sizeof(sentence),
		         "rank %d has lost the messages of the others: %s", client->rank,
		         sl_error_text(error));
	client_failed(client, error, sentence, true);
	if (client->server)
		sl_server_lose(client->server);
}

/* --------------------------------------------------------------------------------------- steps */

/* Returns an answer; NULL: the writer has ended, or it is the deadline (late). pump: the thread is
 * the program's. */
static struct sl_rank_message *client_await(struct sl_client *client, enum sl_answer which,
                                            bool pump, int64_t deadline, bool *late)
{
	*late = false;
	sl_mutex_lock(&client->mutex);
	/* Ended by the answer, a failure, or the deadline. */
	while (!client->locked.answers[which] && !client->locked.ended && !*late)
		*late = sl_sink_wait(pump ? &client->sink : NULL, &client->answer, &client->mutex,
		                     deadline);
	struct sl_rank_message *answer = client->locked.answers[which];
	client->locked.answers[which] = NULL;
	*late &= !answer;
	sl_mutex_unlock(&client->mutex);
	return answer;
}

int sl_client_step(struct sl_client *client, struct sl_rank_message head, const void *body,
                   size_t n, int64_t deadline, struct sl_rank_message **out)
{
	struct sl_rank_message late = {.kind = SL_MESSAGE_LATE, .result = {.step = head.kind}};
	struct sl_rank_message *answer;
	int rc = head.step.rc;
	bool is_late;

	sl_mutex_lock(&client->mutex);
	client->locked.step = head.kind;
	sl_mutex_unlock(&client->mutex);
	body = rc ? sluice_last_message() : body;
	sl_link_tell(&client->link, 0, &head, body, rc ? strlen(body) : n);
	answer = client_await(client, SL_ANSWER_STEP, true, deadline, &is_late);
	if (is_late) {
		sl_link_tell(&client->link, 0, &late, NULL, 0);
		answer = client_await(client, SL_ANSWER_STEP, true, sl_now() + LATE_NS, &is_late);
	}
	if (is_late)
		return sl_fail(-ETIMEDOUT, "rank 0 does not answer: it has not called this, or its "
		                           "calls make no progress");
	if (!answer) {
		/* Without a writer this rank has refused the arguments. */
		rc = client->writer ? sl_writer_check(client->writer) : rc;
		return rc ? rc : sl_fail(-ECANCELED, "the writer has ended");
	}
	rc = answer->result.rc;
	if (rc)
		sl_fail(rc, "%.*s", (int)answer->n, (const char *)(answer + 1));
	if (rc || !out)
		free(answer);
	else
		*out = answer;
	return rc;
}

void sl_client_end(struct sl_client *client, bool keep, bool pump)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_END, .discarded = !keep};

	sl_link_tell(&client->link, 0, &head, NULL, 0);
	sl_mutex_lock(&client->mutex);
	/* Ended by rank 0, or the loss of messages. */
	while (!client->locked.over)
		sl_sink_wait(pump ? &client->sink : NULL, &client->answer, &client->mutex,
		             SL_FOREVER);
	sl_mutex_unlock(&client->mutex);
}

/* --------------------------------------------------------------------------------------- space */

/* Gets space for n bytes, if it has none. waiting: bytes to come soon. */
static int client_take_space(struct sl_client *client, size_t n, uint64_t waiting)
{
	struct sl_rank_message head = {
		.kind = SL_MESSAGE_WANT,
		.want = {.bytes = n + waiting, .least = n, .rest = client->space}};
	struct sl_rank_message *answer;
	bool late;

	if (n <= client->space.bytes)
		return 0;
	sl_link_tell(&client->link, 0, &head, NULL, 0);
	/* Ended by rank 0, or by this writer's failure or discard. */
	answer = client_await(client, SL_ANSWER_SPACE, false, SL_FOREVER, &late);
	if (!answer)
		return sl_fail(-ECANCELED, "the writer has ended");
	client->space = answer->space;
	free(answer);
	return 0;
}

static int client_write(struct sl_client *client, const char *bytes, size_t n, uint64_t at)
{
	while (n) {
		ssize_t done = pwrite(client->fd, bytes, n, (off_t)at);
		int err = done < 0 ? -errno : done ? 0 : -EIO;

		if (err == -EINTR)
			continue;
		if ((err == -ENOSPC || err == -EDQUOT) && sl_disk_full(client->writer, err))
			continue;
		if (err)
			return sl_fail(err, "rank %d cannot write '%s' at byte %llu: %s",
			               client->rank, client->path, (unsigned long long)at,
			               sl_error_text(err));
		bytes += done;
		at += (uint64_t)done;
		n -= (size_t)done;
	}
	return 0;
}

/* -------------------------------------------------------------------------------------- frames */

/* Begins a frame's message: scalars, then records. */
static int frame_message(struct sl_rank_series *rs, uint64_t frame)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_FRAME,
	                               .frame = {.series = rs->index, .frame = frame}};
	size_t scalars = rs->scalars * sizeof(double);

	if (!rs->frame)
		rs->frame = sl_link_message(&head, scalars + rs->share->count *
		                                                     sizeof(struct sl_rank_record));
	return rs->frame ? 0 : sl_fail(-ENOMEM, "no memory");
}

static double *frame_scalars(struct sl_rank_series *rs)
{
	return (double *)(&rs->frame->head + 1);
}

static void fragment_sent(struct sl_outgoing *out)
{
	struct sl_rank_series *rs = out->user;

	sl_series_sent(rs->series, out->head.fragment.frame);
	free(out);
}

/* The message lies in the share's memory. */
static int send_fragment(struct sl_client *client, struct sl_rank_series *rs,
                         const struct sl_sink_chunk *chunk)
{
	const struct sl_cell *cell = &rs->share->cells[chunk->number];
	struct sl_outgoing *out = sl_link_message(&(struct sl_rank_message){0}, 0);

	if (!out)
		return sl_fail(-ENOMEM, "no memory");
	out->head = (struct sl_rank_message){.kind = SL_MESSAGE_FRAGMENT,
	                                     .fragment = {rs->index, chunk->frame, cell->chunk}};
	memcpy((void *)(uintptr_t)chunk->bytes, &out->head, sizeof(out->head));
	out->bytes = chunk->bytes;
	out->n = chunk->length;
	out->done = fragment_sent;
	out->user = rs;
	sl_link_send(&client->link, cell->to, out);
	return 0;
}

static int client_store(struct sl_sink *sink, const struct sl_sink_chunk *chunk)
{
	struct sl_client *client = client_of_sink(sink);
	struct sl_rank_series *rs = chunk->share->user;
	int rc = frame_message(rs, chunk->frame);

	if (rc)
		return rc;
	if (chunk->number < chunk->share->sent)
		return send_fragment(client, rs, chunk);
	rc = client_take_space(client, chunk->length, chunk->waiting);
	if (!rc)
		rc = client_write(client, chunk->bytes, chunk->length, client->space.start);
	if (rc)
		return rc;
	struct sl_rank_record *record = (struct sl_rank_record *)(frame_scalars(rs) + rs->scalars);
	record[rs->frame->head.frame.count++] = (struct sl_rank_record){
		.chunk = chunk->share->cells[chunk->number].chunk,
		.start = client->space.start,
		.length = (uint32_t)chunk->length,
		.mask = chunk->mask,
	};
	client->space.start += chunk->length;
	client->space.bytes -= chunk->length;
	return 0;
}

static int client_frame(struct sl_sink *sink, struct sl_share *share, uint64_t frame,
                        const double *scalars, double max_error)
{
	struct sl_client *client = client_of_sink(sink);
	struct sl_rank_series *rs = share->user;
	int rc = frame_message(rs, frame);

	/* Rank 0 cannot bring another machine's bytes to the disk. */
	if (!rc && client->sync && fdatasync(client->fd))
		rc = sl_fail(-errno, "rank %d cannot sync '%s': %s", client->rank, client->path,
		             sl_error_text(-errno));
	if (rc)
		return rc;
	if (rs->scalars)
		memcpy(frame_scalars(rs), scalars, rs->scalars * sizeof(*scalars));
	rs->frame->head.frame.max_error = max_error;
	rs->frame->n = sizeof(rs->frame->head) + rs->scalars * sizeof(*scalars) +
	               rs->frame->head.frame.count * sizeof(struct sl_rank_record);
	sl_link_send(&client->link, 0, rs->frame);
	rs->frame = NULL;
	return 0;
}

static int client_flush(struct sl_sink *sink)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_FLUSH};

	sl_link_tell(&client_of_sink(sink)->link, 0, &head, NULL, 0);
	return 0;
}

/* -------------------------------------------------------------------------------------- the end */

static int client_close(struct sl_sink *sink, bool keep)
{
	sl_client_end(client_of_sink(sink), keep, false);
	return 0;
}

static void client_ended(struct sl_sink *sink, int error, const char *sentence)
{
	struct sl_client *client = client_of_sink(sink);
	struct sl_rank_message head = {.kind = SL_MESSAGE_FAIL, .error = error};
	struct sl_outgoing *out = NULL;

	sl_mutex_lock(&client->mutex);
	bool told = client->locked.told || !error;
	client->locked.ended = true;
	client->locked.told |= !told;
	pthread_cond_broadcast(&client->answer);
	sl_mutex_unlock(&client->mutex);
	/* Not by sl_link_tell(), which ends in the writer's mutex without memory. Rank 0 then hears
	 * of the end alone, after fewer frames. */
	if (!told)
		out = sl_link_message(&head, strlen(sentence));
	if (!out)
		return;
	memcpy(&out->head + 1, sentence, strlen(sentence));
	sl_link_send(&client->link, 0, out);
}

static void client_unclosed(struct sl_sink *sink, struct sl_rank_names *names)
{
	struct sl_client *client = client_of_sink(sink);

	sl_mutex_lock(&client->registry);
	for (int r = 0; r < client->ranks; r++)
		if (!client->registered.closed[r] && r != client->rank)
			sl_rank_names_add(names, r);
	sl_mutex_unlock(&client->registry);
}

static void client_pump(struct sl_sink *sink)
{
	sl_link_pump(&client_of_sink(sink)->link);
}

static int client_with_file(struct sl_sink *sink, int (*run)(struct sl_h5_file *, void *),
                            void *argument)
{
	struct sl_client *client = client_of_sink(sink);

	if (!client->server)
		return sl_fail(-EINVAL, "rank %d does not have the file: this is a call of rank 0",
		               client->rank);
	sl_mutex_lock(&client->server->using);
	int rc = client->server->files ? run(client->server->files[0].h5, argument)
	                               : sl_fail(-ECANCELED, "the writer has ended");
	sl_mutex_unlock(&client->server->using);
	return rc;
}

void sl_client_free(struct sl_client *client, bool clean) SL_UNCHECKED
{
	/* Its last messages are in the link then. */
	if (client->server)
		sl_server_join(client->server);
	bool empty = sl_link_close(&client->link, clean);
	for (size_t i = 0; i < client->registered.series_count; i++) {
		struct sl_rank_series *rs = client->registered.series[i];

		/* A transport may still read it. */
		if (!empty && rs->share)
			rs->share->outgoing = NULL;
		free(rs->frame);
		free(rs);
	}
	if (client->server)
		sl_server_free(client->server);
	if (client->fd >= 0)
		close(client->fd);
	free(client->registered.series);
	free(client->registered.closed);
	free(client->path);
	for (unsigned i = 0; i < SL_ANSWERS; i++)
		free(client->locked.answers[i]);
	pthread_cond_destroy(&client->answer);
	sl_mutex_destroy(&client->adding);
	sl_mutex_destroy(&client->registry);
	sl_mutex_destroy(&client->mutex);
	free(client);
}

static void client_sink_free(struct sl_sink *sink)
{
	struct sl_client *client = client_of_sink(sink);

	sl_mutex_lock(&client->mutex);
	bool clean = !client->locked.ended;
	sl_mutex_unlock(&client->mutex);
	sl_client_free(client, clean);
}

const struct sl_sink_ops sl_client_ops = {
	.store = client_store,
	.frame = client_frame,
	.flush = client_flush,
	.close = client_close,
	.ended = client_ended,
	.unclosed = client_unclosed,
	.pump = client_pump,
	.with_file = client_with_file,
	.free = client_sink_free,
};
