/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of all ranks, in rank 0: arguments are compared, and files or datasets are made.
 * Threads: the server's, with server->using but for sl_server_late(). */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_internal.h"

#define CHECKPOINT_MS 1000

static const void *body_of(const struct sl_rank_server *server, int rank)
{
	return server->rank[rank].step + 1;
}

static void answer_all(struct sl_rank_server *server, int rc, const void *body, size_t n)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_RESULT, .result = {server->step, rc}};

	body = rc ? sluice_last_message() : body;
	sl_server_tell_all(server, &head, body, rc ? strlen(body) : n);
}

/* The first rank's error, with its sentence. */
static int step_error(const struct sl_rank_server *server)
{
	for (int r = 0; r < server->ranks; r++)
		if (server->rank[r].step->step.rc)
			return sl_server_rank_error(server, server->rank[r].step,
			                            server->rank[r].step->step.rc);
	return 0;
}

/* A field in the bodies of a step. */
struct field {
	const char *name;
	size_t offset, bytes;
};
#define FIELD(type, name)                                                  \
	{                                                                  \
#name, offsetof(type, o.name), sizeof(((type *)0)->o.name) \
	}

/* Two ranks differ in a field: the error, with both values if they are numbers. */
static int differs(int rank, const struct field *field, const char *first, const char *other)
{
	int64_t wide[2];
	int32_t narrow[2];

	if (field->bytes == sizeof(narrow[0])) {
		memcpy(&narrow[0], first + field->offset, sizeof(narrow[0]));
		memcpy(&narrow[1], other + field->offset, sizeof(narrow[1]));
		wide[0] = narrow[0], wide[1] = narrow[1];
	} else if (field->bytes == sizeof(wide[0])) {
		memcpy(&wide[0], first + field->offset, sizeof(wide[0]));
		memcpy(&wide[1], other + field->offset, sizeof(wide[1]));
	} else {
		return sl_fail(-EINVAL, "rank 0 and rank %d differ in %s", rank, field->name);
	}
	return sl_fail(-EINVAL, "rank 0 and rank %d differ in %s: %" PRId64 " and %" PRId64, rank,
	               field->name, wide[0], wide[1]);
}

/* Compares the ranks' fields, and all bytes behind the head, which the sentence calls `rest`. */
static int compare(const struct sl_rank_server *server, const struct field *fields, size_t count,
                   size_t head, const char *rest)
{
	const char *first = body_of(server, 0);
	size_t n = server->rank[0].step->n;

	for (int r = 0; r < server->ranks; r++) {
		const char *other = body_of(server, r);

		if (server->rank[r].step->n <= head)
			return sl_fail(-EINVAL, "rank %d has another version of sluice", r);
		for (size_t i = 0; i < count; i++)
			if (memcmp(first + fields[i].offset, other + fields[i].offset,
			           fields[i].bytes))
				return differs(r, &fields[i], first, other);
		if (n != server->rank[r].step->n || memcmp(first + head, other + head, n - head))
			return sl_fail(-EINVAL, "rank 0 and rank %d differ in %s", r, rest);
	}
	return 0;
}

/* --------------------------------------------------------------------------------------- open */

static const struct field open_fields[] = {
	{"the version of sluice", 0, offsetof(struct sl_open_body, o)},
	FIELD(struct sl_open_body, memory_bytes),
	FIELD(struct sl_open_body, checkpoint_frames),
	FIELD(struct sl_open_body, flags),
	FIELD(struct sl_open_body, mode),
	FIELD(struct sl_open_body, checkpoint_ms),
	FIELD(struct sl_open_body, full_disk_ms),
};

/* Each rank gets two names for the file of its chunks: to open it, and for people. */
static int answer_open(struct sl_rank_server *server)
{
	struct sl_rank_message head = {.kind = SL_MESSAGE_RESULT, .result = {server->step, 0}};

	for (int r = 0; r < server->ranks; r++) {
		const struct sl_server_file *file = &server->files[server->rank[r].file];
		char *names;
		int n = asprintf(&names, "%s%c%s", sl_h5_file_name(file->h5), '\0', file->path);

		if (n < 0)
			return sl_fail(-ENOMEM, "no memory");
		sl_server_tell(server, r, &head, names, (size_t)n + 1);
		free(names);
	}
	return 0;
}

static void step_open(struct sl_rank_server *server)
{
	const struct sluice_writer_options *o = server->options;
	int rc = step_error(server);

	if (!rc)
		rc = compare(server, open_fields, sizeof(open_fields) / sizeof(open_fields[0]),
		             sizeof(struct sl_open_body), "the path");
	if (!rc) {
		int64_t ms = o->checkpoint_ms ? o->checkpoint_ms : CHECKPOINT_MS;

		server->checkpoint_frames = o->checkpoint_frames;
		server->checkpoint_ns = SL_MAX(ms, 0) * 1000000;
		server->full_ns =
			o->full_disk_ms < 0 ? SL_FOREVER : (int64_t)o->full_disk_ms * 1000000;
		rc = sl_files_open(server);
	}
	if (!rc)
		rc = answer_open(server);
	if (rc)
		answer_all(server, rc, NULL, 0);
}

/* ---------------------------------------------------------------------------------------- add */

static const struct field add_fields[] = {
	FIELD(struct sl_add_body, type),
	FIELD(struct sl_add_body, string_bytes),
	FIELD(struct sl_add_body, rank),
	FIELD(struct sl_add_body, shape),
	FIELD(struct sl_add_body, chunk),
	FIELD(struct sl_add_body, frames),
	{"codec", offsetof(struct sl_add_body, codec), sizeof(((struct sl_add_body *)0)->codec)},
	FIELD(struct sl_add_body, level),
	FIELD(struct sl_add_body, shuffle),
	FIELD(struct sl_add_body, precision),
	FIELD(struct sl_add_body, flags),
	FIELD(struct sl_add_body, continue_at),
	{"the number of scalars", offsetof(struct sl_add_body, o.scalar_count), sizeof(size_t)},
};

static int series_layout(struct sl_rank_server *server, struct sl_server_series *ss,
                         struct sl_h5_set_options *set)
{
	if (!server->adding)
		return sl_fail(-ETIMEDOUT, "not all ranks have called it in time");
	int rc = sl_series_options(server->adding, server->threads, &ss->layout, set);
	if (rc)
		return rc;
	ss->layout.contiguous = false;
	ss->layout.gather = 1;
	rc = sl_blocks_check(ss->layout.rank, ss->layout.shape, ss->blocks, server->ranks);
	if (!rc && !set->chunk)
		sl_blocks_chunk(&ss->layout, ss->blocks, server->ranks, server->threads);
	return rc;
}

static void series_begin(struct sl_rank_server *server, struct sl_server_series *ss, uint64_t first)
{
	ss->complete = ss->visible = first;
	for (int r = 0; r < server->ranks; r++) {
		bool any = sl_block_has_any(ss->layout.rank, &ss->blocks[r]);

		ss->contributors += any;
		/* A rank without a block is not waited for. */
		ss->frames[r] = any ? first : UINT64_MAX;
	}
}

/* Makes the series of the step. */
static int steps_series_new(struct sl_rank_server *server, struct sl_server_series **out)
{
	const struct sl_add_body *body = body_of(server, 0);
	struct sl_server_series **list =
		realloc(server->series, (server->series_count + 1) * sizeof(*list));
	struct sl_server_series *ss = calloc(1, sizeof(*ss));

	server->series = list ? list : server->series;
	if (ss) {
		for (unsigned i = 0; i < SLUICE_RANKS_AHEAD; i++)
			sl_list_init(&ss->slots[i].messages);
		ss->datasets = calloc(server->file_count, sizeof(*ss->datasets));
		ss->name = strdup((const char *)(body + 1));
		ss->blocks = calloc((size_t)server->ranks, sizeof(*ss->blocks));
		ss->frames = calloc((size_t)server->ranks, sizeof(*ss->frames));
		ss->asked = calloc((size_t)server->ranks, sizeof(*ss->asked));
	}
	*out = ss;
	if (!list || !ss || !ss->datasets || !ss->name || !ss->blocks || !ss->frames || !ss->asked)
		return sl_fail(-ENOMEM, "no memory");
	for (int r = 0; r < server->ranks; r++)
		ss->blocks[r] = ((const struct sl_add_body *)body_of(server, r))->block;
	return 0;
}

static void step_add(struct sl_rank_server *server)
{
	struct sl_server_series *ss = NULL;
	struct sl_h5_set_options set = {0};
	size_t ranks = (size_t)server->ranks;
	size_t n = sizeof(struct sl_added_body) + ranks * (sizeof(*ss->blocks) + sizeof(int));
	struct sl_added_body *added = calloc(1, n);
	int rc = step_error(server);

	if (!rc)
		rc = compare(server, add_fields, sizeof(add_fields) / sizeof(add_fields[0]),
		             sizeof(struct sl_add_body),
		             "the name of the dataset, a scalar or a dimension");
	if (!rc && !added)
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = steps_series_new(server, &ss);
	if (!rc)
		rc = series_layout(server, ss, &set);
	if (!rc)
		rc = sl_files_add(server, ss, &set, true, &added->first);
	if (rc) {
		answer_all(server, rc, NULL, 0);
		sl_server_series_free(ss);
	} else {
		series_begin(server, ss, added->first);
		server->fresh = ss;
		added->layout = ss->layout;
		added->index = (uint32_t)server->series_count;
		added->files = server->file_count;
		strncpy(added->codec, ss->layout.codec->name, sizeof(added->codec) - 1);
		memcpy(added->blocks, ss->blocks, ranks * sizeof(*ss->blocks));
		for (size_t i = 0; i < ranks; i++)
			((int *)(added->blocks + ranks))[i] = server->rank[i].file;
		answer_all(server, 0, added, n);
	}
	free(added);
}

/* No rank refuses the series any more: the files change. */
static void step_added(struct sl_rank_server *server)
{
	struct sl_server_series *ss = server->fresh;
	struct sl_h5_dataset *dataset = NULL;
	struct sl_h5_set_options set = {0};
	uint64_t first;
	int rc = step_error(server);

	server->fresh = NULL;
	if (ss && !rc)
		rc = series_layout(server, ss, &set);
	if (ss && !rc)
		rc = sl_files_add(server, ss, &set, false, &first);
	for (int r = 0; ss && !rc && r < server->ranks; r++)
		ss->chunks += server->rank[r].step->step.chunks;
	if (ss && !rc) {
		server->series[server->series_count++] = ss;
		dataset = ss->datasets[0];
	} else {
		sl_server_series_free(ss);
	}
	answer_all(server, rc, &dataset, sizeof(dataset));
}

void sl_server_step(struct sl_rank_server *server)
{
	switch (server->step) {
	case SL_STEP_OPEN:
		step_open(server);
		break;
	case SL_STEP_OPENED:
		answer_all(server, step_error(server), NULL, 0);
		break;
	case SL_STEP_ADD:
		step_add(server);
		break;
	default:
		step_added(server);
	}
}

void sl_server_late(struct sl_rank_server *server, int from, enum sl_message_kind kind)
{
	struct sl_rank_names missing = {0};
	char names[80];

	/* Otherwise the answer is on its way. */
	if (!server->rank[from].step || server->step != kind)
		return;
	for (int r = 0; r < server->ranks; r++)
		if (!server->rank[r].step)
			sl_rank_names_add(&missing, r);
	sl_rank_names_text(&missing, names, sizeof(names));
	sl_server_fail(server,
	               sl_fail(-ETIMEDOUT, "%s did not %s in time", names,
	                       kind <= SL_STEP_OPENED ? "open the writer" : "add the series"));
}
