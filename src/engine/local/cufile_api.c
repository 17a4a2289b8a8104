/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuFile's library
 *
 * Loads NVIDIA's cuFile and opens its driver at run time, each once in a process. Any thread.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "local/cufile_api.h"

#define LIBRARY "libcufile.so.0"
#define CUDA    "libcuda.so.1"
#define MODULE  "/proc/driver/nvidia-fs"
#define NODE    "/dev/nvidia-fs0" /* a container sees the host's module, and may lack the node */

/* A status that begins with it goes on with the reason why cuFile cannot be used. */
#define NO "no: "

static struct {
	pthread_once_t loading, opening;
	struct sl_cufile_api api;
	bool loaded, open;
	char status[160];
} cufile = {.loading = PTHREAD_ONCE_INIT, .opening = PTHREAD_ONCE_INIT};

static void cufile_load(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(cufile.status, sizeof(cufile.status), NO "%s cannot be loaded", LIBRARY);
		return;
	}
#define FIND(type, name, arguments)                                                                \
	*(void **)&cufile.api.name = dlsym(library, #name);                                        \
	if (!cufile.api.name) {                                                                    \
		snprintf(cufile.status, sizeof(cufile.status), NO "%s has no %s", LIBRARY, #name); \
		return;                                                                            \
	}
	SL_CUFILE_FUNCTIONS(FIND)
#undef FIND
	snprintf(cufile.status, sizeof(cufile.status), "by name only: compatibility mode (%s)",
	         sl_cufile_has_module() ? "cuFile does not use nvidia-fs" : "no nvidia-fs");
	cufile.loaded = true;
}

const struct sl_cufile_api *sl_cufile_load(void)
{
	pthread_once(&cufile.loading, cufile_load);
	return cufile.loaded ? &cufile.api : NULL;
}

/* Opens the driver. If cuFile finds no device it closes descriptor 0, which it has not opened; the
 * program's descriptor is restored, unless another thread has got that number by then. */
static CUfileError_t cufile_open_keeping_input(void)
{
	int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), again;
	CUfileError_t rc = cufile.api.cuFileDriverOpen();

	if (kept < 0)
		return rc;
	if (fcntl(STDIN_FILENO, F_GETFD) < 0) {
		again = fcntl(kept, F_DUPFD, STDIN_FILENO);
		if (again > STDIN_FILENO)
			close(again);
	}
	close(kept);
	return rc;
}

/* The driver stays open: cuFile closes it when the process ends. */
static void cufile_open_driver(void)
{
	CUfileDrvProps_t properties = {0};

	if (!sl_cufile_load())
		return;
	CUfileError_t rc = cufile_open_keeping_input();
	if (rc.err && rc.err != CU_FILE_DRIVER_ALREADY_OPEN) {
		snprintf(cufile.status, sizeof(cufile.status), NO "cuFileDriverOpen() says %d (%s)",
		         rc.err, sl_cufile_error(rc.err));
		return;
	}
	rc = cufile.api.cuFileDriverGetProperties(&properties);
	cufile.api.gpudirect =
		!rc.err && (properties.nvfs.major_version || properties.nvfs.minor_version);
	if (cufile.api.gpudirect)
		snprintf(cufile.status, sizeof(cufile.status), "yes: GPUDirect by nvidia-fs %u.%u",
		         properties.nvfs.major_version, properties.nvfs.minor_version);
	cufile.open = true;
}

const struct sl_cufile_api *sl_cufile_open(void)
{
	pthread_once(&cufile.opening, cufile_open_driver);
	return cufile.open ? &cufile.api : NULL;
}

const char *sl_cufile_missing(void)
{
	return cufile.status + strlen(NO);
}

const char *sl_cufile_status(void)
{
	return cufile.status;
}

bool sl_cufile_has_module(void)
{
	return !access(MODULE, F_OK) && !access(NODE, F_OK);
}

bool sl_cufile_has_cuda(void)
{
	void *library = dlopen(CUDA, RTLD_NOW | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	return library;
}

static const struct {
	int error;
	const char *text;
} errors[] = {
	{CU_FILE_DRIVER_NOT_INITIALIZED, "its driver is not initialized"},
	{CU_FILE_PLATFORM_NOT_SUPPORTED, "platform not supported"},
	{CU_FILE_IO_NOT_SUPPORTED, "not supported on this file"},
	{CU_FILE_DEVICE_NOT_SUPPORTED, "not supported on this GPU"},
	{CU_FILE_CUDA_DRIVER_ERROR, "an error of CUDA's driver"},
	{CU_FILE_CUDA_POINTER_INVALID, "no such memory of a GPU"},
	{CU_FILE_CUDA_MEMORY_TYPE_INVALID, "no such memory of a GPU"},
	{CU_FILE_CUDA_POINTER_RANGE_ERROR, "no such memory of a GPU"},
	{CU_FILE_CUDA_CONTEXT_MISMATCH, "memory of another context"},
	{CU_FILE_INVALID_FILE_TYPE, "file type not supported"},
	{CU_FILE_INVALID_FILE_OPEN_FLAG, "open flags not supported"},
	{CU_FILE_DIO_NOT_SET, "not opened for direct I/O"},
	{CU_FILE_INVALID_VALUE, "invalid argument"},
	{CU_FILE_MEMORY_ALREADY_REGISTERED, "memory is registered already"},
	{CU_FILE_MEMORY_NOT_REGISTERED, "memory is not registered"},
	{CU_FILE_PERMISSION_DENIED, "permission denied"},
	{CU_FILE_HANDLE_NOT_REGISTERED, "handle not registered"},
	{CU_FILE_INTERNAL_ERROR, "internal error"},
	{CU_FILE_IO_DISABLED, "switched off for this file by cufile.json"},
	{CU_FILE_ASYNC_NOT_SUPPORTED, "stream order not supported"},
};

const char *sl_cufile_error(int error)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].error == error)
			return errors[i].text;
	return "see CUfileOpError in cufile.h";
}
