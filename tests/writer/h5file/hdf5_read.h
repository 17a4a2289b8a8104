/* SPDX-License-Identifier: Apache-2.0 */
/* What HDF5 reads of a file of frames, without an assert. */
#ifndef TESTS_FRAMES_HDF5_READ_H
#define TESTS_FRAMES_HDF5_READ_H

#include <hdf5.h>
#include <stdint.h>

/* The frames that a dataset has, by its attribute or, without one, its extent; UINT64_MAX: cannot be read. */
uint64_t hdf5_frames(hid_t set);
/* All of a dataset; the caller frees it. NULL: it cannot be read. */
void *hdf5_read_all(hid_t set, hid_t type);
/* The result of a look by a process of its own, made here and now, in which whoever wrote the file may not be gone
 * altogether. 128 + signal: it died of that; -1: there is no process. */
int hdf5_look_apart(int (*look)(const void *argument), const void *argument);

#endif
