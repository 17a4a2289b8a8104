/* SPDX-License-Identifier: Apache-2.0 */
/* What local files know of cuFile. The functions are those of struct sl_backend_ops. */
#ifndef SL_CUFILE_H
#define SL_CUFILE_H

#include "backend/local.h"

int sl_cufile_takes(struct sl_backend *backend, struct sl_device *device,
                    const struct sluice_extent *extents, size_t count, bool write);
int sl_cufile_enqueue(struct sl_backend *backend, struct sl_device *device, sluice_stream stream,
                      struct sl_transfer *transfer, bool write);
int sl_cufile_passed(struct sl_backend *backend, const struct sl_transfer *transfer, bool write,
                     char **message);
void sl_cufile_submit(struct sl_piece *piece);
/* Before the descriptors of the file are closed. */
void sl_cufile_close(struct sl_local *local);

#endif
