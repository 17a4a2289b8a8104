/* SPDX-License-Identifier: Apache-2.0 */
/* The contract between a staged operation and the route of its bytes. */
#ifndef SL_IO_ROUTE_H
#define SL_IO_ROUTE_H

#include "io/staged/staged.h"

#define SL_BATCH_COMMANDS (2 * SL_SPANS_MOST)
#define SL_BATCH_CHUNKS   32

/* Commands that are to be given to the stream, and where the chunks end in them. */
struct sl_batch {
	struct sluice_op *op;
	struct sl_command commands[SL_BATCH_COMMANDS];
	size_t count;
	struct {
		uint64_t number;
		size_t start, end;
	} chunks[SL_BATCH_CHUNKS];
	unsigned chunk_count;
	uint64_t enqueued; /* chunks in all */
	/* Has commands in the stream, but not the write of its last word; NULL: none. */
	struct sl_slot *unfinished;
};
/* Adds the await, the copies of a chunk, if it has any, and the write of the word. */
void sl_batch_add(struct sl_batch *batch, uint64_t number, struct sl_chunk *chunk);
bool sl_batch_is_full(const struct sl_batch *batch);
/* Gives the commands to the stream. Returns 0 or the driver's error. */
int sl_batch_flush(struct sl_batch *batch);

/* The chunks that are entered and enqueued together, and their commands. */
struct sl_window {
	uint64_t chunks;
	unsigned commands;
	bool more; /* than these */
};

/*
 * A route. The functions run with op->mutex held, unless they say otherwise; those of stream order
 * are NULL for a route that is awaited on the host.
 */
struct sl_route {
	bool on_stream;     /* in stream order: slots have words */
	bool has_memory;    /* slots have memory, and hold chunks */
	bool awaits;        /* a read waits for the stream, too */
	bool stream_stores; /* the stream moves the bytes to and from the file itself */

	/* Required. Begins with sl_staged_begin_locked(), and pumps unless the operation waits for
	 * slots. Takes op->mutex. */
	void (*start)(struct sluice_op *op);
	/* For small reads at submission, or NULL, both: returns the memory of the first slot, NULL if
	 * it is not free, no lock held; and takes the only chunk, which is in it. */
	char *(*memory)(struct sluice_op *op);
	void (*filled)(struct sluice_op *op);
	/* Optional: ends a wait for slots. Takes op->mutex. */
	void (*cancel)(struct sluice_op *op);
	/* Makes op->locked.plan cut the next extent, as sl_staged_next_locked(). Without it there
	 * are no pieces. */
	bool (*next)(struct sluice_op *op);
	/* Required with memory: the slot for a chunk, which may be filled (read) or holds the chunk
	 * (write); NULL: not yet. */
	struct sl_slot_use *(*slot)(struct sluice_op *op, uint64_t number);
	/* Required with memory: storage has done its part of a chunk. */
	void (*chunk_done)(struct sluice_op *op, struct sl_slot_use *use);
	/* Optional: no piece is in flight or to come. Lets the stream pass the last word. */
	void (*finish)(struct sluice_op *op);
	/* Optional: the operation is over. No lock held. */
	void (*end)(struct sluice_op *op);

	/* Required in stream order. Returns the next window: at most so many commands, but for the
	 * first chunk. It ends early if it is more than SL_COMMANDS_MOST. The submitting call, no
	 * lock held. */
	struct sl_window (*window)(struct sl_staged *staged, unsigned most);
	/* Required in stream order. Enqueues a window: the submitting call, with ctx->submission.
	 * Waits for nothing but the driver. Returns 0 or the driver's error. */
	int (*enqueue)(struct sl_batch *batch, const struct sl_window *window);
};

extern const struct sl_route sl_route_copier;    /* memory of a device, awaited on the host */
extern const struct sl_route sl_route_stream;    /* memory of a device, in stream order */
extern const struct sl_route sl_route_direct;    /* host memory in stream order */
extern const struct sl_route sl_route_transfers; /* in stream order, by the backend */

/* start() of a route that needs nothing else. */
void sl_route_start(struct sluice_op *op);
/* next() of the routes with memory: the ranges of the next chunk, once its slot is ready. */
bool sl_route_next_range(struct sluice_op *op) SL_REQUIRES(&op->mutex);

/* The most transfers of an operation: a stream is given all of them together. */
#define SL_TRANSFERS_MOST 64
/* Whether the operation has no more of them. */
bool sl_transfers_fit(const struct sluice_op *op);
/* Makes them. Returns 0, or -ENOMEM with a sentence. */
int sl_transfers_new(struct sl_staged *staged);

#endif
