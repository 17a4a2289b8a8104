/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptions of CUDA devices
 *
 * Texts for sluice doctor: name and version of GPU and driver, channels, GPUDirect.
 *
 * Threads: any; the features are collected once, under pthread_once().
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda_describe.h"

#define NVIDIA 0x10de

/* Returns the first line of a file of /sys or /proc, or "". */
static const char *first_line(const char *path, char *text, size_t size)
{
	FILE *in = fopen(path, "re");

	text[0] = '\0';
	if (in && fgets(text, size, in))
		text[strcspn(text, "\n")] = '\0';
	if (in)
		fclose(in);
	return text;
}

static void name_driver(const struct sl_cuda_api *api, char text[96])
{
	int version = 0;
	char module[32];

	api->cuDriverGetVersion(&version);
	first_line("/sys/module/nvidia/version", module, sizeof(module));
	snprintf(text, 96, "CUDA %d.%d%s%s", version / 1000, version % 1000 / 10,
	         *module ? ", kernel module " : "", module);
}

/* Writes the PCI address as the kernel writes it, or "". */
static void find_address(const struct sl_cuda_api *api, CUdevice ordinal, char address[16])
{
	if (api->cuDeviceGetPCIBusId(address, 16, ordinal))
		address[0] = '\0';
	for (char *c = address; *c; c++)
		*c = (char)tolower((unsigned char)*c);
}

void sl_cuda_describe(const struct sl_cuda_api *api, CUdevice ordinal, struct sl_cuda_text *out)
{
	int major = 0, minor = 0;
	char name[96] = "";

	api->cuDeviceGetName(name, sizeof(name), ordinal);
	api->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal);
	api->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal);
	snprintf(out->detail, sizeof(out->detail), "%s, compute capability %d.%d", name, major,
	         minor);
	name_driver(api, out->driver);
	find_address(api, ordinal, out->pci);
}

/* ----------------------------------------------------------------------------------- features */

static void describe_driver(struct sluice_feature *out, char *detail, size_t size)
{
	out->name = "CUDA driver";
	out->usable = sl_cuda.find(0) != NULL;
	if (out->usable) {
		char name[96];

		name_driver(sl_cuda_driver(), name);
		snprintf(detail, size, "%s%s%s", name, *sl_cuda.missing() ? "; " : "",
		         sl_cuda.missing());
		out->effect = "memory of GPUs is read into and written from";
		return;
	}
	snprintf(detail, size, "%s%s", sl_cuda.missing(),
	         getenv("CUDA_VISIBLE_DEVICES") ? ", and CUDA_VISIBLE_DEVICES is set" : "");
	out->effect = "no GPU is used; \"emulated\" is a device to try programs on";
	if (sl_cuda_api_found())
		out->remedy = "nvidia-smi tells whether the driver works, CUDA_VISIBLE_DEVICES "
			      "hides GPUs";
	else if (!access("/dev/nvidiactl", F_OK))
		out->remedy = "the kernel has the driver: install its libcuda.so.1, or give it to "
			      "the container";
	else if (sl_pci_has_display(NVIDIA))
		out->remedy = "there is a GPU of NVIDIA: install its driver";
}

/* Describes how many streams may wait at a time (measured on an H100), and how to raise that. */
static void describe_channels(struct sluice_feature *out, char *detail, size_t size)
{
	const char *value = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

	out->name = "CUDA channels";
	out->usable = value && !strcmp(value, "32");
	if (out->usable) {
		snprintf(detail, size, "CUDA_DEVICE_MAX_CONNECTIONS is 32");
		out->effect = "31 streams may wait with a copy queued behind, and others go on";
		return;
	}
	if (value) {
		snprintf(detail, size, "CUDA_DEVICE_MAX_CONNECTIONS is '%.32s'", value);
		out->effect = "fewer streams than with 32 may wait before copies elsewhere stop";
	} else {
		snprintf(detail, size, "CUDA_DEVICE_MAX_CONNECTIONS is not set, which means 8");
		out->effect = "from 4 streams on that wait with a copy queued behind, copies "
			      "elsewhere stop";
	}
	out->remedy = "CUDA_DEVICE_MAX_CONNECTIONS=32 before the program starts, for up to 31 of "
		      "them (sluice cp and bench set it)";
}

/* Describes whether disks and network cards can access GPU memory directly. */
static void describe_gpudirect(struct sluice_feature *out, char *detail, size_t size)
{
	bool loaded =
		!access("/proc/driver/nvidia-fs", F_OK) || !access("/sys/module/nvidia_fs", F_OK);
	char version[32], peer[64] = "";
	struct sluice_device d = {.size = sizeof(d)};

	for (int i = 0; !*peer && !sluice_device_describe(i, &d); i++)
		if (d.pci && sl_pci_shares_memory(d.pci))
			snprintf(peer, sizeof(peer), "%s shares its memory by P2PDMA", d.name);
	first_line("/sys/module/nvidia_fs/version", version, sizeof(version));
	out->name = "GPUDirect";
	out->usable = loaded || *peer;
	if (loaded)
		snprintf(detail, size, "nvidia-fs%s%s is loaded", *version ? " " : "", version);
	else
		snprintf(detail, size, "nvidia-fs is not loaded, %s",
		         *peer ? peer : "and no GPU shares its memory by P2PDMA");
	if (out->usable) {
		out->effect = "storage can move bytes to the memory of a GPU itself";
		return;
	}
	out->effect = "bytes go by way of the host's memory";
	out->remedy = "for local NVMe: load nvidia-fs, or NVIDIA's open kernel module with P2PDMA";
}

static struct {
	pthread_once_t once;
	struct sluice_feature features[3];
	char details[3][288];
	unsigned count;
} all = {.once = PTHREAD_ONCE_INIT};

static void describe_all(void)
{
	static void (*const describe[])(struct sluice_feature *, char *, size_t) = {
		describe_driver, describe_channels, describe_gpudirect};

	/* Without a driver the other features mean nothing. */
	all.count = sl_cuda.find(0) ? 3 : 1;
	for (unsigned i = 0; i < all.count; i++) {
		describe[i](&all.features[i], all.details[i], sizeof(all.details[i]));
		all.features[i].detail = all.details[i];
	}
}

int sl_cuda_feature(unsigned index, struct sluice_feature *out)
{
	pthread_once(&all.once, describe_all);
	if (index >= all.count)
		return -ENOENT;
	*out = all.features[index];
	return 0;
}
