/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs as files. The bytes are memory: what the engine reads and writes here are copies by its workers, or by
 * blob_device.c, and who has another file at the other end spares the copy, as that reads and writes the memory
 * itself.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "store/blob_file.h"

/* A single copy is shared among the workers, down to what is worth waking one for. */
#define LEAST_PIECE ((size_t)128 << 10)
#define SPREAD      32
/* A blob on a device is moved by so many pieces at once, and so many of these at a time. */
#define DEVICE_PIECES 8
#define DEVICE_DEPTH  4u

/* ------------------------------------------------------------------------------ the connection */

/* The connection that all files of one daemon share. */
struct shared {
	struct sl_list link;
	sluice_store *store;
	unsigned files;
	char path[108];
};

/* Guards the list and the counts. Nobody waits for a daemon while holding it. */
static struct sl_mutex mutex = SL_MUTEX_INIT;
static struct sl_list connections = {&connections, &connections};

static int shared_acquire(const char *socket, struct shared **out)
{
	struct shared *made = calloc(1, sizeof(*made)), *found = NULL;
	int rc = made ? sl_store_path(socket, made->path) : sl_fail(-ENOMEM, "no memory");

	while (!rc && !found) {
		sl_mutex_lock(&mutex);
		sl_list_each (link, &connections)
			if (!strcmp(SL_CONTAINER(link, struct shared, link)->path, made->path))
				found = SL_CONTAINER(link, struct shared, link);
		/* Another thread may have been faster to connect. */
		if (!found && made->store) {
			sl_list_append(&connections, &made->link);
			found = made;
		}
		if (found)
			found->files++;
		sl_mutex_unlock(&mutex);
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

static void shared_release(struct shared *shared)
{
	bool last;

	sl_mutex_lock(&mutex);
	last = !--shared->files;
	if (last)
		sl_list_remove(&shared->link);
	sl_mutex_unlock(&mutex);
	if (!last)
		return;
	sluice_store_close(shared->store);
	free(shared);
}

/* -------------------------------------------------------------------------------- open, close */

struct blob_file {
	struct sl_host_file host; /* or, with a mover, a device's memory */
	struct shared *shared;
	sluice_blob *blob;
	uint64_t bytes;
	int device;                  /* whose memory data is; -1: the host's */
	struct sl_blob_mover *mover; /* of a device's */
	bool made;                   /* here, and sealed by the commit */
};

static struct blob_file *blob_file(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct blob_file, host.base);
}

static int check_options(const char *uri, const struct sl_blob_uri *b,
                         const struct sluice_open_options *o)
{
	if (o->backend)
		return sl_fail(-EINVAL, "options.backend: '%s' is a blob, and needs none",
		               o->backend);
	if (!(o->flags & SLUICE_OPEN_WRITE))
		return b->to_write ? sl_fail(-EINVAL,
		                             "'%s': device, cache, pin and public are for a blob "
		                             "to be made",
		                             uri)
		                   : 0;
	if (b->id || b->wait_ms)
		return sl_fail(-EINVAL, "'%s': id and wait_ms are for a blob to be read", uri);
	if (!(o->flags & SLUICE_OPEN_CREATE))
		return sl_fail(-EPERM,
		               "'%s': a blob does not change; open it with CREATE or REPLACE, "
		               "which makes one",
		               uri);
	if (o->flags & SLUICE_OPEN_DURABLE)
		return sl_fail(-ENOTSUP, "'%s': a blob is memory, which nothing makes durable",
		               uri);
	if (!o->expected_size)
		return sl_fail(-EINVAL,
		               "'%s': a blob's size, 1 byte or more, is said when it is opened "
		               "(expected_size)",
		               uri);
	return 0;
}

static int make_blob(struct blob_file *file, const struct sl_blob_uri *b,
                     const struct sluice_open_options *o)
{
	struct sluice_blob_options options = SLUICE_BLOB_OPTIONS_INIT;
	bool replaces = o->flags & SLUICE_OPEN_REPLACE && !(o->flags & SLUICE_OPEN_EXCLUSIVE);
	int rc;

	/* That the name is taken is said before anything is moved. */
	options.flags = b->flags | (replaces ? SLUICE_BLOB_REPLACE : SLUICE_BLOB_RESERVE);
	rc = sluice_blob_create(file->shared->store, b->name, o->expected_size, b->device, &options,
	                        &file->blob);
	if (rc)
		return rc;
	file->made = true;
	file->host.start = (uintptr_t)sluice_blob_mutable_data(file->blob);
	return 0;
}

static int get_blob(struct blob_file *file, const struct sl_blob_uri *b)
{
	sluice_store *store = file->shared->store;
	int rc = b->id ? sluice_blob_get_id(store, b->id, b->wait_ms, &file->blob)
	               : sluice_blob_get(store, b->name, b->wait_ms, &file->blob);

	if (!rc)
		file->host.start = (uintptr_t)sluice_blob_data(file->blob);
	return rc;
}

/* A blob that was not sealed is aborted by its release. */
static void blob_close(struct sl_backend *backend)
{
	struct blob_file *file = blob_file(backend);

	sl_blob_mover_close(file->mover);
	sluice_blob_release(file->blob);
	if (file->shared)
		shared_release(file->shared);
	free(file);
}

static int blob_open(struct sl_core *core, const struct sl_uri *uri,
                     const struct sluice_open_options *options, struct sl_backend **out)
{
	struct blob_file *file;
	struct sl_blob_uri b;
	int rc = sl_blob_uri_parse(uri->path, &b);

	if (rc)
		return rc;
	file = calloc(1, sizeof(*file));
	rc = file ? check_options(uri->path, &b, options) : sl_fail(-ENOMEM, "no memory");
	if (!rc) {
		file->host.base.ops = &sl_blob_ops;
		file->host.core = core;
		rc = shared_acquire(b.socket, &file->shared);
	}
	if (!rc)
		rc = options->flags & SLUICE_OPEN_WRITE ? make_blob(file, &b, options)
		                                        : get_blob(file, &b);
	free(b.text);
	if (!rc) {
		file->bytes = sluice_blob_size(file->blob);
		file->device = sluice_blob_device(file->blob);
		if (file->device >= 0)
			rc = sl_blob_mover_open(core, file->device, &file->mover);
	}
	if (!rc)
		*out = &file->host.base;
	else if (file)
		blob_close(&file->host.base);
	return rc;
}

static int blob_commit(struct sl_backend *backend)
{
	struct blob_file *file = blob_file(backend);

	return file->made ? sluice_blob_seal(file->blob) : 0;
}

/* ------------------------------------------------------------------------------ what it is like */

static void blob_limits(struct sl_backend *backend, struct sl_limits *out)
{
	struct blob_file *file = blob_file(backend);
	const struct sl_settings *settings = &file->host.core->settings;

	*out = (struct sl_limits){.piece_bytes = settings->piece_bytes,
	                          .least_piece = SL_MIN(settings->piece_bytes, LEAST_PIECE),
	                          .spread = SPREAD,
	                          .depth = settings->operation_depth,
	                          .all_or_none = true,
	                          .touches = true};
	if (!file->mover)
		return;
	/* Each piece is an operation for what moves it, which cuts it and goes on with the next meanwhile. */
	out->device = sl_device_find((unsigned)file->device);
	out->piece_bytes *= DEVICE_PIECES;
	out->depth = SL_MIN(out->depth, DEVICE_DEPTH);
}

/* Whoever has the same blob by the same connection has it at the same place. */
static char *blob_identity(struct sl_backend *backend)
{
	struct blob_file *file = blob_file(backend);
	char *text;

	return asprintf(&text, "blob %d:%p", file->device, (void *)file->host.start) < 0 ? NULL
	                                                                                 : text;
}

static int64_t blob_size(struct sl_backend *backend)
{
	return (int64_t)blob_file(backend)->bytes;
}

static int blob_stat(struct sl_backend *backend, struct sluice_file_info *out)
{
	struct blob_file *file = blob_file(backend);
	uint64_t id = sluice_blob_id(file->blob);

	out->length = out->allocated = file->bytes;
	out->backend = "store";
	if (id)
		snprintf(out->etag, sizeof(out->etag), "%" PRIu64, id);
	if (file->blob->state == SLUICE_BLOB_IS_SEALED && file->blob->view)
		out->modified_ns = sl_record_made_ns(&file->blob->held.record);
	out->memory = (void *)file->host.start;
	out->device = file->device;
	return 0;
}

/* ------------------------------------------------------------------------------- moving bytes */

static char *at(const struct blob_file *file, uint64_t offset)
{
	return (char *)(file->host.start + offset);
}

static bool reaches_beyond(const struct blob_file *file, uint64_t offset, uint64_t length)
{
	return offset > file->bytes || length > file->bytes - offset;
}

static int64_t blob_read_now(struct sl_backend *backend, void *data, size_t length, uint64_t offset)
{
	struct blob_file *file = blob_file(backend);

	/* What reaches beyond the end goes the long way, as do others that are not had at once. */
	if (file->mover || reaches_beyond(file, offset, length))
		return -EAGAIN;
	memcpy(data, at(file, offset), length);
	return (int64_t)length;
}

static void piece_run(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);
	char *place = (char *)(sl_host_file_of(piece->backend)->start + piece->offset);

	if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed)) {
		piece->error = -ECANCELED;
	} else {
		memcpy(piece->write ? place : piece->data, piece->write ? piece->data : place,
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
	piece->task.run = piece_run;
	sl_pool_submit(file->core->pool, &piece->task);
}

static void blob_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	struct blob_file *file = blob_file(backend);

	if (reaches_beyond(file, piece->offset, piece->length)) {
		piece->error = -EFBIG;
		sl_piece_done(piece);
		return;
	}
	if (file->mover) {
		sl_blob_mover_submit(file->mover, piece, at(file, piece->offset));
		return;
	}
	sl_host_file_submit(backend, piece);
}

/* Of a blob on a device. */
static int blob_enqueue(struct sl_backend *backend, struct sl_device *device, sluice_stream stream,
                        struct sl_transfer *transfer, bool write)
{
	struct blob_file *file = blob_file(backend);
	uint64_t offset = (uint64_t)transfer->offset;

	(void)device;
	if (reaches_beyond(file, offset, transfer->length))
		return sl_fail(write ? -EFBIG : -EIO,
		               "the blob has %" PRIu64 " bytes, and %zu from byte %" PRIu64
		               " on were to be %s",
		               file->bytes, transfer->length, offset, write ? "written" : "read");
	return sl_blob_mover_enqueue(file->mover, stream, transfer, at(file, offset), write);
}

static int blob_passed(struct sl_backend *backend, const struct sl_transfer *transfer, bool write,
                       char **message)
{
	(void)backend, (void)transfer, (void)write, (void)message;
	return 0;
}

static int blob_sync(struct sl_backend *backend)
{
	(void)backend;
	return 0;
}

static int blob_truncate(struct sl_backend *backend, uint64_t length)
{
	return length == blob_file(backend)->bytes ? 0 : -EPERM;
}

const struct sl_backend_ops sl_blob_ops = {
	.open = blob_open,
	.limits = blob_limits,
	.identity = blob_identity,
	.size = blob_size,
	.stat = blob_stat,
	.read_now = blob_read_now,
	.enqueue = blob_enqueue,
	.passed = blob_passed,
	.submit = blob_submit,
	.sync = blob_sync,
	.truncate = blob_truncate,
	.commit = blob_commit,
	.close = blob_close,
};
