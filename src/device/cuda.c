/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's GPUs, by the driver's API. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda_api.h"
#include "device/cuda_words.h"
#include "device/device.h"

#define WORDS_AT_ONCE 32

struct cuda {
	struct sl_device base;
	CUdevice ordinal;
	bool words; /* registered memory has the same address there, as words need */
	struct sl_cuda_words in_words;

	/* Made at the first call that works on the device, never changed after that. */
	pthread_mutex_t opening;
	_Atomic bool is_open;
	CUcontext primary;   /* retained for good */
	sluice_stream probe; /* never given anything: its query tells of errors that stay */
};

static struct {
	pthread_once_t once;
	struct cuda devices[SL_DEVICES_MOST];
	unsigned count;
	char missing[160]; /* why none of them is here */
} all = {.once = PTHREAD_ONCE_INIT};

static struct cuda *cuda_of(struct sl_device *device)
{
	return SL_CONTAINER(device, struct cuda, base);
}

static int error_of(CUresult rc)
{
	switch (rc) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
		return -EINVAL;
	case CUDA_ERROR_ILLEGAL_ADDRESS:
		return -EFAULT;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -ENOTSUP;
	case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
		return -EEXIST;
	default:
		return -EIO;
	}
}

/* 1: done, 0: not yet. */
static int answer_of(CUresult rc)
{
	return rc == CUDA_ERROR_NOT_READY ? 0 : rc ? error_of(rc) : 1;
}

/* ----------------------------------------------------------------------------------- contexts */

/* Whether a context is of that device. */
static bool is_of(const struct sl_cuda_api *api, CUcontext ctx, CUdevice ordinal)
{
	CUdevice found = -1;

	if (!ctx || api->cuCtxPushCurrent_v2(ctx))
		return false;
	api->cuCtxGetDevice(&found);
	api->cuCtxPopCurrent_v2(&ctx);
	return found == ordinal;
}

/*
 * While the program captures a stream, calls that might wait for one are refused, and end the capture.
 * sluice's concern no captured stream, so between these two they pass.
 */
static _Thread_local int capture_mode; /* the program's */

static void relax(void)
{
	capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	sl_cuda_api()->cuThreadExchangeStreamCaptureMode(&capture_mode);
}

static void unrelax(void)
{
	sl_cuda_api()->cuThreadExchangeStreamCaptureMode(&capture_mode);
}

/* The error, and which call it is of. */
static CUresult make_primary(struct cuda *cuda, const char **call)
{
	const struct sl_cuda_api *api = sl_cuda_api();
	CUcontext ctx;
	CUresult rc = CUDA_SUCCESS;

	*call = "cuDevicePrimaryCtxRetain";
	if (!cuda->primary)
		rc = api->cuDevicePrimaryCtxRetain(&cuda->primary, cuda->ordinal);
	if (!rc)
		rc = api->cuCtxPushCurrent_v2(cuda->primary);
	if (rc)
		return rc;
	*call = "cuStreamCreate";
	relax();
	rc = api->cuStreamCreate(&cuda->probe, CU_STREAM_NON_BLOCKING);
	unrelax();
	api->cuCtxPopCurrent_v2(&ctx);
	return rc;
}

/* A context takes memory of the GPU and some time: only those have one that the program uses. */
static int open_device(struct sl_device *device)
{
	struct cuda *cuda = cuda_of(device);
	CUresult rc = CUDA_SUCCESS;
	const char *call = "";

	if (atomic_load(&cuda->is_open))
		return 0;
	pthread_mutex_lock(&cuda->opening);
	if (!atomic_load(&cuda->is_open)) {
		rc = make_primary(cuda, &call);
		atomic_store(&cuda->is_open, !rc);
	}
	pthread_mutex_unlock(&cuda->opening);
	return rc ? sl_fail(error_of(rc), "%s cannot be used: %s() says %d", device->name, call, rc)
	          : 0;
}

/*
 * Makes a context current, until leave(): the stream's own; for a stream that every context has, the
 * caller's if it is of this device; else the primary one.
 */
static int enter(struct cuda *cuda, sluice_stream stream)
{
	const struct sl_cuda_api *api = sl_cuda_api();
	CUcontext ctx = NULL;
	int rc = open_device(&cuda->base);

	if (rc)
		return rc;
	if ((uintptr_t)stream > 2) {
		if (api->cuStreamGetCtx(stream, &ctx))
			return -EINVAL;
	} else if (api->cuCtxGetCurrent(&ctx) || !is_of(api, ctx, cuda->ordinal)) {
		ctx = cuda->primary;
	}
	rc = error_of(api->cuCtxPushCurrent_v2(ctx));
	if (!rc)
		relax();
	return rc;
}

static void leave(void)
{
	CUcontext ctx;

	unrelax();
	sl_cuda_api()->cuCtxPopCurrent_v2(&ctx);
}

static int enter_device(struct sl_device *device, sluice_stream stream)
{
	return enter(cuda_of(device), stream);
}

/* One call of the driver in a context of the device, for functions that only need that. */
#define IN_CONTEXT(device, stream, call)                  \
	do {                                              \
		int rc_ = enter(cuda_of(device), stream); \
		if (!rc_) {                               \
			rc_ = error_of(call);             \
			leave();                          \
		}                                         \
		return rc_;                               \
	} while (0)

/* --------------------------------------------------------------------------------- what it is */

static const struct sl_device_ops cuda_ops;

static void look_at(const struct sl_cuda_api *api, int number, struct cuda *cuda)
{
	int same = 0;

	cuda->base.ops = &cuda_ops;
	snprintf(cuda->base.name, sizeof(cuda->base.name), "cuda:%d", number);
	pthread_mutex_init(&cuda->opening, NULL);
	api->cuDeviceGetAttribute(
		&same, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, cuda->ordinal);
	cuda->words = same;
	sl_cuda_describe(api, cuda->ordinal, &cuda->in_words);
}

static void look_at_all(void)
{
	const struct sl_cuda_api *api = sl_cuda_api();
	int count = 0;

	if (!api)
		return;
	if (api->cuDeviceGetCount(&count) || !count)
		snprintf(all.missing, sizeof(all.missing), "the driver of CUDA shows no GPU");
	for (int i = 0; i < count && all.count < SL_DEVICES_MOST; i++) {
		struct cuda *cuda = &all.devices[all.count];

		if (api->cuDeviceGet(&cuda->ordinal, i))
			continue;
		look_at(api, i, cuda);
		all.count++;
	}
}

static struct sl_device *find(unsigned index)
{
	pthread_once(&all.once, look_at_all);
	return index < all.count ? &all.devices[index].base : NULL;
}

static const char *missing(void)
{
	find(0);
	return sl_cuda_api() ? all.missing : sl_cuda_api_missing();
}

static struct sl_device *of_ordinal(CUdevice ordinal)
{
	find(0);
	for (unsigned i = 0; i < all.count; i++)
		if (all.devices[i].ordinal == ordinal)
			return &all.devices[i].base;
	return NULL;
}

static struct sl_device *of_memory(const void *memory)
{
	const struct sl_cuda_api *api = sl_cuda_api_in_use();
	int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
	                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	unsigned type = 0, managed = 0;
	int ordinal = -1;
	void *values[] = {&type, &managed, &ordinal};

	/* Memory of the host has no type, or one of its own if it is pinned. */
	if (!api || api->cuPointerGetAttributes(3, attributes, values, (uintptr_t)memory))
		return NULL;
	return type == CU_MEMORYTYPE_DEVICE || (managed & 0xff) ? of_ordinal(ordinal) : NULL;
}

static struct sl_device *of_stream(sluice_stream stream)
{
	const struct sl_cuda_api *api = sl_cuda_api_in_use();
	CUdevice ordinal = -1;
	CUcontext ctx;

	if (!api || api->cuStreamGetCtx(stream, &ctx) || api->cuCtxPushCurrent_v2(ctx))
		return NULL;
	api->cuCtxGetDevice(&ordinal);
	api->cuCtxPopCurrent_v2(&ctx);
	return of_ordinal(ordinal);
}

/* An event does not tell its device. */
static struct sl_device *of_event(sluice_event event, struct sl_device *wanted)
{
	(void)event;
	if (!sl_cuda_api_in_use())
		return NULL;
	return wanted && wanted->ops == &cuda_ops ? wanted : find(0);
}

static struct sl_device *current(void)
{
	const struct sl_cuda_api *api = sl_cuda_api_in_use();
	CUdevice ordinal = -1;

	return api && !api->cuCtxGetDevice(&ordinal) ? of_ordinal(ordinal) : NULL;
}

static int describe(struct sl_device *device, struct sluice_device *out)
{
	struct cuda *cuda = cuda_of(device);
	size_t available = 0, total = 0;
	int rc = enter(cuda, NULL);

	if (rc)
		return rc;
	rc = error_of(sl_cuda_api()->cuMemGetInfo_v2(&available, &total));
	leave();
	out->detail = cuda->in_words.detail;
	out->memory_bytes = total;
	out->free_bytes = available;
	out->stream_order = cuda->words;
	out->stream_order_detail =
		cuda->words ? "it awaits and writes words in registered memory"
			    : "registered memory has another address there, so words cannot be "
			      "awaited";
	out->driver = cuda->in_words.driver;
	out->pci = *cuda->in_words.pci ? cuda->in_words.pci : NULL;
	out->numa_node = out->pci ? sl_pci_node(out->pci) : -1;
	return rc;
}

/* ------------------------------------------------------------------------------------ memory */

static int cuda_alloc(struct sl_device *device, size_t length, void **out)
{
	CUdeviceptr memory = 0;
	int rc = enter(cuda_of(device), NULL);

	if (rc)
		return rc;
	rc = error_of(sl_cuda_api()->cuMemAlloc_v2(&memory, length));
	leave();
	if (!rc)
		*out = (void *)(uintptr_t)memory;
	return rc;
}

static int cuda_free(struct sl_device *device, void *memory)
{
	IN_CONTEXT(device, NULL, sl_cuda_api()->cuMemFree_v2((uintptr_t)memory));
}

static int register_memory(struct sl_device *device, void *memory, size_t length)
{
	IN_CONTEXT(device, NULL,
	           sl_cuda_api()->cuMemHostRegister_v2(memory, length,
	                                               CU_MEMHOSTREGISTER_PORTABLE |
	                                                       CU_MEMHOSTREGISTER_DEVICEMAP));
}

static int unregister_memory(struct sl_device *device, void *memory)
{
	IN_CONTEXT(device, NULL, sl_cuda_api()->cuMemHostUnregister(memory));
}

static bool is_pinned(const void *memory)
{
	int attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
	unsigned type = 0;
	void *value = &type;

	return !sl_cuda_api()->cuPointerGetAttributes(1, &attribute, &value, (uintptr_t)memory) &&
	       type == CU_MEMORYTYPE_HOST;
}

static bool registered(struct sl_device *device, const void *memory, size_t length)
{
	(void)device;
	return is_pinned(memory) && is_pinned((const char *)memory + length - 1);
}

static bool managed(struct sl_device *device, const void *memory)
{
	int attribute = CU_POINTER_ATTRIBUTE_IS_MANAGED;
	unsigned yes = 0;
	void *value = &yes;

	(void)device;
	return !sl_cuda_api()->cuPointerGetAttributes(1, &attribute, &value, (uintptr_t)memory) &&
	       (yes & 0xff);
}

/* ------------------------------------------------------------------------------------ streams */

static int stream_new(struct sl_device *device, sluice_stream *out)
{
	IN_CONTEXT(device, NULL, sl_cuda_api()->cuStreamCreate(out, CU_STREAM_NON_BLOCKING));
}

static int stream_free(struct sl_device *device, sluice_stream stream)
{
	IN_CONTEXT(device, stream, sl_cuda_api()->cuStreamDestroy_v2(stream));
}

static int stream_query(struct sl_device *device, sluice_stream stream)
{
	int rc = enter(cuda_of(device), stream);

	if (rc)
		return rc;
	rc = answer_of(sl_cuda_api()->cuStreamQuery(stream));
	leave();
	return rc;
}

static int stream_synchronize(struct sl_device *device, sluice_stream stream)
{
	IN_CONTEXT(device, stream, sl_cuda_api()->cuStreamSynchronize(stream));
}

static int stream_check(struct sl_device *device, sluice_stream stream)
{
	struct cuda *cuda = cuda_of(device);
	int status = 0, rc;

	if (!cuda->words)
		return sl_fail(-ENOTSUP,
		               "%s has no stream order: its memory operations are missing",
		               device->name);
	rc = enter(cuda, stream);
	if (rc)
		return sl_fail(rc, "%s: the stream is of no context", device->name);
	rc = sl_cuda_api()->cuStreamIsCapturing(stream, &status);
	leave();
	if (rc || status != CU_STREAM_CAPTURE_STATUS_NONE)
		return sl_fail(-EINVAL, "a stream of %s that is being captured cannot be waited on",
		               device->name);
	return 0;
}

/* Words that follow each other are one command of the driver. */
static CUresult give_words(const struct sl_cuda_api *api, sluice_stream stream,
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

static CUresult give_one(const struct sl_cuda_api *api, sluice_stream stream,
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

static int enqueue(struct sl_device *device, sluice_stream stream,
                   const struct sl_command *commands, size_t count, size_t *taken)
{
	const struct sl_cuda_api *api = sl_cuda_api();
	CUresult error = CUDA_SUCCESS;
	int rc = enter(cuda_of(device), stream);

	*taken = 0;
	if (rc)
		return rc;
	while (*taken < count) {
		size_t words = count_words(commands + *taken, count - *taken);

		error = words > 1 ? give_words(api, stream, commands + *taken, words)
		                  : give_one(api, stream, commands + *taken);
		if (error)
			break;
		*taken += words > 1 ? words : 1;
	}
	leave();
	return error_of(error);
}

static int copy(struct sl_device *device, sluice_stream stream, void *to, const void *from,
                size_t length, bool wait)
{
	const struct sl_cuda_api *api = sl_cuda_api();
	int rc = enter(cuda_of(device), stream);

	if (rc)
		return rc;
	rc = error_of(api->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, length, stream));
	/* Into memory that is not pinned the driver itself waits. */
	if (!rc && wait)
		rc = error_of(api->cuStreamSynchronize(stream));
	leave();
	return rc;
}

/* ------------------------------------------------------------------------------------- events */

static int event_new(struct sl_device *device, sluice_event *out)
{
	IN_CONTEXT(device, NULL, sl_cuda_api()->cuEventCreate(out, CU_EVENT_DISABLE_TIMING));
}

static int event_free(struct sl_device *device, sluice_event event)
{
	IN_CONTEXT(device, NULL, sl_cuda_api()->cuEventDestroy_v2(event));
}

static int event_record(struct sl_device *device, sluice_event event, sluice_stream stream)
{
	IN_CONTEXT(device, stream, sl_cuda_api()->cuEventRecord(event, stream));
}

static int event_await(struct sl_device *device, sluice_event event, sluice_stream stream)
{
	IN_CONTEXT(device, stream, sl_cuda_api()->cuStreamWaitEvent(stream, event, 0));
}

static int event_query(struct sl_device *device, sluice_event event)
{
	int rc;

	(void)device;
	relax();
	rc = answer_of(sl_cuda_api()->cuEventQuery(event));
	unrelax();
	return rc;
}

static int event_synchronize(struct sl_device *device, sluice_event event)
{
	int rc;

	(void)device;
	relax();
	rc = error_of(sl_cuda_api()->cuEventSynchronize(event));
	unrelax();
	return rc;
}

static int status(struct sl_device *device)
{
	struct cuda *cuda = cuda_of(device);
	int rc = open_device(device);

	if (!rc)
		rc = enter(cuda, cuda->probe);
	if (rc)
		return rc;
	rc = answer_of(sl_cuda_api()->cuStreamQuery(cuda->probe));
	leave();
	return SL_MIN(rc, 0);
}

static const struct sl_device_ops cuda_ops = {
	.open = open_device,
	.describe = describe,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.register_memory = register_memory,
	.unregister_memory = unregister_memory,
	.registered = registered,
	.managed = managed,
	.stream_new = stream_new,
	.stream_free = stream_free,
	.stream_query = stream_query,
	.stream_synchronize = stream_synchronize,
	.stream_check = stream_check,
	.enqueue = enqueue,
	.copy = copy,
	.event_new = event_new,
	.event_free = event_free,
	.event_record = event_record,
	.event_await = event_await,
	.event_query = event_query,
	.event_synchronize = event_synchronize,
	.status = status,
	.enter = enter_device,
	.leave = leave,
};

const struct sl_device_kind sl_cuda = {
	.name = "cuda",
	.missing = missing,
	.feature = sl_cuda_feature,
	.find = find,
	.of_memory = of_memory,
	.of_stream = of_stream,
	.of_event = of_event,
	.current = current,
};
