/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver as a whole: what each call begins with, errors, and what tests ask of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fake_cuda/fake_cuda.h"

struct fake fake = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The emulated device's files look devices up by number. */
const struct sl_device_kind *const sl_device_kinds[] = {&sl_emulated, NULL};

/* The linker tells who adds a function to the list and not to the fake. */
__attribute__((used)) static const struct sl_cuda_api complete = {
#define FUNCTION(name, arguments) .name = name,
	SL_CUDA_FUNCTIONS(FUNCTION) SL_CUDA_OPTIONAL(FUNCTION)
#undef FUNCTION
};

/* ---------------------------------------------------------------------------------- each call */

/* What one thread called. Kept when it ends. */
struct record {
	struct record *next;
	char thread[16];
	_Atomic uint64_t calls[FAKE_CALLS];
};

static struct {
	_Atomic bool initialised, ended;
	_Atomic(struct record *) records;
	_Atomic(CUcontext) last[FAKE_CALLS]; /* the context that was current */
	struct {
		_Atomic uint64_t left; /* calls until the one that fails, it included; 0: none */
		_Atomic CUresult error;
	} failures[FAKE_CALLS];
} calls;

static const char *const names[] = {
#define NAME(name, arguments) #name,
	SL_CUDA_FUNCTIONS(NAME) SL_CUDA_OPTIONAL(NAME) TEST_CUDA_FUNCTIONS(NAME)
#undef NAME
};

static struct record *own_record(void)
{
	static _Thread_local struct record *own;

	if (own)
		return own;
	own = calloc(1, sizeof(*own));
	if (!own)
		abort();
	pthread_getname_np(pthread_self(), own->thread, sizeof(own->thread));
	own->next = atomic_load(&calls.records);
	while (!atomic_compare_exchange_weak(&calls.records, &own->next, own))
		;
	return own;
}

CUresult fake_enter(enum fake_call call, unsigned needs, CUcontext *ctx)
{
	_Atomic uint64_t *left = &calls.failures[call].left;
	uint64_t n = atomic_load(left);
	CUcontext current;

	atomic_fetch_add_explicit(&own_record()->calls[call], 1, memory_order_relaxed);
	if (atomic_load(&calls.ended))
		return CUDA_ERROR_DEINITIALIZED;
	if (!atomic_load(&calls.initialised) && call != CALL_cuInit)
		return CUDA_ERROR_NOT_INITIALIZED;
	while (n && !atomic_compare_exchange_weak(left, &n, n - 1))
		;
	if (n == 1)
		return atomic_load(&calls.failures[call].error);
	current = fake_current();
	atomic_store(&calls.last[call], current);
	if ((needs & NEEDS_CONTEXT) && !current)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ctx)
		*ctx = current;
	return needs & UNSAFE ? fake_captures() : CUDA_SUCCESS;
}

void fake_publish(struct sl_intervals *set, struct sl_interval *handle, const void *object)
{
	handle->start = (uintptr_t)object;
	handle->end = handle->start + 1;
	sl_intervals_insert(set, handle);
}

bool fake_known(const struct sl_intervals *set, const void *object)
{
	return sl_emulated_lookup(set, object);
}

/* ------------------------------------------------------------------------------------- errors */

static const struct {
	CUresult error;
	const char *name;
} errors[] = {
#define ERROR(name)         \
	{                   \
		name, #name \
	}
	ERROR(CUDA_SUCCESS),
	ERROR(CUDA_ERROR_INVALID_VALUE),
	ERROR(CUDA_ERROR_OUT_OF_MEMORY),
	ERROR(CUDA_ERROR_NOT_INITIALIZED),
	ERROR(CUDA_ERROR_DEINITIALIZED),
	ERROR(CUDA_ERROR_INVALID_DEVICE),
	ERROR(CUDA_ERROR_INVALID_IMAGE),
	ERROR(CUDA_ERROR_INVALID_CONTEXT),
	ERROR(CUDA_ERROR_INVALID_PTX),
	ERROR(CUDA_ERROR_INVALID_HANDLE),
	ERROR(CUDA_ERROR_NOT_FOUND),
	ERROR(CUDA_ERROR_NOT_READY),
	ERROR(CUDA_ERROR_ILLEGAL_ADDRESS),
	ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
	ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
	ERROR(CUDA_ERROR_LAUNCH_FAILED),
	ERROR(CUDA_ERROR_NOT_SUPPORTED),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
#undef ERROR
};

CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = NULL;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].error == error)
			*name = errors[i].name;
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The real one has sentences. */
CUresult cuGetErrorString(CUresult error, const char **text)
{
	return cuGetErrorName(error, text);
}

CUresult fake_error(int rc)
{
	switch (rc) {
	case 0:
		return CUDA_SUCCESS;
	case -EINVAL:
		return CUDA_ERROR_INVALID_VALUE;
	case -ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case -EEXIST:
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	case -EFAULT:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	default:
		return CUDA_ERROR_LAUNCH_FAILED;
	}
}

/* -------------------------------------------------------------------------- its beginning and end */

static void end(void)
{
	atomic_store(&calls.ended, true);
}

/* FAKE_CUDA_SEED=N: the emulated devices' schedule. */
static void configure(void)
{
	const char *seed = getenv("FAKE_CUDA_SEED");
	struct sluice_emulated_options o = SLUICE_EMULATED_OPTIONS_INIT;

	if (!seed)
		return;
	o.seed = strtoull(seed, NULL, 0);
	o.delay_us = 200;
	o.preempt_us = 100;
	for (int i = 0; i < EMULATED_DEVICES; i++)
		sluice_emulated_configure(i, &o);
}

/* FAKE_CUDA_CONNECTIONS=N: only programs with that CUDA_DEVICE_MAX_CONNECTIONS get a driver. */
static bool has_connections(void)
{
	const char *wanted = getenv("FAKE_CUDA_CONNECTIONS");
	const char *set = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

	return !wanted || (set && !strcmp(set, wanted));
}

static void initialise(void)
{
	sl_list_init(&fake.all_streams);
	configure();
	atexit(end);
	atomic_store(&calls.initialised, fake_make_words());
}

/* FAKE_CUDA_INIT=N: what this answers. */
CUresult cuInit(unsigned flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	CUresult rc = fake_enter(CALL_cuInit, 0, NULL);
	const char *answer = getenv("FAKE_CUDA_INIT");

	if (!rc && answer)
		rc = atoi(answer);
	if (!rc && flags)
		rc = CUDA_ERROR_INVALID_VALUE;
	if (!rc && !has_connections())
		rc = CUDA_ERROR_INVALID_DEVICE;
	if (rc)
		return rc;
	pthread_once(&once, initialise);
	return atomic_load(&calls.initialised) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = 13000;
	return CUDA_SUCCESS;
}

/* ----------------------------------------------------------------------------- of tests only */

static int number_of(const char *function)
{
	for (int i = 0; i < FAKE_CALLS; i++)
		if (!strcmp(names[i], function))
			return i;
	return -1;
}

CUresult cuFakeFail(const char *function, uint64_t n, CUresult error)
{
	int call = number_of(function);

	if (call < 0)
		return CUDA_ERROR_NOT_FOUND;
	atomic_store(&calls.failures[call].left, 0);
	atomic_store(&calls.failures[call].error, error);
	atomic_store(&calls.failures[call].left, n);
	return CUDA_SUCCESS;
}

CUresult cuFakeCalls(const char *function, const char *prefix, uint64_t *sum)
{
	int call = number_of(function);

	if (call < 0)
		return CUDA_ERROR_NOT_FOUND;
	*sum = 0;
	for (struct record *r = atomic_load(&calls.records); r; r = r->next)
		if (!prefix || !strncmp(r->thread, prefix, strlen(prefix)))
			*sum += atomic_load_explicit(&r->calls[call], memory_order_relaxed);
	return CUDA_SUCCESS;
}

CUresult cuFakeContext(const char *function, CUcontext *ctx)
{
	int call = number_of(function);

	if (call < 0)
		return CUDA_ERROR_NOT_FOUND;
	*ctx = atomic_load(&calls.last[call]);
	return CUDA_SUCCESS;
}

CUresult cuFakeLose(CUdevice device, int lost)
{
	if (!fake_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	sluice_emulated_lose(device, lost);
	return CUDA_SUCCESS;
}
