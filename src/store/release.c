/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a handle. */
#include <stdlib.h>

#include "store/devices.h"

/* The blob may go now; the server, if it is of the same daemon, is to look. */
static void nudge(sluice_store *store, const struct sl_view *view, uint64_t id)
{
	uint64_t turn;

	sl_mutex_lock(&store->mutex);
	turn = store->turn;
	sl_mutex_unlock(&store->mutex);
	if (sl_same_daemon(view->turn, turn))
		sl_tell_id(store, SL_MSG_NUDGE, id, turn);
}

void sl_blob_unref(sluice_blob *blob)
{
	if (atomic_fetch_sub(&blob->references, 1) != 1)
		return;
	/* The bytes go before the hold on them does. */
	if (blob->mapping)
		sl_mapping_release(blob->store, blob->mapping);
	if (blob->state == SLUICE_BLOB_IS_CREATED)
		sl_lease_end(blob, true);
	if (blob->view) {
		if (sl_reader_release(&blob->view->reader, &blob->held) ||
		    blob->flags & SLUICE_BLOB_TRANSIENT)
			nudge(blob->store, blob->view, blob->id);
		sl_view_release(blob->view);
	}
	free(blob->promise.text);
	free(blob->own_record);
	free(blob);
}

void sl_blob_let_go(sluice_blob *blob)
{
	sluice_store *store = blob->store;

	sl_blob_unref(blob);
	atomic_fetch_sub(&store->handles, 1);
}

int sluice_blob_release(sluice_blob *blob)
{
	int rc;

	if (!blob)
		return 0;
	rc = sl_store_check(blob->store, "sluice_blob_release");
	if (!rc)
		sl_blob_let_go(blob);
	return rc;
}

int sluice_blob_release_many(sluice_blob *const *v, size_t count)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++)
		rc = sluice_blob_release(v[i]);
	return rc;
}
