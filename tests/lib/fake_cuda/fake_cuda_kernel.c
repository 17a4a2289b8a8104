/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and kernels of the fake driver: PTX is not run, it only says which kernels there are. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fake_cuda/fake_cuda.h"
#include "lib/fake_cuda/fake_kernels.h"

#define KERNELS_MOST 64

struct CUmod_st {
	CUcontext ctx;
	char *ptx;
	struct CUfunc_st {
		const struct fake_kernel *kernel;
		CUcontext ctx;
	} functions[KERNELS_MOST]; /* by the kernel's place in the table */
};

static CUresult load(CUcontext ctx, const char *ptx, CUmodule *out)
{
	struct CUmod_st *module;

	if (!ptx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!strstr(ptx, ".version"))
		return CUDA_ERROR_INVALID_IMAGE;
	module = calloc(1, sizeof(*module));
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->ctx = ctx;
	module->ptx = strdup(ptx);
	if (!module->ptx) {
		free(module);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = module;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuModuleLoadData, NEEDS_CONTEXT | UNSAFE, &ctx);

	return rc ? rc : load(ctx, image, module);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options,
                            void **values)
{
	CUcontext ctx;
	CUresult rc = fake_enter(CALL_cuModuleLoadDataEx, NEEDS_CONTEXT | UNSAFE, &ctx);

	(void)count;
	(void)options;
	(void)values;
	return rc ? rc : load(ctx, image, module);
}

CUresult cuModuleUnload(CUmodule module)
{
	CUresult rc = fake_enter(CALL_cuModuleUnload, NEEDS_CONTEXT | UNSAFE, NULL);

	if (rc)
		return rc;
	free(module->ptx);
	free(module);
	return CUDA_SUCCESS;
}

/* Whether the text has ".entry name", and the name ends there. */
static bool has_entry(const char *ptx, const char *name)
{
	size_t length = strlen(name);

	while ((ptx = strstr(ptx, ".entry"))) {
		ptx += strlen(".entry");
		while (isspace((unsigned char)*ptx))
			ptx++;
		if (!strncmp(ptx, name, length) && ptx[length] != '_' && ptx[length] != '$' &&
		    !isalnum((unsigned char)ptx[length]))
			return true;
	}
	return false;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUresult rc = fake_enter(CALL_cuModuleGetFunction, NEEDS_CONTEXT, NULL);

	if (rc)
		return rc;
	for (int i = 0; i < KERNELS_MOST && fake_kernels[i].name; i++) {
		if (strcmp(fake_kernels[i].name, name) || !has_entry(module->ptx, name))
			continue;
		module->functions[i] = (struct CUfunc_st){&fake_kernels[i], module->ctx};
		*function = &module->functions[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

/* ------------------------------------------------------------------------------------ launches */

struct launch {
	const struct fake_kernel *kernel;
	struct sl_device *device;
	unsigned grid_x, block_x;
	void *parameters[FAKE_PARAMETERS_MOST];
	char bytes[FAKE_PARAMETERS_MOST][16];
};

static _Thread_local struct sl_device *running;

const void *fake_kernel_in(const void *memory, size_t n)
{
	return fake_bytes(running, memory, n, false);
}

void *fake_kernel_out(void *memory, size_t n)
{
	return fake_bytes(running, memory, n, true);
}

static void run_launch(void *argument)
{
	struct launch *launch = argument;

	running = launch->device;
	launch->kernel->run(launch->parameters, launch->grid_x, launch->block_x);
	free(launch);
}

static struct launch *launch_new(const struct fake_kernel *kernel, struct sl_device *device,
                                 void **parameters)
{
	struct launch *launch = calloc(1, sizeof(*launch));

	if (!launch)
		return NULL;
	launch->kernel = kernel;
	launch->device = device;
	for (int i = 0; i < FAKE_PARAMETERS_MOST && kernel->sizes[i]; i++) {
		memcpy(launch->bytes[i], parameters[i], kernel->sizes[i]);
		launch->parameters[i] = launch->bytes[i];
	}
	return launch;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **parameters, void **extra)
{
	struct launch *launch;
	struct on on;
	CUresult rc = fake_on(CALL_cuLaunchKernel, stream, &on);
	uint64_t threads = (uint64_t)block_x * block_y * block_z;

	(void)shared;
	if (rc)
		return rc;
	if (!function || !parameters || extra || !grid_x || !grid_y || !grid_z || !threads ||
	    threads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	/* Both are of the context that is current. */
	if (function->ctx != on.ctx || on.ctx != fake_current())
		return CUDA_ERROR_INVALID_HANDLE;
	if (on.captured)
		return CUDA_SUCCESS;
	launch = launch_new(function->kernel, on.device, parameters);
	if (!launch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	launch->grid_x = grid_x;
	launch->block_x = block_x;
	return fake_run(&on, run_launch, launch);
}
