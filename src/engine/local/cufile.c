/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local files and GPU memory by cuFile
 *
 * Moves bytes between local files and memory of NVIDIA's GPUs by cuFile, for the backend `cufile`,
 * and for `auto` where the kernel module nvidia-fs is loaded.
 *
 * Threads: operations that are awaited on the host run on a pool of its own, because cuFile calls
 * CUDA's driver. Operations in stream order are enqueued by the submitting call, and cuFile runs
 * them on the caller's stream.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "device/device.h"
#include "local/cufile.h"
#include "local/cufile_api.h"

/* With direct I/O cuFile reads and writes back whole blocks of this size. */
#define BLOCK 4096
/* The time that a running call has to end in when the process ends. */
#define ABANDON_NS INT64_C(1000000000)

/* ---------------------------------------------------------------------------------- the choice */

int sl_cufile_new(struct sl_core *core, struct sl_cufile **out)
{
	if (core->settings.choice == SL_CHOICE_CUFILE && !sl_cufile_load())
		return sl_fail(-ENOSYS, "SLUICE_BACKEND is cufile, but cuFile cannot be used: %s",
		               sl_cufile_missing());
	struct sl_cufile *cufile = calloc(1, sizeof(*cufile));
	if (!cufile)
		return sl_fail(-ENOMEM, "no memory");
	cufile->core = core;
	cufile->module = sl_cufile_has_module();
	sl_mutex_init(&cufile->mutex);
	*out = cufile;
	return 0;
}

/* Returns whether cuFile uses GPUDirect, not read() and a copy (its compatibility mode). */
static bool cufile_has_gpudirect(const struct sl_cufile *cufile)
{
	const struct sl_cufile_api *api = cufile->module ? sl_cufile_open() : NULL;

	return api && api->gpudirect;
}

void sl_cufile_prepare(struct sl_cufile *cufile, const struct sl_device *device)
{
	unsigned choice = cufile->core->settings.choice;

	if (device->kind->cufile &&
	    (choice == SL_CHOICE_CUFILE || (choice == SL_CHOICE_AUTO && cufile->module)))
		sl_cufile_open();
}

/* Loads no library in a process that uses no GPU. */
void sl_cufile_feature(const struct sl_core *core, struct sluice_feature *out)
{
	struct sl_cufile *cufile = core->cufile;

	out->name = "cufile";
	out->remedy = NULL;
	out->effect = "memory of GPUs is read into and written from through pinned memory";
	if (!sl_cufile_has_cuda()) {
		out->detail = "no: there is no driver of CUDA in this process";
		return;
	}
	const struct sl_cufile_api *api = cufile->module ? sl_cufile_open() : sl_cufile_load();
	out->detail = sl_cufile_status();
	if (api && cufile_has_gpudirect(cufile)) {
		out->usable = 1;
		out->effect =
			"local files and memory of GPUs, awaited on the host: without a detour";
	} else if (api) {
		out->usable = core->settings.choice == SL_CHOICE_CUFILE;
		if (out->usable)
			out->effect = "local files and memory of GPUs, awaited on the host: by "
				      "cuFile, through pinned memory of its own";
		out->remedy = "load NVIDIA's kernel module nvidia-fs, where the disk's driver and "
			      "the file system support it";
	}
}

/* ------------------------------------------------------------------------------------- handles */

static int cufile_refused(const struct sl_local *local, CUfileError_t rc)
{
	return sl_fail(
		-ENOTSUP,
		"cuFile does not take '%s': CUfileOpError %d (%s), CUDA %d. It takes files of "
		"file systems that it knows, not tmpfs, on disks of which udev has a record in "
		"/run/udev/data; the backend 'auto' takes all",
		local->path, rc.err, sl_cufile_error(rc.err), rc.cu_err);
}

/* Opens the file again without flags that cuFile refuses. Returns the descriptor or -errno. */
static int cufile_open_again(struct sl_local *local)
{
	int flags = fcntl(local->descriptor, F_GETFL) & O_ACCMODE, descriptor;
	char name[32];

	/* In compatibility mode the page cache serves any offset and length. */
	local->cufile.direct =
		cufile_has_gpudirect(local->core->cufile) && sl_local_direct(local) >= 0;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", local->descriptor);
	descriptor = open(name, flags | O_CLOEXEC | (local->cufile.direct ? O_DIRECT : 0));
	return descriptor < 0 ? sl_fail(-errno, "cannot open '%s' again for cuFile: %s",
	                                local->path, sl_error_text(-errno))
	                      : descriptor;
}

static int cufile_register_descriptor(struct sl_local *local, struct sl_device *device,
                                      int descriptor)
{
	CUfileDescr_t what = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = descriptor};
	int error = device->ops->enter(device, NULL);
	CUfileHandle_t handle;

	if (error)
		return sl_fail(error, "%s cannot be used: %s", device->name, sl_error_text(error));
	CUfileError_t rc = sl_cufile_open()->cuFileHandleRegister(&handle, &what);
	device->ops->leave();
	if (rc.err)
		return cufile_refused(local, rc);
	local->cufile.descriptor = descriptor;
	atomic_store_explicit(&local->cufile.handle, handle, memory_order_release);
	return 0;
}

/* Registers the file at the first use. Only submitting calls take the mutex. */
static int register_file_locked(struct sl_local *local, struct sl_device *device)
	SL_REQUIRES(&local->cufile.mutex)
{
	int descriptor, rc;

	if (!sl_cufile_open())
		return sl_fail(-ENOTSUP, "cuFile cannot be used: %s", sl_cufile_missing());
	descriptor = cufile_open_again(local);
	if (descriptor < 0)
		return descriptor;
	rc = cufile_register_descriptor(local, device, descriptor);
	if (rc)
		close(descriptor);
	return rc;
}

static int cufile_ensure_handle(struct sl_local *local, struct sl_device *device, bool named)
{
	int rc = 0;

	if (atomic_load_explicit(&local->cufile.handle, memory_order_acquire))
		return 0;
	sl_mutex_lock(&local->cufile.mutex);
	if (!atomic_load(&local->cufile.handle))
		rc = register_file_locked(local, device);
	if (rc && !named) {
		sl_log(&local->core->settings, SL_LOG_INFO, "%s", sluice_last_message());
		atomic_store(&local->cufile.left, true);
	}
	sl_mutex_unlock(&local->cufile.mutex);
	return rc;
}

void sl_cufile_close(struct sl_local *local)
{
	CUfileHandle_t handle = atomic_load(&local->cufile.handle);

	if (handle) {
		/* After its own handlers of exit() cuFile cannot be called any more. */
		if (!atomic_load(&local->core->cufile->abandoned))
			sl_cufile_open()->cuFileHandleDeregister(handle);
		close(local->cufile.descriptor);
	}
	sl_mutex_destroy(&local->cufile.mutex);
}

static int cufile_start_threads(struct sl_cufile *cufile)
{
	struct sl_pool *pool;
	int rc = 0;

	if (atomic_load_explicit(&cufile->pool, memory_order_acquire))
		return 0;
	sl_mutex_lock(&cufile->mutex);
	if (!atomic_load(&cufile->pool)) {
		unsigned threads = (unsigned)cufile->core->settings.cufile_threads;

		rc = sl_pool_start("sluice-cuf", threads, threads, &pool);
		if (!rc)
			atomic_store_explicit(&cufile->pool, pool, memory_order_release);
	}
	sl_mutex_unlock(&cufile->mutex);
	return rc ? sl_fail(rc, "cannot start cuFile's threads: %s", sl_error_text(rc)) : 0;
}

static bool has_ragged(const struct sluice_extent *extents, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (extents[i].offset % BLOCK || extents[i].length % BLOCK)
			return true;
	return false;
}

/* cuFile is not documented to accept managed memory. */
static bool has_managed(struct sl_device *device, const struct sluice_extent *extents, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (extents[i].length && device->ops->managed &&
		    device->ops->managed(device, extents[i].data))
			return true;
	return false;
}

static int cufile_takes(struct sl_backend *backend, struct sl_device *device,
                        const struct sluice_extent *extents, size_t count, bool write,
                        bool in_stream)
{
	struct sl_local *local = sl_local_of(backend);
	bool named = local->choice == SL_CHOICE_CUFILE;

	if (!device->kind->cufile || local->pseudo || local->sink ||
	    atomic_load_explicit(&local->cufile.left, memory_order_relaxed) ||
	    atomic_load(&local->core->cufile->abandoned))
		return 0;
	if (!named &&
	    (local->choice != SL_CHOICE_AUTO || !cufile_has_gpudirect(local->core->cufile)))
		return 0;
	if (has_managed(device, extents, count))
		return 0;
	/* In compatibility mode cuFile uses its arguments after the stream has passed. */
	if (in_stream && !cufile_has_gpudirect(local->core->cufile))
		return sl_fail(-ENOTSUP,
		               "cuFile does not take '%s' in stream order: that needs nvidia-fs, "
		               "without which cuFile runs in its compatibility mode (sluice doctor "
		               "says why); the backends 'auto' and 'posix' take it",
		               local->path);
	int rc = cufile_ensure_handle(local, device, named);
	if (!rc)
		rc = cufile_start_threads(local->core->cufile);
	if (rc)
		return named ? rc : 0;
	/* Of two writes to parts of a block each would overwrite the other with old bytes. */
	return !(write && local->cufile.direct && has_ragged(extents, count));
}

/* -------------------------------------------------------------------------- awaited on the host */

static int cufile_failed(const struct sl_local *local, bool write, uint64_t offset, ssize_t result,
                         char **message)
{
	int error = (int)-result;

	*message = sl_format("cuFile cannot %s '%s' at byte %" PRIu64 ": CUfileOpError %d (%s)",
	                     write ? "write" : "read", local->path, offset, error,
	                     sl_cufile_error(error));
	return -EIO;
}

/* Returns bytes, -errno, or a negated CUfileOpError, which lies below that. */
static ssize_t cufile_call(struct sl_piece *piece)
{
	const struct sl_cufile_api *api = sl_cufile_open();
	struct sl_local *local = sl_local_of(piece->backend);
	CUfileHandle_t handle = atomic_load_explicit(&local->cufile.handle, memory_order_acquire);
	size_t length = piece->length - piece->moved;
	off_t offset = (off_t)(piece->offset + piece->moved), base_offset;
	char *base = sl_cufile_base(local->core->cufile, piece->data, piece->length, &base_offset);

	base_offset += (off_t)piece->moved;
	errno = 0;
	ssize_t rc = piece->write ? api->cuFileWrite(handle, base, length, offset, base_offset)
	                          : api->cuFileRead(handle, base, length, offset, base_offset);
	if (rc != -1)
		return rc;
	return errno ? -errno : -EIO;
}

static void cufile_move(struct sl_piece *piece)
{
	ssize_t result;

	do {
		result = cufile_call(piece);
		if (result <= -CU_FILE_DRIVER_NOT_INITIALIZED) {
			piece->error = cufile_failed(sl_local_of(piece->backend), piece->write,
			                             piece->offset + piece->moved, result,
			                             &piece->message);
			return;
		}
	} while (!sl_transfer_step(piece, result));
}

static void cufile_run(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);
	struct sl_cufile *cufile = sl_local_of(piece->backend)->core->cufile;

	/* The flag is read after the count is raised: sl_cufile_abandon() does the reverse. */
	atomic_fetch_add(&cufile->running, 1);
	if (atomic_load(&cufile->abandoned))
		piece->error = -EIO;
	else if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed))
		piece->error = -ECANCELED;
	else
		piece->error = piece->device->ops->enter(piece->device, NULL);
	if (!piece->error) {
		cufile_move(piece);
		piece->device->ops->leave();
	}
	atomic_fetch_sub(&cufile->running, 1);
	sl_piece_done(piece);
}

void sl_cufile_submit(struct sl_piece *piece)
{
	struct sl_cufile *cufile = sl_local_of(piece->backend)->core->cufile;

	piece->task.run = cufile_run;
	piece->task.home = 0;
	if (atomic_load(&cufile->abandoned))
		cufile_run(&piece->task);
	else
		sl_pool_submit(atomic_load_explicit(&cufile->pool, memory_order_acquire),
		               &piece->task);
}

/* ------------------------------------------------------------------------------ in stream order */

/*
 * The stream is not registered with cuFile (cuFileStreamRegister), which is a hint only: at the
 * end of the process cuFile waits for registered streams, and crashes if one was freed.
 */
static int cufile_enqueue(struct sl_backend *backend, struct sl_device *device,
                          sluice_stream stream, struct sl_transfer *t, bool write)
{
	const struct sl_cufile_api *api = sl_cufile_open();
	struct sl_local *local = sl_local_of(backend);
	CUfileHandle_t handle = atomic_load_explicit(&local->cufile.handle, memory_order_acquire);
	char *base = sl_cufile_base(local->core->cufile, t->data, t->length, &t->base_offset);
	CUfileError_t rc;
	int error = device->ops->enter(device, stream);

	if (error)
		return sl_fail(error, "%s cannot be used: %s", device->name, sl_error_text(error));
	rc = write ? api->cuFileWriteAsync(handle, base, &t->length, &t->offset, &t->base_offset,
	                                   &t->moved, stream)
	           : api->cuFileReadAsync(handle, base, &t->length, &t->offset, &t->base_offset,
	                                  &t->moved, stream);
	device->ops->leave();
	if (!rc.err)
		return 0;
	return sl_fail(
		-EIO,
		"cuFile did not take a %s of '%s' in stream order: CUfileOpError %d (%s), CUDA %d",
		write ? "write" : "read", local->path, rc.err, sl_cufile_error(rc.err), rc.cu_err);
}

static int cufile_passed(struct sl_backend *backend, const struct sl_transfer *t, bool write,
                         char **message)
{
	struct sl_local *local = sl_local_of(backend);

	*message = NULL;
	if (t->moved == (ssize_t)t->length)
		return 0;
	if (t->moved <= -CU_FILE_DRIVER_NOT_INITIALIZED)
		return cufile_failed(local, write, (uint64_t)t->offset, t->moved, message);
	if (t->moved < 0)
		*message = sl_format("cuFile cannot %s '%s' at byte %" PRIu64,
		                     write ? "write" : "read", local->path, (uint64_t)t->offset);
	else
		*message = sl_format("cuFile %s %zd of %zu bytes %s '%s' at byte %" PRIu64
		                     " in stream order",
		                     write ? "wrote" : "read", t->moved, t->length,
		                     write ? "to" : "of", local->path, (uint64_t)t->offset);
	return -EIO;
}

const struct sl_device_moves sl_cufile_moves = {
	.takes = cufile_takes,
	.enqueue = cufile_enqueue,
	.passed = cufile_passed,
};

/* ----------------------------------------------------------------------------------------- end */

void sl_cufile_stop(struct sl_cufile *cufile)
{
	if (!cufile || cufile->stopped)
		return;
	cufile->stopped = true;
	sl_pool_stop(atomic_load(&cufile->pool));
}

void sl_cufile_abandon(struct sl_cufile *cufile)
{
	int64_t deadline = sl_now() + ABANDON_NS;
	struct timespec moment = {0, 1000000};

	if (!cufile)
		return;
	atomic_store(&cufile->abandoned, true);
	while (atomic_load(&cufile->running) && sl_now() < deadline)
		nanosleep(&moment, NULL);
	/* A call that the driver blocks for longer is left alone. */
	if (!atomic_load(&cufile->running))
		sl_cufile_stop(cufile);
}

/* No other thread has it any more. */
void sl_cufile_free(struct sl_cufile *cufile) SL_UNCHECKED
{
	if (!cufile)
		return;
	if (!atomic_load(&cufile->abandoned))
		sl_cufile_unregister_all(cufile);
	free(cufile->locked.buffers);
	sl_pool_free(atomic_load(&cufile->pool));
	sl_mutex_destroy(&cufile->mutex);
	free(cufile);
}
