/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of saves through buffers
 *
 * Writes a file front to back through a few buffers in turn, for tensors in other files, and for a
 * digest on the way. Reads are ahead of the writes. SHA-256 is libcrypto's.
 *
 * Threads: a thread of the crew, which waits for reads and writes; each ends with an error if
 * nothing else, and soon after `stop` is set, but for a call in the kernel.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "tensors/crew.h"
#include "tensors/save.h"

#define BUFFERS      8
#define BUFFER_BYTES ((size_t)4 << 20)
#define AHEAD        4  /* reads before the write of the first */
#define STOP_MS      50 /* a wait looks at *stop so often */

/* A buffer with bytes for the file. */
struct save_turn {
	char *data;
	size_t n;
	uint64_t at;
	sluice_op *read, *write;
};
struct save_stream {
	sluice_file *to;
	struct sl_save_file *file;
	const _Atomic bool *stop;
	EVP_MD_CTX *sha; /* NULL: no digest */
	struct save_turn turns[BUFFERS];
	uint64_t at;   /* in the file; earlier bytes are in a buffer, or were */
	size_t tensor; /* that has the byte there, or a later byte */
	uint64_t begun, written;
	struct sluice_extent extents[1024]; /* of a read */
};

int64_t sl_save_finish(sluice_op *op, const _Atomic bool *stop, _Atomic uint64_t *moved)
{
	uint64_t before = moved ? atomic_load(moved) : 0;
	int64_t n;

	while ((n = sluice_wait(op, STOP_MS)) == -EINPROGRESS) {
		if (moved)
			atomic_store(moved, before + sluice_op_moved(op));
		if (atomic_load(stop))
			sluice_cancel(op);
	}
	if (n == -ECANCELED)
		sl_fail(-ECANCELED, "the save was cancelled");
	else if (n < 0)
		sl_fail((int)n, "%s", sluice_op_message(op));
	else if (moved)
		atomic_store(moved, before + (uint64_t)n);
	sluice_op_free(op);
	return n;
}

/* Waits for an operation, which is to move n bytes, and frees it. */
static int stream_finish(const struct save_stream *s, sluice_op **op, size_t n)
{
	int64_t moved = sl_save_finish(*op, s->stop, NULL);

	*op = NULL;
	if (moved < 0 || (size_t)moved == n)
		return SL_MIN(moved, 0);
	return sl_fail(-EIO, "a file of tensors has become shorter than its header says");
}

/* Begins to fill a turn: from memory, at once, or from a file by a read. */
static int stream_fill_turn(struct save_stream *s, struct save_turn *turn)
{
	const struct sl_save_file *file = s->file;
	struct sluice_request r = SLUICE_REQUEST_INIT;
	sluice_file *from = NULL;

	turn->n = 0;
	turn->at = s->at;
	if (s->at < file->header_bytes) {
		turn->n = SL_MIN(file->header_bytes - s->at, BUFFER_BYTES);
		memcpy(turn->data, file->header + s->at, turn->n);
		s->at += turn->n;
		return 0;
	}
	while (s->tensor < file->count && turn->n < BUFFER_BYTES && r.count < 1024) {
		const struct sl_save_tensor *tensor = file->tensors[s->tensor];
		uint64_t done = s->at - file->header_bytes - tensor->begin;
		size_t n = SL_MIN(tensor->bytes - done, BUFFER_BYTES - turn->n);
		int rc = 0;

		if (turn->n && tensor->from != from)
			break;
		from = tensor->from;
		if (from && n)
			s->extents[r.count++] = (struct sluice_extent){turn->data + turn->n, n,
			                                               tensor->offset + done};
		else if (n)
			rc = sluice_copy(turn->data + turn->n, (const char *)tensor->data + done,
			                 n);
		if (rc)
			return rc;
		turn->n += n;
		s->at += n;
		s->tensor += done + n == tensor->bytes;
	}
	r.kind = SLUICE_READ;
	r.extents = s->extents;
	return r.count ? sluice_submit(from, &r, &turn->read) : 0;
}

/* Takes the bytes of the next turn, and begins to write them. */
static int stream_write_turn(struct save_stream *s)
{
	struct save_turn *turn = &s->turns[s->written++ % BUFFERS];
	int rc = turn->read ? stream_finish(s, &turn->read, turn->n) : 0;

	if (!rc && s->sha && !EVP_DigestUpdate(s->sha, turn->data, turn->n))
		rc = sl_fail(-EIO, "libcrypto cannot compute SHA-256");
	if (!rc)
		rc = sluice_write(s->to, turn->data, turn->n, turn->at, &turn->write);
	return rc;
}

static int stream_run(struct save_stream *s)
{
	uint64_t end = s->file->header_bytes + s->file->data;
	int rc = 0;

	while (!rc && (s->at < end || s->written < s->begun)) {
		if (s->at < end) {
			struct save_turn *turn = &s->turns[s->begun % BUFFERS];

			rc = turn->write ? stream_finish(s, &turn->write, turn->n) : 0;
			atomic_store(&s->file->moved, turn->at);
			if (!rc)
				rc = stream_fill_turn(s, turn);
			s->begun += !rc;
		}
		if (!rc && (s->at == end || s->begun - s->written > AHEAD))
			rc = stream_write_turn(s);
		if (!rc && atomic_load(s->stop))
			rc = sl_fail(-ECANCELED, "the save was cancelled");
	}
	return rc;
}

/* Waits for the writes in flight; after an error ends all operations. Returns rc, or the first
 * error of a write. */
static int stream_end(struct save_stream *s, int rc)
{
	char *message;

	for (uint64_t i = 0; !rc && i < BUFFERS; i++) {
		struct save_turn *turn = &s->turns[(s->begun + i) % BUFFERS];

		rc = turn->write ? stream_finish(s, &turn->write, turn->n) : 0;
	}
	message = rc ? strdup(sluice_last_message()) : NULL;
	for (unsigned i = 0; rc && i < 2 * BUFFERS; i++) {
		sluice_op *op = i % 2 ? s->turns[i / 2].write : s->turns[i / 2].read;

		if (op) {
			sluice_cancel(op);
			sluice_wait(op, -1);
			sluice_op_free(op);
		}
	}
	rc = sl_fail_with(rc, message);
	free(message);
	return rc;
}

int sl_save_stream(struct sl_save_file *file, sluice_file *to, bool digest,
                   const _Atomic bool *stop)
{
	struct save_stream *s = calloc(1, sizeof(*s));
	struct sl_lanes lanes = {0};
	int device = -1, rc;

	if (!s)
		return sl_fail(-ENOMEM, "no memory");
	*s = (struct save_stream){.to = to, .file = file, .stop = stop};
	for (size_t i = 0; device < 0 && i < file->count; i++)
		device = file->tensors[i]->device;
	rc = sl_lanes_open(&lanes, device, BUFFERS, BUFFER_BYTES);
	for (unsigned i = 0; !rc && i < BUFFERS; i++)
		s->turns[i].data = lanes.memory + i * BUFFER_BYTES;
	if (!rc && digest) {
		s->sha = EVP_MD_CTX_new();
		if (!s->sha || !EVP_DigestInit_ex(s->sha, EVP_sha256(), NULL))
			rc = sl_fail(-ENOMEM, "libcrypto cannot compute SHA-256");
	}
	if (!rc)
		rc = stream_end(s, stream_run(s));
	if (!rc && digest && !EVP_DigestFinal_ex(s->sha, file->digest.bytes, NULL))
		rc = sl_fail(-EIO, "libcrypto cannot compute SHA-256");
	if (!rc && digest)
		file->digest.kind = SLUICE_SHA256;
	if (!rc)
		atomic_store(&file->moved, file->header_bytes + file->data);
	EVP_MD_CTX_free(s->sha);
	sl_lanes_close(&lanes);
	free(s);
	return rc;
}
