/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets sluice find nvidia-fs where the fake cuFile has it. For programs that are linked with --wrap=access.
 *
 * FAKE_CUFILE_NVFS=2.17    the module and its device are there; see fake_cuda/fake_cufile.c
 * FAKE_CUFILE_NO_NODE=1    the device is not, as in a container
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
	bool node = !strcmp(path, "/dev/nvidia-fs0");

	if (node && getenv("FAKE_CUFILE_NO_NODE"))
		return -1;
	if (getenv("FAKE_CUFILE_NVFS") && (node || !strcmp(path, "/proc/driver/nvidia-fs")))
		return 0;
	return __real_access(path, mode);
}
