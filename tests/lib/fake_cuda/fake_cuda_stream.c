/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the fake driver, and host functions in them. */
#include <errno.h>
#include <stdlib.h>

#include "lib/fake_cuda/fake_cuda.h"

/* ---------------------------------------------------------------------------- made and freed */

/* Ordered with the default stream, or not. */
static void set_blocking(struct CUstream_st *stream, bool blocking)
{
	struct emulated *device = stream->ctx->device;

	stream->blocking = blocking;
	sl_mutex_lock(&device->mutex);
	sl_emulated_stream(device, stream->emulated)->blocking = blocking;
	sl_mutex_unlock(&device->mutex);
}

static CUresult create(CUcontext ctx, unsigned flags, CUstream *out)
{
	struct CUstream_st *stream = calloc(1, sizeof(*stream));
	CUresult rc;

	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->ctx = ctx;
	rc = fake_error(sl_emulated_stream_new(&ctx->device->base, &stream->emulated));
	if (rc) {
		free(stream);
		return rc;
	}
	set_blocking(stream, !(flags & CU_STREAM_NON_BLOCKING));
	pthread_mutex_lock(&fake.mutex);
	fake_publish(&fake.streams, &stream->handle, stream);
	sl_list_append(&fake.all_streams, &stream->link);
	pthread_mutex_unlock(&fake.mutex);
	*out = stream;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuStreamCreate, NEEDS_CONTEXT, &ctx);

	if (!rc && flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		rc = CUDA_ERROR_INVALID_VALUE;
	return rc ? rc : create(ctx, flags, out);
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuStreamCreateWithPriority, NEEDS_CONTEXT, &ctx);

	(void)priority;
	if (!rc && flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		rc = CUDA_ERROR_INVALID_VALUE;
	return rc ? rc : create(ctx, flags, out);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	CUresult rc = fake_enter(CALL_cuStreamDestroy_v2, NEEDS_CONTEXT, NULL);

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	if (fake_is_default(stream) || !fake_is_stream(stream)) {
		rc = CUDA_ERROR_INVALID_HANDLE;
	} else {
		sl_intervals_remove(&fake.streams, &stream->handle);
		sl_list_remove(&stream->link);
	}
	pthread_mutex_unlock(&fake.mutex);
	if (rc)
		return rc;
	rc = fake_error(sl_emulated_stream_free(&stream->ctx->device->base, stream->emulated));
	free(stream);
	return rc;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *out)
{
	CUcontext current;
	CUresult rc = fake_enter(CALL_cuStreamGetCtx, 0, &current);

	if (rc)
		return rc;
	if (fake_is_default(stream)) {
		*out = current;
		return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	}
	pthread_mutex_lock(&fake.mutex);
	if (fake_is_stream(stream))
		*out = stream->ctx;
	else
		rc = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

/* ------------------------------------------------------------------------- giving, and asking */

/* fake.mutex held. */
static CUresult resolve(CUstream stream, CUcontext current, struct on *out)
{
	*out = (struct on){.ctx = current, .stream = stream};
	if (fake_is_default(stream)) {
		if (stream != FAKE_PER_THREAD && fake_holds_legacy_up(current))
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	} else if (fake_is_stream(stream)) {
		out->ctx = stream->ctx;
		out->stream = stream->emulated;
		out->captured = stream->capture != CAPTURE_NONE;
		if (stream->capture == CAPTURE_INVALIDATED)
			return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	out->device = &out->ctx->device->base;
	return CUDA_SUCCESS;
}

CUresult fake_stream(CUstream stream, struct on *out)
{
	CUresult rc;

	pthread_mutex_lock(&fake.mutex);
	rc = resolve(stream, fake_current(), out);
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

CUresult fake_on(enum fake_call call, CUstream stream, struct on *out)
{
	CUresult rc = fake_enter(call, NEEDS_CONTEXT, NULL);

	return rc ? rc : fake_stream(stream, out);
}

/* A stream in a capture has nothing to wait for, and asking ends the capture. */
static CUresult enter_to_ask(enum fake_call call, CUstream stream, struct on *out)
{
	CUresult rc = fake_enter(call, NEEDS_CONTEXT | UNSAFE, NULL);

	if (!rc)
		rc = fake_stream(stream, out);
	if (rc || !out->captured)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	stream->capture = CAPTURE_INVALIDATED;
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/*
 * The next stream of the context behind a number of them, of those that the default stream comes after or
 * of all; false: there is none.
 */
static bool next_of(CUcontext ctx, bool all, unsigned skipped, CUstream *out)
{
	bool found = false;

	pthread_mutex_lock(&fake.mutex);
	sl_list_each (link, &fake.all_streams) {
		struct CUstream_st *stream = SL_CONTAINER(link, struct CUstream_st, link);

		if (stream->ctx != ctx || !(all || stream->blocking) || skipped--)
			continue;
		*out = stream->emulated;
		found = true;
		break;
	}
	pthread_mutex_unlock(&fake.mutex);
	return found;
}

/* Asks or waits for a stream, and for all that it comes after or, at all, for all of the context. */
static int over(const struct on *on, bool all, int (*ask)(struct sl_device *, sluice_stream))
{
	CUstream stream = on->stream;
	int answer = ask(on->device, stream);

	if (all || (uintptr_t)stream < (uintptr_t)FAKE_PER_THREAD)
		for (unsigned i = 0; answer >= 0 && next_of(on->ctx, all, i, &stream); i++)
			answer = SL_MIN(answer, ask(on->device, stream));
	return answer;
}

CUresult cuStreamQuery(CUstream stream)
{
	struct on on;
	CUresult rc = enter_to_ask(CALL_cuStreamQuery, stream, &on);
	int answer;

	if (rc)
		return rc;
	answer = over(&on, false, sl_emulated_stream_query);
	return answer == 1 ? CUDA_SUCCESS : answer ? fake_error(answer) : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	struct on on;
	CUresult rc = enter_to_ask(CALL_cuStreamSynchronize, stream, &on);

	return rc ? rc : fake_error(over(&on, false, sl_emulated_stream_synchronize));
}

CUresult cuCtxSynchronize(void)
{
	struct on on;
	CUresult rc = enter_to_ask(CALL_cuCtxSynchronize, FAKE_LEGACY, &on);

	return rc ? rc : fake_error(over(&on, true, sl_emulated_stream_synchronize));
}

/* ----------------------------------------------------------------------------- host functions */

CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *argument)
{
	struct on on;
	CUresult rc = fake_on(CALL_cuLaunchHostFunc, stream, &on);

	if (!rc && !function)
		rc = CUDA_ERROR_INVALID_VALUE;
	if (rc || on.captured)
		return rc;
	return fake_error(sluice_emulated_call(on.ctx->ordinal, on.stream, function, argument));
}
