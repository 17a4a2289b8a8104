/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of several files and folders
 *
 * Walks the sources, or lists objects, makes folders and links, and gives files to the threads of
 * jobs.c. A failure is printed and does not end the walk.
 *
 * Threads: the main thread; cli_preserve() any.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <linux/limits.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cp.h"

/* A folder, which gets its permissions and times after its content. */
struct folder {
	char *source, *path;
	struct stat st;
};
struct tree {
	const struct cli_cp_options *o;
	struct cli_jobs *jobs;
	sluice_context *objects; /* for lists and small objects; or NULL */
	struct folder *folders;
	size_t folder_count;
	void *names; /* sources so far, for tsearch() */
	int rc;
};

/* ------------------------------------------------------------------------------------ preserve */

/* Says once in a run that there is something that copies do not have. */
static void tell_lost(const char *source, const char *what)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&told))
		cli_warn("'%s' has %s, which are not copied; 'cp -a' copies them", source, what);
}

static bool has_attributes(const char *source)
{
	static const char acl[] = "system.posix_acl_", user[] = "user.";
	char names[4096];
	ssize_t n = listxattr(source, names, sizeof(names));

	if (n < 0)
		return errno == ERANGE;
	return memmem(names, n, user, strlen(user)) || memmem(names, n, acl, strlen(acl));
}

int cli_preserve(const char *source, const struct stat *st, const char *path)
{
	struct timespec times[] = {st->st_atim, st->st_mtim};
	int flags = S_ISLNK(st->st_mode) ? AT_SYMLINK_NOFOLLOW : 0;
	mode_t mode = st->st_mode & 07777;
	int failed = 0;

	if (source && !flags && has_attributes(source))
		tell_lost(source, "extended attributes or access control lists");
	/* Default lists of the folder would give others more than the source's permissions do. */
	if (source && !flags) {
		(void)!removexattr(path, "system.posix_acl_access");
		(void)!removexattr(path, "system.posix_acl_default");
	}
	/* Only root may change the owner; set-ID bits make sense with the same owner alone. */
	if (source && fchownat(AT_FDCWD, path, st->st_uid, st->st_gid, flags)) {
		failed = errno == EPERM ? 0 : errno;
		(void)!fchownat(AT_FDCWD, path, (uid_t)-1, st->st_gid, flags);
		mode &= 01777;
	}
	if (source && !flags && chmod(path, mode))
		failed = errno;
	if (utimensat(AT_FDCWD, path, times, flags))
		failed = errno;
	return failed ? cli_fail(-failed, "'%s': -p: %s", path, strerror(failed)) : 0;
}

/* ---------------------------------------------------------------------------------------- walk */

/* Tells whether no folders are made for copies. */
static bool tree_is_flat(const struct tree *tree)
{
	return tree->o->dry_run || cli_is_object(tree->o->target);
}

/* Tells whether the target gets the content of the source. */
static bool tree_syncs(const struct tree *tree)
{
	return tree->o->sync && tree->o->sync->whole;
}

/* Returns the path or URI below which copies go, without '/' at the end; the caller frees it. */
static char *tree_folder(const struct tree *tree)
{
	char *folder = cli_local_path(tree->o->target);

	if (!folder)
		folder = cli_format("%s", tree->o->target);
	for (size_t n = strlen(folder); cli_is_object(folder) && folder[n - 1] == '/';)
		folder[--n] = '\0';
	return folder;
}

/* Makes a link. -f atomically replaces a file or link, but not the target of the link. */
static int copy_link(const struct tree *tree, const char *path, const struct stat *st,
                     const char *target)
{
	const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
	CLI_OWNED char *beside =
		cli_format("%.*s.%ld.sluice", (int)(name - target), target, (long)getpid());
	char text[PATH_MAX];
	bool replaces = tree->o->open.force;
	ssize_t n = readlink(path, text, sizeof(text) - 1);
	struct stat there, behind;
	int rc = n < 0 ? -errno : 0;

	if (tree_is_flat(tree)) {
		if (cli_is_object(target))
			rc = cli_fail(-EINVAL, "'%s' is a link, which S3 does not have", path);
		else
			cli_cp_show(path, target);
		return rc;
	}
	text[n < 0 ? 0 : n] = '\0';
	replaces = replaces && lstat(target, &there) == 0;
	if (rc == 0 && replaces && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode))
		rc = cli_fail(-EEXIST, "'%s' is neither a file nor a link, and is not replaced",
		              target);
	else if (rc == 0 && replaces && stat(path, &behind) == 0 && behind.st_dev == there.st_dev &&
	         behind.st_ino == there.st_ino)
		rc = cli_fail(-EINVAL, "'%s' and '%s' are the same file", path, target);
	else if (rc || symlink(text, replaces ? beside : target) ||
	         (replaces && rename(beside, target))) {
		rc = rc ? rc : -errno;
		cli_warn(rc == -EEXIST && !replaces ? "'%s' exists; use -f to overwrite"
		                                    : "'%s': %s",
		         target, strerror(-rc));
		if (replaces)
			unlink(beside);
	}
	return rc || !tree->o->preserve ? rc : cli_preserve(path, st, target);
}

/* Makes a folder, or copies into an existing folder. */
static int copy_folder(struct tree *tree, const char *path, const struct stat *st,
                       const char *target)
{
	mode_t mode = st->st_mode & 01777 & ~tree->o->mask;
	if (tree_is_flat(tree))
		return 0;
	bool made = mkdir(target, mode | S_IRWXU) == 0;
	struct stat there;

	if (!made && (errno != EEXIST || stat(target, &there)))
		return cli_fail(-errno, "cannot make '%s': %s", target, strerror(errno));
	if (!made && !S_ISDIR(there.st_mode))
		return cli_fail(-ENOTDIR, "'%s' is no directory", target);
	if (!tree->o->preserve && (!made || (mode & S_IRWXU) == S_IRWXU))
		return 0;
	tree->folders = cli_grow(tree->folders, tree->folder_count + 1, sizeof(*tree->folders));
	tree->folders[tree->folder_count++] =
		(struct folder){cli_format("%s", path), cli_format("%s", target), *st};
	return 0;
}

/* Returns the bytes of an object that is written; UINT64_MAX: it is none, or of unknown size. */
static uint64_t target_bytes(const char *target, const struct stat *st)
{
	return cli_is_object(target) && S_ISREG(st->st_mode) ? (uint64_t)st->st_size : UINT64_MAX;
}

/* Handles an entry of fts_read(). A folder with an error is skipped. */
static int visit_entry(struct tree *tree, FTSENT *entry, const char *target,
                       const struct stat *root)
{
	const struct stat *st = entry->fts_statp;
	struct cli_source source = cli_source_of(st);
	bool leaf = entry->fts_info == FTS_F || entry->fts_info == FTS_SL ||
	            entry->fts_info == FTS_SLNONE || entry->fts_info == FTS_DEFAULT;

	if (leaf && tree->o->sync && !cli_sync_takes(tree->o->sync, target, true, &source))
		return 0;
	switch (entry->fts_info) {
	case FTS_D:
		if (st->st_dev == root->st_dev && st->st_ino == root->st_ino)
			return cli_fail(-EINVAL, "'%s' is the copy: it is not copied into itself",
			                entry->fts_path);
		return copy_folder(tree, entry->fts_path, st, target);
	case FTS_DP:
		return 0;
	case FTS_F:
		if (tree->o->preserve && st->st_nlink > 1)
			tell_lost(entry->fts_path, "hard links");
		cli_jobs_push(tree->jobs, entry->fts_path, target, target_bytes(target, st), true);
		return 0;
	case FTS_SL:
	case FTS_SLNONE:
		return copy_link(tree, entry->fts_path, st, target);
	case FTS_DC:
		return cli_fail(-ELOOP, "'%s' is a directory that it is in, which has no end",
		                entry->fts_path);
	case FTS_DEFAULT:
		return cli_fail(-EINVAL, "'%s' is %s, which -r does not copy; 'cp -a' does",
		                entry->fts_path,
		                S_ISFIFO(st->st_mode)   ? "a FIFO"
		                : S_ISSOCK(st->st_mode) ? "a socket"
		                                        : "a device");
	default:
		return cli_fail(-entry->fts_errno, "'%s': %s", entry->fts_path,
		                strerror(entry->fts_errno));
	}
}

static void walk_source(struct tree *tree, char *path, const char *target)
{
	FTS *fts =
		fts_open((char *[]){path, NULL},
	                 FTS_PHYSICAL | FTS_NOCHDIR | (tree_syncs(tree) ? FTS_COMFOLLOW : 0), NULL);
	struct stat root = {0};
	FTSENT *entry;

	if (!fts)
		err(CLI_FAILED, "'%s'", path);
	while (errno = 0, !cli_interrupted() && (entry = fts_read(fts))) {
		CLI_OWNED char *to = cli_format("%s%s", target, entry->fts_path + strlen(path));
		int rc = visit_entry(tree, entry, to, &root);

		if (rc && entry->fts_info == FTS_D)
			fts_set(fts, entry, FTS_SKIP);
		else if (entry->fts_info == FTS_D && entry->fts_level == 0)
			stat(to, &root);
		tree->rc = tree->rc ? tree->rc : rc;
	}
	if (errno)
		tree->rc = cli_fail(-errno, "'%s': %s", path, strerror(errno));
	fts_close(fts);
}

/* Tells whether each part of a name names something in a folder. */
static bool stays_inside(const char *name)
{
	for (const char *part = name;; part += strcspn(part, "/") + 1) {
		size_t n = strcspn(part, "/");

		if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && !strncmp(part, "..", 2)))
			return false;
		if (!part[n])
			return true;
	}
}

/* Makes the folders that path is in, from the one at `from` on. Returns 0 or an errno, printed. */
static int make_folders(const struct tree *tree, char *path, size_t from)
{
	int rc = 0;

	for (char *slash = path + from; rc == 0 && slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0777 & ~tree->o->mask) && errno != EEXIST)
			rc = cli_fail(-errno, "cannot make '%s': %s", path, strerror(errno));
		*slash = '/';
	}
	return rc;
}

/* Starts copying an object. bucket: length of "s3://BUCKET/" at the start of prefix. */
static int visit_object(struct tree *tree, const char *prefix, size_t bucket,
                        const struct sluice_entry *entry, const char *folder)
{
	const char *name = entry->name;
	CLI_OWNED char *source = cli_format("%.*s%s", (int)bucket, prefix, name);
	CLI_OWNED char *shown = cli_visible(source);
	size_t n = strlen(prefix) - bucket;
	const char *rest = strncmp(name, prefix + bucket, n) ? "" : name + n;
	CLI_OWNED char *target = cli_format("%s/%s", folder, rest);
	bool inside = cli_is_object(folder) || stays_inside(rest), takes = true;
	struct cli_source object = {entry->length,
	                            entry->modified_ns ? entry->modified_ns : INT64_MAX,
	                            entry->etag, false};
	int rc;

	if (tree->o->sync)
		takes = cli_sync_takes(tree->o->sync, target, inside, &object);
	if (!takes || cli_is_object(folder))
		rc = 0;
	else if (!inside)
		rc = cli_fail(-EINVAL, "'%s' is not copied: no file in '%s' can have that name",
		              shown, folder);
	else
		rc = tree_is_flat(tree) ? 0 : make_folders(tree, target, strlen(folder));
	if (rc == 0 && takes)
		cli_jobs_push(tree->jobs, source, target, entry->length, true);
	return rc;
}

/*
 * Copies the objects with names that begin with the prefix, which ends in '/'. Returns 1, 0 if
 * there are none, or a negative errno, printed; the error of an object is in tree->rc.
 */
static int walk_objects(struct tree *tree, const char *prefix)
{
	struct sluice_open_options options = cli_open_options(&tree->o->open);
	struct sluice_entry entry = {.size = sizeof(entry)};
	size_t bucket = strlen("s3://") + strcspn(prefix + strlen("s3://"), "/") + 1;
	CLI_OWNED char *folder = tree_folder(tree);
	sluice_list *list = NULL;
	int found = 0;

	cli_interrupt_wait(true);
	int rc = cli_said(sluice_list_open(tree->objects, prefix, &options, 1, &list));
	while (list && !cli_interrupted() && (rc = cli_said(sluice_list_next(list, &entry))) > 0) {
		cli_interrupt_wait(false);
		rc = cli_is_marker(&entry) ? 0 : visit_object(tree, prefix, bucket, &entry, folder);
		tree->rc = tree->rc ? tree->rc : rc;
		found = 1;
		cli_interrupt_wait(true);
	}
	cli_interrupt_wait(false);
	sluice_list_free(list);
	return rc < 0 ? rc : found;
}

/* Copies the objects below a prefix, or the object of that name if there are none. */
static int start_objects(struct tree *tree, const char *source)
{
	size_t n = strlen(source);
	bool folder = source[n - 1] == '/';
	CLI_OWNED char *prefix = cli_format("%s%s", source, folder ? "" : "/");
	int rc = walk_objects(tree, prefix);

	if (rc == 0 && !folder && !tree->o->sync)
		cli_jobs_push(tree->jobs, source, tree->o->target, UINT64_MAX, false);
	else if (rc == 0 && !cli_interrupted())
		rc = cli_fail(-ENOENT, "there are no objects in '%s'", source);
	return rc < 0 ? rc : 0;
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Starts copying a source. into: to the source's last part in the directory o->target. */
static int start_source(struct tree *tree, const char *source, bool into)
{
	if (tree->o->open.recursive && cli_is_object(source))
		return start_objects(tree, source);
	CLI_OWNED char *path = cli_local_path(source), *target = NULL, *folder = tree_folder(tree);
	CLI_OWNED char *shown = cli_uri_name(source);
	size_t n = path ? strlen(path) : cli_uri_length(source);
	struct stat st = {0};
	int rc = 0;

	while (path && n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	const char *last = path ? path : source, *slash = memrchr(last, '/', n);
	char *name = cli_format("%.*s", (int)(last + n - (slash ? slash + 1 : last)),
	                        slash ? slash + 1 : last);
	bool named = into && *name && strcmp(name, ".") && strcmp(name, "..");
	bool kept = named && *(char **)tsearch(name, &tree->names, compare_texts) == name;
	bool is_folder = path && !(tree_syncs(tree) ? stat : lstat)(path, &st) &&
	                 (S_ISDIR(st.st_mode) || (tree->o->open.recursive && S_ISLNK(st.st_mode)));

	if (named && !kept) {
		rc = cli_fail(-EEXIST, "'%s': there was a SRC of that name already", shown);
	} else if (!is_folder && tree->o->sync) {
		rc = cli_fail(-ENOTDIR, "'%s' is no folder", shown);
	} else if (!is_folder) {
		if (named && cli_is_object(folder))
			target = cli_format("%s/%s", folder, name);
		cli_jobs_push(tree->jobs, source, target ? target : tree->o->target,
		              path ? target_bytes(folder, &st) : UINT64_MAX, target);
	} else if (!tree->o->open.recursive) {
		rc = cli_fail(-EISDIR, "'%s' is a directory, which -r copies", path);
	} else {
		target = cli_format("%s%s%s", folder, named || !strcmp(path, "/") ? "/" : "",
		                    named ? name : "");
		walk_source(tree, path, target);
	}
	if (!kept)
		free(name);
	return rc;
}

/* Finishes folders from the last to the first: content comes before its folder. */
static void finish_folders(struct tree *tree)
{
	while (tree->folder_count) {
		struct folder *folder = &tree->folders[--tree->folder_count];
		int rc = 0;

		if (tree->o->preserve)
			rc = cli_preserve(folder->source, &folder->st, folder->path);
		else if (chmod(folder->path, folder->st.st_mode & 01777 & ~tree->o->mask))
			rc = cli_fail(-errno, "'%s': %s", folder->path, strerror(errno));
		tree->rc = tree->rc ? tree->rc : rc;
		free(folder->source);
		free(folder->path);
	}
	free(tree->folders);
}

/* Tells whether objects are written, or a list says the length of those that are read. */
static bool has_objects(const struct cli_cp_options *o)
{
	if (cli_is_object(o->target))
		return true;
	for (size_t i = 0; o->open.recursive && i < o->count; i++)
		if (cli_is_object(o->sources[i]))
			return true;
	return false;
}

int cli_cp_tree(const struct cli_cp_options *o, struct cli_moved *moved)
{
	struct tree tree = {.o = o};
	/* The user writes ./- for a directory of that name. */
	CLI_OWNED char *path = strcmp(o->target, "-") ? cli_local_path(o->target) : NULL;
	CLI_OWNED char *shown = cli_uri_name(o->target);
	struct stat st;
	bool into = path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	bool fits = path && (into || o->count == 1), left;
	int rc = 0;

	/* A prefix takes any number. */
	if (cli_is_object(o->target)) {
		fits = true;
		into = o->count > 1;
	}
	if (!fits)
		return cli_fail(-ENOTDIR, "'%s' is no directory, as several SRC, and -r, need it",
		                shown);
	if (has_objects(o) && cli_context_new(o->open.backend, 0, &tree.objects))
		return -ENOMEM;
	into = into && !tree_syncs(&tree);
	if (o->sync && (rc = cli_sync_begin(o, tree.objects, tree_folder(&tree)))) {
		cli_sync_finish(o, tree.objects, rc);
		sluice_context_close(tree.objects);
		return rc;
	}
	tree.jobs = cli_jobs_start(o, tree.objects);
	for (size_t i = 0; i < o->count && !cli_interrupted(); i++) {
		rc = start_source(&tree, o->sources[i], into);
		tree.rc = tree.rc ? tree.rc : rc;
	}
	rc = cli_jobs_finish(tree.jobs, moved, &left);
	finish_folders(&tree);
	if (left)
		cli_interrupt_obey();
	rc = tree.rc ? tree.rc : rc;
	if (o->sync)
		rc = cli_sync_finish(o, tree.objects, rc);
	sluice_context_close(tree.objects);
	tdestroy(tree.names, free);
	return rc;
}
