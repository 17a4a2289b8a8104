/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collections as files
 *
 * The bytes of a collection are a .safetensors file: a header in the owner, then the tensors, which
 * lie in parts, with gaps. A worker copies what is in host memory; bytes on a device are moved by
 * blob_mover.c, one run after the other. Each step ends on a thread of the engine, which starts the
 * next. A view is fixed once it is made; any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collection/collection.h"
#include "io/io.h"
#include "store/blob_file.h"

struct sl_collection_view {
	struct sl_core *core;
	const char *header; /* of the file, in the owner */
	sluice_collection *of;
	struct sl_blob_mover *movers[SLUICE_BLOB_PARTS_MOST]; /* NULL: on the host */
};

static int view_open_movers(struct sl_collection_view *view, sluice_blob *owner)
{
	sluice_blob *part;
	int rc = 0;

	for (unsigned i = 0; !rc && i < owner->part_count; i++) {
		rc = sluice_blob_part(owner, i, &part);
		if (rc || part->device < 0)
			continue;
		/* It needs slots, which an operation on the device would have started. */
		rc = sluice_context_staging(sl_context_of(view->core), part->device, NULL, 0);
		if (!rc)
			rc = sl_blob_mover_open(view->core, part->device, &view->movers[i]);
	}
	return rc;
}

int sl_collection_view_open(struct sl_core *core, sluice_blob *owner,
                            struct sl_collection_view **out)
{
	struct sl_collection_view *view = calloc(1, sizeof(*view));
	int rc = view ? 0 : sl_fail(-ENOMEM, "no memory");

	if (!rc) {
		view->core = core;
		view->header = sluice_blob_data(owner);
		rc = view_open_movers(view, owner);
	}
	if (!rc)
		rc = sl_collection_wrap(owner, view->header, owner->bytes, &view->of);
	if (rc)
		sl_collection_view_close(view);
	else
		*out = view;
	return rc;
}

void sl_collection_view_close(struct sl_collection_view *view)
{
	if (!view)
		return;
	for (unsigned i = 0; i < SLUICE_BLOB_PARTS_MOST; i++)
		sl_blob_mover_close(view->movers[i]);
	sluice_collection_release(view->of);
	free(view);
}

uint64_t sl_collection_view_bytes(const struct sl_collection_view *view)
{
	return view->of->table.header + view->of->table.data;
}

/* Finds the bytes at an offset in the file: their address, length, and mover (NULL: the host). */
static char *view_at(const struct sl_collection_view *view, uint64_t offset,
                     struct sl_blob_mover **mover, size_t *length)
{
	const struct sl_table *table = &view->of->table;

	*mover = NULL;
	if (offset < table->header) {
		*length = table->header - offset;
		return (char *)view->header + offset;
	}
	offset -= table->header;
	const struct sl_table_row *row = &table->rows[sl_table_row_at(table, offset)];
	*mover = view->movers[row->part];
	*length = row->bytes - (offset - row->begin);
	return view->of->data[row->part] + row->offset + (offset - row->begin);
}

/*
 * Copies bytes on the host, from *done in a piece on, up to the end (returns NULL) or to a
 * run on a device: returns the address, and the length in *run.
 */
static char *view_copy(const struct sl_collection_view *view, char *data, size_t length,
                       uint64_t offset, size_t *done, struct sl_blob_mover **mover, size_t *run)
{
	for (; *done < length; *done += *run) {
		char *from = view_at(view, offset + *done, mover, run);

		*run = SL_MIN(*run, length - *done);
		if (*mover)
			return from;
		memcpy(data + *done, from, *run);
	}
	return NULL;
}

int64_t sl_collection_view_read_now(const struct sl_collection_view *view, char *data,
                                    size_t length, uint64_t offset)
{
	struct sl_blob_mover *mover;
	size_t done = 0, run;

	return view_copy(view, data, length, offset, &done, &mover, &run) ? -EAGAIN
	                                                                  : (int64_t)length;
}

/* ------------------------------------------------------------------------------------- pieces */

/* A piece under way. Only the thread that ends a step accesses it until the next has begun. */
struct view_move {
	const struct sl_collection_view *view;
	struct sl_piece *piece;
	size_t done;         /* bytes of it */
	struct sl_piece run; /* of a device */
	struct sl_task task;
};

static void view_move_end(struct view_move *move, int error, char *message)
{
	struct sl_piece *piece = move->piece;

	free(move);
	piece->error = error;
	piece->message = message;
	piece->moved = error ? 0 : piece->length;
	sl_piece_done(piece);
}

static void view_run_done(struct sl_piece *run)
{
	struct view_move *move = SL_CONTAINER(run, struct view_move, run);

	if (run->error) {
		view_move_end(move, run->error, run->message);
		return;
	}
	move->done += run->length;
	/* On a worker, so that runs do not call each other. */
	sl_pool_submit(move->view->core->pool, &move->task);
}

static void view_move_step(struct sl_task *task)
{
	struct view_move *move = SL_CONTAINER(task, struct view_move, task);
	struct sl_piece *piece = move->piece;
	struct sl_blob_mover *mover;
	char *from;
	size_t n;

	if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed)) {
		view_move_end(move, -ECANCELED, NULL);
		return;
	}
	from = view_copy(move->view, piece->data, piece->length, piece->offset, &move->done, &mover,
	                 &n);
	if (!from) {
		view_move_end(move, 0, NULL);
		return;
	}
	move->run = (struct sl_piece){
		.data = piece->data + move->done, .length = n, .done = view_run_done};
	sl_blob_mover_submit(mover, &move->run, from);
}

void sl_collection_view_submit(const struct sl_collection_view *view, struct sl_piece *piece)
{
	struct view_move *move = calloc(1, sizeof(*move));

	if (!move) {
		piece->error = -ENOMEM;
		sl_piece_done(piece);
		return;
	}
	move->view = view;
	move->piece = piece;
	move->task.home = piece->offset / piece->length;
	move->task.urgent = piece->urgent;
	move->task.run = view_move_step;
	sl_pool_submit(view->core->pool, &move->task);
}
