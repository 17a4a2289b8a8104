/* SPDX-License-Identifier: Apache-2.0 */
/* The engine, as other rooms use it: checks of contexts, files over backends of their own,
 * operations of the library. */
#ifndef SL_IO_H
#define SL_IO_H

#include "backend/backend.h"
#include "core/core.h"
#include "device/device.h"
#include "staging/staging.h"

/* ----------------------------------------------------------------------------------- context */

/* The page that the kernel wipes in a child of fork(): holds 1, and 0 in a child. Set once, with a
 * compare-and-exchange. And the contexts and stores of the process. */
extern struct sl_fork {
	_Atomic(_Atomic unsigned char *) page;
	_Atomic unsigned contexts;
} sl_fork;
/* Returns true in a child of fork() if its parent had a context. */
static inline bool sl_forked(void)
{
	_Atomic unsigned char *page = atomic_load_explicit(&sl_fork.page, memory_order_acquire);

	return page && !atomic_load_explicit(page, memory_order_relaxed) &&
	       atomic_load_explicit(&sl_fork.contexts, memory_order_relaxed);
}
/* Counts a context or a store of this process in. Returns 0, or -ECHILD, -ENOMEM or -ENOSYS with a
 * sentence. */
int sl_fork_enter(void);
void sl_fork_leave(void);
/* Returns -ECHILD in a child of fork(), else -EINVAL for a context that is NULL, with a sentence. */
int sl_context_refuse(void);
/* Returns 0, or the refusal. Every public call begins with it. */
static inline int sl_context_check(const struct sluice_context *ctx)
{
	return ctx && !sl_forked() ? 0 : sl_context_refuse();
}
/* Returns the context that a backend's core is part of. */
struct sluice_context *sl_context_of(struct sl_core *core);
const struct sl_settings *sl_context_settings(const struct sluice_context *ctx);
/*
 * Counts a use of the context in or out: like an open file, it keeps the context from being freed.
 */
void sl_context_enter(struct sluice_context *ctx);
void sl_context_leave(struct sluice_context *ctx);
/* Returns the staging of a device that the submission of the caller's operation has started. Any
 * thread; does not wait. */
struct sl_staging *sl_context_staging_of(struct sluice_context *ctx,
                                         const struct sl_device *device);

/* -------------------------------------------------------------------------------------- file */

/*
 * Makes a file over a backend that the library has made itself. The file owns the backend; on
 * failure it is closed. Returns 0 or -ENOMEM.
 */
int sl_file_wrap(struct sluice_context *ctx, const char *name, unsigned flags,
                 struct sl_backend *backend, struct sluice_file **out);

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
/*
 * Submits the same between the file and memory of the staging's device. Other operations on the
 * same bytes do not hold it back, and it does not hold them back.
 */
int sl_op_submit_staged(struct sluice_file *file, struct sl_staging *staging,
                        const struct sluice_request *r, void (*over)(struct sluice_op *));
/* In over(): returns the bytes that were moved or a negative errno, and the sentence that goes with
 * it, or NULL. */
int64_t sl_op_result(const struct sluice_op *op);
const char *sl_op_message(const struct sluice_op *op);
void *sl_op_user(const struct sluice_op *op);

#endif
