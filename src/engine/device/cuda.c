/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA devices
 *
 * Implements struct sl_device_kind and struct sl_device_ops on CUDA's driver API: loads
 * libcuda.so.1 at run time, so that sluice neither links to nor needs CUDA; finds the GPUs, makes
 * contexts current, allocates and registers memory. Streams, events and copies are in
 * cuda_stream.c, shared memory in cuda_sharing.c.
 *
 * Threads: no thread of its own; every function may be called from any thread. The driver is loaded
 * once, under pthread_once(). Devices are found once; `opening` guards primary contexts.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>

#include "device/cuda.h"

/* ------------------------------------------------------------------------------------ driver */

#define DRIVER "libcuda.so.1"

static struct {
	pthread_once_t once;
	struct sl_cuda_api api;
	_Atomic bool usable; /* set once, with release order, after api is filled in */
	bool found;
	char missing[160];
} driver = {.once = PTHREAD_ONCE_INIT};

static bool find_functions(void *library)
{
#define FIND(name, arguments)                                                        \
	*(void **)&driver.api.name = dlsym(library, #name);                          \
	if (!driver.api.name) {                                                      \
		snprintf(driver.missing, sizeof(driver.missing),                     \
		         "%s has no %s: it is older than CUDA 12.0", DRIVER, #name); \
		return false;                                                        \
	}
	SL_CUDA_FUNCTIONS(FIND)
#undef FIND
#define FIND(name, arguments) *(void **)&driver.api.name = dlsym(library, #name);
	SL_CUDA_OPTIONAL(FIND)
#undef FIND
	return true;
}

static void load_driver(void)
{
	void *library = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
	const char *name;

	driver.found = library;
	if (!library) {
		snprintf(driver.missing, sizeof(driver.missing), "%s cannot be loaded", DRIVER);
		return;
	}
	if (!find_functions(library))
		return;
	CUresult rc = driver.api.cuInit(0);
	if (rc && !driver.api.cuGetErrorName(rc, &name))
		snprintf(driver.missing, sizeof(driver.missing), "cuInit() says %s (%d)", name, rc);
	else if (rc)
		snprintf(driver.missing, sizeof(driver.missing), "cuInit() says %d", rc);
	else
		atomic_store_explicit(&driver.usable, true, memory_order_release);
}

const struct sl_cuda_api *sl_cuda_driver(void)
{
	pthread_once(&driver.once, load_driver);
	return atomic_load_explicit(&driver.usable, memory_order_acquire) ? &driver.api : NULL;
}

const char *sl_cuda_api_missing(void)
{
	return sl_cuda_driver() ? "" : driver.missing;
}

bool sl_cuda_api_found(void)
{
	sl_cuda_driver();
	return driver.found;
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *argument)
{
	(void)size;
	*(unsigned long long *)argument = info->dlpi_adds;
	return 1; /* the counter is the same in every entry */
}

const struct sl_cuda_api *sl_cuda_api_in_use(void)
{
	static _Atomic unsigned long long seen;
	unsigned long long loads = 0;

	if (atomic_load_explicit(&driver.usable, memory_order_acquire))
		return &driver.api;
	/* For every operation: looks again only if a library was loaded since the last call. */
	dl_iterate_phdr(count_loads, &loads);
	if (loads == atomic_load_explicit(&seen, memory_order_relaxed))
		return NULL;
	void *library = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
	atomic_store_explicit(&seen, loads, memory_order_relaxed);
	if (!library)
		return NULL;
	dlclose(library);
	return sl_cuda_driver();
}

/* ------------------------------------------------------------------------------------ errors */

int sl_cuda_error(CUresult rc)
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

static struct {
	pthread_once_t once;
	struct cuda devices[SL_DEVICES_MOST];
	unsigned count;
	char missing[160]; /* why devices are missing */
} all = {.once = PTHREAD_ONCE_INIT};

/* ----------------------------------------------------------------------------------- contexts */

/* Returns true if the context belongs to that device. */
static bool context_is_of(const struct sl_cuda_api *api, CUcontext ctx, CUdevice ordinal)
{
	CUdevice found = -1;

	if (!ctx || api->cuCtxPushCurrent_v2(ctx))
		return false;
	api->cuCtxGetDevice(&found);
	api->cuCtxPopCurrent_v2(&ctx);
	return found == ordinal;
}

/*
 * While the program captures a stream, the driver refuses calls that might wait for a stream, and
 * the capture fails. sluice's calls concern no captured stream: between these two functions the
 * driver accepts them on this thread.
 */
static _Thread_local int capture_mode; /* saved mode of the program */

void sl_cuda_relax(void)
{
	capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	sl_cuda_driver()->cuThreadExchangeStreamCaptureMode(&capture_mode);
}

void sl_cuda_unrelax(void)
{
	sl_cuda_driver()->cuThreadExchangeStreamCaptureMode(&capture_mode);
}

/* Returns the driver's error and the name of the call that failed. */
static CUresult cuda_make_primary(struct cuda *cuda, const char **call)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
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
	sl_cuda_relax();
	rc = api->cuStreamCreate(&cuda->probe, CU_STREAM_NON_BLOCKING);
	sl_cuda_unrelax();
	api->cuCtxPopCurrent_v2(&ctx);
	return rc;
}

/* Opens the device. A context costs GPU memory and time: only used devices have one. */
static int cuda_open(struct sl_device *device)
{
	struct cuda *cuda = sl_cuda_of(device);
	CUresult rc = CUDA_SUCCESS;
	const char *call = "";

	if (atomic_load(&cuda->is_open))
		return 0;
	sl_mutex_lock(&cuda->opening);
	if (!atomic_load(&cuda->is_open)) {
		rc = cuda_make_primary(cuda, &call);
		atomic_store(&cuda->is_open, !rc);
	}
	sl_mutex_unlock(&cuda->opening);
	return rc ? sl_fail(sl_cuda_error(rc), "%s cannot be used: %s() says %d", device->name,
	                    call, rc)
	          : 0;
}

int sl_cuda_enter(struct cuda *cuda, sluice_stream stream)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
	CUcontext ctx = NULL;
	int rc = cuda_open(&cuda->base);

	if (rc)
		return rc;
	if ((uintptr_t)stream > 2) {
		if (api->cuStreamGetCtx(stream, &ctx))
			return -EINVAL;
	} else if (api->cuCtxGetCurrent(&ctx) || !context_is_of(api, ctx, cuda->ordinal)) {
		ctx = cuda->primary;
	}
	rc = sl_cuda_error(api->cuCtxPushCurrent_v2(ctx));
	if (!rc)
		sl_cuda_relax();
	return rc;
}

void sl_cuda_leave(void)
{
	CUcontext ctx;

	sl_cuda_unrelax();
	sl_cuda_driver()->cuCtxPopCurrent_v2(&ctx);
}

static int cuda_enter_device(struct sl_device *device, sluice_stream stream)
{
	return sl_cuda_enter(sl_cuda_of(device), stream);
}

/* --------------------------------------------------------------------------------- what it is */

static const struct sl_device_ops cuda_ops;

static void cuda_look_at(const struct sl_cuda_api *api, int number, struct cuda *cuda)
{
	int same = 0;

	cuda->base.ops = &cuda_ops;
	snprintf(cuda->base.name, sizeof(cuda->base.name), "cuda:%d", number);
	sl_mutex_init(&cuda->opening);
	api->cuDeviceGetAttribute(
		&same, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, cuda->ordinal);
	cuda->words = same;
	sl_cuda_describe(api, cuda->ordinal, &cuda->text);
	cuda->base.sharing = sl_cuda_sharing(api, cuda);
	cuda->base.pci = *cuda->text.pci ? cuda->text.pci : NULL;
}

static void cuda_look_at_all(void)
{
	const struct sl_cuda_api *api = sl_cuda_driver();
	int count = 0;

	if (!api)
		return;
	if (api->cuDeviceGetCount(&count) || !count)
		snprintf(all.missing, sizeof(all.missing), "the driver of CUDA shows no GPU");
	for (int i = 0; i < count && all.count < SL_DEVICES_MOST; i++) {
		struct cuda *cuda = &all.devices[all.count];

		if (api->cuDeviceGet(&cuda->ordinal, i))
			continue;
		cuda_look_at(api, i, cuda);
		all.count++;
	}
}

static struct sl_device *cuda_find(unsigned index)
{
	pthread_once(&all.once, cuda_look_at_all);
	return index < all.count ? &all.devices[index].base : NULL;
}

static const char *cuda_missing(void)
{
	cuda_find(0);
	return sl_cuda_driver() ? all.missing : sl_cuda_api_missing();
}

static struct sl_device *cuda_of_ordinal(CUdevice ordinal)
{
	cuda_find(0);
	for (unsigned i = 0; i < all.count; i++)
		if (all.devices[i].ordinal == ordinal)
			return &all.devices[i].base;
	return NULL;
}

static struct sl_device *cuda_of_memory(const void *memory)
{
	const struct sl_cuda_api *api = sl_cuda_api_in_use();
	int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
	                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	unsigned type = 0, managed = 0;
	int ordinal = -1;
	void *values[] = {&type, &managed, &ordinal};

	/* Host memory has no type, or the host type if it is pinned. */
	if (!api || api->cuPointerGetAttributes(3, attributes, values, (uintptr_t)memory))
		return NULL;
	return type == CU_MEMORYTYPE_DEVICE || (managed & 0xff) ? cuda_of_ordinal(ordinal) : NULL;
}

static struct sl_device *cuda_of_stream(sluice_stream stream)
{
	const struct sl_cuda_api *api = sl_cuda_api_in_use();
	CUdevice ordinal = -1;
	CUcontext ctx;

	if (!api || api->cuStreamGetCtx(stream, &ctx))
		return NULL;
	cuda_find(0);
	for (unsigned i = 0; i < all.count; i++)
		if (atomic_load(&all.devices[i].is_open) && all.devices[i].primary == ctx)
			return &all.devices[i].base;
	if (api->cuCtxPushCurrent_v2(ctx))
		return NULL;
	api->cuCtxGetDevice(&ordinal);
	api->cuCtxPopCurrent_v2(&ctx);
	return cuda_of_ordinal(ordinal);
}

/* The driver does not reveal the device of an event. */
static struct sl_device *cuda_of_event(sluice_event event, struct sl_device *wanted)
{
	(void)event;
	if (!sl_cuda_api_in_use())
		return NULL;
	return wanted && wanted->ops == &cuda_ops ? wanted : cuda_find(0);
}

static struct sl_device *cuda_current(void)
{
	const struct sl_cuda_api *api = sl_cuda_api_in_use();
	CUdevice ordinal = -1;

	return api && !api->cuCtxGetDevice(&ordinal) ? cuda_of_ordinal(ordinal) : NULL;
}

static int cuda_describe(struct sl_device *device, struct sluice_device *out)
{
	struct cuda *cuda = sl_cuda_of(device);
	size_t available = 0, total = 0;
	int rc = sl_cuda_enter(cuda, NULL);

	if (rc)
		return rc;
	rc = sl_cuda_error(sl_cuda_driver()->cuMemGetInfo_v2(&available, &total));
	sl_cuda_leave();
	out->detail = cuda->text.detail;
	out->memory_bytes = total;
	out->free_bytes = available;
	out->stream_order = cuda->words;
	out->stream_order_detail =
		cuda->words ? "it awaits and writes words in registered memory"
			    : "registered memory has another address there, so words cannot be "
			      "awaited";
	out->driver = cuda->text.driver;
	out->pci = device->pci;
	out->numa_node = out->pci ? sl_pci_node(out->pci) : -1;
	return rc;
}

/* ------------------------------------------------------------------------------------ memory */

static int cuda_alloc(struct sl_device *device, size_t length, void **out)
{
	CUdeviceptr memory = 0;
	int rc = sl_cuda_enter(sl_cuda_of(device), NULL);

	if (rc)
		return rc;
	rc = sl_cuda_error(sl_cuda_driver()->cuMemAlloc_v2(&memory, length));
	sl_cuda_leave();
	if (!rc)
		*out = (void *)(uintptr_t)memory;
	return rc;
}

static int cuda_free(struct sl_device *device, void *memory)
{
	IN_CONTEXT(device, NULL, sl_cuda_driver()->cuMemFree_v2((uintptr_t)memory));
}

static int cuda_register_as(struct sl_device *device, void *memory, size_t length, unsigned flags)
{
	flags |= CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	IN_CONTEXT(device, NULL, sl_cuda_driver()->cuMemHostRegister_v2(memory, length, flags));
}

static int cuda_register_memory(struct sl_device *device, void *memory, size_t length)
{
	return cuda_register_as(device, memory, length, 0);
}

static int cuda_register_to_read(struct sl_device *device, void *memory, size_t length)
{
	return cuda_register_as(device, memory, length, CU_MEMHOSTREGISTER_READ_ONLY);
}

static int cuda_unregister_memory(struct sl_device *device, void *memory)
{
	IN_CONTEXT(device, NULL, sl_cuda_driver()->cuMemHostUnregister(memory));
}

static int cuda_allocation(struct sl_device *device, const void *memory, struct sl_allocation *out)
{
	int attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	struct sl_allocation found = {0, 0};
	void *values[] = {&found.start, &found.length};
	CUresult rc =
		sl_cuda_driver()->cuPointerGetAttributes(2, attributes, values, (uintptr_t)memory);

	(void)device;
	if (!rc)
		*out = found;
	return sl_cuda_error(rc);
}

/* Returns 0 for memory unknown to the driver. */
static unsigned cuda_attribute(const void *memory, int attribute)
{
	unsigned value = 0;
	void *at = &value;

	return sl_cuda_driver()->cuPointerGetAttributes(1, &attribute, &at, (uintptr_t)memory)
	               ? 0
	               : value;
}

static bool cuda_is_pinned(const void *memory)
{
	return cuda_attribute(memory, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_HOST;
}

static bool cuda_registered(struct sl_device *device, const void *memory, size_t length)
{
	(void)device;
	return cuda_is_pinned(memory) && cuda_is_pinned((const char *)memory + length - 1);
}

static bool cuda_managed(struct sl_device *device, const void *memory)
{
	(void)device;
	return cuda_attribute(memory, CU_POINTER_ATTRIBUTE_IS_MANAGED) & 0xff;
}

/* ------------------------------------------------------------------------------------- tables */

static int cuda_status(struct sl_device *device)
{
	struct cuda *cuda = sl_cuda_of(device);
	int rc = cuda_open(device);

	if (!rc)
		rc = sl_cuda_enter(cuda, cuda->probe);
	if (rc)
		return rc;
	rc = sl_cuda_answer(sl_cuda_driver()->cuStreamQuery(cuda->probe));
	sl_cuda_leave();
	return SL_MIN(rc, 0);
}

static const struct sl_device_ops cuda_ops = {
	.open = cuda_open,
	.describe = cuda_describe,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.allocation = cuda_allocation,
	.makes_pages = true,
	.register_memory = cuda_register_memory,
	.register_to_read = cuda_register_to_read,
	.unregister_memory = cuda_unregister_memory,
	.registered = cuda_registered,
	.managed = cuda_managed,
	.stream_new = sl_cuda_stream_new,
	.stream_free = sl_cuda_stream_free,
	.stream_query = sl_cuda_stream_query,
	.stream_synchronize = sl_cuda_stream_synchronize,
	.stream_check = sl_cuda_stream_check,
	.joins = sl_cuda_joins,
	.enqueue = sl_cuda_enqueue,
	.copy = sl_cuda_copy,
	.event_new = sl_cuda_event_new,
	.event_free = sl_cuda_event_free,
	.event_record = sl_cuda_event_record,
	.event_await = sl_cuda_event_await,
	.event_query = sl_cuda_event_query,
	.event_synchronize = sl_cuda_event_synchronize,
	.reach = sl_cuda_reach,
	.status = cuda_status,
	.enter = cuda_enter_device,
	.leave = sl_cuda_leave,
};

const struct sl_device_kind sl_cuda = {
	.name = "cuda",
	.cufile = true,
	.missing = cuda_missing,
	.feature = sl_cuda_feature,
	.find = cuda_find,
	.of_memory = cuda_of_memory,
	.of_stream = cuda_of_stream,
	.of_event = cuda_of_event,
	.current = cuda_current,
};
