/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice store: blobs and objects of S3
 *
 * Pushes, refreshes and removes blobs by their names.
 *
 * Threads: the main thread.
 */
#include <stdlib.h>

#include "cli_store.h"

typedef int (*store_each)(sluice_store *store, const struct sluice_origin *origin, const char *name,
                          const struct cli_store_options *o);

/* Calls it for each name, with a context if S3 is used. Returns the first error. */
static int store_for_each(sluice_store *store, const struct cli_store_options *o, bool s3,
                          store_each each)
{
	struct sluice_origin origin = SLUICE_ORIGIN_INIT;
	int first = s3 ? cli_context_new(NULL, 0, &origin.ctx) : 0;

	if (first)
		return first;
	origin.uri = o->origin;
	for (unsigned i = 0; i < o->arguments.count; i++) {
		int rc = cli_said(each(store, &origin, o->arguments.of[i], o));

		first = first ? first : rc;
	}
	sluice_context_close(origin.ctx);
	return first;
}

static int store_push_one(sluice_store *store, const struct sluice_origin *origin, const char *name,
                          const struct cli_store_options *o)
{
	return sluice_blob_push(store, origin, name, o->exclusive ? SLUICE_OPEN_EXCLUSIVE : 0);
}

int cli_store_push(sluice_store *store, const struct cli_store_options *o)
{
	return store_for_each(store, o, true, store_push_one);
}

/* Prints the result. */
static int store_refresh_one(sluice_store *store, const struct sluice_origin *origin,
                             const char *name, const struct cli_store_options *o)
{
	struct sluice_blob_source source = {.size = sizeof(source)};
	sluice_blob *blob;
	uint64_t id;
	int rc = sluice_blob_get(store, name, 0, &blob);

	(void)o;
	if (rc)
		return rc;
	rc = sluice_blob_refresh(store, origin, name, &id);
	if (!rc) {
		CLI_OWNED char *visible = cli_visible(name);
		printf("%s: %s\n", visible,
		       id != sluice_blob_id(blob)          ? "replaced"
		       : sluice_blob_origin(blob, &source) ? "was published here"
		                                           : "unchanged");
	}
	sluice_blob_release(blob);
	return rc;
}

int cli_store_refresh(sluice_store *store, const struct cli_store_options *o)
{
	return store_for_each(store, o, true, store_refresh_one);
}

static int store_rm_one(sluice_store *store, const struct sluice_origin *origin, const char *name,
                        const struct cli_store_options *o)
{
	(void)o;
	return origin->uri ? sluice_blob_delete_from(store, origin, name)
	                   : sluice_blob_delete(store, name);
}

int cli_store_rm(sluice_store *store, const struct cli_store_options *o)
{
	return store_for_each(store, o, o->origin, store_rm_one);
}
