/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving bytes to and from a blob that is memory of a device. For host memory the engine has all that is needed,
 * seen from the other side: what is read from the blob is written from its memory to a file, which here is the
 * host's memory, an address being an offset. So slots, copier and workers do what they do for any file. Memory of
 * the same device is copied by the copier at once, and that of another one in two such steps.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "store/blob_file.h"

/* -------------------------------------------------------------------- host memory as a file */

static void space_limits(struct sl_backend *backend, struct sl_limits *out)
{
	const struct sl_settings *settings = &sl_host_file_of(backend)->core->settings;

	*out = (struct sl_limits){.piece_bytes = settings->piece_bytes,
	                          .depth = settings->operation_depth};
}

static char *space_identity(struct sl_backend *backend)
{
	char *text;

	return asprintf(&text, "memory:%p", (void *)backend) < 0 ? NULL : text;
}

static void space_close(struct sl_backend *backend)
{
	free(sl_host_file_of(backend));
}

static const struct sl_backend_ops space_ops = {
	.limits = space_limits,
	.identity = space_identity,
	.submit = sl_host_file_submit,
	.close = space_close,
};

/* -------------------------------------------------------------------------------- open, close */

struct sl_blob_mover {
	struct sluice_context *ctx;
	struct sl_device *device; /* that has the blob */
	struct sluice_file *space;
};

void sl_blob_mover_close(struct sl_blob_mover *mover)
{
	if (!mover)
		return;
	sl_context_enter(mover->ctx);
	sluice_discard(mover->space);
	free(mover);
}

int sl_blob_mover_open(struct sl_core *core, int device, struct sl_blob_mover **out)
{
	struct sluice_context *ctx = sl_context_of(core);
	struct sl_blob_mover *mover = calloc(1, sizeof(*mover));
	struct sl_host_file *space = calloc(1, sizeof(*space)); /* from address 0 on */
	int rc;

	if (!mover || !space) {
		free(space);
		free(mover);
		return sl_fail(-ENOMEM, "no memory");
	}
	space->base.ops = &space_ops;
	space->core = core;
	mover->ctx = ctx;
	mover->device = sl_device_find((unsigned)device);
	rc = sl_file_wrap(ctx, "memory", SLUICE_OPEN_READ | SLUICE_OPEN_WRITE, &space->base,
	                  &mover->space);
	if (rc) {
		free(mover);
		return rc;
	}
	/* It is part of the blob's file, and not one more that a program has open. */
	sl_context_leave(ctx);
	*out = mover;
	return 0;
}

/* -------------------------------------------------------------------------------------- moves */

/* A piece on its way. Whoever ends the step that it is at has it alone. */
struct move {
	struct sl_blob_mover *mover;
	struct sl_piece *piece;
	char *place;  /* in the blob */
	char *bounce; /* between two devices: where the bytes are; or NULL */
	bool arrived; /* they are there */
	bool given;   /* the one copy, to the copier */
	struct sl_copy_job copy;
};

static void end(struct move *move, int error, const char *message)
{
	struct sl_piece *piece = move->piece;

	free(move->bounce);
	free(move);
	piece->error = error;
	piece->moved = error ? 0 : piece->length;
	piece->message = message ? strdup(message) : NULL;
	sl_piece_done(piece);
}

static void step_over(struct sluice_op *op);

/* The only step between memory of a device and the host's; or the first of two, from where the bytes are, or the second, to
 * where they go. */
static void start(struct move *move)
{
	struct sl_piece *piece = move->piece;
	bool in_blob = !move->bounce || move->arrived == piece->write;
	bool to_device = move->bounce ? move->arrived : piece->write;
	char *host = move->bounce ? move->bounce : piece->data;
	struct sluice_extent extent = {in_blob ? move->place : piece->data, piece->length,
	                               (uintptr_t)host};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	struct sl_device *device = in_blob ? move->mover->device : piece->device;
	struct sluice_context *ctx = move->mover->ctx;
	int rc;

	r.kind = to_device ? SLUICE_READ : SLUICE_WRITE;
	r.extents = &extent;
	r.count = 1;
	r.user = move;
	rc = sl_op_submit_staged(move->mover->space, sl_context_staging_of(ctx, device), &r,
	                         step_over);
	if (rc)
		end(move, rc, sluice_last_message());
}

static void step_over(struct sluice_op *op)
{
	struct move *move = sluice_op_user(op);

	if (sl_op_result(op) < 0)
		end(move, (int)sl_op_result(op), sl_op_message(op));
	else if (!move->bounce || move->arrived)
		end(move, 0, NULL);
	else if (atomic_load_explicit(&move->piece->cancelled, memory_order_relaxed))
		end(move, -ECANCELED, NULL);
	else {
		move->arrived = true;
		start(move);
	}
}

static bool copy_next(struct sl_copy_job *copy, struct sl_command *out)
{
	struct move *move = SL_CONTAINER(copy, struct move, copy);
	struct sl_piece *piece = move->piece;

	if (move->given)
		return false;
	move->given = true;
	out->kind = SL_COPY;
	out->copy.to = piece->write ? move->place : piece->data;
	out->copy.from = piece->write ? piece->data : move->place;
	out->copy.length = piece->length;
	return true;
}

static void copy_done(struct sl_copy_job *copy, int error)
{
	end(SL_CONTAINER(copy, struct move, copy), error, NULL);
}

void sl_blob_mover_submit(struct sl_blob_mover *mover, struct sl_piece *piece, char *place)
{
	struct move *move = calloc(1, sizeof(*move));
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
	move->place = place;
	if (piece->device != mover->device) {
		start(move);
		return;
	}
	move->copy.to_device = piece->write;
	move->copy.next = copy_next;
	move->copy.done = copy_done;
	sl_copier_submit(sl_context_staging_of(mover->ctx, mover->device), &move->copy);
}

int sl_blob_mover_enqueue(struct sl_blob_mover *mover, sluice_stream stream,
                          const struct sl_transfer *transfer, char *place, bool write)
{
	struct sl_device *device = mover->device;
	struct sl_command command = {.kind = SL_COPY};
	size_t taken;
	int rc;

	command.copy.to = write ? place : transfer->data;
	command.copy.from = write ? transfer->data : place;
	command.copy.length = transfer->length;
	rc = device->ops->enqueue(device, stream, &command, 1, &taken);
	return rc ? sl_fail(rc, "%s did not take a copy: %s", device->name, sl_error_text(rc)) : 0;
}
