/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of whole files
 *
 * Reads a file front to back, ahead of the computation, through a few buffers that are used in turn. A turn
 * is the bytes that are in a buffer at a time. The turns of a tree (SLUICE_XXH3_TREE) are hashed by several threads,
 * and their leaves combined in order; SHA-256 is computed by a single thread.
 *
 * Threads: the caller's starts reads, waits for them and takes buffers back; threads of its own hash.
 */
#include "tensors/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/io.h"

#define LEAVES_MOST  8 /* of a buffer */
#define WORKERS_MOST 64
#define STOP_MS      50 /* a wait looks at *stop so often */
/* Of sluice_file_digest(). */
#define FILE_BUFFER  (LEAVES_MOST * SL_DIGEST_LEAF)
#define FILE_BUFFERS 8

struct digest_buffer {
	char *data;
	sluice_op *op; /* the read into it, or NULL */
	size_t length; /* bytes that it has read */
	XXH64_canonical_t leaves[LEAVES_MOST];
	bool hashed; /* guarded by the mutex of the ring */
};

/* Turns are counted from 0, and turn n is in buffer n % read->buffers. */
struct digest_ring {
	const struct sl_digest_read *read;
	/* The caller's. */
	uint64_t turns; /* of the file; UINT64_MAX: not known yet */
	uint64_t started, arrived, retired;
	uint64_t length; /* bytes that have arrived */
	XXH3_state_t tree;
	/* The hashing thread's, or the caller's after its end. */
	struct sl_sha256 *sha;

	struct sl_mutex mutex;
	pthread_cond_t work, progress;
	struct {
		uint64_t arrived, taken; /* turns that may be hashed, and that a thread has taken */
		bool ended;              /* no turn will come */
		int error;
	} locked SL_GUARDED_BY(&mutex);
	pthread_t threads[WORKERS_MOST];
	unsigned thread_count;
	struct digest_buffer buffers[SL_DIGEST_BUFFERS];
};

static struct digest_buffer *ring_buffer(struct digest_ring *ring, uint64_t turn)
{
	return &ring->buffers[turn % ring->read->buffers];
}

static size_t buffer_leaves(const struct digest_buffer *buffer)
{
	return (buffer->length + SL_DIGEST_LEAF - 1) / SL_DIGEST_LEAF;
}

/* ------------------------------------------------------------------------------ hashing threads */

static int buffer_hash(struct digest_ring *ring, struct digest_buffer *buffer)
{
	if (ring->sha)
		return sl_sha256_add(ring->sha, buffer->data, buffer->length);
	for (size_t i = 0; i < buffer_leaves(buffer); i++) {
		size_t at = i * SL_DIGEST_LEAF;
		size_t n = SL_MIN(buffer->length - at, SL_DIGEST_LEAF);

		XXH64_canonicalFromHash(&buffer->leaves[i], XXH3_64bits(buffer->data + at, n));
	}
	return 0;
}

/* Hashes turns until there will be none. Its sleep is ended by a turn that arrives, or by ring_stop(). */
static void *digest_run(void *argument)
{
	struct digest_ring *ring = argument;

	sl_mutex_lock(&ring->mutex);
	for (;;) {
		while (ring->locked.taken == ring->locked.arrived && !ring->locked.ended)
			sl_cond_wait(&ring->work, &ring->mutex, SL_FOREVER);
		if (ring->locked.taken == ring->locked.arrived)
			break;
		struct digest_buffer *buffer = ring_buffer(ring, ring->locked.taken++);
		sl_mutex_unlock(&ring->mutex);
		int rc = buffer_hash(ring, buffer);
		sl_mutex_lock(&ring->mutex);
		buffer->hashed = true;
		ring->locked.error = ring->locked.error ? ring->locked.error : rc;
		pthread_cond_signal(&ring->progress);
	}
	sl_mutex_unlock(&ring->mutex);
	return NULL;
}

/* ---------------------------------------------------------------------------- the caller's thread */

static int ring_stopped(const struct digest_ring *ring)
{
	const _Atomic bool *stop = ring->read->stop;

	return stop && atomic_load(stop) ? sl_fail(-ECANCELED, "the read was cancelled") : 0;
}

/* Adds a sentence to an error of libcrypto. */
static int ring_said(const struct digest_ring *ring, int rc)
{
	return rc ? sl_fail(rc, "cannot compute the SHA-256 of '%s'",
	                    sl_file_name(ring->read->file))
	          : 0;
}

/* Starts reads into all free buffers. */
static int ring_start_reads(struct digest_ring *ring)
{
	const struct sl_digest_read *read = ring->read;
	/* If the length is unknown, the end of a read is the start of the next. */
	unsigned ahead = read->length == UINT64_MAX ? 1 : read->buffers;

	while (ring->started < ring->turns && ring->started - ring->retired < ahead) {
		struct digest_buffer *buffer = ring_buffer(ring, ring->started);
		uint64_t offset = ring->started * read->buffer_bytes;
		size_t n = SL_MIN(read->length - offset, read->buffer_bytes);
		int rc = sluice_read(read->file, buffer->data, n, offset, &buffer->op);

		if (rc)
			return rc;
		ring->started++;
	}
	return 0;
}

/* Takes the result of the next read. */
static int ring_take_read(struct digest_ring *ring, struct digest_buffer *buffer)
{
	const struct sl_digest_read *read = ring->read;
	uint64_t offset = ring->arrived * read->buffer_bytes;
	int64_t n = sluice_wait(buffer->op, STOP_MS);
	int rc = 0;

	while (n == -EINPROGRESS && !(rc = ring_stopped(ring)))
		n = sluice_wait(buffer->op, STOP_MS);
	if (rc)
		return rc;
	if (n < 0)
		sl_fail((int)n, "%s", sluice_op_message(buffer->op));
	sluice_op_free(buffer->op);
	buffer->op = NULL;
	if (n < 0)
		return (int)n;
	buffer->length = n;
	ring->length += n;
	if (read->moved)
		atomic_fetch_add(read->moved, n);
	if ((size_t)n == read->buffer_bytes || ring->length == read->length)
		return 0;
	if (read->length != UINT64_MAX)
		return sl_fail(-EIO, "'%s' ends at byte %" PRIu64 ", and not at %" PRIu64,
		               sl_file_name(read->file), offset + n, read->length);
	ring->turns = ring->arrived + 1;
	return 0;
}

/* Gives the next turn to the hashing threads when its bytes are there. */
static int ring_arrive(struct digest_ring *ring)
{
	const struct sl_digest_read *read = ring->read;
	struct digest_buffer *buffer = ring_buffer(ring, ring->arrived);
	uint64_t offset = ring->arrived * read->buffer_bytes;
	int rc = ring_take_read(ring, buffer);

	if (rc)
		return rc;
	sl_mutex_lock(&ring->mutex);
	buffer->hashed = false;
	ring->locked.arrived = ++ring->arrived;
	pthread_cond_signal(&ring->work);
	sl_mutex_unlock(&ring->mutex);
	if (!read->arrived)
		return 0;
	return read->arrived(read->argument, (ring->arrived - 1) % read->buffers, buffer->data,
	                     buffer->length, offset);
}

/* Takes the next buffer back. Returns 1, 0 if it is not hashed yet and !wait, or an error. */
static int ring_retire(struct digest_ring *ring, bool wait)
{
	const struct sl_digest_read *read = ring->read;
	struct digest_buffer *buffer = ring_buffer(ring, ring->retired);
	bool hashed;
	int rc = 0;

	sl_mutex_lock(&ring->mutex);
	while (wait && !buffer->hashed && !(rc = ring_stopped(ring)))
		sl_cond_wait(&ring->progress, &ring->mutex, sl_deadline(STOP_MS));
	hashed = buffer->hashed;
	rc = rc ? rc : ring_said(ring, ring->locked.error);
	sl_mutex_unlock(&ring->mutex);
	if (rc || !hashed)
		return rc;
	if (read->release)
		rc = read->release(read->argument, ring->retired % read->buffers);
	if (!ring->sha)
		XXH3_128bits_update(&ring->tree, buffer->leaves,
		                    buffer_leaves(buffer) * sizeof(buffer->leaves[0]));
	ring->retired++;
	return rc ? rc : 1;
}

static int ring_run(struct digest_ring *ring)
{
	int rc = 0;

	while (ring->retired < ring->turns) {
		rc = ring_stopped(ring);
		if (!rc)
			rc = ring_start_reads(ring);
		bool idle = ring->arrived == ring->started;
		if (!rc && !idle)
			rc = ring_arrive(ring);
		if (!rc)
			rc = ring_retire(ring, idle);
		while (rc > 0 && ring->retired < ring->arrived)
			rc = ring_retire(ring, false);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Ends the reads that are in flight after an error, then the hashing threads. Waits for both. */
static void ring_stop(struct digest_ring *ring)
{
	for (unsigned i = 0; i < ring->read->buffers; i++)
		if (ring->buffers[i].op)
			sluice_cancel(ring->buffers[i].op);
	for (unsigned i = 0; i < ring->read->buffers; i++) {
		if (ring->buffers[i].op)
			sluice_wait(ring->buffers[i].op, -1);
		sluice_op_free(ring->buffers[i].op);
	}
	sl_mutex_lock(&ring->mutex);
	ring->locked.taken = ring->locked.arrived;
	ring->locked.ended = true;
	pthread_cond_broadcast(&ring->work);
	sl_mutex_unlock(&ring->mutex);
	while (ring->thread_count)
		pthread_join(ring->threads[--ring->thread_count], NULL);
	sl_mutex_destroy(&ring->mutex);
	pthread_cond_destroy(&ring->work);
	pthread_cond_destroy(&ring->progress);
}

static int ring_start(struct digest_ring *ring)
{
	const struct sl_digest_read *read = ring->read;
	unsigned workers = ring->sha ? 1 : SL_MIN(read->workers, WORKERS_MOST);

	ring->turns = read->length / read->buffer_bytes + (read->length % read->buffer_bytes > 0);
	if (read->length == UINT64_MAX)
		ring->turns = UINT64_MAX;
	XXH3_128bits_reset(&ring->tree);
	sl_mutex_init(&ring->mutex);
	pthread_cond_init(&ring->work, NULL);
	pthread_cond_init(&ring->progress, NULL);
	for (unsigned i = 0; i < read->buffers; i++)
		ring->buffers[i].data = read->memory + i * read->buffer_bytes;
	while (ring->thread_count < SL_MIN(workers, ring->turns)) {
		int rc = sl_thread_start(&ring->threads[ring->thread_count], "sluice-digest",
		                         digest_run, ring);
		if (rc && !ring->thread_count)
			return sl_fail(rc, "cannot start a thread: %s", sl_error_text(rc));
		if (rc)
			break;
		ring->thread_count++;
	}
	return 0;
}

/* Combines the leaves of a tree, which are all in it, with the length. */
static void tree_end(struct digest_ring *ring, unsigned char out[sizeof(XXH128_canonical_t)])
{
	XXH64_canonical_t length;
	XXH128_canonical_t value;

	XXH64_canonicalFromHash(&length, ring->length);
	XXH3_128bits_update(&ring->tree, &length, sizeof(length));
	XXH128_canonicalFromHash(&value, XXH3_128bits_digest(&ring->tree));
	memcpy(out, &value, sizeof(value));
}

int sl_digest_compute(struct sl_digest_read *read, struct sluice_digest *out)
{
	struct sluice_digest digest = {read->kind, {0}};
	struct digest_ring ring = {.read = read};
	char *message = NULL;
	int rc = 0;

	if (read->kind == SLUICE_SHA256)
		rc = sl_sha256_new(&ring.sha);
	else if (read->kind != SLUICE_XXH3_TREE)
		rc = sl_fail(-EINVAL, "%d is no kind of digest", read->kind);
	if (rc)
		return rc;
	rc = ring_start(&ring);
	if (!rc)
		rc = ring_run(&ring);
	/* A cancel may have a sentence of its own. */
	if (rc)
		message = strdup(sluice_last_message());
	ring_stop(&ring);
	if (rc)
		sl_fail(rc, "%s", message ? message : sl_error_text(rc));
	else if (ring.sha)
		rc = ring_said(&ring, sl_sha256_end(ring.sha, digest.bytes));
	else
		tree_end(&ring, digest.bytes);
	free(message);
	sl_sha256_free(ring.sha);
	if (!rc)
		*out = digest;
	return rc;
}

/* --------------------------------------------------------------------------------------- digests */

static size_t digest_bytes(const struct sluice_digest *digest)
{
	return digest->kind == SLUICE_SHA256 ? SL_SHA256_BYTES : sizeof(XXH128_canonical_t);
}

const char *sl_digest_format(const struct sluice_digest *digest, char text[SL_DIGEST_TEXT])
{
	for (size_t i = 0; i < digest_bytes(digest); i++)
		sprintf(text + 2 * i, "%02x", digest->bytes[i]);
	return text;
}

bool sl_digest_equal(const struct sluice_digest *a, const struct sluice_digest *b)
{
	return a->kind == b->kind && !memcmp(a->bytes, b->bytes, digest_bytes(a));
}

char *sl_digest_map(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

int sluice_file_digest(sluice_file *file, int kind, unsigned workers, struct sluice_digest *out)
{
	struct sluice_file_info info = {.size = sizeof(info)};
	struct sl_digest_read read = {
		.file = file,
		.kind = kind,
		.workers = workers ? workers : sl_cores(),
		.buffer_bytes = FILE_BUFFER,
	};
	size_t bytes;
	int rc;

	if (!file || !out)
		return sl_fail(-EINVAL, "sluice_file_digest: %s is NULL", file ? "out" : "file");
	rc = sluice_stat(file, &info);
	if (rc)
		return rc;
	read.length = info.flags & SLUICE_STAT_SIZE_UNKNOWN ? UINT64_MAX : info.length;
	read.buffers = SL_MAX(SL_MIN((read.length - 1) / FILE_BUFFER + 1, FILE_BUFFERS), 1);
	bytes = read.buffers * read.buffer_bytes;
	read.memory = sl_digest_map(bytes);
	if (!read.memory)
		return sl_fail(-ENOMEM, "no memory to compute the digest of '%s'",
		               sl_file_name(file));
	rc = sl_digest_compute(&read, out);
	munmap(read.memory, bytes);
	return rc;
}
