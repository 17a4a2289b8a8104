/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets tests that were written for host memory run over memory of devices and in stream order, as the
 * row says: every call that submits an operation, or learns of its end, is wrapped by the linker.
 */
#ifndef TESTS_DEVICE_SHIM_H
#define TESTS_DEVICE_SHIM_H

/* What a program that is linked with device_shim.c has to wrap; tests/meson.build has the same. */
#include "lib/support.h"

int __real_sluice_submit(sluice_file *file, const struct sluice_request *r, sluice_op **out);
int __real_sluice_read(sluice_file *file, void *dst, size_t n, uint64_t offset, sluice_op **out);
int __real_sluice_write(sluice_file *file, const void *src, size_t n, uint64_t offset,
                        sluice_op **out);
int64_t __real_sluice_wait(sluice_op *op, int timeout_ms);
int __real_sluice_queue_next(sluice_queue *queue, int timeout_ms, sluice_op **out);
void *__real_sluice_op_user(const sluice_op *op);
void __real_sluice_op_free(sluice_op *op);
int __real_sluice_sync(sluice_file *file);
int __real_sluice_close(sluice_file *file);
void __real_sluice_discard(sluice_file *file);

int __wrap_sluice_submit(sluice_file *file, const struct sluice_request *r, sluice_op **out);
int __wrap_sluice_read(sluice_file *file, void *dst, size_t n, uint64_t offset, sluice_op **out);
int __wrap_sluice_write(sluice_file *file, const void *src, size_t n, uint64_t offset,
                        sluice_op **out);
int64_t __wrap_sluice_wait(sluice_op *op, int timeout_ms);
int __wrap_sluice_queue_next(sluice_queue *queue, int timeout_ms, sluice_op **out);
void *__wrap_sluice_op_user(const sluice_op *op);
void __wrap_sluice_op_free(sluice_op *op);
int __wrap_sluice_sync(sluice_file *file);
int __wrap_sluice_close(sluice_file *file);
void __wrap_sluice_discard(sluice_file *file);

#endif
