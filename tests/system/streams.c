/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events as CUDA's and HIP's headers declare them pass without a cast: headers_test.sh compiles this as C and C++. */
#include <sluice/device.h>

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;

int use_cuda(sluice_file *file, void *to, cudaStream_t stream, cudaEvent_t event, sluice_op **op)
{
	return sluice_event_await(event, stream) | sluice_read_on(file, to, 1, 0, stream, op);
}

int use_hip(sluice_file *file, void *to, hipStream_t stream, hipEvent_t event, sluice_op **op)
{
	return sluice_event_await(event, stream) | sluice_read_on(file, to, 1, 0, stream, op);
}
