/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that is too old: one of the functions has another version. None of the others does a thing. */
#include "device/cuda_api.h"

#define cuStreamWaitValue32_v2 cuStreamWaitValue32

#define DECLARE(name, arguments) __attribute__((visibility("default"))) CUresult name arguments;
SL_CUDA_FUNCTIONS(DECLARE)

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define DEFINE(name, arguments)                  \
	CUresult name arguments                  \
	{                                        \
		return CUDA_ERROR_NOT_SUPPORTED; \
	}
SL_CUDA_FUNCTIONS(DEFINE)
