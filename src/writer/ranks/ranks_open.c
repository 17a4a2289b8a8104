/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of all ranks together: opening a writer, and adding a series. A rank with wrong arguments
 * takes its steps all the same, so that the others hear of it. Threads: the program's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks/ranks_internal.h"

/* --------------------------------------------------------------------------------------- open */

static int transport_check(const struct sluice_transport *t)
{
	if (!t || t->size < sizeof(*t))
		return sl_fail(-EINVAL, "sluice_writer_open_ranks: %s",
		               t ? "size of the transport is not set" : "the transport is NULL");
	if (t->error)
		return sl_fail(t->error, "%s", t->message ? t->message : sl_error_text(t->error));
	if (!t->send || !t->sent || !t->receive)
		return sl_fail(-EINVAL, "transport: a function is missing");
	if (t->ranks < 1 || t->rank < 0 || t->rank >= t->ranks || t->node_ranks < 1 ||
	    t->node < 0 || t->node > t->rank)
		return sl_fail(-EINVAL, "transport: rank %d of %d, with %d on its node from %d on",
		               t->rank, t->ranks, t->node_ranks, t->node);
	return 0;
}

/* Cores for this rank, if they are not divided among the node's ranks already. */
static unsigned cores_of_rank(const struct sluice_transport *t)
{
	unsigned cores = sl_cores();
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	return (long)cores < online ? cores : SL_MAX(cores / (unsigned)t->node_ranks, 1);
}

/* No other thread has it. */
static void client_drop(struct sl_client *client) SL_UNCHECKED
{
	if (client)
		free(client->registered.closed);
	free(client);
}

static struct sl_client *client_new(const struct sluice_transport *t) SL_UNCHECKED
{
	struct sl_client *client = calloc(1, sizeof(*client));

	if (client)
		client->registered.closed = calloc((size_t)t->ranks, sizeof(bool));
	if (!client || !client->registered.closed) {
		client_drop(client);
		return NULL;
	}
	client->sink.ops = &sl_client_ops;
	client->sink.pumped = !t->thread;
	client->rank = t->rank;
	client->ranks = t->ranks;
	client->fd = -1;
	client->sync = t->node;
	sl_mutex_init(&client->adding);
	sl_mutex_init(&client->registry);
	sl_mutex_init(&client->mutex);
	pthread_cond_init(&client->answer, NULL);
	client->link.take = sl_client_take;
	client->link.broken = sl_client_broken;
	client->link.argument = client;
	return client;
}

/* Strings for a message; NULL: none. */
struct named {
	const char *const *list;
	size_t count;
};
#define LISTS 3

/* Takes a step with arguments, the names last. */
static int take_step(struct sl_client *client, struct sl_rank_message head, const void *body,
                     size_t n, const struct named *names, int64_t deadline,
                     struct sl_rank_message **result)
{
	char *bytes = NULL;
	size_t count = 0;
	FILE *to = head.step.rc ? NULL : open_memstream(&bytes, &count);

	if (to) {
		fwrite(body, n, 1, to);
		for (size_t i = 0; i < LISTS; i++)
			for (size_t s = 0; names[i].list && s < names[i].count; s++)
				fwrite(names[i].list[s], strlen(names[i].list[s]) + 1, 1, to);
	}
	if (!head.step.rc && (!to || fclose(to)))
		head.step.rc = sl_fail(-ENOMEM, "no memory");
	head.step.rc = sl_client_step(client, head, bytes, count, deadline, result);
	free(bytes);
	return head.step.rc;
}

/* Both steps: rank 0 makes the file, the others open it. */
static int take_steps_open(struct sl_client *client, int rc, const char *path,
                           const struct sluice_writer_options *o)
{
	int64_t deadline = o->open_ms > 0 ? sl_deadline(o->open_ms) : SL_FOREVER;
	struct sl_rank_message head = {.kind = SL_STEP_OPEN, .step = {.rc = rc}}, *result;
	struct sl_open_body body = {
		.layout_bytes = sizeof(struct sl_h5_layout), .o = *o, .node = client->link.t.node};

	strncpy(body.version, sluice_version(), sizeof(body.version) - 1);
	rc = take_step(client, head, &body, sizeof(body), (struct named[LISTS]){{&path, 1}},
	               deadline, &result);
	if (rc)
		return rc;
	const char *name = (const char *)(result + 1);
	client->path = strdup(name + strlen(name) + 1);
	client->fd = open(name, O_WRONLY | O_CLOEXEC);
	if (client->fd < 0)
		rc = sl_fail(
			-errno,
			"cannot open '%s', which rank 0 has made: %s (is it a file system that all "
			"ranks see?)",
			name, sl_error_text(-errno));
	else if (!client->path)
		rc = sl_fail(-ENOMEM, "no memory");
	free(result);
	head = (struct sl_rank_message){.kind = SL_STEP_OPENED, .step = {.rc = rc}};
	return sl_client_step(client, head, NULL, 0, deadline, NULL);
}

/* The sentence survives the client. */
static int client_give_up(struct sl_client *client, int rc)
{
	char *sentence = strdup(sluice_last_message());

	if (rc == -ETIMEDOUT)
		sl_client_broken(client, -1, rc);
	if (client->writer) {
		sluice_writer_discard(client->writer);
	} else {
		sl_client_end(client, false, true);
		sl_client_free(client, false);
	}
	sl_fail(rc, "%s", sentence ? sentence : sl_error_text(rc));
	free(sentence);
	return rc;
}

static int open_options(const struct sluice_writer_options *o, const struct sluice_transport *t,
                        struct sluice_writer_options *all, struct sluice_writer_options *own)
{
	const struct sluice_writer_options usual = SLUICE_WRITER_OPTIONS_INIT;
	int rc = sl_struct_take("writer options", o ? o : &usual, all, sizeof(*all));

	if (rc)
		return rc;
	*own = *all;
	/* The file is in the budget of rank 0's node. */
	if (all->memory_bytes)
		own->memory_bytes =
			SL_MAX((all->memory_bytes -
		                SL_MIN(t->node == 0 ? sl_writer_held_limit(all->memory_bytes) : 0,
		                       all->memory_bytes)) /
		                       (uint64_t)t->node_ranks,
		               1);
	own->threads = all->threads ? all->threads : cores_of_rank(t);
	return 0;
}

int sluice_writer_open_ranks(sluice_context *ctx, const struct sluice_transport *t,
                             const char *path, const struct sluice_writer_options *o,
                             sluice_writer **out)
{
	struct sluice_writer_options all = {0}, own = {0};
	int rc = transport_check(t), linked;
	struct sl_client *client = rc ? NULL : client_new(t);

	if (!rc && !client)
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc && !t->rank)
		rc = sl_server_start(&client->link, t->ranks, &client->server);
	if (rc) {
		if (t && t->size >= sizeof(*t) && t->close)
			t->close(t->handle, 0);
		client_drop(client);
		return rc;
	}
	rc = open_options(o, t, &all, &own);
	if (!rc && !out)
		rc = sl_fail(-EINVAL, "sluice_writer_open_ranks: out is NULL");
	client->threads = (unsigned)own.threads;
	if (!rc)
		rc = sl_writer_open_sink(ctx, path, &own, &client->sink, &client->writer);
	/* Before the server has messages. */
	if (!rc && client->server) {
		client->server->options = &all;
		client->server->path = sl_writer_path(client->writer);
		client->server->threads = client->threads;
	}
	linked = sl_link_open(&client->link, t);
	if (linked) {
		/* The others hear of it through this thread. */
		client->link.t.thread = 0;
		client->sink.pumped = true;
		rc = rc ? rc : sl_fail(linked, "no thread: %s", sl_error_text(linked));
	}
	rc = take_steps_open(client, rc, path, &all);
	if (rc)
		return client_give_up(client, rc);
	*out = client->writer;
	return 0;
}

int sluice_writer_progress(sluice_writer *w)
{
	struct sl_sink *sink = w ? sl_writer_sink(w) : NULL;

	if (!sink)
		return sl_fail(-EINVAL, "sluice_writer_progress: %s",
		               w ? "no ranks share this writer" : "the writer is NULL");
	if (sink->pumped)
		sink->ops->pump(sink);
	return sl_writer_check(w);
}

/* ---------------------------------------------------------------------------------------- add */

struct adding_block {
	struct sl_client *client;
	const char *name;
	struct sluice_series_options o;
	const struct sluice_block *block;
	int64_t deadline;
};

static int block_options(struct adding_block *a, const struct sluice_series_options *o)
{
	struct sl_h5_layout layout;
	struct sl_h5_set_options set;

	if (!a->name || !a->name[a->name[0] == '/'])
		return sl_fail(-EINVAL, "sluice_series_add_block: the dataset has no name");
	if (!o || o->size < sizeof(o->size))
		return sl_fail(-EINVAL, "series options: %s", o ? "size is not set" : "missing");
	if (!a->block)
		return sl_fail(-EINVAL, "sluice_series_add_block: the block is NULL");
	memcpy(&a->o, o, SL_MIN(o->size, sizeof(a->o)));
	if (a->o.chunk_frames > 1)
		return sl_fail(-EINVAL,
		               "series options: chunk_frames is %llu, and ranks share chunks of a "
		               "single frame only",
		               (unsigned long long)a->o.chunk_frames);
	if (a->o.flags & SLUICE_SERIES_DROP)
		return sl_fail(-EINVAL, "series options: ranks would DROP different frames");
	if (a->o.codec && strlen(a->o.codec) >= sizeof(((struct sl_add_body *)0)->codec))
		return sl_fail(-EINVAL, "series options: there is no codec '%s'", a->o.codec);
	return sl_series_options(&a->o, a->client->threads, &layout, &set);
}

static int take_step_add(struct adding_block *a, int rc, struct sl_rank_message **result)
{
	struct sl_rank_message head = {.kind = SL_STEP_ADD, .step = {.rc = rc}};
	const struct named names[LISTS] = {
		{&a->name, 1}, {a->o.scalars, a->o.scalar_count}, {a->o.dimensions, a->o.rank + 1}};
	struct sl_add_body body = {.o = a->o};
	size_t used = a->o.rank * sizeof(uint64_t), rest = sizeof(body.o.shape) - used;

	if (!rc) {
		memset((char *)body.o.shape + used, 0, rest);
		memset((char *)body.o.chunk + used, 0, rest);
		/* A number is a block of one dimension. */
		used = SL_MAX(used, sizeof(uint64_t));
		memcpy(body.block.start, a->block->start, used);
		memcpy(body.block.count, a->block->count, used);
		strncpy(body.codec, a->o.codec ? a->o.codec : "", sizeof(body.codec) - 1);
	}
	return take_step(a->client, head, &body, sizeof(body), names, a->deadline, result);
}

/* In the list before others can send fragments. */
static int rank_series_register(struct sl_client *client, struct sl_rank_series *rs)
{
	struct sl_rank_series **series;

	sl_mutex_lock(&client->registry);
	series = realloc(client->registered.series, (rs->index + 1) * sizeof(*series));
	if (series) {
		client->registered.series = series;
		series[rs->index] = rs;
		client->registered.series_count = rs->index + 1;
	}
	sl_mutex_unlock(&client->registry);
	return series ? 0 : sl_fail(-ENOMEM, "no memory");
}

static void rank_series_drop(struct sl_client *client, struct sl_rank_series *rs)
{
	sl_mutex_lock(&client->registry);
	client->registered.series_count = SL_MIN(client->registered.series_count, rs->index);
	sl_mutex_unlock(&client->registry);
	sl_series_free(rs->series);
	free(rs);
}

/* A series with its memory; without, if this rank has no block. */
static int rank_series_new(struct adding_block *a, const struct sl_added_body *added,
                           struct sl_rank_series **out)
{
	struct sl_client *client = a->client;
	struct sl_rank_series *rs = *out = calloc(1, sizeof(*rs));
	struct sl_h5_layout layout = added->layout;
	bool any = sl_block_has_any(layout.rank, a->block);

	if (!rs)
		return sl_fail(-ENOMEM, "no memory");
	rs->index = added->index;
	rs->scalars = layout.scalar_count;
	int rc = sl_codec_find(added->codec, layout.level, &layout.codec);
	if (!rc && any)
		rc = sl_blocks_share(&layout, added->blocks,
		                     (const int *)(added->blocks + client->ranks), client->ranks,
		                     client->rank, sizeof(struct sl_rank_message), &rs->share);
	if (!rc && any) {
		rs->share->user = rs;
		rs->share->files = client->server ? added->files : 0;
		rc = sl_series_make(client->writer, a->name, a->o.depth, &layout, added->first,
		                    rs->share, &rs->series);
		if (rc)
			sl_share_free(rs->share);
	}
	return rc ? rc : rank_series_register(client, rs);
}

/* Both steps: rank 0 looks at the dataset and all ranks make their memory; then rank 0 makes it. */
static int take_steps_add(struct adding_block *a, int rc, struct sluice_series **out)
{
	struct sl_rank_series *rs = NULL;
	struct sl_rank_message head = {.kind = SL_STEP_ADDED}, *result;
	struct sl_h5_dataset *dataset = NULL;

	rc = take_step_add(a, rc, &result);
	if (rc)
		return rc;
	head.step.rc = rank_series_new(a, (const struct sl_added_body *)(result + 1), &rs);
	head.step.chunks = !head.step.rc && rs->share ? rs->share->count - rs->share->sent : 0;
	free(result);
	rc = sl_client_step(a->client, head, NULL, 0, a->deadline, &result);
	if (rc) {
		if (rs)
			rank_series_drop(a->client, rs);
		return rc;
	}
	if (a->client->server && result->n == sizeof(dataset))
		memcpy(&dataset, result + 1, sizeof(dataset));
	free(result);
	if (rs->series)
		sl_series_enlist(rs->series, dataset);
	*out = rs->series;
	return 0;
}

/* Rank 0 makes the dataset with the options on this stack. */
static void add_set_options(struct sl_client *client, const struct sluice_series_options *o)
{
	if (!client->server)
		return;
	sl_mutex_lock(&client->server->using);
	client->server->adding = o;
	sl_mutex_unlock(&client->server->using);
}

int sluice_series_add_block(sluice_writer *w, const char *dataset,
                            const struct sluice_series_options *o, const struct sluice_block *block,
                            int timeout_ms, sluice_series **out)
{
	struct adding_block a = {.name = dataset, .block = block};
	struct sluice_series *s = NULL;

	if (!w || !sl_writer_sink(w))
		return sl_fail(-EINVAL, "sluice_series_add_block: %s",
		               w ? "no ranks share this writer" : "the writer is NULL");
	int rc = sl_writer_check(w);
	if (rc)
		return rc;
	a.client = SL_CONTAINER(sl_writer_sink(w), struct sl_client, sink);
	a.deadline = sl_deadline(timeout_ms);
	rc = block_options(&a, o);
	if (!rc && !out)
		rc = sl_fail(-EINVAL, "sluice_series_add_block: out is NULL");
	sl_mutex_lock(&a.client->adding);
	add_set_options(a.client, &a.o);
	rc = take_steps_add(&a, rc, &s);
	add_set_options(a.client, NULL);
	sl_mutex_unlock(&a.client->adding);
	if (rc == -ETIMEDOUT)
		sl_writer_fail(w, rc, sluice_last_message());
	if (!rc)
		*out = s;
	return rc;
}
