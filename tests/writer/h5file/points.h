/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The moments at which a process may die: before each write to a file, and inside of one that
 * crosses a page. Whoever links this gets it for its own writes and for those of libraries.
 */
#ifndef POINTS_H
#define POINTS_H

#include <stddef.h>
#include <stdint.h>

/* What happens at a point, which are counted from 1. Returns 0, or an errno: the call fails. */
extern int (*points_hook)(unsigned point);
/* What was written; without bytes, the file is that long now. */
extern void (*points_written)(int64_t offset, const void *bytes, size_t size);
/* Before fdatasync(). */
extern void (*points_barrier)(void);
/* A file has got a name. */
extern void (*points_named)(void);

#endif
