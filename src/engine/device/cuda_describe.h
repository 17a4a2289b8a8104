/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of GPUs and their driver for users, for the cuda*.c files only. */
#ifndef SL_CUDA_DESCRIBE_H
#define SL_CUDA_DESCRIBE_H

#include "device/cuda_api.h"
#include "device/device.h"

struct sl_cuda_text {
	char detail[160];
	char driver[96];
	char pci[16]; /* or "" */
};
void sl_cuda_describe(const struct sl_cuda_api *api, CUdevice ordinal, struct sl_cuda_text *out);

/* Implements feature() of struct sl_device_kind. */
int sl_cuda_feature(unsigned index, struct sluice_feature *out);

#endif
