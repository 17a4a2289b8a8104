/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors for DLPack
 *
 * Makes either struct of DLPack for memory of the host or of a device, without a copy. The struct's
 * deleter releases the owner. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

/* A tensor with all that it points to. */
struct dlpack_holder {
	void (*release)(void *owner);
	void *owner;
	union {
		struct sl_dlpack_managed plain;
		struct sl_dlpack_managed_versioned versioned;
	};
	int64_t dimensions[]; /* shape, then strides */
};

static void dlpack_release(struct dlpack_holder *holder)
{
	holder->release(holder->owner);
	free(holder);
}

static void dlpack_delete_plain(struct sl_dlpack_managed *managed)
{
	if (managed)
		dlpack_release(managed->context);
}

static void dlpack_delete_versioned(struct sl_dlpack_managed_versioned *managed)
{
	if (managed)
		dlpack_release(managed->context);
}

static void dlpack_fill(struct sl_dlpack_tensor *out, struct dlpack_holder *holder,
                        const struct sl_dlpack_source *source)
{
	const struct sl_type *type = sl_type_find(source->type);
	const struct sl_device *device = source->device;
	/* The name is that of the kind and a number, such as "cuda:1". */
	const char *colon = device ? strchr(device->name, ':') : NULL;
	int64_t stride = 1;

	out->data = source->data;
	out->device.type = !device                    ? SL_DLPACK_CPU
	                   : device->kind == &sl_cuda ? SL_DLPACK_CUDA
	                                              : SL_DLPACK_OTHER;
	out->device.id = colon ? atoi(colon + 1) : 0;
	out->ndim = (int32_t)source->rank;
	out->dtype.code = type->dlpack;
	out->dtype.bits = type->bits;
	out->dtype.lanes = 1; /* but torch has elements of 4 bits in pairs */
	if (type->bits == 4 && source->rank && source->shape[source->rank - 1] % 2 == 0)
		out->dtype.lanes = 2;
	out->shape = holder->dimensions;
	out->strides = holder->dimensions + source->rank;
	out->byte_offset = source->offset;
	for (unsigned i = source->rank; i-- > 0; stride *= SL_MAX(out->shape[i], 1)) {
		out->shape[i] = source->shape[i] / (i + 1 == source->rank ? out->dtype.lanes : 1);
		out->strides[i] = source->strides ? source->strides[i] : stride;
	}
}

int sl_dlpack_export(const struct sl_dlpack_source *source, unsigned version, void **out)
{
	struct dlpack_holder *holder =
		calloc(1, sizeof(*holder) + 2 * source->rank * sizeof(int64_t));

	if (!holder)
		return sl_fail(-ENOMEM, "no memory");
	holder->release = source->release;
	holder->owner = source->owner;
	if (version == 0) {
		dlpack_fill(&holder->plain.tensor, holder, source);
		holder->plain.context = holder;
		holder->plain.deleter = dlpack_delete_plain;
		*out = &holder->plain;
	} else {
		dlpack_fill(&holder->versioned.tensor, holder, source);
		holder->versioned.version.major = SL_DLPACK_MAJOR;
		holder->versioned.version.minor = SL_DLPACK_MINOR;
		holder->versioned.context = holder;
		holder->versioned.deleter = dlpack_delete_versioned;
		holder->versioned.flags = source->read_only ? SL_DLPACK_READ_ONLY : 0;
		*out = &holder->versioned;
	}
	return 0;
}
