/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice sync, and cp -r with --update or --skip-existing
 *
 * Decides which sources of a tree are copied: tree.c asks for each of them. What a target on S3 has
 * is listed before the first copy; files in a folder are looked at one by one. With --delete, after
 * all copies have succeeded, removes what only the target has.
 *
 * Threads: the main thread.
 */
#include <err.h>
#include <errno.h>
#include <fnmatch.h>
#include <fts.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cp.h"

enum { MANY = 1000 }; /* files that are removed at a time */

/* A file of the target, or of the source. */
struct cli_known {
	char *name;  /* below the target */
	bool wanted; /* the source has it */
	/* Of an object of the target: */
	uint64_t length;
	int64_t modified_ns;
	char etag[64];
};

static bool sync_includes(const struct cli_sync_options *sync, const char *name)
{
	bool included = true;

	for (size_t i = 0; i < sync->pattern_count; i++)
		if (fnmatch(sync->patterns[i].text, name, FNM_NOESCAPE) == 0)
			included = sync->patterns[i].includes;
	return included;
}

static struct cli_known *sync_add(struct cli_sync_options *sync, const char *name)
{
	size_t n = sync->known_count++;

	if (!(n & (n - 1)))
		sync->known = cli_grow(sync->known, n ? 2 * n : 1, sizeof(*sync->known));
	sync->known[n] = (struct cli_known){.name = cli_format("%s", name)};
	return &sync->known[n];
}

static int compare_known(const void *a, const void *b)
{
	return strcmp(((const struct cli_known *)a)->name, ((const struct cli_known *)b)->name);
}

/* Of the names below a folder none comes before it or behind it. */
static int compare_below(const void *folder, const void *known)
{
	return strncmp(folder, ((const struct cli_known *)known)->name, strlen(folder));
}

static void sync_sort(struct cli_sync_options *sync)
{
	sync->sorted = sync->known_count;
	if (sync->sorted)
		qsort(sync->known, sync->sorted, sizeof(*sync->known), compare_known);
}

/* Finds a name that was there when they were sorted; NULL: there is none. */
static struct cli_known *sync_find(const struct cli_sync_options *sync, const char *name)
{
	struct cli_known key = {.name = (char *)name};

	return sync->sorted ? bsearch(&key, sync->known, sync->sorted, sizeof(key), compare_known)
	                    : NULL;
}

bool cli_is_marker(const struct sluice_entry *entry)
{
	size_t n = strlen(entry->name);

	return !entry->length && n && entry->name[n - 1] == '/';
}

/* Returns a path, or bucket and prefix, with '/' at its end, for the caller; NULL: no folder. */
static char *sync_root(const char *uri)
{
	CLI_OWNED char *path = cli_local_path(uri);
	char real[PATH_MAX], *folder = NULL;

	/* Of a path that is not there realpath() finds the beginning. */
	if (!path || realpath(path, real) || errno == ENOENT)
		folder = cli_format("%s/",
		                    path ? real : uri + (cli_is_object(uri) ? strlen("s3://") : 0));

	for (size_t n = folder ? strlen(folder) : 0; n > 1 && folder[n - 2] == '/'; n--)
		folder[n - 1] = '\0';
	return folder;
}

/* Refuses a source that is the target, or in it, or around it. */
static int sync_check(const char *source, const char *target)
{
	CLI_OWNED char *from = sync_root(source), *to = sync_root(target);
	CLI_OWNED char *one = cli_uri_name(source), *other = cli_uri_name(target);

	if (!from || !to || (strncmp(from, to, strlen(to)) && strncmp(to, from, strlen(from))))
		return 0;
	return cli_fail(-EINVAL, "'%s' and '%s' are one, or one is in the other", one, other);
}

/* Lists a target on S3. */
static int sync_list(const struct cli_cp_options *o, sluice_context *ctx)
{
	struct sluice_open_options options = cli_open_options(&o->open);
	struct sluice_entry entry = {.size = sizeof(entry)};
	CLI_OWNED char *prefix = cli_format("%s/", o->sync->folder);
	size_t skipped = strlen(strchr(prefix + strlen("s3://"), '/') + 1);
	sluice_list *list = NULL;

	int rc = cli_said(sluice_list_open(ctx, prefix, &options, SLUICE_LIST_RECURSIVE, &list));
	while (list && (rc = cli_said(sluice_list_next(list, &entry))) > 0) {
		if (cli_is_marker(&entry) || strlen(entry.name) < skipped)
			continue;
		struct cli_known *known = sync_add(o->sync, entry.name + skipped);
		known->length = entry.length;
		known->modified_ns = entry.modified_ns ? entry.modified_ns : INT64_MIN;
		snprintf(known->etag, sizeof(known->etag), "%s", entry.etag);
	}
	sluice_list_free(list);
	sync_sort(o->sync);
	return rc;
}

int cli_sync_begin(const struct cli_cp_options *o, sluice_context *ctx, char *folder)
{
	int rc = o->sync->whole ? sync_check(o->sources[0], o->target) : 0;

	o->sync->folder = folder;
	return rc || !cli_is_object(folder) ? rc : sync_list(o, ctx);
}

/* ETags of objects that came in parts depend on the parts, and are no sums of bytes. */
static bool etags_compare(const char *one, const char *other)
{
	const char *parts = strchr(one, '-'), *others = strchr(other, '-');

	return *one && *other && (parts && others ? !strcmp(parts, others) : parts == others);
}

struct cli_source cli_source_of(const struct stat *st)
{
	return (struct cli_source){(uint64_t)st->st_size, sl_modified_ns(st), "",
	                           S_ISLNK(st->st_mode)};
}

bool cli_sync_takes(struct cli_sync_options *sync, const char *target, bool inside,
                    const struct cli_source *source)
{
	const char *name = target + strlen(sync->folder) + 1;
	struct cli_known there = {0}, *known = &there;
	struct stat st;

	if (!sync_includes(sync, name))
		return false;
	if (!inside)
		return true;
	if (cli_is_object(sync->folder)) {
		known = sync_find(sync, name);
		if (known)
			known->wanted = true;
	} else {
		if (sync->removes)
			sync_add(sync, name)->wanted = true;
		if ((source->is_link ? lstat : stat)(target, &st) ||
		    (source->is_link ? !S_ISLNK(st.st_mode) : S_ISDIR(st.st_mode)))
			return true;
		there.length = (uint64_t)st.st_size;
		there.modified_ns = sl_modified_ns(&st);
	}
	if (!known || sync->skips)
		return !known;
	bool newer = source->modified_ns > known->modified_ns;
	if (!sync->whole || source->length != known->length)
		return newer || sync->whole;
	return sync->etags && etags_compare(source->etag, known->etag)
	               ? strcmp(source->etag, known->etag)
	               : newer;
}

/* Tells whether the source has files in that folder. */
static bool sync_has_below(const struct cli_sync_options *sync, const char *folder)
{
	CLI_OWNED char *below = cli_format("%s/", folder);

	return sync->sorted &&
	       bsearch(below, sync->known, sync->sorted, sizeof(*sync->known), compare_below);
}

/* Adds what a folder has and the source has not. Files were copied through links to folders. */
static int sync_walk(struct cli_sync_options *sync)
{
	FTS *fts = fts_open((char *[]){sync->folder, NULL},
	                    FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
	FTSENT *entry;
	int rc = 0;

	if (!fts)
		err(CLI_FAILED, "'%s'", sync->folder);
	sync_sort(sync);
	while (errno = 0, (entry = fts_read(fts))) {
		const char *name = entry->fts_path + strlen(sync->folder);
		int info = entry->fts_info;

		name += strspn(name, "/");
		if (info == FTS_F || info == FTS_SL || info == FTS_SLNONE || info == FTS_DEFAULT) {
			if (!sync_find(sync, name) &&
			    !(info == FTS_SL && sync_has_below(sync, name)))
				sync_add(sync, name);
		} else if (info != FTS_D && info != FTS_DP &&
		           (entry->fts_level || entry->fts_errno != ENOENT)) {
			rc = cli_fail(-EIO, "'%s': %s", entry->fts_path,
			              strerror(entry->fts_errno));
		}
	}
	if (errno)
		rc = cli_fail(-errno, "'%s': %s", sync->folder, strerror(errno));
	fts_close(fts);
	return rc;
}

/* Removes, or shows, files of the target. Returns 0 or a negative errno, printed. */
static int sync_remove(const struct cli_cp_options *o, sluice_context *ctx, char **targets,
                       size_t count)
{
	struct sluice_open_options options = cli_open_options(&o->open);
	bool objects = cli_is_object(o->sync->folder);
	char *messages[MANY] = {NULL};
	int errors[MANY], rc = 0;

	for (size_t i = 0; i < count; i++)
		errors[i] = o->dry_run ? 0 : objects ? -ENOMEM : unlink(targets[i]) ? -errno : 0;
	if (!o->dry_run && objects)
		sluice_remove_many(ctx, (const char *const *)targets, count, &options, errors,
		                   messages);
	for (size_t i = 0; i < count; i++) {
		CLI_OWNED char *shown = cli_visible(targets[i]);

		if (errors[i])
			rc = cli_fail(errors[i], "'%s' is not deleted: %s", shown,
			              messages[i] ? messages[i] : strerror(-errors[i]));
		else if (o->dry_run || !o->open.quiet)
			printf("delete %s\n", shown);
		free(messages[i]);
	}
	return rc;
}

int cli_sync_finish(const struct cli_cp_options *o, sluice_context *ctx, int rc)
{
	struct cli_sync_options *sync = o->sync;
	char *targets[MANY];
	size_t count = 0;

	if (!rc && sync->removes && !cli_is_object(sync->folder))
		rc = sync_walk(sync);
	bool removes = sync->removes && !rc;
	if (sync->removes && rc && !cli_interrupted())
		cli_warn("nothing is deleted, since not all could be listed and copied");
	for (size_t i = 0; i < sync->known_count; i++) {
		const struct cli_known *known = &sync->known[i];

		if (removes && !known->wanted && sync_includes(sync, known->name))
			targets[count++] = cli_format("%s/%s", sync->folder, known->name);
		free(known->name);
		if (count < MANY && (!count || i + 1 < sync->known_count))
			continue;
		int failed = cli_interrupted() ? -ECANCELED : sync_remove(o, ctx, targets, count);
		rc = rc ? rc : failed;
		while (count)
			free(targets[--count]);
	}
	free(sync->known);
	free(sync->folder);
	return rc;
}
