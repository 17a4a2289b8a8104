! SPDX-License-Identifier: Apache-2.0
!
! usage: mpirun -n RANKS write_ranks FILE
!
! Each rank computes some columns of a field u(nx, ny) and submits them; FILE has all of them, frame by frame. The last
! dimension of an array of Fortran is the first of sluice and HDF5: a frame is ny x nx there. The module has as much of
! <sluice/mpi.h> as the program needs.
!
!   mpif90 write_ranks.f90 $(pkg-config --libs sluice-mpi) -o write_ranks
module sluice
  use, intrinsic :: iso_c_binding
  implicit none

  integer(c_int), parameter :: sluice_float64 = 11

  type, bind(c) :: sluice_series_options
    integer(c_size_t) :: size = 0 ! c_sizeof() of it
    integer(c_int) :: type = 0, rank = 0
    integer(c_int64_t) :: shape(4) = 0, chunk(4) = 0, frames = 0
    integer(c_int) :: depth = 0
    type(c_ptr) :: codec = c_null_ptr
    integer(c_int) :: level = 0, shuffle = 0, precision = 0, flags = 0
    type(c_ptr) :: scalars = c_null_ptr
    integer(c_size_t) :: scalar_count = 0
    type(c_ptr) :: attributes = c_null_ptr
    integer(c_size_t) :: attribute_count = 0
    integer(c_int64_t) :: continue_at = 0
    type(c_ptr) :: dimensions = c_null_ptr
    integer(c_int64_t) :: chunk_frames = 0, string_bytes = 0
  end type

  type, bind(c) :: sluice_block
    integer(c_int64_t) :: start(4) = 0, count(4) = 0
  end type

  interface
    integer(c_int) function sluice_context_new(config, context) bind(c)
      import
      type(c_ptr), value :: config
      type(c_ptr), intent(out) :: context
    end function
    integer(c_int) function sluice_context_close(context) bind(c)
      import
      type(c_ptr), value :: context
    end function
    integer(c_int) function sluice_writer_open_mpi_fortran(context, comm, path, options, writer) bind(c)
      import
      type(c_ptr), value :: context, options
      integer(c_int), value :: comm ! MPI_Fint
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), intent(out) :: writer
    end function
    integer(c_int) function sluice_series_add_block(writer, dataset, options, block, timeout_ms, series) bind(c)
      import
      type(c_ptr), value :: writer
      character(kind=c_char), intent(in) :: dataset(*)
      type(sluice_series_options), intent(in) :: options
      type(sluice_block), intent(in) :: block
      integer(c_int), value :: timeout_ms
      type(c_ptr), intent(out) :: series
    end function
    integer(c_int) function sluice_series_acquire(series, timeout_ms, frame) bind(c)
      import
      type(c_ptr), value :: series
      integer(c_int), value :: timeout_ms
      type(c_ptr), intent(out) :: frame
    end function
    integer(c_int) function sluice_series_submit(series, frame, scalars) bind(c)
      import
      type(c_ptr), value :: series, frame, scalars
    end function
    integer(c_int) function sluice_writer_close(writer, timeout_ms) bind(c)
      import
      type(c_ptr), value :: writer
      integer(c_int), value :: timeout_ms
    end function
    type(c_ptr) function sluice_last_message() bind(c)
      import
    end function
    integer(c_size_t) function strlen(text) bind(c)
      import
      type(c_ptr), value :: text
    end function
  end interface
end module

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
    character(kind=c_char), pointer :: text(:)
    type(c_ptr) :: message

    if (rc >= 0) return
    message = sluice_last_message()
    call c_f_pointer(message, text, [strlen(message)])
    write (*, *) "rank ", rank, ": ", text
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end program
