! SPDX-License-Identifier: Apache-2.0
!
! usage: mpirun -n RANKS write_ranks FILE
!
! Each rank computes some columns of a field u(nx, ny) and submits them; FILE has all of them, frame by frame. The last
! dimension of an array of Fortran is the first of sluice and HDF5: a frame is ny x nx there.
!
!   mpif90 $(pkg-config --variable=fortran_module sluice) write_ranks.f90 $(pkg-config --libs sluice-mpi) -o write_ranks
program write_ranks
  use mpi_f08
  use sluice
  implicit none

  integer, parameter :: nx = 50, ny = 70, frames = 6
  integer :: level, rank, ranks, first, last, i, j, k
  character(len=1024) :: path
  type(c_ptr) :: context, writer, series, frame
  type(sluice_series_options) :: options
  type(sluice_block) :: block
  real(c_double), pointer :: u(:, :)

  call get_command_argument(1, path)
  call MPI_Init_thread(MPI_THREAD_MULTIPLE, level)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  first = ny * rank / ranks
  last = ny * (rank + 1) / ranks - 1

  call must(sluice_context_new(c_null_ptr, context))
  call must(sluice_writer_open_mpi_fortran(context, MPI_COMM_WORLD%MPI_VAL, trim(path)//c_null_char, &
    c_null_ptr, writer))
  options%size = c_sizeof(options)
  options%type = sluice_float64
  options%rank = 2
  options%shape(1:2) = [ny, nx]
  block%start(1:2) = [first, 0]
  block%count(1:2) = [last - first + 1, nx]
  call must(sluice_series_add_block(writer, "fields/u"//c_null_char, options, block, -1_c_int, series))
  do k = 0, frames - 1
    if (.not. c_associated(series)) exit ! this rank has no columns
    call must(sluice_series_acquire(series, -1_c_int, frame))
    call c_f_pointer(frame, u, [nx, last - first + 1])
    do j = first, last
      do i = 0, nx - 1
        u(i + 1, j - first + 1) = 10000 * k + 100 * j + i
      end do
    end do
    call must(sluice_series_submit(series, frame, c_null_ptr))
  end do
  call must(sluice_writer_close(writer, -1_c_int))
  call must(sluice_context_close(context))
  call MPI_Finalize()

contains
  subroutine must(rc)
    integer(c_int), intent(in) :: rc

    if (rc >= 0) return
    write (*, *) "rank ", rank, ": ", sluice_message()
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end program
