/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs as tensors
 *
 * Exports a sealed blob in either struct of DLPack (https://dmlc.github.io/dlpack, version 1.0),
 * without a copy; the tensor holds the blob. The structs are declared here because few systems have
 * a header for them. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "store/device/devices.h"

#define CPU       1  /* kDLCPU */
#define CUDA      2  /* kDLCUDA: a GPU, by CUDA's number */
#define OTHER     12 /* kDLExtDev: a device that DLPack has no name for */
#define READ_ONLY 1  /* DLPACK_FLAG_BITMASK_READ_ONLY */

struct dlpack_tensor {
	void *data;
	struct {
		int32_t type, id;
	} device;
	int32_t ndim;
	struct {
		uint8_t code, bits;
		uint16_t lanes;
	} dtype;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};
struct dlpack_managed {
	struct dlpack_tensor tensor;
	void *context;
	void (*deleter)(struct dlpack_managed *);
};
struct dlpack_managed_versioned {
	struct {
		uint32_t major, minor;
	} version;
	void *context;
	void (*deleter)(struct dlpack_managed_versioned *);
	uint64_t flags;
	struct dlpack_tensor tensor;
};

/* Values of enum DLDataTypeCode. */
static const uint8_t codes[] = {
	[SL_SIGNED] = 0, [SL_UNSIGNED] = 1, [SL_REAL] = 2,
	[SL_BFLOAT] = 4, [SL_COMPLEX] = 5,  [SL_BOOL] = 6,
};

/* A tensor with all that it points to. */
struct dlpack_holder {
	sluice_blob *blob;
	struct sluice_blob_metadata m;
	union {
		struct dlpack_managed plain;
		struct dlpack_managed_versioned versioned;
	};
};

/* Releases the blob, but not in a child of fork(), which may not use sluice. */
static void dlpack_release(struct dlpack_holder *holder)
{
	if (sl_forked())
		return;
	sl_blob_release_handle(holder->blob);
	free(holder);
}

static void dlpack_delete_plain(struct dlpack_managed *managed)
{
	if (managed)
		dlpack_release(managed->context);
}

static void dlpack_delete_versioned(struct dlpack_managed_versioned *managed)
{
	if (managed)
		dlpack_release(managed->context);
}

static void dlpack_fill(struct dlpack_tensor *tensor, struct dlpack_holder *holder)
{
	struct sluice_blob_metadata *m = &holder->m;
	const struct sl_type *type = sl_type_find(m->type);

	tensor->data = holder->blob->data;
	tensor->device.type = CPU;
	if (holder->blob->sdev) {
		/* The name is that of the kind and a number, such as "cuda:1". */
		const struct sl_device *device = holder->blob->sdev->device;
		const char *colon = strchr(device->name, ':');

		tensor->device.type = device->kind == &sl_cuda ? CUDA : OTHER;
		tensor->device.id = colon ? atoi(colon + 1) : 0;
	}
	tensor->ndim = (int32_t)m->rank;
	tensor->dtype.code = codes[type->number];
	tensor->dtype.bits = (uint8_t)(8 * type->bytes);
	tensor->dtype.lanes = 1;
	tensor->shape = m->shape;
	tensor->strides = m->strides;
	tensor->byte_offset = m->offset;
}

int sluice_blob_to_dlpack(sluice_blob *blob, unsigned version, void **out)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct dlpack_holder *holder;
	int rc;

	if (!blob || !out || version > 1)
		return sl_fail(-EINVAL, "sluice_blob_to_dlpack: NULL, or version %u", version);
	rc = sl_store_check(blob->store, "sluice_blob_to_dlpack");
	if (rc)
		return rc;
	if (blob->state != SLUICE_BLOB_IS_SEALED || !blob->data)
		return sl_fail(-EPERM, "the blob is not sealed");
	if (blob->metadata)
		sl_metadata_read(blob->metadata, &m);
	if (!sl_type_find(m.type))
		return sl_fail(-EINVAL, "the blob's metadata does not say what its elements are");
	holder = calloc(1, sizeof(*holder));
	if (!holder)
		return sl_fail(-ENOMEM, "no memory");
	holder->blob = blob;
	holder->m = m;
	atomic_fetch_add(&blob->references, 1);
	atomic_fetch_add(&blob->store->handles, 1);
	if (version == 0) {
		dlpack_fill(&holder->plain.tensor, holder);
		holder->plain.context = holder;
		holder->plain.deleter = dlpack_delete_plain;
		*out = &holder->plain;
	} else {
		dlpack_fill(&holder->versioned.tensor, holder);
		holder->versioned.version.major = 1;
		holder->versioned.context = holder;
		holder->versioned.deleter = dlpack_delete_versioned;
		holder->versioned.flags = READ_ONLY;
		*out = &holder->versioned;
	}
	return 0;
}
