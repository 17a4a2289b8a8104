/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of GPUs and their driver, for people; for the files of cuda alone. */
#ifndef SL_CUDA_WORDS_H
#define SL_CUDA_WORDS_H

#include "device/cuda_api.h"
#include "device/device.h"

struct sl_cuda_words {
	char detail[160];
	char driver[96];
	char pci[16]; /* or "" */
};
void sl_cuda_describe(const struct sl_cuda_api *api, CUdevice ordinal, struct sl_cuda_words *out);

/* As in struct sl_device_kind. */
int sl_cuda_feature(unsigned index, struct sluice_feature *out);

#endif
