/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that gets its name when there is something in it worth a name. Until then it has none, and a
 * process that dies leaves nothing; where the file system cannot do that, it has a temporary one
 * beside the final one.
 */
#ifndef SL_NEW_FILE_H
#define SL_NEW_FILE_H

#include <sys/types.h>

#include "core/core.h"

struct sl_new_file {
	char *path;      /* absolute, no symbolic link */
	char *temporary; /* NULL: it has none */
	bool replace;
	bool named;
	int fd; /* for reading and writing; above 2, so that no program mistakes it for its own */
};

/*
 * path becomes the file's, whatever this returns. replace: a regular file may have the name now, whose
 * owner and permissions the new one gets; the latter unless mode is not 0. Otherwise -EEXIST if the
 * name is taken.
 */
int sl_new_file_open(char *path, bool replace, unsigned mode, struct sl_new_file *out);
/* Gives it its name; -EEXIST if that has been taken meanwhile and is not to be replaced. durable: the name
 * survives the loss of power. With a sentence. */
int sl_new_file_name(struct sl_new_file *file, bool durable);
/* Closes it. What has no name is gone. */
void sl_new_file_close(struct sl_new_file *file);

#endif
