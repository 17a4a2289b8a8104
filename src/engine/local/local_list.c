/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of folders
 *
 * Walks a folder in the order of the bytes of the paths, a folder's ending with '/', as a server of
 * S3 lists names. Links are entries, and not followed, except the folder itself. A folder's names
 * are in memory during the walk.
 *
 * Threads: a list is used by one thread at a time, which waits for storage.
 */
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local/local_internal.h"

struct folder_listing {
	struct sl_listing base;
	FTS *walk;
	FTSENT *ahead; /* was read when the list was opened, or NULL */
	bool recursive;
	char *name; /* of the last folder that was an entry */
};

static int listing_compare(const FTSENT **a, const FTSENT **b)
{
	const char *x = (*a)->fts_name, *y = (*b)->fts_name;

	while (*x && *x == *y) {
		x++;
		y++;
	}
	return (unsigned char)(*x || (*a)->fts_info != FTS_D ? *x : '/') -
	       (unsigned char)(*y || (*b)->fts_info != FTS_D ? *y : '/');
}

static int listing_fail(const char *path, int error)
{
	return sl_fail(-error, "cannot list '%s': %s", path, sl_error_text(-error));
}

static FTSENT *listing_read(struct folder_listing *listing)
{
	FTSENT *at = listing->ahead;

	listing->ahead = NULL;
	errno = 0;
	return at ? at : fts_read(listing->walk);
}

static void folder_close(struct sl_listing *base)
{
	struct folder_listing *listing = SL_CONTAINER(base, struct folder_listing, base);

	if (listing->walk)
		fts_close(listing->walk);
	free(listing->name);
	free(listing);
}

static int folder_open(struct sl_core *core, const struct sl_uri *uri,
                       const struct sluice_open_options *options, unsigned flags,
                       struct sl_listing **out)
{
	char *const paths[] = {uri->path, NULL};
	struct folder_listing *listing = calloc(1, sizeof(*listing));
	int rc = 0;

	(void)core, (void)options;
	if (!listing)
		return sl_fail(-ENOMEM, "no memory");
	listing->base.ops = &sl_local_names;
	listing->recursive = flags & SLUICE_LIST_RECURSIVE;
	listing->walk =
		fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, listing_compare);
	FTSENT *at = listing->walk ? fts_read(listing->walk) : NULL;
	if (!at)
		rc = listing_fail(uri->path, errno);
	else if (at->fts_info != FTS_D)
		rc = listing_fail(uri->path, at->fts_info == FTS_NS       ? at->fts_errno
		                             : at->fts_info == FTS_SLNONE ? ENOENT
		                                                          : ENOTDIR);
	else if (!(listing->ahead = fts_read(listing->walk)))
		rc = listing_fail(uri->path, errno);
	else if (listing->ahead->fts_level == 0 && listing->ahead->fts_info != FTS_DP)
		rc = listing_fail(uri->path, listing->ahead->fts_errno);
	if (rc)
		folder_close(&listing->base);
	else
		*out = &listing->base;
	return rc;
}

/* Makes an entry of what was read. Returns 1, 0 if it is none, or a negative errno. */
static int listing_take(struct folder_listing *listing, FTSENT *at, struct sluice_entry *entry)
{
	bool folder = at->fts_info == FTS_D;

	if (at->fts_info == FTS_DP || (folder && listing->recursive))
		return 0;
	if (at->fts_info == FTS_DNR || at->fts_info == FTS_ERR || at->fts_info == FTS_NS)
		return at->fts_errno == ENOENT ? 0 : listing_fail(at->fts_path, at->fts_errno);
	if (at->fts_info == FTS_DC)
		return listing_fail(at->fts_path, ELOOP);
	*entry = (struct sluice_entry){.name = at->fts_path, .etag = "", .upload = ""};
	entry->modified_ns = sl_modified_ns(at->fts_statp);
	if (!folder) {
		entry->length = (uint64_t)at->fts_statp->st_size;
		return 1;
	}
	fts_set(listing->walk, at, FTS_SKIP);
	free(listing->name);
	entry->is_prefix = 1;
	if (asprintf(&listing->name, "%s/", at->fts_path) < 0)
		listing->name = NULL;
	entry->name = listing->name;
	return entry->name ? 1 : sl_fail(-ENOMEM, "no memory");
}

static int folder_next(struct sl_listing *base, struct sluice_entry *out)
{
	struct folder_listing *listing = SL_CONTAINER(base, struct folder_listing, base);
	FTSENT *at = listing_read(listing);
	int rc;

	while (at) {
		rc = listing_take(listing, at, out);
		if (rc)
			return rc;
		at = listing_read(listing);
	}
	return errno ? listing_fail("the folder", errno) : 0;
}

static int name_remove(struct sl_core *core, const struct sl_uri *uri,
                       const struct sluice_open_options *options)
{
	(void)core, (void)options;
	return unlink(uri->path)
	               ? sl_fail(-errno, "cannot remove '%s': %s", uri->path, sl_error_text(-errno))
	               : 0;
}

const struct sl_names_ops sl_local_names = {
	.list_open = folder_open,
	.list_next = folder_next,
	.list_close = folder_close,
	.remove = name_remove,
};
