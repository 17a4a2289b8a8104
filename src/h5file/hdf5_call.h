/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5 while the writer is in it: who may be, what it prints, and what it says of an error. */
#ifndef SL_HDF5_CALL_H
#define SL_HDF5_CALL_H

#include <hdf5.h>

#include "core/core.h"

/* Prepares the library. 0, or -ENOTSUP with a sentence: it has no lock of its own, and alone is false. */
int sl_hdf5_start(bool alone);

/*
 * Between these two HDF5 prints nothing about errors, and is used by one thread of the writers; no child
 * is forked meanwhile. The program's own setting is as it was after leave. They do not nest.
 */
struct sl_hdf5_stay {
	H5E_auto2_t print;
	H5E_auto1_t print_old;
	void *data;
	unsigned current; /* the interface that the program's setting is of: print, or print_old */
};
void sl_hdf5_enter(struct sl_hdf5_stay *stay);
void sl_hdf5_leave(struct sl_hdf5_stay *stay);
/*
 * Between those two, while the thread waits for storage: other writers may be in HDF5, and children be
 * forked. Where HDF5 has no lock of its own nothing happens, as the setting above is the process's there.
 */
void sl_hdf5_pause(void);
void sl_hdf5_resume(void);

/*
 * The result of a call as it is. If it is negative, what HDF5 says of it is kept for the next
 * sl_hdf5_fail() on this thread: whatever is closed in between would make HDF5 forget it.
 */
int64_t sl_hdf5_noted(int64_t result);
/* Like sl_fail(); the sentence goes on with what HDF5 says of the noted call, or else of its last one. */
__attribute__((format(printf, 2, 3))) int sl_hdf5_fail(int error, const char *format, ...);

#endif
