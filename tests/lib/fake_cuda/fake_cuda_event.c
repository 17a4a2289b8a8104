/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the fake driver. */
#include <errno.h>
#include <stdlib.h>

#include "lib/fake_cuda/fake_cuda.h"

struct CUevent_st {
	struct sl_interval handle; /* in fake.events */
	CUcontext ctx;
	sluice_event emulated;
	bool timed, recorded;
	_Atomic unsigned users; /* the handle, and the stamps to come */
	_Atomic int64_t stamp;
};

static CUresult enter(enum fake_call call, unsigned needs, CUevent event)
{
	CUresult rc = fake_enter(call, needs, NULL);

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	if (!fake_known(&fake.events, event))
		rc = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&fake.mutex);
	return rc;
}

static void let_go(struct CUevent_st *event)
{
	if (atomic_fetch_sub(&event->users, 1) == 1)
		free(event);
}

static struct sl_device *device_of(struct CUevent_st *event)
{
	return &event->ctx->device->base;
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	struct CUevent_st *event;
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuEventCreate, NEEDS_CONTEXT, &ctx);

	if (rc)
		return rc;
	if (flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	event = calloc(1, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->ctx = ctx;
	event->timed = !(flags & CU_EVENT_DISABLE_TIMING);
	event->users = 1;
	rc = fake_error(sl_emulated_event_new(device_of(event), &event->emulated));
	if (rc) {
		free(event);
		return rc;
	}
	pthread_mutex_lock(&fake.mutex);
	fake_publish(&fake.events, &event->handle, event);
	pthread_mutex_unlock(&fake.mutex);
	*out = event;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	CUresult rc = enter(CALL_cuEventDestroy_v2, NEEDS_CONTEXT, event);

	if (rc)
		return rc;
	pthread_mutex_lock(&fake.mutex);
	sl_intervals_remove(&fake.events, &event->handle);
	pthread_mutex_unlock(&fake.mutex);
	rc = fake_error(sl_emulated_event_free(device_of(event), event->emulated));
	let_go(event);
	return rc;
}

static void run_stamp(void *argument)
{
	struct CUevent_st *event = *(struct CUevent_st **)argument;

	atomic_store(&event->stamp, sl_now());
	let_go(event);
	free(argument);
}

static CUresult stamp(struct CUevent_st *event, const struct on *on)
{
	struct CUevent_st **argument = malloc(sizeof(*argument));
	CUresult rc;

	if (!argument)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*argument = event;
	atomic_fetch_add(&event->users, 1);
	rc = fake_run(on, run_stamp, argument);
	if (rc)
		let_go(event);
	return rc;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	CUresult rc = enter(CALL_cuEventRecord, NEEDS_CONTEXT, event);
	struct on on;

	if (!rc)
		rc = fake_stream(stream, &on);
	if (rc || on.captured)
		return rc;
	if (on.ctx != event->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->timed)
		rc = stamp(event, &on);
	if (!rc)
		rc = fake_error(sl_emulated_event_record(on.device, event->emulated, on.stream));
	if (!rc)
		event->recorded = true;
	return rc;
}

/* ------------------------------------------------------------------------- on another device */

/* A stream of the event's device tells this one by a word. */
static CUresult await_far(struct CUevent_st *event, const struct on *on)
{
	struct sl_device *there = device_of(event);
	struct sl_command write = fake_word(SL_WRITE_WORD), await = write;
	sluice_stream stream;
	size_t taken;
	int rc;

	await.kind = SL_AWAIT_WORD;
	rc = sl_emulated_stream_new(there, &stream);
	if (rc)
		return fake_error(rc);
	rc = sl_emulated_event_await(there, event->emulated, stream);
	if (!rc)
		rc = sl_emulated_enqueue(there, stream, &write, 1, &taken);
	if (!rc)
		rc = sl_emulated_enqueue(on->device, on->stream, &await, 1, &taken);
	sl_emulated_stream_free(there, stream);
	return fake_error(rc);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	CUresult rc = enter(CALL_cuStreamWaitEvent, NEEDS_CONTEXT, event);
	struct on on;

	if (!rc && flags & ~1u)
		rc = CUDA_ERROR_INVALID_VALUE;
	if (!rc)
		rc = fake_stream(stream, &on);
	if (rc || on.captured)
		return rc;
	if (on.device != device_of(event))
		return await_far(event, &on);
	return fake_error(sl_emulated_event_await(on.device, event->emulated, on.stream));
}

/* ------------------------------------------------------------------------------------- asking */

CUresult cuEventQuery(CUevent event)
{
	CUresult rc = enter(CALL_cuEventQuery, UNSAFE, event);
	int answer;

	if (rc)
		return rc;
	answer = sl_emulated_event_query(device_of(event), event->emulated);
	return answer == 1 ? CUDA_SUCCESS : answer ? fake_error(answer) : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
	CUresult rc = enter(CALL_cuEventSynchronize, UNSAFE, event);

	return rc ? rc
	          : fake_error(sl_emulated_event_synchronize(device_of(event), event->emulated));
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
	CUresult rc = enter(CALL_cuEventElapsedTime, 0, from);

	pthread_mutex_lock(&fake.mutex);
	if (!rc && !fake_known(&fake.events, to))
		rc = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&fake.mutex);
	if (rc)
		return rc;
	if (!from->timed || !to->timed || !from->recorded || !to->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	if (sl_emulated_event_query(device_of(from), from->emulated) != 1 ||
	    sl_emulated_event_query(device_of(to), to->emulated) != 1)
		return CUDA_ERROR_NOT_READY;
	*milliseconds = (float)(atomic_load(&to->stamp) - atomic_load(&from->stamp)) / 1e6f;
	return CUDA_SUCCESS;
}
