/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of tensors whose bytes are known. A place is -1, the host, or the number of a device of lib/gpu.h. */
#ifndef TESTS_LOAD_H
#define TESTS_LOAD_H

#include "lib/support.h"
#include "tensors/table.h"

enum { FILES = 3, EACH = 5 };

/* FILES files of EACH tensors of bytes, of two dimensions; their lengths are multiples of nothing. */
struct sluice_tensors *tensors_make(struct fixture *f);
/* plan and memory may be NULL. */
void tensors_free(struct sluice_tensors *table, sluice_tensor_plan *plan,
                  sluice_tensor_memory *memory);
sluice_tensor_plan *plan_make(struct sluice_tensors *table, const struct sluice_tensor_want *wants,
                              size_t count);
int device_of(int where);
sluice_tensor_memory *memory_make(int where, const sluice_tensor_plan *plan);
/* stream NULL: in no order. */
sluice_tensor_load *load_begin(sluice_tensor_plan *plan, sluice_tensor_memory *memory,
                               sluice_stream stream);
/* Both wait for the end, and free the load. */
void load_finish(sluice_tensor_load *load, const sluice_tensor_plan *plan);
void load_fail(sluice_tensor_load *load, int error, const char *says);
uint64_t bytes_of(const sluice_tensor_plan *plan);

/* The bytes of a want at a place of the host or a device are those of its file. */
void assert_tensor(const struct sluice_tensors *table, const struct sluice_tensor_want *want,
                   const void *at);
/* wants NULL: all tensors. */
void assert_plan(const struct sluice_tensors *table, const sluice_tensor_plan *plan,
                 const struct sluice_tensor_want *wants, const sluice_tensor_memory *memory);

#endif
