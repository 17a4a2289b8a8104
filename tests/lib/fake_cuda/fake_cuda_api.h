/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake driver of CUDA declares: the functions that tests use, and some that only it has. */
#ifndef TESTS_FAKE_CUDA_API_H
#define TESTS_FAKE_CUDA_API_H

#include "lib/cuda_functions.h"

enum {
	CUDA_ERROR_INVALID_IMAGE = 200,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

/*
 * Of the fake only. The nth call from now on of that function fails with that error, 1 for the next;
 * calls of that function so far by threads whose name begins with prefix, or by all if it is NULL; the
 * context that was current in its last call; the device is gone, or back.
 */
#define FAKE_CUDA_CONTROLS(X)                                                       \
	X(cuFakeFail, (const char *function, uint64_t n, CUresult error))           \
	X(cuFakeCalls, (const char *function, const char *prefix, uint64_t *calls)) \
	X(cuFakeContext, (const char *function, CUcontext *ctx))                    \
	X(cuFakeLose, (CUdevice device, int lost))

#define FAKE_CUDA_DECLARE(name, arguments) \
	__attribute__((visibility("default"))) CUresult name arguments;
SL_CUDA_FUNCTIONS(FAKE_CUDA_DECLARE)
SL_CUDA_OPTIONAL(FAKE_CUDA_DECLARE)
TEST_CUDA_FUNCTIONS(FAKE_CUDA_DECLARE)
FAKE_CUDA_CONTROLS(FAKE_CUDA_DECLARE)

#endif
