/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of whole files
 *
 * Reads a file front to back, ahead of the computation, through a few buffers that are used in
 * turn. A turn is the bytes that are in a buffer at a time. SHA-256 is libcrypto's, which takes the
 * instructions that the processor has for it.
 *
 * Threads: the caller's starts reads, waits for them, and hashes.
 */
#include "tensors/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <openssl/evp.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/io.h"

#define STOP_MS 50 /* a wait looks at *stop so often */
/* Of sluice_file_digest(). */
#define FILE_BUFFER  ((size_t)8 << 20)
#define FILE_BUFFERS 8
#define SHA256_BYTES 32

/* Turns are counted from 0, and turn n is in buffer n % read->buffers. */
struct digest_run {
	const struct sl_digest_read *read;
	uint64_t turns; /* of the file; UINT64_MAX: not known yet */
	uint64_t started, ended;
	uint64_t length; /* bytes that have arrived */
	EVP_MD_CTX *sha; /* of SHA-256, else NULL */
	XXH3_state_t xxh3;
	sluice_op *reads[SL_DIGEST_BUFFERS]; /* into the buffers, or NULL */
};

static int run_stopped(const struct digest_run *run)
{
	const _Atomic bool *stop = run->read->stop;

	return stop && atomic_load(stop) ? sl_fail(-ECANCELED, "the read was cancelled") : 0;
}

/* Starts reads into all free buffers. */
static int run_start_reads(struct digest_run *run)
{
	const struct sl_digest_read *read = run->read;
	/* If the length is unknown, the end of a read is the start of the next. */
	unsigned ahead = read->length == UINT64_MAX ? 1 : read->buffers;
	int rc = 0;

	while (!rc && run->started < run->turns && run->started - run->ended < ahead) {
		unsigned buffer = run->started % read->buffers;
		uint64_t offset = run->started * read->buffer_bytes;
		size_t n = SL_MIN(read->length - offset, read->buffer_bytes);

		rc = sluice_read(read->file, read->memory + buffer * read->buffer_bytes, n, offset,
		                 &run->reads[buffer]);
		run->started += !rc;
	}
	return rc;
}

/* Waits for the next read. Returns its bytes, or an error. */
static int64_t run_take_read(struct digest_run *run, sluice_op **op)
{
	const struct sl_digest_read *read = run->read;
	uint64_t offset = run->ended * read->buffer_bytes;
	int64_t n = sluice_wait(*op, STOP_MS);
	int rc = 0;

	while (n == -EINPROGRESS && !(rc = run_stopped(run)))
		n = sluice_wait(*op, STOP_MS);
	if (rc)
		return rc;
	if (n < 0)
		return sl_fail((int)n, "%s", sluice_op_message(*op));
	sluice_op_free(*op);
	*op = NULL;
	run->length += n;
	if (read->moved)
		atomic_fetch_add(read->moved, n);
	if ((size_t)n == read->buffer_bytes || run->length == read->length)
		return n;
	if (read->length != UINT64_MAX)
		return sl_fail(-EIO, "'%s' ends at byte %" PRIu64 ", and not at %" PRIu64,
		               sl_file_name(read->file), offset + n, read->length);
	run->turns = run->ended + 1;
	return n;
}

static int run_hash(struct digest_run *run, const char *data, size_t n)
{
	if (run->sha)
		return EVP_DigestUpdate(run->sha, data, n)
		               ? 0
		               : sl_fail(-EIO, "libcrypto cannot compute SHA-256");
	XXH3_128bits_update(&run->xxh3, data, n);
	return 0;
}

/* Takes the bytes of the next turn, and gives its buffer back. */
static int run_turn(struct digest_run *run)
{
	const struct sl_digest_read *read = run->read;
	unsigned buffer = run->ended % read->buffers;
	const char *data = read->memory + buffer * read->buffer_bytes;
	int64_t n = run_take_read(run, &run->reads[buffer]);
	int rc = n < 0 ? (int)n : 0;

	if (!rc && read->arrived)
		rc = read->arrived(read->argument, buffer, data, n,
		                   run->ended * read->buffer_bytes);
	if (!rc)
		rc = run_hash(run, data, n);
	if (!rc && read->release)
		rc = read->release(read->argument, buffer);
	run->ended++;
	return rc;
}

/* Ends the reads that are in flight after an error. Waits for them. */
static void run_end_reads(struct digest_run *run)
{
	for (unsigned i = 0; i < run->read->buffers; i++)
		if (run->reads[i])
			sluice_cancel(run->reads[i]);
	for (unsigned i = 0; i < run->read->buffers; i++) {
		if (run->reads[i])
			sluice_wait(run->reads[i], -1);
		sluice_op_free(run->reads[i]);
	}
}

/* Sets the digest of all bytes. */
static int run_result(struct digest_run *run, unsigned char out[SHA256_BYTES])
{
	XXH128_canonical_t value;

	if (run->sha)
		return EVP_DigestFinal_ex(run->sha, out, NULL)
		               ? 0
		               : sl_fail(-EIO, "libcrypto cannot end SHA-256");
	XXH128_canonicalFromHash(&value, XXH3_128bits_digest(&run->xxh3));
	memcpy(out, &value, sizeof(value));
	return 0;
}

int sl_digest_compute(struct sl_digest_read *read, struct sluice_digest *out)
{
	struct sluice_digest digest = {read->kind, {0}};
	struct digest_run run = {.read = read};
	char *message = NULL;
	int rc = 0;

	if (read->kind != SLUICE_SHA256 && read->kind != SLUICE_XXH3_128)
		return sl_fail(-EINVAL, "%d is no kind of digest", read->kind);
	if (read->kind == SLUICE_SHA256) {
		run.sha = EVP_MD_CTX_new();
		if (!run.sha || !EVP_DigestInit_ex(run.sha, EVP_sha256(), NULL))
			rc = sl_fail(-ENOMEM, "libcrypto cannot begin SHA-256");
	}
	run.turns = read->length / read->buffer_bytes + (read->length % read->buffer_bytes > 0);
	if (read->length == UINT64_MAX)
		run.turns = UINT64_MAX;
	XXH3_128bits_reset(&run.xxh3);
	while (!rc && run.ended < run.turns) {
		rc = run_stopped(&run);
		if (!rc)
			rc = run_start_reads(&run);
		if (!rc)
			rc = run_turn(&run);
	}
	if (!rc)
		rc = run_result(&run, digest.bytes);
	/* A cancel may have a sentence of its own. */
	if (rc)
		message = strdup(sluice_last_message());
	run_end_reads(&run);
	if (!sl_fail_with(rc, message))
		*out = digest;
	free(message);
	EVP_MD_CTX_free(run.sha);
	return rc;
}

/* -------------------------------------------------------------------------------------- digests */

static size_t digest_bytes(const struct sluice_digest *digest)
{
	return digest->kind == SLUICE_SHA256 ? SHA256_BYTES : sizeof(XXH128_canonical_t);
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

int sluice_file_digest(sluice_file *file, int kind, struct sluice_digest *out)
{
	struct sluice_file_info info = {.size = sizeof(info)};
	struct sl_digest_read read = {.file = file, .kind = kind, .buffer_bytes = FILE_BUFFER};

	if (!file || !out)
		return sl_fail(-EINVAL, "sluice_file_digest: %s is NULL", file ? "out" : "file");
	int rc = sluice_stat(file, &info);
	if (rc)
		return rc;
	read.length = info.flags & SLUICE_STAT_SIZE_UNKNOWN ? UINT64_MAX : info.length;
	read.buffers = SL_MAX(SL_MIN((read.length - 1) / FILE_BUFFER + 1, FILE_BUFFERS), 1);
	size_t bytes = read.buffers * read.buffer_bytes;
	read.memory = sl_private_map(bytes);
	if (!read.memory)
		return sl_fail(-ENOMEM, "no memory to compute the digest of '%s'",
		               sl_file_name(file));
	rc = sl_digest_compute(&read, out);
	munmap(read.memory, bytes);
	return rc;
}
