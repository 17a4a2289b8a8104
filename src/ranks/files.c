/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HDF5 files of rank 0: one, or with SLUICE_WRITER_NODE_FILES one more for each node. Then the chunks of a rank are in
 * the file of its node, and the first file has virtual datasets. It is flushed last, so that the frames that it counts are
 * in all files. Called by the server's thread, with server->using.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks/ranks_internal.h"

/* ---------------------------------------------------------------------------------------- open */

/* Numbers the nodes in the order of their lowest ranks. */
static int nodes_count(struct sl_rank_server *server)
{
	server->node_count = 0;
	for (int r = 0; r < server->ranks; r++) {
		const struct sl_open_body *body = (void *)(server->rank[r].step->message + 1);
		int lowest = body->node;
		const struct sl_open_body *its = (void *)(server->rank[lowest].step->message + 1);

		if (its->node != lowest)
			return sl_fail(-EINVAL,
			               "transport: rank %d is on the node of rank %d, which is on "
			               "that of rank %d",
			               r, lowest, its->node);
		server->rank[r].node =
			lowest == r ? server->node_count++ : server->rank[lowest].node;
	}
	return 0;
}

static int file_open(struct sl_rank_server *server, size_t number,
                     const struct sl_h5_file_options *o)
{
	struct sl_server_file *file = &server->files[number];
	int length = number ? asprintf(&file->path, "%s.node-%zu", server->path, number - 1)
	                    : asprintf(&file->path, "%s", server->path);

	if (length < 0) {
		file->path = NULL;
		return sl_fail(-ENOMEM, "no memory");
	}
	return sl_h5_file_open(file->path, o, &file->h5);
}

int sl_files_open(struct sl_rank_server *server)
{
	const struct sluice_writer_options *o = server->options;
	struct sl_h5_file_options options = {.flags = o->flags,
	                                     .mode = o->mode,
	                                     .attributes = o->attributes,
	                                     .attribute_count = o->attribute_count,
	                                     .shared = true,
	                                     .full = sl_server_full,
	                                     .argument = server};
	bool apart = o->flags & SLUICE_WRITER_NODE_FILES;
	int rc = nodes_count(server);
	size_t count = rc || !apart ? 1 : (size_t)server->node_count + 1;

	server->files = calloc(count, sizeof(*server->files));
	if (!rc && !server->files)
		rc = sl_fail(-ENOMEM, "no memory");
	options.apart = server->node_count > 1;
	options.held_limit = sl_writer_held_limit(o->memory_bytes) / count;
	while (!rc && server->file_count < count) {
		rc = file_open(server, server->file_count, &options);
		options.attribute_count = 0;
		server->file_count++;
	}
	for (int r = 0; r < server->ranks; r++)
		server->rank[r].file = apart ? 1 + server->rank[r].node : 0;
	return rc;
}

/* ----------------------------------------------------------------------------------------- add */

/* The sources of the first dataset: the blocks of the ranks. */
static int sources_make(const struct sl_rank_server *server, struct sl_server_series *ss)
{
	size_t ranks = (size_t)server->ranks;
	struct sl_h5_source *sources = calloc(ranks, sizeof(*sources));
	const char **names = calloc(server->file_count, sizeof(*names));
	int *files = calloc(ranks, sizeof(*files));

	for (size_t i = 0; names && i < server->file_count; i++) {
		const char *slash = strrchr(server->files[i].path, '/');

		names[i] = slash ? slash + 1 : server->files[i].path;
	}
	for (size_t r = 0; files && r < ranks; r++)
		files[r] = server->rank[r].file;
	ss->layout.sources = sources;
	if (sources && names && files)
		ss->layout.source_count = sl_blocks_sources(ss->layout.rank, ss->blocks, files,
		                                            server->ranks, names, sources);
	free(names);
	free(files);
	return ss->layout.source_count ? 0 : sl_fail(-ENOMEM, "no memory");
}

/* The dataset in the file of a node has the chunks alone, and as many frames as the first dataset counts. */
static int part_add(struct sl_rank_server *server, struct sl_server_series *ss, size_t number,
                    struct sl_h5_layout *part, const struct sl_h5_set_options *set, uint64_t first)
{
	struct sl_h5_set_options its = *set;
	char sentence[512];
	int rc;

	its.at = true;
	its.frame = first;
	/* All have the chunks and filters of the file of the first node. */
	its.chunk |= number > 1;
	its.codec |= number > 1;
	its.shuffle |= number > 1;
	rc = sl_h5_dataset_add(server->files[number].h5, ss->name, part, &its,
	                       &ss->datasets[number], &first);
	if (!rc)
		return 0;
	snprintf(sentence, sizeof(sentence), "%s", sluice_last_message());
	return sl_fail(rc, "'%s': %s", server->files[number].path, sentence);
}

int sl_files_add(struct sl_rank_server *server, struct sl_server_series *ss,
                 const struct sl_h5_set_options *set, uint64_t *first)
{
	struct sl_h5_layout part = ss->layout;
	int rc = server->file_count > 1 ? sources_make(server, ss) : 0;

	if (!rc)
		rc = sl_h5_dataset_add(server->files[0].h5, ss->name, &ss->layout, set,
		                       &ss->datasets[0], first);
	part.scalars = part.dimensions = NULL;
	part.attributes = NULL;
	part.scalar_count = part.attribute_count = part.precision = 0;
	for (size_t i = 1; !rc && i < server->file_count; i++)
		rc = part_add(server, ss, i, &part, set, *first);
	if (!rc && server->file_count > 1) {
		memcpy(ss->layout.chunk, part.chunk, sizeof(part.chunk));
		ss->layout.codec = part.codec;
		ss->layout.level = part.level;
		ss->layout.shuffle = part.shuffle;
		ss->layout.gather = part.gather;
		ss->layout.contiguous = part.contiguous;
	}
	if (!rc && (ss->layout.gather > 1 || ss->layout.contiguous))
		rc = sl_fail(-ENOTSUP, "'%s' %s, and ranks can share only chunks of a single frame",
		             ss->name,
		             ss->layout.contiguous ? "lies in one piece"
		                                   : "has several frames in a chunk");
	free((void *)(uintptr_t)ss->layout.sources);
	ss->layout.sources = NULL;
	ss->layout.scalars = ss->layout.dimensions = NULL;
	ss->layout.attributes = NULL;
	if (rc)
		sl_files_forget(server, ss);
	return rc;
}

void sl_files_forget(struct sl_rank_server *server, struct sl_server_series *ss)
{
	for (size_t i = 0; i < server->file_count; i++)
		if (ss->datasets[i])
			sl_h5_dataset_forget(ss->datasets[i]);
}

/* -------------------------------------------------------------------------------------- places */

/* Keeps the rest of a place for chunks that fit into it; the smallest are given up. */
static void rest_keep(struct sl_rank_server *server, struct sl_server_rest rest)
{
	struct sl_server_rest *smallest = server->rests;

	for (size_t i = 0; i < SL_SERVER_RESTS; i++)
		if (server->rests[i].bytes < smallest->bytes)
			smallest = &server->rests[i];
	if (rest.bytes > smallest->bytes)
		*smallest = rest;
}

/* No page of a file is written on two nodes: new space has whole pages, and its rest stays on the node. */
int sl_files_place(struct sl_rank_server *server, int from, const struct sl_rank_message *want,
                   struct sl_rank_message *out)
{
	const struct sl_server_rank *rank = &server->rank[from];

	rest_keep(server, (struct sl_server_rest){want->place, want->bytes, rank->node});
	for (size_t i = 0; i < SL_SERVER_RESTS; i++) {
		struct sl_server_rest *rest = &server->rests[i];

		if (rest->bytes < want->b || rest->node != rank->node)
			continue;
		out->place = rest->place;
		out->bytes = SL_MIN(rest->bytes, want->a);
		rest->place += out->bytes;
		rest->bytes -= out->bytes;
		return 0;
	}
	out->bytes = server->node_count > 1 ? sl_whole_pages(want->a) : want->a;
	return sl_h5_place_take(server->files[rank->file].h5, out->bytes, &out->place);
}

/* -------------------------------------------------------------------------------------- frames */

static int enter_message(const struct sl_rank_server *server, const struct sl_server_series *ss,
                         const struct sl_server_message *of)
{
	const struct sl_rank_message *message = of->message;
	const double *scalars = (const double *)(message + 1);
	const struct sl_rank_record *records =
		(const struct sl_rank_record *)(scalars + ss->layout.scalar_count);
	struct sl_h5_dataset *dataset = ss->datasets[server->rank[of->from].file];
	uint64_t offset[SLUICE_RANK_MOST];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < message->count; i++) {
		sl_blocks_offset(&ss->layout, records[i].chunk, offset);
		rc = sl_h5_chunk_enter(dataset, message->frame, offset, records[i].mask,
		                       records[i].place, records[i].length);
	}
	return rc;
}

int sl_files_enter(struct sl_rank_server *server, struct sl_server_series *ss,
                   const struct sl_server_slot *slot)
{
	int rc = 0;

	sl_list_each_of (of, &slot->messages, struct sl_server_message, link)
		rc = rc ? rc : enter_message(server, ss, of);
	ss->max_error = SL_MAX(ss->max_error, slot->error);
	for (size_t i = server->file_count; !rc && i--;)
		rc = sl_h5_frames_stored(ss->datasets[i], ss->complete, 1, slot->scalars,
		                         ss->max_error);
	return rc;
}

/* ------------------------------------------------------------------------------- flush and close */

int sl_files_flush(struct sl_rank_server *server)
{
	/* A file that is replaced would show the frames of new files. */
	int rc = server->file_count > 1 ? sl_h5_file_vacate(server->files[0].h5) : 0;

	for (size_t i = server->file_count; !rc && i--;)
		rc = sl_h5_file_flush(server->files[i].h5);
	return rc;
}

int sl_files_close(struct sl_rank_server *server, bool keep)
{
	int rc = 0, closed;
	bool named;

	/* After an error none gets frames that others lack. */
	for (size_t i = 0; keep && !rc && i < server->file_count; i++)
		rc = sl_h5_error(server->files[i].h5);
	if (keep && !rc && server->file_count > 1)
		rc = sl_files_flush(server);
	named = server->file_count && server->files[0].h5 &&
	        sl_h5_file_is_named(server->files[0].h5);
	for (size_t i = server->file_count; i--;) {
		struct sl_h5_file *file = server->files[i].h5;

		/* Without the first file the others are of no use. */
		if (file && !named && sl_h5_file_is_named(file))
			unlink(sl_h5_file_name(file));
		closed = file ? sl_h5_file_close(file, keep && !rc) : 0;
		rc = rc ? rc : closed;
		free(server->files[i].path);
	}
	free(server->files);
	server->files = NULL;
	server->file_count = 0;
	return rc;
}
