/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The moments at which a process may die: before each write to a file, and inside of one that
 * crosses a page. Whoever links this gets it for its own writes and for those of libraries.
 */
#ifndef POINTS_H
#define POINTS_H

/* What happens at a point, which are counted from 1. Returns 0, or an errno: the call fails. */
extern int (*points_hook)(unsigned point);

#endif
