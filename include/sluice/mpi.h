/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames from the ranks of an MPI program into one HDF5 file, or one for each node: libsluice-mpi
 * (pkg-config sluice-mpi). This header opens the writer; <sluice/ranks.h> says how it differs from
 * a writer of a single process, which calls wait for other ranks, and what is promised when a rank
 * dies.
 *
 *     sluice_writer_open_mpi(ctx, MPI_COMM_WORLD, "run.h5", NULL, &w);
 *     sluice_series_add_block(w, "fields/u", &options, &block, 60000, &u); // options.shape: of all
 *     for each step:
 *         sluice_series_acquire(u, -1, &frame); fill it; sluice_series_submit(u, frame, NULL);
 *     sluice_writer_close(w, -1);
 *     MPI_Finalize();
 *
 * Threads. If MPI was initialised with MPI_THREAD_MULTIPLE, each rank has one thread of ours for
 * messages, on a duplicate of the communicator. It never calls a function of MPI that blocks,
 * because OpenMPI's spin: it tests, and sleeps between tests, up to a millisecond if there is
 * nothing to do. It blocks all signals, and ends with the writer. Below MPI_THREAD_MULTIPLE the
 * calls of the writer call MPI on the thread of the caller, which must be a thread that may call
 * MPI: with MPI_THREAD_FUNNELED, and MPI_THREAD_SINGLE, the main thread; with MPI_THREAD_SERIALIZED
 * not beside another call of MPI. A writer then makes progress only in calls of its functions, of
 * which sluice_writer_progress() is the one that does nothing else; a program calls it now and then
 * in long steps. Compression and writing are threads of ours in each case, which call no MPI.
 *
 * No call of a program's step is collective, none is a barrier. A writer is closed or discarded
 * before MPI_Finalize(); if it is not, MPI_Finalize() of any rank leaves the file as of the last
 * flush, and calls of the writer then return -ESHUTDOWN on all ranks.
 */
#ifndef SLUICE_MPI_H
#define SLUICE_MPI_H

#include <mpi.h>
#include <sluice/ranks.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Opens a file for frames of all ranks of a communicator, which is duplicated and stays the
 * caller's. Collective: all ranks call it, with the same path and options but for `threads` and
 * `open_ms`. The file system of the path is one that all ranks see. o may be NULL. The context must
 * outlive the writer.
 *
 * Waits until all ranks have called it, or open_ms of the options.
 *
 * Returns 0, the errors of sluice_writer_open() of any rank, which then are the result on all
 * ranks, or
 *   -EINVAL    the communicator is MPI_COMM_NULL or an intercommunicator, MPI is not initialised or
 *              is finalised, or ranks gave different paths or options
 *   -EIO       MPI reports an error; the sentence has its text
 *   -ETIMEDOUT   not all ranks have called it in time. MPI does not say which; and a rank that
 *              calls it later waits without end, as in other collective calls that some have not
 *              made, so that a program calls MPI_Abort() then
 */
SLUICE_API int sluice_writer_open_mpi(sluice_context *ctx, MPI_Comm comm, const char *path,
                                      const struct sluice_writer_options *o, sluice_writer **out);

/* The same with a communicator of Fortran, which passes an integer (comm%MPI_VAL of mpi_f08). */
SLUICE_API int sluice_writer_open_mpi_fortran(sluice_context *ctx, MPI_Fint comm, const char *path,
                                              const struct sluice_writer_options *o,
                                              sluice_writer **out);

#ifdef __cplusplus
}
#endif
#endif
