/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of HDF5 files as files of bytes: a backend over the file's. */
#ifndef SL_ARRAYS_H
#define SL_ARRAYS_H

#include <sluice/arrays.h>

#include "backend/backend.h"

/* Opens the dataset in the options, in the file with the URI. */
extern const struct sl_backend_ops sl_array_ops;

#endif
