/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device suite is one program: what programs that have memory of a device may rely on. Devices are 0
 * and 1, as in support/gpu.h.
 */
#ifndef TESTS_DEVICE_H
#define TESTS_DEVICE_H

#include "lib/gpu.h"
#include "lib/support.h"
#include "sluice/emulated.h"

/* n bytes of a device, filled with what no pattern has. */
void *device_new(int device, size_t n);
void device_free(void *memory);
/* Waits for nothing of sluice: what is there now. */
void device_fill(void *memory, size_t n, uint64_t offset, uint64_t seed);
void device_get(void *dst, const void *memory, size_t n);
#define assert_device(memory, n, offset, seed)              \
	do {                                                \
		size_t many_ = (n);                         \
		unsigned char *held_ = malloc(many_ + 1);   \
		device_get(held_, memory, many_);           \
		assert_pattern(held_, many_, offset, seed); \
		free(held_);                                \
	} while (0)

sluice_stream stream_new(int device);
void stream_free(sluice_stream stream);
void stream_pass(int device, sluice_stream stream);

/* A kernel that fills memory of its device with a pattern, or takes what is there to pinned memory. */
void launch_fill(int device, sluice_stream stream, void *memory, size_t n, uint64_t offset,
                 uint64_t seed);
void launch_take(int device, sluice_stream stream, const void *memory, size_t n, void *host);

/* Holds a stream up from now until hold_end(); see gpu_hold(). */
void hold_begin(struct gpu_hold *h, int device, sluice_stream stream);
void hold_end(struct gpu_hold *h);

/* Lets the context make what it needs of a device, which waits for all of it. */
void warm_up(struct fixture *f, int device);
/* The same of both devices, for a context that does not run out of pinned memory while streams are held
 * up. Before files are opened. */
void make_room(struct fixture *f);

sluice_op *start_read_on(sluice_file *file, void *dst, size_t n, uint64_t offset,
                         sluice_stream stream);
sluice_op *start_write_on(sluice_file *file, const void *src, size_t n, uint64_t offset,
                          sluice_stream stream);

#endif
