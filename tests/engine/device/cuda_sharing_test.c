/* SPDX-License-Identifier: Apache-2.0 */
/* What cuda_sharing.c makes of the driver's calls, and of their errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_common.h"
#include "lib/support.h"

#define LENGTH ((size_t)4 << 20)

static const struct sl_device_sharing *sharing;

static int setup(void **state)
{
	cuda_setup(state);
	sharing = cuda_device->sharing;
	assert_non_null(sharing);
	return cu.cuCtxSetCurrent(cuda_primaries[0]);
}

static size_t taken(void)
{
	size_t available, total;

	assert_int_equal(cu.cuMemGetInfo_v2(&available, &total), 0);
	return total - available;
}

static uint64_t calls_of(const char *function)
{
	uint64_t calls;

	assert_int_equal(cu.cuFakeCalls(function, NULL, &calls), 0);
	return calls;
}

/* Addresses that were reserved and not given back. */
static uint64_t reserved(void)
{
	return calls_of("cuMemAddressReserve") - calls_of("cuMemAddressFree");
}

static void *make(int *fd)
{
	void *memory = NULL;

	assert_int_equal(sharing->make(cuda_device, LENGTH, &memory, fd), 0);
	return memory;
}

/* ------------------------------------------------------------------------------------- errors */

struct step {
	const char *function;
	CUresult error;
	int answer;
};

/* A call that failed has reserved nothing. */
static uint64_t counted(const struct step *step)
{
	return !strcmp(step->function, "cuMemAddressReserve");
}

static void make_fails(const struct step *step)
{
	size_t before = taken(), descriptors = count_descriptors();
	uint64_t addresses = reserved() + counted(step);
	void *memory = NULL;
	int fd = -7;

	/* Of cuMemCreate() the first try is for memory that there is not. */
	assert_int_equal(cu.cuFakeFail(step->function,
	                               strcmp(step->function, "cuMemCreate") ? 1 : 2, step->error),
	                 0);
	assert_int_equal(sharing->make(cuda_device, LENGTH, &memory, &fd), step->answer);
	assert_null(memory);
	assert_int_equal(fd, -7);
	assert_int_equal(taken(), before);
	assert_int_equal(reserved(), addresses);
	assert_int_equal(count_descriptors(), descriptors);
}

TEST(failed_allocation_on_a_device_leaves_nothing)
{
	static const struct step steps[] = {
		{"cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
		{"cuMemExportToShareableHandle", CUDA_ERROR_OPERATING_SYSTEM, -EIO},
		{"cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
		{"cuMemMap", CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
		{"cuMemSetAccess", CUDA_ERROR_UNKNOWN, -EIO},
	};

	for (size_t i = 0; i < COUNT_OF(steps); i++)
		make_fails(&steps[i]);
}

static void map_fails(int fd, const struct step *step)
{
	size_t before = taken(), descriptors = count_descriptors();
	uint64_t addresses = reserved() + counted(step);
	void *memory = NULL;

	assert_int_equal(cu.cuFakeFail(step->function, 1, step->error), 0);
	assert_int_equal(sharing->map(cuda_device, fd, LENGTH, cuda_device, NULL, &memory),
	                 step->answer);
	assert_null(memory);
	assert_int_equal(taken(), before);
	assert_int_equal(reserved(), addresses);
	assert_int_equal(count_descriptors(), descriptors);
}

TEST(failed_mapping_leaves_nothing)
{
	static const struct step steps[] = {
		{"cuMemImportFromShareableHandle", CUDA_ERROR_INVALID_VALUE, -EBADMSG},
		{"cuMemImportFromShareableHandle", CUDA_ERROR_INVALID_DEVICE, -EBADMSG},
		{"cuMemImportFromShareableHandle", CUDA_ERROR_OPERATING_SYSTEM, -EBADMSG},
		{"cuMemImportFromShareableHandle", CUDA_ERROR_UNKNOWN, -EBADMSG},
		{"cuMemImportFromShareableHandle", CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
		{"cuMemImportFromShareableHandle", CUDA_ERROR_ILLEGAL_ADDRESS, -EFAULT},
		{"cuMemGetAllocationPropertiesFromHandle", CUDA_ERROR_INVALID_VALUE, -EBADMSG},
		{"cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
		{"cuMemMap", CUDA_ERROR_INVALID_VALUE, -EBADMSG},
		{"cuMemSetAccess", CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
	};
	void *made;
	int fd;

	made = make(&fd);
	for (size_t i = 0; i < COUNT_OF(steps); i++)
		map_fails(fd, &steps[i]);
	assert_int_equal(sharing->unmap(cuda_device, made, LENGTH), 0);
	close(fd);
}

TEST(mapping_that_cannot_be_unmapped_stays)
{
	unsigned char byte = 0;
	void *made;
	int fd;

	made = make(&fd);
	close(fd);
	assert_int_equal(cu.cuFakeFail("cuMemUnmap", 1, CUDA_ERROR_ILLEGAL_ADDRESS), 0);
	assert_int_equal(sharing->unmap(cuda_device, made, LENGTH), -EFAULT);
	assert_int_equal(sluice_copy(&byte, made, 1), 0);
	assert_int_equal(sharing->unmap(cuda_device, made, LENGTH), 0);
}

/* ------------------------------------------------------------------------------------- access */

TEST(only_who_made_it_may_write)
{
	void *made, *memory;
	int fd;

	made = make(&fd);
	assert_int_equal(sharing->map(cuda_device, fd, LENGTH, cuda_device, NULL, &memory), 0);
	assert_int_equal(cu.cuMemsetD8_v2((uintptr_t)made, 7, LENGTH), 0);
	assert_int_equal(cu.cuMemsetD8_v2((uintptr_t)memory, 8, LENGTH), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemcpy((uintptr_t)memory, (uintptr_t)made, LENGTH),
	                 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cu.cuMemcpy((uintptr_t)made, (uintptr_t)memory, LENGTH), 0);
	assert_int_equal(cu.cuCtxSynchronize(), 0);
	assert_int_equal(sharing->unmap(cuda_device, memory, LENGTH), 0);
	assert_int_equal(sharing->unmap(cuda_device, made, LENGTH), 0);
	close(fd);
}

/* Found out by what it is, before the driver is asked to map it. */
TEST(memory_of_another_device_is_not_mapped)
{
	struct sl_device *other = sl_device_find((unsigned)cuda_number + 1);
	void *made, *memory = NULL;
	uint64_t maps;
	int fd;

	made = make(&fd);
	maps = calls_of("cuMemMap");
	assert_int_equal(sharing->map(other, fd, LENGTH, other, NULL, &memory), -EBADMSG);
	assert_int_equal(calls_of("cuMemMap"), maps);
	assert_null(memory);
	assert_int_equal(sharing->unmap(cuda_device, made, LENGTH), 0);
	close(fd);
}

TEST(devices_that_do_not_reach_each_other_do_not_map)
{
	struct sl_device *other = sl_device_find((unsigned)cuda_number + 1);
	void *made, *memory = NULL;
	int fd;

	made = make(&fd);
	assert_int_equal(cu.cuFakeFail("cuDeviceCanAccessPeer", 1, CUDA_ERROR_INVALID_DEVICE), 0);
	assert_int_equal(sharing->map(cuda_device, fd, LENGTH, other, NULL, &memory), -ENOTSUP);
	assert_null(memory);
	assert_int_equal(sharing->map(cuda_device, fd, LENGTH, other, NULL, &memory), 0);
	assert_int_equal(sharing->unmap(cuda_device, memory, LENGTH), 0);
	assert_int_equal(sharing->unmap(cuda_device, made, LENGTH), 0);
	close(fd);
}

/* --------------------------------------------------------------------------------------- lent */

TEST(pools_and_managed_memory_are_not_lent)
{
	CUdeviceptr pooled, managed, pinned;
	uint64_t asked;
	struct sl_lent_memory lent;
	void *host;

	assert_int_equal(cu.cuMemAllocAsync(&pooled, LENGTH, NULL), 0);
	assert_int_equal(cu.cuMemAllocManaged(&managed, LENGTH, 1), 0);
	assert_int_equal(cu.cuMemHostAlloc(&host, 4096, 0), 0);
	pinned = (uintptr_t)host;
	asked = calls_of("cuIpcGetMemHandle");
	assert_int_equal(sharing->lend(cuda_device, (void *)(uintptr_t)pooled, &lent), -ENOTSUP);
	assert_int_equal(sharing->lend(cuda_device, (void *)(uintptr_t)managed, &lent), -ENOTSUP);
	assert_int_equal(sharing->lend(cuda_device, (void *)(uintptr_t)pinned, &lent), -ENOTSUP);
	assert_int_equal(calls_of("cuIpcGetMemHandle"), asked);
	assert_int_equal(cu.cuMemFreeHost(host), 0);
	assert_int_equal(cu.cuMemFree_v2(managed), 0);
	assert_int_equal(cu.cuMemFreeAsync(pooled, NULL), 0);
	assert_int_equal(cu.cuCtxSynchronize(), 0);
}

TEST(memory_of_another_device_is_not_lent)
{
	struct sl_lent_memory lent;
	void *memory;

	assert_int_equal(sluice_device_alloc(cuda_number + 1, LENGTH, &memory), 0);
	assert_int_equal(sharing->lend(cuda_device, memory, &lent), -ENOTSUP);
	assert_int_equal(sluice_device_free(memory), 0);
}

TEST(errors_of_borrowing_say_what_can_be_done)
{
	static const struct step steps[] = {
		{"cuIpcOpenMemHandle_v2", CUDA_ERROR_INVALID_CONTEXT, -EINVAL},
		{"cuIpcOpenMemHandle_v2", CUDA_ERROR_INVALID_VALUE, -ENOENT},
		{"cuIpcOpenMemHandle_v2", CUDA_ERROR_MAP_FAILED, -ENOENT},
		{"cuIpcOpenMemHandle_v2", CUDA_ERROR_TOO_MANY_PEERS, -ENOTSUP},
		{"cuIpcOpenMemHandle_v2", CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
	};
	struct sl_lent_memory lent = {.length = LENGTH};
	void *memory = NULL;

	for (size_t i = 0; i < COUNT_OF(steps); i++) {
		assert_int_equal(cu.cuFakeFail(steps[i].function, 1, steps[i].error), 0);
		assert_int_equal(sharing->borrow(cuda_device, &lent, &memory), steps[i].answer);
	}
	lent.length = 0;
	assert_int_equal(sharing->borrow(cuda_device, &lent, &memory), -EBADMSG);
	assert_null(memory);
}

int main(void)
{
	return RUN_TESTS(setup, NULL);
}
