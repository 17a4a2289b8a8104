/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HDF5 files in rank 0: a single file, or with SLUICE_WRITER_NODE_FILES another for each node.
 * Then a rank's chunks are in the node's file, and the first file has virtual datasets. It is
 * flushed last, so that all files have the frames it counts. Threads: the server's, with
 * server->using.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_internal.h"

#define SMALL ((uint64_t)64 << 10) /* bytes of a chunk */

/* ---------------------------------------------------------------------------------------- open */

static int file_open(struct sl_rank_server *server, size_t number,
                     const struct sl_h5_file_options *o)
{
	struct sl_server_file *file = &server->files[number];

	file->path =
		number ? sl_format("%s.node-%zu", server->path, number - 1) : strdup(server->path);
	if (!file->path)
		return sl_fail(-ENOMEM, "no memory");
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
	size_t count = 1;
	int rc = 0;

	/* Nodes are ordered by their lowest ranks. */
	for (int r = 0; r < server->ranks; r++) {
		const struct sl_open_body *body = (void *)(server->rank[r].step + 1);
		struct sl_server_rank *rank = &server->rank[r];

		if (body->node < 0 || body->node > r)
			return sl_fail(-EPROTO, "rank %d is on no node: its lowest rank is %d", r,
			               (int)body->node);
		rank->node = body->node == r ? server->node_count++ : server->rank[body->node].node;
		rank->file = apart ? 1 + rank->node : 0;
		count = SL_MAX(count, (size_t)rank->file + 1);
	}
	server->files = calloc(count, sizeof(*server->files));
	if (!server->files)
		return sl_fail(-ENOMEM, "no memory");
	server->flushed = o->flags & SLUICE_WRITER_APPEND;
	options.apart = server->node_count > 1;
	options.held_limit = sl_writer_held_limit(o->memory_bytes) / count;
	while (!rc && server->file_count < count) {
		rc = file_open(server, server->file_count, &options);
		options.attribute_count = 0;
		server->file_count++;
	}
	return rc;
}

/* ----------------------------------------------------------------------------------------- add */

/* Makes a source longer by a block beside it; false: it does not lie so. */
static bool source_join(struct sl_h5_source *source, const struct sl_h5_source *other,
                        unsigned rank)
{
	unsigned along = rank;

	for (unsigned i = 0; i < rank; i++) {
		if (source->start[i] == other->start[i] && source->count[i] == other->count[i])
			continue;
		if (along < rank || (source->start[i] + source->count[i] != other->start[i] &&
		                     other->start[i] + other->count[i] != source->start[i]))
			return false;
		along = i;
	}
	if (source->file != other->file)
		return false;
	source->start[along] = SL_MIN(source->start[along], other->start[along]);
	source->count[along] += other->count[along];
	return true;
}

/* Joins the ranks' blocks, side by side in a file, to a source. Returns the number of sources. */
static size_t sources_fill(const struct sl_rank_server *server, const struct sl_server_series *ss,
                           struct sl_h5_source *out)
{
	size_t count = 0;

	for (int r = 0; r < server->ranks; r++) {
		const char *path = server->files[server->rank[r].file].path;
		const char *slash = strrchr(path, '/');
		struct sl_h5_source source = {.file = slash ? slash + 1 : path};

		if (!sl_block_has_any(ss->layout.rank, &ss->blocks[r]))
			continue;
		memcpy(source.start, ss->blocks[r].start, sizeof(source.start));
		memcpy(source.count, ss->blocks[r].count, sizeof(source.count));
		/* What is joined may lie beside an earlier source. */
		for (size_t i = 0; i < count; i++)
			if (source_join(&source, &out[i], ss->layout.rank)) {
				out[i] = out[--count];
				i = (size_t)-1;
			}
		out[count++] = source;
	}
	return count;
}

/* The first dataset, virtual if others have the chunks. out: NULL in a check, here and below. */
static int first_add(struct sl_rank_server *server, struct sl_server_series *ss,
                     const struct sl_h5_set_options *set, struct sl_h5_dataset **out,
                     uint64_t *first)
{
	struct sl_h5_layout virtual = ss->layout;
	struct sl_h5_source *sources;

	if (server->file_count == 1)
		return sl_h5_dataset_add(server->files[0].h5, ss->name, &ss->layout, set, out,
		                         first);
	virtual.sources = sources = calloc((size_t)server->ranks, sizeof(*sources));
	if (!sources)
		return sl_fail(-ENOMEM, "no memory");
	virtual.source_count = sources_fill(server, ss, sources);
	int rc = sl_h5_dataset_add(server->files[0].h5, ss->name, &virtual, set, out, first);
	ss->layout.precision = virtual.precision;
	free(sources);
	return rc;
}

/* The dataset in a node's file: chunks alone, and as many frames as the first dataset counts. */
static int node_add(struct sl_rank_server *server, struct sl_server_series *ss, size_t number,
                    const struct sl_h5_set_options *set, struct sl_h5_dataset **out, uint64_t first)
{
	struct sl_h5_set_options its = *set;
	int rc;

	its.at = true;
	its.frame = first;
	/* All have the chunks and filters of the first node's file. */
	if (number > 1)
		its.chunk = its.codec = its.shuffle = true;
	rc = sl_h5_dataset_add(server->files[number].h5, ss->name, &ss->layout, &its, out, &first);
	if (!rc)
		return 0;
	return sl_fail(rc, "'%s': %s", server->files[number].path, sluice_last_message());
}

int sl_files_add(struct sl_rank_server *server, struct sl_server_series *ss,
                 const struct sl_h5_set_options *set, bool check, uint64_t *first)
{
	int rc = first_add(server, ss, set, check ? NULL : &ss->datasets[0], first);
	size_t scalars = ss->layout.scalar_count;
	unsigned precision = ss->layout.precision;

	ss->layout.scalars = ss->layout.dimensions = NULL;
	ss->layout.attributes = NULL;
	ss->layout.scalar_count = ss->layout.attribute_count = ss->layout.precision = 0;
	for (size_t i = 1; !rc && i < server->file_count; i++)
		rc = node_add(server, ss, i, set, check ? NULL : &ss->datasets[i], *first);
	ss->layout.scalar_count = scalars;
	ss->layout.precision = precision;
	if (!rc && (ss->layout.gather > 1 || ss->layout.contiguous))
		rc = sl_fail(-ENOTSUP, "'%s' %s, and ranks can share only chunks of a single frame",
		             ss->name,
		             ss->layout.contiguous ? "lies in one piece"
		                                   : "has several frames in a chunk");
	for (size_t i = 0; rc && i < server->file_count; i++)
		if (ss->datasets[i])
			sl_h5_dataset_forget(ss->datasets[i]);
	return rc;
}

/* --------------------------------------------------------------------------------------- space */

/* Keeps a rest for smaller chunks; the smallest rests are given up. */
static void rest_keep(struct sl_rank_server *server, struct sl_server_rest rest)
{
	struct sl_server_rest *smallest = server->rests;

	for (size_t i = 0; i < SL_SERVER_RESTS; i++)
		if (server->rests[i].space.bytes < smallest->space.bytes)
			smallest = &server->rests[i];
	if (rest.space.bytes > smallest->space.bytes)
		*smallest = rest;
}

/* No page is written on two nodes: new space has whole pages, and its rest stays on the node. */
int sl_files_space(struct sl_rank_server *server, const struct sl_rank_message *of,
                   struct sl_rank_space *out)
{
	const struct sl_server_rank *rank = &server->rank[of->from];
	uint64_t bytes = of->want.bytes, least = of->want.least;

	rest_keep(server, (struct sl_server_rest){of->want.rest, rank->node});
	for (size_t i = 0; i < SL_SERVER_RESTS; i++) {
		struct sl_rank_space *rest = &server->rests[i].space;

		if (rest->bytes < least || server->rests[i].node != rank->node)
			continue;
		*out = (struct sl_rank_space){rest->start, SL_MIN(rest->bytes, bytes)};
		rest->start += out->bytes;
		rest->bytes -= out->bytes;
		return 0;
	}
	out->bytes = bytes;
	/* The end is lost once for several small chunks. */
	if (server->node_count > 1)
		out->bytes = sl_whole_pages(SL_MAX(bytes, least < SMALL ? 16 * least : 0));
	return sl_h5_space_take(server->files[rank->file].h5, out->bytes, &out->start);
}

/* -------------------------------------------------------------------------------------- frames */

static int enter_message(const struct sl_rank_server *server, const struct sl_server_series *ss,
                         const struct sl_rank_message *message)
{
	const double *scalars = (const double *)(message + 1);
	const struct sl_rank_record *records =
		(const struct sl_rank_record *)(scalars + ss->layout.scalar_count);
	struct sl_h5_dataset *dataset = ss->datasets[server->rank[message->from].file];
	uint64_t offset[SLUICE_FRAME_RANK_MOST];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < message->frame.count; i++) {
		sl_blocks_offset(&ss->layout, records[i].chunk, offset);
		rc = sl_h5_chunk_enter(dataset, message->frame.frame, offset, records[i].mask,
		                       records[i].start, records[i].length);
	}
	return rc;
}

int sl_files_enter(struct sl_rank_server *server, struct sl_server_series *ss,
                   const struct sl_server_slot *slot)
{
	const struct sl_rank_message *lowest = NULL; /* whose scalars are stored */
	uint64_t chunks = 0;
	int rc = 0;

	sl_list_each_of (of, &slot->messages, struct sl_rank_message, link) {
		lowest = lowest && lowest->from < of->from ? lowest : of;
		chunks += of->frame.count;
		ss->max_error = SL_MAX(ss->max_error, of->frame.max_error);
	}
	if (chunks != ss->chunks)
		rc = sl_fail(-EPROTO, "frame %llu of '%s' came in %llu chunks instead of %llu",
		             (unsigned long long)ss->complete, ss->name, (unsigned long long)chunks,
		             (unsigned long long)ss->chunks);
	sl_list_each_of (of, &slot->messages, struct sl_rank_message, link)
		rc = rc ? rc : enter_message(server, ss, of);
	for (size_t i = server->file_count; !rc && i--;)
		rc = sl_h5_frames_stored(ss->datasets[i], ss->complete, 1,
		                         (const double *)(lowest + 1), ss->max_error);
	return rc;
}

/* ---------------------------------------------------------------------------- flush and close */

int sl_files_flush(struct sl_rank_server *server)
{
	/* A file to be replaced would show frames from new files. */
	bool vacates = server->file_count > 1 && !server->flushed;
	int rc = vacates ? sl_h5_file_vacate(server->files[0].h5) : 0;

	if (rc)
		return rc;
	for (size_t i = server->file_count; !rc && i--;)
		rc = sl_h5_file_flush(server->files[i].h5);
	/* Without the first file the others are of no use. */
	for (size_t i = 1; rc && vacates && i < server->file_count; i++)
		sl_h5_file_vacate(server->files[i].h5);
	server->flushed |= !rc;
	return rc;
}

int sl_files_close(struct sl_rank_server *server, bool keep)
{
	int rc = keep && server->file_count > 1 ? sl_files_flush(server) : 0;

	for (size_t i = server->file_count; i--;) {
		struct sl_h5_file *file = server->files[i].h5;
		int closed = file ? sl_h5_file_close(file, keep && !rc) : 0;

		rc = rc ? rc : closed;
		free(server->files[i].path);
	}
	free(server->files);
	server->files = NULL;
	server->file_count = 0;
	return rc;
}
