/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving bytes to and from a blob on a device
 *
 * Between the device and host memory, the engine's staged operations do the work, with host memory
 * as the file: offset = address, and a read of the blob is a write to this file. So slots, copiers
 * and workers do what they do for any file. Memory of the same device is copied by its copier, and
 * memory of another device through a host buffer in two such steps. Each step ends on a thread of
 * the engine, which starts the next.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "store/blob_file.h"

/* ---------------------------------------------------------------------- host memory as a file */

static void host_memory_limits(struct sl_backend *backend, struct sl_limits *out)
{
	const struct sl_settings *settings = &sl_host_file_of(backend)->core->settings;

	*out = (struct sl_limits){.piece_bytes = settings->piece_bytes,
	                          .depth = settings->operation_depth};
}

static char *host_memory_identity(struct sl_backend *backend)
{
	return sl_format("memory:%p", (void *)backend);
}

static void host_memory_close(struct sl_backend *backend)
{
	free(sl_host_file_of(backend));
}

static const struct sl_backend_ops host_memory_ops = {
	.limits = host_memory_limits,
	.identity = host_memory_identity,
	.submit = sl_host_file_submit,
	.close = host_memory_close,
};

/* -------------------------------------------------------------------------------- open, close */

struct sl_blob_mover {
	struct sluice_context *ctx;
	struct sl_device *device; /* has the blob */
	struct sluice_file *host_memory;
};

void sl_blob_mover_close(struct sl_blob_mover *mover)
{
	if (!mover)
		return;
	sl_context_enter(mover->ctx);
	sluice_discard(mover->host_memory);
	free(mover);
}

int sl_blob_mover_open(struct sl_core *core, int device, struct sl_blob_mover **out)
{
	struct sluice_context *ctx = sl_context_of(core);
	struct sl_blob_mover *mover = calloc(1, sizeof(*mover));
	/* begins at address 0 */
	struct sl_host_file *host_memory = calloc(1, sizeof(*host_memory));
	int rc;

	if (!mover || !host_memory) {
		free(host_memory);
		free(mover);
		return sl_fail(-ENOMEM, "no memory");
	}
	host_memory->base.ops = &host_memory_ops;
	host_memory->core = core;
	mover->ctx = ctx;
	mover->device = sl_device_find((unsigned)device);
	rc = sl_file_wrap(ctx, "memory", SLUICE_OPEN_READ | SLUICE_OPEN_WRITE, &host_memory->base,
	                  &mover->host_memory);
	if (rc) {
		free(mover);
		return rc;
	}
	/* This file is a part of the blob's file, and not counted as another open file. */
	sl_context_leave(ctx);
	*out = mover;
	return 0;
}

/* -------------------------------------------------------------------------------------- moves */

/* A piece under way. Only the thread that ends a step accesses it until the next step has begun. */
struct blob_move {
	struct sl_blob_mover *mover;
	struct sl_piece *piece;
	char *inside; /* address in the blob */
	char *bounce; /* a host buffer between two devices; or NULL */
	bool arrived; /* the bytes are in the bounce buffer */
	bool given;   /* the copier has the only copy */
	struct sl_copy_job copy;
};

static void move_end(struct blob_move *move, int error, const char *message)
{
	struct sl_piece *piece = move->piece;

	free(move->bounce);
	free(move);
	piece->error = error;
	piece->moved = error ? 0 : piece->length;
	piece->message = message ? strdup(message) : NULL;
	sl_piece_done(piece);
}

static void move_step_done(struct sluice_op *op);

/*
 * Starts a step: the only step between device and host; or, between two devices, the first (from
 * the source) or the second (to the destination).
 */
static void move_start(struct blob_move *move)
{
	struct sl_piece *piece = move->piece;
	bool in_blob = !move->bounce || move->arrived == piece->write;
	bool to_device = move->bounce ? move->arrived : piece->write;
	char *host = move->bounce ? move->bounce : piece->data;
	struct sluice_extent extent = {in_blob ? move->inside : piece->data, piece->length,
	                               (uintptr_t)host};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	struct sl_device *device = in_blob ? move->mover->device : piece->device;
	struct sluice_context *ctx = move->mover->ctx;
	int rc;

	r.kind = to_device ? SLUICE_READ : SLUICE_WRITE;
	r.extents = &extent;
	r.count = 1;
	r.user = move;
	rc = sl_op_submit_staged(move->mover->host_memory, sl_context_staging_of(ctx, device), &r,
	                         move_step_done);
	if (rc)
		move_end(move, rc, sluice_last_message());
}

static void move_step_done(struct sluice_op *op)
{
	struct blob_move *move = sl_op_user(op);

	if (sl_op_result(op) < 0)
		move_end(move, (int)sl_op_result(op), sl_op_message(op));
	else if (!move->bounce || move->arrived)
		move_end(move, 0, NULL);
	else if (atomic_load_explicit(&move->piece->cancelled, memory_order_relaxed))
		move_end(move, -ECANCELED, NULL);
	else {
		move->arrived = true;
		move_start(move);
	}
}

static bool mover_copy_next(struct sl_copy_job *copy, struct sl_command *out)
{
	struct blob_move *move = SL_CONTAINER(copy, struct blob_move, copy);
	struct sl_piece *piece = move->piece;

	if (move->given)
		return false;
	move->given = true;
	out->kind = SL_COPY;
	out->copy.to = piece->write ? move->inside : piece->data;
	out->copy.from = piece->write ? piece->data : move->inside;
	out->copy.length = piece->length;
	return true;
}

static void mover_copy_done(struct sl_copy_job *copy, int error)
{
	move_end(SL_CONTAINER(copy, struct blob_move, copy), error, NULL);
}

void sl_blob_mover_submit(struct sl_blob_mover *mover, struct sl_piece *piece, char *inside)
{
	struct blob_move *move = calloc(1, sizeof(*move));
	bool bounces = piece->device && piece->device != mover->device;
	bool cancelled = atomic_load_explicit(&piece->cancelled, memory_order_relaxed);

	if (move && bounces)
		move->bounce = malloc(piece->length);
	if (!move || cancelled || (bounces && !move->bounce)) {
		free(move ? move->bounce : NULL);
		free(move);
		piece->error = cancelled ? -ECANCELED : -ENOMEM;
		sl_piece_done(piece);
		return;
	}
	move->mover = mover;
	move->piece = piece;
	move->inside = inside;
	if (piece->device != mover->device) {
		move_start(move);
		return;
	}
	move->copy.to_device = piece->write;
	move->copy.bytes = piece->length;
	move->copy.next = mover_copy_next;
	move->copy.done = mover_copy_done;
	sl_copier_submit(sl_context_staging_of(mover->ctx, mover->device), &move->copy);
}

int sl_blob_mover_enqueue(struct sl_blob_mover *mover, sluice_stream stream,
                          const struct sl_transfer *transfer, char *inside, bool write)
{
	struct sl_device *device = mover->device;
	struct sl_command command = {.kind = SL_COPY};
	size_t taken;

	command.copy.to = write ? inside : transfer->data;
	command.copy.from = write ? transfer->data : inside;
	command.copy.length = transfer->length;
	int rc = device->ops->enqueue(device, stream, &command, 1, &taken);
	return rc ? sl_fail(rc, "%s did not take a copy: %s", device->name, sl_error_text(rc)) : 0;
}
