/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_HDF5_ERROR_H
#define GRAY_SCOTT_HDF5_ERROR_H

#include <stddef.h>

/* HDF5 keeps its errors per thread and would print them: not on this one. */
void hdf5_errors_quiet(void);

/* What HDF5 says of the call that failed last on this thread, at the place where it happened. */
void hdf5_error(char *text, size_t size);

#endif
