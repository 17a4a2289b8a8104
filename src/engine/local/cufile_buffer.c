/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered buffers of cuFile
 *
 * Keeps the list of GPU memory that the program has registered with cuFile
 * (sluice_register_buffer()). Any thread; registering calls CUDA's driver.
 */
#include <errno.h>
#include <stdlib.h>

#include "device/device.h"
#include "local/cufile.h"
#include "local/cufile_api.h"

/* Returns the registered buffer that contains the whole range, or NULL. */
static struct sl_cufile_buffer *cufile_find_buffer_locked(struct sl_cufile *cufile,
                                                          const char *memory, size_t length)
	SL_REQUIRES(&cufile->mutex)
{
	for (size_t i = 0; i < cufile->locked.count; i++) {
		struct sl_cufile_buffer *buffer = &cufile->locked.buffers[i];

		if (memory >= buffer->memory && length <= buffer->length &&
		    (size_t)(memory - buffer->memory) <= buffer->length - length)
			return buffer;
	}
	return NULL;
}

char *sl_cufile_base(struct sl_cufile *cufile, char *memory, size_t length, off_t *offset)
{
	char *base = memory;

	sl_mutex_lock(&cufile->mutex);
	struct sl_cufile_buffer *buffer = cufile_find_buffer_locked(cufile, memory, length);
	if (buffer)
		base = buffer->memory;
	sl_mutex_unlock(&cufile->mutex);
	*offset = memory - base;
	return base;
}

static bool cufile_make_room_locked(struct sl_cufile *cufile) SL_REQUIRES(&cufile->mutex)
{
	size_t room = cufile->locked.room ? 2 * cufile->locked.room : 8;

	if (cufile->locked.count < cufile->locked.room)
		return true;
	struct sl_cufile_buffer *buffers = realloc(cufile->locked.buffers, room * sizeof(*buffers));
	if (!buffers)
		return false;
	cufile->locked.buffers = buffers;
	cufile->locked.room = room;
	return true;
}

int sl_cufile_register(struct sl_cufile *cufile, struct sl_device *device, void *memory,
                       size_t length)
{
	if (!device->kind->cufile)
		return sl_fail(-ENOTSUP, "cuFile is for GPUs of NVIDIA, and %s is none",
		               device->name);
	if (device->ops->managed && device->ops->managed(device, memory))
		return sl_fail(-ENOTSUP, "cuFile is not for managed memory");
	const struct sl_cufile_api *api = sl_cufile_open();
	if (!api)
		return sl_fail(-ENOTSUP, "cuFile cannot be used: %s", sl_cufile_missing());
	int error = device->ops->enter(device, NULL);
	if (error)
		return sl_fail(error, "%s cannot be used: %s", device->name, sl_error_text(error));
	/* Without the mutex, which the threads that call cuFile take. */
	CUfileError_t rc = api->cuFileBufRegister(memory, length, 0);
	device->ops->leave();
	if (rc.err)
		return sl_fail(
			rc.err == CU_FILE_MEMORY_ALREADY_REGISTERED ? -EEXIST : -EIO,
			"cuFile does not register %zu bytes of %s: CUfileOpError %d (%s), CUDA %d",
			length, device->name, rc.err, sl_cufile_error(rc.err), rc.cu_err);
	sl_mutex_lock(&cufile->mutex);
	if (cufile_make_room_locked(cufile))
		cufile->locked.buffers[cufile->locked.count++] =
			(struct sl_cufile_buffer){memory, length, device};
	else
		error = -ENOMEM;
	sl_mutex_unlock(&cufile->mutex);
	if (error) {
		api->cuFileBufDeregister(memory);
		return sl_fail(error, "no memory");
	}
	return 0;
}

static int cufile_deregister(const struct sl_cufile_buffer *buffer)
{
	int error = buffer->device->ops->enter(buffer->device, NULL);

	if (error)
		return sl_fail(error, "%s cannot be used: %s", buffer->device->name,
		               sl_error_text(error));
	CUfileError_t rc = sl_cufile_open()->cuFileBufDeregister(buffer->memory);
	buffer->device->ops->leave();
	return rc.err ? sl_fail(-EIO,
	                        "cuFile does not let go of memory of %s: CUfileOpError %d (%s)",
	                        buffer->device->name, rc.err, sl_cufile_error(rc.err))
	              : 0;
}

int sl_cufile_unregister(struct sl_cufile *cufile, void *memory)
{
	struct sl_cufile_buffer found = {NULL, 0, NULL};

	sl_mutex_lock(&cufile->mutex);
	for (size_t i = 0; i < cufile->locked.count && !found.memory; i++) {
		if (cufile->locked.buffers[i].memory != memory)
			continue;
		found = cufile->locked.buffers[i];
		cufile->locked.buffers[i] = cufile->locked.buffers[--cufile->locked.count];
	}
	sl_mutex_unlock(&cufile->mutex);
	return found.memory ? cufile_deregister(&found)
	                    : sl_fail(-EINVAL, "no registered buffer begins at %p", memory);
}

/* The context ends: no other thread has the list. */
void sl_cufile_unregister_all(struct sl_cufile *cufile) SL_UNCHECKED
{
	for (size_t i = 0; i < cufile->locked.count; i++)
		cufile_deregister(&cufile->locked.buffers[i]);
}
