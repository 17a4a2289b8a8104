/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of the format of tables. */
#ifndef SL_COLLECTION_TABLE_H
#define SL_COLLECTION_TABLE_H

#include "collection/collection.h"

#define SL_TABLE_MAGIC   "SLtensor"
#define SL_TABLE_VERSION 1
#define SL_TABLE_ALIGN   UINT64_C(256) /* of tensors in parts */

_Static_assert(sizeof(struct sl_table_head) == 48 && sizeof(struct sl_table_row) == 48 &&
                       sizeof(struct sl_table_file) == 24,
               "increase SL_TABLE_VERSION");

#endif
