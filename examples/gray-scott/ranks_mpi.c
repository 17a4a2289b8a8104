/* SPDX-License-Identifier: Apache-2.0 */
#include <sluice/mpi.h>
#include <stdlib.h>

#include "ranks.h"

struct ranks ranks;

/* Sluice has a thread that calls MPI, too. */
void ranks_start(int *argc, char ***argv)
{
	int level;

	MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &ranks.own);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks.count);
}

void ranks_end(void)
{
	MPI_Finalize();
}

void ranks_abort(void)
{
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

void ranks_meet(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
}

static int existing(int rank)
{
	return rank >= 0 && rank < ranks.count ? rank : MPI_PROC_NULL;
}

void ranks_exchange(const float *out, int to, float *in, int from, size_t n)
{
	MPI_Sendrecv(out, (int)n, MPI_FLOAT, existing(to), 0, in, (int)n, MPI_FLOAT, existing(from),
	             0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void ranks_gather(float *frame, size_t rows, size_t columns)
{
	MPI_Datatype row;

	MPI_Type_contiguous((int)columns, MPI_FLOAT, &row);
	MPI_Type_commit(&row);
	for (int r = 1; r < ranks.count; r++) {
		size_t first = ranks_first(rows, r);
		int count = (int)(ranks_first(rows, r + 1) - first);

		if (ranks.own == r)
			MPI_Send(frame, count, row, 0, 0, MPI_COMM_WORLD);
		else if (!ranks.own)
			MPI_Recv(frame + first * columns, count, row, r, 0, MPI_COMM_WORLD,
			         MPI_STATUS_IGNORE);
	}
	MPI_Type_free(&row);
}

void ranks_reduce(double *most, int n, double *sum)
{
	MPI_Reduce(ranks.own ? most : MPI_IN_PLACE, most, n, MPI_DOUBLE, MPI_MAX, 0,
	           MPI_COMM_WORLD);
	MPI_Reduce(ranks.own ? sum : MPI_IN_PLACE, sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}

int ranks_open_writer(sluice_context *context, const char *path,
                      const struct sluice_writer_options *options, sluice_writer **out)
{
	return sluice_writer_open_mpi(context, MPI_COMM_WORLD, path, options, out);
}

int ranks_add_series(sluice_writer *writer, const char *name,
                     const struct sluice_series_options *options, const struct sluice_block *block,
                     sluice_series **out)
{
	return sluice_series_add_block(writer, name, options, block, -1, out);
}
