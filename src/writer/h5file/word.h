/* SPDX-License-Identifier: Apache-2.0 */
/* The word of a file with frames: readers beside the writer know by it whether the file changed
 * meanwhile; <sluice/frames.h> has the rule. It lies behind the superblock, in bytes not used by
 * HDF5. A writer has a lock on them, also where HDF5's own lock is switched off. Threads: any. */
#ifndef SL_WORD_H
#define SL_WORD_H

#include "core/core.h"

#define SL_WORD_PLACE 128
#define SL_WORD_END   256 /* HDF5's first block comes here */

/* type: F_WRLCK or F_UNLCK. 0, also without locks; -EWOULDBLOCK: another open file has it. */
int sl_word_lock(int fd, short type);
/* 1; 0: the file has none; or a negative errno. */
int sl_word_read(int fd, uint64_t *out);
int sl_word_write(int fd, uint64_t word);

#endif
