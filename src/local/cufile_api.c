/* SPDX-License-Identifier: Apache-2.0 */
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
#define NODE    "/dev/nvidia-fs0" /* a container sees the module of its host, but not always this */

/* Of a sentence that begins with it the rest is why there is none. */
#define NO "no: "

static struct {
	pthread_once_t loading, opening;
	struct sl_cufile_api api;
	bool loaded, open;
	char told[160];
} cufile = {.loading = PTHREAD_ONCE_INIT, .opening = PTHREAD_ONCE_INIT};

static void load(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(cufile.told, sizeof(cufile.told), NO "%s cannot be loaded", LIBRARY);
		return;
	}
#define FIND(type, name, arguments)                                                            \
	*(void **)&cufile.api.name = dlsym(library, #name);                                    \
	if (!cufile.api.name) {                                                                \
		snprintf(cufile.told, sizeof(cufile.told), NO "%s has no %s", LIBRARY, #name); \
		return;                                                                        \
	}
	SL_CUFILE_FUNCTIONS(FIND)
#undef FIND
	snprintf(cufile.told, sizeof(cufile.told), "by name only: compatibility mode (%s)",
	         sl_cufile_has_module() ? "cuFile does not use nvidia-fs" : "no nvidia-fs");
	cufile.loaded = true;
}

const struct sl_cufile_api *sl_cufile_load(void)
{
	pthread_once(&cufile.loading, load);
	return cufile.loaded ? &cufile.api : NULL;
}

/* Where it finds no device, cuFile closes descriptors that it has not opened: 0. The program's comes back, unless
 * another thread has that number by then. */
static CUfileError_t open_keeping_input(void)
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

/* It stays open: cuFile closes it itself when the process ends. */
static void open_driver(void)
{
	CUfileDrvProps_t properties = {0};
	CUfileError_t rc;

	if (!sl_cufile_load())
		return;
	rc = open_keeping_input();
	if (rc.err && rc.err != CU_FILE_DRIVER_ALREADY_OPEN) {
		snprintf(cufile.told, sizeof(cufile.told), NO "cuFileDriverOpen() says %d (%s)",
		         rc.err, sl_cufile_error(rc.err));
		return;
	}
	rc = cufile.api.cuFileDriverGetProperties(&properties);
	cufile.api.gpudirect =
		!rc.err && (properties.nvfs.major_version || properties.nvfs.minor_version);
	if (cufile.api.gpudirect)
		snprintf(cufile.told, sizeof(cufile.told), "yes: GPUDirect by nvidia-fs %u.%u",
		         properties.nvfs.major_version, properties.nvfs.minor_version);
	cufile.open = true;
}

const struct sl_cufile_api *sl_cufile_open(void)
{
	pthread_once(&cufile.opening, open_driver);
	return cufile.open ? &cufile.api : NULL;
}

const char *sl_cufile_missing(void)
{
	return cufile.told + strlen(NO);
}

const char *sl_cufile_told(void)
{
	return cufile.told;
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
