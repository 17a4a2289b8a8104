/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of GPUs that the caller has made known to cuFile. */
#include <errno.h>
#include <stdlib.h>

#include "device/device.h"
#include "local/cufile.h"
#include "local/cufile_api.h"

/* The registered memory that all of the range is in. The mutex is held. */
static struct sl_cufile_buffer *find_buffer(struct sl_cufile *cufile, const char *memory,
                                            size_t length)
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
	struct sl_cufile_buffer *buffer;
	char *base = memory;

	sl_mutex_lock(&cufile->mutex);
	buffer = find_buffer(cufile, memory, length);
	if (buffer)
		base = buffer->memory;
	sl_mutex_unlock(&cufile->mutex);
	*offset = memory - base;
	return base;
}

/* The mutex is held. */
static bool make_room(struct sl_cufile *cufile)
{
	size_t room = cufile->locked.room ? 2 * cufile->locked.room : 8;
	struct sl_cufile_buffer *buffers;

	if (cufile->locked.count < cufile->locked.room)
		return true;
	buffers = realloc(cufile->locked.buffers, room * sizeof(*buffers));
	if (!buffers)
		return false;
	cufile->locked.buffers = buffers;
	cufile->locked.room = room;
	return true;
}

int sl_cufile_register(struct sl_cufile *cufile, struct sl_device *device, void *memory,
                       size_t length)
{
	const struct sl_cufile_api *api;
	CUfileError_t rc;
	int error;

	if (!device->ops->enter)
		return sl_fail(-ENOTSUP, "cuFile is for GPUs of NVIDIA, and %s is none",
		               device->name);
	if (device->ops->managed && device->ops->managed(device, memory))
		return sl_fail(-ENOTSUP, "cuFile is not for managed memory");
	api = sl_cufile_open();
	if (!api)
		return sl_fail(-ENOTSUP, "cuFile cannot be used: %s", sl_cufile_missing());
	error = device->ops->enter(device, NULL);
	if (error)
		return sl_fail(error, "%s cannot be used: %s", device->name, sl_error_text(error));
	/* Not with the mutex, which cuFile's threads take. */
	rc = api->cuFileBufRegister(memory, length, 0);
	device->ops->leave();
	if (rc.err)
		return sl_fail(
			rc.err == CU_FILE_MEMORY_ALREADY_REGISTERED ? -EEXIST : -EIO,
			"cuFile does not register %zu bytes of %s: CUfileOpError %d (%s), CUDA %d",
			length, device->name, rc.err, sl_cufile_error(rc.err), rc.cu_err);
	sl_mutex_lock(&cufile->mutex);
	if (make_room(cufile))
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

static int deregister(const struct sl_cufile_buffer *buffer)
{
	CUfileError_t rc;
	int error = buffer->device->ops->enter(buffer->device, NULL);

	if (error)
		return sl_fail(error, "%s cannot be used: %s", buffer->device->name,
		               sl_error_text(error));
	rc = sl_cufile_open()->cuFileBufDeregister(buffer->memory);
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
	return found.memory ? deregister(&found)
	                    : sl_fail(-EINVAL, "no registered buffer begins at %p", memory);
}

void sl_cufile_unregister_all(struct sl_cufile *cufile)
{
	for (size_t i = 0; i < cufile->locked.count; i++)
		deregister(&cufile->locked.buffers[i]);
}
