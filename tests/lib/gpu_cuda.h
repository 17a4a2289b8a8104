/* SPDX-License-Identifier: Apache-2.0 */
/* What tests do with CUDA's driver beside sluice. */
#ifndef TESTS_GPU_CUDA_H
#define TESTS_GPU_CUDA_H

#include "lib/cuda_functions.h"

/* NULL: this driver has no such function. */
struct gpu_driver {
#define FIELD(name, arguments) CUresult(*name) arguments;
	SL_CUDA_FUNCTIONS(FIELD)
	TEST_CUDA_FUNCTIONS(FIELD)
#undef FIELD
};
/* Of the device "cuda", once gpu_open() has opened it. */
extern struct gpu_driver gpu_driver;
/* The name of an error, for people. */
const char *gpu_error_name(CUresult error);

/* PTX, with a zero behind it. */
extern const char gpu_kernels[];

#endif
