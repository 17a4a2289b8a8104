/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs as tensors, in the two structs of DLPack (https://dmlc.github.io/dlpack, version 1.0). They are declared
 * here as that says, because a header for them is not everywhere.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "store/devices.h"

#define CPU       1  /* kDLCPU */
#define CUDA      2  /* kDLCUDA: what dlpack.h calls a GPU by the number that CUDA has for it */
#define OTHER     12 /* kDLExtDev: what it has no name for */
#define READ_ONLY 1  /* DLPACK_FLAG_BITMASK_READ_ONLY */

struct tensor {
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
struct managed {
	struct tensor tensor;
	void *context;
	void (*deleter)(struct managed *);
};
struct managed_versioned {
	struct {
		uint32_t major, minor;
	} version;
	void *context;
	void (*deleter)(struct managed_versioned *);
	uint64_t flags;
	struct tensor tensor;
};

/* enum DLDataTypeCode */
static const uint8_t codes[] = {
	[SL_SIGNED] = 0, [SL_UNSIGNED] = 1, [SL_REAL] = 2,
	[SL_BFLOAT] = 4, [SL_COMPLEX] = 5,  [SL_BOOL] = 6,
};

/* One of the two, and what it points to. */
struct holder {
	sluice_blob *blob;
	struct sluice_blob_metadata m;
	union {
		struct managed plain;
		struct managed_versioned versioned;
	};
};

/* A child of fork() gives up what its parent holds as little as any other call does. */
static void give_up(struct holder *holder)
{
	if (sl_forked())
		return;
	sl_blob_let_go(holder->blob);
	free(holder);
}

static void delete_plain(struct managed *managed)
{
	if (managed)
		give_up(managed->context);
}

static void delete_versioned(struct managed_versioned *managed)
{
	if (managed)
		give_up(managed->context);
}

static void fill(struct tensor *tensor, struct holder *holder)
{
	struct sluice_blob_metadata *m = &holder->m;
	const struct sl_type *type = sl_type_find(m->type);

	tensor->data = holder->blob->data;
	tensor->device.type = CPU;
	if (holder->blob->post) {
		/* As "cuda:1": of which kind, and its number among those. */
		const struct sl_device *device = holder->blob->post->device;
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
	struct holder *holder;
	int rc;

	if (!blob || !out || version > 1)
		return sl_fail(-EINVAL, "sluice_blob_to_dlpack: NULL, or version %u", version);
	rc = sl_store_check(blob->store, "sluice_blob_to_dlpack");
	if (rc)
		return rc;
	if (blob->state != SLUICE_BLOB_IS_SEALED || !blob->data)
		return sl_fail(-EPERM, "the blob is not sealed");
	if (blob->record)
		sl_metadata_read(blob->record, &m);
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
		fill(&holder->plain.tensor, holder);
		holder->plain.context = holder;
		holder->plain.deleter = delete_plain;
		*out = &holder->plain;
	} else {
		fill(&holder->versioned.tensor, holder);
		holder->versioned.version.major = 1;
		holder->versioned.context = holder;
		holder->versioned.deleter = delete_versioned;
		holder->versioned.flags = READ_ONLY;
		*out = &holder->versioned;
	}
	return 0;
}
