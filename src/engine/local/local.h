/* SPDX-License-Identifier: Apache-2.0 */
/* Local files, and the context's parts for them: kernel probe, io_uring, bounce buffers, cuFile. */
#ifndef SL_LOCAL_H
#define SL_LOCAL_H

#include "backend/backend.h"

/* Local files, over posix and uring. */
extern const struct sl_backend_ops sl_local_ops;
extern const struct sl_names_ops sl_local_names;
/* Looks at the kernel; once, when a context is made. */
void sl_kernel_probe(unsigned disable, struct sl_kernel *out);
/* Describes a feature as sluice_context_feature() does; index < SL_LOCAL_FEATURES. */
#define SL_LOCAL_FEATURES 6
void sl_local_feature(const struct sl_core *core, size_t index, struct sluice_feature *out);

/*
 * Starts the reactors. -ENOSYS, or what io_uring_setup or io_uring_enter says, with a sentence.
 * Stop joins them, free comes after all submitting threads were joined. NULL is allowed.
 */
int sl_uring_start(struct sl_core *core, struct sl_uring **out);
void sl_uring_stop(struct sl_uring *uring);
void sl_uring_free(struct sl_uring *uring);

/*
 * The state that local files share which go to GPUs by cuFile. -ENOSYS with a sentence: the
 * settings ask for it, and it is not there. Its threads start at the first use. Stop joins them;
 * free calls the driver.
 */
int sl_cufile_new(struct sl_core *core, struct sl_cufile **out);
void sl_cufile_stop(struct sl_cufile *cufile);
void sl_cufile_free(struct sl_cufile *cufile);
/* The process ends: transfers that have not begun fail, and the threads are joined. */
void sl_cufile_abandon(struct sl_cufile *cufile);
/* Makes cuFile allocate its memory now, if it will be used for the device: a call of the driver. */
void sl_cufile_prepare(struct sl_cufile *cufile, const struct sl_device *device);
/* Describes it for sluice_context_feature(). */
void sl_cufile_feature(const struct sl_core *core, struct sluice_feature *out);
/* Memory of a device, as sluice_register_buffer(). */
int sl_cufile_register(struct sl_cufile *cufile, struct sl_device *device, void *memory,
                       size_t length);
int sl_cufile_unregister(struct sl_cufile *cufile, void *memory);

/* The buffers for data that is not aligned; their memory is taken at the first use. */
int sl_bounce_new(const struct sl_settings *settings, struct sl_bounce **out);
void sl_bounce_free(struct sl_bounce *bounce);

#endif
