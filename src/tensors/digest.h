/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of whole files through buffers of their own, of which a digest is computed. */
#ifndef SL_DIGEST_H
#define SL_DIGEST_H

#include <sluice/tensors.h>

#include "core/core.h"

#define SL_DIGEST_BUFFERS 32 /* at most */
#define SL_DIGEST_TEXT    65

struct sl_digest_read {
	sluice_file *file;
	int kind;            /* of enum sluice_digest_kind */
	uint64_t length;     /* bytes of the file; UINT64_MAX: up to its end, wherever that is */
	char *memory;        /* of all buffers, aligned to a page */
	size_t buffer_bytes; /* a multiple of a page */
	unsigned buffers;
	/*
	 * NULL, or called on the calling thread when bytes of the file are in a buffer, in their
	 * order, and before the buffer is used for others. `release` may wait. After a failure it
	 * is not called for all buffers.
	 */
	int (*arrived)(void *argument, unsigned buffer, const char *data, size_t n,
	               uint64_t offset);
	int (*release)(void *argument, unsigned buffer);
	void *argument;
	_Atomic uint64_t *moved;  /* NULL, or grows by the bytes that are read */
	const _Atomic bool *stop; /* NULL, or ends the read early once set */
};
/*
 * Reads the file and computes its digest. Waits for the reads and the calls above; each wait ends
 * within 50 ms after *stop is set, but for reads that are in the kernel. When it returns no read
 * uses the buffers any more.
 *
 * Returns 0, -ECANCELED, -EINVAL for an unknown kind, -EIO if the file has become shorter, or the
 * error of a read or of a call, all with a sentence.
 */
int sl_digest_compute(struct sl_digest_read *read, struct sluice_digest *out);
/* Writes the digest in hex; returns text. */
const char *sl_digest_format(const struct sluice_digest *digest, char text[SL_DIGEST_TEXT]);
/* Returns whether both are the same digest of the same kind. */
bool sl_digest_equal(const struct sluice_digest *a, const struct sluice_digest *b);

#endif
