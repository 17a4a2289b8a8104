/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of devices that the caller registers for direct transfers. */
#include <errno.h>

#include "io/io.h"

int sluice_register_buffer(sluice_context *ctx, void *memory, size_t length)
{
	struct sl_device *device;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!memory || !length)
		return sl_fail(-EINVAL, "sluice_register_buffer: %s",
		               memory ? "length is 0" : "memory is NULL");
	device = sl_device_of_memory(memory);
	if (!device || sl_device_of_memory((char *)memory + length - 1) != device)
		return sl_fail(-EINVAL,
		               "sluice_register_buffer: %zu bytes at %p are not memory of a device",
		               length, memory);
	rc = sl_cufile_register(ctx->core.cufile, device, memory, length);
	if (!rc)
		sl_context_expect_exit(ctx, SL_EXIT_BACKEND);
	return rc;
}

int sluice_unregister_buffer(sluice_context *ctx, void *memory)
{
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	return sl_cufile_unregister(ctx->core.cufile, memory);
}
