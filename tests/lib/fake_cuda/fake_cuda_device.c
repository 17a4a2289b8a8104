/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of the fake driver, and what it tells of them. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/fake_cuda/fake_cuda.h"

struct emulated *fake_device(CUdevice ordinal)
{
	return ordinal < 0 ? NULL : sl_emulated_each(ordinal);
}

static CUresult enter_device(enum fake_call call, CUdevice device)
{
	CUresult rc = fake_enter(call, 0, NULL);

	return rc || fake_device(device) ? rc : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *count)
{
	CUresult rc = fake_enter(CALL_cuDeviceGetCount, 0, NULL);

	if (!rc)
		*count = EMULATED_DEVICES;
	return rc;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult rc = enter_device(CALL_cuDeviceGet, ordinal);

	if (!rc)
		*device = ordinal;
	return rc;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	CUresult rc = enter_device(CALL_cuDeviceGetName, device);

	if (!rc)
		snprintf(name, size, "Fake GPU");
	return rc;
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device)
{
	CUresult rc = enter_device(CALL_cuDeviceGetPCIBusId, device);

	if (!rc)
		snprintf(id, size, "0000:%02X:00.0", (unsigned)device + 0xfa);
	return rc;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	CUresult rc = enter_device(CALL_cuDeviceTotalMem_v2, device);

	if (!rc)
		*bytes = EMULATED_MEMORY_BYTES;
	return rc;
}

/* They reach each other. */
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	CUresult rc = enter_device(CALL_cuDeviceCanAccessPeer, device);

	if (!rc && !fake_device(peer))
		rc = CUDA_ERROR_INVALID_DEVICE;
	if (!rc)
		*can = device != peer;
	return rc;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	CUresult rc = fake_enter(CALL_cuCtxEnablePeerAccess, 0, NULL);

	return rc || (peer && !flags) ? rc : CUDA_ERROR_INVALID_VALUE;
}

/* FAKE_CUDA_NO_WORDS: a device whose view of registered memory has addresses of its own. */
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	static const struct {
		int attribute, value;
	} known[] = {
		{16, 132},                     /* multiprocessors */
		{33, 0xfa},                    /* PCI bus, of the first */
		{40, 3},                       /* copy engines */
		{41, 1},                       /* unified addresses */
		{75, 9},    {76, 0},  {83, 1}, /* managed memory */
		{91, 1},                       /* words */
		{102, 1},   {103, 1},          /* virtual memory management, with descriptors */
		{110, 1}, /* of it what others on the bus reach; but see cuMemCreate() */
		{115, 1}, /* pools */
	};
	CUresult rc = enter_device(CALL_cuDeviceGetAttribute, device);

	if (rc)
		return rc;
	if (attribute < 1 || attribute > 200)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].attribute == attribute)
			*value = known[i].value;
	if (attribute == 33)
		*value += device;
	if (attribute == CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM &&
	    getenv("FAKE_CUDA_NO_WORDS"))
		*value = 0;
	if (attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
	    getenv("FAKE_CUDA_NO_SHARING"))
		*value = 0;
	return CUDA_SUCCESS;
}
