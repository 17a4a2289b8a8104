/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5's own bytes of a remote file. */
#ifndef SL_ARRAY_BLOCKS_H
#define SL_ARRAY_BLOCKS_H

#include "backend/backend.h"
#include "h5file/h5file.h"

#define SL_H5_BLOCKS_BUCKETS 1024
#define SL_PAGE_BYTES        ((uint64_t)4 << 10)
/* The first bytes of a file, often all that HDF5 needs: they may come with the opening. */
#define SL_H5_BLOCKS_FIRST ((uint64_t)256 << 10)
#define SL_HINTS_MOST      4096
#define SL_HINTS_NODE      ((size_t)64 << 10) /* bytes of a node at most */

struct sl_job;

/* Nodes of an index that HDF5 may read next. */
struct sl_hints {
	uint64_t bytes; /* of each node; 0: not known */
	uint64_t wanted[SL_HINTS_MOST];
	size_t wanted_count;
	/* The children of the last node with grandchildren, in their order; from..to: the children
	 * of these were wanted. */
	uint64_t inner[SL_HINTS_MOST];
	size_t inner_count, from, to, ahead;
	/* The children of a node, and the bytes of another beside it. */
	uint64_t children[SL_HINTS_MOST];
	char beside[SL_HINTS_NODE];
};

struct sl_h5_blocks {
	struct sl_h5_bytes source; /* first */
	struct sl_backend *inner;  /* the file; the owner's */
	struct sl_limits limits;
	char *name; /* without secrets */

	/* The thread's that looks at the file. */
	struct sl_list buckets[SL_H5_BLOCKS_BUCKETS]; /* pages by number */
	struct sl_list used;                          /* pages, the last used last */
	size_t count;
	uint64_t missing, missing_bytes; /* in the last copy */
	uint64_t run, run_from, run_end; /* the last fetch: bytes, and where it lies */
	struct sl_hints hints;

	const _Atomic bool *too; /* of the opening that they are for; or NULL */

	struct sl_mutex mutex;
	struct {
		struct sl_list runs;      /* being fetched */
		const struct sl_job *job; /* for which; or NULL */
	} locked SL_GUARDED_BY(&mutex);
};

/* Makes blocks for a file, which stays open until they are freed. Returns 0, or -errno, a sentence:
 * -ENOTSUP if it is not remote, or cannot be read in parts. */
int sl_h5_blocks_new(struct sl_backend *inner, const char *uri, struct sl_h5_blocks **out);
void sl_h5_blocks_free(struct sl_h5_blocks *blocks); /* NULL is allowed */
/* Says for which job bytes are fetched from now on; NULL: for none. */
void sl_h5_blocks_serve(struct sl_h5_blocks *blocks, const struct sl_job *job);
/* Ends fetches for a job that was stopped. Any thread; the caller wakes the backend. */
void sl_h5_blocks_cancel(struct sl_h5_blocks *blocks);

/* Copies bytes; zeros behind the end of the file. Returns false if some are not in memory. */
bool sl_h5_blocks_copy(struct sl_h5_blocks *blocks, uint64_t offset, uint64_t bytes, void *to);
/* Keeps the bytes of a page; the last of the file may have fewer. Returns 0, or -ENOMEM with a
 * sentence. */
int sl_pages_keep(struct sl_h5_blocks *blocks, uint64_t number, const char *bytes, uint64_t n);
bool sl_pages_have(struct sl_h5_blocks *blocks, uint64_t number);
void sl_pages_free(struct sl_h5_blocks *blocks);

/* Takes hints from bytes that HDF5 has read. */
void sl_hints_take(struct sl_h5_blocks *blocks, const char *node, uint64_t offset, uint64_t bytes);
/* Returns the bytes of each wanted node; 0: there is none at the offset. */
uint64_t sl_hints_have(const struct sl_hints *hints, uint64_t offset, uint64_t bytes);

#endif
