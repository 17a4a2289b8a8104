/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of CUDA for programs that look at what it does, beside and below sluice. Found at run time as
 * in device/cuda_api.h.
 */
#ifndef TESTS_GPU_DRIVER_H
#define TESTS_GPU_DRIVER_H

#include "lib/cuda_functions.h"

/* All of them; NULL: the driver has it not. */
struct driver {
#define FIELD(name, arguments) CUresult(*name) arguments;
	SL_CUDA_FUNCTIONS(FIELD)
	SL_CUDA_OPTIONAL(FIELD)
	TEST_CUDA_FUNCTIONS(FIELD)
	PROBE_CUDA_FUNCTIONS(FIELD)
#undef FIELD
};
extern struct driver cu;

/*
 * Loads the driver and makes the primary context of a device current on the calling thread. NULL, or
 * why there is none. Each further thread calls driver_enter().
 */
const char *driver_open(int ordinal);
void driver_enter(void);

/* As in "719 CUDA_ERROR_LAUNCH_FAILED"; the text lives as long as the thread asks for no other. */
const char *driver_error(CUresult rc);
/* Ends the program, with a line that names the call, if it failed. */
void driver_must(CUresult rc, const char *call);
#define MUST(call) driver_must(cu.call, #call)

/* Host memory that the device can use at the same address, zeroed. */
void *driver_pinned(size_t length);
CUdeviceptr driver_memory(size_t length);
CUstream driver_stream(void);

enum driver_kernel { KERNEL_SPIN, KERNEL_STAMP, KERNELS };
/* Loads them; a text that says why they cannot be, or NULL. */
const char *driver_kernels(void);
/*
 * KERNEL_SPIN runs for `argument` nanoseconds; KERNEL_STAMP writes the device's clock, which is not 0, to
 * the 64-bit word whose address is `argument`.
 */
CUresult driver_launch(enum driver_kernel kernel, uint64_t argument, CUstream stream);
/* The same on so many threads that no other kernel fits onto the device. */
CUresult driver_launch_wide(enum driver_kernel kernel, uint64_t argument, CUstream stream);

/* Seconds of CLOCK_MONOTONIC. */
double driver_now(void);

#endif
