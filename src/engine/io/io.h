/* SPDX-License-Identifier: Apache-2.0 */
/* The engine, as other rooms use it: checks of contexts, files over backends of their own,
 * operations of the library. */
#ifndef SL_IO_H
#define SL_IO_H

#include <unistd.h>

#include "backend/backend.h"
#include "core/core.h"
#include "device/device.h"
#include "staging/staging.h"

/* ----------------------------------------------------------------------------------- context */

/* The page that the kernel wipes in a child of fork(): holds the number of this process, or 0 while
 * the process has made no handle. Where the kernel does not wipe pages, the upper half of the word
 * is the id of the process that drew the number. Set once, with a compare-and-exchange. */
extern _Atomic(_Atomic uint64_t *) sl_process_page;
/* Returns true if that is the number of this process, false in a child of the process. */
static inline bool sl_process_is(uint32_t number)
{
	_Atomic uint64_t *page = atomic_load_explicit(&sl_process_page, memory_order_acquire);
	uint64_t word = page ? atomic_load_explicit(page, memory_order_relaxed) : 0;

	return (uint32_t)word == number && (!(word >> 32) || word >> 32 == (uint32_t)getpid());
}
/* Gives the number of this process to a new handle. Returns 0, or -ENOMEM with a sentence. */
int sl_process_enter(uint32_t *out);
/* Returns -ECHILD with a sentence. */
int sl_process_refuse(void);
/* Has every later fork() wait for the mutex, so that a child does not find it locked. */
void sl_fork_hold(struct sl_mutex *mutex);
/* First in public calls. Returns 0; or -ECHILD (a parent's context), -EINVAL (NULL), a sentence. */
int sl_context_check(const struct sluice_context *ctx);
/* Returns the context that a backend's core is part of. */
struct sluice_context *sl_context_of(struct sl_core *core);
const struct sl_settings *sl_context_settings(const struct sluice_context *ctx);
/* Asks for the credentials of a service, as sluice_s3_check(). */
int sl_context_check_keys(const struct sluice_context *ctx, const char *scheme,
                          const void *options);
/* Returns the pool of opens, or of looks, whose tasks may wait for servers and for other pools of
 * the context, but the pool of opens; starts it at its first use. Any thread. Returns 0, or an
 * error with a sentence. */
int sl_context_get_pool(struct sluice_context *ctx, bool looks, struct sl_pool **out);
/* Counts a use of the context in or out: like an open file, it keeps the context. */
void sl_context_enter(struct sluice_context *ctx);
void sl_context_leave(struct sluice_context *ctx);
/* Returns the staging of a device that the caller's operation has started. Any thread; no wait. */
struct sl_staging *sl_context_staging_of(struct sluice_context *ctx,
                                         const struct sl_device *device);

/* -------------------------------------------------------------------------------------- file */

/* Makes a file over a backend that the library has made itself. The file owns the backend; on
 * failure it is closed. Returns 0 or -ENOMEM. */
int sl_file_wrap(struct sluice_context *ctx, const char *name, unsigned flags,
                 struct sl_backend *backend, struct sluice_file **out);
/* Returns its name, safe to display. */
const char *sl_file_name(const struct sluice_file *file);
struct sl_backend *sl_file_backend(const struct sluice_file *file);
struct sluice_context *sl_file_context(const struct sluice_file *file);

/* --------------------------------------------------------------------------------- operation */

/*
 * Submits an operation of the library itself to or from host memory, not in stream order. It has no
 * handle and is not counted among SLUICE_MAX_OPERATIONS. over() runs when the result is fixed, on
 * the thread that ends the operation; that thread holds no lock but perhaps that of submissions.
 * over() must not wait; sl_op_user() gives it r->user. Returns 0 or a negative errno with a
 * sentence.
 */
int sl_op_submit(struct sluice_file *file, const struct sluice_request *r,
                 void (*over)(struct sluice_op *));
/* Submits the same between the file and memory of the staging's device. Other operations on the
 * same bytes do not hold it back, and it does not hold them back. */
int sl_op_submit_staged(struct sluice_file *file, struct sl_staging *staging,
                        const struct sluice_request *r, void (*over)(struct sluice_op *));
/* In over(): returns the bytes moved or a negative errno, and its sentence, or NULL. */
int64_t sl_op_result(const struct sluice_op *op);
const char *sl_op_message(const struct sluice_op *op);
void *sl_op_user(const struct sluice_op *op);

#endif
