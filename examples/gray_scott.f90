! SPDX-License-Identifier: Apache-2.0
!
! usage: mpirun -n RANKS gray_scott FILE
!
! Two substances react and diffuse (Gray and Scott) on a square that is closed to a torus. Each rank has some columns, and
! FILE gets the concentration of one of them, frame by frame, while the ranks compute on. The three lines marked with sluice are
! all that the program adds to its own, and start() and finish() the calls behind two of them.
!
!   mpif90 -O2 $(pkg-config --variable=fortran_module sluice) gray_scott.f90 $(pkg-config --libs sluice-mpi) -o gray_scott
program gray_scott
  use mpi_f08
  use sluice
  implicit none

  integer, parameter :: n = 96, steps = 400, between = 50
  real(c_double), parameter :: du = 0.16d0, dv = 0.08d0, feed = 0.04d0, kill = 0.06d0
  integer :: level, rank, ranks, first, last, left, right, step, i, j
  real(c_double), allocatable :: u(:, :), next_u(:, :), next_v(:, :)
  real(c_double), allocatable, target :: v(:, :)
  real(c_double) :: reaction
  type(c_ptr) :: context, writer, series

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, level)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  first = n * rank / ranks + 1
  last = n * (rank + 1) / ranks
  left = modulo(rank - 1, ranks)
  right = modulo(rank + 1, ranks)
  ! With a column of each neighbour.
  allocate (u(n, first - 1:last + 1), v(n, first - 1:last + 1))
  allocate (next_u, source=u)
  allocate (next_v, source=v)
  u = 1
  v = 0
  do j = max(first, n / 2 - 6), min(last, n / 2 + 6)
    u(n / 2 - 6:n / 2 + 6, j) = 0.5d0
    v(n / 2 - 6:n / 2 + 6, j) = 0.25d0 + 0.001d0 * modulo(7 * j, 13)
  end do

  call start() ! sluice
  do step = 1, steps
    call exchange(u)
    call exchange(v)
    do j = first, last
      do i = 1, n
        reaction = u(i, j) * v(i, j)**2
        next_u(i, j) = u(i, j) + du * around(u, i, j) - reaction + feed * (1 - u(i, j))
        next_v(i, j) = v(i, j) + dv * around(v, i, j) + reaction - (feed + kill) * v(i, j)
      end do
    end do
    u(:, first:last) = next_u(:, first:last)
    v(:, first:last) = next_v(:, first:last)
    if (modulo(step, between) == 0) then
      call must(sluice_series_push(series, c_loc(v(1, first)), c_null_ptr, -1_c_int)) ! sluice: copies the columns
    end if
  end do
  call finish() ! sluice
  call MPI_Finalize()

contains
  subroutine start()
    type(sluice_series_options) :: options
    type(sluice_block) :: block
    character(len=1024) :: path

    call get_command_argument(1, path)
    call must(sluice_context_new(c_null_ptr, context))
    call must(sluice_writer_open_mpi_fortran(context, MPI_COMM_WORLD%MPI_VAL, trim(path)//c_null_char, c_null_ptr, writer))
    options%size = c_sizeof(options)
    options%type = sluice_float64
    options%rank = 2
    options%shape(1:2) = n
    block%start(1:2) = [first - 1, 0]
    block%count(1:2) = [last - first + 1, n]
    call must(sluice_series_add_block(writer, "v"//c_null_char, options, block, -1_c_int, series))
  end subroutine

  subroutine finish()
    call must(sluice_writer_close(writer, -1_c_int))
    call must(sluice_context_close(context))
  end subroutine

  real(c_double) function around(w, i, j)
    real(c_double), intent(in) :: w(:, first - 1:)
    integer, intent(in) :: i, j

    around = w(modulo(i, n) + 1, j) + w(modulo(i - 2, n) + 1, j) + w(i, j - 1) + w(i, j + 1) - 4 * w(i, j)
  end function

  ! The columns of the neighbours.
  subroutine exchange(w)
    real(c_double), intent(inout) :: w(:, first - 1:)

    call MPI_Sendrecv(w(:, first), n, MPI_DOUBLE_PRECISION, left, 0, w(:, last + 1), n, MPI_DOUBLE_PRECISION, right, 0, &
      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(w(:, last), n, MPI_DOUBLE_PRECISION, right, 1, w(:, first - 1), n, MPI_DOUBLE_PRECISION, left, 1, &
      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  end subroutine

  subroutine must(rc)
    integer(c_int), intent(in) :: rc

    if (rc >= 0) return
    write (*, *) "rank ", rank, ": ", sluice_message()
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end program
