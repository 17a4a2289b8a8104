/* SPDX-License-Identifier: Apache-2.0 */
/* Files with headers of JSON, in a build without yajl. */
#include <errno.h>

#include "tensors/header.h"

int sl_safetensors_read(struct sl_tensor_header *header)
{
	return sl_tensor_refuse(header->file, -ENOSYS, NULL,
	                        "its header is JSON, which this build cannot read: it has no yajl");
}

int sl_tensor_index_read(struct sl_tensor_header *header)
{
	return sl_safetensors_read(header);
}
