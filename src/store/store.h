/* SPDX-License-Identifier: Apache-2.0 */
/* What the table of URI schemes knows of the store; the rest is in <sluice/store.h>. */
#ifndef SL_STORE_H
#define SL_STORE_H

#include "backend/backend.h"

/* store://: blobs as files. */
extern const struct sl_backend_ops sl_blob_ops;

#endif
