/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs as files (store://)
 *
 * The backend of blob URIs. The bytes are memory: workers of the engine copy them;
 * device/blob_mover.c moves those of a blob on a device. A copy between a blob and another file
 * needs no such copy, because the other backend reads or writes the blob's memory. Runs on the
 * threads that a backend runs on (backend/backend.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "io/io.h"
#include "store/blob_file.h"

/* Workers share a copy in pieces this large: for less none is worth waking. */
#define LEAST_PIECE ((size_t)128 << 10)
/* A piece of a blob on a device is larger by this factor, and so many are under way at a time. */
#define DEVICE_PIECES 8
#define DEVICE_DEPTH  4u

/* ----------------------------------------------------------------------------- the connection */

/* A connection, which all files of one daemon share. */
struct shared_store {
	struct sl_list link;
	sluice_store *store;
	unsigned files;
	char path[108];
};

/* Guards the list and the counts. Not held while connecting. */
static struct sl_mutex connections_mutex = SL_MUTEX_INIT;
static struct sl_list connections = {&connections, &connections};

static int shared_store_acquire(const char *socket, struct shared_store **out)
{
	struct shared_store *made = calloc(1, sizeof(*made)), *found = NULL;
	int rc = made ? sl_store_path(socket, made->path) : sl_fail(-ENOMEM, "no memory");

	sl_fork_hold(&connections_mutex);
	while (!rc && !found) {
		sl_mutex_lock(&connections_mutex);
		sl_list_each_of (shared, &connections, struct shared_store, link)
			if (!strcmp(shared->path, made->path) &&
			    sl_process_is(shared->store->process))
				found = shared;
		/* Another thread may have connected meanwhile. */
		if (!found && made->store) {
			sl_list_append(&connections, &made->link);
			found = made;
		}
		if (found)
			found->files++;
		sl_mutex_unlock(&connections_mutex);
		if (!found)
			rc = sluice_store_open(made->path, NULL, &made->store);
	}
	if (made && made != found) {
		sluice_store_close(made->store);
		free(made);
	}
	*out = found;
	return rc;
}

static void shared_store_release(struct shared_store *shared)
{
	sl_mutex_lock(&connections_mutex);
	bool last = !--shared->files;
	if (last)
		sl_list_remove(&shared->link);
	sl_mutex_unlock(&connections_mutex);
	if (!last)
		return;
	sluice_store_close(shared->store);
	free(shared);
}

/* -------------------------------------------------------------------------------- open, close */

struct blob_file {
	struct sl_host_file host; /* with a mover: of memory of a device */
	struct shared_store *shared;
	sluice_blob *blob;
	uint64_t bytes;
	int device;                            /* that has the memory; -1: the host */
	struct sl_blob_mover *mover;           /* NULL: host memory */
	struct sl_collection_view *collection; /* NULL: it is none */
	bool made;                             /* created here, and sealed by commit */
};

static struct blob_file *blob_file_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct blob_file, host.base);
}

static int blob_file_check_options(const char *uri, const struct sl_blob_uri *b,
                                   const struct sluice_open_options *o)
{
	if (o->backend)
		return sl_fail(-EINVAL, "options.backend: '%s' is a blob, and needs none",
		               o->backend);
	if (!(o->flags & SLUICE_OPEN_WRITE))
		return b->to_write ? sl_fail(-EINVAL,
		                             "'%s': device, cache, pin and alone are for a blob "
		                             "to be made",
		                             uri)
		                   : 0;
	if (b->id || b->wait_ms || b->origin)
		return sl_fail(-EINVAL, "'%s': id, wait_ms and origin are for a blob to be read",
		               uri);
	if (!(o->flags & SLUICE_OPEN_CREATE))
		return sl_fail(-EPERM,
		               "'%s': a blob does not change; open it with CREATE or REPLACE, "
		               "which makes one",
		               uri);
	if (o->flags & SLUICE_OPEN_DURABLE)
		return sl_fail(-ENOTSUP, "'%s': a blob is memory, which nothing makes durable",
		               uri);
	if (!o->expected_size && b->device >= 0)
		return sl_fail(-EINVAL,
		               "'%s': the size of a blob on a device, 1 byte or more, is said when "
		               "it is opened (expected_size)",
		               uri);
	return 0;
}

/* A blob has a byte or more, so a file without bytes is an array without elements, as in Python. */
static const struct sluice_blob_metadata no_elements = {
	.size = sizeof(no_elements), .type = SLUICE_UINT8, .rank = 1};

static uint64_t blob_file_length(const sluice_blob *blob)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	uint64_t size = sluice_blob_size(blob);

	if (size > 1 || sluice_blob_get_metadata(blob, &m) || !m.type)
		return size;
	for (unsigned i = 0; i < m.rank; i++)
		if (!m.shape[i])
			return 0;
	return size;
}

static int blob_file_create(struct blob_file *file, const struct sl_blob_uri *b,
                            const struct sluice_open_options *o)
{
	struct sluice_blob_options options = SLUICE_BLOB_OPTIONS_INIT;
	bool replaces = o->flags & SLUICE_OPEN_REPLACE && !(o->flags & SLUICE_OPEN_EXCLUSIVE);

	/* RESERVE reports a name that is taken before any byte is moved. */
	options.flags = b->flags | (replaces ? SLUICE_BLOB_REPLACE : SLUICE_BLOB_RESERVE);
	options.metadata = o->expected_size ? NULL : &no_elements;
	int rc = sluice_blob_create(file->shared->store, b->name, SL_MAX(o->expected_size, 1),
	                            b->device, &options, &file->blob);
	if (rc)
		return rc;
	file->made = true;
	file->host.start = (uintptr_t)sluice_blob_mutable_data(file->blob);
	return 0;
}

static int blob_file_get(struct blob_file *file, const struct sl_blob_uri *b,
                         const struct sluice_open_options *options)
{
	struct sluice_origin origin = SLUICE_ORIGIN_INIT;
	sluice_store *store = file->shared->store;

	origin.ctx = sl_context_of(file->host.core);
	origin.uri = b->origin;
	origin.open = options;
	int rc = b->id ? sluice_blob_get_id(store, b->id, b->wait_ms, &file->blob)
	               : sluice_blob_fetch(store, &origin, b->name, b->wait_ms, &file->blob);

	if (!rc)
		file->host.start = (uintptr_t)sluice_blob_data(file->blob);
	return rc;
}

/* Releases the blob, which aborts it if it was not sealed. */
static void blob_close(struct sl_backend *backend)
{
	struct blob_file *file = blob_file_of(backend);

	sl_blob_mover_close(file->mover);
	if (file->collection)
		sl_collection_view_close(file->collection);
	else
		sluice_blob_release(file->blob);
	if (file->shared)
		shared_store_release(file->shared);
	free(file);
}

static int blob_open(struct sl_core *core, const struct sl_uri *uri,
                     const struct sluice_open_options *options, struct sl_backend **out)
{
	struct sl_blob_uri b;
	int rc = sl_blob_uri_parse(uri->path, &b);

	if (rc)
		return rc;
	struct blob_file *file = calloc(1, sizeof(*file));
	rc = file ? blob_file_check_options(uri->path, &b, options) : sl_fail(-ENOMEM, "no memory");
	if (!rc) {
		file->host.base.ops = &sl_blob_ops;
		file->host.core = core;
		rc = shared_store_acquire(b.socket, &file->shared);
	}
	if (!rc)
		rc = options->flags & SLUICE_OPEN_WRITE ? blob_file_create(file, &b, options)
		                                        : blob_file_get(file, &b, options);
	free(b.text);
	if (!rc) {
		file->bytes = blob_file_length(file->blob);
		file->device = sluice_blob_device(file->blob);
		if (file->device >= 0)
			rc = sl_blob_mover_open(core, file->device, &file->mover);
		else if (sluice_blob_parts(file->blob))
			rc = sl_collection_view_open(core, file->blob, &file->collection);
		if (file->collection)
			file->bytes = sl_collection_view_bytes(file->collection);
	}
	if (!rc)
		*out = &file->host.base;
	else if (file)
		blob_close(&file->host.base);
	return rc;
}

static int blob_commit(struct sl_backend *backend)
{
	struct blob_file *file = blob_file_of(backend);

	return file->made ? sluice_blob_seal(file->blob) : 0;
}

/* ---------------------------------------------------------------------------- what it is like */

static void blob_limits(struct sl_backend *backend, struct sl_limits *out)
{
	struct blob_file *file = blob_file_of(backend);
	const struct sl_settings *settings = &file->host.core->settings;

	*out = (struct sl_limits){.piece_bytes = settings->piece_bytes,
	                          .least_piece = SL_MIN(settings->piece_bytes, LEAST_PIECE),
	                          .depth = settings->operation_depth,
	                          .all_or_none = true,
	                          .touches = true};
	if (!file->mover)
		return;
	/* The mover makes an operation of each piece, cuts it, and takes the next meanwhile. */
	out->device = sl_device_find((unsigned)file->device);
	out->piece_bytes *= DEVICE_PIECES;
	out->depth = SL_MIN(out->depth, DEVICE_DEPTH);
}

/* Two files of the same blob by the same connection have its memory at the same address. */
static char *blob_identity(struct sl_backend *backend)
{
	struct blob_file *file = blob_file_of(backend);

	return sl_format("blob %d:%p", file->device, (void *)file->host.start);
}

static int64_t blob_size(struct sl_backend *backend)
{
	return (int64_t)blob_file_of(backend)->bytes;
}

static int blob_stat(struct sl_backend *backend, struct sluice_file_info *out)
{
	struct blob_file *file = blob_file_of(backend);
	uint64_t id = sluice_blob_id(file->blob);

	out->length = out->allocated = file->bytes;
	out->backend = "store";
	if (id)
		snprintf(out->etag, sizeof(out->etag), "%" PRIu64, id);
	if (file->blob->state == SLUICE_BLOB_IS_SEALED && file->blob->view)
		out->modified_ns = sl_record_made_ns(&file->blob->held.record);
	/* That of a collection is not in one piece. */
	out->memory = file->collection ? NULL : (void *)file->host.start;
	out->device = file->device;
	return 0;
}

/* ------------------------------------------------------------------------------- moving bytes */

static char *blob_file_at(const struct blob_file *file, uint64_t offset)
{
	return (char *)(file->host.start + offset);
}

static bool blob_file_ends_before(const struct blob_file *file, uint64_t offset, uint64_t length)
{
	return offset > file->bytes || length > file->bytes - offset;
}

static int64_t blob_read_now(struct sl_backend *backend, void *data, size_t length, uint64_t offset)
{
	struct blob_file *file = blob_file_of(backend);

	/* Reads beyond the end, and of devices, take the usual path. */
	if (file->mover || blob_file_ends_before(file, offset, length))
		return -EAGAIN;
	if (file->collection)
		return sl_collection_view_read_now(file->collection, data, length, offset);
	memcpy(data, blob_file_at(file, offset), length);
	return (int64_t)length;
}

static void blob_piece_run(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);
	char *inside = (char *)(sl_host_file_of(piece->backend)->start + piece->offset);

	if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed)) {
		piece->error = -ECANCELED;
	} else {
		memcpy(piece->write ? inside : piece->data, piece->write ? piece->data : inside,
		       piece->length);
		piece->moved = piece->length;
	}
	sl_piece_done(piece);
}

void sl_host_file_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	struct sl_host_file *file = sl_host_file_of(backend);

	piece->task.home = (file->start ? (uintptr_t)piece->data : piece->offset) / piece->length;
	piece->task.urgent = piece->urgent;
	piece->task.run = blob_piece_run;
	sl_pool_submit(file->core->pool, &piece->task);
}

static void blob_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	struct blob_file *file = blob_file_of(backend);

	if (blob_file_ends_before(file, piece->offset, piece->length)) {
		piece->error = -EFBIG;
		sl_piece_done(piece);
		return;
	}
	if (file->mover) {
		sl_blob_mover_submit(file->mover, piece, blob_file_at(file, piece->offset));
		return;
	}
	if (file->collection) {
		sl_collection_view_submit(file->collection, piece);
		return;
	}
	sl_host_file_submit(backend, piece);
}

/* Only called for a blob on a device. */
static int blob_enqueue(struct sl_backend *backend, struct sl_device *device, sluice_stream stream,
                        struct sl_transfer *transfer, bool write)
{
	struct blob_file *file = blob_file_of(backend);
	uint64_t offset = (uint64_t)transfer->offset;

	(void)device;
	if (blob_file_ends_before(file, offset, transfer->length))
		return sl_fail(write ? -EFBIG : -EIO,
		               "the blob has %" PRIu64 " bytes, and %zu from byte %" PRIu64
		               " on were to be %s",
		               file->bytes, transfer->length, offset, write ? "written" : "read");
	return sl_blob_mover_enqueue(file->mover, stream, transfer, blob_file_at(file, offset),
	                             write);
}

static int blob_passed(struct sl_backend *backend, const struct sl_transfer *transfer, bool write,
                       char **message)
{
	(void)backend, (void)transfer, (void)write, (void)message;
	return 0;
}

static int blob_truncate(struct sl_backend *backend, uint64_t length)
{
	return length == blob_file_of(backend)->bytes ? 0 : -EPERM;
}

static const struct sl_device_moves blob_moves = {
	.enqueue = blob_enqueue,
	.passed = blob_passed,
};

const struct sl_backend_ops sl_blob_ops = {
	.open = blob_open,
	.limits = blob_limits,
	.identity = blob_identity,
	.size = blob_size,
	.stat = blob_stat,
	.read_now = blob_read_now,
	.moves = &blob_moves,
	.submit = blob_submit,
	.truncate = blob_truncate,
	.commit = blob_commit,
	.close = blob_close,
};
