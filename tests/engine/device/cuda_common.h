/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of cuda.c share: the fake driver, called as a program calls a driver. */
#ifndef TESTS_UNIT_CUDA_H
#define TESTS_UNIT_CUDA_H

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include <sluice/device.h>

#include "device/device.h"
#include "lib/fake_cuda/fake_cuda_api.h"
#include "lib/unit.h"

/* The driver's functions. */
extern struct driver {
#define FIELD(name, arguments) CUresult(*name) arguments;
	SL_CUDA_FUNCTIONS(FIELD) TEST_CUDA_FUNCTIONS(FIELD) FAKE_CUDA_CONTROLS(FIELD)
#undef FIELD
} cu;

/* The first CUDA device: its public number, and what is behind it. Those of the second are one more. */
extern int cuda_number;
extern struct sl_device *cuda_device;
extern CUcontext cuda_primaries[2];

/* Of a group. The calling thread has no current context then. */
int cuda_setup(void **state);

/* What the thread's stack of contexts holds, the current one first; how many. */
unsigned cuda_contexts(CUcontext out[8]);
/* A file of n bytes (byte i is (i * 7 + i / 256) & 0xff), opened for both in a context of its own. */
#define CUDA_FILE_BYTES ((size_t)(1 << 20) + 777)
struct cuda_file {
	sluice_context *ctx;
	sluice_file *file;
	unsigned char *bytes; /* what is in it */
};
void cuda_file_open(struct cuda_file *f);
void cuda_file_close(struct cuda_file *f);
/* The operation has moved n bytes; frees it. */
/*
 * Gives the stream 100 copies to the device, of which the last two are to the same place, and checks where
 * they arrive.
 */
void cuda_copy_apart(sluice_stream stream, bool rows);
/* Calls of that function so far by all threads. */
uint64_t cuda_calls(const char *function);
void cuda_moved(sluice_op *op, size_t n);

#endif
