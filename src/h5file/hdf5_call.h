/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of HDF5 by a writer: the lock around them, HDF5's printing of errors, and its error
 * messages. */
#ifndef SL_HDF5_CALL_H
#define SL_HDF5_CALL_H

#include <hdf5.h>

#include "core/core.h"

/* Prepares the library. 0, or -ENOTSUP with a sentence: it has no lock of its own, and alone is
 * false. */
int sl_hdf5_start(bool alone);

/* Between enter and leave HDF5 prints no errors, is used by a single thread of all writers, and
 * no child is forked. leave restores the program's setting. They do not nest. */
struct sl_hdf5_stay {
	H5E_auto2_t print;
	H5E_auto1_t print_old;
	void *data;
	unsigned current; /* the interface that the program's setting is of: print, or print_old */
};
void sl_hdf5_enter(struct sl_hdf5_stay *stay);
void sl_hdf5_leave(struct sl_hdf5_stay *stay);
/*
 * Between those two, while the thread waits for storage: other writers may be in HDF5, and
 * children be forked. Where HDF5 has no lock of its own nothing happens, as the setting above
 * is the process's there.
 */
void sl_hdf5_pause(void);
void sl_hdf5_resume(void);

/*
 * Returns the result of a call unchanged. If it is negative, HDF5's message is kept for the
 * next sl_hdf5_fail() on this thread, because later calls that close objects make HDF5 forget
 * it.
 */
int64_t sl_hdf5_noted(int64_t result);
/* Like sl_fail(), followed by HDF5's message of the noted call, or else of its last call. */
__attribute__((format(printf, 2, 3))) int sl_hdf5_fail(int error, const char *format, ...);

#endif
