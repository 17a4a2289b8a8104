/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that the fake driver knows: for each entry of a test's PTX a C function. */
#ifndef TESTS_FAKE_KERNELS_H
#define TESTS_FAKE_KERNELS_H

#include <stddef.h>

#define FAKE_PARAMETERS_MOST 8

struct fake_kernel {
	const char *name;
	/* Runs all of the grid at once. parameters as cuLaunchKernel() has them, but copies. */
	void (*run)(void **parameters, unsigned grid_x, unsigned block_x);
	size_t sizes[FAKE_PARAMETERS_MOST]; /* of the parameters in bytes, up to the first 0 */
};
extern const struct fake_kernel fake_kernels[]; /* the last has no name */

/* Where the n bytes at an address of device memory, or of registered memory, are, to read or to write; NULL,
 * and the device has failed: it is no such memory. Inside run() only. */
const void *fake_kernel_in(const void *memory, size_t n);
void *fake_kernel_out(void *memory, size_t n);

#endif
