/* SPDX-License-Identifier: Apache-2.0 */
/* The blob backend, for the table of URI schemes; everything else is in <sluice/store.h>. */
#ifndef SL_STORE_H
#define SL_STORE_H

#include "backend/backend.h"

/* store:// */
extern const struct sl_backend_ops sl_blob_ops;

#endif
