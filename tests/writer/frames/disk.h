/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk of a file: a log of all that is written to it, synced, named and promised, and what is left of the file if its
 * writer is killed at a moment, or the disk loses power there.
 */
#ifndef DISK_H
#define DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is there of the writes since the last sync. A page of 4096 bytes is as it was at a moment, and what came before the
 * sync is there. */
enum disk_mode {
	DISK_KILLED,      /* all of them */
	DISK_ANY,         /* of each page the first few */
	DISK_ALL_OR_NONE, /* of each page all or none */
	DISK_BUT_ONE,     /* all but those of a page */
	DISK_MODES
};

struct disk;

/* In memory that processes share. */
struct disk *disk_new(void);
/* Forgets all. The file begins as it is now; without a name, if it is not there. */
void disk_begin(struct disk *disk, const char *path);
/* From here on the writes of this process, which links points.c, are those of the file. */
void disk_record(struct disk *disk);
void disk_tell(struct disk *disk, const void *bytes, size_t n);
/* Moments: from 0 up to this one. */
size_t disk_events(const struct disk *disk);
/* What was told last before the moment; NULL: nothing. */
const void *disk_told(const struct disk *disk, size_t moment);
/* Makes the file what is left of it; without a name there is none. */
void disk_lose(const struct disk *disk, size_t moment, enum disk_mode mode, uint64_t *seed,
               const char *path);

#endif
