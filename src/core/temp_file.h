/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are written under a temporary name and renamed to their final name when they are complete. */
#ifndef SL_TEMP_FILE_H
#define SL_TEMP_FILE_H

#include <stdbool.h>
#include <sys/types.h>

struct stat;

#define SL_TEMPORARY_ATTEMPTS 100

/*
 * Resolves a path through symbolic links to an absolute path, which the caller frees.
 *
 * Returns 1 if the file exists, 0 if only its folder does, or -errno with a sentence.
 */
int sl_path_resolve(const char *path, char **out);
/*
 * Checks whether a file may be made at a resolved path. Returns 0, or -errno with a sentence. *there is the file that
 * exists; its st_mode stays 0 if there is no file.
 */
int sl_path_replaceable(const char *path, bool replace, struct stat *there);
/* Returns ".name.0123456789abcdef.sluice" in the folder of a resolved path; NULL: no memory. The caller frees it. */
char *sl_temporary_name(const char *path);
/*
 * Makes a new file with a temporary name beside `path`; the caller frees the name.
 *
 * Returns its descriptor, -EEXIST if all names that were tried are taken, or another -errno.
 */
int sl_temporary_open(const char *path, mode_t mode, char **name);
/* Renames a file unless the new name is taken. Returns 0 or -errno. */
int sl_rename_to_new(const char *from, const char *to);
/*
 * Gives the file `fd` the owner, group and permissions of the file that it replaces, as far as this process may. A
 * set-ID bit is kept only together with the owner or group that it was set for.
 */
void sl_copy_ownership(int fd, const struct stat *old, bool keep_mode);

#endif
