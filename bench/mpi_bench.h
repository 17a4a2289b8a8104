/* SPDX-License-Identifier: Apache-2.0 */
/* A program of ranks that store: bench_mpi by sluice (mpi_sluice.c), bench_mpi_hdf5 by parallel HDF5 (mpi_hdf5.c). */
#ifndef BENCH_MPI_BENCH_H
#define BENCH_MPI_BENCH_H

#include <mpi.h>

#include "writer_bench.h"

/* The way that options.kind names, or NULL. *files: whether each rank has a file of its own, whose path is set then. */
const struct sink_ops *mpi_choose(int rank, int *files);

#endif
