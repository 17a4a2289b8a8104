/* SPDX-License-Identifier: Apache-2.0 */
/* A small tmpfs of a mount namespace of its own, which goes with the process. */
#ifndef SMALL_DISK_H
#define SMALL_DISK_H

#include <stdbool.h>

/* Runs the tests of that file on it; the result is for exit(). */
int disk_run(const char *file);
/* The path of a file that is not there, on a disk with so much room. Skips the test where nothing can be mounted. */
const char *disk_file(unsigned kib);
void disk_leave_room(unsigned kib);
void disk_leave_all(void); /* by any thread */
/* Nothing is on it but so many files and the ballast that takes the room. */
void assert_disk_has(unsigned files);

#endif
