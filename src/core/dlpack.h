/* SPDX-License-Identifier: Apache-2.0 */
/* The structs of DLPack 1.1 (https://dmlc.github.io/dlpack): few systems have its header. */
#ifndef SL_DLPACK_H
#define SL_DLPACK_H

#include <stdint.h>

#define SL_DLPACK_MAJOR 1
#define SL_DLPACK_MINOR 1

enum {
	SL_DLPACK_CPU = 1,
	SL_DLPACK_CUDA = 2,   /* a GPU, by CUDA's number */
	SL_DLPACK_OTHER = 12, /* kDLExtDev: a device that DLPack has no name for */
};
#define SL_DLPACK_READ_ONLY 1 /* of flags */

struct sl_dlpack_tensor {
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
struct sl_dlpack_managed {
	struct sl_dlpack_tensor tensor;
	void *context;
	void (*deleter)(struct sl_dlpack_managed *);
};
struct sl_dlpack_managed_versioned {
	struct {
		uint32_t major, minor;
	} version;
	void *context;
	void (*deleter)(struct sl_dlpack_managed_versioned *);
	uint64_t flags;
	struct sl_dlpack_tensor tensor;
};

#endif
