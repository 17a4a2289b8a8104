/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_OPEN_REPLACE for local files: a temporary name beside the final one. */
#ifndef SL_REPLACE_H
#define SL_REPLACE_H

#include "backend/local.h"

/* Makes the temporary file and puts its name on local. The descriptor, or an error. */
int sl_replace_open(struct sl_local *local, const struct sluice_open_options *options);
/* Gives the file its name; nothing if there is no temporary one. With a sentence. */
int sl_replace_commit(struct sl_local *local);
/* Makes the name stable. With a sentence. */
int sl_replace_sync_folder(struct sl_local *local);
/* Removes what was not committed. */
void sl_replace_abandon(struct sl_local *local);

#endif
