/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, events and commands of CUDA devices
 *
 * Enqueues copies, waits and writes of words, and wraps the driver's streams and events.
 *
 * Threads: no thread of its own; the application's threads and the copier call.
 */
#include <errno.h>
#include <string.h>

#include "device/cuda.h"

#define WORDS_AT_ONCE 32
/* Fewer rows are given as any other copies. */
#define ROWS_LEAST 8

/* ------------------------------------------------------------------------------------ streams */

int sl_cuda_stream_new(struct sl_device *device, sluice_stream *out)
{
	IN_CONTEXT(device, NULL,
	           sl_cuda_driver()->cuStreamCreate((CUstream *)out, CU_STREAM_NON_BLOCKING));
}

int sl_cuda_stream_free(struct sl_device *device, sluice_stream stream)
{
	IN_CONTEXT(device, stream, sl_cuda_driver()->cuStreamDestroy_v2(stream));
}

int sl_cuda_stream_query(struct sl_device *device, sluice_stream stream)
{
	ENTERED(device, stream, sl_cuda_answer(sl_cuda_driver()->cuStreamQuery(stream)));
}

int sl_cuda_stream_synchronize(struct sl_device *device, sluice_stream stream)
{
	IN_CONTEXT(device, stream, sl_cuda_driver()->cuStreamSynchronize(stream));
}

int sl_cuda_stream_check(struct sl_device *device, sluice_stream stream)
{
	struct cuda *cuda = sl_cuda_of(device);
	int status = 0, rc;

	if (!cuda->words)
		return sl_fail(-ENOTSUP,
		               "%s has no stream order: its memory operations are missing",
		               device->name);
	rc = sl_cuda_enter(cuda, stream);
	if (rc)
		return sl_fail(rc, "%s: the stream is of no context", device->name);
	rc = sl_cuda_driver()->cuStreamIsCapturing(stream, &status);
	sl_cuda_leave();
	if (rc || status != CU_STREAM_CAPTURE_STATUS_NONE)
		return sl_fail(-EINVAL, "a stream of %s that is being captured cannot be waited on",
		               device->name);
	return 0;
}

/* Enqueues consecutive waits and writes of words as a single driver call. */
static CUresult cuda_give_words(const struct sl_cuda_api *api, sluice_stream stream,
                                const struct sl_command *commands, size_t count)
{
	CUstreamBatchMemOpParams operations[WORDS_AT_ONCE];

	memset(operations, 0, count * sizeof(operations[0]));
	for (size_t i = 0; i < count; i++) {
		bool await = commands[i].kind == SL_AWAIT_WORD;

		operations[i].word.operation =
			await ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
		operations[i].word.address = (uintptr_t)commands[i].word.at;
		operations[i].word.value = commands[i].word.value;
		operations[i].word.flags =
			await ? CU_STREAM_WAIT_VALUE_GEQ : CU_STREAM_WRITE_VALUE_DEFAULT;
	}
	return api->cuStreamBatchMemOp_v2(stream, count, operations, 0);
}

static size_t count_words(const struct sl_command *commands, size_t count)
{
	size_t words = 0;

	while (words < count && words < WORDS_AT_ONCE && commands[words].kind != SL_COPY)
		words++;
	return words;
}

static CUresult cuda_give_one(const struct sl_cuda_api *api, sluice_stream stream,
                              const struct sl_command *command)
{
	CUdeviceptr at = (uintptr_t)command->word.at;

	switch (command->kind) {
	case SL_AWAIT_WORD:
		return api->cuStreamWaitValue32_v2(stream, at, command->word.value,
		                                   CU_STREAM_WAIT_VALUE_GEQ);
	case SL_WRITE_WORD:
		return api->cuStreamWriteValue32_v2(stream, at, command->word.value,
		                                    CU_STREAM_WRITE_VALUE_DEFAULT);
	default:
		return api->cuMemcpyAsync((uintptr_t)command->copy.to,
		                          (uintptr_t)command->copy.from, command->copy.length,
		                          stream);
	}
}

/* Drivers from CUDA 12.8 on take many copies in a call, but not on the legacy default stream. */
bool sl_cuda_joins(struct sl_device *device, sluice_stream stream)
{
	(void)device;
	return sl_cuda_driver()->cuMemcpyBatchAsync && (uintptr_t)stream > CU_STREAM_LEGACY_NUMBER;
}

/* Enqueues copies as a single driver call, or, if the driver refuses that, one by one. */
static CUresult cuda_give_copies(const struct sl_cuda_api *api, sluice_stream stream,
                                 const struct sl_command *commands, size_t count, size_t *taken)
{
	CUdeviceptr to[SL_COPIES_JOINED], from[SL_COPIES_JOINED];
	struct CUmemcpyAttributes attributes = {.source_order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t lengths[SL_COPIES_JOINED], start = 0, failed;
	CUresult error;

	for (size_t i = 0; i < count; i++) {
		to[i] = (uintptr_t)commands[i].copy.to;
		from[i] = (uintptr_t)commands[i].copy.from;
		lengths[i] = commands[i].copy.length;
	}
	error = api->cuMemcpyBatchAsync(to, from, lengths, count, &attributes, &start, 1, &failed,
	                                stream);
	if (!error) {
		*taken += count;
		return error;
	}
	for (size_t i = 0; i < count; i++) {
		error = cuda_give_one(api, stream, &commands[i]);
		if (error)
			break;
		++*taken;
	}
	return error;
}

/* Enqueues copies of the rows of a table as a single command. */
static CUresult cuda_give_rows(const struct sl_cuda_api *api, sluice_stream stream,
                               const struct sl_command *commands, size_t count)
{
	const struct sl_command *second = &commands[1];
	struct CUmemcpy2D copy = {
		.from_type = CU_MEMORYTYPE_UNIFIED,
		.from_device = (uintptr_t)commands->copy.from,
		.from_pitch = (uintptr_t)second->copy.from - (uintptr_t)commands->copy.from,
		.to_type = CU_MEMORYTYPE_UNIFIED,
		.to_device = (uintptr_t)commands->copy.to,
		.to_pitch = (uintptr_t)second->copy.to - (uintptr_t)commands->copy.to,
		.width = commands->copy.length,
		.height = count,
	};

	return api->cuMemcpy2DAsync_v2(&copy, stream);
}

int sl_cuda_enqueue(struct sl_device *device, sluice_stream stream,
                    const struct sl_command *commands, size_t count, size_t *taken)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
	bool joins = sl_cuda_joins(device, stream);
	CUresult error = CUDA_SUCCESS;
	int rc = sl_cuda_enter(sl_cuda_of(device), stream);

	*taken = 0;
	if (rc)
		return rc;
	while (!error && *taken < count) {
		const struct sl_command *next = commands + *taken;
		size_t words = count_words(next, count - *taken);
		size_t rows = sl_copies_rows(next, count - *taken), copies;

		if (rows >= ROWS_LEAST && !cuda_give_rows(api, stream, next, rows)) {
			*taken += rows;
			continue;
		}
		copies = joins ? sl_copies_joined(next, count - *taken) : 0;
		if (copies > 1) {
			error = cuda_give_copies(api, stream, next, copies, taken);
			continue;
		}
		error = words > 1 ? cuda_give_words(api, stream, next, words)
		                  : cuda_give_one(api, stream, next);
		if (!error)
			*taken += words > 1 ? words : 1;
	}
	sl_cuda_leave();
	return sl_cuda_error(error);
}

int sl_cuda_copy(struct sl_device *device, sluice_stream stream, void *to, const void *from,
                 size_t length, bool wait)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
	int rc = sl_cuda_enter(sl_cuda_of(device), stream);

	if (rc)
		return rc;
	rc = sl_cuda_error(api->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, length, stream));
	/* For unpinned memory the driver itself waits. */
	if (!rc && wait)
		rc = sl_cuda_error(api->cuStreamSynchronize(stream));
	sl_cuda_leave();
	return rc;
}

/* ------------------------------------------------------------------------------------- events */

int sl_cuda_event_new(struct sl_device *device, sluice_event *out)
{
	IN_CONTEXT(device, NULL,
	           sl_cuda_driver()->cuEventCreate((CUevent *)out, CU_EVENT_DISABLE_TIMING));
}

int sl_cuda_event_free(struct sl_device *device, sluice_event event)
{
	IN_CONTEXT(device, NULL, sl_cuda_driver()->cuEventDestroy_v2(event));
}

int sl_cuda_event_record(struct sl_device *device, sluice_event event, sluice_stream stream)
{
	IN_CONTEXT(device, stream, sl_cuda_driver()->cuEventRecord(event, stream));
}

int sl_cuda_event_await(struct sl_device *device, sluice_event event, sluice_stream stream)
{
	IN_CONTEXT(device, stream, sl_cuda_driver()->cuStreamWaitEvent(stream, event, 0));
}

int sl_cuda_event_query(struct sl_device *device, sluice_event event)
{
	(void)device;
	sl_cuda_relax();
	int rc = sl_cuda_answer(sl_cuda_driver()->cuEventQuery(event));
	sl_cuda_unrelax();
	return rc;
}

int sl_cuda_event_synchronize(struct sl_device *device, sluice_event event)
{
	(void)device;
	sl_cuda_relax();
	int rc = sl_cuda_error(sl_cuda_driver()->cuEventSynchronize(event));
	sl_cuda_unrelax();
	return rc;
}
