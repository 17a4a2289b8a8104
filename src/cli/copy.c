/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline of a copy
 *
 * A ring of chunks: reads run ahead, each chunk is written as soon as it has been read, hashed in
 * file order, and reused.
 *
 * Threads: the thread that called cli_copy_run(); the library moves the bytes.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "cp.h"

enum {
	DEPTH = 16,
	LARGE_CHUNK = 4 << 20,
	FAR_CHUNK = 16 << 20, /* of a large object that is copied alone */
	SMALL_CHUNK = 1 << 20,
	PAGE = 4096,
	/* Zero blocks of this size are left out of a sparse copy. */
	BLOCK = 64 << 10,
	BLOCKS = FAR_CHUNK / BLOCK,
	WAIT_MS = 100,
};

struct chunk {
	char *data;
	/* --through or blob: device memory that the library reads into and writes from */
	char *device;
	uint64_t offset;
	size_t length; /* while reading: bytes wanted; afterwards: bytes read */
	sluice_op *op; /* in flight, or NULL */
	bool full;     /* has been read */
	bool written;
};

struct pipeline {
	struct cli_copy *copy;
	sluice_queue *queue;        /* of its operations, as other threads use the context, too */
	struct chunk chunks[DEPTH]; /* chunk i of the file is chunks[i % depth] */
	size_t depth, chunk_bytes;
	/* A blob is memory, where the other end reads or writes. At most one of both is set. */
	const struct cli_end *into, *from;
	char *memory;              /* memory of the chunks, if they need any */
	struct cli_memory through; /* data mirrors it where the host has to see the bytes */
	/* next chunk to read; chunks of the file are ordered tail <= hashed, sent <= head */
	uint64_t head;
	uint64_t hashed; /* next chunk to hash */
	uint64_t sent;   /* next chunk to send to a stream, or a target in order */
	uint64_t tail;   /* oldest chunk in use */
	uint64_t offset; /* offset of the next read */
	bool ended;      /* nothing left to read */
	uint64_t data;   /* no large hole begins between offset and here */
	bool zeros;      /* zeros at offset, which are not read */
	bool sums;       /* crc is compared with the source's */
	uint32_t crc;
	uint64_t start_ns;
	struct sluice_extent extents[BLOCKS];
};

/* Keeps the sentence of an error, since what follows may replace it; returns rc. */
static int pipeline_said(struct cli_copy *copy, int rc)
{
	if (rc)
		snprintf(copy->error, sizeof(copy->error), "%s", sluice_last_message());
	return rc;
}

static struct chunk *chunk_at(struct pipeline *p, uint64_t i)
{
	return &p->chunks[i % p->depth];
}

/* A device's blob is not read or written directly: the other end's file moves the bytes. */
static void choose_memory(struct pipeline *p)
{
	const struct cli_end *source = p->copy->source, *target = p->copy->target;

	if (p->copy->device >= 0)
		return;
	/* A web server is sent bytes from memory of the host, which the blob is read into. */
	if (source->memory && source->device >= 0 && target->in_order && !target->parts)
		return;
	if (source->memory && (source->device >= 0 || !target->memory))
		p->from = source;
	else if (target->memory)
		p->into = target;
}

static const struct cli_end *pipeline_blob(const struct pipeline *p)
{
	return p->into ? p->into : p->from;
}

/* Returns true if the host has to see bytes that are in device memory. */
static bool pipeline_wants_copy(const struct pipeline *p)
{
	return p->copy->hash || p->sums || p->copy->target->sparse || !p->copy->target->file;
}

static int pipeline_new_memory(struct pipeline *p)
{
	size_t bytes = p->depth * p->chunk_bytes, begin = 0;

	/* The next small file gets the same pages again. aligned_alloc() would not find them. */
	if (p->depth == 1)
		p->memory = malloc(bytes + PAGE);
	else
		p->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	p->memory = p->memory == MAP_FAILED ? NULL : p->memory;
	if (!p->memory && p->chunk_bytes > LARGE_CHUNK) {
		p->chunk_bytes = LARGE_CHUNK;
		p->depth = DEPTH;
		return pipeline_new_memory(p);
	}
	if (!p->memory)
		return sl_fail(-ENOMEM, "no memory for buffers of %zu bytes", bytes);
	if (p->depth > 1)
		madvise(p->memory, bytes, MADV_HUGEPAGE);
	else
		begin = -(uintptr_t)p->memory & (PAGE - 1);
	for (size_t i = 0; i < p->depth; i++)
		p->chunks[i].data = p->memory + begin + i * p->chunk_bytes;
	return 0;
}

/*
 * Skips a hole at p->offset and returns true. Otherwise *n ends before the next hole or, with
 * p->zeros, before the end of this hole.
 */
static bool pass_hole(struct pipeline *p, size_t *n)
{
	struct cli_copy *copy = p->copy;
	uint64_t at = p->offset, end = p->data;
	bool device = p->through.device >= 0 || (p->into && p->into->device >= 0);

	p->zeros = false;
	if (copy->source->holes < 0 || at >= copy->source->length)
		return false;
	if (at >= p->data) {
		end = cli_end_next_data(copy->source, at);
		if (end < copy->source->length)
			end = end / CLI_PART_BLOCK * CLI_PART_BLOCK;
		if (end <= at || (end - at < CLI_LEAST_HOLE && end < copy->source->length)) {
			end = p->data = cli_end_next_hole(copy->source, at);
		} else if (copy->target->sparse && !copy->hash) {
			if (copy->target->part)
				cli_part_wrote(copy->target->part, at, end - at);
			copy->moved += end - at;
			copy->holes += end - at;
			p->offset = end;
			return true;
		} else if (device) {
			p->data = end;
		} else {
			p->zeros = true;
		}
	}
	*n = SL_MIN(*n, end - at);
	return false;
}

/*
 * Returns the length of the next read from p->offset, which moves to the next missing bytes. An
 * interrupted copy loses the reads in flight; where the rest is kept, that is about a second's
 * worth.
 */
static size_t next_length(struct pipeline *p)
{
	const struct cli_copy *copy = p->copy;
	uint64_t ms = (sl_now() - p->start_ns) / 1000000 + 1;
	uint64_t rate = (copy->moved - copy->there - copy->holes) * 1000 / ms;
	size_t n = p->chunk_bytes;

	if (copy->target->part && p->depth > 1 && rate / DEPTH < n)
		n = (rate / DEPTH / CLI_PART_BLOCK + 1) * CLI_PART_BLOCK;
	size_t most = n;
	do
		n = copy->target->part ? cli_part_gap(copy->target->part, &p->offset, most) : most;
	while (pass_hole(p, &n));
	if (!copy->source->length_known)
		return n;
	p->ended = p->offset == copy->source->length;
	uint64_t end = p->offset < copy->source->head_bytes ? copy->source->head_bytes
	                                                    : copy->source->length;
	return end - p->offset < n ? end - p->offset : n;
}

/* Returns the length of a large file's chunks. A far server needs many bytes in flight, and each
 * request costs it time. Files among others have the usual length, and so has a copy to be
 * continued, which may lose those bytes. share: bytes of memory for a copy. */
static uint64_t pipeline_chunk(const struct cli_copy *copy, uint64_t share)
{
	const struct cli_end *source = copy->source, *target = copy->target;
	bool device = copy->device >= 0 || (target->memory && target->device >= 0);
	bool far = source->file && !source->path && !source->memory && !device;

	if (!far || target->part || copy->shares)
		return LARGE_CHUNK;
	/* Of all the file, if there is memory for it. */
	share = SL_MIN(share, source->length + DEPTH * LARGE_CHUNK - 1);
	return SL_MIN(share / (DEPTH * LARGE_CHUNK) * LARGE_CHUNK, FAR_CHUNK);
}

static int pipeline_start(struct pipeline *p, struct cli_copy *copy)
{
	const struct cli_end *source = copy->source;
	uint64_t length = source->length, share;

	*p = (struct pipeline){.copy = copy,
	                       .depth = DEPTH,
	                       .chunk_bytes = SMALL_CHUNK,
	                       .through = {.device = -1},
	                       .crc = UINT32_MAX,
	                       .start_ns = sl_now()};
	/* Threads read to device memory; sources without ranges arrive in file order. */
	if (source->whole_only &&
	    (copy->device >= 0 || (copy->target->memory && copy->target->device >= 0)))
		p->depth = 1;
	else if (source->length_known && length <= SMALL_CHUNK) {
		p->depth = 1;
		p->chunk_bytes = length ? (length + PAGE - 1) / PAGE * PAGE : PAGE;
	} else if (source->length_known) {
		share = length < DEPTH * LARGE_CHUNK ? 0 : sl_machine_memory("") / 16;
		if (share >= DEPTH * LARGE_CHUNK)
			p->chunk_bytes = pipeline_chunk(copy, share);
		p->depth = SL_MIN((length + p->chunk_bytes - 1) / p->chunk_bytes, p->depth);
	}
	choose_memory(p);
	p->sums = source->crc32c && !copy->target->part && copy->device < 0 &&
	          !(p->into && p->into->device >= 0) && sl_crc32c_add(&p->crc, NULL, 0);
	int rc = sluice_queue_new(&p->queue);
	/* Chunks of a host's blob are parts of the blob. */
	if (rc == 0 && !(pipeline_blob(p) && pipeline_blob(p)->device < 0))
		rc = pipeline_new_memory(p);
	if (rc == 0 && copy->device >= 0) {
		rc = cli_memory_new(&p->through, copy->device, p->depth * p->chunk_bytes, false);
		if (rc)
			sl_fail(rc, "no memory of the device for buffers");
	}
	for (size_t i = 0; p->through.data && i < p->depth; i++)
		p->chunks[i].device = p->through.data + i * p->chunk_bytes;
	if (rc == 0)
		next_length(p);
	return rc;
}

static void chunk_written(struct pipeline *p, struct chunk *chunk)
{
	chunk->written = true;
	p->copy->moved += chunk->length;
	if (p->copy->target->part)
		cli_part_wrote(p->copy->target->part, chunk->offset, chunk->length);
}

static void pipeline_stop(struct pipeline *p)
{
	for (size_t i = 0; i < p->depth; i++)
		if (p->chunks[i].op)
			sluice_cancel(p->chunks[i].op);
	/* The library owns the buffers until the operations are over. */
	for (size_t i = 0; i < p->depth; i++) {
		if (!p->chunks[i].op)
			continue;
		if (sluice_wait(p->chunks[i].op, -1) >= 0 && p->chunks[i].full)
			chunk_written(p, &p->chunks[i]);
		sluice_op_free(p->chunks[i].op);
	}
	sluice_queue_free(p->queue);
	cli_memory_free(&p->through);
	if (p->depth == 1)
		free(p->memory);
	else if (p->memory)
		munmap(p->memory, p->depth * p->chunk_bytes);
}

/* ------------------------------------------------------------------------------------- streams */

/* Handles a failed read() or write() of a stream: returns 0 to try again. */
static int stream_pause(struct pipeline *p, const struct cli_end *end, short events)
{
	struct pollfd fd = {.fd = end->fd, .events = events};

	if (errno == EAGAIN || errno == EWOULDBLOCK)
		poll(&fd, 1, WAIT_MS);
	else if (errno != EINTR)
		return sl_fail(-errno, "'%s': %s", end->name, strerror(errno));
	cli_progress_update(p->copy->progress, p->copy->moved);
	return cli_interrupted() ? -ECANCELED : 0;
}

/* Fills the chunk as far as the stream goes; for a target stream by a single read(). */
static int stream_read(struct pipeline *p, struct chunk *chunk)
{
	const struct cli_end *source = p->copy->source;
	size_t want = chunk->length;

	chunk->length = 0;
	while (chunk->length < want) {
		ssize_t n = read(source->fd, chunk->data + chunk->length, want - chunk->length);
		int rc = n < 0 ? stream_pause(p, source, POLLIN) : 0;

		if (rc)
			return rc;
		if (n < 0)
			continue;
		if (n == 0) {
			if (source->length_known)
				return sl_fail(-EIO, "'%s' became shorter while it was copied",
				               source->name);
			p->ended = true;
			break;
		}
		chunk->length += (size_t)n;
		if (!p->copy->target->file)
			break;
	}
	p->offset += chunk->length;
	return 0;
}

static int stream_write(struct pipeline *p, struct chunk *chunk)
{
	const struct cli_end *target = p->copy->target;
	size_t done = 0;

	while (done < chunk->length) {
		ssize_t n = write(target->fd, chunk->data + done, chunk->length - done);
		int rc = n < 0               ? stream_pause(p, target, POLLOUT)
		         : cli_interrupted() ? -ECANCELED
		                             : 0;

		if (rc)
			return rc;
		n = SL_MAX(n, (ssize_t)0);
		done += (size_t)n;
		p->copy->moved += (size_t)n;
	}
	chunk->written = true;
	return 0;
}

/* --------------------------------------------------------------------------------------- files */

static int submit_chunk(struct pipeline *p, const struct cli_end *end, int kind,
                        struct chunk *chunk, const struct sluice_extent *extents, size_t count)
{
	struct sluice_request request = SLUICE_REQUEST_INIT;

	request.kind = kind;
	request.extents = extents;
	request.count = count;
	request.user = chunk;
	request.queue = p->queue;
	/* A stream does not learn that a source of unknown length has ended, and reaches no blob on
	 * another device. */
	request.on = p->through.device >= 0 && p->copy->source->length_known &&
	             (!end->memory || end->device < 0 || end->device == p->through.device);
	request.stream = p->through.streams[(size_t)(chunk - p->chunks) % CLI_STREAMS];
	return sluice_submit(end->file, &request, &chunk->op);
}

/* Lists the parts of the chunk to be written; neighbouring blocks form an extent. */
static size_t cut_extents(struct pipeline *p, const struct chunk *chunk)
{
	static const char zero[BLOCK];
	struct sluice_extent *extents = p->extents;
	bool joins = false;
	size_t count = 0;

	if (!p->copy->target->sparse) {
		extents[0] = (struct sluice_extent){chunk->data, chunk->length, chunk->offset};
		return 1;
	}
	for (size_t at = 0; at < chunk->length; at += BLOCK) {
		size_t n = SL_MIN(chunk->length - at, (size_t)BLOCK);

		if (!memcmp(chunk->data + at, zero, n)) {
			joins = false;
			continue;
		}
		if (joins)
			extents[count - 1].length += n;
		else
			extents[count++] =
				(struct sluice_extent){chunk->data + at, n, chunk->offset + at};
		joins = true;
	}
	return count;
}

static int chunk_write(struct pipeline *p, struct chunk *chunk)
{
	size_t count = cut_extents(p, chunk);

	/* With --through the library gets device memory instead of host memory. */
	for (size_t i = 0; chunk->device && i < count; i++)
		p->extents[i].data = chunk->device + ((char *)p->extents[i].data - chunk->data);
	if (count > 0)
		return submit_chunk(p, p->copy->target, SLUICE_WRITE, chunk, p->extents, count);
	chunk_written(p, chunk);
	return 0;
}

/* Handles a chunk that has been read. */
static int chunk_filled(struct pipeline *p, struct chunk *chunk)
{
	const struct cli_end *target = p->copy->target;
	int rc = 0;

	chunk->full = true;
	if (chunk->device &&
	    (!p->copy->source->file || chunk->offset < p->copy->source->head_bytes))
		rc = sluice_copy(chunk->device, chunk->data, chunk->length);
	else if (chunk->device && pipeline_wants_copy(p))
		rc = sluice_copy(chunk->data, chunk->device, chunk->length);
	if (rc)
		return rc;
	if (chunk->length == 0 || p->into)
		chunk_written(p, chunk);
	else if (target->file && !target->in_order)
		return chunk_write(p, chunk);
	return 0;
}

static int chunk_read(struct pipeline *p, struct chunk *chunk, size_t n)
{
	const struct cli_end *source = p->copy->source;

	if (source->length_known && n < chunk->length)
		return sl_fail(-EIO, "'%s' became shorter while it was copied", source->name);
	chunk->length = n;
	if (!source->length_known) {
		p->offset += n;
		p->ended = n == 0;
	}
	return chunk_filled(p, chunk);
}

static int chunk_operation_done(struct pipeline *p, sluice_op *op)
{
	struct chunk *chunk = sluice_op_user(op);
	int64_t n = sluice_wait(op, 0);
	int rc = 0;

	if (n < 0)
		rc = sl_fail((int)n, "%s", sluice_op_message(op));
	chunk->op = NULL;
	sluice_op_free(op);
	if (rc == 0 && !chunk->full)
		rc = chunk_read(p, chunk, (size_t)n);
	else if (rc == 0)
		chunk_written(p, chunk);
	return rc;
}

/* ------------------------------------------------------------------------------------ the turn */

static void pipeline_show(struct pipeline *p)
{
	struct cli_progress *progress = p->copy->progress;

	if (progress->shown) {
		uint64_t ms = cli_end_limited_ms(p->copy->source);
		progress->limited_ms = ms ? ms : cli_end_limited_ms(p->copy->target);
	}
	cli_progress_update(progress, p->copy->moved);
}

static bool pipeline_may_read(struct pipeline *p)
{
	if (p->ended || p->head - p->tail == p->depth)
		return false;
	/* If the length is unknown, the end of a read is the start of the next. */
	if (p->copy->source->file && !p->copy->source->length_known && p->head > p->tail)
		return chunk_at(p, p->head - 1)->full;
	return true;
}

/* Sets the address of the chunk in the blob. */
static void chunk_enter_blob(struct pipeline *p, struct chunk *chunk)
{
	const struct cli_end *blob = pipeline_blob(p);

	if (blob && blob->device >= 0)
		chunk->device = blob->memory + chunk->offset;
	else if (blob)
		chunk->data = blob->memory + chunk->offset;
}

static int pipeline_read_next(struct pipeline *p)
{
	const struct cli_end *source = p->copy->source;
	struct chunk *chunk = chunk_at(p, p->head++);

	chunk->length = next_length(p);
	bool zeros = p->zeros;
	chunk->offset = p->offset;
	chunk->full = chunk->written = false;
	chunk_enter_blob(p, chunk);
	if (!source->file) {
		int rc = stream_read(p, chunk);
		return rc ? rc : chunk_filled(p, chunk);
	}
	/* Bytes appended after the copy began are not part of it. */
	if (source->length_known) {
		p->offset += chunk->length;
		next_length(p);
	}
	if (zeros)
		memset(chunk->data, 0, chunk->length);
	bool head = chunk->offset < source->head_bytes;
	if (head)
		memcpy(chunk->data, source->head + chunk->offset, chunk->length);
	if (zeros || head || p->from)
		return chunk_filled(p, chunk);
	struct sluice_extent extent = {chunk->device ? chunk->device : chunk->data, chunk->length,
	                               chunk->offset - source->head_bytes};
	return submit_chunk(p, source, SLUICE_READ, chunk, &extent, 1);
}

/* Does the work that must happen in file order. */
static int pipeline_work_in_order(struct pipeline *p)
{
	for (; p->hashed < p->head && chunk_at(p, p->hashed)->full; p->hashed++) {
		const struct chunk *chunk = chunk_at(p, p->hashed);

		if (p->copy->hash)
			XXH3_128bits_update(p->copy->hash, chunk->data, chunk->length);
		if (p->sums)
			sl_crc32c_add(&p->crc, chunk->data, chunk->length);
	}
	if (!p->copy->target->file && p->sent < p->head && chunk_at(p, p->sent)->full) {
		int rc = stream_write(p, chunk_at(p, p->sent++));
		if (rc)
			return rc;
	}
	for (; p->copy->target->in_order && p->sent < p->head && chunk_at(p, p->sent)->full;
	     p->sent++) {
		struct chunk *chunk = chunk_at(p, p->sent);
		int rc = chunk->written ? 0 : chunk_write(p, chunk);

		if (rc)
			return rc;
	}
	while (p->tail < p->hashed && chunk_at(p, p->tail)->written)
		p->tail++;
	return 0;
}

static bool chunks_in_flight(struct pipeline *p)
{
	for (size_t i = 0; i < p->depth; i++)
		if (p->chunks[i].op)
			return true;
	return false;
}

/* Takes finished operations; waits only if there is nothing else to do. */
static int pipeline_take_finished(struct pipeline *p)
{
	bool stream_has_work =
		!p->copy->target->file && p->sent < p->head && chunk_at(p, p->sent)->full;
	int timeout_ms = pipeline_may_read(p) || stream_has_work ? 0 : WAIT_MS;
	sluice_op *op;

	if (!chunks_in_flight(p))
		return 0;
	for (;; timeout_ms = 0) {
		int rc = sluice_queue_next(p->queue, timeout_ms, &op);

		if (rc == 0)
			rc = chunk_operation_done(p, op);
		else if (rc == -EAGAIN)
			return 0;
		if (rc)
			return rc;
	}
}

static int turn_chunk(struct pipeline *p)
{
	int rc = 0;

	if (cli_interrupted())
		return -ECANCELED;
	/* Reading a stream may take long, so its chunks are processed singly. */
	for (bool stream = false; rc == 0 && !stream && pipeline_may_read(p);) {
		rc = pipeline_read_next(p);
		stream = !p->copy->source->file;
	}
	if (rc == 0)
		rc = pipeline_work_in_order(p);
	if (rc == 0)
		rc = pipeline_take_finished(p);
	if (rc == 0 && p->copy->target->part && cli_part_note(p->copy->target->part))
		rc = sl_fail(-EIO, "the copy to '%s' was ended", p->copy->target->name);
	if (rc == 0)
		pipeline_show(p);
	return rc;
}

int cli_copy_run(struct cli_copy *copy)
{
	struct pipeline p;
	int rc;

	copy->moved = copy->there;
	rc = pipeline_start(&p, copy);
	while (rc == 0 && !(p.ended && p.tail == p.head))
		rc = turn_chunk(&p);
	if (rc == 0 && p.sums)
		rc = cli_end_check_sum(copy->source, p.crc);
	pipeline_said(copy, rc);
	pipeline_stop(&p);
	if (rc == 0 && copy->target->file && copy->target->sparse)
		rc = pipeline_said(copy, sluice_truncate(copy->target->file, copy->source->length));
	return rc;
}
