/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of tensors
 *
 * Allocates memory of the host or a device for a plan, and counts its users: the program's handle
 * and the tensors that it has exported for DLPack, without a copy. The free memory is looked at
 * first, so that a program learns before a byte is read that its tensors do not fit. Any thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "device/device.h"
#include "tensors/tensors.h"

static int memory_lacks(const char *name, uint64_t needed, uint64_t available)
{
	return sl_fail(-ENOMEM,
	               "%s: the tensors need %" PRIu64 " bytes of memory, and %" PRIu64 " are free",
	               name, needed, available);
}

static int memory_take_of_device(struct sluice_tensor_memory *memory)
{
	struct sluice_device about = {sizeof(about)};
	int rc = sluice_device_describe(memory->device, &about);

	if (rc)
		return rc == -ENOENT ? -ENODEV : rc;
	if (!memory->bytes)
		return 0;
	if (memory->bytes <= about.free_bytes)
		rc = sluice_device_alloc(memory->device, memory->bytes, &memory->data);
	else
		rc = -ENOMEM;
	return rc == -ENOMEM ? memory_lacks(about.name, memory->bytes, about.free_bytes) : rc;
}

static int memory_take_of_host(struct sluice_tensor_memory *memory)
{
	struct sysinfo host = {0};

	if (!memory->bytes)
		return 0;
	sysinfo(&host);
	uint64_t most = (host.totalram + host.totalswap) * host.mem_unit;
	/* A kernel that promises more memory than there is would kill the process later. */
	if (memory->bytes <= most)
		memory->data = sl_private_map(memory->bytes);
	if (!memory->data)
		return memory_lacks("the host", memory->bytes, host.freeram * host.mem_unit);
	return 0;
}

int sluice_tensor_memory_new(int device, uint64_t n, sluice_tensor_memory **out)
{
	if (!out)
		return sl_fail(-EINVAL, "sluice_tensor_memory_new: out is NULL");
	struct sluice_tensor_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return sl_fail(-ENOMEM, "no memory");
	atomic_init(&memory->users, 1);
	memory->device = device;
	memory->bytes = n;
	int rc = sl_process_enter(&memory->process);
	if (!rc)
		rc = device == -1 ? memory_take_of_host(memory) : memory_take_of_device(memory);
	if (rc)
		free(memory);
	else
		*out = memory;
	return rc;
}

void *sluice_tensor_memory_data(const sluice_tensor_memory *memory)
{
	return memory ? memory->data : NULL;
}

/* Does nothing in a child of fork(), which may not use sluice. */
static void memory_unref(void *owner)
{
	sluice_tensor_memory *memory = owner;

	if (!sl_process_is(memory->process) || atomic_fetch_sub(&memory->users, 1) != 1)
		return;
	if (memory->data && memory->device == -1)
		munmap(memory->data, memory->bytes);
	else
		sluice_device_free(memory->data);
	free(memory);
}

void sluice_tensor_memory_free(sluice_tensor_memory *memory)
{
	if (memory)
		memory_unref(memory);
}

int sluice_tensor_to_dlpack(const sluice_tensor_plan *plan, size_t index,
                            sluice_tensor_memory *memory, unsigned version, void **out)
{
	struct sl_dlpack_source source = {.release = memory_unref, .owner = memory};

	if (!plan || !memory || !out || version > 1)
		return sl_fail(-EINVAL, "sluice_tensor_to_dlpack: NULL, or version %u", version);
	if (index >= plan->count)
		return sl_fail(-ENOENT, "the plan has %zu tensors, and no number %zu", plan->count,
		               index);
	if (!sl_process_is(memory->process))
		return sl_process_refuse();
	const struct sl_tensor_item *item = &plan->items[index];
	if (item->to)
		return sl_fail(-EINVAL, "tensor '%s' has a destination of its own",
		               item->tensor->name);
	if (memory->bytes < plan->bytes)
		return sl_fail(-EINVAL, "the memory is smaller than the plan");
	source.data = (char *)memory->data + item->memory_offset;
	source.device = memory->device < 0 ? NULL : sl_device_find(memory->device);
	source.type = item->tensor->type;
	source.rank = item->tensor->rank;
	source.shape = (const int64_t *)item->shape;
	atomic_fetch_add(&memory->users, 1);
	int rc = sl_dlpack_export(&source, version, out);
	if (rc)
		memory_unref(memory);
	return rc;
}
