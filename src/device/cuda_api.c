/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's driver library
 *
 * Loads libcuda.so.1 at run time, looks up its functions and calls cuInit(), so that sluice neither
 * links to nor needs CUDA.
 *
 * Threads: any; the driver is loaded once, under pthread_once().
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "device/cuda_api.h"

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
	return true;
}

static void load_driver(void)
{
	void *library = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
	const char *name;
	CUresult rc;

	driver.found = library;
	if (!library) {
		snprintf(driver.missing, sizeof(driver.missing), "%s cannot be loaded", DRIVER);
		return;
	}
	if (!find_functions(library))
		return;
	rc = driver.api.cuInit(0);
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
	void *library;

	if (atomic_load_explicit(&driver.usable, memory_order_acquire))
		return &driver.api;
	/*
	 * Called for every operation: looks again only if a library was loaded since the last call.
	 */
	dl_iterate_phdr(count_loads, &loads);
	if (loads == atomic_load_explicit(&seen, memory_order_relaxed))
		return NULL;
	library = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
	atomic_store_explicit(&seen, loads, memory_order_relaxed);
	if (!library)
		return NULL;
	dlclose(library);
	return sl_cuda_driver();
}
