/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that gets its name after its first flush. Until then it has no name, and a process
 * that dies leaves nothing behind; where the file system lacks this, it has a temporary name
 * beside the final name. What a process that dies leaves there is removed when the next file for that name is opened, a
 * minute later or after.
 */
#ifndef SL_NEW_FILE_H
#define SL_NEW_FILE_H

#include "core/core.h"

struct sl_new_file {
	char *path;      /* absolute, no symbolic link */
	char *temporary; /* NULL: it has none */
	bool replace;
	bool named;
	int fd; /* for reading and writing; above 2, so that no program mistakes it for its own */
};

/*
 * Opens it. Takes ownership of path in any case. replace: a regular file may have the name; the
 * new file gets its owner and, if mode is 0, its permissions. Otherwise -EEXIST if the name is
 * taken. nameless: without a temporary name if possible.
 */
int sl_new_file_open(char *path, bool replace, bool nameless, unsigned mode,
                     struct sl_new_file *out);
/* Gives it its name; -EEXIST if that has been taken meanwhile and is not to be replaced.
 * durable: the name survives the loss of power. With a sentence. */
int sl_new_file_name(struct sl_new_file *file, bool durable);
/* Closes it. A file without a name is gone. */
void sl_new_file_close(struct sl_new_file *file);

#endif
