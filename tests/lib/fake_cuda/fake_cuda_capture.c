/* SPDX-License-Identifier: Apache-2.0 */
/* Captures of the fake driver: what a stream is given then is not done, and the graph is empty. */
#include <stdlib.h>

#include "lib/fake_cuda/fake_cuda.h"

/* Of the calling thread: which captures its unsafe calls mind. */
static _Thread_local int minds = CAPTURE_GLOBAL;

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	CUresult rc = fake_enter(CALL_cuThreadExchangeStreamCaptureMode, 0, NULL);
	int before = minds;

	if (!rc && (*mode < CAPTURE_GLOBAL || *mode > CAPTURE_RELAXED))
		rc = CUDA_ERROR_INVALID_VALUE;
	if (rc)
		return rc;
	minds = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

static bool suffers(const struct CUstream_st *stream)
{
	if (stream->capture != CAPTURE_ACTIVE || minds == CAPTURE_RELAXED)
		return false;
	if (pthread_equal(stream->thread, pthread_self()))
		return stream->mode != CAPTURE_RELAXED;
	return minds == CAPTURE_GLOBAL && stream->mode == CAPTURE_GLOBAL;
}

CUresult fake_captures(void)
{
	CUresult rc = CUDA_SUCCESS;

	pthread_mutex_lock(&fake.mutex);
	sl_list_each (link, &fake.all_streams) {
		struct CUstream_st *stream = SL_CONTAINER(link, struct CUstream_st, link);

		if (suffers(stream)) {
			stream->capture = CAPTURE_INVALIDATED;
			rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

bool fake_holds_legacy_up(CUcontext ctx)
{
	sl_list_each (link, &fake.all_streams) {
		struct CUstream_st *stream = SL_CONTAINER(link, struct CUstream_st, link);

		if (stream->ctx == ctx && stream->blocking && stream->capture == CAPTURE_ACTIVE)
			return true;
	}
	return false;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	CUresult rc = fake_enter(CALL_cuStreamBeginCapture_v2, 0, NULL);

	if (rc)
		return rc;
	if (mode < CAPTURE_GLOBAL || mode > CAPTURE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	/* The real one also captures the per-thread stream. */
	if (fake_is_default(stream)) {
		rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	} else if (!fake_is_stream(stream)) {
		rc = CUDA_ERROR_INVALID_HANDLE;
	} else if (stream->capture != CAPTURE_NONE) {
		rc = CUDA_ERROR_INVALID_VALUE;
	} else {
		stream->capture = CAPTURE_ACTIVE;
		stream->mode = mode;
		stream->thread = pthread_self();
	}
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

struct CUgraph_st {
	int nothing; /* it cannot be launched */
};

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	CUresult rc = fake_enter(CALL_cuStreamEndCapture, 0, NULL);

	if (rc)
		return rc;
	*graph = NULL;
	pthread_mutex_lock(&fake.mutex);
	if (fake_is_default(stream) || !fake_is_stream(stream)) {
		rc = CUDA_ERROR_INVALID_HANDLE;
	} else if (stream->capture == CAPTURE_NONE) {
		rc = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	} else if (stream->mode != CAPTURE_RELAXED &&
	           !pthread_equal(stream->thread, pthread_self())) {
		rc = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	} else {
		if (stream->capture == CAPTURE_INVALIDATED)
			rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		stream->capture = CAPTURE_NONE;
	}
	pthread_mutex_unlock(&fake.mutex);
	if (!rc)
		*graph = calloc(1, sizeof(**graph));
	return rc;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	CUresult rc = fake_enter(CALL_cuGraphDestroy, 0, NULL);

	if (!rc)
		free(graph);
	return rc;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuStreamIsCapturing, NEEDS_CONTEXT, &ctx);

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	if (fake_is_default(stream)) {
		if (stream != FAKE_PER_THREAD && fake_holds_legacy_up(ctx))
			rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		*status = CAPTURE_NONE;
	} else if (fake_is_stream(stream)) {
		*status = stream->capture;
	} else {
		rc = CUDA_ERROR_INVALID_HANDLE;
	}
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}
