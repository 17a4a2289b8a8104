/* SPDX-License-Identifier: Apache-2.0 */
/* What sluice_blob_to_dlpack() gives, as dlpack.h has it. */
#ifndef TESTS_STORE_DLPACK_H
#define TESTS_STORE_DLPACK_H

#include <stdint.h>

struct tensor {
	void *data;
	int32_t device_type, device_id, ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};
struct managed {
	struct tensor t;
	void *context;
	void (*deleter)(struct managed *);
};
struct versioned {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct versioned *);
	uint64_t flags;
	struct tensor t;
};

#endif
