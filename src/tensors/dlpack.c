/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of a plan for DLPack
 *
 * Exports a tensor of a plan that lies in a memory, without a copy; the tensor counts as a user of the memory.
 * Any thread.
 */
#include <errno.h>

#include "device/device.h"
#include "tensors/tensors.h"

/* Does nothing in a child of fork(), which may not use sluice. */
static void export_release(void *owner)
{
	sluice_tensor_memory *memory = owner;

	if (sl_process_is(memory->process))
		sl_tensor_memory_unref(memory);
}

static int export_check(const sluice_tensor_plan *plan, size_t index,
                        const sluice_tensor_memory *memory)
{
	const struct sl_tensor_item *item;

	if (index >= plan->count)
		return sl_fail(-ENOENT, "the plan has %zu tensors, and no number %zu", plan->count,
		               index);
	if (!sl_process_is(memory->process))
		return sl_process_refuse();
	item = &plan->items[index];
	if (item->to)
		return sl_fail(-EINVAL, "tensor '%s' has a destination of its own",
		               item->tensor->name);
	if (memory->bytes < plan->bytes)
		return sl_fail(-EINVAL, "the memory is smaller than the plan");
	return 0;
}

int sluice_tensor_to_dlpack(const sluice_tensor_plan *plan, size_t index,
                            sluice_tensor_memory *memory, unsigned version, void **out)
{
	struct sl_dlpack_source source = {.release = export_release, .owner = memory};
	const struct sl_tensor_item *item;
	int rc;

	if (!plan || !memory || !out || version > 1)
		return sl_fail(-EINVAL, "sluice_tensor_to_dlpack: NULL, or version %u", version);
	rc = export_check(plan, index, memory);
	if (rc)
		return rc;
	item = &plan->items[index];
	source.data = (char *)memory->data + item->place;
	source.device = memory->device < 0 ? NULL : sl_device_find(memory->device);
	source.type = item->tensor->type;
	source.rank = item->tensor->rank;
	source.shape = (const int64_t *)item->shape;
	atomic_fetch_add(&memory->users, 1);
	rc = sl_dlpack_export(&source, version, out);
	if (rc)
		sl_tensor_memory_unref(memory);
	return rc;
}
